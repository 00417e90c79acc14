"""Every value of the target table against what LLVM assembles and compiles."""

from __future__ import annotations

import re
import struct
import subprocess

import pytest
from effort import of_target
from luthier.errors import TargetError
from luthier.isa import Isa
from luthier.isa.targets import TARGETS, Target, TargetId, target_named, target_of_mach

ALL = pytest.mark.parametrize("target", [of_target(name, target) for name, target in TARGETS.items()], ids=TARGETS)


def assembles(target: Target, source: str, *features: str) -> bytes | None:
    """The object file, or None where LLVM refuses the source."""
    command = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={target.name}", "-filetype=obj", "-o", "-"]
    if features:
        command.append(f"-mattr={','.join(features)}")
    done = subprocess.run(command, input=source.encode(), capture_output=True)
    return done.stdout if done.returncode == 0 else None


def has_directive(target: Target, directive: str, *features: str) -> bool:
    accum = ".amdhsa_accum_offset 4" if target.unified_vgprs else ""
    source = f""".rodata
        .amdhsa_kernel k
        .amdhsa_next_free_vgpr 1
        .amdhsa_next_free_sgpr 1
        .amdhsa_user_sgpr_kernarg_segment_ptr 1
        {accum}
        {directive}
        .end_amdhsa_kernel
        """
    return assembles(target, source, *features) is not None


def compile_text(target: Target, source: str, *options: str) -> str:
    command = ["clang-22", "--target=amdgcn-amd-amdhsa", f"-mcpu={target.name}", "-nogpulib", "-O1", "-S", "-x", "c"]
    done = subprocess.run([*command, *options, "-", "-o", "-"], input=source, capture_output=True, text=True)
    return done.stdout + done.stderr


@ALL
def test_machine_number(target: Target) -> None:
    data = assembles(target, "")
    assert data is not None
    assert struct.unpack_from("<I", data, 48)[0] & 0xFF == target.mach
    assert target_of_mach(target.mach) is target


@ALL
def test_generation(target: Target) -> None:
    data = assembles(target, '.ascii "generation:"\n.byte .amdgcn.gfx_generation_number')
    assert data is not None
    assert data[data.index(b"generation:") + 11] == target.major


def test_no_machine_number_is_missing() -> None:
    """Every GFX9 to GFX12 machine of LLVM's header is in the table."""
    with open("/usr/lib/llvm-22/include/llvm/BinaryFormat/ELF.h") as header:
        machines = re.findall(r"EF_AMDGPU_MACH_AMDGCN_(GFX(?:9|1[0-2])\w+)\s*=\s*(0x\w+)", header.read())
    named = {name for name, number in machines if int(number, 16) not in {t.mach for t in TARGETS.values()}}
    assert not named


def clang_knows(target: Target, wave_size: int) -> bool:
    """The assembler takes the feature for 64 lanes where there is none; clang does not."""
    options = ["-mwavefrontsize64"] if wave_size == 64 and target.default_wave_size == 32 else []
    return "cannot be specified on this target" not in compile_text(target, "int x;", *options)


@ALL
def test_more_vgprs_than_names(target: Target) -> None:
    """As many as LLVM's feature says, and `s_set_vgpr_msb` where that is more than there are names for."""
    assert (target.addressable_vgprs > target.named_vgprs) == (assembles(target, "s_set_vgpr_msb 0") is not None)
    isa = Isa.of(target.name)
    for number in (255, 256, 1023):
        exists = isa.register_named(f"VGPR{number}").first_unit >= 0
        assert exists == (number < target.addressable_vgprs)


@pytest.mark.rows(3)
@ALL
def test_features(target: Target) -> None:
    assert has_directive(target, "")
    assert target.kernarg_preload == has_directive(target, ".amdhsa_user_sgpr_kernarg_preload_length 1")
    assert target.architected_flat_scratch != has_directive(target, ".amdhsa_user_sgpr_private_segment_buffer 1")
    assert target.unified_vgprs == has_directive(target, "" if target.unified_vgprs else ".amdhsa_accum_offset 4")
    waves = tuple(
        size
        for size, directive, features in (
            (32, ".amdhsa_wavefront_size32 1", ()),
            (64, ".amdhsa_wavefront_size32 0" if target.major > 9 else "", ("+wavefrontsize64",)),
        )
        if has_directive(target, directive, *features) and clang_knows(target, size)
    )
    assert target.wave_sizes == waves
    assert target.default_wave_size == waves[0]


@pytest.mark.rows(4)
@ALL
def test_registers(target: Target) -> None:
    accepted = {
        text: assembles(target, text) is not None
        for text in (
            *(f"s_mov_b32 s{target.sgpr_limit - back}, 0" for back in (1, 0)),
            *(f"v_mov_b32 v{target.named_vgprs - back}, 0" for back in (1, 0)),
            "v_accvgpr_write_b32 a255, v0",
            "global_load_dwordx2 v[1:2], v[3:4], off",
        )
    }
    assert list(accepted.values()) == [True, False, True, False, target.has_agprs, target.tied_vector_alignment == 1]


@pytest.mark.rows(9)
@ALL
def test_target_id_features(target: Target) -> None:
    for feature, supported in (("xnack", target.supports_xnack), ("sramecc", target.supports_sramecc)):
        command = ["clang-22", "--target=amdgcn-amd-amdhsa", f"-mcpu={target.name}:{feature}+", "-nogpulib"]
        done = subprocess.run([*command, "-x", "c", "-c", "/dev/null", "-o", "/dev/null"], capture_output=True)
        assert supported == (done.returncode == 0)


@pytest.mark.rows(3)
@ALL
def test_inputs(target: Target) -> None:
    """How work-group and work-item ids reach a kernel, and how much LDS it may have."""
    text = compile_text(
        target,
        """__attribute__((amdgpu_kernel)) void k(int __attribute__((address_space(1))) * out) {
             out[__builtin_amdgcn_workgroup_id_x()] = __builtin_amdgcn_workitem_id_y();
           }""",
    )
    assert target.architected_sgprs == ("ttmp9" in text)
    assert target.packed_work_item_ids == ("v_bfe_u32" in text)
    for size, fits in ((target.lds_bytes, True), (target.lds_bytes + 4, False)):
        text = compile_text(
            target,
            f"""__attribute__((address_space(3))) static int tile[{size // 4}];
                __attribute__((amdgpu_kernel)) void k(int i) {{ tile[i] = 1; __builtin_amdgcn_s_barrier();
                  *(volatile int __attribute__((address_space(1))) *)0 = tile[i + 1]; }}""",
        )
        assert ("exceeds limit" not in text) == fits, text


@pytest.mark.rows(6)
@ALL
def test_occupancy(target: Target) -> None:
    counts = [1, 24, 25, 32, 36, 40, 48, 49, 64, 72, 84, 85, 96, 97, 112, 120, 121, 128, 129, 168, 169, 192, 255, 256]
    source = "".join(
        f'__attribute__((amdgpu_kernel)) void k{n}(void) {{ asm volatile("" ::: "v{n - 1}"); }}\n' for n in counts
    )
    for wave_size in target.wave_sizes:
        text = compile_text(target, source, *(["-mwavefrontsize64"] if wave_size == 64 and target.major > 9 else []))
        expected = [int(number) for number in re.findall(r"; Occupancy: (\d+)", text)]
        assert [target.occupancy(n, wave_size) for n in counts] == expected


def test_target_ids() -> None:
    parsed = TargetId.parse("gfx942:sramecc+:xnack-")
    assert (parsed.target.name, parsed.sramecc, parsed.xnack) == ("gfx942", True, False)
    assert str(parsed) == "gfx942:sramecc+:xnack-"
    for spelling in (
        "amdgcn-amd-amdhsa--gfx90a",
        "hipv4-amdgcn-amd-amdhsa--gfx90a",
        "amdgcn-amd-amdhsa-unknown-gfx90a",
    ):
        assert TargetId.parse(spelling) == TargetId.parse("gfx90a")
    assert str(TargetId.parse("amdgcn-amd-amdhsa--gfx9-4-generic:xnack+")) == "gfx9-4-generic:xnack+"


def _devices(text: str) -> set[tuple[str, bool, bool]]:
    """Return what a target id stands for, by another way: processors with each feature on or off."""
    name, *features = text.split(":")
    members = {
        "gfx9-4-generic": ("gfx9-4-generic", "gfx942", "gfx950"),
        "gfx9-generic": ("gfx9-generic", "gfx906", "gfx90c"),
    }
    settings = {feature[:-1]: feature[-1] == "+" for feature in features}
    return {
        (member, sramecc, xnack)
        for member in members.get(name, (name,))
        for sramecc in (False, True)
        for xnack in (False, True)
        if settings.get("sramecc", sramecc) == sramecc and settings.get("xnack", xnack) == xnack
    }


IDS = [
    f"{name}{sramecc}{xnack}"
    for name in ("gfx9-4-generic", "gfx942", "gfx950", "gfx90a", "gfx906", "gfx9-generic", "gfx90c", "gfx1100")
    for sramecc in ("", ":sramecc+", ":sramecc-")
    for xnack in ("", ":xnack+", ":xnack-")
    if (not sramecc or TARGETS[name].supports_sramecc) and (not xnack or TARGETS[name].supports_xnack)
]


@pytest.mark.parametrize("text", IDS)
def test_what_covers_and_accepts_what(text: str) -> None:
    this, devices = TargetId.parse(text), _devices(text)
    for other in IDS:
        that, theirs = TargetId.parse(other), _devices(other)
        assert this.covers(that) == (theirs <= devices), other
        # A device is one processor, never all of a generic one's.
        alone = {device for device in devices if device[0] == this.target.name}
        assert this.accepts(that) == bool(alone & theirs), other


def test_generic_processors() -> None:
    """Members are those that LLVM merges into the generic one: it refuses what any of them lacks."""
    for target in TARGETS.values():
        assert target.is_generic == target.name.endswith("-generic")
        if target.generic is None:
            assert target.is_generic or target.name in ("gfx908", "gfx90a", "gfx1250", "gfx1251")
            continue
        generic = TARGETS[target.generic]
        assert generic.is_generic
        assert (generic.major, generic.wave_sizes, generic.s_branch) == (
            target.major,
            target.wave_sizes,
            target.s_branch,
        )
        for wave_size in target.wave_sizes:
            assert generic.vgpr_encoding_granule(wave_size) == target.vgpr_encoding_granule(wave_size)


@pytest.mark.parametrize(
    "text",
    ["", "gfx", "gfx9000", "sm_90", "gfx942:", "gfx942:xnack", "gfx942:xnack+:xnack-", "gfx1100:xnack+", "GFX942"],
)
def test_bad_target_ids(text: str) -> None:
    with pytest.raises(TargetError):
        TargetId.parse(text)


def test_unknown_names_are_told_the_known_ones() -> None:
    with pytest.raises(TargetError, match="gfx942"):
        target_named("gfx1")
    with pytest.raises(TargetError, match="0xfe"):
        target_of_mach(0xFE)
