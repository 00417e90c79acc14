"""Match the blocks of two runs' kernels and compare how often each ran."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from msgspec import Struct, field

from luthier.report.charging import COLUMNS, SourceLine, charged, span
from luthier.report.rows import KernelNumbers, by_kernel
from luthier.run.folder import RunFolder

ALIGNED = 2_000
"""Maximum number of blocks of a kernel that are matched if its code differs between the runs."""
_TARGET = re.compile(r"^(s_(?:c?branch|call|setpc|swappc|getpc)\S*).*")
"""Pattern of branches, whose targets may differ between equivalent builds."""


class ExecutedBlock(Struct):
    """A block of a kernel in a run."""

    number: int
    address: int
    executions: int | None
    texts: list[str] = field(default_factory=list)
    """Texts of its instructions; empty if the run has no listing."""

    lines: str = ""
    """Source lines of its instructions, as ``file:first-last``."""
    executed: int = 0
    """Instructions executed by waves."""

    @property
    def shape(self) -> tuple[str, ...]:
        """Return the instructions without branch targets, to match blocks of different builds."""
        return tuple(_TARGET.sub(r"\1", text) for text in self.texts)


def counted_blocks(run: RunFolder) -> dict[tuple[str, str], dict[str, list[ExecutedBlock]]]:
    """Return the blocks whose executions were counted, in address order, by name and target of the kernel, then digest.

    Raises:
        LuthierError: a table is damaged.
    """
    numbers = KernelNumbers()
    names: dict[int, tuple[tuple[str, str], str]] = {}
    for row in run.rows("kernels", ["kernel", "digest", "name", "target"]):
        number = numbers.of(row["kernel"], row["digest"])
        names[number] = (row["name"] or row["kernel"] or "unknown", row["target"] or ""), row["digest"] or ""
    blocks_by_kernel = _executions(run, numbers, names)
    if "listings" in run.names:
        _add_listings(run, numbers, blocks_by_kernel)
    result: dict[tuple[str, str], dict[str, list[ExecutedBlock]]] = {}
    for number, blocks in blocks_by_kernel.items():
        key, digest = names[number]
        result.setdefault(key, {})[digest] = sorted(blocks.values(), key=lambda block: block.address)
    return result


def _executions(
    run: RunFolder, numbers: KernelNumbers, kernels: Collection[int]
) -> dict[int, dict[int, ExecutedBlock]]:
    """Return the counted blocks by the numbers of kernel and block, without their code."""
    blocks_by_kernel: dict[int, dict[int, ExecutedBlock]] = {}
    for number, rows in by_kernel(run, "counts", ("address", "block", "executions"), numbers, kernels):
        blocks = blocks_by_kernel.setdefault(number, {})
        for address, block, times in zip(*rows.values(), strict=True):
            if address is None or block is None:
                continue
            known = blocks.get(block)
            if known is None or address < known.address:
                blocks[block] = ExecutedBlock(block, address, times, executed=known.executed if known else 0)
            elif address == known.address and times is not None:  # another device or process
                known.executions = times + (known.executions or 0)
            blocks[block].executed += times or 0
    return blocks_by_kernel


def _add_listings(
    run: RunFolder, numbers: KernelNumbers, blocks_by_kernel: Mapping[int, Mapping[int, ExecutedBlock]]
) -> None:
    """Add the instructions and source lines of blocks."""
    with run.table("listings") as reader:
        columns = ["address", "block", "text", *(name for name in COLUMNS if name in reader.columns)]
    places: dict[tuple[int, int], list[SourceLine | None]] = {}
    for number, rows in by_kernel(run, "listings", columns, numbers, blocks_by_kernel):
        listed = zip(rows["address"], rows["block"], rows["text"], charged(rows), strict=True)
        for _, block, text, place in sorted(listed, key=lambda row: row[0] or 0):
            if block in blocks_by_kernel[number]:
                blocks_by_kernel[number][block].texts.append(text or "")
                places.setdefault((number, block), []).append(place)
    for (number, block), of in places.items():
        blocks_by_kernel[number][block].lines = span(of)


class BlockChange(Struct):
    """A block whose number of executions differs between two runs, or that is in one run only."""

    kernel: str
    target: str
    run: ExecutedBlock | None
    against: ExecutedBlock | None

    @property
    def executed(self) -> int:
        """Return the difference in executed instructions."""
        return (self.run.executed if self.run else 0) - (self.against.executed if self.against else 0)

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain data, with the text of the first instruction only."""
        texts = next((block.texts for block in (self.run, self.against) if block), [])
        sides = {name: _side(block) for name, block in (("run", self.run), ("against", self.against))}
        return {"kernel": self.kernel, "target": self.target, "first": texts[0] if texts else "", **sides}


def _side(block: ExecutedBlock | None) -> dict[str, Any] | None:
    names = ("number", "address", "executions", "lines", "executed")
    return None if block is None else {name: getattr(block, name) for name in names}


def changes(run: RunFolder, against: RunFolder) -> tuple[list[BlockChange], list[list[str]], int]:
    """Return the blocks whose number of executions differs, or that are in one run only.

    Returns:
        the changes, largest difference in executed instructions first; kernel, target and reason of kernels whose
        blocks were not compared; the number of blocks that ran equally often.

    Raises:
        LuthierError: one of the runs is damaged.
    """
    blocks, other_blocks = counted_blocks(run), counted_blocks(against)
    different: list[BlockChange] = []
    left: list[list[str]] = []
    same = 0
    for key in dict.fromkeys((*blocks, *other_blocks)):
        pairs, reasons = _pairs(blocks.get(key, {}), other_blocks.get(key, {}))
        left += [[*key, reason] for reason in reasons]
        for block, other in pairs:
            if block and other and block.executions == other.executions:
                same += 1
            else:
                different.append(BlockChange(*key, block, other))
    different.sort(key=lambda change: -abs(change.executed))
    return different, left, same


BlockPairs = list[tuple[ExecutedBlock | None, ExecutedBlock | None]]


def _pairs(
    by_digest: Mapping[str, list[ExecutedBlock]], other_by_digest: Mapping[str, list[ExecutedBlock]]
) -> tuple[BlockPairs, list[str]]:
    """Pair the blocks of a kernel in both runs, and return why some were not compared.

    Args:
        by_digest, other_by_digest: blocks of both runs, by the digest of the code object.
    """
    if not by_digest or not other_by_digest:
        return [], [f"counted in {'this' if by_digest else 'the other'} run only"]
    shared = by_digest.keys() & other_by_digest.keys()
    alike = [(by_digest[digest], other_by_digest[digest]) for digest in shared]
    rest = [blocks for digest, blocks in by_digest.items() if digest not in shared]
    other_rest = [blocks for digest, blocks in other_by_digest.items() if digest not in shared]
    reasons = []
    if len(rest) == len(other_rest) == 1:
        alike.append((rest[0], other_rest[0]))
    elif rest or other_rest:
        reasons.append("several code objects contain it, in different builds")
    pairs: BlockPairs = []
    for blocks, other_blocks in alike:
        matched = _matched(blocks, other_blocks)
        if matched is None:
            reasons.append(f"its code differs, and it has more than {ALIGNED} blocks or no listing")
        else:
            pairs += matched
    return pairs, reasons


def _matched(blocks: Sequence[ExecutedBlock], other_blocks: Sequence[ExecutedBlock]) -> BlockPairs | None:
    """Pair blocks, with None for a missing counterpart; return None if they cannot be matched."""
    if [(one.number, one.address, one.texts) for one in blocks] == [
        (o.number, o.address, o.texts) for o in other_blocks
    ]:
        return list(zip(blocks, other_blocks, strict=True))
    if max(len(blocks), len(other_blocks)) > ALIGNED or not all(one.texts for one in (*blocks, *other_blocks)):
        return None
    first, second = [one.shape for one in blocks], [one.shape for one in other_blocks]
    pairs: BlockPairs = []
    for _, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if first[a:b] == second[c:d] or b - a == d - c:  # equal, or as many that changed in place
            pairs += zip(blocks[a:b], other_blocks[c:d], strict=True)
        else:
            pairs += [(one, None) for one in blocks[a:b]] + [(None, other) for other in other_blocks[c:d]]
    return pairs
