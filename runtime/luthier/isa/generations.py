"""Generations of the instruction set as data: one row each, of what its processors have in common.

Code elsewhere never compares a generation or a processor: it asks a `Target`, which has all these properties, for the
fact it needs. A new generation is a row here, `dataclasses.replace` of the one before, and rows in
`luthier.isa.targets`.

Sources: LLVM AMDGPUUsage ("Processors", "Initial Kernel Execution State", "Kernel Descriptor"), the ISA documents, and
where it is said, LLVM's subtarget features. The tests compare the rows with what LLVM assembles and compiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


class VgprFile(NamedTuple):
    """The vector registers of one SIMD, in registers of 64 lanes; waves of 32 lanes have twice as many.

    Source: LLVM, AMDGPUBaseInfo (``getTotalNumVGPRs``, ``getVGPRAllocGranule``, ``getVGPREncodingGranule``).
    """

    size: int
    """Registers that the waves of a SIMD share; AGPRs included where the file is unified."""
    encoding_granule: int
    """Registers a step of GRANULATED_WORKITEM_VGPR_COUNT in the kernel descriptor."""
    allocation_granule: int
    """Registers a step in which the hardware gives them out."""


class LaunchTtmps(NamedTuple):
    """Where a wave finds what it is, in trap temporaries (AMDGPUUsage, "Architected SGPRs"; LLVM's lowering of
    ``llvm.amdgcn.workgroup.id.*`` and ``llvm.amdgcn.wave.id``)."""

    workgroup_id_x: int
    """Number of the trap temporary with the work-group's x."""
    workgroup_id_yz: int
    """Number of the one with y in its lower half and z in its upper half."""
    wave_id: int
    """Number of the one with the wave's number in its work-group."""
    wave_id_shift: int
    """The lowest of that number's five bits."""
    cluster: int | None = None
    """Number of the one with the work-group's place in its cluster, where there are clusters."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Generation:
    """What processors of a generation have in common, and what `Target` adds to for one processor.

    Rows are compared by identity.
    """

    generation: str
    """How LLVM calls it, e.g. ``GFX90A``."""
    major: int
    """First part of the processors' version. For what is declared by generation (emulated operations) and for who
    prints it; elsewhere a property says what is meant."""

    # LLVM
    opcode_suffixes: tuple[str, ...]
    """How LLVM's names of opcodes may end that its processors have, as in ``V_ADD_F32_e32_gfx11``: beginnings of what
    follows the last underline."""
    widest: str
    """The processor that knows most opcodes of all with the same `opcode_suffixes`."""
    decoder_features: tuple[str, ...] = ()
    """Subtarget features without which LLVM's decoder does not take all instructions of the hardware."""

    # Encodings
    s_nop: bytes = bytes.fromhex("000080bf")
    """``s_nop 0``."""
    s_branch: bytes = bytes.fromhex("000082bf")
    """``s_branch`` to what follows; its first two bytes are the signed distance in words."""
    offset_3f_bug: bool = False
    """A branch whose distance is 0x3f words goes wrong (LLVM's feature ``offset-3f-bug``)."""

    # Waves
    wave_sizes: tuple[int, ...]
    """Lanes per wavefront the hardware supports, the compiler's default first."""
    simds_per_cu: int = 2
    """SIMDs of one compute unit. Where there are two, two compute units are one work-group processor."""
    waves_per_simd: int = 16
    """Most waves resident on one SIMD."""

    # Vector registers
    vgpr_file: VgprFile
    """The vector registers of one SIMD."""
    addressable_vgprs: int = 256
    """Vector registers one wave can name in one file (VGPRs, and as many AGPRs where there are any)."""
    named_vgprs: int = 256
    """VGPRs that instructions have numbers for. Where there are more, ``s_set_vgpr_msb`` sets the upper two bits of the
    numbers in each of four operand places, for the instructions that follow (LLVM, AMDGPULowerVGPREncoding)."""
    has_agprs: bool = False
    """A wave has accumulation registers besides (gfx908 and later GFX9)."""
    unified_vgprs: bool = False
    """AGPRs share the VGPR allocation and start at ``accum_offset`` (gfx90a and later GFX9)."""
    tied_vector_alignment: int = 1
    """Alignment, in registers, that VGPR tuples need (2 on gfx90a and later GFX9)."""
    dealloc_vgprs_message: int | None = None
    """Message of s_sendmsg that gives a wave's vector registers back early (GFX11 ISA, "Send Message")."""

    # Scalar registers
    sgpr_limit: int = 106
    """Allocatable SGPRs, without VCC, trap and special registers."""
    special_sgprs: int = 2
    """SGPRs at the end of a wave's that are not for allocation: VCC; on GFX9 also FLAT_SCRATCH and XNACK_MASK."""
    sgpr_encoding_granule: int = 0
    """SGPRs a step of GRANULATED_WAVEFRONT_SGPR_COUNT in the kernel descriptor; 0 where every wave has all."""
    sgpr_allocation_granule: int = 0
    """SGPRs a step in which the hardware gives them out (AMDGPUUsage, GRANULATED_WAVEFRONT_SGPR_COUNT)."""
    sgpr_file: int | None = None
    """SGPRs of one SIMD that its waves share (LLVM, getTotalNumSGPRs); None where every wave has its own."""

    # How a kernel starts
    architected_flat_scratch: bool = False
    """FLAT_SCRATCH is set up by the hardware, not from SGPRs by the kernel."""
    launch_ttmps: LaunchTtmps | None = None
    """Where work-group ids arrive if not in user SGPRs."""
    packed_work_item_ids: bool = False
    """Work-item x, y and z share VGPR0, 10 bits each."""
    lds_by_lane: bool = True
    """M0 and the lane's number alone reach all LDS that a work-group can have (``ds_write_addtid_b32``), anywhere: M0
    holds 64 KiB, and gfx10.1 wants a wait where a branch lies between an access of LDS and one of memory (LLVM,
    fixLdsBranchVmemWARHazard)."""
    kernarg_preload: bool = False
    """The hardware can load the start of the kernel arguments into SGPRs."""
    preload_prologue: int = 256
    """Bytes at the entry of a kernel with preloaded arguments that load them where the firmware does not; other
    firmware starts behind them (AMDGPUUsage, "Preloaded Kernel Arguments")."""
    scratch_per_wave: int
    """Bytes of scratch that a wave can have: the field COMPUTE_TMPRING_SIZE.WAVESIZE (13 bits in KiB, from GFX11 on 15
    and from GFX12 on 18 bits in 256 bytes)."""

    cycle_counter_bits: int = 64
    """Of the counter of shader cycles that a wave can read (GFX11 has no ``s_memtime``, and 20 in HW_REG_SHADER_CYCLES;
    GFX12 has a second register for the rest)."""

    # The register MODE
    ieee_mode: bool = True
    """MODE and descriptor have IEEE and DX10_CLAMP. Without, numbers are clamped as under DX10_CLAMP, and what depends
    on IEEE is gone (RDNA4 ISA, "Mode Register")."""
    mode_switches: range = range(0)
    """Bits of MODE that change what vector instructions mean: GPR_IDX_EN and VSKIP (Vega ISA, "Mode register")."""
    extends_major: bool = False
    """It has instructions that others of its `major` do not have, and some that mean something else there. Emulated
    operations are declared by `major`: those that it does not share are refused (emulator/operations/gfx1250.py)."""
    decodes_all: bool = True
    """LLVM knows every instruction of the hardware. Else those that it does not know are carried along unread where
    their encoding tells how long they are (runtime/native/mc/unused_fields.cpp)."""

    # Memory
    signed_vector_offset: bool = False
    """The 32-bit VGPR that is added to a global address in SGPRs is signed (LLVM, hasSignedGVSOffset)."""
    private_aperture: bool = True
    """Flat addresses of scratch lie in an aperture; else scratch has global addresses (LLVM,
    FeatureGloballyAddressableScratch)."""

    vector_cache_line: int = 128
    """Bytes of a line of the vector cache that is nearest to the lanes (Linux, kfd_crat.c, "TCP L1 Cache per CU"; of
    MI300 AMD's CDNA 3 white paper, "Cache and Memory Architecture")."""
    lds_banks: int = 32
    """Banks of LDS, of four bytes each (ISA documents, "LDS"; AMD's Composable Kernel, "LDS bank conflicts")."""
    lds_reads_128_mixed: bool = False
    """A 128-bit read of LDS takes lanes 0 to 3 with 20 to 23, 4 to 7 with 16 to 19, 8 to 11 with 28 to 31, and 12 to 15
    with 24 to 27; so do lanes 32 to 63 (Composable Kernel, "LDS bank conflicts", for CDNA)."""

    buffer_swizzle: int | None = 1 << 31
    """Bits of a buffer descriptor's second word by which addresses are swizzled (ISA documents, "Buffer Resource
    Descriptor"); None where no document says, so that bits 31:26 of its fourth word must be 0 for addresses to be
    known."""
    buffer_base_bits: int = 48
    """Bits of the address that a buffer descriptor begins with. Behind 48 follows the stride; 57 are followed by 45 of
    the size, and the stride's 14 are bits 25:12 of the fourth word (LLVM, lowerPointerAsRsrcIntrin)."""
    buffer_stride_scale: bool = False
    """A buffer descriptor's stride is scaled by bits 18 and 19 of its fourth word (RDNA4 ISA, "Buffer Resource
    Descriptor")."""

    # Vector instructions
    dpp_controls: frozenset[int]
    """Values of DPP_CTRL that the ISA document defines."""
    cmpx_writes_mask: bool = False
    """v_cmpx_* write an SGPR mask besides EXEC."""
    clears_high_half: bool = False
    """A 16-bit result of most vector operations sets the other half of its register to 0; later it is kept."""

    moves_twice: bool = False
    """Waves of 32 lanes can move to two VGPRs at once (GFX11 ISA, "Dual Issue VALU")."""

    # Memory instructions
    sized_memory_names: bool = True
    """Memory instructions are called by bits, ``global_load_b32``, not ``global_load_dword``."""
    returning_atomic: str = "glc"
    """The modifier with which an atomic gives back what was in memory."""
    wait_for_loads: str = "s_waitcnt vmcnt(0)"
    """Waits until all that loads and returning atomics give has arrived."""
    wait_for_every_load: tuple[str, ...] = ("s_waitcnt vmcnt(0) lgkmcnt(0)",)
    """Waits until nothing that reads memory or LDS, of any kind, will write a register any more."""
    wait_for_lds: str = "s_waitcnt lgkmcnt(0)"
    """Waits until all that LDS gives has arrived."""
    wait_for_everything: tuple[str, ...] = ("s_waitcnt 0",)
    """Waits until every memory instruction is done."""
    device_scope: str = ""
    """The modifier of an atomic that others on the device see, where it has one."""

    # Scalar instructions
    adds_64_bits: bool = False
    """There is ``s_add_nc_u64``, which leaves SCC alone."""
    getpc_clears_high: bool = False
    """s_getpc_b64 gives the upper 16 bits of its 64 as 0, not as copies of the bit below (RDNA4 ISA, "S_GETPC_B64")."""

    # What the hardware does not interlock
    replay_wait: str | None = None
    """Waits until memory instructions no longer need the registers that they took addresses and data from: they may be
    started anew after a page fault (LLVM, SIInsertWaitcnts, XCNT)."""
    waits_free_sgprs: bool = False
    """A memory instruction may still be reading its SGPRs, or a scalar load writing them, when what follows writes
    them, unless a wait for everything stands between (LLVM, GCNHazardRecognizer, fixVMEMtoScalarWriteHazards and
    fixSMEMtoVectorWriteHazards)."""
    scalar_wait: str | None = None
    """Waits until SGPRs that scalar instructions wrote may be read, where vector instructions had read them before
    (LLVM, AMDGPUWaitSGPRHazards); None where the hardware does."""
    lane_mask_wait: str | None = None
    """Waits until vector instructions have read the SGPRs they take lane masks from; None where the hardware does."""

    @property
    def default_wave_size(self) -> int:
        """Lanes per wavefront the compiler chooses when not told."""
        return self.wave_sizes[0]

    @property
    def architected_sgprs(self) -> bool:
        """Work-group ids arrive in trap temporaries instead of user SGPRs."""
        return self.launch_ttmps is not None

    def is_of(self, names: frozenset[str]) -> bool:
        """Whether it is one of the generations that a format declares something for (see `generations`)."""
        return self.generation in names

    def wave_features(self, wave_size: int) -> tuple[str, ...]:
        """The subtarget features that tell LLVM a wave size; none where there is but one."""
        if len(self.wave_sizes) == 1:
            return ()
        return tuple(f"{'+' if size == wave_size else '-'}wavefrontsize{size}" for size in self.wave_sizes)

    @property
    def flat_scratch_sgprs(self) -> bool:
        """FLAT_SCRATCH is a pair of SGPRs (`registers.FLAT_SCRATCH_SGPR`)."""
        return self.special_sgprs > 2 and not self.architected_flat_scratch

    @property
    def stack_features(self) -> tuple[str, ...]:
        """The subtarget features that make LLVM address private memory by FLAT_SCRATCH, which needs no descriptor in
        SGPRs."""
        return () if self.architected_flat_scratch else ("+enable-flat-scratch",)

    def moves_two(self, wave_size: int) -> bool:
        """Whether one instruction moves to two VGPRs, an even one and an odd one."""
        return self.moves_twice and wave_size == 32

    def vgpr_encoding_granule(self, wave_size: int) -> int:
        """VGPRs per step of GRANULATED_WORKITEM_VGPR_COUNT in the kernel descriptor."""
        return self.vgpr_file.encoding_granule * 64 // wave_size

    def vgpr_allocation_granule(self, wave_size: int) -> int:
        """VGPRs per step in which the hardware really allocates; from gfx1030 on coarser than the encoding."""
        return self.vgpr_file.allocation_granule * 64 // wave_size

    def vgpr_file_size(self, wave_size: int) -> int:
        """VGPRs of one SIMD that its waves share, AGPRs included where the file is unified."""
        return self.vgpr_file.size * 64 // wave_size

    def occupancy(self, vgprs: int, wave_size: int) -> int:
        """Waves that fit on one SIMD when each has `vgprs` (in a unified file: VGPRs and AGPRs together)."""
        granule = self.vgpr_allocation_granule(wave_size)
        allocated = -(-max(vgprs, 1) // granule) * granule
        return min(self.waves_per_simd, self.vgpr_file_size(wave_size) // allocated)

    def scratch_per_lane(self, wave_size: int) -> int:
        """Bytes of scratch that the hardware can give a lane, a multiple of 16."""
        return self.scratch_per_wave // wave_size // 16 * 16


_QUADS = frozenset(range(0x100))
_ROW_SHIFTS = frozenset(kind + amount for kind in (0x100, 0x110, 0x120) for amount in range(1, 16))
_MIRRORS = frozenset((0x140, 0x141))
_WAVE_SHIFTS_AND_BROADCASTS = frozenset((0x130, 0x134, 0x138, 0x13C, 0x142, 0x143))
_ROW_SHARE = frozenset(range(0x150, 0x160))
_ROW_XMASK = frozenset(range(0x160, 0x170))
_EVERY_DPP = _QUADS | _ROW_SHIFTS | _MIRRORS

GFX9 = Generation(
    generation="GFX9",
    major=9,
    opcode_suffixes=("vi", "gfx9", "gfx940"),
    widest="gfx90a",
    wave_sizes=(64,),
    simds_per_cu=4,
    waves_per_simd=10,
    vgpr_file=VgprFile(256, 4, 4),
    sgpr_limit=102,
    special_sgprs=6,
    sgpr_encoding_granule=8,
    sgpr_allocation_granule=16,
    sgpr_file=800,
    scratch_per_wave=1024 * 0x1FFF,
    mode_switches=range(27, 29),
    dpp_controls=_EVERY_DPP | _WAVE_SHIFTS_AND_BROADCASTS,
    cmpx_writes_mask=True,
    clears_high_half=True,
    sized_memory_names=False,
    vector_cache_line=64,
    lds_reads_128_mixed=True,
)
GFX908 = replace(GFX9, generation="GFX908", has_agprs=True)
GFX90A = replace(
    GFX908,
    generation="GFX90A",
    unified_vgprs=True,
    waves_per_simd=8,
    vgpr_file=VgprFile(512, 8, 8),
    tied_vector_alignment=2,
    packed_work_item_ids=True,
    kernarg_preload=True,
    dpp_controls=GFX9.dpp_controls | _ROW_SHARE,  # there it is called row_newbcast
)
GFX940 = replace(
    GFX90A, generation="GFX940", architected_flat_scratch=True, returning_atomic="sc0", vector_cache_line=128
)
GFX10 = Generation(
    wait_for_everything=("s_waitcnt 0", "s_waitcnt_vscnt null, 0x0"),
    generation="GFX10",
    lds_by_lane=False,
    waits_free_sgprs=True,
    major=10,
    opcode_suffixes=("vi", "gfx10"),
    widest="gfx1030",
    offset_3f_bug=True,
    wave_sizes=(32, 64),
    waves_per_simd=20,
    vgpr_file=VgprFile(512, 4, 4),
    scratch_per_wave=GFX9.scratch_per_wave,
    dpp_controls=_EVERY_DPP | _ROW_SHARE | _ROW_XMASK,
    sized_memory_names=False,
)
GFX10_3 = replace(
    GFX10,
    generation="GFX10_3",
    lds_by_lane=True,
    waits_free_sgprs=False,
    offset_3f_bug=False,
    waves_per_simd=16,
    vgpr_file=VgprFile(512, 4, 8),
)
GFX11 = replace(
    GFX10_3,
    buffer_swizzle=3 << 30,
    generation="GFX11",
    major=11,
    opcode_suffixes=("gfx11",),
    widest="gfx1100",
    s_branch=bytes.fromhex("0000a0bf"),
    dealloc_vgprs_message=3,
    cycle_counter_bits=20,
    architected_flat_scratch=True,
    packed_work_item_ids=True,
    moves_twice=True,
    scratch_per_wave=256 * 0x7FFF,
    sized_memory_names=True,
    lane_mask_wait="s_waitcnt_depctr 0x0",
)
GFX12 = replace(
    GFX11,
    wait_for_everything=(
        *("s_wait_loadcnt 0x0", "s_wait_storecnt 0x0", "s_wait_dscnt 0x0", "s_wait_kmcnt 0x0"),
        *("s_wait_samplecnt 0x0", "s_wait_bvhcnt 0x0", "s_wait_expcnt 0x0"),
    ),
    buffer_stride_scale=True,
    generation="GFX12",
    major=12,
    opcode_suffixes=("gfx12",),
    widest="gfx1200",
    # Halves of registers in 16-bit instructions, as on GFX11. Without, LLVM reads them as whole registers or not at
    # all.
    decoder_features=("+real-true16",),
    vgpr_file=VgprFile(768, 4, 12),
    launch_ttmps=LaunchTtmps(workgroup_id_x=9, workgroup_id_yz=7, wave_id=8, wave_id_shift=25),
    scratch_per_wave=256 * 0x3FFFF,
    ieee_mode=False,
    cycle_counter_bits=64,
    returning_atomic="th:TH_ATOMIC_RETURN",
    wait_for_loads="s_wait_loadcnt 0x0",
    wait_for_lds="s_wait_dscnt 0x0",
    wait_for_every_load=(
        "s_wait_loadcnt_dscnt 0x0",
        "s_wait_samplecnt 0x0",
        "s_wait_bvhcnt 0x0",
        "s_wait_kmcnt 0x0",
    ),
    device_scope="scope:SCOPE_DEV",
    adds_64_bits=True,
    getpc_clears_high=True,
    scalar_wait="s_wait_alu depctr_sa_sdst(0)",
    lane_mask_wait="s_wait_alu 0x0",
)

GFX1250 = replace(
    GFX12,
    wait_for_everything=("s_wait_loadcnt 0x0", "s_wait_storecnt 0x0", "s_wait_dscnt 0x0", "s_wait_kmcnt 0x0"),
    buffer_swizzle=None,
    buffer_base_bits=57,
    generation="GFX1250",
    lds_by_lane=False,
    opcode_suffixes=("gfx12", "gfx1250"),
    widest="gfx1250",
    wave_sizes=(32,),
    simds_per_cu=4,
    waves_per_simd=16,
    vgpr_file=VgprFile(512, 8, 8),
    addressable_vgprs=1024,
    tied_vector_alignment=2,
    kernarg_preload=True,
    preload_prologue=0,
    getpc_clears_high=False,
    scalar_wait=None,
    wait_for_every_load=("s_wait_loadcnt_dscnt 0x0", "s_wait_kmcnt 0x0"),
    replay_wait="s_wait_xcnt 0x0",
    extends_major=True,
    launch_ttmps=GFX12.launch_ttmps and GFX12.launch_ttmps._replace(cluster=6),
    signed_vector_offset=True,
    private_aperture=False,
    decodes_all=False,
)
GENERATIONS = (GFX9, GFX908, GFX90A, GFX940, GFX10, GFX10_3, GFX11, GFX12, GFX1250)
"""All generations, in the order in which formats change."""

MAJORS = tuple(sorted({generation.major for generation in GENERATIONS}))
"""What `Generation.major` can be, ascending."""


def generations(since: Generation = GENERATIONS[0], until: Generation = GENERATIONS[-1]) -> frozenset[str]:
    """The names (`Generation.generation`) of the generations from `since` to `until`, both included."""
    first, last = GENERATIONS.index(since), GENERATIONS.index(until)
    return frozenset(generation.generation for generation in GENERATIONS[first : last + 1])
