"""Generations of the instruction set: facts that processors share, as data, each with an explicit parent.

The generations are a tree (`luthier.arch`). A generation has its changes, and inherits everything else from its parent.
Code elsewhere never compares a generation or a processor. It asks a `luthier.arch.targets.Target`, which has all these
properties, for the fact it needs.

Sources: LLVM AMDGPUUsage ("Processors", "Initial Kernel Execution State", "Kernel Descriptor"), the ISA documents, and,
where noted, LLVM's subtarget features. The tests compare the facts with LLVM's assembler and compiler.
"""

from __future__ import annotations

import re
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
    """Vector registers of one SIMD, counted as registers of 64 lanes; wave32 has twice as many.

    Source: LLVM, AMDGPUBaseInfo (``getTotalNumVGPRs``, ``getVGPRAllocGranule``, ``getVGPREncodingGranule``).
    """

    size: int
    """Registers that the waves of a SIMD share, including AGPRs in a unified file."""
    encoding_granule: int
    """Registers per step of GRANULATED_WORKITEM_VGPR_COUNT in the kernel descriptor."""
    allocation_granule: int
    """Registers per step of the hardware's allocation."""


class LaunchTtmps(NamedTuple):
    """Trap temporaries that identify a wave.

    See AMDGPUUsage, "Architected SGPRs"; LLVM's lowering of ``llvm.amdgcn.workgroup.id.*`` and ``llvm.amdgcn.wave.id``.
    """

    workgroup_id_x: int
    """Number of the trap temporary with the work-group's x."""
    workgroup_id_yz: int
    """Number of the trap temporary with y in its lower half and z in its upper half."""
    wave_id: int
    """Number of the trap temporary with the wave's number in its work-group."""
    wave_id_shift: int
    """Lowest of the five bits of the wave's number."""
    cluster: int | None = None
    """Number of the trap temporary with the work-group's position in its cluster; None: there are no clusters."""


class Passes(NamedTuple):
    """Passes of some matrix instructions (LLVM, SISchedule.td)."""

    names: str
    """Regular expression for prefixes of the opcodes' generic names."""
    passes: int
    """Number of passes. If no document gives it: cycles, one more for sparse instructions."""


class _Inherited:
    """Marker of a fact that a generation does not set."""

    def __repr__(self) -> str:
        return "INHERITED"


INHERITED: Any = _Inherited()


class Generation(Struct, frozen=True, eq=False, kw_only=True, dict=True):
    """Facts that processors of a generation share.

    The root of the tree has the defaults, and need not set every fact. For any other generation, a fact that it neither
    sets nor inherits is an error. Generations are compared by identity.
    """

    parent: Generation | None
    """Generation whose facts it inherits; None for the root."""
    generation: str = INHERITED
    """LLVM's name, e.g. ``GFX90A``."""
    major: int = INHERITED
    """Major version of the processors, only for printing; code uses the property that it means."""

    # LLVM
    opcode_suffixes: tuple[str, ...] = INHERITED
    """Suffixes of LLVM's names of its processors' opcodes, as in ``V_ADD_F32_e32_gfx11``: prefixes of the text after
    the last underscore."""
    widest: str = INHERITED
    """The processor with most opcodes among those with the same `opcode_suffixes`."""
    decoder_features: tuple[str, ...] = INHERITED
    """Subtarget features that LLVM's decoder needs to decode all instructions of the hardware."""

    # Encodings
    s_nop: bytes = INHERITED
    """``s_nop 0``."""
    s_branch: bytes = INHERITED
    """``s_branch`` to the next instruction; its first two bytes are the signed distance in words."""
    offset_3f_bug: bool = INHERITED
    """Whether a branch with a distance of 0x3f words fails (LLVM's feature ``offset-3f-bug``)."""

    # Waves
    wave_sizes: tuple[int, ...] = INHERITED
    """Supported numbers of lanes per wavefront, the compiler's default first."""
    simds_per_cu: int = INHERITED
    """SIMDs of a compute unit. If it is 2, two compute units form a work-group processor."""
    waves_per_simd: int = INHERITED
    """Maximum number of waves resident on one SIMD."""

    # Vector registers
    vgpr_file: VgprFile = INHERITED
    """Vector registers of one SIMD."""
    addressable_vgprs: int = INHERITED
    """Vector registers that a wave can address in one file (VGPRs, and as many AGPRs if there are any)."""
    named_vgprs: int = INHERITED
    """VGPRs that instructions can encode. If there are more, ``s_set_vgpr_msb`` sets the upper two bits of the numbers
    in each of four operand positions for the following instructions (LLVM, AMDGPULowerVGPREncoding)."""
    has_agprs: bool = INHERITED
    """Whether a wave also has accumulation registers (gfx908 and later GFX9)."""
    unified_vgprs: bool = INHERITED
    """Whether AGPRs share the VGPR allocation and start at ``accum_offset`` (gfx90a and later GFX9)."""
    tied_vector_alignment: int = INHERITED
    """Required alignment of VGPR tuples, in registers (2 on gfx90a and later GFX9)."""
    dealloc_vgprs_message: int | None = INHERITED
    """Message of s_sendmsg that releases a wave's vector registers early (GFX11 ISA, "Send Message")."""

    # Scalar registers
    sgpr_limit: int = INHERITED
    """Allocatable SGPRs, without VCC, trap and special registers."""
    special_sgprs: int = INHERITED
    """SGPRs at the end of a wave's SGPRs that are not allocatable: VCC; on GFX9 also FLAT_SCRATCH and XNACK_MASK."""
    sgpr_encoding_granule: int = INHERITED
    """SGPRs per step of GRANULATED_WAVEFRONT_SGPR_COUNT in the kernel descriptor; 0 if every wave has all SGPRs."""
    sgpr_allocation_granule: int = INHERITED
    """SGPRs per step of the hardware's allocation (AMDGPUUsage, GRANULATED_WAVEFRONT_SGPR_COUNT)."""
    sgpr_file: int | None = INHERITED
    """SGPRs that the waves of a SIMD share (LLVM, getTotalNumSGPRs); None if every wave has its own."""

    # Kernel start
    architected_flat_scratch: bool = INHERITED
    """Whether the hardware sets up FLAT_SCRATCH, instead of the kernel from SGPRs."""
    launch_ttmps: LaunchTtmps | None = INHERITED
    """Trap temporaries with the work-group ids; None: the ids are in user SGPRs."""
    packed_work_item_ids: bool = INHERITED
    """Whether work-item x, y and z share VGPR0, with 10 bits each."""
    lds_by_lane: bool = INHERITED
    """Whether M0 and the lane number can address all LDS of a work-group (``ds_write_addtid_b32``) anywhere. M0 reaches
    64 KiB, and gfx10.1 needs a wait if a branch is between an access to LDS and one to memory (LLVM,
    fixLdsBranchVmemWARHazard)."""
    kernarg_preload: bool = INHERITED
    """Whether the hardware can load the start of the kernel arguments into SGPRs."""
    preload_prologue: int = INHERITED
    """Bytes of code at the entry of a kernel with preloaded arguments, which load them if the firmware does not; other
    firmware starts after this code (AMDGPUUsage, "Preloaded Kernel Arguments")."""
    scratch_per_wave: int = INHERITED
    """Maximum bytes of scratch of a wave, from the field COMPUTE_TMPRING_SIZE.WAVESIZE (13 bits in KiB; 15 bits on
    GFX11 and 18 bits on GFX12 and later, in 256 bytes)."""

    cycle_counter_bits: int = INHERITED
    """Bits of the shader cycle counter that a wave can read. GFX11 has no ``s_memtime``, and 20 bits in
    HW_REG_SHADER_CYCLES; GFX12 has the other bits in a second register."""

    # The register MODE
    ieee_mode: bool = INHERITED
    """Whether MODE and the descriptor have IEEE and DX10_CLAMP. If not, numbers are clamped as under DX10_CLAMP, and
    nothing depends on IEEE (RDNA4 ISA, "Mode Register")."""
    mode_switches: range = INHERITED
    """Bits of MODE that change the meaning of vector instructions: GPR_IDX_EN and VSKIP (Vega ISA, "Mode register")."""
    decodes_all: bool = INHERITED
    """Whether LLVM decodes every instruction of the hardware. If not, an unknown instruction is kept undecoded if its
    encoding determines its length (runtime/native/mc/unused_fields.cpp)."""

    # Memory
    lds_bytes: int = INHERITED
    """Maximum bytes of LDS of a work-group."""
    supports_xnack: bool = INHERITED
    """Whether a device can be set to restart memory instructions after a page fault (AMDGPUUsage, "Target ID")."""
    supports_sramecc: bool = INHERITED
    """Whether a device can be set to use ECC for registers and caches."""
    small_loads_clear: bool = INHERITED
    """Whether a load into half a VGPR clears the other half: ECC is always on, without a target feature."""
    signed_vector_offset: bool = INHERITED
    """Whether the 32-bit VGPR offset to a global address in SGPRs is signed (LLVM, hasSignedGVSOffset)."""
    private_aperture: bool = INHERITED
    """Whether flat addresses of scratch are in an aperture; if not, scratch has global addresses (LLVM,
    FeatureGloballyAddressableScratch)."""

    vector_cache_line: int = INHERITED
    """Bytes in a line of the first-level vector cache (Linux, kfd_crat.c, "TCP L1 Cache per CU"; for MI300, AMD's CDNA
    3 white paper, "Cache and Memory Architecture")."""
    vector_store_line: int = INHERITED
    """Bytes in a request by which the vector cache writes to L2 (TCP_TCC_WRITE_REQ of MI100 to MI350, docs/hardware.md;
    for RDNA, of which no record is known, a line)."""
    thread_trace_version: int = INHERITED
    """Version in the header of a thread trace, which gives its format; 0: the hardware writes none (AMD's
    rocprof-trace-decoder)."""
    thread_trace_prefix: int = INHERITED
    """Version in what software writes before a thread trace that has no header; 0: nothing."""
    lds_banks: int = INHERITED
    """Number of LDS banks of four bytes (ISA documents, "LDS"; AMD's Composable Kernel, "LDS bank conflicts")."""
    lds_store_banks: int = INHERITED
    """Number of LDS banks that a write uses."""
    lds_reads_128_mixed: bool = INHERITED
    """Whether a 128-bit read of LDS combines lanes 0 to 3 with 20 to 23, 4 to 7 with 16 to 19, 8 to 11 with 28 to 31,
    and 12 to 15 with 24 to 27; likewise in lanes 32 to 63 (Composable Kernel, "LDS bank conflicts", for CDNA)."""

    buffer_swizzle: int | None = INHERITED
    """Bits of a buffer descriptor's second word that swizzle addresses (ISA documents, "Buffer Resource Descriptor").
    None: no document defines them, and addresses are known only if bits 31:26 of the fourth word are 0."""
    buffer_base_bits: int = INHERITED
    """Bits of the address at the start of a buffer descriptor. If 48, the stride follows; if 57, 45 bits of the size
    follow, and the 14-bit stride is in bits 25:12 of the fourth word (LLVM, lowerPointerAsRsrcIntrin)."""
    buffer_stride_scale: bool = INHERITED
    """Whether bits 18 and 19 of a buffer descriptor's fourth word scale its stride (RDNA4 ISA, "Buffer Resource
    Descriptor")."""

    # Vector instructions
    dpp_controls: frozenset[int] = INHERITED
    """Values of DPP_CTRL that the ISA document defines."""
    cmpx_writes_mask: bool = INHERITED
    """Whether v_cmpx_* write an SGPR mask in addition to EXEC."""
    clears_high_half: bool = INHERITED
    """Whether a 16-bit result of most vector operations clears the other half of its register; if not, it is kept."""

    moves_twice: bool = INHERITED
    """Whether one instruction can move to two VGPRs in wave32 (GFX11 ISA, "Dual Issue VALU")."""

    # Memory instructions
    sized_memory_names: bool = INHERITED
    """Whether names of memory instructions have bits: ``global_load_b32``, not ``global_load_dword``."""
    returning_atomic: str = INHERITED
    """The modifier with which an atomic returns the old value."""
    wait_for_loads: str = INHERITED
    """Wait for the results of all loads and returning atomics."""
    wait_for_every_load: tuple[str, ...] = INHERITED
    """Waits until no outstanding access to memory or LDS can write a register."""
    wait_for_lds: str = INHERITED
    """Wait for all results from LDS."""
    wait_for_everything: tuple[str, ...] = INHERITED
    """Waits for the completion of all memory instructions."""
    device_scope: str = INHERITED
    """The modifier, if any, that makes an atomic visible to the whole device."""
    fine_grained_scope: str = INHERITED
    """The widest scope at which float atomics work on fine-grained memory: "" (none), ``agent`` or ``system``. Source:
    the scopes at which LLVM 22 selects the instruction for ``atomicrmw`` without ``amdgpu.no.fine.grained.memory``."""
    release_fence: tuple[str, ...] = INHERITED
    """Instructions that make a wave's stores visible to the device before its next atomic (AMDGPUUsage, "Memory
    Model", ``fence release`` of the scope ``agent``); empty if it is not known. The last one is a wait."""
    acquire_fence: tuple[str, ...] = INHERITED
    """Instructions after which a wave's loads see what the device saw before its last atomic (likewise)."""

    # Scalar instructions
    adds_64_bits: bool = INHERITED
    """Whether there is ``s_add_nc_u64``, which does not write SCC."""
    getpc_clears_high: bool = INHERITED
    """Whether s_getpc_b64 zero-extends, not sign-extends, the program counter of 48 bits (RDNA4 ISA, "S_GETPC_B64")."""

    # Dependencies that the hardware does not check
    replay_wait: str | None = INHERITED
    """Wait until memory instructions no longer need their address and data registers: they may restart after a page
    fault (LLVM, SIInsertWaitcnts, XCNT)."""
    waits_free_sgprs: bool = INHERITED
    """Whether a memory instruction may still read its SGPRs, or a scalar load write them, when a later instruction
    writes them, unless a wait for everything is between (LLVM, GCNHazardRecognizer, fixVMEMtoScalarWriteHazards and
    fixSMEMtoVectorWriteHazards)."""
    inserted_waits: tuple[str, ...] = INHERITED
    """Assembly before and after inserted code, including the branch around it: memory instructions and branches on both
    sides may form hazards."""
    scalar_wait: str | None = INHERITED
    """Wait until SGPRs that scalar instructions wrote can be read, if vector instructions read them before (LLVM,
    AMDGPUWaitSGPRHazards); None if the hardware waits."""
    lane_mask_wait: str | None = INHERITED
    """Wait until vector instructions have read their lane masks in SGPRs; None if the hardware waits."""

    waits: Waits = INHERITED
    """Counters of asynchronous operations, and the instructions that wait for them."""
    passes: tuple[Passes, ...] = INHERITED
    """Passes of matrix instructions; the first match counts."""
    hazard_rows: tuple[Hazard, ...] = ()
    """Hazards that begin with this generation; `hazards` also has the inherited ones."""
    hazards_ended: tuple[str, ...] = ()
    """Names of the parent's hazards that end here: for generations that the rows (`Hazard.until`) cannot know."""

    # Names and refusals
    operand_anchors: Mapping[str, str] = field(default_factory=dict)
    """New opcodes of this generation -> their operands in order, from the assembly syntax and LLVM's instruction
    definitions; "." is an unnamed position (`luthier.isa.operand_names`)."""
    refused_control: Mapping[str, str] = INHERITED
    """Generic names of opcodes that lifting refuses -> reason: their control flow or meaning depends on state or
    addresses that cannot be followed."""
    launch_intrinsics: Mapping[str, str] = INHERITED
    """LLVM intrinsics for launch inputs that hooks do not have -> the input, in words for hook authors: all "Kernel
    Prolog" inputs (AMDGPUUsage) that a function can request, except those in `luthier.payload.launch_state`."""
    refused_intrinsics: Mapping[str, str | None] = INHERITED
    """LLVM intrinsics, without overload types -> their effect, which is not allowed in hooks; None: allowed. The
    longest matching name counts."""

    # Emulation
    emulated_major: int = INHERITED
    """The generation's number in the emulator's operations: `DeclaredOperation.since`, ``b.major``. A descendant has
    the operations of its ancestors; it has its own number if some of them differ."""
    gates: Gates | None = INHERITED
    """The operations that are refused, if they are not all known to mean the same."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) is not INHERITED:
                continue
            value = getattr(self.parent, name, INHERITED)
            if value is INHERITED and self.parent is not None:
                raise TargetError(f"{self} neither sets nor inherits {name}")
            force_setattr(self, name, value)
        inherited: set[str] = set()
        if self.hazards_ended and self.parent is not None:
            inherited = {row.name for row in self.parent.hazards}
        if missing := [name for name in self.hazards_ended if name not in inherited]:
            raise TargetError(f"{self} ends hazards that it does not inherit: {', '.join(missing)}")

    def __str__(self) -> str:
        return f"generation {self.generation}"

    @cached_property
    def hazards(self) -> tuple[Hazard, ...]:
        """Return all hazards: those that begin with it, and those of its ancestors that have not ended."""
        hazards: list[Hazard] = []
        for ancestor in reversed(self.lineage):
            kept = [
                row
                for row in hazards
                if ancestor.generation not in row.until and row.name not in ancestor.hazards_ended
            ]
            hazards = [*kept, *ancestor.hazard_rows]
        return tuple(hazards)

    @property
    def lineage(self) -> tuple[Generation, ...]:
        """Return this generation and its ancestors, the root last."""
        return (self, *(() if self.parent is None else self.parent.lineage))

    def is_within(self, since: Generation, until: Generation | None = None) -> bool:
        """Return whether it is or descends from `since`, and neither is nor descends from `until`.

        Args:
            until: a descendant of `since`; None: there is no end.
        """
        return since in self.lineage and until not in self.lineage

    @property
    def default_wave_size(self) -> int:
        """Return the compiler's default number of lanes per wavefront."""
        return self.wave_sizes[0]

    @property
    def architected_sgprs(self) -> bool:
        """Return whether work-group ids arrive in trap temporaries instead of user SGPRs."""
        return self.launch_ttmps is not None

    def wave_features(self, wave_size: int) -> tuple[str, ...]:
        """Return the subtarget features for a wave size; none if there is only one."""
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

        This needs no descriptor in SGPRs.
        """
        return () if self.architected_flat_scratch else ("+enable-flat-scratch",)

    def moves_two(self, wave_size: int) -> bool:
        """Return whether one instruction can move to two VGPRs, with an even and an odd number."""
        return self.moves_twice and wave_size == 32

    def vgpr_encoding_granule(self, wave_size: int) -> int:
        """Return the VGPRs per step of GRANULATED_WORKITEM_VGPR_COUNT in the kernel descriptor."""
        return self.vgpr_file.encoding_granule * 64 // wave_size

    def vgpr_allocation_granule(self, wave_size: int) -> int:
        """Return the VGPRs per step of the hardware's allocation; on gfx1030 and later, coarser than the encoding."""
        return self.vgpr_file.allocation_granule * 64 // wave_size

    def vgpr_file_size(self, wave_size: int) -> int:
        """Return the VGPRs that the waves of a SIMD share, including AGPRs in a unified file."""
        return self.vgpr_file.size * 64 // wave_size

    def passes_of(self, pseudo: str) -> int:
        """Return the passes of a matrix instruction by the first matching row of `passes`, 0 for others.

        Args:
            pseudo: generic name of its opcode.
        """
        return next((row.passes for row in self.passes if re.match(row.names, pseudo)), 0)

    def occupancy(self, vgprs: int, wave_size: int) -> int:
        """Return the number of waves with `vgprs` registers that fit on one SIMD.

        In a unified file, `vgprs` is the sum of VGPRs and AGPRs.
        """
        granule = self.vgpr_allocation_granule(wave_size)
        allocated = -(-max(vgprs, 1) // granule) * granule
        return min(self.waves_per_simd, self.vgpr_file_size(wave_size) // allocated)

    def scratch_per_lane(self, wave_size: int) -> int:
        """Return the maximum bytes of scratch per lane, a multiple of 16."""
        return self.scratch_per_wave // wave_size // 16 * 16
