"""Unresolved calls by pointers: they reach the kernel's own copies of the functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from luthier import open_device, patch_object
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.patch.payloads.likely_targets import called_in_loops, likely_functions
from luthier.tool import Tool
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan

SOURCE = (Path(__file__).parent / "pointers.hip").read_text()
FUNCTIONS = SOURCE[: SOURCE.index("struct")] + SOURCE[SOURCE.index("typedef") :]
TARGETS = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
IN = {"buffer": "uint32", "count": 64, "fill": "random"}
OUT = {"buffer": "uint32", "count": 64, "fill": "zero"}
KERNELS = ("objects", "table", "exchanged")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
@pytest.mark.parametrize("per_wave", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.rows(1)
def test_what_pointers_lead_to_is_instrumented(
    compile_object, counter: type[Tool], target: str, level: str, kernel: str, per_wave: bool
) -> None:
    object = load_object(compile_object(SOURCE, target, level))
    plan = LaunchPlan(kernel, (1, 1, 1), (64, 1, 1), (OUT, IN))
    verdict = verify_kernel(object, counter(per_wave=per_wave), plan)
    assert verdict.problems == ()
    assert verdict.complete
    if per_wave:
        assert verdict.counters["counter"] == verdict.instructions[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.rows(1)
def test_pointers_are_those_of_the_original(compile_object, counter: type[Tool], target: str, level: str) -> None:
    """Whatever kernel says what they are, whatever kernel is given them."""
    object = load_object(compile_object(SOURCE, target, level))
    patched = patch_object(object, counter(per_wave=True).instrument, strict=True)
    inputs = np.arange(64, dtype=np.uint32) * 7
    results, instructions, counted = [], [], []
    for data in (object.data, patched.data):
        device = open_device(f"emu:{target}", threads=1)
        module = device.load(data)
        pointers, out = np.zeros(3, np.uint64), np.zeros(64, np.uint32)
        module.kernel("told").launch(pointers, grid=(1, 1, 1), block=(1, 1, 1))
        for pointer in pointers[:2]:
            before = int.from_bytes(module.variable("counter").read(), "little") if data is patched.data else 0
            module.kernel("given").launch(out, inputs, pointer, grid=(1, 1, 1), block=(64, 1, 1))
            results.append(out.tolist())
            if data is object.data:
                instructions.append(device.stats.instructions)
            else:
                counted.append(int.from_bytes(module.variable("counter").read(), "little") - before)
    assert results[:2] == results[2:]
    assert results[0] != results[1]
    assert counted == instructions
    symbols = {one.name: one.address for one in object.symbols if one.type == "func"}
    (f0,) = (address for name, address in symbols.items() if "f0" in name)
    (f2,) = (address for name, address in symbols.items() if "f2" in name)
    assert int(pointers[0]) - int(pointers[1]) == f0 - f2


def test_a_patched_kernel_can_be_lifted_again(compile_object, counter: type[Tool]) -> None:
    object = load_object(compile_object(SOURCE, "gfx90a", "-O2"))
    patched = patch_object(object, counter(per_wave=True).instrument, strict=True)
    again = load_object(patched.data)
    for kernel in object.kernels:
        assert len(lift(again, kernel).unknown) >= len(lift(object, kernel).unknown)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
def test_functions_that_are_looked_for_first(compile_object, target: str) -> None:
    """Those in tables that a kernel names, and those that it knows itself; all where there are few."""
    object = load_object(compile_object(SOURCE, target, "-O3"))

    def names(kernel: str) -> set[str]:
        lifted = lift(object, kernel)
        by_entry = {function.entry: function.name for function in lifted.functions}
        return {by_entry[entry] for entry in likely_functions(lifted)}

    assert names("objects") == {"_ZNK6Square4areaEj", "_ZNK5Shape5twiceEj", "_ZNK4Ring4areaEj", "_ZNK4Ring5twiceEj"}
    assert names("table") == names("exchanged") == {"_Z2f0j", "_Z2f1j", "_Z2f2j"}
    assert names("given") == set()
    few = load_object(compile_object(FUNCTIONS, target, "-O3"))
    assert len(likely_functions(lift(few, "given"))) == 3


LOOPS = """
OUT once(uint32_t *out, const uint32_t *in) { out[0] = writable[in[0] & 3](in[1]); }
OUT often(uint32_t *out, const uint32_t *in) {
  for (uint32_t k = 0; k < in[2]; k++) out[k] = writable[in[k + threadIdx.x] & 3](in[k]);
}
__device__ __attribute__((noinline)) uint32_t by_way(uint32_t k) { return writable[k & 3](k); }
OUT deeper(uint32_t *out, const uint32_t *in) {
  for (uint32_t k = 0; k < in[2]; k++) out[k] = by_way(in[k]);
}
"""


@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
def test_calls_in_loops(compile_object, target: str) -> None:
    """That lanes with different pointers take turns makes no loop."""
    object = load_object(compile_object(FUNCTIONS + LOOPS, target, "-O3"))
    calls = {kernel: called_in_loops(lift(object, kernel)) for kernel in ("once", "table", "given", "often", "deeper")}
    assert calls == {"once": False, "table": False, "given": False, "often": True, "deeper": True}
