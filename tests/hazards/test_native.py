"""The native check of executed instructions finds what the same table finds in Python, instruction by instruction."""

from __future__ import annotations

import random
import warnings

import luthier
import numpy as np
import pytest
from effort import EVERYTHING, FAMILIES, sample
from luthier.emulator import CheckWarning
from luthier.emulator.device import EmulatedDevice
from luthier.emulator.inspection import hazards
from luthier.errors import EmulationError
from luthier.objects import CodeObject
from pair_findings import distance, registers
from random_kernels import WAVES, random_kernel
from sequences import harmless, isa_of
from stepped import Stepped
from wait_kernels import kernel


def found(device: EmulatedDevice) -> dict[tuple[int, int | None, str], tuple[int, int, int, str]]:
    return {
        (one.offset, one.other and one.other.offset, one.rule): (distance(one)[0], one.group, one.wave, registers(one))
        for one in device.findings
    }


def launched(object: CodeObject, name: str, trace: Stepped | None, threads: int, **sizes: int) -> EmulatedDevice:
    target = object.target.target.name
    device = luthier.open_device(f"emu:{target}", check="hazards", threads=threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        device.load(object).kernel(name).launch(np.zeros(4096, np.uint32), **sizes, trace=trace)
    return device


def agree(object: CodeObject, name: str, **sizes: int) -> int:
    """How many were found, natively, natively while stepping, and by the reference."""
    reference = Stepped()
    stepped = found(launched(object, name, reference, 1, **sizes))
    assert stepped == reference.found
    # Which wave of a work-group is the first depends on whose turn it is.
    anyhow = {key: (there, group, registers) for key, (there, group, _, registers) in stepped.items()}
    for threads in (1, 2):
        natively = found(launched(object, name, None, threads, **sizes))
        assert {key: (there, group, registers) for key, (there, group, _, registers) in natively.items()} == anyhow
    return len(reference.found)


def straight(target: str, seed: int) -> str:
    """A loop of random instructions that nothing keeps apart."""
    chance = random.Random(f"{target} {seed}")
    # s20 and up are no register of the pool.
    body = chance.choices(harmless(isa_of(target)), k=40)
    fork = chance.randrange(40)
    body.insert(fork, "s_bitcmp1_b32 s20, 0; s_cbranch_scc1 over")
    body.insert(min(fork + 6, len(body)), "over:")
    return "; ".join(
        ["s_movk_i32 s20, 3", "again:", *body, "s_sub_u32 s20, s20, 1", "s_cmp_lg_u32 s20, 0", "s_cbranch_scc1 again"]
    )


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"])
def test_random_straight_code(target: str) -> None:
    total = 0
    for seed in range(16) if EVERYTHING else sample(range(16), 8):
        agprs = 64 if isa_of(target).target.target.has_agprs else 0
        total += agree(kernel(target, straight(target, seed), agprs), "k", grid=3, block=128)
    assert total or target == "gfx1030"


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
def test_random_control_flow(target: str) -> None:
    for seed in sample(range(32), 16):
        object = random_kernel(seed, target, calls=seed % 2 == 0)
        agree(object, "k", grid=WAVES, block=object.kernels["k"].wave_size)


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_waves_that_wait_for_each_other(target: str) -> None:
    """An instruction that is tried again is one instruction."""
    barrier = "s_barrier" if target == "gfx1100" else "s_barrier_signal -1; s_barrier_wait -1"
    late = "s_cmp_eq_u32 s8, 0; s_cbranch_scc0 on; s_sleep 1; s_nop 0; on:"
    uses = "v_mov_b32 v5, v4; v_mov_b32 v7, s8; s_mov_b32 s8, 0"
    body = f"v_rcp_f32 v4, v3; s_nop 0; v_readfirstlane_b32 s8, v0; {late}; {barrier}; {uses}"
    assert agree(kernel(target, body), "k", grid=2, block=256) or target != "gfx1100"


def test_a_producer_long_before_is_not_told() -> None:
    """Where a hazard lasts, the producer may be out of sight."""
    body = "v_rcp_f32 v4, v3; " + "; ".join(["s_nop 0"] * 300) + "; v_mov_b32 v5, v4"
    device = launched(kernel("gfx1100", body), "k", None, 1, grid=1, block=32)
    assert [one.other for one in device.findings] == [None]


def test_what_fails_while_the_launch_runs_is_raised(monkeypatch) -> None:
    monkeypatch.setattr(hazards, "_MOST_HITS", 1)
    body = "v_rcp_f32 v4, v3; v_mov_b32 v5, v4; v_rcp_f32 v6, v3; v_mov_b32 v7, v6"
    with pytest.raises(EmulationError, match="kinds of hazards, which is the most"):
        launched(kernel("gfx1100", body), "k", None, 1, grid=1, block=32)
