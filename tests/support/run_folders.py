"""Run directories with given contents, written by the writer of `luthier run`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from luthier.run.folder import SUMMARY
from luthier.run.schema import TABLES
from luthier.run.tables import SCHEMA, TableWriter

KERNEL = {
    "target": "gfx90a",
    "wave_size": 64,
    "vgprs": 32,
    "sgprs": 16,
    "group_segment": 0,
    "private_segment": 0,
    "waves_per_simd": 8,
    "launches": 1,
    "instrumented": 1,
    "requested_sites": 1,
    "sites": 1,
    "covered": True,
    "skipped": False,
}
SITE = {"tool": "t", "hook": "h", "place": "before", "status": "patched", "mnemonic": "s_nop", "text": "s_nop 0"}


def write_run(folder: Path, summary: Mapping[str, Any] | None = None, /, **tables: Any) -> Path:
    """Write a run directory, and return its path.

    Args:
        tables: by name, rows as mappings, or columns as a mapping of arrays and, for what all rows share, single
            values.
    """
    folder.mkdir(parents=True)
    rows_of = {}
    for schema in TABLES:
        with TableWriter(folder, schema) as writer:
            given = tables.get(schema.name, ())
            if isinstance(given, Mapping):
                same = {name: value for name, value in given.items() if np.isscalar(value)}
                writer.append({name: value for name, value in given.items() if name not in same}, **same)
            elif given:
                names = list(dict.fromkeys(name for row in given for name in row))
                writer.append({name: [row.get(name) for row in given] for name in names})
        rows_of[schema.name] = writer.rows
    head = {"schema": SCHEMA, "luthier": "0", "command": ["app"], "exit_code": 0, "tools": [], "processes": []}
    head |= {"faults": [], "began_ns": 1000, "ended_ns": 2000, "devices": ["emu:gfx90a"], "tables": rows_of}
    (folder / SUMMARY).write_text(json.dumps(head | dict(summary or {})))
    return folder


def kernel(symbol: str, **more: Any) -> dict[str, Any]:
    """Return a row of the table of kernels."""
    return {"kernel": symbol, "object": "app", "digest": "d", **KERNEL, **more}


def launch(name: str, number: int, begin: int | None, end: int | None, **more: Any) -> dict[str, Any]:
    """Return a row of the table of launches."""
    row = {"process": 1, "device": 0, "queue": 0, "kernel": name, "object": "app", "digest": "d", "number": number}
    return row | {"instrumented": True, "time_ns": 1000, "begin_ns": begin, "end_ns": end} | more


def code(
    name: str, instructions: int, block: int = 16, address: int = 0x1000, text: str | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return rows of the tables of listings, blocks and counts of a kernel.

    Blocks are one after the other, each a loop, and run ever more often.
    """
    same = {"kernel": name, "object": "app", "digest": "d"}
    rows: dict[str, list[dict[str, Any]]] = {"listings": [], "blocks": [], "counts": []}
    last = (instructions - 1) // block
    for at in range(instructions):
        row = {**same, "address": address + 4 * at, "block": at // block}
        what = f"v_add_f32_e32 v{at % 256}, v1, v2" if text is None else text
        live = {"live_sgprs": at % 100, "live_vgprs": at % 200}
        rows["listings"].append({**row, "text": what, "kind": "vector", **live})
        counts = {"executions": 1 + at // block, "active_lanes": 32 * (1 + at // block)}
        rows["counts"].append({**row, "mnemonic": what.split()[0], **counts})
    for number in range(last + 1):
        row = {**same, "block": number, "function": name, "address": address + 4 * block * number, "depth": number % 3}
        ways = [number, number + 1] if number < last else []
        size = min(block, instructions - block * number)
        out = {"exit": "conditional", "successors": ways, "ways": ["taken", "fallthrough"][: len(ways)]}
        rows["blocks"].append({**row, "instructions": size, **out})
    return rows


def wasteful_run(folder: Path, **more: Any) -> Path:
    """Write a run of kernel k of 8 instructions, 4 a line of ``src/k.hip`` beside it, at which tools measured much."""
    rows = code("k", 8, block=4)
    for at, row in enumerate(rows["listings"]):
        row |= {"file": str(folder.parent / "src" / "k.hip"), "line": 2 + at // 4}
    lines = ("kernel", "address", "instruction", "requests", "lanes", "lines", "lines/request", "efficiency %")
    banks = ("kernel", "address", "cycles needed", "cycles", "conflicts", "cycles/needed")
    tables = [
        {"title": "most", "columns": lines, "rows": [["k", "0x1000", "x", 100, 6400, 3200, 32, 6.2]]},
        {"title": "by", "columns": banks, "rows": [["k", "0x1010", 100, 300, 200, 3]]},
        {
            "title": "races",
            "columns": ["kernel", "kind", "earlier", "later"],
            "rows": [["k", "w-w", "0x1000", "0x1010"]],
        },
    ]
    return write_run(
        folder,
        {"tools": [{"tool": "measures", "options": {}, "tables": tables}], **more},
        kernels=[kernel("k", instructions=8)],
        launches=[
            launch("k", number, 1000 * number, 1000 * number + (900 if number == 0 else 10), grid_x=size, block_x=64)
            | {"grid_y": 1, "grid_z": 1, "block_y": 1, "block_z": 1}
            for number, size in enumerate((64, 128, 128))
        ],
        **rows,
    )
