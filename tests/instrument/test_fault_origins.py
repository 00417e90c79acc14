"""Faults in patched kernels are reported with the original's instruction, its source line, and the code at fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import luthier
import numpy as np
import pytest
from luthier import InstrumentationTask, ToolModule, immediate
from luthier.errors import EmulationError
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.objects.origins import SECTION, decode, encode, origins_of, teller
from luthier.patch import RefusedError, patch_object

TARGETS = ("gfx90a", "gfx1100")
APPLICATION = """
#include <hip/hip_runtime.h>
__device__ inline void put(int *to, int value) {
  *to = value; // PUT
}
__device__ __attribute__((noinline)) void callee(int *to, int value) {
  *to = value + 7; // CALLEE
}
extern "C" __global__ void k(int *to, int how, long far) {
  int own = threadIdx.x * 3;
  if (how == 1)
    put(to + own + far, own); // OUTER
  if (how == 2)
    callee(to + own + far, own);
  if (how == 3)
    __builtin_trap(); // TRAP
  to[threadIdx.x] = own; // LAST
}
"""
HOOKS = """
__device__ uint64_t seen = 0;
__device__ int *nowhere = nullptr;
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&seen, 1); }
LUTHIER_HOOK_ANNOTATE heavy() {
  uint32_t v = __lane_id();
  for (int i = 0; i < 16; ++i) v = v * 2654435761u ^ v >> (i + 1);
  if (v == 12345) atomicAdd((unsigned long long *)&seen, 1ull);
}
LUTHIER_HOOK_ANNOTATE bad() { *nowhere = 1; }
__device__ uint32_t chosen = 0;
LUTHIER_HOOK_ANNOTATE bad_at(uint32_t site) {
  uint32_t v = __lane_id();
#pragma unroll
  for (int i = 0; i < 40; ++i) v = v * (v >> 3) ^ v >> (i % 7 + 1);
  if (site == chosen) *nowhere = v;
}
LUTHIER_HOOK_ANNOTATE bad_and_heavy() {
  uint32_t v = __lane_id();
#pragma unroll
  for (int i = 0; i < 40; ++i) v = v * (v >> 3) ^ v >> (i % 7 + 1);
  if (v != 12345) *nowhere = v;
}
"""


STUCK = """
#include <hip/hip_runtime.h>
extern "C" __global__ void stuck(int *to, int how) {
  volatile int *own = to;
  while (!own[how]) own[1] = 1;
}
"""


def line_of(mark: str) -> str:
    number = next(at for at, line in enumerate(APPLICATION.splitlines(), 1) if line.endswith(f"// {mark}"))
    return f"source.hip:{number}"


def told(object: CodeObject | bytes, target: str, how: int) -> str:
    """What a launch that goes wrong says, without the program's original."""
    module = luthier.open_device(f"emu:{target}", threads=1).load(object)
    out = np.zeros(64, np.uint32)
    with pytest.raises(EmulationError) as failed:
        module.kernel("k").launch(out, np.int32(how), np.int64(1 << 40), grid=(1, 1, 1), block=(64, 1, 1))
    return str(failed.value)


def patched(object: CodeObject, hooks: ToolModule, name: str, *, last: bool = False) -> bytes:
    """With a hook before every instruction, or those of the kernel's last lines."""

    def instrument(task: InstrumentationTask) -> None:
        lines = [int(line_of("LAST").split(":")[1]) + more for more in (0, 1)]
        for instruction in task.select(source=[f":{line}" for line in lines]) if last else task.instructions:
            if not task.lifted.restrictions.get(instruction.index):
                task.insert_hook_before(instruction, hooks.hook(name))

    return patch_object(object, instrument, hoist=False).data


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("hook", ["", "count", "heavy"])
def test_the_programs_own(compile_object: Callable[..., Path], hooks: ToolModule, hook: str, target: str) -> None:
    plain = load_object(compile_object(APPLICATION, target, "-g"))
    object = load_object(patched(plain, hooks, hook)) if hook else plain
    inlined = told(object, target, 1)
    assert f"{line_of('PUT')}:" in inlined
    assert f"inlined at {inlined.partition(', inlined at ')[2].split(':')[0]}" in inlined
    assert f"{line_of('OUTER')}:" in inlined
    called = told(object, target, 2)
    assert f"{line_of('CALLEE')}:" in called
    assert "callee" in called
    assert f"{line_of('TRAP')}:" in told(object, target, 3)
    if hook:
        for text in (inlined, called):
            assert "the program's own, 0x" in text
            assert "hook" not in text


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_without_debug_information(compile_object: Callable[..., Path], hooks: ToolModule, target: str) -> None:
    """Functions and offsets; and the address is that of the original."""
    plain = load_object(compile_object(APPLICATION, target))
    before, after = (told(object, target, 1) for object in (plain, load_object(patched(plain, hooks, "heavy"))))
    place = before.partition(" in k+")[2].split(",")[0]
    assert place
    assert f" in k+{place}" in after
    original = before.rpartition("; at ")[2].split()[0]
    assert f"the program's own, {original} in k+{place}" in after


@pytest.mark.parametrize("target", TARGETS)
def test_a_hook(compile_object: Callable[..., Path], hooks: ToolModule, target: str) -> None:
    plain = load_object(compile_object(APPLICATION, target, "-g"))
    lifted = lift(plain, "k")
    store = max(one.index for one in lifted.instructions if one.is_store and not lifted.blocks[one.block].function)

    def instrument(task: InstrumentationTask) -> None:
        task.insert_hook_before(store, hooks.bad)

    text = told(patch_object(plain, instrument).data, target, 0)
    assert "in hook bad " in text
    assert f"of {hooks.name}, inserted at 0x" in text
    assert f"{line_of('LAST')}:" in text
    assert "null pointer" in text
    assert "the program's own" not in text


@pytest.mark.parametrize("target", TARGETS)
def test_a_hook_that_points_share(compile_object: Callable[..., Path], hooks: ToolModule, target: str) -> None:
    plain = load_object(compile_object(APPLICATION, target, "-g"))
    text = told(patched(plain, hooks, "bad_and_heavy", last=True), target, 0)
    assert "in hook bad_and_heavy " in text
    assert "which several points share" in text


AGAIN = """
__device__ uint64_t again = 0;
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&again, 1); }
LUTHIER_HOOK_ANNOTATE heavy() {
  uint32_t v = __lane_id();
  for (int i = 0; i < 16; ++i) v = v * 2654435761u ^ v >> (i + 1);
  if (v == 12345) atomicAdd((unsigned long long *)&again, 1ull);
}
"""


@pytest.fixture(scope="module")
def again(make_module: Callable[..., ToolModule]) -> ToolModule:
    return make_module(AGAIN, *TARGETS)


@pytest.mark.parametrize(("first", "how"), [("heavy", 2), ("bad", 0), ("bad_and_heavy", 0)])
@pytest.mark.parametrize("target", TARGETS)
def test_patched_twice(
    compile_object: Callable[..., Path],
    hooks: ToolModule,
    again: ToolModule,
    target: str,
    first: str,
    how: int,
) -> None:
    """The same is told as of the object that was patched once."""
    plain = load_object(compile_object(APPLICATION, target, "-g"))
    once = load_object(patched(plain, hooks, first, last=not how))
    twice = load_object(patched(once, again, "heavy"))
    before, after = (told(one, target, how).partition("), ")[2].partition(", wave ")[0] for one in (once, twice))
    assert ("the program's own, " if how else f"in hook {first} ") in before
    assert after == before


@pytest.mark.parametrize("target", TARGETS)
def test_a_hook_in_anothers_hook(
    compile_object: Callable[..., Path], hooks: ToolModule, again: ToolModule, target: str
) -> None:
    """It is told what it was inserted into, and where that was inserted."""
    plain = load_object(compile_object(APPLICATION, target, "-g"))
    once = load_object(patched(plain, again, "heavy", last=True))
    inserted = [int(start) for one in origins_of(once) for start in one.inserted.starts]
    texts = []
    for place in inserted:

        def instrument(task: InstrumentationTask, place: int = place) -> None:
            for instruction in task.instructions:
                if instruction.address == place:
                    task.insert_hook_before(instruction, hooks.bad)

        try:
            texts.append(told(patch_object(once, instrument).data, target, 0))
        except RefusedError:
            continue
    assert texts
    for text in texts:
        assert re.search(r"in hook bad .*, inserted at 0x\w+ in .*heavy.*k\+0x", text)


@pytest.mark.parametrize("target", TARGETS)
def test_which_of_the_points_that_share_a_hook(
    compile_object: Callable[..., Path], hooks: ToolModule, target: str
) -> None:
    """The hook goes wrong at one of them, which a variable tells."""
    plain = load_object(compile_object(APPLICATION, target, "-g"))
    addresses = {}

    def instrument(task: InstrumentationTask) -> None:
        for instruction in task.select(source=f":{line_of('LAST').split(':')[1]}"):
            addresses[instruction.index] = instruction.address
            task.insert_hook_before(instruction, hooks.bad_at, immediate(instruction.index))

    patched = patch_object(plain, instrument)
    (report,) = patched.report.kernels
    assert (report.calls, report.shared) == (len(addresses), 1)
    for site in (min(addresses), max(addresses)):
        module = luthier.open_device(f"emu:{target}", threads=1).load(patched.data)
        module.variable("chosen").write(site)
        with pytest.raises(EmulationError) as failed:
            module.kernel("k").launch(np.zeros(64, np.uint32), np.int32(0), np.int64(0), grid=1, block=64)
        assert f"which several points share, called at {addresses[site]:#x} in k+" in str(failed.value)
        assert f"{line_of('LAST')}:" in str(failed.value)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_that_never_ends(compile_object: Callable[..., Path], hooks: ToolModule, target: str) -> None:
    """Where each wave is, in the original and in its source, also within a hook."""
    plain = load_object(compile_object(STUCK, target, "-g"))
    data = patched(plain, hooks, "heavy")
    device = luthier.open_device(f"emu:{target}", threads=1)
    device.step_limit = 4
    module = device.load(data)
    with pytest.raises(EmulationError) as failed:
        module.kernel("stuck").launch(np.zeros(64, np.uint32), np.int32(0), grid=1, block=128)
    first, *lines = str(failed.value).splitlines()
    assert "does not end" in first
    waves = lines[: len(failed.value.waves)]
    assert 1 < len(waves) < len(lines)
    for wave in waves:
        assert re.search(
            r"EXEC 0x\w+, (the program's own, |in hook heavy .*)0x\w+ in stuck\+0x\w+.*source.hip:\d+", wave
        )


def test_an_original_that_was_patched(compile_object: Callable[..., Path], hooks: ToolModule) -> None:
    """Addresses in it have the same origins, wherever it is loaded, when a kernel of another object continues in it."""
    plain = load_object(compile_object(APPLICATION, "gfx90a"))
    once = load_object(patched(plain, hooks, "heavy"))
    (origins,) = origins_of(once)
    tell, tell_far = teller(once), teller(plain, once, 0x1000, 0x7000_0000)
    places = [*origins.addresses[:40].tolist(), *origins.inserted.starts[:40].tolist(), plain.kernels["k"].entry]
    texts = [tell(place, lambda index: 0) for place in places]
    assert texts == [tell_far(place + 0x7000_0000, lambda index: 0) for place in places]
    assert sum(text.startswith("the program's own, ") for text in texts) >= 40
    assert any(text.startswith("in hook heavy ") for text in texts)


def test_what_is_written_is_read(
    compile_object: Callable[..., Path], hooks: ToolModule, make_module: Callable[..., ToolModule]
) -> None:
    data = patched(load_object(compile_object(APPLICATION, "gfx90a")), hooks, "heavy")
    (origins,) = origins_of(load_object(data))
    assert origins.kernel == "k"
    assert np.all(np.diff(origins.addresses) > 0)
    section = load_object(data).section_data(SECTION)
    assert section == encode(decode(section))
    other = make_module("LUTHIER_HOOK_ANNOTATE other() {}", "gfx90a")
    again = patched(load_object(data), other, "other")  # and patched once more, both are there
    assert [one.kernel for one in origins_of(load_object(again))] == ["k", "k"]


def test_damage_is_as_if_there_were_nothing(compile_object: Callable[..., Path], hooks: ToolModule) -> None:
    data = patched(load_object(compile_object(APPLICATION, "gfx90a")), hooks, "heavy")
    section = load_object(data).section_data(SECTION)
    assert section is not None
    for place in range(0, len(section), 3):
        damaged = section[:place] + bytes([section[place] ^ 0x5A]) + section[place + 1 :]
        assert decode(damaged) == ()  # zlib's checksum
        assert decode(section[:place]) == ()
