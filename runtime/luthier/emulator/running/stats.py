"""Statistics of a launch, counted by the emulator itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier.errors import LiftError

if TYPE_CHECKING:
    from luthier.lifting import LiftedRepresentation


class AddressCounts(NamedTuple):
    """Columns with one row for each executed instruction, in address order."""

    addresses: NDArray[np.int64]
    """Virtual address in the code object."""
    executions: NDArray[np.int64]
    """Wave-instructions."""
    active_lanes: NDArray[np.int64]
    """Lanes set in EXEC, summed over the executions; also for scalar instructions."""


class BlockCounts(NamedTuple):
    """One basic block that was entered."""

    function: str
    address: int
    """Virtual address of its first instruction."""
    end: int
    """Virtual address after its last instruction."""
    executions: int
    """Number of times that waves entered it."""
    active_lanes: int
    """Lanes set in EXEC at its entry, summed over the executions."""
    instructions: int
    """Wave-instructions executed in it."""
    lane_instructions: int
    """Active lanes of these, summed."""


@dataclass(frozen=True)
class LaunchStats:
    """Counts of one launch."""

    kernel: str
    by_address: AddressCounts
    name_opcodes: Callable[[], Mapping[int, str]] = field(repr=False, compare=False)
    """Returns `opcode_of`."""
    waves: int
    workgroups: int
    seconds: float
    """Wall-clock time of the launch, without loading or compiling."""
    compiled: int = 0
    """Operations compiled because of this launch."""
    lift: Callable[[], LiftedRepresentation] | None = field(default=None, repr=False, compare=False)
    """Lifts the kernel."""

    @cached_property
    def opcode_of(self) -> Mapping[int, str]:
        """Return the mnemonic of each address in `by_address`."""
        return self.name_opcodes()

    @cached_property
    def instructions(self) -> int:
        """Return the wave-instructions executed."""
        return int(self.by_address.executions.sum())

    @cached_property
    def opcodes(self) -> dict[str, int]:
        """Return the wave-instructions by mnemonic, as LLVM prints it; most frequent first."""
        totals = self._by_opcode(self.by_address.executions)
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    @cached_property
    def opcode_lanes(self) -> dict[str, int]:
        """Return the active lanes by mnemonic, summed over its executions; in the order of `opcodes`."""
        totals = self._by_opcode(self.by_address.active_lanes)
        return {name: totals[name] for name in self.opcodes}

    def _by_opcode(self, column: NDArray[np.int64]) -> dict[str, int]:
        totals: dict[str, int] = {}
        for address, count in zip(self.by_address.addresses.tolist(), column.tolist(), strict=True):
            name = self.opcode_of[address]
            totals[name] = totals.get(name, 0) + count
        return totals

    @cached_property
    def blocks(self) -> tuple[BlockCounts, ...]:
        """Return the basic blocks that were entered, by function, then by address.

        Each instruction belongs to one block. This lifts the kernel.

        Raises:
            LiftError: the code cannot be lifted, or waves took a path that lifting did not find.
        """
        if self.lift is None:
            raise LiftError("these counts have no code to lift", kernel=self.kernel)
        lifted = self.lift()
        places = lifted.code.addresses
        indices = np.searchsorted(places, self.by_address.addresses)
        owners = np.array(lifted.block_of, np.int64)[indices]
        if np.any(places[indices] != self.by_address.addresses) or np.any(owners < 0):
            stray = int(self.by_address.addresses[np.flatnonzero(owners < 0)[0]])
            raise LiftError("waves executed an instruction outside all basic blocks", kernel=self.kernel, offset=stray)
        counts = []
        for number in np.unique(owners).tolist():
            block = lifted.blocks[number]
            in_block = owners == number
            first, last = int(places[block.first]), block.last
            counts.append(
                BlockCounts(
                    lifted.functions[block.function].name,
                    first,
                    int(places[last]) + int(lifted.code.size[last]),
                    self.executions_at(first),
                    self.active_lanes_at(first),
                    int(self.by_address.executions[in_block].sum()),
                    int(self.by_address.active_lanes[in_block].sum()),
                )
            )
        return tuple(counts)

    def to_json(self, *, blocks: bool = True) -> dict[str, Any]:
        """Return all counts as plain data for `json.dumps`.

        The keys are ``kernel``, ``waves``, ``workgroups``, ``seconds``, ``instructions``; ``opcodes`` by mnemonic;
        ``addresses`` and, unless `blocks` is false, ``blocks`` as rows.

        Raises:
            LiftError: as for `blocks`.
        """
        rows = zip(*(column.tolist() for column in self.by_address), strict=True)
        result: dict[str, Any] = {
            "kernel": self.kernel,
            "waves": self.waves,
            "workgroups": self.workgroups,
            "seconds": self.seconds,
            "instructions": self.instructions,
            "opcodes": {
                name: {"executions": count, "active_lanes": self.opcode_lanes[name]}
                for name, count in self.opcodes.items()
            },
            "addresses": [
                {"address": address, "opcode": self.opcode_of[address], "executions": count, "active_lanes": lanes}
                for address, count, lanes in rows
            ],
        }
        if blocks:
            result["blocks"] = [row._asdict() for row in self.blocks]
        return result

    def executions_at(self, address: int) -> int:
        """Return the wave-instructions executed at one virtual address."""
        return self._lookup(address, self.by_address.executions)

    def active_lanes_at(self, address: int) -> int:
        """Return the active lanes summed over the executions at one virtual address."""
        return self._lookup(address, self.by_address.active_lanes)

    def _lookup(self, address: int, column: NDArray[np.int64]) -> int:
        at = int(np.searchsorted(self.by_address.addresses, address))
        if at == len(self.by_address.addresses) or self.by_address.addresses[at] != address:
            return 0
        return int(column[at])
