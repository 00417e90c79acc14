"""Which bits of ``s_set_vgpr_msb`` go with which operand, against llvm-objdump, which writes the registers beside."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

from luthier.isa import Isa
from luthier.isa.registers import VGPRS
from luthier.lifting import lift
from luthier.objects import load_object

LINES = """v_add_f32 v1, v2, v3
v_fmac_f32 v1, v2, v3
v_fma_f32 v1, v2, v3, v4
v_mov_b32 v1, v2
v_mov_b16 v1.l, v2.h
v_swap_b32 v1, v2
v_cndmask_b32 v1, v2, v3, vcc_lo
v_cmp_lt_f32 vcc_lo, v1, v2
v_readlane_b32 s1, v3, 4
v_writelane_b32 v3, s1, 4
v_fmamk_f32 v1, v2, 0x12345678, v3
v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v4, v5
v_dual_fmac_f32 v2, v6, v8 :: v_dual_add_f32 v5, v7, v9
v_wmma_f32_16x16x32_f16 v[0:7], v[8:15], v[16:23], v[24:31]
global_load_b32 v1, v2, s[2:3]
global_load_b64 v[2:3], v[4:5], off
global_store_b64 v1, v[2:3], s[2:3]
global_atomic_add_u32 v1, v2, v3, s[2:3] th:TH_ATOMIC_RETURN
flat_store_b32 v[2:3], v4
scratch_store_b32 v1, v2, off
ds_load_b64 v[2:3], v1
ds_store_2addr_b32 v1, v2, v3
ds_cmpstore_rtn_b32 v1, v2, v3, v4
buffer_load_b32 v1, v2, s[4:7], null offen
buffer_store_b32 v1, v2, s[4:7], null offen""".splitlines()
TAIL = """
s_endpgm
.Lk_end:
.size k, .Lk_end-k
.rodata
.p2align 6
.amdhsa_kernel k
  .amdhsa_next_free_vgpr 1024
  .amdhsa_next_free_sgpr 16
.end_amdhsa_kernel
"""


def named(text: str) -> set[int]:
    """Numbers of the VGPRs that llvm-objdump names, those it writes beside instead of those in the code."""
    numbers = set()
    for low, beside in re.findall(r"\b(v(?:\d+|\[\d+:\d+\]))(?:\.[lh])?(?: /\*(v(?:\d+|\[\d+:\d+\]))[^*]*\*/)?", text):
        first, last = (
            (re.findall(r"\d+", beside or low) * 2)[:2]
            if ":" not in (beside or low)
            else re.findall(r"\d+", beside or low)
        )
        numbers |= set(range(int(first), int(last) + 1))
    return numbers


def test_registers_are_those_of_objdump(tmp_path: Path) -> None:
    rng = random.Random(7)
    lines = []
    for _ in range(40):
        lines += [f"s_set_vgpr_msb {rng.randrange(256):#x}", rng.choice(LINES)]
    lines += [line for text in LINES for line in (f"s_set_vgpr_msb {rng.randrange(256):#x}", text)]
    source, relocatable, linked = (tmp_path / name for name in ("k.s", "k.o", "k.co"))
    head = '.amdgcn_target "amdgcn-amd-amdhsa--gfx1250"\n.text\n.globl k\n.p2align 8\n.type k,@function\nk:\n'
    source.write_text(head + "\n".join(lines) + TAIL)
    assemble = [
        "llvm-mc-22",
        "-triple=amdgcn-amd-amdhsa",
        "-mcpu=gfx1250",
        "-filetype=obj",
        "-mattr=+real-true16",
        source,
        "-o",
        relocatable,
    ]
    subprocess.run(assemble, check=True)
    subprocess.run(["ld.lld-22", "-shared", relocatable, "-o", linked], check=True)
    listed = subprocess.run(
        ["llvm-objdump-22", "--mattr=+real-true16", "-d", linked], check=True, capture_output=True, text=True
    ).stdout
    texts = {int(at, 16): text for text, at in re.findall(r"^\t(.*?)\s*// ([0-9A-F]{12}):", listed, re.MULTILINE)}
    lifted = lift(load_object(linked), "k")
    isa = Isa.of("gfx1250")
    seen = 0
    for index, address in enumerate(lifted.columns.address):
        registers = [register for register in lifted.columns.registers(index) if register]
        units = {unit - VGPRS.start for register in registers for unit in isa_units(isa, register) if unit in VGPRS}
        assert units == named(texts[address]), texts[address]
        seen += bool(units and max(units) > 255)
    assert seen > 50


def isa_units(isa: Isa, register: int) -> range:
    first = int(isa.register_first_unit[register])
    return range(first, first + int(isa.register_unit_count[register])) if first >= 0 else range(0)
