"""Findings as text of several lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from luthier.findings.calls import ApiCallSite
from luthier.findings.causes import Cause
from luthier.findings.finding import COPY, FailedLaunch, Finding, Origin, Other, Unchecked, access_of
from luthier.findings.kinds import OF_ALLOCATIONS, WATCHED
from luthier.findings.source_text import shown_line
from luthier.objects.names import spellings
from luthier.objects.source import SourceFrame
from luthier.objects.user_source import user_frame
from luthier.support.wording import counted, enumerated

_CALLERS = 12
"""Maximum number of callers in a text; JSON has all."""
_PRODUCERS = {
    "hazard": "after",
    "missing-wait": "the operation that is not waited for",
    "inactive-lane": "the shuffle that took it",
}
"""Kind -> what the other instruction is, of which only the place is shown."""
_NAMED = 8
"""Maximum number of kernels in a sentence."""


def lines_of_cause(cause: Cause, prefix: str = "") -> Iterator[str]:
    """Yield a finding as lines of text, the first one after a prefix, and what is folded under it."""
    yield from lines_of(cause.finding, prefix)
    if cause.repeats:
        places = enumerated(f"{each.offset:#x}" for each in cause.repeats)
        yield f"    the same at {counted(len(cause.repeats), 'other instruction')} of the line: {places}"
    for each in cause.consequences:
        yield f"    from this follows {each.message}"


def lines_of(finding: Finding, prefix: str = "") -> Iterator[str]:
    """Yield a finding as lines of text, the first one after a prefix."""
    yield f"{prefix}{finding.message}"
    if finding.call:
        yield from _source(finding.frames, finding.object)
        yield from _failed_launch(finding.launch)
        yield f"    called at {finding.offset:#x} of {finding.object}"
        yield f"    {counted(finding.count, 'time')} in all"
    elif finding.kernel:
        yield from _in_kernel(finding)
    elif finding.object:
        yield from _source(finding.frames, finding.object)
        at = finding.allocated if finding.kind == "leak" else finding.accessed
        if not finding.is_python:
            what = "allocated at" if finding.kind == "leak" else "at" if finding.accessed else "called at"
            yield f"    {what} {finding.offset:#x} of {finding.object}"
        yield from _callers(at)
        if finding.count > 1:
            yield f"    {counted(finding.count, 'time')} in all"
    if finding.kind in OF_ALLOCATIONS:
        for what, call in finding.host_calls.items():
            if call is not None and call is not finding.accessed:
                yield f"    {what} at {call.place}"
                yield from _callers(call)
    if finding.origin is not None:
        yield from _origin(finding.origin)


def _origin(origin: Origin) -> Iterator[str]:
    """Yield from where a value comes, and how it was passed on."""
    yield f"  {origin.text}"
    if origin.made is not None:
        yield from _source(origin.made.frames, origin.made.object)
        yield f"    by kernel {spellings(origin.made.kernel)[-1]}, launch {origin.made.launch}"
        yield from _code(origin.made)
    if origin.allocated is not None:
        yield f"    allocated at {origin.allocated.place}"
        yield from _callers(origin.allocated)
    for copy in origin.copies:
        yield f"  stored by kernel {spellings(copy.kernel)[-1]}, launch {copy.launch}"
        yield from _source(copy.frames, copy.object)
        yield from _code(copy)
    if origin.copies and origin.loaded is not None:
        yield f"  loaded by kernel {spellings(origin.loaded.kernel)[-1]}, launch {origin.loaded.launch}"
        yield from _source(origin.loaded.frames, origin.loaded.object)
        yield from _code(origin.loaded)


def _callers(call: ApiCallSite | None) -> Iterator[str]:
    """Yield the calls that lead to a call, outwards, as far as their source is known."""
    known = [] if call is None else [frame for frame in call.callers if frame.line]
    for frame in known[:_CALLERS]:
        yield f"        from {frame.place} ({frame.name})"
    if len(known) > _CALLERS:
        yield f"        and {counted(len(known) - _CALLERS, 'more call')}"


def leaks(findings: Sequence[Finding]) -> str:
    """Return one sentence about leaks that are only worth a warning."""
    count = sum(finding.count for finding in findings)
    calls = enumerated(
        f"{finding.count} at {finding.allocated.place}" for finding in findings if finding.allocated is not None
    )
    where = f": {calls}" if any(finding.allocated is not None for finding in findings) else ""
    return f"leak: {counted(count, 'allocation')} never freed{where}"


def sentences(unchecked: Iterable[Unchecked]) -> list[str]:
    """Return what was not checked, each with the affected kernels."""
    kernels: dict[tuple[str, str], dict[str, None]] = {}
    for each in unchecked:
        kernels.setdefault((each.what, each.why), {})[each.name] = None
    lines = []
    for (what, why), names in kernels.items():
        named = [name for name in names if name][:_NAMED]
        more = f" and {counted(len(names) - len(named), 'other kernel')}" if len(names) > _NAMED else ""
        lines.append(f"{what}{', in launches of ' if named else ''}{', '.join(named)}{more}: {why}")
    return lines


def _in_kernel(finding: Finding) -> Iterator[str]:
    """Yield the lines after the message of a finding in a kernel."""
    lane = "" if finding.kind == "missed-barrier" or finding.lane < 0 else f"lane {finding.lane} of "
    yield from _source(finding.frames, finding.object)
    group = f" of work-group {finding.group}" if finding.group >= 0 else ""
    who = f"by {lane}wave {finding.wave}{group}, kernel" if finding.wave >= 0 else "in kernel"
    yield f"    {who} {finding.name}"
    yield from _code(finding)
    if finding.other is not None:
        yield from (
            _copy(finding.other) if finding.other.call else _other(finding, finding.other, is_of_lanes=bool(lane))
        )
    if finding.kind in WATCHED:
        yield f"    in {counted(finding.count, 'launch')} of the kernel, first in launch {finding.first_launch}"
        return
    launches = f", launch {finding.first_launch}"
    if finding.last_launch != finding.first_launch:
        launches += f" to {finding.last_launch}"
    where = f"{launches} of the kernel" if finding.first_launch >= 0 else ""
    yield f"    {counted(finding.count, 'lane' if lane or finding.wave < 0 else 'time')} in all{where}"


def _other(finding: Finding, other: Other, *, is_of_lanes: bool) -> Iterator[str]:
    """Yield the other instruction that a finding involves."""
    if (what := _PRODUCERS.get(finding.kind)) is not None:
        yield f"  {what}"
        yield from _source(other.frames, other.object)
        yield from _code(other)
        return
    if finding.check == "race":
        access = access_of(other.instruction, in_lds=finding.in_lds)
        what = f"the other access is {'an' if access == 'atomic' else 'a'} {access} of {other.size} bytes by"
    else:
        what = "ended:" if finding.kind == "missed-barrier" else "skipped it and later reached this point:"
    is_of_lanes |= finding.kind == "missed-barrier" and other.wave == finding.wave
    lane = f"lane {other.lane} of " if is_of_lanes else ""
    launch = f", kernel {spellings(other.kernel)[-1]}, launch {other.launch}" if other.kernel else ""
    yield f"  {what} {lane}wave {other.wave} of work-group {other.group}{launch}"
    yield from _source(other.frames, other.object)
    yield from _code(other)


def _copy(other: Other) -> Iterator[str]:
    """Yield the copy that races with a kernel."""
    does = "writes" if other.writes else "reads"
    what = "fill" if "Memset" in other.call else "copy"
    yield f"  the other access is a {what} that {does} {other.size} bytes from {other.address:#x}"
    if other.call != COPY:
        yield from _source(other.frames, other.object)
        yield f"    by {other.call}, last called at {other.offset:#x} of {other.object}"


def _failed_launch(launch: FailedLaunch | None) -> Iterator[str]:
    """Yield the sizes of a launch that failed."""
    if launch is None:
        return
    groups, items = (" x ".join(f"{size:,}" for size in sizes) for sizes in (launch.groups, launch.items))
    lds = f", with {launch.lds:,} bytes of dynamic LDS" if launch.lds else ""
    name = spellings(launch.kernel)[-1] if launch.kernel else "(unknown name)"
    yield f"    kernel {name}, {groups} work-groups of {items} work-items{lds}"


def _code(of: Finding | Other) -> Iterator[str]:
    yield f"    at {of.offset:#x} {of.instruction}"
    if of.no_source:
        yield f"    no source line: {of.no_source}"


def _source(frames: tuple[SourceFrame, ...], object: str) -> Iterator[str]:
    """Yield the user's line with its text, where it was inlined, and then the header code inlined into it.

    Args:
        object: file that was built from the source.
    """
    at = frames.index(user_frame(frames)) if frames else 0
    words = ["source", *["inlined at"] * len(frames[at + 1 :]), *["with inlined"] * at]
    for word, frame in zip(words, (*frames[at:], *reversed(frames[:at])), strict=False):
        yield f"    {word} {frame.place if frame.line else 'unknown line'} ({frame.name})"
        if word == "source" and frame.line:
            yield from (f"    {line}" for line in shown_line(frame, object))
