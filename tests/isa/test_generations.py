"""The table of generations, against what LLVM assembles and compiles."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess

import pytest
from effort import of_target
from luthier.arch.targets import generations
from luthier.isa import Isa
from luthier.isa.targets import TARGETS, Target

ALL = pytest.mark.parametrize("target", [of_target(name, target) for name, target in TARGETS.items()], ids=TARGETS)
CONTROLS = {
    "quad_perm:[3,2,1,0]": 0x1B,
    "quad_perm:[3,3,3,3]": 0xFF,
    **{f"row_shl:{amount}": 0x100 + amount for amount in (1, 15)},
    **{f"row_shr:{amount}": 0x110 + amount for amount in (1, 15)},
    **{f"row_ror:{amount}": 0x120 + amount for amount in (1, 15)},
    "wave_shl:1": 0x130,
    "wave_rol:1": 0x134,
    "wave_shr:1": 0x138,
    "wave_ror:1": 0x13C,
    "row_mirror": 0x140,
    "row_half_mirror": 0x141,
    "row_bcast:15": 0x142,
    "row_bcast:31": 0x143,
    **{f"row_{kind}:{lane}": 0x150 + lane for kind in ("newbcast", "share") for lane in (0, 15)},
    **{f"row_xmask:{lane}": 0x160 + lane for lane in (0, 15)},
}
"""How assembly writes DPP controls, and their numbers."""


def assembled(target: Target, text: str, *features: str) -> bytes | None:
    """The bytes of one instruction, None where LLVM refuses it."""
    command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={target.name}", "-show-encoding"]
    done = subprocess.run(
        [*command, f"-mattr={','.join(features)}"] if features else command, input=text, capture_output=True, text=True
    )
    match = re.search(r"encoding: \[([^\]]*)\]", done.stdout)
    if done.returncode or match is None:
        return None
    return bytes(int(byte, 16) for byte in match[1].split(","))


def compiled(target: Target, source: str, language: str = "c") -> str:
    command = [
        "clang-22",
        "--target=amdgcn-amd-amdhsa",
        f"-mcpu={target.name}",
        "-nogpulib",
        "-O1",
        "-S",
        "-x",
        language,
    ]
    return subprocess.run([*command, "-", "-o", "-"], input=source, capture_output=True, text=True, check=True).stdout


def test_there_is_one_object_for_each_target() -> None:
    for target in TARGETS.values():
        assert pickle.loads(pickle.dumps(target)) is target
        assert copy.deepcopy(target) is target


@pytest.mark.rows(9)
@ALL
def test_words(target: Target) -> None:
    assert assembled(target, "s_nop 0") == target.s_nop
    assert assembled(target, "s_branch 0") == target.s_branch
    if target.dealloc_vgprs_message is None:
        assert assembled(target, "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)") is None
    else:
        word = assembled(target, "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)")
        assert word is not None
        assert word[0] == target.dealloc_vgprs_message


@pytest.mark.rows(4)
@ALL
def test_what_payloads_are_written_with(target: Target) -> None:
    for text in (target.wait_for_loads, target.lane_mask_wait):
        assert text is None or assembled(target, text) is not None
    name = "global_atomic_add_u32" if target.sized_memory_names else "global_atomic_add"
    assert assembled(target, f"{name} v1, v1, v2, s[2:3] {target.returning_atomic}") is not None
    for other in {generation.returning_atomic for generation in generations().values()} - {target.returning_atomic}:
        assert assembled(target, f"{name} v1, v1, v2, s[2:3] {other}") is None
    # Older names are other names for the newer instructions: LLVM prints the right one.
    text = compiled(target, "void f(int __attribute__((address_space(1))) * p) { *p = 1; }")
    assert ("global_store_b32" in text) == target.sized_memory_names


@pytest.mark.rows(1)
@ALL
def test_vector_instructions(target: Target) -> None:
    with_mask = assembled(target, "v_cmpx_eq_u32_e64 s[4:5], v1, v2")
    assert (with_mask is not None) == target.cmpx_writes_mask
    for text, control in CONTROLS.items():
        taken = assembled(target, f"v_mov_b32_dpp v1, v2 {text} row_mask:0xf bank_mask:0xf")
        if taken is None:
            # One control may have two names.
            synonyms = [name for name, same in CONTROLS.items() if same == control and name != text]
            assert control not in target.dpp_controls or synonyms, text
            continue
        assert int.from_bytes(taken, "little") >> 40 & 0x1FF == control, text
        assert control in target.dpp_controls, text


@pytest.mark.rows(9)
@ALL
def test_mode(target: Target) -> None:
    """IEEE and DX10_CLAMP can be set in the descriptor; VSKIP and GPR_IDX_EN have instructions."""
    accum = [".amdhsa_accum_offset 4"] if target.unified_vgprs else []
    needed = [".amdhsa_next_free_vgpr 1", ".amdhsa_next_free_sgpr 1", *accum]
    source = "\n".join([".amdhsa_kernel k", *needed, ".amdhsa_ieee_mode 1", ".end_amdhsa_kernel"])
    command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={target.name}", "-filetype=obj", "-o", "-"]
    done = subprocess.run(command, input=source.encode(), capture_output=True)
    assert (done.returncode == 0) == target.ieee_mode
    for text in ("s_setvskip s0, 1", "s_set_gpr_idx_off"):
        assert (assembled(target, text) is not None) == bool(target.mode_switches)


PRELOADING = """define amdgpu_kernel void @k(ptr addrspace(1) inreg %p, i32 inreg %x) {
  store i32 %x, ptr addrspace(1) %p
  ret void
}"""


@ALL
def test_preloading(target: Target) -> None:
    """LLVM pads the code that loads arguments where nothing has preloaded them, if there is any."""
    if target.kernarg_preload:
        text = compiled(target, PRELOADING, "ir")
        padding = re.search(r"s_branch [^\n]*\n\s*\.p2align\s+(\d+)", text)
        assert (1 << int(padding[1]) if padding else 0) == target.preload_prologue


@ALL
def test_features_for_llvm(target: Target) -> None:
    for wave_size in target.wave_sizes:
        assert Isa.of(target.name, wave_size).wave_size == wave_size
        features = target.wave_features(wave_size)
        assert assembled(target, "s_nop 0", *features, *target.decoder_features) == target.s_nop
        wide = assembled(target, "v_cmp_eq_u32 vcc, v0, v1", *features) is not None
        assert wide == (wave_size == 64)


@pytest.mark.rows(8)
@ALL
def test_atomics_and_addresses_are_those_of_the_compiler(target: Target) -> None:
    source = """
    extern __attribute__((visibility("hidden"), address_space(1))) unsigned long long cell;
    void add(void) { __scoped_atomic_fetch_add(&cell, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); }
    """
    text = compiled(target, source)
    assert ("s_sext_i32_i16" in text) == target.getpc_clears_high
    assert (assembled(target, "s_add_nc_u64 s[4:5], s[4:5], 1") is not None) == target.adds_64_bits
    (atomic,) = re.findall(r"global_atomic_add.*", text)
    scope = re.search(r"scope:\w+", atomic)
    assert (scope[0] if scope else "") == target.device_scope
    leading = re.search(r"^add:.*?\n((?:\s*(?:;.*|s_wait.*|%bb.*)\n)*)", text, re.MULTILINE | re.DOTALL)
    assert leading is not None
    for line in target.wait_for_every_load:  # what the compiler waits for in a function it knows no caller of
        counters = re.findall(r"vmcnt|lgkmcnt|loadcnt|dscnt|samplecnt|bvhcnt|kmcnt", line)
        assert counters
        assert all(counter in leading[1] for counter in counters)


@pytest.mark.rows(4)
@ALL
def test_fences_are_those_of_the_compiler(target: Target) -> None:
    """Compare what is between a store and a load; a fence of both orders also waits for other things."""
    source = """
    extern __attribute__((visibility("hidden"), address_space(1))) int data, more;
    void fence(void) { data = 1; __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent"); more = data + 1; }
    """
    text = compiled(target, source)
    between = re.search(r"global_store_[^\n]*\n(.*?)global_load", text, re.DOTALL)
    assert between is not None, text
    if not target.release_fence:
        assert target.launch_ttmps is not None
        assert target.launch_ttmps.cluster is not None
        return
    parts = [line.strip() for line in between[1].splitlines()]
    places = [parts.index(part) for part in (*target.release_fence, *target.acquire_fence)]
    assert places == sorted(places), parts
