"""Ranges that a kernel holds in registers: accesses within them need no hook.

Most accesses begin at a pointer that is a kernel argument. The host knows its allocation before each launch; unused
SGPRs hold the allowed range from the kernel's beginning on. The choice of the argument may be a guess: the hook
examines an access outside the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from luthier import Instruction, InstrumentationTask, ToolModule
from luthier.isa import OperandKind, RegisterRange
from luthier.isa.registers import SGPRS

from luthier_memcheck.allocations import Stretch
from luthier_memcheck.arguments import Arguments

SLOTS = 1024
"""Largest number of ranges, in all kernels, as in device.hip."""
_MOST = 1 << 31
"""Bytes after a pointer that 32-bit offsets can reach, signed or not."""
_TOGETHER = 4
"""Ranges that one hook loads."""
_DEEP = 8
"""Instructions to follow back to find the origin of an address."""


class Claim(NamedTuple):
    """A kind of range in registers."""

    kind: str
    """*offsets* from a pointer, *addresses*, or *lds*: offsets there."""
    argument: int
    """Byte of the kernel's arguments where the pointer is; -1 of LDS."""


@dataclass
class Held:
    """Range in the registers of one kernel."""

    claim: Claim
    slot: int
    register: RegisterRange
    """Register of the first number; the second follows."""
    before: int = 0
    """Largest number of bytes that an access reaches before its address in registers."""
    behind: int = 0
    """Largest number of bytes after it, the access included."""

    def numbers(self, pointer: int, stretch: Stretch | None, lds: int) -> tuple[int, int]:
        """Return the numbers in the registers for a launch; an empty range if it is not known.

        Args:
            pointer: value of the argument.
            stretch: the stretch around it; None if it may not be accessed.
            lds: bytes of LDS.
        """
        if self.claim.kind == "lds":
            return (0, max(lds - self.behind + 1, 0)) if not self.before else (0, 0)
        if stretch is None:
            return 0, 0
        low, high = stretch.begin + self.before, max(stretch.end - self.behind + 1, 0)
        if self.claim.kind == "addresses":
            return (low, min(high, (1 << 64) - 1)) if low < high else (0, 0)
        return (0, min(max(high - pointer, 0), _MOST)) if low <= pointer else (0, 0)


@dataclass
class Ranges:
    """Ranges of one kernel.

    Args:
        first: number of the next slot.
    """

    task: InstrumentationTask
    first: int
    held: dict[Claim, Held] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._possible = not self.task.lifted.unknown
        self._arguments = Arguments(self.task.lifted)

    def tests(self, instruction: Instruction) -> list[str]:
        """Return comparisons, one of which is true for an access outside the range; none without a range."""
        access = instruction.memory
        if not self._possible or access is None or access.size is None or access.count > 1:
            return []
        offset = instruction.operand("offset")
        near = offset[1] if offset is not None else 0
        base, address = self._registers(instruction, "saddr"), self._registers(instruction, "vaddr")
        if access.space == "lds":
            return self._offsets(Claim("lds", -1), self._registers(instruction, "addr"), near & 0xFFFF, access.size)
        if access.space not in ("global", "flat") or address is None:
            return []
        if base is not None:
            argument = self._arguments.at(instruction, base.first)
            if argument is None or address.count > 1:
                return []
            return self._offsets(Claim("offsets", argument), address, near, access.size)
        if address.count < 2:
            return []
        argument = self._guess(instruction, address.first, _DEEP)
        held = None if argument is None else self._hold(Claim("addresses", argument), near, access.size)
        if held is None:
            return []
        low = held.register
        high = RegisterRange(low.first + 2, 2)
        return [f"v_cmp_gt_u64_e64 {{vcc}}, {low}, {address}", f"v_cmp_le_u64_e64 {{vcc}}, {high}, {address}"]

    def insert(self, module: ToolModule) -> None:
        """Insert the hooks that load ranges into registers when a wave begins.

        Raises:
            HookError: the kernel's entry takes no hook.
        """
        for run in self._runs():
            held = run[0]
            hook = module.hook(f"hold_{len(run)}" if held.claim.kind == "addresses" else "hold_limit")
            self.task.insert_hook_at_kernel_entry(hook, held.slot, held.register.first)

    def _runs(self) -> list[list[Held]]:
        """Return the ranges, grouped by adjacent slots and registers."""
        runs: list[list[Held]] = []
        for held in self.held.values():
            last = runs[-1][-1] if runs else held
            together = held.claim.kind == last.claim.kind == "addresses" and held.slot == last.slot + 1
            if together and held.register.first == last.register.first + 4 and len(runs[-1]) < _TOGETHER:
                runs[-1].append(held)
            else:
                runs.append([held])
        return runs

    def _offsets(self, claim: Claim, address: RegisterRange | None, near: int, size: int) -> list[str]:
        held = None if address is None else self._hold(claim, near, size)
        return [] if held is None else [f"v_cmp_le_u32_e64 {{vcc}}, {held.register}, {address}"]

    def _hold(self, claim: Claim, near: int, size: int) -> Held | None:
        """Return the range for accesses `near` bytes from their address; None if no registers are left."""
        held = self.held.get(claim)
        if held is None:
            slot = self.first + len(self.held)
            registers = self.task.spare_sgprs(4 if claim.kind == "addresses" else 1) if slot < SLOTS else None
            if registers is None:
                return None
            register = RegisterRange(registers.first, min(registers.count, 2))
            held = self.held[claim] = Held(claim, slot, register)
        held.before, held.behind = max(held.before, -near), max(held.behind, near + size)
        return held

    def _registers(self, instruction: Instruction, name: str) -> RegisterRange | None:
        operand = instruction.operand(name)
        if operand is None or operand[0] != OperandKind.REGISTER:
            return None
        register = self.task.lifted.isa.register(operand[1])
        if register.first_unit < 0 or register.unit_count == 0:
            return None
        return RegisterRange(register.first_unit, register.unit_count)

    def _guess(self, instruction: Instruction, unit: int, deep: int) -> int | None:
        """Return the argument from which a register's value is probably computed; None if there is none."""
        lifted = self.task.lifted
        first = lifted.blocks[lifted.functions[0].entry_block].first
        for index in range(instruction.index - 1, first - 1, -1):
            writer = lifted.instructions[index]
            if not writer.effects.writes >> unit & 1:
                continue
            sources = [self._registers(writer, name) for name in ("src0", "src1", "src2")]
            for source in (source for source in sources if source is not None):
                argument = self._arguments.loaded(writer, source.first)
                if argument is None and deep and source.first not in SGPRS:
                    argument = self._guess(writer, source.first, deep - 1)
                if argument is not None:
                    return argument
            return None
        return None


def numbers_of(
    ranges: Sequence[Held], kernarg: bytes, lds: int, around: Callable[[int], Stretch | None]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield slots with their numbers for a launch.

    Args:
        kernarg: contents of the arguments; empty if they are not known.
        around: returns the stretch around an address; None if it may not be accessed.
    """
    for held in ranges:
        at = held.claim.argument
        pointer = int.from_bytes(kernarg[at : at + 8], "little") if 0 <= at <= len(kernarg) - 8 else 0
        yield held.slot, held.numbers(pointer, around(pointer) if pointer else None, lds)
