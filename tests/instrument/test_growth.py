"""The work for an object is linear in its kernels: calls of functions by Python, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from growth_programs import small_kernels
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.patch.outcome import KernelReport

SMALL, LARGE = 40, 120


def calls_of(work: Callable[[CodeObject], object], object: CodeObject) -> int:
    """Return the calls of functions, native ones among them, while `work` deals with an object."""
    calls = 0

    def noted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(noted)
    try:
        work(object)
    finally:
        sys.setprofile(None)
    return calls


def lift_all(object: CodeObject) -> None:
    for name in object.kernels:
        assert lift(object, name).liveness.live_in(0)


def patch_all(object: CodeObject) -> None:
    patch_object(object, lambda task: task.count(task.instructions))


@pytest.mark.parametrize("work", [lift_all, patch_all])
def test_kernels(work: Callable[[CodeObject], object]) -> None:
    objects = [load_object(small_kernels(count).data) for count in (SMALL, SMALL, LARGE)]
    _, small, large = (calls_of(work, object) for object in objects)  # the first time tables are filled
    assert large <= 1.02 * LARGE / SMALL * small


def test_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether another kernel has a descriptor is asked once for each kernel, not for each pair."""
    asked = 0
    changed = KernelReport.changed

    def noted(report: KernelReport) -> bool:
        nonlocal asked
        asked += 1
        return changed.__get__(report)

    monkeypatch.setattr(KernelReport, "changed", property(noted))
    patch_all(small_kernels(SMALL))
    assert SMALL <= asked <= 4 * SMALL
