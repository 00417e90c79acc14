"""What a launch did, counted by the emulator itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class AddressCounts(NamedTuple):
    """Columns, one row an instruction that was executed, in address order."""

    addresses: NDArray[np.int64]
    """Virtual address in the code object."""
    executions: NDArray[np.int64]
    """Wave-instructions."""
    active_lanes: NDArray[np.int64]
    """Lanes set in EXEC, summed over the executions; of scalar instructions too."""


@dataclass(frozen=True)
class LaunchStats:
    """Counts of one launch."""

    kernel: str
    by_address: AddressCounts
    opcode_of: Mapping[int, str]
    """Mnemonic of each address in `by_address`."""
    waves: int
    workgroups: int
    seconds: float
    """Wall-clock time of the launch, without loading or compiling."""
    compiled: int = 0
    """Operations compiled because of this launch."""

    @cached_property
    def instructions(self) -> int:
        """Wave-instructions executed."""
        return int(self.by_address.executions.sum())

    @cached_property
    def opcodes(self) -> dict[str, int]:
        """Wave-instructions by mnemonic, as LLVM prints it; most frequent first."""
        totals: dict[str, int] = {}
        for address, count in zip(self.by_address.addresses.tolist(), self.by_address.executions.tolist(), strict=True):
            name = self.opcode_of[address]
            totals[name] = totals.get(name, 0) + count
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    def executions_at(self, address: int) -> int:
        """Wave-instructions executed at one virtual address."""
        return self._lookup(address, self.by_address.executions)

    def active_lanes_at(self, address: int) -> int:
        """Active lanes summed over the executions at one virtual address."""
        return self._lookup(address, self.by_address.active_lanes)

    def _lookup(self, address: int, column: NDArray[np.int64]) -> int:
        at = int(np.searchsorted(self.by_address.addresses, address))
        if at == len(self.by_address.addresses) or self.by_address.addresses[at] != address:
            return 0
        return int(column[at])
