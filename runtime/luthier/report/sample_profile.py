"""Profiles of device code for ``clang -fprofile-sample-use``, from counts of instructions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from luthier.errors import LuthierError
from luthier.objects.source import ProfilePlace, profile_places
from luthier.report.coverage import (
    CountedCode,
    InstructionExecutions,
    counts_by_address,
    has_lanes,
    object_that_ran,
    uncounted,
)
from luthier.run.folder import RunFolder
from luthier.support.wording import counted

_NOT_NAMES = " #["
"""Signs that begin a count, a comment and a context in LLVM's text format."""


class ProfiledFunction(Struct):
    """Counts of a function of the source, over all its inlined copies."""

    entered: int = 0
    """Executions of the first instruction of each copy."""
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    """Executions by line below the declaration, and discriminator."""


class SampleProfile(CountedCode):
    """A profile of the code that a run counted."""

    functions: dict[str, ProfiledFunction]
    """By symbol."""

    def text(self) -> str:
        """Return the profile in LLVM's text format of sample profiles (llvm/ProfileData/SampleProfReader.h)."""
        lines = []
        for name, function in sorted(self.functions.items(), key=lambda item: -sum(item[1].counts.values())):
            lines.append(f"{name}:{sum(function.counts.values())}:{function.entered}")
            for (offset, discriminator), count in sorted(function.counts.items()):
                lines.append(f" {offset}{f'.{discriminator}' if discriminator else ''}: {count}")
        return "".join(f"{line}\n" for line in lines)


def sample_profile(run: RunFolder) -> SampleProfile:
    """Return the profile of a run.

    A place counts as its most executed instruction, times the copies that the compiler made of it; the copies of an
    inlined function are added.

    Raises:
        LuthierError: nothing was counted, or no counted code has declarations of functions in its debug information.
    """
    _, kernels, counts = counts_by_address(run)
    is_lanes, notes = has_lanes(counts), uncounted(kernels, counts)
    functions: dict[str, ProfiledFunction] = {}
    for digest in dict.fromkeys(kernels[number]["digest"] for number in counts):
        own = [number for number in counts if kernels[number]["digest"] == digest]
        try:
            files = list(dict.fromkeys(kernels[number]["object"] or "" for number in own))
            places = _places(files, digest, sorted({address for number in own for address in counts[number]}))
        except LuthierError as problem:
            names = ", ".join(kernels[number]["name"] or kernels[number]["kernel"] for number in own)
            notes.append(f"{names}: not in the profile: {problem}")
            continue
        _add(functions, places, [counts[number] for number in own], is_lanes)
    nameless = [name for name in functions if not name.isprintable() or not name or name[0] in _NOT_NAMES]
    if nameless:
        notes.append(f"{counted(len(nameless), 'function')} left out, whose names cannot be in a profile")
    for name in nameless:
        del functions[name]
    if not functions:
        raise LuthierError(f"{run.path} has no code for a profile: {'; '.join(notes)}")
    return SampleProfile("lanes" if is_lanes else "waves", notes, functions)


def _places(files: Sequence[str], digest: str, addresses: Sequence[int]) -> dict[int, ProfilePlace]:
    """Return the places of addresses in a code object, which one of the files contains.

    Raises:
        LuthierError: no file that can be read contains it, or it has no debug information.
    """
    problems = []
    for name in filter(None, files):
        try:
            object = object_that_ran(name, digest)
            if object is None:
                problems.append(f"{name} is not there, or not the file that ran")
            elif places := profile_places(object.elf, object.text_ranges, addresses):
                return places
            else:
                problems.append(f"{name} has no declarations of functions: compile with -g -fdebug-info-for-profiling")
        except (LuthierError, OSError) as problem:
            problems.append(str(problem))
    raise LuthierError("; ".join(problems) or "the run knows no file with its code")


def _add(
    functions: dict[str, ProfiledFunction],
    places: dict[int, ProfilePlace],
    counts: list[dict[int, InstructionExecutions]],
    is_lanes: bool,
) -> None:
    """Add the counts of the kernels of a code object."""
    most: dict[tuple[int, str, tuple[int, int]], int] = {}
    entered: dict[tuple[int, str], int] = {}
    for address, place in sorted(places.items()):
        known = [kernel[address] for kernel in counts if address in kernel]
        executed = sum((one.lanes if is_lanes else one.executions) or 0 for one in known)
        key = place.copy, place.function, (place.offset, place.discriminator)
        most[key] = max(most.get(key, 0), executed * place.duplicates)
        entered.setdefault((place.copy, place.function), executed)
    for (_, name, at), count in most.items():
        own = functions.setdefault(name, ProfiledFunction()).counts
        own[at] = own.get(at, 0) + count
    for (_, name), count in entered.items():
        functions[name].entered += count
