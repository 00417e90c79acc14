"""Threads kept from launch to launch."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from luthier.emulator.running.crew import Crew


def test_shares_run_at_the_same_time_on_kept_threads() -> None:
    crew = Crew()
    seen: set[int] = set()
    for _ in range(20):
        together = threading.Barrier(3)

        def work(share: str, together: threading.Barrier = together) -> None:
            together.wait(10)
            seen.add(threading.get_ident())

        crew.spread(work, ["a", "b", "c"], pytest.fail)
    assert len(seen) == 3
    assert threading.get_ident() not in seen


def test_work_within_work_finds_threads() -> None:
    crew = Crew()
    numbers: list[int] = []
    crew.spread(lambda outer: crew.spread(numbers.append, [outer, outer + 1], pytest.fail), [10, 20], pytest.fail)
    assert sorted(numbers) == [10, 11, 20, 21]


def test_problems_are_raised_when_all_have_finished() -> None:
    crew = Crew()
    finished = []

    def work(share: int) -> None:
        if share == 0:
            raise ValueError("first")
        time.sleep(0.05)
        finished.append(share)

    for _ in range(3):
        with pytest.raises(ValueError, match="first"):
            crew.spread(work, [0, 1], pytest.fail)
    assert finished == [1, 1, 1]


def test_an_interrupt_aborts_and_waits() -> None:
    crew = Crew()
    stop = threading.Event()
    finished = []

    def work(share: int) -> None:
        if share == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert stop.wait(10)
        finished.append(share)

    with pytest.raises(KeyboardInterrupt):
        crew.spread(work, [0, 1], stop.set)
    assert sorted(finished) == [0, 1]
    crew.spread(finished.append, [2, 3], pytest.fail)
    assert sorted(finished) == [0, 1, 2, 3]


def test_a_child_process_starts_its_own() -> None:
    import numpy as np
    from luthier.emulator.inspection.bench import run_assembly
    from luthier.emulator.running.crew import CREW

    CREW.spread(lambda share: None, [1, 2], pytest.fail)
    run_assembly("gfx942", "v_mov_b32 v1, v0", {0: np.arange(64, dtype=np.uint32)})
    child = os.fork()
    if child == 0:
        done = []
        CREW.spread(done.append, [1, 2], pytest.fail)
        os._exit(0 if sorted(done) == [1, 2] else 1)
    limit = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < limit:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)
