"""The table of AMD GPU targets, looked up exactly.

The processors stand in the folders of their generations (`luthier.arch`). Other packages add some by an entry point of
the group ``luthier.arch`` whose value is a sequence of `Target`, of generations of theirs or of Luthier's own. To read
entry points takes longer than most commands, so they are read when something is asked for that Luthier does not know,
or all is. A name or a number that is there already is an error then.

Sources: LLVM AMDGPUUsage ("Processors", "Generic Processors"); llvm/BinaryFormat/ELF.h for the machine numbers. The
tests compare every processor with what LLVM assembles.
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
    """Processors of different names and numbers, and their generations, of different names.

    Args:
        processors: each of generations whose root is Luthier's.
        added: the entry points of those that are not Luthier's.
    """

    def __init__(self, processors: Iterable[Target], added: Mapping[str, EntryPoint] | None = None) -> None:
        self.added: dict[str, EntryPoint] = dict(added or {})
        self.processors: dict[str, Target] = {}
        self.of_mach: dict[int, Target] = {}
        self.generations: dict[str, Generation] = {AMDGCN.generation: AMDGCN}
        for one in processors:
            self._add(one)
        self._check_ends()

    def _add(self, one: Target) -> None:
        if one.lineage[-1] is not AMDGCN:
            raise TargetError(f"{one} descends from {one.lineage[-1]}, not from {AMDGCN}", target=one.name)
        for generation in reversed(one.lineage[1:]):
            if self.generations.setdefault(generation.generation, generation) is not generation:
                raise TargetError(
                    f"{one} is of another {generation} than Luthier or another package has", target=one.name
                )
        if (there := self.processors.setdefault(one.name, one)) is not one:
            raise TargetError(f"there are two processors called {one.name}, of {there.parent} and of {one.parent}")
        if (there := self.of_mach.setdefault(one.mach, one)) is not one:
            raise TargetError(f"{there} and {one} have the same EF_AMDGPU_MACH {one.mach:#x}", target=one.name)

    def _check_ends(self) -> None:
        """Check that what begins at a generation ends at descendants of it."""
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
    """Return all targets, those of installed packages included.

    Raises:
        TargetError: one that cannot be imported, is no processor, or clashes with another.
    """
    from luthier.extensions.entry_points import ARCHITECTURES, points_of  # few need it

    points = {(point.name, point.value): point for point in points_of(ARCHITECTURES)}  # one may be found twice
    table = _OWN
    for point in points.values():
        try:
            processors = point.load()
            if not isinstance(processors, (tuple, list)) or not all(isinstance(one, Target) for one in processors):
                raise TargetError("is no sequence of Target")
            table = ProcessorTable(
                [*table.processors.values(), *processors], table.added | {one.name: point for one in processors}
            )
        except Exception as problem:
            said = f"{problem}" if isinstance(problem, LuthierError) else repr(problem)
            raise TargetError(f"entry point {point.name} = {point.value} of {ARCHITECTURES}: {said}") from problem
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
    """All generations by name, parents before their children."""
    return _all().generations


def read_so_far() -> Mapping[str, Generation]:
    """The same without those of packages that nobody has asked for yet: of each target that is there its own."""
    return (_all() if _all.cache_info().currsize else _OWN).generations


def added() -> Mapping[str, EntryPoint]:
    """The processors that installed packages add, and by which entry points."""
    return _all().added


def makers() -> tuple[str, ...]:
    """The modules of other packages whose processors somebody has asked for."""
    found = _all().added.values() if _all.cache_info().currsize else ()
    return tuple(dict.fromkeys(point.module for point in found))


def target_named(name: str) -> Target:
    """Return the target called exactly `name` (a bare processor, no features).

    Raises:
        TargetError: no such processor, with the known ones.
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
    """Return the processors that run a target's code: of a generic one all that it stands for, of another itself."""
    if not target.is_generic:
        return (target,)
    return tuple(one for one in TARGETS.values() if one.generic == target.name) or (target,)


def version_of(processor: str) -> tuple[int, int, int]:
    """Return major version, minor version and stepping of a processor, in the table or not.

    For ``gfx942`` they are (9, 4, 2).

    Raises:
        TargetError: not the name of a processor.
    """
    known = _OWN.processors.get(processor)
    return version_in(processor) if known is None else known.version


def _reduced(target: Target) -> tuple[Any, ...]:
    return target_named, (target.name,)


copyreg.pickle(Target, _reduced)
