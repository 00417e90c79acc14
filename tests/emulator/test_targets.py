"""Code that a device runs: its processor's or its generic processor's, with compatible features."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from luthier.devices import open_device
from luthier.errors import ObjectError
from luthier.objects import load_object

SOURCE = """
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
.globl store
.p2align 8
.type store,@function
store:
  s_load_dwordx2 s[2:3], s[{kernarg}:{after}], 0x0
  v_mov_b32 v1, 0
  v_mov_b32 v2, 42
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v2, s[2:3]
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel store
  .amdhsa_next_free_vgpr 4
  .amdhsa_next_free_sgpr 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  {accum}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--{target}
amdhsa.kernels:
  - {{.name: store, .symbol: store.kd, .kernarg_segment_size: 8, .kernarg_segment_align: 8, .wavefront_size: {lanes},
      .group_segment_fixed_size: 0, .private_segment_fixed_size: 0, .sgpr_count: 8, .vgpr_count: 4,
      .max_flat_workgroup_size: 64,
      .args: [{{.name: out, .size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}]}}
...
.end_amdgpu_metadata
"""


def built(folder: Path, target: str) -> Path:
    name, *features = target.split(":")
    text = SOURCE.format(
        target=target,
        kernarg=0,
        after=1,
        accum=".amdhsa_accum_offset 4" if name.startswith(("gfx90a", "gfx94", "gfx9-4")) else "",
        lanes=64 if name.startswith("gfx9") else 32,
    )
    asm, object, linked = (folder / f"{target}.{ending}".replace(":", "_") for ending in ("s", "o", "hsaco"))
    asm.write_text(text)
    settings = ["-mattr=" + ",".join(f"{feature[-1]}{feature[:-1]}" for feature in features)] if features else []
    llvm = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={name}", *settings, "-filetype=obj"]
    subprocess.run([*llvm, "--amdhsa-code-object-version=6", asm, "-o", object], check=True)
    subprocess.run(["ld.lld-22", "-shared", object, "-o", linked], check=True)
    return linked


@pytest.mark.parametrize(
    ("device", "code"),
    [
        ("gfx942", "gfx942"),
        ("gfx942", "gfx942:xnack+"),
        ("gfx942:xnack+", "gfx942:xnack+"),
        ("gfx942:xnack+", "gfx942"),
        ("gfx942", "gfx9-4-generic"),
        ("gfx950", "gfx9-4-generic"),
        ("gfx906:sramecc+", "gfx9-generic"),
        ("gfx1032", "gfx10-3-generic"),
        ("gfx1013", "gfx10-1-generic"),
    ],
)
def test_code_that_a_device_runs(device: str, code: str, tmp_path: Path) -> None:
    emulated = open_device(f"emu:{device}")
    out = emulated.allocate(4)
    emulated.load(built(tmp_path, code)).kernel("store").launch(out, grid=1, block=32)
    assert int.from_bytes(out.read(), "little") == 42


@pytest.mark.parametrize(
    ("device", "code"),
    [
        ("gfx942:xnack-", "gfx942:xnack+"),
        ("gfx942:sramecc+", "gfx9-4-generic:sramecc-"),
        ("gfx90a", "gfx9-4-generic"),
        ("gfx908", "gfx9-generic"),
        ("gfx9-4-generic", "gfx942"),
        ("gfx1030", "gfx10-1-generic"),
    ],
)
def test_code_that_a_device_does_not_run(device: str, code: str, tmp_path: Path) -> None:
    emulated, object = open_device(f"emu:{device}"), built(tmp_path, code)
    with pytest.raises(ObjectError, match=f"no code object for {re.escape(device)}; choose from .*{re.escape(code)}"):
        emulated.load(object)
    with pytest.raises(ObjectError, match=f"code for {re.escape(code)} on a device that is {re.escape(device)}"):
        emulated.load(load_object(object))


def test_the_best_of_a_file_is_loaded(tmp_path: Path) -> None:
    """The order is: code for the device's settings, for its processor, for the generic processor."""
    order = ["gfx942:xnack+", "gfx942", "gfx9-4-generic"]
    objects = [built(tmp_path, code) for code in ("gfx942:xnack-", "gfx1100")]
    emulated = open_device("emu:gfx942:xnack+")
    for first, expected in enumerate(order):
        members = [*(built(tmp_path, code) for code in reversed(order[first:])), *objects]
        assert str(emulated.load(_archive(tmp_path / f"{first}.a", *members)).object.target) == expected
    with pytest.raises(ObjectError, match="several code objects"):
        open_device("emu:gfx942").load(_archive(tmp_path / "two.a", built(tmp_path, "gfx942:xnack+"), objects[0]))


def _archive(path: Path, *members: Path) -> Path:
    subprocess.run(["llvm-ar-22", "rcS", path, *members], check=True)
    return path
