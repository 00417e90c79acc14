"""The kernel descriptor: its bits against LLVM's header, its meaning against LLVM's assembler and disassembler."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.errors import ObjectError
from luthier.isa.targets import TARGETS, Target, target_named
from luthier.objects import DESCRIPTOR_SIZE, KernelDescriptor, load_object
from luthier.objects.elf import ElfFile
from msgspec.structs import replace

Compile = Callable[..., Path]
Tool = Callable[..., str]

HEADER = Path("/usr/lib/llvm-22/include/llvm/Support/AMDHSAKernelDescriptor.h")
ALL = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)

GENERATIONS = {  # suffix of the macro in LLVM's header -> the generations it speaks of
    "": range(9, 13), "GFX6_GFX9": [9], "GFX6_GFX11": [9, 10, 11], "GFX6_GFX120": range(9, 13),
    "GFX9_PLUS": range(9, 13),
    "GFX10_PLUS": [10, 11, 12], "GFX12_PLUS": [12], "GFX120": [12], "GFX10_GFX11": [10, 11], "GFX11": [11],
    "GFX11_PLUS": [11, 12], "GFX90A": [9], "GFX6_GFX8": [], "GFX125": [], "GFX10": [10], "GFX10_GFX120": [10, 11, 12],
}  # fmt: skip
WORDS = {"COMPUTE_PGM_RSRC1": 48, "COMPUTE_PGM_RSRC2": 52, "COMPUTE_PGM_RSRC3": 44, "KERNEL_CODE_PROPERTY": 56}
WORDS["KERNARG_PRELOAD_SPEC"] = 58


def header_fields(target: Target) -> dict[str, tuple[int, int]]:
    """Name -> (first bit, width) of the packed fields LLVM's header declares for a target."""
    fields = {}
    for macro, name, shift, width in re.findall(r"^  (\w+)\((\w+), (\d+), (\d+)\),", HEADER.read_text(), re.M):
        word = next(word for word in WORDS if macro.startswith(word))
        suffix = macro.removeprefix(word).removeprefix("_")
        if suffix == "GFX125" and name == "NAMED_BAR_CNT" and target.name in ("gfx1250", "gfx1251"):
            suffix = "GFX12_PLUS"
        if "RESERVED" in name or target.major not in GENERATIONS[suffix]:
            continue
        if (suffix == "GFX90A" and not target.unified_vgprs) or (
            name == "ENABLE_WAVEFRONT_SIZE32" and target.major == 9
        ):
            continue
        fields[name.lower()] = (8 * WORDS[word] + int(shift), int(width))
    return fields


@ALL
def test_bits_are_those_of_llvm(target: Target) -> None:
    prefix = {"length": "kernarg_preload_length", "offset": "kernarg_preload_offset"}
    if target.major == 12:
        prefix["inst_pref_size"] = "inst_pref_size_gfx12"
    expected = {prefix.get(name, name): bits for name, bits in header_fields(target).items()}
    for name, (position, width) in expected.items():
        ones = ((1 << width) - 1 << position).to_bytes(DESCRIPTOR_SIZE, "little")
        decoded = KernelDescriptor.decode(ones, target)
        assert decoded == replace(KernelDescriptor(target), **{name: (1 << width) - 1}), name
        assert decoded.encode() == ones
    packed = (1 << 512) - (1 << 8 * 44)
    reserved = KernelDescriptor.decode(b"\xff" * 64, target).reserved
    assert packed & ~reserved == sum((1 << width) - 1 << position for position, width in expected.values())


@ALL
def test_every_64_bytes_round_trip(target: Target) -> None:
    rng = random.Random(target.mach)
    for _ in range(200):
        data = rng.randbytes(DESCRIPTOR_SIZE)
        assert KernelDescriptor.decode(data, target).encode() == data


DIRECTIVES = {  # what llvm-objdump prints -> our field
    "group_segment_fixed_size": "group_segment_fixed_size",
    "private_segment_fixed_size": "private_segment_fixed_size",
    "kernarg_size": "kernarg_size",
    "float_round_mode_32": "float_round_mode_32",
    "float_round_mode_16_64": "float_round_mode_16_64",
    "float_denorm_mode_32": "float_denorm_mode_32",
    "float_denorm_mode_16_64": "float_denorm_mode_16_64",
    "dx10_clamp": "enable_dx10_clamp",
    "ieee_mode": "enable_ieee_mode",
    "fp16_overflow": "fp16_ovfl",
    "tg_split": "tg_split",
    "workgroup_processor_mode": "wgp_mode",
    "memory_ordered": "mem_ordered",
    "forward_progress": "fwd_progress",
    "round_robin_scheduling": "enable_wg_rr_en",
    "enable_private_segment": "enable_private_segment",
    "system_sgpr_private_segment_wavefront_offset": "enable_private_segment",
    "system_sgpr_workgroup_id_x": "enable_sgpr_workgroup_id_x",
    "system_sgpr_workgroup_id_y": "enable_sgpr_workgroup_id_y",
    "system_sgpr_workgroup_id_z": "enable_sgpr_workgroup_id_z",
    "system_sgpr_workgroup_info": "enable_sgpr_workgroup_info",
    "system_vgpr_workitem_id": "enable_vgpr_workitem_id",
    "exception_fp_ieee_invalid_op": "enable_exception_ieee_754_fp_invalid_operation",
    "exception_fp_denorm_src": "enable_exception_fp_denormal_source",
    "exception_fp_ieee_div_zero": "enable_exception_ieee_754_fp_division_by_zero",
    "exception_fp_ieee_overflow": "enable_exception_ieee_754_fp_overflow",
    "exception_fp_ieee_underflow": "enable_exception_ieee_754_fp_underflow",
    "exception_fp_ieee_inexact": "enable_exception_ieee_754_fp_inexact",
    "exception_int_div_zero": "enable_exception_int_divide_by_zero",
    "user_sgpr_private_segment_buffer": "enable_sgpr_private_segment_buffer",
    "user_sgpr_dispatch_ptr": "enable_sgpr_dispatch_ptr",
    "user_sgpr_queue_ptr": "enable_sgpr_queue_ptr",
    "user_sgpr_kernarg_segment_ptr": "enable_sgpr_kernarg_segment_ptr",
    "user_sgpr_dispatch_id": "enable_sgpr_dispatch_id",
    "user_sgpr_flat_scratch_init": "enable_sgpr_flat_scratch_init",
    "user_sgpr_private_segment_size": "enable_sgpr_private_segment_size",
    "user_sgpr_kernarg_preload_length": "kernarg_preload_length",
    "user_sgpr_kernarg_preload_offset": "kernarg_preload_offset",
    "wavefront_size32": "enable_wavefront_size32",
    "uses_dynamic_stack": "uses_dynamic_stack",
}
ZERO_FOR_LLVM = re.compile(  # llvm-objdump refuses descriptors with these set; the loader or the hardware sets them
    "priority|priv$|debug_mode|disable_perf|bulky|cdbg_user|enable_trap_handler|dynamic_vgpr|address_watch|exception_memory"
    "|granulated_lds_size|kernel_code_entry|granulated_wavefront_sgpr|shared_vgpr|inst_pref|trap_on|glg_en|image_op"
)


@pytest.mark.parametrize("name", ["gfx900", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_llvm_disassembles_what_we_encode(name: str, code_object: Compile, tool: Tool, tmp_path: Path) -> None:
    target = target_named(name)
    path = code_object(name)
    kernels = load_object(path).kernels.values()
    rng = random.Random(7)
    data = bytearray(path.read_bytes())
    descriptors = {}
    for kernel in kernels:
        values = {
            name: rng.randrange(1 << width)
            for name, (_, width) in header_fields(target).items()
            if not ZERO_FOR_LLVM.search(name) and name not in ("length", "offset", "user_sgpr_count")
        }
        if not values.get("enable_sgpr_kernarg_segment_ptr") or not target.kernarg_preload:
            preload = {}
        else:
            preload = {"kernarg_preload_length": 2, "kernarg_preload_offset": 1}
        old = kernel.descriptor
        new = replace(
            KernelDescriptor(target), **values, **preload, user_sgpr_count=16, kernarg_size=rng.randrange(1 << 32),
            group_segment_fixed_size=rng.randrange(1 << 32), private_segment_fixed_size=rng.randrange(1 << 32),
            kernel_code_entry_byte_offset=old.kernel_code_entry_byte_offset,
        )  # fmt: skip
        if target.architected_flat_scratch:
            new = replace(new, enable_sgpr_private_segment_buffer=0, enable_sgpr_flat_scratch_init=0)
        at = data.index(old.encode())
        data[at : at + DESCRIPTOR_SIZE] = new.encode()
        descriptors[kernel.symbol] = new
    edited = tmp_path / "edited"
    edited.write_bytes(data)
    text = tool("llvm-objdump-22", "-D", f"--disassemble-symbols={','.join(descriptors)}", edited)
    blocks = re.findall(r"<(\w+\.kd)>:\n(.*?)\.end_amdhsa_kernel", text, re.S)
    assert len(blocks) == 3, text
    for symbol, body in blocks:
        printed = dict(re.findall(r"\.amdhsa_(\w+) (\d+)", body))
        known = {directive: str(getattr(descriptors[symbol], field)) for directive, field in DIRECTIVES.items()}
        assert {key: value for key, value in printed.items() if key in known} == {
            key: value for key, value in known.items() if key in printed
        }
        assert len(printed.keys() & known.keys()) > 25
        assert int(printed["next_free_vgpr"]) == descriptors[symbol].vgprs
        if target.unified_vgprs:
            assert int(printed["accum_offset"]) == (descriptors[symbol].accum_offset + 1) * 4


def assembled(target: Target, kernels: list[str]) -> list[KernelDescriptor]:
    """Return llvm-mc's output for `.amdhsa_kernel` bodies."""
    source = ".rodata\n" + "".join(
        f".amdhsa_kernel k{number}\n{body}\n.end_amdhsa_kernel\n" for number, body in enumerate(kernels)
    )
    command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={target.name}", "-filetype=obj", "-o", "-"]
    done = subprocess.run(command, input=source.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    elf = ElfFile(memoryview(done.stdout), "assembled")
    data = elf.section_view(elf.sections[elf.section_names.index(".rodata")], ".rodata")
    return [KernelDescriptor.decode(data[at : at + 64], target) for at in range(0, len(data), 64)]


@pytest.mark.rows(15)
@ALL
def test_register_counts_are_those_of_llvm(target: Target) -> None:
    counts = [1, 3, 4, 5, 8, 9, 12, 16, 17, 24, 25, 32, 100, 128, 129, 251, 253, 256]
    sgprs = [1, 10, 11, 26, 27, 40, 58, 80, 95, 101, 102]
    accum = ".amdhsa_accum_offset {0}" if target.unified_vgprs else ""
    reserve = ".amdhsa_reserve_vcc 1\n" + (
        "" if target.architected_flat_scratch else ".amdhsa_reserve_flat_scratch 1\n"
    )
    for wave_size in target.wave_sizes:
        wave = "" if target.major == 9 else f".amdhsa_wavefront_size32 {int(wave_size == 32)}\n"
        head = wave + (reserve if target.major == 9 else "")
        bodies = [
            f"{head}.amdhsa_next_free_vgpr {n}\n.amdhsa_next_free_sgpr 1\n{accum.format(max(4, -(-n // 4) * 4))}"
            for n in counts
        ]
        bodies += [f"{head}.amdhsa_next_free_vgpr 1\n.amdhsa_next_free_sgpr {n}\n{accum.format(4)}" for n in sgprs]
        base, *_ = made = assembled(target, bodies)
        assert base.wave_size == wave_size
        for n, expected in zip(counts, made, strict=False):
            grown = base.with_registers(vgprs=n, agprs=0 if target.has_agprs else None)
            assert grown == expected
            assert grown.architected_vgprs >= n
        for n, expected in zip(sgprs, made[len(counts) :], strict=True):
            assert base.with_registers(sgprs=n) == expected
            assert base.with_registers(sgprs=n).sgprs >= n


def test_agprs_keep_their_number_when_vgprs_grow() -> None:
    target = target_named("gfx942")
    (base,) = assembled(target, [".amdhsa_next_free_vgpr 40\n.amdhsa_next_free_sgpr 1\n.amdhsa_accum_offset 24"])
    assert (base.architected_vgprs, base.agprs) == (24, 16)
    grown = base.with_registers(vgprs=33)
    (expected,) = assembled(target, [".amdhsa_next_free_vgpr 52\n.amdhsa_next_free_sgpr 1\n.amdhsa_accum_offset 36"])
    assert grown == expected
    assert (grown.architected_vgprs, grown.agprs) == (36, 20)
    assert base.with_registers(vgprs=3, agprs=2, sgprs=0) == base  # nothing becomes smaller
    assert base.with_registers(agprs=40).agprs == 40


INPUTS = """
#define GLOBAL __attribute__((address_space(1)))
#define CONSTANT __attribute__((address_space(4)))
__attribute__((amdgpu_kernel)) void {name}(int GLOBAL *out, int n) {{
  volatile int stack[16];
  stack[n & 15] = n;
  out[0] = stack[out[0] & 15];
  {body}
}}
"""
USES = {
    "workgroup_id_y": "out[1] = __builtin_amdgcn_workgroup_id_y();",
    "workgroup_id_z": "out[2] = __builtin_amdgcn_workgroup_id_z();",
    "dispatch_ptr": "out[3] = *(int CONSTANT *)__builtin_amdgcn_dispatch_ptr();",
    "queue_ptr": "out[4] = *(int CONSTANT *)__builtin_amdgcn_queue_ptr();",
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["gfx900", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
def test_sgpr_inputs_are_what_the_compiler_reads(name: str, tool: Tool, tmp_path: Path) -> None:
    """The compiler's own register numbers, in the code and in the count, for every mix of inputs."""
    source, path = tmp_path / "inputs.c", tmp_path / "inputs.co"
    mixes = [[use for bit, use in enumerate(USES) if mix >> bit & 1] for mix in range(1 << len(USES))]
    source.write_text(
        "".join(INPUTS.format(name=f"k{i}", body=" ".join(USES[use] for use in mix)) for i, mix in enumerate(mixes))
    )
    command = ["clang-22", "--target=amdgcn-amd-amdhsa", f"-mcpu={name}", "-nogpulib", "-O1", "-mcode-object-version=4"]
    tool(*command, source, "-o", path)
    for index, mix in enumerate(mixes):
        descriptor = load_object(path).kernels[f"k{index}"].descriptor
        inputs = descriptor.sgpr_inputs
        user = sum(count for first, count in inputs.values() if first < descriptor.user_sgpr_count)
        # Some GFX11 processors need 16 inputs set up in all; the compiler then asks for user SGPRs it does not use.
        assert user == descriptor.user_sgpr_count or (descriptor.target.major == 11 and user < 16)
        starts = [first for first, _ in inputs.values()]
        ends = [first + count for first, count in inputs.values()]
        assert all(start in (end, descriptor.user_sgpr_count) for start, end in zip(starts, [0, *ends], strict=False))
        in_sgprs = [use for use in mix if not (descriptor.target.architected_sgprs and use.startswith("workgroup"))]
        assert set(in_sgprs) <= inputs.keys()
        assert "kernarg_segment_ptr" in inputs
        assert ("private_segment_wavefront_offset" in inputs) != descriptor.target.architected_flat_scratch
        text = tool("llvm-objdump-22", "-d", f"--disassemble-symbols=k{index}", path)
        for use in ("kernarg_segment_ptr", *(use for use in in_sgprs if use.endswith("ptr"))):
            first, _ = inputs[use]
            assert re.search(rf", s\[{first}:{first + 1}\], (0x0|null)", text), (use, text)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("gfx942", {"vgprs": 257}),
        ("gfx942", {"agprs": 257}),
        ("gfx900", {"agprs": 1}),
        ("gfx942", {"sgprs": 103}),
        ("gfx1100", {"sgprs": 107}),
    ],
)
def test_too_many_registers(name: str, asked: dict[str, int]) -> None:
    with pytest.raises(ObjectError, match="exceed the limit of") as caught:
        KernelDescriptor(target_named(name)).with_registers(**asked)
    assert caught.value.target == name


def test_values_that_cannot_be_encoded() -> None:
    gfx9, gfx11 = target_named("gfx906"), target_named("gfx1100")
    for bad in (
        KernelDescriptor(gfx9, enable_private_segment=2),
        KernelDescriptor(gfx9, kernarg_size=-1),
        KernelDescriptor(gfx9, wgp_mode=1),
        KernelDescriptor(gfx11, accum_offset=1),
        KernelDescriptor(gfx11, reserved=1),
        KernelDescriptor(gfx11, kernel_code_entry_byte_offset=1 << 63),
    ):
        with pytest.raises(ObjectError):
            bad.encode()
    with pytest.raises(ObjectError, match="64 bytes"):
        KernelDescriptor.decode(bytes(63), gfx9)


def test_negative_entry_offset() -> None:
    descriptor = KernelDescriptor(target_named("gfx942"), kernel_code_entry_byte_offset=-256)
    assert KernelDescriptor.decode(descriptor.encode(), descriptor.target) == descriptor
