"""Findings as SARIF 2.1.0 (OASIS), which continuous integration reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from luthier.objects.source import SourceFrame
from luthier.run.findings.finding import KINDS, Finding

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(findings: Iterable[Finding], version: str) -> dict[str, Any]:
    """Return a log with one run.

    Args:
        version: of Luthier.
    """
    rules = [{"id": kind, "shortDescription": {"text": text}} for kind, text in KINDS.items()]
    driver = {"name": "luthier sanitize", "version": version, "rules": rules}
    results = [_result(one) for one in findings]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(finding: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.kind,
        "ruleIndex": list(KINDS).index(finding.kind),
        "level": "warning" if finding.kind == "leak" else "error",
        "message": {"text": finding.message},
        "occurrenceCount": finding.count,
        "properties": finding.to_json(),
    }
    location: dict[str, Any] = {}
    if finding.frames and finding.frames[0].line:
        location["physicalLocation"] = _physical(finding.frames[0])
    if finding.kernel:
        location["logicalLocations"] = [
            {"fullyQualifiedName": finding.kernel, "name": finding.name, "kind": "function"}
        ]
    if location:
        result["locations"] = [location]
    if finding.other is not None and finding.other.frames and finding.other.frames[0].line:
        message = {"text": "the other access" if finding.kind == "race" else "where that shows"}
        result["relatedLocations"] = [{"physicalLocation": _physical(finding.other.frames[0]), "message": message}]
    if len(finding.frames) > 1:
        stack = [
            {"location": {"physicalLocation": _physical(frame), "message": {"text": frame.name}}}
            for frame in finding.frames
            if frame.line
        ]
        result["stacks"] = [{"message": {"text": "innermost first"}, "frames": stack}]
    return result


def _physical(frame: SourceFrame) -> dict[str, Any]:
    region = {"startLine": frame.line, **({"startColumn": frame.column} if frame.column else {})}
    uri = f"file://{quote(frame.file)}" if frame.file.startswith("/") else quote(frame.file)
    return {"artifactLocation": {"uri": uri}, "region": region}
