"""Registers for counters: those that nothing else in a kernel uses, and those that are free at the end of a wave."""

from __future__ import annotations

from luthier.errors import PatchError
from luthier.hazards.wait_counters.model import is_gds
from luthier.hazards.wait_states.kinds import pairs
from luthier.isa import InstructionFlag
from luthier.isa.registers import SGPRS, VGPRS
from luthier.lifting import LiftedRepresentation
from luthier.patch.counters.plan import HookUse
from luthier.patch.counters.storage import CounterStorage, NoRoom
from luthier.patch.registers.binding import RegisterBudget
from luthier.patch.registers.budget import used_agprs
from luthier.tool.counts import CounterBudget


class CounterRegisters:
    """The registers that counters of a kernel may use.

    Args:
        budget: the registers that the kernel has and may have.
        limits: the part that counters may use.
        first_end: an end of a wave, for errors.

    Attributes:
        loaded: bit set of the units that memory operations read or write asynchronously.
    """

    def __init__(
        self,
        lifted: LiftedRepresentation,
        budget: RegisterBudget,
        hooks: HookUse,
        limits: CounterBudget,
        first_end: int,
    ) -> None:
        self._lifted, self._budget, self._hooks = lifted, budget, hooks
        self._limits, self._first_end = limits, first_end
        self._touched = hooks.units | hooks.state.reserved | _named_units(lifted)
        self.loaded = _loaded(lifted)

    def free(self) -> tuple[list[int], list[int]]:
        """Return the SGPR and VGPR units that counters may use, since nothing else ever uses them."""
        lifted = self._lifted
        inputs = 0
        for first, count in lifted.kernel.descriptor.sgpr_inputs.values():
            inputs |= (1 << count) - 1 << first
        used = self._touched | inputs
        if lifted.target.scalar_wait is not None:  # otherwise additions wait for reads of the other SGPR
            used = pairs(used)
        scalars = [u for u in SGPRS[: self._budget.sgpr_limit] if not used >> u & 1]
        # Where the upper bits of VGPR numbers may be nonzero, an addition could address another VGPR.
        named = VGPRS[: 0 if lifted.vgpr_bits else self._budget.vgpr_limit]
        if lifted.unknown:  # unknown code may use all registers that the kernel has
            named = named[self._budget.vgprs :]
        vectors = [u for u in named if not self._touched >> u & 1]
        return scalars[: self._limits.sgprs], vectors[: self._limits.vgprs]

    def for_address(self, storage: CounterStorage) -> tuple[int, bool]:
        """Return the first of two SGPRs for addresses at the end of a wave, and whether nothing else ever uses them.

        Payloads of hooks get their registers later, and may use these.
        """
        limit = self._budget.sgpr_limit - 1
        pairs = [unit for unit in SGPRS[:limit:2] if not storage.reserved >> unit & 3]
        for unit in pairs:
            if unit < self._budget.sgprs - 1 and not self._touched >> unit & 3:
                return unit, not self._hooks.points
        if not pairs:
            raise NoRoom
        return pairs[0], False

    def vectors(self, storage: CounterStorage) -> tuple[int, int, int, int]:
        """Return VGPRs for the end of a wave: two adjacent pairs."""
        loaded = self.loaded
        free = [unit for unit in VGPRS[: self._budget.vgpr_limit] if not storage.reserved >> unit & 1]
        allocated = [unit for unit in free if unit < VGPRS.start + self._allocated()]
        for units in ([unit for unit in allocated if not loaded >> unit & 1], allocated, free):
            pairs = [low for low in units if low % 2 == 0 and low + 1 in units]
            if len(pairs) >= 2:
                return pairs[0], pairs[0] + 1, pairs[1], pairs[1] + 1
        raise self.missing("vector registers")

    def missing(self, what: str) -> PatchError:
        """Return the error that counters cannot be added to memory at the end of a wave."""
        return PatchError(
            f"no {what} are free to add counters to memory at the end of a wave",
            kernel=self._lifted.kernel.name,
            offset=self._lifted.columns.address[self._first_end],
        )

    def _allocated(self) -> int:
        """Return the number of VGPRs that the kernel may have without another step of the hardware's allocation."""
        target, descriptor = self._lifted.target, self._lifted.kernel.descriptor
        granule = target.vgpr_allocation_granule(self._lifted.wave_size)
        allocated = -(-descriptor.vgprs // granule) * granule
        if target.unified_vgprs:
            allocated = (allocated - used_agprs(self._lifted)) // 4 * 4
        return max(self._budget.vgprs, min(allocated, self._budget.vgpr_limit))


def _named_units(lifted: LiftedRepresentation) -> int:
    """Return the bit set of the units that instructions of the kernel read or write, without trap handlers."""
    native, units = lifted.effect_table.code(lifted.columns), 0
    pseudos, opcodes = lifted.effect_table.pseudos, lifted.columns.opcode
    traps = {number for number in lifted.columns.opcodes if number >= 0 and pseudos[number] == "S_TRAP"}
    for block in lifted.blocks:
        first = block.first
        within = range(block.first, block.last + 1) if traps else ()
        for last in (*(index for index in within if opcodes[index] in traps), block.last + 1):
            if first < last:
                reads, writes, _ = native.together(first, last - 1)
                units |= reads | writes
            first = last + 1
    return units


def _loaded(lifted: LiftedRepresentation) -> int:
    """Return the bit set of the units that memory operations read or write asynchronously."""
    flag = InstructionFlag
    reading, giving = int(flag.EXPORT | flag.GWS | flag.DS), int(flag.LOAD | flag.SIDE_EFFECTS)
    lds = int(flag.DS)
    loaded = 0
    for index, (flags, block) in enumerate(zip(lifted.code.flags.tolist(), lifted.block_of, strict=True)):
        if block < 0:
            continue
        if flags & giving:
            loaded |= lifted.effects(index).writes
        if flags & reading:
            opcode = lifted.isa.opcode(lifted.columns.opcode[index])
            if not flags & lds or is_gds(opcode, lifted.columns.values(index)):
                loaded |= lifted.effects(index).reads
    return loaded
