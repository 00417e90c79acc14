"""Finding the reachable code: from each entry along branches, calls and resolved register jumps."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from luthier.errors import LiftError
from luthier.isa import NO_TARGET, InstructionArray
from luthier.lifting.code.text import UNDECODABLE, Extent, Piece, Text, concatenate
from luthier.lifting.instructions.effects import Columns, listed
from luthier.lifting.instructions.semantics import Control

# As plain integers: a member of an IntEnum takes longer to look up than most of what is done here.
_CONDITIONAL, _CALL, _REFUSED = int(Control.CONDITIONAL), int(Control.CALL), int(Control.REFUSED)
_WITH_TARGET = (int(Control.BRANCH), _CONDITIONAL, _CALL)
_COMING_BACK = (_CALL, int(Control.CALL_REGISTER), int(Control.TRAP))


@dataclass
class Resolution:
    """Targets of an indirect jump or call."""

    is_return: bool = False
    targets: tuple[int, ...] = ()
    """Addresses, all of them if `reason` is empty."""
    reason: str = ""
    """Reason why the targets are not known, else empty."""
    references: tuple[int, ...] = ()
    """Addresses of the s_getpc_b64 that flow into it."""
    slots: tuple[int, ...] = ()
    """Addresses of the words in memory that it may come from."""
    direct: bool = False
    """The address is computed in a way that cannot be retargeted: the instruction has to become a direct one."""


class Explorer:
    """Marks which instructions control can reach.

    Attributes:
        leaders: addresses at which a block begins.
        entries: addresses of functions that are called, the kernel first, each with the first units of the link
        registers callers use.
    """

    def __init__(self, text: Text, kernel: str) -> None:
        self.text = text
        self.kernel = kernel
        self.leaders: set[int] = set()
        self.entries: dict[int, set[int]] = {}
        self._starts = text.starts
        self._local: dict[int, Piece] = {}
        self._seen: dict[int, bytearray] = {}
        self._work: list[int] = []
        self._whole: tuple[list[tuple[int, int]], InstructionArray, Columns, Sequence[int]] | None = None
        """Result that `code` last put together, with the start and end of each piece in it."""
        self._function_starts = text.function_starts

    def fail(self, message: str, address: int) -> LiftError:
        """Return an error at `address`."""
        return LiftError(
            message, object=self.text.name, kernel=self.kernel, offset=address, target=str(self.text.isa.target)
        )

    def extent(self, address: int) -> Extent | None:
        """Return the function symbol with a known size that holds `address`."""
        at = bisect.bisect_right(self._function_starts, address) - 1
        if at < 0:
            return None
        found = self.text.functions[self._function_starts[at]]
        return found if address < found.end else None

    def add_function(self, entry: int, link: int | None, caller: int) -> bool:
        """Explore a function, and return whether it or its link register is new."""
        if entry % 4:
            raise self.fail(f"call to the misaligned address {entry:#x}", caller)
        links = self.entries.get(entry)
        new = links is None or (link is not None and link not in links)
        if links is None:
            links = self.entries[entry] = set()
            self.reach(entry, caller)
        if link is not None:
            links.add(link)
        return new

    def reach(self, address: int, origin: int) -> bool:
        """Explore everything that control reaches from `address`; return False if that was known.

        Raises:
            LiftError: control gets to bytes that are no code, or to operations that cannot be followed.
        """
        if address in self.leaders:
            return False
        self._goto(address, origin)
        while self._work:
            self._run(self._work.pop())
        return True

    def _goto(self, address: int, origin: int) -> None:
        if address in self.leaders:
            return
        if self.text.range_of(address) is None:
            raise self.fail(f"control leaves the executable code for {address:#x}", origin)
        self.leaders.add(address)
        self._work.append(address)

    def _locate(self, address: int) -> tuple[Piece, int]:
        start = self._starts[bisect.bisect_right(self._starts, address) - 1]
        piece = self._piece(start)
        index = piece.index(address)
        if index < 0 and start <= address < piece.end:
            # Not where the linear decode has an instruction: data lies before. Decode anew from here.
            self._starts = sorted([*self._starts, address])
            piece = self._local[address] = self.text.decode(address, self._starts)
            index = piece.index(address)
        if index < 0:
            raise self.fail("control leaves the executable code", address)
        return piece, index

    def _piece(self, start: int) -> Piece:
        known = self._local.get(start)
        if known is None:
            known = self._local[start] = self.text.piece(start)
        return known

    def _run(self, address: int) -> None:
        """Follow straight-line code from `address` to where control may leave it or to code seen before."""
        while True:
            piece, first = self._locate(address)
            stop_at = bisect.bisect_left(piece.stops, first)
            stop = piece.stops[stop_at] if stop_at < len(piece.stops) else len(piece.control)
            last = min(stop, len(piece.control) - 1)
            seen = self._seen.get(piece.start)
            if seen is None:
                seen = self._seen[piece.start] = bytearray(len(piece.control))
            met = seen.find(1, first, last + 1)
            count = (met if met >= 0 else last + 1) - first
            seen[first : first + count] = b"\1" * count
            end = piece.columns.address[first + count - 1] + piece.columns.size[first + count - 1] if count else address
            extent = self.extent(address)
            falls = met < 0 and stop >= len(piece.control)
            if extent is not None and (end > extent.end or (end == extent.end and (falls or met >= 0))):
                raise self.fail(f"control falls off the end of {extent.name}", extent.end)
            if met >= 0:
                return
            if stop < len(piece.control):
                self._leave(piece, stop)
                return
            if self.text.range_of(end) is None:
                raise self.fail("control falls off the end of the executable code", end)
            if end in self.text.functions:
                raise self.fail(f"control falls into the function {self.text.functions[end].name}", end)
            address = end

    def _leave(self, piece: Piece, index: int) -> None:
        control = piece.control[index]
        address = piece.columns.address[index]
        following = address + piece.columns.size[index]
        if control == UNDECODABLE:
            raise self.fail("control reaches bytes that are no instruction", address)
        if control == _REFUSED:
            pseudo = self.text.isa.opcode(piece.columns.opcode[index]).pseudo
            raise self.fail(f"{pseudo.lower()}: {self.text.isa.target.target.refused_control[pseudo]}", address)
        if control in _WITH_TARGET:
            target = piece.columns.target[index]
            if target == NO_TARGET:
                raise self.fail("a branch whose target LLVM does not tell", address)
            if control == _CALL:
                self.add_function_later(target, self.link_of(piece.columns, index), address)
            else:
                self._goto(target, address)
        if control == _CONDITIONAL:
            self.check_fall(address, following)
            self._goto(following, address)
        elif control in _COMING_BACK and self.comes_back(address, following):
            self._goto(following, address)

    def add_function_later(self, entry: int, link: int | None, caller: int) -> None:
        """Add a function like `add_function`, from inside an exploration."""
        if entry not in self.entries:
            self.entries[entry] = set()
            self._goto(entry, caller)
        if link is not None:
            self.entries[entry].add(link)

    def check_fall(self, address: int, following: int) -> None:
        """Refuse a fall-through from the last instruction of a function."""
        extent = self.extent(address)
        if extent is not None and following >= extent.end:
            raise self.fail(f"control falls off the end of {extent.name}", following)
        if following in self.text.functions:
            raise self.fail(f"control falls into the function {self.text.functions[following].name}", following)

    def comes_back(self, address: int, following: int) -> bool:
        """Return whether control can return to after the call or trap at `address`.

        Compilers put nothing after a call that never returns: the function ends there, or what follows is no code.
        """
        extent = self.extent(address)
        if (extent is not None and following >= extent.end) or following in self.text.functions:
            return False
        if self.text.range_of(following) is None:
            return False
        piece, index = self._locate(following)
        return piece.control[index] not in (UNDECODABLE, _REFUSED)

    def link_of(self, columns: Columns, index: int) -> int | None:
        """Return the first unit of the destination of a call, which receives the return address."""
        first = int(self.text.isa.register_first_unit[columns.registers(index)[0]])
        return first if first >= 0 else None

    def code(self) -> tuple[InstructionArray, Columns, Sequence[int], list[int]]:
        """Return the reachable text.

        It is instructions, the same as lists, the control of each, and the indices of those reached whose control is
        not `Control.NEXT`.

        Raises:
            LiftError: two reached instructions overlap.
        """
        used = sorted(start for start, seen in self._seen.items() if 1 in seen)
        following = bisect.bisect_right(self._starts, used[0])
        piece = self._piece(used[0])
        if len(used) == 1 and (following == len(self._starts) or self._starts[following] >= piece.end):
            seen = self._seen[used[0]]
            return piece.code, piece.columns, piece.control, [stop for stop in piece.stops if seen[stop]]
        return self._several(used)

    def _several(self, used: list[int]) -> tuple[InstructionArray, Columns, Sequence[int], list[int]]:
        """Return the `code` of the pieces that begin at `used`."""
        pieces: list[InstructionArray] = []
        controls: list[NDArray[np.int8]] = []
        cuts: list[tuple[int, int]] = []
        addresses: list[NDArray[np.int64]] = []
        sizes: list[NDArray[np.int32]] = []
        for start in used:
            piece = self._piece(start)
            following = bisect.bisect_right(self._starts, start)
            limit = self._starts[following] if following < len(self._starts) else piece.end
            seen = np.frombuffer(bytes(self._seen[start]), np.uint8).astype(bool)
            addresses.append(piece.code.addresses[seen])
            sizes.append(piece.code.size[seen])
            cuts.append((start, min(limit, piece.end)))
            if limit >= piece.end:
                pieces.append(piece.code)
                controls.append(np.asarray(piece.control, np.int8))
            else:  # a later piece begins inside this one
                count = bisect.bisect_left(piece.columns.address, limit)
                pieces.append(_cut(piece.code, count, limit))
                controls.append(np.asarray(piece.control[:count], np.int8))
        reached, ends = np.concatenate(addresses), np.concatenate(addresses) + np.concatenate(sizes)
        order = np.argsort(reached, kind="stable")
        order = order[np.diff(reached[order], prepend=-1) != 0]
        reached, ends = reached[order], ends[order]
        over = np.flatnonzero(ends[:-1] > reached[1:])
        if len(over):
            one, other = reached[over[0]].item(), reached[over[0] + 1].item()
            raise self.fail(f"control enters the middle of the instruction at {one:#x}", other)
        known = self._whole
        if known is None or known[0] != cuts:
            code = concatenate(self.text, pieces)
            known = self._whole = cuts, code, Columns(code), listed(np.concatenate(controls))
        _, code, columns, control = known
        places = np.searchsorted(code.addresses, reached)
        if len(reached) and (places[-1] >= len(code) or (code.addresses[places] != reached).any()):
            raise self.fail("two readings of the same bytes as code", reached[0].item())
        kinds = np.asarray(control, np.int8)[places]
        return code, columns, control, places[kinds != int(Control.NEXT)].tolist()


def _cut(code: InstructionArray, count: int, end: int) -> InstructionArray:
    operands = int(code.operand_start[count])
    return InstructionArray(
        code.address,
        code.code[: end - code.address],
        code.offset[:count],
        code.size[:count],
        code.opcode[:count],
        code.flags[:count],
        code.target[:count],
        code.operand_start[: count + 1],
        code.operand_kind[:operands],
        code.operand_value[:operands],
    )
