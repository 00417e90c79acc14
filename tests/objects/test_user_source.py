"""The source line of an instruction, and the form of locations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from luthier import lift, load_object
from luthier.lifting.annotations import Annotations, Ran
from luthier.objects.source import SourceFrame
from luthier.objects.user_source import distance, line_text, lines_text, user_frame

SOURCE = """#include <hip/hip_runtime.h>
__device__ inline float twice(float x) { return x * 2.0f; }
extern "C" __global__ void scale(float *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    p[i] = twice(__shfl(p[i], 3)) + sinf(p[i]);
}
"""


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("/home/me/app/kernel.hip", 0),
        ("kernel.hip", 0),
        ("/home/me/app/include/hip/mine.h", 1),
        ("/home/me/hip/src/scale.hip", 0),
        ("/opt/rocm-6.4.1/share/hip/samples/square.cpp", 0),
        ("/opt/rocm-6.4.1/include/rocprim/block/block_scan.hpp", 1),
        ("/home/me/venv/_rocm_sdk_core/include/rocprim/config.hpp", 1),
        ("/usr/include/hip/amd_detail/amd_hip_runtime.h", 2),
        ("/usr/bin/../include/hip/hip_runtime.h", 2),
        ("/usr/lib/llvm-22/lib/clang/22/include/__clang_hip_math.h", 2),
        ("/usr/bin/../lib/gcc/x86_64-linux-gnu/12/../../../../include/c++/12/bits/stl_algobase.h", 2),
        ("<built-in>", 2),
    ],
)
def test_whose_file(file: str, wanted: int) -> None:
    assert distance(file) == wanted


def test_order_of_frames() -> None:
    """Innermost of the user's; a library's before HIP's; one with a line before one without."""
    hip = SourceFrame("f", "/usr/include/hip/amd_detail/amd_hip_runtime.h", 268, 3)
    library = SourceFrame("g", "/opt/rocm/include/rocprim/x.hpp", 7, 1)
    inner, outer = SourceFrame("h", "a.hip", 0, 0), SourceFrame("k", "a.hip", 12, 5)
    assert user_frame([hip, library, inner, outer]) is outer
    assert user_frame([hip, library]) is library
    assert user_frame([hip]) is hip
    assert user_frame([hip, inner]) is inner
    assert (line_text("a.hip", 3), line_text("a.hip", 0)) == ("a.hip:3", "a.hip")
    assert lines_text([("a.h", 1), ("b.hip", 9), ("b.hip", 0), ("b.hip", 4)]) == "b.hip:4-9"
    assert lines_text([]) == ""


def test_a_kernel(compile_object: Callable[..., Path]) -> None:
    """Every instruction is charged to the user's file, though headers' functions are inlined; without -g: offsets."""
    lifted = lift(load_object(compile_object(SOURCE, "gfx90a", "-g", "-O2")), "scale")
    known = [one for one in lifted.instructions if one.block >= 0 and one.source is not None]
    assert any("/hip/" in one.source.file for one in known if one.source)
    files = {one.place.rpartition(":")[0] or one.place for one in known}
    (store,) = (one for one in known if one.is_store)
    assert files == {store.place.removesuffix(":6")}
    assert store.place.endswith(".hip:6")
    counts = Annotations(lifted, {one.address: Ran(1) for one in known}).by_line()
    assert {file for file, _ in counts} == files
    plain = lift(load_object(compile_object(SOURCE, "gfx90a", "-O2")), "scale")
    entry = plain.functions[0].entry
    instruction = next(one for one in plain.instructions if one.is_store)
    assert instruction.place == f"scale+{instruction.address - entry:#x}"
