"""Annotations of each instruction of a lifted kernel: live registers, source line, loop, executions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Struct

from luthier.isa.registers import SCALAR_MASK, VGPR_FIRST
from luthier.lifting.live import Live
from luthier.lifting.loops import Loop
from luthier.lifting.representation import LiftedRepresentation
from luthier.objects.source import SourceLocation


class Ran(NamedTuple):
    """Executions of an instruction."""

    executions: int
    """Number of executions by waves."""
    active_lanes: int | None = None
    """Sum of the active lanes over these executions; None if not counted."""


class LiveCounts(NamedTuple):
    """Numbers of live register units."""

    scalar: int
    vector_active: int
    """In the active lanes."""
    vector_all_lanes: int
    """In any lane."""

    @classmethod
    def of(cls, live: Live) -> LiveCounts:
        """Return the numbers of units in a live set."""
        return cls(
            (live.active & SCALAR_MASK).bit_count(),
            (live.active >> VGPR_FIRST).bit_count(),
            (live.all_lanes >> VGPR_FIRST).bit_count(),
        )


class Annotations(Struct, frozen=True, dict=True):
    """Annotations of each instruction of a kernel, by its index.

    Args:
        lifted: the kernel.
        counts: executions of instructions by virtual address; an instruction that is missing was not counted. None:
            nothing was counted.
    """

    lifted: LiftedRepresentation
    counts: Mapping[int, Ran] | None = None

    def live(self, index: int) -> LiveCounts:
        """Return the numbers of live units before an instruction."""
        return LiveCounts.of(self.lifted.liveness.live_before(index))

    def ran(self, index: int) -> Ran | None:
        """Return the executions of an instruction; None if not counted."""
        return None if self.counts is None else self.counts.get(self.lifted.columns.address[index])

    def source(self, index: int) -> SourceLocation | None:
        """Return the source location of an instruction."""
        number = self._source_numbers[index]
        return None if number < 0 else self.lifted.object.source.locations[number]

    @cached_property
    def loop_of(self) -> Mapping[int, int]:
        """Return block -> index in ``lifted.loops`` of the innermost loop that contains it, for blocks in loops."""
        return {block: at for at, loop in enumerate(self.lifted.loops) for block in loop.blocks}

    def loop(self, block: int) -> Loop | None:
        """Return the innermost loop that contains a block, if any."""
        return self.lifted.loops[self.loop_of[block]] if block in self.loop_of else None

    @property
    def resources(self) -> dict[str, int | list[str]]:
        """Return the resources of a wave, and the waves that fit on a SIMD with the limits (`Kernel.occupancy`)."""
        kernel = self.lifted.kernel
        occupancy = kernel.occupancy()
        return {
            "vgprs": kernel.vgpr_count,
            "agprs": kernel.agpr_count,
            "sgprs": kernel.sgpr_count,
            "allocated_vgprs": kernel.allocated_vgprs,
            "lds_bytes": kernel.group_segment_fixed_size,
            "scratch_bytes": kernel.private_segment_fixed_size,
            "waves_per_simd": occupancy.waves,
            "most_waves_per_simd": occupancy.most,
            "limited_by": list(occupancy.limited_by),
        }

    def as_data(self) -> dict[str, Any]:
        """Return the annotations as plain data for JSON.

        Keys are ``resources``, ``loops``, ``loop_of_block``, ``code`` with one row per instruction in the order of
        blocks, ``sources``, to which its rows refer by index, and ``source_problems``.
        """
        numbers: dict[int, int] = {}
        code = []
        lifted = self.lifted
        for block in lifted.blocks:
            for index in range(block.first, block.last + 1):
                source = self._source_numbers[index]
                ran = self.ran(index)
                code.append(
                    {
                        "address": lifted.columns.address[index],
                        "block": block.index,
                        "text": lifted.isa.text(lifted.code, index),
                        "live": self.live(index)._asdict(),
                        "source": None if source < 0 else numbers.setdefault(source, len(numbers)),
                        **({} if ran is None else ran._asdict()),
                    }
                )
        locations = lifted.object.source.locations
        return {
            "resources": self.resources,
            "loops": [
                {"headers": list(loop.headers), "blocks": sorted(loop.blocks), "depth": loop.depth}
                for loop in lifted.loops
            ],
            "loop_of_block": [self.loop_of.get(block.index) for block in lifted.blocks],
            "code": code,
            "sources": [locations[number].to_json() for number in numbers],
            "source_problems": list(lifted.object.source.problems),
        }

    def by_line(self) -> dict[tuple[str, int], int]:
        """Return the wave-instructions of each (file, line) of the user's source, the largest number first.

        Code inlined from headers of a compiler or of ROCm belongs to the user's line (`SourceLocation.user`). The key
        of instructions with unknown source is ("", 0).
        """
        totals: dict[tuple[str, int], int] = {}
        for block in self.lifted.blocks:
            for index in range(block.first, block.last + 1):
                ran, source = self.ran(index), self.source(index)
                key = ("", 0) if source is None else (source.user.file, source.user.line)
                totals[key] = totals.get(key, 0) + (ran.executions if ran else 0)
        return dict(sorted(((key, count) for key, count in totals.items() if count), key=lambda item: -item[1]))

    @cached_property
    def _source_numbers(self) -> list[int]:
        numbers: list[int] = self.lifted.object.source.numbers(self.lifted.columns.address).tolist()
        return numbers
