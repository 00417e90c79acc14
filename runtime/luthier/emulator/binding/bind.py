"""Choice of a variant, and of how a record is filled in, for an instruction unlike those before. See `records`."""

from __future__ import annotations

import itertools
import re

from msgspec import Struct
from msgspec.structs import replace

from luthier.emulator import layout
from luthier.emulator.binding.shapes import MODIFIER, Fill, RegisterPlaces, Step
from luthier.emulator.constants import BFLOAT, HALF, OPEN, SINGLES, inline_offset, own_float
from luthier.emulator.ir.declare import DeclaredOperation, Form, OperandSpec, Unsupported
from luthier.emulator.ir.variant import Dpp, FloatMode, OperandAccess, Variant
from luthier.emulator.operations import begins_with, compiled_for, gates, operations_of
from luthier.emulator.operations.refused import FORMS, WAVE32_ONLY, reason
from luthier.isa import InstructionArray, Isa, Opcode
from luthier.isa.instructions import InstructionFlag, OperandKind

_SUFFIX = re.compile(r"(_e32|_e64|_dpp8|_dpp|_sdwa)+$")
_DPP_FIELDS = ("dpp_ctrl", "row_mask", "bank_mask", "bound_ctrl", "fi", "dpp8")
_DPP8_FETCH_INACTIVE = 0xEA
_HALF_MATRIX = ("v_wmma_f16_", "v_swmmac_f16_")
_REGISTER, _WIDE_LITERAL = int(OperandKind.REGISTER), int(OperandKind.LITERAL64)
_HALVES = {"s_ceil_f16", "s_floor_f16", "s_trunc_f16", "s_rndne_f16", "s_cvt_f32_f16"}
"""Operations on 16-bit floats, beside comparisons, whose inline constants LLVM gives with 32 bits; they have those of
the operand's type (ISA documents, "Inline constants")."""
_OPEN = {"s_cvt_hi_f32_f16", "v_cvt_pk_fp8_f16", "v_cvt_pk_bf8_f16"}
"""Those on parts of a register of which LLVM does so, and nobody else says anything."""
_KEEPS_HIGH = {"v_mad_f16", "v_mad_u16", "v_mad_i16", "v_fma_f16", "v_div_fixup_f16"}
"""Operations of GFX9 whose 16-bit result leaves the other half alone, unlike their legacy forms (ISA documents). LLVM
and Mesa take the same of v_mac_f16, v_madak_f16 and v_madmk_f16, where the documents say that it is cleared."""
_NEVER_SCALED = {"v_dot2_f16_f16", "v_dot2_bf16_bf16"}
"""Operations with one float as a result that OMOD does not apply to (RDNA3's and RDNA4's documents)."""
_ONE_SGPR = {"v_pk_add_f32", "v_pk_mul_f32", "v_pk_fma_f32"}
"""Operations that take the first one of a pair of SGPRs for both elements on GFX1250 (LLVM, SIInstrInfo,
isLegalGFX12PlusPackedMathFP32Operand)."""
_OF_MATRICES = re.compile("v_(wmma|swmmac|mfma|smfmac)_")
_MIXED = ("v_fma_mix", "v_mad_mix")
_OP_SEL, _OP_SEL_HI = 4, 8
"""LLVM's SISrcMods."""
_SELECTIONS = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")


_LDS_OF_M0 = 1 << 16
"""Bytes of LDS that 16 bits of M0 reach."""
_ADDRESSING = {"OFFEN": 1, "IDXEN": 2, "BOTHEN": 3, "ADDR64": 4}
"""Bit 0: the VGPR holds an offset; bit 1: it holds an index (before the offset)."""


def operation_name(opcode: Opcode) -> str:
    """Return the mnemonic without its encoding suffix, under which the operation is declared."""
    return _SUFFIX.sub("", opcode.mnemonic)


class _OperandPlace(Struct, frozen=True):
    """Place of a declared operand in an opcode's operand list."""

    operand: int
    """Index, or -1."""
    modifiers: int
    name: str
    """Its name there; of an implicit operand ``vcc``, ``target``, ``zero`` (an absent immediate) or ``none``."""


class _Plan(Struct, frozen=True):
    """Binding plan that is the same for every instruction of one opcode."""

    operation: DeclaredOperation
    name: str
    results: tuple[_OperandPlace, ...]
    sources: tuple[_OperandPlace, ...]
    packed: bool
    selects_halves: bool
    """Packed, and with op_sel and op_sel_hi; else both halves of each source are where they are."""
    sdwa: dict[str, int]
    """Positions of the SDWA selections of src0 and src1; empty for another encoding."""
    dpp: dict[str, int]
    """Positions of the DPP fields."""
    src0_modifiers: int
    static: tuple[tuple[str, int], ...]
    """Modifier name and operand index."""
    extra: tuple[tuple[str, int], ...]
    """Modifiers that are in the opcode, not in an operand."""
    writes_exec: bool
    results_dropped: bool
    checked: tuple[tuple[str, int], ...]
    """Operands whose values may be refused: name and operand index."""
    banks: tuple[int, ...]
    """By operand: the place of its upper bits in ``s_set_vgpr_msb`` (`Isa.vgpr_places`)."""
    roles: tuple[tuple[int, int], ...]
    """Operand positions that decide the code, each with its role."""


_NOT_INDEXED = ("v_mfma_", "v_smfmac_", "v_swap_", "v_permlane")
"""Vector operations of which documents do not say what VGPR indexing does."""


def _is_relative(plan: _Plan, spec: OperandSpec, place: _OperandPlace, relative: int) -> bool:
    """Return whether VGPR indexing applies to a vector register: to those of vector operations, by M0's four bits.

    Source: ISA documents of GFX9, "VGPR Indexing Details". A source that is the result's register goes with it, and the
    second one of v_madmk is the third.

    Raises:
        Unsupported: it is not documented.
    """
    if not relative or not plan.name.startswith("v_"):
        return False
    if plan.name.startswith(_NOT_INDEXED):
        raise Unsupported(f"{plan.name} in VGPR index mode")
    tied = spec.is_result or any(place.operand == result.operand for result in plan.results)
    sources = {"src0": 0, "src1": 2 if plan.name.startswith(("v_madmk", "v_fmamk")) else 1, "src2": 2}
    bit = 3 if tied else sources.get(spec.name)
    return bit is not None and bool(relative >> bit & 1)


def _role(name: str) -> int:
    """Return the role of operands of an operation that have no more than 32 bits."""
    if name in _OPEN:
        return OPEN
    if name in _HALVES or name.startswith(_HALF_MATRIX) or (name.startswith("s_cmp_") and name.endswith("_f16")):
        return HALF
    return BFLOAT if name.startswith("v_wmma_bf16_") else 32


class Shape(Struct, frozen=True):
    """Code and recipe that instructions share which differ only in register numbers and immediates."""

    variant: Variant
    recipe: tuple[Step, ...]


class Binder:
    """Binds the instructions of one processor and wave size; keeps a plan an opcode."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.target = isa.target.target
        self.wave_size = isa.wave_size
        target = isa.target
        ecc = target.target.supports_sramecc if target.sramecc is None else target.sramecc
        self._clears_halves = ecc or target.target.small_loads_clear
        """Under SRAMECC a 16-bit load writes 0 to the other half; LLVM counts on nothing else unless told it is off."""
        self._plans: dict[int, tuple[_Plan, ...] | Unsupported] = {}
        self._registers = RegisterPlaces(isa)
        self._banked = self.target.addressable_vgprs > self.target.named_vgprs
        """VGPR numbers have upper bits elsewhere (``s_set_vgpr_msb``)."""
        self._has_index_mode = "s_set_gpr_idx_on" in operations_of(self.target.emulated_major)

    def roles(self, code: InstructionArray, index: int) -> tuple[tuple[int, int], ...]:
        """Return the operand positions that determine the code of this instruction's opcode, each with its role.

        Raises:
            Unsupported: there is no operation of that name.
        """
        return tuple(role for plan in self._plans_of(code, index) for role in plan.roles)

    def bind(self, code: InstructionArray, index: int, target: int | None, mode: FloatMode) -> Shape:
        """Return the shape of one instruction.

        Args:
            target: distance in records to the branch target, if it has one.

        Raises:
            Unsupported: there is no operation of that name, or an operand is not modelled.
        """
        plans = self._plans_of(code, index)
        roles = {position: role for plan in plans for position, role in plan.roles}
        operands = [
            (int(kind), own_float(value, roles.get(at, 0)) if kind == OperandKind.IMMEDIATE else value)
            for at, (kind, value) in enumerate(code.operands(index))
        ]
        recipe: list[Step] = []
        variants = [self._variant(plan, operands, recipe, target, mode) for plan in plans]
        if len(recipe) > layout.RECORD_SLOTS:
            raise Unsupported("more operands than a record holds")
        return Shape(variants[0] if len(variants) == 1 else replace(variants[0], second=variants[1]), tuple(recipe))

    def _plans_of(self, code: InstructionArray, index: int) -> tuple[_Plan, ...]:
        number = int(code.opcode[index])
        if number < 0:
            raise Unsupported("undecodable bytes")
        plans = self._plans.get(number)
        if plans is None:
            try:
                plans = self._plan(self.isa.opcode(number), code, index)
            except Unsupported as problem:
                plans = problem
            self._plans[number] = plans
        if isinstance(plans, Unsupported):
            raise plans
        return plans

    # Plans ----------------------------------------------------------------------------------------------------------

    def _plan(self, opcode: Opcode, code: InstructionArray, index: int) -> tuple[_Plan, ...]:
        table = operations_of(self.target.emulated_major)
        if opcode.name.startswith("V_DUAL_"):
            halves = [half.strip().split(" ")[0] for half in self.isa.text(code, index).split("::")]
            return tuple(
                self._one_plan(opcode, table, _SUFFIX.sub("", half).replace("v_dual_", "v_"), suffix)
                for half, suffix in zip(halves, "XY", strict=True)
            )
        return (self._one_plan(opcode, table, operation_name(opcode), ""),)

    def _one_plan(self, opcode: Opcode, table: dict[str, DeclaredOperation], name: str, suffix: str) -> _Plan:
        operation = table.get(name) or table.get(f"{name}_dual")
        if operation is None:
            raise Unsupported(reason(name))
        own = begins_with(operation, self.target)
        if self.target.gates and (why := gates.refused_opcode(self.target.gates, opcode, name, own=own)):
            raise Unsupported(why)
        for (refused, form), why in FORMS.items():
            if name == refused and form in opcode.name:
                raise Unsupported(why)
        if self.wave_size == 64 and name in WAVE32_ONLY:
            raise Unsupported(WAVE32_ONLY[name])
        # What is tied to a result is that register, half and all.
        positions = {
            operand.name: operand.tied_to if operand.tied_to >= 0 else index
            for index, operand in enumerate(opcode.operands)
            if operand.name
        }
        if "_e96_" in opcode.name:  # VOPD in three words: what has no name before a source are its modifiers
            for index, (operand, source) in enumerate(itertools.pairwise(opcode.operands)):
                if not operand.name and source.name.removeprefix("v").startswith("src"):
                    positions[f"{source.name}_modifiers"] = index
        sources = tuple(self._place(spec, positions, suffix) for spec in operation.sources)
        results = tuple(self._place(spec, positions, suffix) for spec in operation.results)
        selects = not positions.keys().isdisjoint(("dpp_ctrl", "dpp8", "src0_sel"))
        by_itself = name.startswith("v_movrel") and "src0_sel" not in positions  # their registers are known late
        if operation.form is Form.WAVE and sources and selects and not by_itself:
            raise Unsupported(f"{name} with lanes or parts of registers selected")
        wanted = ["clamp", "omod", "dst_sel", "dst_unused", *operation.static]
        if "gds" in positions and not name.startswith("ds_gws_"):
            wanted.append("gds")
        static = tuple(
            (key, positions[key]) for key in wanted if key in positions and (not suffix or key in operation.static)
        )
        extra = []
        if "_TFE_" in opcode.name or ("tfe" in positions and "addressing" in operation.static):
            extra.append(("tfe", 1))
        if "_LDS_" in opcode.name and self.target.lds_bytes > _LDS_OF_M0:
            extra.append(("wide_lds", 1))
        if "_M0_" in opcode.name:
            extra.append(("from_m0", 1))
        if self._clears_halves and ("d16" in name or "d16" in positions):
            extra.append(("sramecc", 1))
        if "addressing" in operation.static:
            kind = re.search(r"_(OFFEN|IDXEN|BOTHEN|ADDR64)_", f"{opcode.name}_")
            extra.append(("addressing", _ADDRESSING[kind[1]] if kind else 0))
        if self.target.signed_vector_offset and name.startswith(("global_", "flat_")) and "saddr" in positions:
            extra.append(("signed", 1))
        checked = []
        if self.target.gates:
            known = gates.checked_operands(self.target.gates, name)
            checked = [(key, positions[key]) for key in known if key in positions]
        writes_exec = name.startswith("v_cmpx_")
        return _Plan(
            operation,
            name,
            results,
            sources,
            bool(opcode.flags & InstructionFlag.PACKED),
            "op_sel_hi" in positions,
            {key: positions[f"{key}_sel"] for key in ("src0", "src1") if f"{key}_sel" in positions},
            {key: positions[key] for key in _DPP_FIELDS if key in positions},
            positions.get("src0_modifiers", -1),
            static,
            tuple(extra),
            writes_exec,
            writes_exec and not self.target.cmpx_writes_mask,
            tuple(checked),
            self.isa.vgpr_places(opcode.number) if self._banked else (),
            self._roles(operation, name, (*results, *sources), positions, (*static, *checked)),
        )

    @staticmethod
    def _roles(
        operation: DeclaredOperation,
        name: str,
        places: tuple[_OperandPlace, ...],
        positions: dict[str, int],
        static: tuple[tuple[str, int], ...],
    ) -> tuple[tuple[int, int], ...]:
        roles = {positions[key]: MODIFIER for key in (*_DPP_FIELDS, *_SELECTIONS) if key in positions}
        roles |= {position: MODIFIER for name, position in positions.items() if name.endswith("_modifiers")}
        roles |= {position: MODIFIER for _, position in static}
        for spec, place in zip((*operation.results, *operation.sources), places, strict=True):
            if place.operand >= 0 and not spec.is_immediate:
                roles.setdefault(place.operand, 64 if spec.type.bits == 64 else _role(name))
        return tuple(roles.items())

    def _place(self, spec: OperandSpec, positions: dict[str, int], suffix: str) -> _OperandPlace:
        if spec.type.kind == "scc" or spec.name in ("target", "following", "following_high"):
            return _OperandPlace(-1, -1, "none" if spec.type.kind == "scc" else spec.name)
        if spec.name == "vcc":
            return _OperandPlace(-1, -1, "vcc")
        names = [f"{spec.name}{suffix}", f"v{spec.name}{suffix}"]
        if suffix and spec.name == "imm":
            names.append("imm")
        if spec.name == "old":
            names = ["vdst_in", "vdst"]
        for name in names:
            if name in positions:
                return _OperandPlace(positions[name], positions.get(f"{name}_modifiers", -1), name)
        if spec.is_immediate:
            return _OperandPlace(-1, -1, "zero")
        if spec.type.kind == "mask":
            return _OperandPlace(-1, -1, "vcc")
        if spec.name == "src2" and f"vdst{suffix}" in positions:
            return _OperandPlace(positions[f"vdst{suffix}"], positions.get("src2_modifiers", -1), "src2")
        if spec.name.startswith("src") and not spec.is_result and "simm16" in positions:
            return _OperandPlace(positions["simm16"], -1, "simm16")
        return _OperandPlace(-1, -1, "none")

    # Instructions ---------------------------------------------------------------------------------------------------

    def _variant(
        self,
        plan: _Plan,
        operands: list[tuple[int, int]],
        recipe: list[Step],
        target: int | None,
        mode: FloatMode,
    ) -> Variant:
        operation = plan.operation
        checked = {key: operands[at][1] for key, at in plan.checked if operands[at][0] != _REGISTER}
        if self.target.gates and (why := gates.refused_operands(self.target.gates, plan.name, checked)):
            raise Unsupported(why)
        results = tuple(
            self._access(plan, spec, place, operands, recipe, target, mode.relative)
            for spec, place in zip(operation.results, plan.results, strict=True)
        )
        sources = tuple(
            self._access(plan, spec, place, operands, recipe, target, mode.relative)
            for spec, place in zip(operation.sources, plan.sources, strict=True)
        )
        if mode.fp16_ovfl and plan.name.startswith(_HALF_MATRIX):
            raise Unsupported("sums of 16 bits under MODE.FP16_OVFL are not modelled")
        modifiers = list(plan.extra)
        small = self._small_constants(plan, operands)
        for key, position in plan.static:
            value = operands[position][1]
            if key in small and not value & _OP_SEL_HI:
                value = value & ~_OP_SEL | _OP_SEL_HI
            if value and key == "gds":
                raise Unsupported("the global data share does not exist here")
            if key == "omod" and not self._scales(operation, plan.name, mode):
                continue
            if value or key in ("dst_sel", "dst_unused"):
                modifiers.append((key, value))
        if self.target.gates:
            for key, holds in (
                ("banks", self._banked and plan.name.startswith(("s_setreg", "v_movrel", "v_swaprel"))),
                ("replay_mode", gates.is_replay_mode(plan.name, checked)),
                ("cluster", gates.asks_for_cluster(plan.name, checked)),
                ("scale_offset", gates.scales_offset(checked)),
            ):
                if holds:
                    modifiers.append((key, 1))
        if plan.writes_exec:
            modifiers.append(("writes_exec", 1))
        if self._has_index_mode and any(
            place.operand >= 0 and self._registers.place(operands[place.operand][1]).token == "m"
            for place in plan.results
        ):
            modifiers.append(("chooses_relative", 1))
        if operation.form is Form.CONTROL and target is not None and target <= 0:
            modifiers.append(("backward", 1))
        return Variant(
            plan.name,
            self.wave_size,
            compiled_for(operation, plan.name, self.target),
            results,
            sources,
            tuple(modifiers),
            self._float_mode(operation, plan.name, mode) if operation.uses_float else None,
            self._dpp(plan, operands),
            processor=self.target.name if operation.processors else "",
        )

    @staticmethod
    def _small_constants(plan: _Plan, operands: list[tuple[int, int]]) -> set[str]:
        """Return the modifiers of constants in a product of mixed floats: they have 16 bits, whatever op_sel_hi says.

        Source: LLVM, VOP3PInstructions.td, VOP3P_Mix_Profile.
        """
        if not plan.name.startswith(_MIXED):
            return set()
        constants = (place for place in plan.sources if place.operand >= 0 and operands[place.operand][0] != _REGISTER)
        return {f"{place.name}_modifiers" for place in constants}

    def _scales(self, operation: DeclaredOperation, name: str, mode: FloatMode) -> bool:
        """Return whether OMOD has an effect.

        It does for results that are one float, and up to GFX11 only where MODE has neither IEEE nor denormal results of
        that width (ISA documents, "Output Operand Modifiers").
        """
        result = operation.results[0].type
        if result.kind != "f" or result.count > 1 or operation.form is Form.PACKED or name in _NEVER_SCALED:
            return False
        return not self.target.ieee_mode or not (mode.ieee or mode.denormals(result.bits) & 2)

    def _float_mode(self, operation: DeclaredOperation, name: str, mode: FloatMode) -> FloatMode:
        """Return the part of MODE that the code depends on.

        FP16_OVFL is about numbers of 16 and 8 bits. GFX12 has neither DX10_CLAMP nor IEEE: it clamps as under the
        first, and what depends on the second is gone.
        """
        if operation.denormals_by_mode:
            return FloatMode(denorm32=mode.denorm32, denorm16_64=mode.denorm16_64)
        if not self.target.ieee_mode:
            mode = replace(mode, dx10_clamp=True, ieee=True)
        small = any(part in name for part in ("f16", "fp8", "bf8"))
        half = small or any(spec.type.kind == "f" and spec.type.bits == 16 for spec in operation.results)
        return replace(mode, relative=0, fp16_ovfl=mode.fp16_ovfl and half)

    def _dpp(self, plan: _Plan, operands: list[tuple[int, int]]) -> Dpp | None:
        positions = plan.dpp
        if "dpp8" in positions:
            inactive = operands[positions["fi"]][1] if "fi" in positions else 0
            fetch = inactive in (1, _DPP8_FETCH_INACTIVE)
            # Lanes that are off read as zero; DPP8 never keeps a lane from being written.
            return Dpp(-1, operands[positions["dpp8"]][1], bound_control=True, fetch_inactive=fetch)
        if "dpp_ctrl" not in positions:
            return None
        values = {key: operands[position][1] for key, position in positions.items()}
        if values["dpp_ctrl"] not in self.target.dpp_controls:
            raise Unsupported(f"the reserved DPP control {values['dpp_ctrl']:#x}")
        return Dpp(
            values["dpp_ctrl"],
            0,
            values["row_mask"],
            values["bank_mask"],
            bool(values.get("bound_ctrl", 0)),
            bool(values.get("fi", 0)),
        )

    def _access(
        self,
        plan: _Plan,
        spec: OperandSpec,
        place: _OperandPlace,
        operands: list[tuple[int, int]],
        recipe: list[Step],
        target: int | None,
        relative: int,
    ) -> OperandAccess:
        if place.operand < 0:
            return self._implicit(plan, place, recipe, target)
        kind, value = operands[place.operand]
        if kind == _REGISTER:
            access = self._register_access(spec, place.operand, value, recipe)
        elif spec.is_immediate:
            recipe.append((Fill.SIGNED16 if place.name == "simm16" else Fill.IMMEDIATE, place.operand))
            return OperandAccess("i")
        else:
            access = self._constant(plan, spec, place.operand, operands[place.operand], recipe)
        if place.modifiers >= 0 and "src0_modifiers" not in plan.operation.static:
            access = self._modified(plan, spec, access, operands[place.modifiers][1])
        if plan.sdwa and place.name in ("src0", "src1"):
            access = replace(access, sdwa=operands[plan.sdwa[place.name]][1])
        if access.kind == "v" and relative:
            if self._banked:
                place_of = plan.banks[place.operand]
                access = replace(access, bank=place_of + 1 if place_of >= 0 and relative >> place_of & 1 else 0)
            elif _is_relative(plan, spec, place, relative):
                access = replace(access, relative=True)
        if spec.is_result and spec.type.bits == 16 and spec.type.count == 1:
            access = self._half_result(plan, access, operands)
        return access

    def _implicit(self, plan: _Plan, place: _OperandPlace, recipe: list[Step], target: int | None) -> OperandAccess:
        if place.name == "target":
            if target is None:
                raise Unsupported("a branch to no instruction")
            recipe.append((Fill.TARGET, 0))
            return OperandAccess("i")
        if place.name == "following":
            recipe.append((Fill.FOLLOWING, 0))
            return OperandAccess("i")
        if place.name == "following_high":
            recipe.append((Fill.FOLLOWING_HIGH, 0))
            return OperandAccess("i")
        if place.name == "zero":
            recipe.append((Fill.FIXED, 0))
            return OperandAccess("i")
        if place.name == "vcc":
            recipe.append((Fill.FIXED, layout.WAVE["sink"] if plan.results_dropped else layout.VCC))
            return OperandAccess("s")
        return OperandAccess("-")

    def _constant(
        self, plan: _Plan, spec: OperandSpec, position: int, operand: tuple[int, int], recipe: list[Step]
    ) -> OperandAccess:
        kind, value = operand
        if value in SINGLES and (position, OPEN) in plan.roles:
            raise Unsupported(f"{plan.name} of a float that is encoded inline: no source says which bits it has")
        bits = 64 if spec.type.bits == 64 else 32
        if inline_offset(value, bits) is not None:
            recipe.append((Fill.INLINE64 if bits == 64 else Fill.INLINE32, position))
            splat = spec.type.count > 1 and spec.type.units > 1
            return OperandAccess("c" if splat or (plan.operation.form is Form.PACKED and bits == 32) else "s")
        recipe.append((Fill.IMMEDIATE, position))
        if bits == 32:
            return OperandAccess("k")
        # A literal of 32 bits is extended with its sign only where the operand is a signed number (ISA documents,
        # "Literal Constants"); LLVM gives it without.
        signed = spec.type.is_signed and kind != _WIDE_LITERAL
        recipe.append((Fill.HIGH_SIGNED if signed else Fill.HIGH, position))
        return OperandAccess("K")

    def _register_access(self, spec: OperandSpec, position: int, number: int, recipe: list[Step]) -> OperandAccess:
        token = self._registers.place(number).token
        kind, half = token[0], token[1:]
        if kind == "?":
            raise Unsupported(f"register {half}")
        if kind == "-":
            return OperandAccess("-")
        if kind == "c" and (spec.type.units > 1 or (spec.type.kind == "mask" and self.wave_size > 32)):
            raise Unsupported("SCC as a number of 64 bits: of the upper half no source says anything")
        if kind == "0" and spec.is_result:
            recipe.append((Fill.FIXED, layout.WAVE["sink"]))
            return OperandAccess("s")
        recipe.append((Fill.REGISTER, position))
        if kind == "v":
            return OperandAccess("v", high=half == "h", whole=not half)
        return OperandAccess("s", high=half == "h")

    def _modified(self, plan: _Plan, spec: OperandSpec, access: OperandAccess, bits: int) -> OperandAccess:
        """Return an access with source modifiers.

        They are LLVM's SISrcMods: 1 neg, 2 abs or neg_hi, 4 op_sel, 8 op_sel_hi or the result's op_sel, 16 sext.
        """
        if plan.packed:
            # The ISA documents negate floats alone; so do LLVM's encodings in DPP. Matrices are rows of registers,
            # whose operation knows what is in them.
            if bits & 3 and not spec.type.is_float and not _OF_MATRICES.match(plan.name):
                raise Unsupported(f"{plan.name} with an integer negated: no source says what that is")
            if access.kind == "s" and plan.name in _ONE_SGPR and self.target.gates:
                if bits & 12:
                    raise Unsupported(f"{plan.name} with the upper one of two SGPRs selected")
                return replace(access, neg=bool(bits & 1), neg_high=bool(bits & 2), select=(False, False))
            select = (bool(bits & 4), bool(bits & 8)) if plan.selects_halves else (False, True)
            return replace(access, neg=bool(bits & 1), neg_high=bool(bits & 2), select=select)
        high = access.high or (bool(bits & 4) and spec.type.bits == 16)
        return replace(access, neg=bool(bits & 1), abs=bool(bits & 2), high=high, extend=bool(bits & 16))

    def _half_result(self, plan: _Plan, access: OperandAccess, operands: list[tuple[int, int]]) -> OperandAccess:
        """Return the access of a 16-bit result.

        GFX9 mostly clears the other half (unless op_sel picks the high one), later generations keep it.
        """
        if access.whole and plan.src0_modifiers >= 0 and not plan.sdwa and operands[plan.src0_modifiers][1] & 8:
            return replace(access, high=True, whole=False)
        return replace(access, whole=access.whole and self.target.clears_high_half and plan.name not in _KEEPS_HIGH)
