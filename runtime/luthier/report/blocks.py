"""Matching of the blocks of two runs' kernels, and how often each ran."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from msgspec import Struct, field

from luthier.report.charging import COLUMNS, Place, charged, span
from luthier.report.rows import KernelNumbers, by_kernel
from luthier.run.folder import RunFolder

ALIGNED = 2_000
"""Blocks of a kernel that are matched where the two kernels are not the same code."""
_TARGET = re.compile(r"^(s_(?:c?branch|call|setpc|swappc|getpc)\S*).*")
"""Pattern of branches, whose targets differ between two builds that do the same."""


class Block(Struct):
    """A block of a kernel, as a run has it."""

    number: int
    address: int
    executions: int | None
    texts: list[str] = field(default_factory=list)
    """Texts of its instructions; none where the run has no listing."""

    lines: str = ""
    """Lines of the source that it is of, as ``file:first-last``."""
    executed: int = 0
    """Instructions that waves executed in it."""

    @property
    def shape(self) -> tuple[str, ...]:
        """Return what it has in common with the same block of another build."""
        return tuple(_TARGET.sub(r"\1", text) for text in self.texts)


def counted_blocks(run: RunFolder) -> dict[tuple[str, str], dict[str, list[Block]]]:
    """Return blocks whose executions were counted, in address order.

    They are by name and target of the kernel, then digest.

    Raises:
        LuthierError: a table is damaged.
    """
    numbers = KernelNumbers()
    names: dict[int, tuple[tuple[str, str], str]] = {}
    for row in run.rows("kernels", ["kernel", "digest", "name", "target"]):
        number = numbers.of(row["kernel"], row["digest"])
        names[number] = (row["name"] or row["kernel"] or "unknown", row["target"] or ""), row["digest"] or ""
    found: dict[int, dict[int, Block]] = {}
    for number, rows in by_kernel(run, "counts", ("address", "block", "executions"), numbers, names):
        blocks = found.setdefault(number, {})
        for address, block, times in zip(*rows.values(), strict=True):
            if address is None or block is None:
                continue
            known = blocks.get(block)
            if known is None or address < known.address:
                blocks[block] = Block(block, address, times, executed=known.executed if known else 0)
            elif address == known.address and times is not None:  # another device or process
                known.executions = times + (known.executions or 0)
            blocks[block].executed += times or 0
    if "listings" in run.names:
        with run.table("listings") as reader:
            columns = ["address", "block", "text", *(name for name in COLUMNS if name in reader.columns)]
        places: dict[tuple[int, int], list[Place | None]] = {}
        for number, rows in by_kernel(run, "listings", columns, numbers, found):
            listed = zip(rows["address"], rows["block"], rows["text"], charged(rows), strict=True)
            for _, block, text, place in sorted(listed, key=lambda row: row[0] or 0):
                if block in found[number]:
                    found[number][block].texts.append(text or "")
                    places.setdefault((number, block), []).append(place)
        for (number, block), of in places.items():
            found[number][block].lines = span(of)
    result: dict[tuple[str, str], dict[str, list[Block]]] = {}
    for number, blocks in found.items():
        key, digest = names[number]
        result.setdefault(key, {})[digest] = sorted(blocks.values(), key=lambda one: one.address)
    return result


def changes(run: RunFolder, against: RunFolder) -> tuple[list[list[Any]], list[list[str]], int]:
    """Return the blocks that ran another number of times, or are in one run only.

    Returns:
        rows of kernel, target, block here and there, address here and there, first instruction, executions here and
        there, lines of the source here and there, and executed instructions here and there, those first of which these
        differ most; kernels whose blocks were not compared, and why; how many blocks ran equally often.

    Raises:
        LuthierError: one of the runs is damaged.
    """
    here, there = counted_blocks(run), counted_blocks(against)
    rows: list[list[Any]] = []
    left: list[list[str]] = []
    same = 0
    for key in dict.fromkeys((*here, *there)):
        ones, others = here.get(key, {}), there.get(key, {})
        if not ones or not others:
            left.append([*key, f"counted in {'this' if ones else 'the other'} run only"])
            continue
        shared = ones.keys() & others.keys()
        pairs = [(ones[digest], others[digest]) for digest in shared]
        rest = [blocks for digest, blocks in ones.items() if digest not in shared]
        other_rest = [blocks for digest, blocks in others.items() if digest not in shared]
        if len(rest) == len(other_rest) == 1:
            pairs.append((rest[0], other_rest[0]))
        elif rest or other_rest:
            left.append([*key, "several code objects have it, in different builds"])
        for one, other in pairs:
            matched = _matched(one, other)
            if matched is None:
                left.append([*key, f"of different code, and more than {ALIGNED} blocks or no listing"])
                continue
            for mine, its in matched:
                counts = [block.executions if block else None for block in (mine, its)]
                if mine and its and counts[0] == counts[1]:
                    same += 1
                    continue
                places = [(block.number, block.address) if block else (None, None) for block in (mine, its)]
                texts = (mine or its or Block(0, 0, 0)).texts
                rows.append(
                    [*key, *(p[0] for p in places), *(p[1] for p in places), texts[0] if texts else "", *counts]
                )
                rows[-1] += [block.lines if block else "" for block in (mine, its)]
                rows[-1] += [block.executed if block else None for block in (mine, its)]
    rows.sort(key=lambda row: -abs((row[-2] or 0) - (row[-1] or 0)))
    return rows, left, same


def _matched(ones: Sequence[Block], others: Sequence[Block]) -> list[tuple[Block | None, Block | None]] | None:
    """Return pairs of blocks, with None beside one that has no counterpart; None if they cannot be matched."""
    if [(one.number, one.address, one.texts) for one in ones] == [(o.number, o.address, o.texts) for o in others]:
        return list(zip(ones, others, strict=True))
    if max(len(ones), len(others)) > ALIGNED or not all(one.texts for one in (*ones, *others)):
        return None
    first, second = [one.shape for one in ones], [one.shape for one in others]
    pairs: list[tuple[Block | None, Block | None]] = []
    for _, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if first[a:b] == second[c:d] or b - a == d - c:  # alike, or as many that were changed in place
            pairs += zip(ones[a:b], others[c:d], strict=True)
        else:
            pairs += [(one, None) for one in ones[a:b]] + [(None, other) for other in others[c:d]]
    return pairs
