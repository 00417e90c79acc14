"""Executions of a kernel's instructions, read from results of other commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from luthier.errors import ToolError
from luthier.lifting import LiftedRepresentation
from luthier.lifting.annotations import Ran


def counts_of(path: str, lifted: LiftedRepresentation) -> dict[int, Ran]:
    """Return the counts by virtual address, summed over all launches.

    Args:
        path: run folder, whose table ``counts`` has what tools counted; or JSON file with one result of
            `LaunchStats.to_json`, or a list of them, which count all instructions.

    Raises:
        LuthierError: the path cannot be read, is neither, or has no counts of this kernel.
    """
    folder = Path(path)
    counts: dict[int, Ran] = {}
    rows = _of_run(folder, lifted) if folder.is_dir() else _of_json(folder, lifted)
    for address, executions, lanes in rows:
        before = counts.get(address, Ran(0, 0))
        both = None if lanes is None or before.active_lanes is None else lanes + before.active_lanes
        counts[address] = Ran(executions + before.executions, both)
    if not counts:
        raise ToolError("has no counts of this kernel", object=path, kernel=lifted.kernel.name)
    known = set(lifted.columns.address)
    stray = next((address for address in counts if address not in known), None)
    if stray is not None:
        raise ToolError(
            "counts an instruction that the kernel does not have", object=path, kernel=lifted.kernel.name, offset=stray
        )
    return counts


_Rows = Iterator[tuple[int, int, int | None]]
"""Address, executions, active lanes."""


def _of_run(folder: Path, lifted: LiftedRepresentation) -> _Rows:
    from luthier.run.patching import digest_of
    from luthier.run.schema import COUNTS
    from luthier.run.tables import TableReader

    names = ["kernel", "digest", "address", "executions", "active_lanes"]
    digest = digest_of(lifted.object)
    with TableReader(folder, COUNTS.name, COUNTS) as table:
        for batch in table.batches(names):
            for row in batch.to_pylist():
                if (row["kernel"], row["digest"]) == (lifted.kernel.name, digest) and row["executions"] is not None:
                    yield row["address"], row["executions"], row["active_lanes"]


def _of_json(file: Path, lifted: LiftedRepresentation) -> _Rows:
    try:
        document = json.loads(file.read_text())
    except (OSError, ValueError) as problem:
        raise ToolError(f"cannot be read: {problem}", object=str(file)) from None
    every: list[Any] = document if isinstance(document, list) else [document]
    for result in every:
        try:
            if result["kernel"] == lifted.kernel.name:
                yield from ((address, 0, 0) for address in lifted.columns.address)
                yield from ((row["address"], row["executions"], row["active_lanes"]) for row in result["addresses"])
        except (KeyError, TypeError):
            raise ToolError("is not a result of LaunchStats.to_json", object=str(file)) from None
