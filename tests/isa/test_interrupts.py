"""Signals during long native work."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import NoReturn

import pytest
from luthier.isa import Isa, TargetId

CODE = Isa.of(TargetId.parse("gfx90a"), 64).assemble("v_fma_f32 v0, v1, v2, v3\nv_add_f32 v4, v5, v6").instructions.code
AFTER = 0.2
"""Seconds of the processor's time."""


class Stop(Exception):
    """What the handler raises."""


def test_decoding_is_interrupted() -> None:
    """Long before it would be done."""
    isa = Isa.of(TargetId.parse("gfx90a"), 64)

    def stop(signal: int, frame: FrameType | None) -> NoReturn:
        raise Stop

    began = time.process_time()
    isa.decode(CODE * (1 << 14))
    whole = (time.process_time() - began) * 2**6
    before = signal.signal(signal.SIGVTALRM, stop)
    began = time.process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, AFTER)
        with pytest.raises(Stop):
            isa.decode(CODE * (1 << 20))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert time.process_time() - began < AFTER + 0.5 < whole
