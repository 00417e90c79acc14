"""Stretches of code in which nothing may be inserted, or in which register numbers mean something else.

Forward over the blocks of the whole program: VGPR index mode (s_set_gpr_idx_on … off), vector registers given back
(s_sendmsg dealloc_vgprs), and the extents of s_clause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntFlag

from luthier.errors import LiftError
from luthier.lifting.effects import Columns, EffectTable
from luthier.lifting.graph import Graph
from luthier.lifting.model import Clause

DEALLOC_VGPRS = 3
"""Message number of sendmsg(MSG_DEALLOC_VGPRS) (GFX11 and later)."""
_MODE_NUMBER, _FIRST_MODE_CONTROL, _LAST_MODE_CONTROL = 1, 27, 28
"""MODE bits GPR_IDX_EN and VSKIP of GFX9 (Vega ISA, "Mode register")."""


class Mode(IntFlag):
    """What may hold at a point."""

    INDEXED = 1
    """VGPR index mode is on."""
    RELEASED = 2
    """The wave has given its vector registers back."""


@dataclass
class Regions:
    """What was found, by instruction index."""

    indexed: set[int] = field(default_factory=set)
    restrictions: dict[int, str] = field(default_factory=dict)
    releases: set[int] = field(default_factory=set)
    """Messages that give the vector registers back."""
    released: set[int] = field(default_factory=set)
    """Instructions that may run after such a message."""
    clauses: list[Clause] = field(default_factory=list)


def find_regions(graph: Graph, columns: Columns, table: EffectTable, fail: Callable[[str, int], LiftError]) -> Regions:
    """Find all regions.

    Args:
        fail: makes the error for a message and an address.

    Raises:
        LiftError: a call in VGPR index mode, or MODE bits written that change what vector instructions mean.
    """
    found = Regions()
    interesting: dict[int, str] = {}
    names = {number: table.opcode(number).opcode.pseudo for number in {*columns.opcode} if number >= 0}
    wanted = {
        number
        for number, name in names.items()
        if name in ("S_SET_GPR_IDX_ON", "S_SET_GPR_IDX_OFF", "S_CLAUSE", "S_SENDMSG") or name.startswith("S_SETREG")
    }
    if not wanted:
        return found
    for node in graph.nodes:
        for index in range(node.first, node.last + 1):
            if columns.opcode[index] in wanted:
                interesting[index] = names[columns.opcode[index]]
    _check_mode_writes(interesting, columns, table, fail)
    _clauses(interesting, columns, found)
    if any(name in ("S_SET_GPR_IDX_ON", "S_SENDMSG") for name in interesting.values()):
        _flow(interesting, graph, columns, found, fail, gives_back=table.isa.target.target.major >= 11)
    return found


def _check_mode_writes(
    interesting: dict[int, str], columns: Columns, table: EffectTable, fail: Callable[[str, int], LiftError]
) -> None:
    if table.isa.target.target.major != 9:
        return
    for index, name in interesting.items():
        if name.startswith("S_SETREG"):
            position = table.opcode(columns.opcode[index]).position("simm16")
            encoded = columns.values(index)[position]
            first = encoded >> 6 & 0x1F
            last = first + (encoded >> 11 & 0x1F)
            if encoded & 0x3F == _MODE_NUMBER and first <= _LAST_MODE_CONTROL and last >= _FIRST_MODE_CONTROL:
                raise fail("s_setreg of the MODE bits for vector skip and index mode", columns.address[index])


def _clauses(interesting: dict[int, str], columns: Columns, found: Regions) -> None:
    for index, name in interesting.items():
        if name == "S_CLAUSE":
            last = min(index + (columns.values(index)[0] & 0x3F) + 1, len(columns.address) - 1)
            found.clauses.append(Clause(index, index + 1, last))
    found.clauses.sort(key=lambda clause: clause.index)


def _flow(
    interesting: dict[int, str],
    graph: Graph,
    columns: Columns,
    found: Regions,
    fail: Callable[[str, int], LiftError],
    gives_back: bool,
) -> None:
    before: dict[int, Mode] = {}
    work = [(number, Mode(0)) for members in graph.members.values() for number in members]
    while work:
        number, incoming = work.pop()
        known = before.get(number)
        mode = incoming if known is None else known | incoming
        if known == mode:
            continue
        before[number] = mode
        node = graph.nodes[number]
        for index in range(node.first, node.last + 1):
            name = interesting.get(index)
            if mode & Mode.INDEXED:
                found.indexed.add(index)
                found.restrictions[index] = "in VGPR index mode"
            elif mode & Mode.RELEASED:
                found.released.add(index)
            if name == "S_SET_GPR_IDX_ON":
                mode |= Mode.INDEXED
            elif name == "S_SET_GPR_IDX_OFF":
                mode &= ~Mode.INDEXED
            elif name == "S_SENDMSG" and gives_back and columns.values(index)[0] & 0xFF == DEALLOC_VGPRS:
                mode |= Mode.RELEASED
                found.releases.add(index)
        if mode & Mode.INDEXED and node.exit in ("call", "tail", "return", "unknown"):
            raise fail("a call or return in VGPR index mode", columns.address[node.last])
        work += [(successor, mode) for _, successor in node.successors]
