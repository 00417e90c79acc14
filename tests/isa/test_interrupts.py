"""Signals during long native work."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import NoReturn

import numpy as np
import pytest
from luthier.isa import Isa, TargetId

AFTER = 0.2
"""Seconds of the processor's time."""


class Stop(Exception):
    """What the handler raises."""


def different(isa: Isa, count: int) -> bytes:
    """Return instructions with literals that all differ: those that differ in registers alone are learned."""
    (first, _) = np.frombuffer(isa.assemble("s_mov_b32 s0, 0x12345678").instructions.code, "<u4")
    return np.stack([np.full(count, first), 1000 + np.arange(count)], 1).astype("<u4").tobytes()


def test_decoding_is_interrupted() -> None:
    """Long before it would be done."""
    isa = Isa.of(TargetId.parse("gfx90a"), 64)
    code = different(isa, 1 << 21)

    def stop(signal: int, frame: FrameType | None) -> NoReturn:
        raise Stop

    began = time.process_time()
    isa.decode(code[: len(code) >> 6])
    whole = (time.process_time() - began) * 2**6
    before = signal.signal(signal.SIGVTALRM, stop)
    began = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, AFTER)
        with pytest.raises(Stop):
            isa.decode(code)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert time.process_time() - began < AFTER + 0.5 < whole
