"""A lifted kernel with its analyses, which run on demand."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier import _mc
from luthier.isa import OperandKind
from luthier.isa.registers import SCALAR_MASK
from luthier.lifting.instructions.semantics import LaneChange
from luthier.lifting.liveness import Liveness, flow_of, followed_units, override_rows
from luthier.lifting.loops import Loop, LoopNest
from luthier.lifting.model import LiftedKernel
from luthier.objects.names import as_in_source
from luthier.support.table import Table
from luthier.support.wording import counted


class LiftedRepresentation(LiftedKernel, frozen=True, eq=False):
    """One kernel and every function it may call (`LiftedKernel`), with liveness and loops. Read-only."""

    _flow: _mc.Flow | None = None

    @cached_property
    def liveness(self) -> Liveness:
        """Return the liveness of registers; computed on first use."""
        return Liveness(self, self.flow)

    @cached_property
    def named_units(self) -> NDArray[np.int32]:
        """Return the last unit of each register that an instruction names, ascending by LLVM's register number."""
        code, isa = self.code, self.isa
        registers = code.operand_kind == int(OperandKind.REGISTER)
        if not self.reached.all():
            registers &= np.repeat(self.reached, code.operand_start[1:] - code.operand_start[:-1])
        named = np.zeros(isa.register_count, bool)
        named[code.operand_value[registers]] = True
        numbers = named.nonzero()[0]
        last: NDArray[np.int32] = isa.register_first_unit[numbers] + isa.register_unit_count[numbers] - 1
        return last

    @cached_property
    def _last_units(self) -> list[int]:
        """Return `named_units`, ascending."""
        return sorted(self.named_units.tolist())

    def named_in(self, file: range) -> int:
        """Return the number of registers of a file up to the last one that an instruction of the kernel names."""
        at = bisect.bisect_left(self._last_units, file.stop)
        return max(0, self._last_units[at - 1] - file.start + 1) if at else 0

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Return the loops of all functions; in each function, outer loops come before inner ones."""
        return tuple(loop for function in self.functions for loop in LoopNest(function).loops)

    @cached_property
    def flow(self) -> _mc.Flow:
        """Return the kernel for the native analyses."""
        return self._flow or flow_of(self)

    def __repr__(self) -> str:
        size = f"{counted(len(self.instructions), 'instruction')}, {counted(len(self.blocks), 'block')}"
        return f"<{type(self).__name__} {self.kernel.name}: {self.object.target}, {size}>"

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: a row for each block with its address, size, exit and live registers."""
        columns = ("function", "block", "address", "instructions", "left by", "to", "live scalar", "live vector")
        rows = []
        for block in self.blocks:
            live = self.liveness.live_in(block.index).active
            scalar = (live & SCALAR_MASK).bit_count()
            address, size = hex(self.columns.address[block.first]), block.last - block.first + 1
            targets = ", ".join(str(edge.to) for edge in block.successors)
            name = self.functions[block.function].name
            rows.append((name, block.index, address, size, block.exit, targets, scalar, len(live) - scalar))
        title = f"{self.kernel.name}: {self.object.target}, wave{self.wave_size}"
        (table,) = as_in_source([Table(title, columns, rows)])
        return table._repr_html_()

    def also_reading(self, reads: Mapping[int, int]) -> LiftedRepresentation:
        """Return the kernel for liveness analysis with code inserted that reads registers.

        Args:
            reads: instruction index -> bit set of units that code inserted before it reads, in the active lanes.
        """
        changed = {}
        total = self.read_by_inserted
        for index, units in reads.items():
            effects = self.effects(index)
            changed[index] = effects._replace(
                reads=effects.reads | units, cross_reads=effects.cross_reads | units & SCALAR_MASK
            )
            total |= units
        return replace(
            self,
            read_by_inserted=total,
            _changed={**self._changed, **changed},
            _flow=self.flow.changed(override_rows(self, changed), keep_lanes=True),  # reads do not change lane masks
        )

    def without_kills(self, indices: Iterable[int]) -> LiftedRepresentation:
        """Return the kernel for liveness analysis without the kills of some instructions, which are replaced."""
        changed = {index: self.effects(index)._replace(kills=0, hard_kills=0) for index in indices}
        result = replace(self, _changed={**self._changed, **changed})
        return replace(result, _flow=self.flow.changed(override_rows(result, changed), keep_lanes=False))

    def also_changing(self, changes: Mapping[int, int]) -> LiftedRepresentation:
        """Return the kernel for liveness analysis with code inserted that writes registers.

        The effects of each such instruction include those of the code before it. If that code writes EXEC, any lane may
        be active when the instruction runs: liveness before it then holds only for all lanes together.

        Args:
            changes: instruction index -> bit set of units that code inserted before it may change.
        """
        changed, total = {}, 0
        for index, units in changes.items():
            effects = self.effects(index)
            effects = effects._replace(writes=effects.writes | units)
            if units & self.effect_table.exec:
                effects = effects._replace(
                    cross_reads=effects.reads,
                    kills=effects.hard_kills | effects.kills & SCALAR_MASK,
                    lanes=LaneChange.ANY,
                )
            changed[index] = effects
            total |= units
        result = replace(
            self,
            changed_by_inserted={**self.changed_by_inserted, **changes},
            _changed={**self._changed, **changed},
        )
        keep_lanes = not total & followed_units(self)
        return replace(result, _flow=self.flow.changed(override_rows(result, changed), keep_lanes))
