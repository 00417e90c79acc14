"""Late results on the emulated device: the contents of outstanding registers and the findings, against the check of all
paths."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Iterable

import luthier
import numpy as np
import pytest
from luthier.cache.memory import BoundedCache
from luthier.emulator import CheckWarning, Finding, layout
from luthier.emulator.inspection import waits
from luthier.emulator.inspection.waits import POISON
from luthier.errors import EmulationError
from luthier.hazards.wait_counters import check_waits
from luthier.lifting import lift
from pair_findings import wait_use
from wait_kernels import kernel

pytestmark = pytest.mark.rows()

TARGETS = ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1200"]


def begin(target: str) -> str:
    """The buffer's address in s[2:3], a lane's offset in v1, its address in v[4:5]."""
    load, wait = ("s_load_dwordx2", "s_waitcnt lgkmcnt(0)") if target < "gfx11" else ("s_load_b64", "s_wait_kmcnt 0x0")
    if target.startswith("gfx9"):
        load, wait, add = "s_load_dwordx2", "s_waitcnt lgkmcnt(0)", "v_add_co_u32_e32 v4, vcc, s2, v1"
        carry = "v_addc_co_u32_e32 v5, vcc, 0, v5, vcc"
    else:
        add, carry = "v_add_co_u32 v4, vcc_lo, s2, v1", "v_add_co_ci_u32_e32 v5, vcc_lo, 0, v5, vcc_lo"
        if target == "gfx1100":
            wait = "s_waitcnt lgkmcnt(0)"
    return (
        f"{load} s[2:3], s[0:1], 0x0; {wait}; v_and_b32_e32 v1, 31, v0; v_lshlrev_b32_e32 v1, 2, v1; v_mov_b32 v5, s3; "
        f"{add}; {carry}"
    )


def launch(target: str, body: str) -> tuple[np.ndarray, tuple[Finding, ...]]:
    device = luthier.open_device(f"emu:{target}", check="waits")
    data = np.arange(64, dtype=np.uint32) + 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        device.load(kernel(target, body).data).kernel("k").launch(data, grid=1, block=32)
    return data, device.findings


def load(target: str) -> str:
    return "global_load_dword" if target.startswith("gfx9") or target == "gfx1030" else "global_load_b32"


def store(target: str) -> str:
    return "global_store_dword" if target.startswith("gfx9") or target == "gfx1030" else "global_store_b32"


def wait_for_loads(target: str, value: int) -> str:
    return f"s_wait_loadcnt {value:#x}" if target == "gfx1200" else f"s_waitcnt vmcnt({value})"


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_is_late(target: str) -> None:
    text = f"{begin(target)}; {load(target)} v10, v1, s[2:3]; v_mov_b32 v11, v10; {{}}; "
    text += f"v_mov_b32 v12, v10; {store(target)} v1, v11, s[2:3]; {store(target)} v1, v12, s[2:3] offset:128"
    data, findings = launch(target, text.format(wait_for_loads(target, 0)))
    assert (data[:32] == POISON).all()  # read before the wait
    assert (data[32:] == np.arange(32) + 100).all()  # and behind it
    (finding,) = findings
    assert (finding.rule, wait_use(finding).enough) == ("reads v10", 0)
    assert finding.lane == 0
    assert "v_mov_b32" in finding.instruction


@pytest.mark.parametrize("target", TARGETS)
def test_a_late_result_overwrites(target: str) -> None:
    text = f"{begin(target)}; {load(target)} v10, v1, s[2:3]; v_mov_b32 v10, 7; {wait_for_loads(target, 0)}; "
    data, findings = launch(target, text + f"{store(target)} v1, v10, s[2:3] offset:128")
    assert (data[32:] == np.arange(32) + 100).all()
    assert [wait_use(finding).access for finding in findings] == ["overwrites"]


IMAGE = (0, 0xC1400000, 0x7, 0x80000FAC, 0x1F, 0, 0, 0)
"""Descriptor of 32 numbers in one dimension, but for its address, on GFX10.3 and GFX11."""
SAMPLER = (0x8002, 0xFFF000, 0, 0)
"""Of the nearest one, by its number."""


def sample_begin(target: str) -> str:
    """As `begin`, and an image of the buffer, its sampler, and the number of each lane's element in v2."""
    words = [f"s_mov_b32 s{20 + place}, {word:#x}" for place, word in enumerate((*IMAGE, *SAMPLER)) if place > 1]
    place = f"s_lshr_b64 s[20:21], s[2:3], 8; s_or_b32 s21, s21, {IMAGE[1]:#x}"
    return f"{begin(target)}; {place}; {'; '.join(words)}; v_and_b32_e32 v2, 31, v0; v_cvt_f32_u32_e32 v2, v2"


SAMPLE = "image_sample {}, v2, s[20:27], s[28:31] dmask:0x1 dim:SQ_RSRC_IMG_1D"


@pytest.mark.parametrize("target", ["gfx1030", "gfx1100"])
@pytest.mark.parametrize("limit", [0, 1, 2])
def test_kinds_of_results_are_counted_in_order(target: str, limit: int) -> None:
    text = f"{sample_begin(target)}; {SAMPLE.format('v10')}; {load(target)} v11, v1, s[2:3] offset:128; "
    text += f"s_waitcnt vmcnt({limit}); v_mov_b32 v12, v10; {store(target)} v1, v12, s[2:3] offset:128"
    data, findings = launch(target, text)
    assert [(finding.rule, wait_use(finding).enough) for finding in findings] == [("reads v10", 1)] * (limit > 1)
    assert data[32:].tolist() == [POISON if limit > 1 else number for number in range(100, 132)]


@pytest.mark.parametrize("target", ["gfx1030", "gfx1100"])
def test_kinds_of_results_are_written_in_any_order(target: str) -> None:
    text = f"{sample_begin(target)}; {SAMPLE.format('v10')}; {load(target)} v10, v1, s[2:3] offset:128; "
    _, findings = launch(target, text + "s_waitcnt vmcnt(0)")
    assert [(wait_use(finding).access, wait_use(finding).enough) for finding in findings] == [("overwrites", 0)]


@pytest.mark.parametrize("target", TARGETS)
def test_other_lanes_are_no_use(target: str) -> None:
    """What lanes that the load leaves out do with the register is their own affair."""
    mask = "exec" if target.startswith("gfx9") else "exec_lo"
    width = "b64" if target.startswith("gfx9") else "b32"
    text = (
        f"{begin(target)}; s_mov_{width} {mask}, 0xff; {load(target)} v10, v1, s[2:3]; s_mov_{width} {mask}, 0xff00; "
    )
    text += f"v_mov_b32 v10, 7; s_mov_{width} {mask}, 0xffff; {wait_for_loads(target, 0)}; "
    data, findings = launch(target, text + f"{store(target)} v1, v10, s[2:3] offset:128")
    assert findings == ()
    assert data[32:48].tolist() == [*range(100, 108), *[7] * 8]


def test_findings_are_warnings_and_those_of_the_last_launch() -> None:
    bad = f"{begin('gfx906')}; global_load_dword v10, v1, s[2:3]; v_mov_b32 v11, v10"
    device = luthier.open_device("emu:gfx906", check="waits")
    loaded = [device.load(kernel("gfx906", body).data).kernel("k") for body in (bad, begin("gfx906"))]
    data = np.zeros(64, np.uint32)
    with pytest.warns(CheckWarning, match=r"missing-wait in k .* reads v10; vmcnt\(0\) before it is enough"):
        loaded[0].launch(data, grid=4, block=256)
    assert len(device.findings) == 1
    loaded[1].launch(data, grid=1, block=64)
    assert device.findings == ()


def test_with_another_check_that_looks_at_every_instruction() -> None:
    device = luthier.open_device("emu:gfx906", check=["waits", "race"])
    body = f"{begin('gfx906')}; global_load_dword v10, v1, s[2:3]; v_mov_b32 v11, v10"
    with pytest.warns(CheckWarning):
        device.load(kernel("gfx906", body).data).kernel("k").launch(np.zeros(64, np.uint32), grid=2, block=128)
    assert [finding.check for finding in device.findings] == ["waits"]


def random_body(target: str, randomness: random.Random) -> str:
    """Straight code of loads, LDS, scalar loads, uses and waits."""
    nine, ten = target.startswith("gfx9"), target == "gfx1030"
    scalar = "s_load_dword" if nine or ten else "s_load_b32"
    lds = "ds_read_b32" if nine or ten else "ds_load_b32"
    flat = "flat_load_dword" if nine or ten else "flat_load_b32"
    # Before GFX11 the halves of a register are not told apart on all paths.
    half = load(target) if nine or ten else "global_load_d16{}_b16"

    def register() -> int:
        return randomness.randrange(10, 20)

    def wait() -> str:
        value = randomness.choice([0, 0, 1, 1, 2, 3])
        if target == "gfx1200":
            return f"s_wait_{randomness.choice(['load', 'ds', 'km'])}cnt {value:#x}"
        return f"s_waitcnt {randomness.choice(['vm', 'lgkm'])}cnt({value})"

    def one() -> str:
        kind = randomness.choice(
            [
                "load",
                "load",
                "half",
                "lds",
                "lds",
                "scalar",
                "flat",
                "store",
                "use",
                "use",
                "move",
                "wait",
                "scalar use",
            ]
        )
        return {
            "load": lambda: f"{load(target)} v{register()}, v1, s[2:3]",
            "half": lambda: f"{half.format(randomness.choice(['', '_hi']))} v{register()}, v1, s[2:3]",
            "lds": lambda: f"{lds} v{register()}, v1",
            "scalar": lambda: f"{scalar} s{register()}, s[2:3], 0x0",
            "flat": lambda: f"{flat} v{register()}, v[4:5]",
            "store": lambda: f"{store(target)} v1, v{register()}, s[2:3]",
            "use": lambda: f"v_add_f32_e32 v30, v{register()}, v{register()}",
            "move": lambda: f"v_mov_b32 v{register()}, 0",
            "scalar use": lambda: f"s_mov_b32 s{register()}, s{register()}",
            "wait": wait,
        }[kind]()

    return "; ".join([begin(target), *(one() for _ in range(60))])


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(6))
def test_straight_code_is_judged_alike(target: str, seed: int) -> None:
    """Without branches there is one path: both checks find the same first uses, with the same sufficient values."""
    body = random_body(target, random.Random(f"{target} {seed}"))
    static = first_uses(
        (register, found.producer.address, found.counter, found.consumer.address, found.access, found.enough)
        for found in check_waits(lift(kernel(target, body), "k")).findings
        for register in found.registers.names()
    )
    _, findings = launch(target, body)
    dynamic = first_uses(
        (use.register, found.other.offset, use.counter, found.offset, use.access, use.enough)
        for found in findings
        for use in [wait_use(found)]
        if found.other is not None
    )
    assert len(static) > 5
    assert static == dynamic


Uses = dict[tuple[str, int, str], tuple[int, str, int]]


def first_uses(uses: Iterable[tuple[str, int, str, int, str, int]]) -> Uses:
    """By register, operation and counter: the instruction that uses it first, how, and what would be enough."""
    first: Uses = {}
    for register, producer, counter, *use in sorted(uses, key=lambda row: row[3]):
        first.setdefault((register, producer, counter), (use[0], use[1], use[2]))
    return first


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("first", ["", "flat_", "ds_"])
@pytest.mark.parametrize("distance", [0, 1])
def test_a_load_by_what_a_load_gives(target: str, first: str, distance: int) -> None:
    """Into the same registers, which results of the same kind may overwrite, but not be read from there: a list that is
    followed."""
    new = target.startswith(("gfx11", "gfx12"))
    wide = "b64" if new else "dwordx2"
    loads = {
        "": f"global_load_{wide} v[4:5], v[4:5], off",
        "flat_": f"flat_load_{wide} v[4:5], v[4:5]",
        "ds_": f"ds_{'load' if new else 'read'}_b32 v4, v4",
    }
    read = loads["ds_" if first == "ds_" else ""]
    between = "; s_nop 0" * distance
    text = f"{begin(target)}; v_mov_b32 v4, 0; v_mov_b32 v5, 0" if first == "ds_" else begin(target)
    object = kernel(target, f"{text}; {loads[first]}{between}; {read}; s_nop 0")
    # A flat load is on a second counter as well, whose results another load may not even overwrite.
    both = {"reads", "overwrites"} if first == "flat_" else {"reads"}
    if target == "gfx1200" and first != "ds_":  # where loads come back in any order it is told once
        both = {"overwrites"}
    assert {one.access for one in check_waits(lift(object, "k"), unneeded=False).findings} == both
    device = luthier.open_device(f"emu:{target}", check="waits")
    with warnings.catch_warnings(), contextlib.suppress(EmulationError):  # the pattern is no address
        warnings.simplefilter("ignore", CheckWarning)
        device.load(object.data).kernel("k").launch(np.zeros(64, np.uint32), grid=1, block=32)
    assert {wait_use(one).register for one in device.findings} >= {"v4"}
    assert {wait_use(one).access for one in device.findings} == both


def test_what_touches_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FACT_SPANS", 1)
    monkeypatch.setattr(waits, "_known_facts", lambda isa: BoundedCache(1))  # what other tests have left there
    with pytest.raises(EmulationError, match=r"S_LOAD\w+ uses 3 spans of registers; .* at most 1"):
        launch("gfx942", begin("gfx942"))
