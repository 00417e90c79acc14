"""The table of AMD GPU targets, looked up exactly.

Processors are defined in the folders of their generations (`luthier.arch`). Other packages add processors by an entry
point of the group ``luthier.arch`` whose value is a sequence of `Target`, of their own or Luthier's generations.
Reading entry points takes longer than most commands, so they are read only for an unknown processor, or for all
processors. A duplicate name or number is then an error.

Sources: LLVM AMDGPUUsage ("Processors", "Generic Processors"); llvm/BinaryFormat/ELF.h for the machine numbers. The
tests compare every processor with LLVM's assembler.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from luthier.arch import gfx9, gfx10, gfx11, gfx12, gfx90a, gfx103, gfx115, gfx908, gfx940, gfx950, gfx1250
from luthier.arch.amdgcn import AMDGCN
from luthier.arch.generation import Generation
from luthier.arch.target import Target, version_in
from luthier.errors import LuthierError, TargetError

if TYPE_CHECKING:
    from luthier.extensions.entry_points import EntryPoint

_FOLDERS = (gfx9, gfx908, gfx90a, gfx940, gfx950, gfx10, gfx103, gfx11, gfx115, gfx12, gfx1250)


class ProcessorTable:
    """Processors with unique names and numbers, and their generations with unique names.

    Args:
        processors: all must descend from Luthier's root.
        added: entry points of processors from other packages.
    """

    def __init__(self, processors: Iterable[Target], added: Mapping[str, EntryPoint] | None = None) -> None:
        self.added: dict[str, EntryPoint] = dict(added or {})
        self.processors: dict[str, Target] = {}
        self.of_mach: dict[int, Target] = {}
        self.generations: dict[str, Generation] = {AMDGCN.generation: AMDGCN}
        for processor in processors:
            self._add(processor)
        self._check_ends()

    def _add(self, processor: Target) -> None:
        name, root = processor.name, processor.lineage[-1]
        if root is not AMDGCN:
            raise TargetError(f"{processor} descends from {root}, not from {AMDGCN}", target=name)
        for generation in reversed(processor.lineage[1:]):
            if self.generations.setdefault(generation.generation, generation) is not generation:
                raise TargetError(f"{processor} redefines {generation}, which is already defined", target=name)
        if (known := self.processors.setdefault(name, processor)) is not processor:
            raise TargetError(f"there are two processors called {name}, of {known.parent} and of {processor.parent}")
        if (known := self.of_mach.setdefault(processor.mach, processor)) is not processor:
            raise TargetError(f"{known} and {processor} have the same EF_AMDGPU_MACH {processor.mach:#x}", target=name)

    def _check_ends(self) -> None:
        """Check that hazards end at descendants of the generation where they begin."""
        for generation in self.generations.values():
            for row in generation.hazard_rows:
                for name in row.until:
                    end = self.generations.get(name)
                    if end is None or generation not in end.lineage[1:]:
                        raise TargetError(
                            f"{generation}: hazard {row.name!r} ends at {name}, which does not descend from it"
                        )


_OWN = ProcessorTable(one for folder in _FOLDERS for one in folder.PROCESSORS)


@functools.cache
def _all() -> ProcessorTable:
    """Return all targets, including those of installed packages.

    Raises:
        TargetError: a target cannot be imported, is not a processor, or clashes with another.
    """
    from luthier.extensions.entry_points import ARCHITECTURES, points_of  # rarely needed

    points = {(point.name, point.value): point for point in points_of(ARCHITECTURES)}  # removes duplicates
    table = _OWN
    for point in points.values():
        try:
            processors = point.load()
            if not isinstance(processors, (tuple, list)) or not all(isinstance(one, Target) for one in processors):
                raise TargetError("must be a sequence of Target")
            table = ProcessorTable(
                [*table.processors.values(), *processors], table.added | {one.name: point for one in processors}
            )
        except Exception as problem:
            message = f"{problem}" if isinstance(problem, LuthierError) else repr(problem)
            raise TargetError(f"entry point {point.name} = {point.value} of {ARCHITECTURES}: {message}") from problem
    return table


class _Targets(Mapping[str, Target]):
    """All processors by name."""

    def __getitem__(self, name: str) -> Target:
        return _OWN.processors.get(name) or _all().processors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_all().processors)

    def __len__(self) -> int:
        return len(_all().processors)


TARGETS: Mapping[str, Target] = _Targets()


def generations() -> Mapping[str, Generation]:
    """Return all generations by name, parents before children."""
    return _all().generations


def read_so_far() -> Mapping[str, Generation]:
    """Return the generations loaded so far, including those of every existing target; see `generations`."""
    return (_all() if _all.cache_info().currsize else _OWN).generations


def added() -> Mapping[str, EntryPoint]:
    """Return the processors that installed packages add, with their entry points."""
    return _all().added


def makers() -> tuple[str, ...]:
    """Return the modules of other packages whose processors are loaded."""
    points = _all().added.values() if _all.cache_info().currsize else ()
    return tuple(dict.fromkeys(point.module for point in points))


def target_named(name: str) -> Target:
    """Return the target called exactly `name` (a bare processor, no features).

    Raises:
        TargetError: there is no such processor; the message lists the known ones.
    """
    try:
        return TARGETS[name]
    except KeyError:
        raise TargetError(f"unknown target {name!r}; known: {', '.join(TARGETS)}") from None


def target_of_mach(mach: int) -> Target:
    """Return the target whose EF_AMDGPU_MACH number is `mach`."""
    target = _OWN.of_mach.get(mach) or _all().of_mach.get(mach)
    if target is None:
        raise TargetError(f"no known target has EF_AMDGPU_MACH {mach:#x}")
    return target


def processors_of(target: Target) -> tuple[Target, ...]:
    """Return the processors that run a target's code: all that a generic one stands for, otherwise the target."""
    if not target.is_generic:
        return (target,)
    return tuple(one for one in TARGETS.values() if one.generic == target.name) or (target,)


def version_of(processor: str) -> tuple[int, int, int]:
    """Return the version of a processor, in the table or not: (9, 4, 2) for ``gfx942``.

    Raises:
        TargetError: not the name of a processor.
    """
    known = _OWN.processors.get(processor)
    return version_in(processor) if known is None else known.version


def _reduced(target: Target) -> tuple[Any, ...]:
    return target_named, (target.name,)


copyreg.pickle(Target, _reduced)
