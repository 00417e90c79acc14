"""SARIF 2.1.0 (OASIS) for continuous integration: logs and locations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def log(
    name: str, version: str, rules: Mapping[str, str], results: Sequence[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    """Return a log with one run.

    Args:
        name: name of the command.
        version: version of Luthier.
        rules: identifier -> description; `rule` refers to them.
        results: the findings.
        more: other properties of the run.
    """
    descriptions = [{"id": rule, "shortDescription": {"text": text}} for rule, text in rules.items()]
    driver = {"name": name, "version": version, "rules": descriptions}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results, **more}]}


def rule(rules: Mapping[str, str], identifier: str) -> dict[str, Any]:
    """Return the properties of a result that name its rule in the log."""
    return {"ruleId": identifier, "ruleIndex": list(rules).index(identifier)}


def location(source: dict[str, Any] | None, symbol: str, name: str) -> dict[str, Any]:
    """Return a location: a source line, a kernel, or both; empty if neither is known.

    Args:
        source: as `physical` returns it.
        symbol: symbol of the kernel; empty if there is none.
        name: name of the kernel in its source.
    """
    place: dict[str, Any] = {} if source is None else {"physicalLocation": source}
    if symbol:
        place["logicalLocations"] = [{"fullyQualifiedName": symbol, "name": name, "kind": "function"}]
    return place


def physical(file: str, line: int, column: int = 0) -> dict[str, Any]:
    """Return the location of a line of a source file."""
    region = {"startLine": line, **({"startColumn": column} if column else {})}
    uri = f"file://{quote(file)}" if file.startswith("/") else quote(file)
    return {"artifactLocation": {"uri": uri}, "region": region}
