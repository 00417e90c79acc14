"""Findings as SARIF 2.1.0 (OASIS), for continuous integration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from luthier.findings.finding import Finding, source_of
from luthier.findings.kinds import KINDS, OF_ALLOCATIONS, WARNINGS
from luthier.objects.source import SourceFrame
from luthier.support.sarif import location, log, physical, rule

_OTHERS = {
    "race": "the other access",
    "unordered-read": "the other access",
    "missing-wait": "the operation that is not waited for",
    "hazard": "the earlier instruction",
}
_CALLS = {
    "accessed": "the access",
    "enqueued": "where the operation is enqueued",
    "allocated": "the allocation",
    "freed": "where it is freed",
}
_MEANINGS = {name: kind.meaning for name, kind in KINDS.items()}


def sarif(
    findings: Iterable[Finding],
    version: str,
    notes: Iterable[str] = (),
    command: str = "luthier sanitize",
    checked: Mapping[str, Any] | None = None,
    is_error: Callable[[Finding], bool] | None = None,
) -> dict[str, Any]:
    """Return a log with one run.

    Args:
        version: version of Luthier.
        notes: what was not checked.
        command: command that found them.
        is_error: whether a finding is an error, not a warning; None: by its kind.
        checked: what was checked (`luthier.findings.scope.CheckedScope.to_json`); None if unknown.
    """
    notifications = [{"level": "warning", "message": {"text": f"not checked: {note}"}} for note in notes]
    more: dict[str, Any] = (
        {"invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}]}
        if notifications
        else {}
    )
    if checked is not None:
        more["properties"] = {"checked": checked}
    return log(command, version, _MEANINGS, [_result(one, is_error or _is_error) for one in findings], **more)


def _is_error(finding: Finding) -> bool:
    return finding.kind not in WARNINGS


def _result(finding: Finding, is_error: Callable[[Finding], bool]) -> dict[str, Any]:
    result: dict[str, Any] = {
        **rule(_MEANINGS, finding.kind),
        "level": "error" if is_error(finding) else "warning",
        "message": {"text": finding.message},
        "occurrenceCount": finding.count,
        "properties": finding.to_json(),
    }
    own = source_of(finding.frames)
    if place := location(_physical(own) if own and own.line else None, finding.kernel, finding.name):
        result["locations"] = [place]
    other = source_of(finding.other.frames) if finding.other is not None else None
    if other is not None and other.line:
        message = {"text": _OTHERS.get(finding.kind, "the other instruction")}
        result["relatedLocations"] = [{"physicalLocation": _physical(other), "message": message}]
    calls = [(_CALLS[name], call) for name, call in finding.host_calls.items()]
    for text, call in calls:
        if call is not None and finding.kind in OF_ALLOCATIONS and call.frames and call.frames[0].line:
            where = {"physicalLocation": _physical(call.frames[0]), "message": {"text": text}}
            result.setdefault("relatedLocations", []).append(where)
    if (origin := finding.origin) is not None:
        steps = [("where the value is stored", source_of(copy.frames)) for copy in origin.copies]
        if origin.made is not None:
            steps.insert(0, ("where the value is made", source_of(origin.made.frames)))
        if origin.allocated is not None and origin.allocated.frames:
            steps.insert(0, ("the allocation that was not written", origin.allocated.frames[0]))
        for text, frame in steps:
            if frame is not None and frame.line:
                where = {"physicalLocation": _physical(frame), "message": {"text": text}}
                result.setdefault("relatedLocations", []).append(where)
    stacks = [("innermost first", finding.frames)] if len(finding.frames) > 1 else []
    if finding.kind in (*OF_ALLOCATIONS, "leak"):
        stacks += [(f"{text}, innermost first", call.stack) for text, call in calls if call is not None]
    if stacks:
        result["stacks"] = [{"message": {"text": text}, "frames": _frames(frames)} for text, frames in stacks]
    return result


def _frames(frames: Iterable[SourceFrame]) -> list[dict[str, Any]]:
    """Return the frames of a stack; those without a line have names alone."""
    return [
        {
            "location": ({"physicalLocation": _physical(one)} if one.line else {})
            | {"message": {"text": one.name or one.file}}
        }
        for one in frames
    ]


def _physical(frame: SourceFrame) -> dict[str, Any]:
    return physical(frame.file, frame.line, frame.column)
