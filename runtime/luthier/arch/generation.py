"""Generations of the instruction set: what processors have in common, as data, each with an explicit parent.

The generations are a tree (`luthier.arch`). One says what it changes, and inherits all else from its parent. Code
elsewhere never compares a generation or a processor: it asks a `luthier.arch.targets.Target`, which has all these
properties, for the fact it needs.

Sources: LLVM AMDGPUUsage ("Processors", "Initial Kernel Execution State", "Kernel Descriptor"), the ISA documents, and
where it is said, LLVM's subtarget features. The tests compare the facts with what LLVM assembles and compiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import force_setattr

from luthier.arch.gates import Gates
from luthier.arch.hazards import Hazard
from luthier.arch.waits import Waits
from luthier.errors import TargetError


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
    """Trap temporaries that identify a wave.

    See AMDGPUUsage, "Architected SGPRs"; LLVM's lowering of ``llvm.amdgcn.workgroup.id.*`` and ``llvm.amdgcn.wave.id``.
    """

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


class Passes(NamedTuple):
    """The passes that some matrix instructions take (LLVM, SISchedule.td)."""

    names: str
    """Of opcodes, their generic names: a regular expression for how they begin."""
    passes: int
    """Where no document speaks of them, cycles, one more for sparse ones."""


class _Inherited:
    """Stands for what a generation does not say itself."""

    def __repr__(self) -> str:
        return "INHERITED"


INHERITED: Any = _Inherited()


class Generation(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """The facts that processors of a generation have in common.

    The root of the tree says what is alike unless a generation says otherwise, and need not say everything. Of any
    other generation, a fact that it neither sets nor inherits is an error. Generations are compared by identity.
    """

    parent: Generation | None
    """Whose facts it inherits; None: it is the root."""
    generation: str = INHERITED
    """LLVM's name of it, e.g. ``GFX90A``."""
    major: int = INHERITED
    """First part of the processors' version, for who prints it; elsewhere a property says what is meant."""

    # LLVM
    opcode_suffixes: tuple[str, ...] = INHERITED
    """Suffixes of LLVM's names of opcodes that its processors have, as in ``V_ADD_F32_e32_gfx11``: beginnings of what
    follows the last underscore."""
    widest: str = INHERITED
    """The processor that knows most opcodes of all with the same `opcode_suffixes`."""
    decoder_features: tuple[str, ...] = INHERITED
    """Subtarget features without which LLVM's decoder does not take all instructions of the hardware."""

    # Encodings
    s_nop: bytes = INHERITED
    """``s_nop 0``."""
    s_branch: bytes = INHERITED
    """``s_branch`` to what follows; its first two bytes are the signed distance in words."""
    offset_3f_bug: bool = INHERITED
    """A branch whose distance is 0x3f words goes wrong (LLVM's feature ``offset-3f-bug``)."""

    # Waves
    wave_sizes: tuple[int, ...] = INHERITED
    """Lanes per wavefront the hardware supports, the compiler's default first."""
    simds_per_cu: int = INHERITED
    """SIMDs of one compute unit. Where there are two, two compute units are one work-group processor."""
    waves_per_simd: int = INHERITED
    """Most waves resident on one SIMD."""

    # Vector registers
    vgpr_file: VgprFile = INHERITED
    """The vector registers of one SIMD."""
    addressable_vgprs: int = INHERITED
    """Vector registers one wave can name in one file (VGPRs, and as many AGPRs where there are any)."""
    named_vgprs: int = INHERITED
    """VGPRs that instructions have numbers for. Where there are more, ``s_set_vgpr_msb`` sets the upper two bits of the
    numbers in each of four operand places, for the instructions that follow (LLVM, AMDGPULowerVGPREncoding)."""
    has_agprs: bool = INHERITED
    """A wave has accumulation registers besides (gfx908 and later GFX9)."""
    unified_vgprs: bool = INHERITED
    """AGPRs share the VGPR allocation and start at ``accum_offset`` (gfx90a and later GFX9)."""
    tied_vector_alignment: int = INHERITED
    """Alignment, in registers, that VGPR tuples need (2 on gfx90a and later GFX9)."""
    dealloc_vgprs_message: int | None = INHERITED
    """Message of s_sendmsg that gives a wave's vector registers back early (GFX11 ISA, "Send Message")."""

    # Scalar registers
    sgpr_limit: int = INHERITED
    """Allocatable SGPRs, without VCC, trap and special registers."""
    special_sgprs: int = INHERITED
    """SGPRs at the end of a wave's that are not for allocation: VCC; on GFX9 also FLAT_SCRATCH and XNACK_MASK."""
    sgpr_encoding_granule: int = INHERITED
    """SGPRs a step of GRANULATED_WAVEFRONT_SGPR_COUNT in the kernel descriptor; 0 where every wave has all."""
    sgpr_allocation_granule: int = INHERITED
    """SGPRs a step in which the hardware gives them out (AMDGPUUsage, GRANULATED_WAVEFRONT_SGPR_COUNT)."""
    sgpr_file: int | None = INHERITED
    """SGPRs of one SIMD that its waves share (LLVM, getTotalNumSGPRs); None where every wave has its own."""

    # How a kernel starts
    architected_flat_scratch: bool = INHERITED
    """FLAT_SCRATCH is set up by the hardware, not from SGPRs by the kernel."""
    launch_ttmps: LaunchTtmps | None = INHERITED
    """Trap temporaries in which work-group ids arrive if not in user SGPRs."""
    packed_work_item_ids: bool = INHERITED
    """Work-item x, y and z share VGPR0, 10 bits each."""
    lds_by_lane: bool = INHERITED
    """M0 and the lane's number alone reach all LDS that a work-group can have (``ds_write_addtid_b32``), anywhere: M0
    holds 64 KiB, and gfx10.1 wants a wait where a branch lies between an access of LDS and one of memory (LLVM,
    fixLdsBranchVmemWARHazard)."""
    kernarg_preload: bool = INHERITED
    """The hardware can load the start of the kernel arguments into SGPRs."""
    preload_prologue: int = INHERITED
    """Bytes at the entry of a kernel with preloaded arguments that load them where the firmware does not; other
    firmware starts behind them (AMDGPUUsage, "Preloaded Kernel Arguments")."""
    scratch_per_wave: int = INHERITED
    """Bytes of scratch that a wave can have: the field COMPUTE_TMPRING_SIZE.WAVESIZE (13 bits in KiB, from GFX11 on 15
    and from GFX12 on 18 bits in 256 bytes)."""

    cycle_counter_bits: int = INHERITED
    """Bits of the counter of shader cycles that a wave can read (GFX11 has no ``s_memtime``, and 20 in
    HW_REG_SHADER_CYCLES; GFX12 has a second register for the rest)."""

    # The register MODE
    ieee_mode: bool = INHERITED
    """True if MODE and descriptor have IEEE and DX10_CLAMP. Without, numbers are clamped as under DX10_CLAMP, and
    nothing depends on IEEE (RDNA4 ISA, "Mode Register")."""
    mode_switches: range = INHERITED
    """Bits of MODE that change what vector instructions mean: GPR_IDX_EN and VSKIP (Vega ISA, "Mode register")."""
    decodes_all: bool = INHERITED
    """True if LLVM knows every instruction of the hardware. Unknown ones are otherwise carried along unread where their
    encoding determines their length (runtime/native/mc/unused_fields.cpp)."""

    # Memory
    lds_bytes: int = INHERITED
    """LDS that a work-group can have."""
    supports_xnack: bool = INHERITED
    """Memory instructions may be started anew after a page fault, if the device is set so (AMDGPUUsage, "Target
    ID")."""
    supports_sramecc: bool = INHERITED
    """Registers and caches may have ECC, if the device is set so."""
    small_loads_clear: bool = INHERITED
    """A load into half a VGPR clears the other half: there is always ECC, and no target feature to say so."""
    signed_vector_offset: bool = INHERITED
    """The 32-bit VGPR that is added to a global address in SGPRs is signed (LLVM, hasSignedGVSOffset)."""
    private_aperture: bool = INHERITED
    """Flat addresses of scratch lie in an aperture; else scratch has global addresses (LLVM,
    FeatureGloballyAddressableScratch)."""

    vector_cache_line: int = INHERITED
    """Bytes of a line of the vector cache that is nearest to the lanes (Linux, kfd_crat.c, "TCP L1 Cache per CU"; of
    MI300 AMD's CDNA 3 white paper, "Cache and Memory Architecture")."""
    vector_store_line: int = INHERITED
    """Bytes of a request by which the vector cache writes to L2 (TCP_TCC_WRITE_REQ of MI100 to MI350, docs/hardware.md;
    of RDNA no record is known: a line)."""
    lds_banks: int = INHERITED
    """Banks of LDS, of four bytes each (ISA documents, "LDS"; AMD's Composable Kernel, "LDS bank conflicts")."""
    lds_store_banks: int = INHERITED
    """The same where LDS is written."""
    lds_reads_128_mixed: bool = INHERITED
    """A 128-bit read of LDS takes lanes 0 to 3 with 20 to 23, 4 to 7 with 16 to 19, 8 to 11 with 28 to 31, and 12 to 15
    with 24 to 27; so do lanes 32 to 63 (Composable Kernel, "LDS bank conflicts", for CDNA)."""

    buffer_swizzle: int | None = INHERITED
    """Bits of a buffer descriptor's second word by which addresses are swizzled (ISA documents, "Buffer Resource
    Descriptor"); None where no document says, so that bits 31:26 of its fourth word must be 0 for addresses to be
    known."""
    buffer_base_bits: int = INHERITED
    """Bits of the address that a buffer descriptor begins with. Behind 48 follows the stride; 57 are followed by 45 of
    the size, and the stride's 14 are bits 25:12 of the fourth word (LLVM, lowerPointerAsRsrcIntrin)."""
    buffer_stride_scale: bool = INHERITED
    """A buffer descriptor's stride is scaled by bits 18 and 19 of its fourth word (RDNA4 ISA, "Buffer Resource
    Descriptor")."""

    # Vector instructions
    dpp_controls: frozenset[int] = INHERITED
    """Values of DPP_CTRL that the ISA document defines."""
    cmpx_writes_mask: bool = INHERITED
    """v_cmpx_* write an SGPR mask besides EXEC."""
    clears_high_half: bool = INHERITED
    """A 16-bit result of most vector operations sets the other half of its register to 0; later it is kept."""

    moves_twice: bool = INHERITED
    """Waves of 32 lanes can move to two VGPRs at once (GFX11 ISA, "Dual Issue VALU")."""

    # Memory instructions
    sized_memory_names: bool = INHERITED
    """Memory instructions are called by bits, ``global_load_b32``, not ``global_load_dword``."""
    returning_atomic: str = INHERITED
    """The modifier with which an atomic gives back what was in memory."""
    wait_for_loads: str = INHERITED
    """Waits until all that loads and returning atomics give has arrived."""
    wait_for_every_load: tuple[str, ...] = INHERITED
    """Waits until nothing that reads memory or LDS, of any kind, will write a register any more."""
    wait_for_lds: str = INHERITED
    """Waits until all that LDS gives has arrived."""
    wait_for_everything: tuple[str, ...] = INHERITED
    """Waits until every memory instruction is done."""
    device_scope: str = INHERITED
    """The modifier of an atomic that others on the device see, where it has one."""

    # Scalar instructions
    adds_64_bits: bool = INHERITED
    """There is ``s_add_nc_u64``, which leaves SCC alone."""
    getpc_clears_high: bool = INHERITED
    """s_getpc_b64 gives the upper 16 bits of its 64 as 0, not as copies of the bit below (RDNA4 ISA, "S_GETPC_B64")."""

    # What the hardware does not interlock
    replay_wait: str | None = INHERITED
    """Waits until memory instructions no longer need the registers that they took addresses and data from: they may be
    started anew after a page fault (LLVM, SIInsertWaitcnts, XCNT)."""
    waits_free_sgprs: bool = INHERITED
    """A memory instruction may still be reading its SGPRs, or a scalar load writing them, when what follows writes
    them, unless a wait for everything stands between (LLVM, GCNHazardRecognizer, fixVMEMtoScalarWriteHazards and
    fixSMEMtoVectorWriteHazards)."""
    inserted_waits: tuple[str, ...] = INHERITED
    """Assembly before and behind inserted code, the branch around it included: memory instructions and branches on one
    side may be hazardous to those on the other."""
    scalar_wait: str | None = INHERITED
    """Waits until SGPRs that scalar instructions wrote may be read, where vector instructions had read them before
    (LLVM, AMDGPUWaitSGPRHazards); None where the hardware does."""
    lane_mask_wait: str | None = INHERITED
    """Waits until vector instructions have read the SGPRs they take lane masks from; None where the hardware does."""

    waits: Waits = INHERITED
    """Counters of what runs on behind a wave's back, and what waits for them."""
    passes: tuple[Passes, ...] = INHERITED
    """How long matrix instructions take: the first that fits counts."""
    hazard_rows: tuple[Hazard, ...] = ()
    """Hazards that begin with this generation; with those that it inherits: `hazards`."""
    hazards_ended: tuple[str, ...] = ()
    """Names of hazards that its parent has, and neither it nor its descendants: for generations that the rows
    (`Hazard.until`) cannot know."""

    # Names and refusals
    operand_anchors: Mapping[str, str] = field(default_factory=dict)
    """Opcodes that begin with this generation and whose operands are known, from their assembly syntax and LLVM's
    instruction definitions: their operands in order; "." is a position that is left open (`luthier.isa.operand_names`).
    """
    refused_control: Mapping[str, str] = INHERITED
    """Generic names of opcodes that lifting refuses -> why: their control flow or their meaning depends on state or
    addresses that cannot be followed."""
    launch_intrinsics: Mapping[str, str] = INHERITED
    """Intrinsics of LLVM for what a kernel gets at launch and hooks do not -> what it is to the author of a hook: all
    "Kernel Prolog" inputs (AMDGPUUsage) that a function can ask for but those in `luthier.payload.launch_state`."""
    refused_intrinsics: Mapping[str, str | None] = INHERITED
    """Intrinsics of LLVM, without the types they are overloaded by -> what they do that no hook may; the longest name
    decides, and None allows it."""

    # Emulation
    emulated_major: int = INHERITED
    """The number by which the emulator's operations know the generation: `Operation.since`, ``b.major``. A descendant
    has the operations of its ancestors; it gets a number of its own where some mean something else."""
    gates: Gates | None = INHERITED
    """Which of these operations are refused, where it is not known that all mean the same."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) is not INHERITED:
                continue
            value = getattr(self.parent, name, INHERITED)
            if value is INHERITED and self.parent is not None:
                raise TargetError(f"{self} neither sets nor inherits {name}")
            force_setattr(self, name, value)
        inherited = {row.name for row in self.parent.hazards} if self.parent is not None else set()
        if missing := [name for name in self.hazards_ended if name not in inherited]:
            raise TargetError(f"{self} ends hazards that it does not inherit: {', '.join(missing)}")

    def __str__(self) -> str:
        return f"generation {self.generation}"

    @cached_property
    def hazards(self) -> tuple[Hazard, ...]:
        """All hazards that it has: those that begin with it, and those of its ancestors that have not ended."""
        found: list[Hazard] = []
        for one in reversed(self.lineage):
            kept = [row for row in found if one.generation not in row.until and row.name not in one.hazards_ended]
            found = [*kept, *one.hazard_rows]
        return tuple(found)

    @property
    def lineage(self) -> tuple[Generation, ...]:
        """This generation and its ancestors, the root last."""
        return (self, *(() if self.parent is None else self.parent.lineage))

    def is_within(self, since: Generation, until: Generation | None = None) -> bool:
        """Return whether it has what begins with a generation, and ends with a descendant of that.

        Args:
            until: the first that does not have it any more; None: all descendants have it.
        """
        return since in self.lineage and until not in self.lineage

    @property
    def default_wave_size(self) -> int:
        """Return the lanes per wavefront that the compiler chooses by default."""
        return self.wave_sizes[0]

    @property
    def architected_sgprs(self) -> bool:
        """Return whether work-group ids arrive in trap temporaries instead of user SGPRs."""
        return self.launch_ttmps is not None

    def wave_features(self, wave_size: int) -> tuple[str, ...]:
        """Return the subtarget features that tell LLVM a wave size; none where there is but one."""
        if len(self.wave_sizes) == 1:
            return ()
        return tuple(f"{'+' if size == wave_size else '-'}wavefrontsize{size}" for size in self.wave_sizes)

    @property
    def flat_scratch_sgprs(self) -> bool:
        """Return whether FLAT_SCRATCH is a pair of SGPRs (`registers.FLAT_SCRATCH_SGPR`)."""
        return self.special_sgprs > 2 and not self.architected_flat_scratch

    @property
    def stack_features(self) -> tuple[str, ...]:
        """Return the subtarget features that make LLVM address private memory by FLAT_SCRATCH.

        It needs no descriptor in SGPRs.
        """
        return () if self.architected_flat_scratch else ("+enable-flat-scratch",)

    def moves_two(self, wave_size: int) -> bool:
        """Return whether one instruction moves to two VGPRs, an even one and an odd one."""
        return self.moves_twice and wave_size == 32

    def vgpr_encoding_granule(self, wave_size: int) -> int:
        """Return the VGPRs per step of GRANULATED_WORKITEM_VGPR_COUNT in the kernel descriptor."""
        return self.vgpr_file.encoding_granule * 64 // wave_size

    def vgpr_allocation_granule(self, wave_size: int) -> int:
        """Return the VGPRs per step in which the hardware allocates; from gfx1030 on coarser than the encoding."""
        return self.vgpr_file.allocation_granule * 64 // wave_size

    def vgpr_file_size(self, wave_size: int) -> int:
        """Return the VGPRs of one SIMD that its waves share, AGPRs included where the file is unified."""
        return self.vgpr_file.size * 64 // wave_size

    def occupancy(self, vgprs: int, wave_size: int) -> int:
        """Return how many waves fit on one SIMD when each has `vgprs`.

        In a unified file these are VGPRs and AGPRs together.
        """
        granule = self.vgpr_allocation_granule(wave_size)
        allocated = -(-max(vgprs, 1) // granule) * granule
        return min(self.waves_per_simd, self.vgpr_file_size(wave_size) // allocated)

    def scratch_per_lane(self, wave_size: int) -> int:
        """Return the bytes of scratch that the hardware can give a lane, a multiple of 16."""
        return self.scratch_per_wave // wave_size // 16 * 16
