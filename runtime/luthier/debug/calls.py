"""Call stacks of the waves of a launch, and the lanes of each call for which locations of variables are valid."""

from __future__ import annotations

import functools

from msgspec import Struct, field

from luthier.debug.lanes import SelectedLanes, VariableLocations
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.debug import WaveStep
from luthier.objects.variables import DwarfVariable, Expression

WaveId = tuple[int, int]
"""Work-group, and index of the wave in it."""
_CALLS = "s_swappc_b64", "s_swap_pc_i64", "s_call_"
_RETURNS = "s_setpc_b64", "s_set_pc_i64"


class _Wave(Struct):
    depth: int
    record: int
    """The next instruction at the last step of the wave."""
    lanes: dict[int, SelectedLanes] = field(default_factory=dict)
    """By depth."""


class CallStacks:
    """Real (not inlined) calls of waves. `arrive` must be called at each step of the launch."""

    def __init__(self, code: DecodedCode, locations: VariableLocations) -> None:
        self._code, self._locations = code, locations
        self._waves: dict[WaveId, _Wave] = {}

    def clear(self) -> None:
        """Forget all waves: the launch starts again."""
        self._waves.clear()

    def arrive(self, id: WaveId, step: WaveStep) -> None:
        """Record a wave about to execute an instruction."""
        wave = self._waves.get(id)
        if wave is None:
            wave = self._waves[id] = _Wave(0, step.record)
        else:
            moved = self._deeper(wave.record)
            if moved < 0:
                wave.lanes.pop(wave.depth, None)
            wave.depth, wave.record = wave.depth + moved, step.record
        if self._locations.at:
            lanes = wave.lanes.get(wave.depth)
            if lanes is None:
                lanes = wave.lanes[wave.depth] = SelectedLanes()
            lanes.arrive(self._locations.at[step.address], step.registers.exec)

    def depth(self, id: WaveId) -> int:
        """Return the call depth of a wave."""
        return self._waves[id].depth

    def record(self, id: WaveId) -> int:
        """Return the next instruction at the last step of a wave."""
        return self._waves[id].record

    def lanes(self, id: WaveId, address: int, on: int, variable: DwarfVariable, expression: Expression) -> int | None:
        """Return the mask of the active lanes of a wave for which a variable's location is valid; None: all.

        Args:
            address: current address of the wave, which may be one instruction after that of its last step.
            on: mask of the active lanes.
        """
        key = self._locations.number(variable, expression)
        if key is None:
            return None
        wave = self._waves.get(id)
        if wave is None:  # it has not begun
            return on
        lanes = wave.lanes.get(wave.depth)
        if self._code.address_of(wave.record) != address:
            lanes = wave.lanes.get(wave.depth + self._deeper(wave.record))
        return on & (on if lanes is None else lanes.of(key, self._locations.at[address], on))

    @functools.lru_cache(maxsize=1 << 14)  # noqa: B019 - there is one debugger in a process
    def _deeper(self, record: int) -> int:
        """Return the change of the call depth by an instruction."""
        text = self._code.text(record)
        return text.startswith(_CALLS) - text.startswith(_RETURNS)
