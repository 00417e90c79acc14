"""Choice of the variant and the record's recipe for an instruction with a new shape. See `records`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from luthier.emulator import layout
from luthier.emulator.binding.plans import HALF_MATRIX, OpcodePlan, OpcodePlanner, OperandPosition
from luthier.emulator.binding.shapes import Fill, RegisterPlaces, Step
from luthier.emulator.constants import OPEN, SINGLES, inline_offset, own_float
from luthier.emulator.ir.declare import DeclaredOperation, Form, OperandSpec, Unsupported
from luthier.emulator.ir.variant import Dpp, FloatMode, OperandAccess, Variant
from luthier.emulator.operations import compiled_for, gates, operations_of
from luthier.isa import InstructionArray, Isa
from luthier.isa.instructions import OperandKind

_DPP8_FETCH_INACTIVE = 0xEA
_REGISTER, _WIDE_LITERAL = int(OperandKind.REGISTER), int(OperandKind.LITERAL64)
_KEEPS_HIGH = {"v_mad_f16", "v_mad_u16", "v_mad_i16", "v_fma_f16", "v_div_fixup_f16"}
"""Operations of GFX9 whose 16-bit result keeps the other half, unlike their legacy forms (ISA documents). LLVM and Mesa
assume the same for v_mac_f16, v_madak_f16 and v_madmk_f16, where the documents say that the half is cleared."""
_NEVER_SCALED = {"v_dot2_f16_f16", "v_dot2_bf16_bf16"}
"""Operations with one float as the result that ignore OMOD (RDNA3 and RDNA4 documents)."""
_ONE_SGPR = {"v_pk_add_f32", "v_pk_mul_f32", "v_pk_fma_f32"}
"""Operations that read both elements from the first SGPR of a pair on GFX1250 (LLVM, SIInstrInfo,
isLegalGFX12PlusPackedMathFP32Operand)."""
_OF_MATRICES = re.compile("v_(wmma|swmmac|mfma|smfmac)_")
_MIXED = ("v_fma_mix", "v_mad_mix")
_NOT_INDEXED = ("v_mfma_", "v_smfmac_", "v_swap_", "v_permlane")
"""Vector operations for which no document describes VGPR indexing."""
_NEG, _ABS, _OP_SEL, _OP_SEL_HI, _SEXT = 1, 2, 4, 8, 16
"""LLVM's SISrcMods. In packed operations _ABS is neg_hi; in src0's modifiers _OP_SEL_HI is the result's op_sel."""
_IMPLICIT_FILLS = {"following": Fill.FOLLOWING, "following_high": Fill.FOLLOWING_HIGH, "zero": Fill.FIXED}
"""Sources of immediates that are not in the operand list, by `OperandPosition.name`."""


class Shape(Struct, frozen=True):
    """Code and recipe shared by instructions that differ only in register numbers and immediates."""

    variant: Variant
    recipe: tuple[Step, ...]


class _InstructionBinding(Struct):
    """Instruction that is being bound."""

    operands: list[tuple[int, int]]
    """Kind and value of each."""
    target: int | None
    mode: FloatMode
    recipe: list[Step]

    def is_register(self, position: int) -> bool:
        return self.operands[position][0] == _REGISTER

    def value(self, position: int) -> int:
        return self.operands[position][1]


class Binder:
    """Binds the instructions of one processor and wave size."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.target = isa.target.target
        self.wave_size = isa.wave_size
        self._planner = OpcodePlanner(isa)
        self._registers = RegisterPlaces(isa)
        self._has_index_mode = "s_set_gpr_idx_on" in operations_of(self.target.emulated_major)

    def roles(self, code: InstructionArray, index: int) -> tuple[tuple[int, int], ...]:
        """Return the operand positions that determine the code of this instruction's opcode, each with its role.

        Raises:
            Unsupported: no operation has that name.
        """
        return tuple(role for plan in self._planner.plans(code, index) for role in plan.roles)

    def bind(self, code: InstructionArray, index: int, target: int | None, mode: FloatMode) -> Shape:
        """Return the shape of one instruction.

        Args:
            target: distance in records to the branch target, if it has one.

        Raises:
            Unsupported: no operation has that name, or an operand is not modelled.
        """
        plans = self._planner.plans(code, index)
        roles = {position: role for plan in plans for position, role in plan.roles}
        operands = [
            (int(kind), own_float(value, roles.get(at, 0)) if kind == OperandKind.IMMEDIATE else value)
            for at, (kind, value) in enumerate(code.operands(index))
        ]
        instruction = _InstructionBinding(operands, target, mode, [])
        variants = [self._variant(plan, instruction) for plan in plans]
        if len(instruction.recipe) > layout.RECORD_SLOTS:
            raise Unsupported(f"more than {layout.RECORD_SLOTS} operands")
        variant = variants[0] if len(variants) == 1 else replace(variants[0], second=variants[1])
        return Shape(variant, tuple(instruction.recipe))

    def _variant(self, plan: OpcodePlan, instruction: _InstructionBinding) -> Variant:
        operation, mode = plan.operation, instruction.mode
        checked = {key: instruction.value(at) for key, at in plan.checked if not instruction.is_register(at)}
        if self.target.gates and (why := gates.refused_operands(self.target.gates, plan.name, checked)):
            raise Unsupported(why)
        results = tuple(self._access(plan, place, instruction) for place in plan.results)
        sources = tuple(self._access(plan, place, instruction) for place in plan.sources)
        if mode.fp16_ovfl and plan.name.startswith(HALF_MATRIX):
            raise Unsupported("16-bit sums under MODE.FP16_OVFL are not modelled")
        return Variant(
            plan.name,
            self.wave_size,
            compiled_for(operation, plan.name, self.target),
            results,
            sources,
            (
                *plan.extra,
                *self._static_modifiers(plan, instruction),
                *(self._gated_modifiers(plan, checked) if self.target.gates else ()),
                *self._other_modifiers(plan, instruction),
            ),
            self._float_mode(operation, plan.name, mode) if operation.uses_float else None,
            self._dpp(plan, instruction),
            processor=self.target.name if operation.processors else "",
        )

    # Modifiers ------------------------------------------------------------------------------------------------------

    def _static_modifiers(self, plan: OpcodePlan, instruction: _InstructionBinding) -> Iterator[tuple[str, int]]:
        small = _small_constants(plan, instruction)
        for key, position in plan.static:
            value = instruction.value(position)
            if key in small and not value & _OP_SEL_HI:
                value = value & ~_OP_SEL | _OP_SEL_HI
            if value and key == "gds":
                raise Unsupported("the emulated device has no global data share")
            if key == "omod" and not self._scales(plan, instruction.mode):
                continue
            if value or key in ("dst_sel", "dst_unused"):
                yield key, value

    def _gated_modifiers(self, plan: OpcodePlan, checked: dict[str, int]) -> Iterator[tuple[str, int]]:
        if self._planner.banked and plan.name.startswith(("s_setreg", "v_movrel", "v_swaprel")):
            yield "banks", 1
        if gates.is_replay_mode(plan.name, checked):
            yield "replay_mode", 1
        if gates.asks_for_cluster(plan.name, checked):
            yield "cluster", 1
        if gates.scales_offset(checked):
            yield "scale_offset", 1

    def _other_modifiers(self, plan: OpcodePlan, instruction: _InstructionBinding) -> Iterator[tuple[str, int]]:
        if plan.writes_exec:
            yield "writes_exec", 1
        if self._has_index_mode and any(
            place.operand >= 0 and self._registers.place(instruction.value(place.operand)).token == "m"
            for place in plan.results
        ):
            yield "chooses_relative", 1
        if plan.operation.form is Form.CONTROL and instruction.target is not None and instruction.target <= 0:
            yield "backward", 1

    def _scales(self, plan: OpcodePlan, mode: FloatMode) -> bool:
        """Return whether OMOD has an effect.

        OMOD applies to results that are one float. Up to GFX11, MODE must have neither IEEE nor denormal results of
        that width (ISA documents, "Output Operand Modifiers").
        """
        result = plan.operation.results[0].type
        if result.kind != "f" or result.count > 1 or plan.operation.form is Form.PACKED or plan.name in _NEVER_SCALED:
            return False
        return not self.target.ieee_mode or not (mode.ieee or mode.denormals(result.bits) & 2)

    def _float_mode(self, operation: DeclaredOperation, name: str, mode: FloatMode) -> FloatMode:
        """Return the part of MODE that the code depends on.

        FP16_OVFL affects numbers of 16 and 8 bits. GFX12 has neither DX10_CLAMP nor IEEE: it clamps as if DX10_CLAMP
        were set, and has nothing that depends on IEEE.
        """
        if operation.denormals_by_mode:
            return FloatMode(denorm32=mode.denorm32, denorm16_64=mode.denorm16_64)
        if not self.target.ieee_mode:
            mode = replace(mode, dx10_clamp=True, ieee=True)
        small = any(part in name for part in ("f16", "fp8", "bf8"))
        half = small or any(spec.type.kind == "f" and spec.type.bits == 16 for spec in operation.results)
        return replace(mode, relative=0, fp16_ovfl=mode.fp16_ovfl and half)

    def _dpp(self, plan: OpcodePlan, instruction: _InstructionBinding) -> Dpp | None:
        values = {key: instruction.value(position) for key, position in plan.dpp.items()}
        if "dpp8" in values:
            fetch = values.get("fi", 0) in (1, _DPP8_FETCH_INACTIVE)
            # Lanes that are off read as zero; DPP8 never keeps a lane from being written.
            return Dpp(-1, values["dpp8"], bound_control=True, fetch_inactive=fetch)
        if "dpp_ctrl" not in values:
            return None
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

    # Operands -------------------------------------------------------------------------------------------------------

    def _access(self, plan: OpcodePlan, place: OperandPosition, instruction: _InstructionBinding) -> OperandAccess:
        spec = place.spec
        if place.operand < 0:
            return _implicit(plan, place, instruction)
        if instruction.is_register(place.operand):
            access = self._register_access(place, instruction)
        elif spec.is_immediate:
            instruction.recipe.append((Fill.SIGNED16 if place.name == "simm16" else Fill.IMMEDIATE, place.operand))
            return OperandAccess("i")
        else:
            access = _constant(plan, place, instruction)
        if place.modifiers >= 0 and "src0_modifiers" not in plan.operation.static:
            access = self._modified(plan, spec, access, instruction.value(place.modifiers))
        if plan.sdwa and place.name in ("src0", "src1"):
            access = replace(access, sdwa=instruction.value(plan.sdwa[place.name]))
        if access.kind == "v" and instruction.mode.relative:
            access = self._indexed(plan, place, access, instruction.mode.relative)
        if spec.is_result and spec.type.bits == 16 and spec.type.count == 1:
            access = self._half_result(plan, access, instruction)
        return access

    def _register_access(self, place: OperandPosition, instruction: _InstructionBinding) -> OperandAccess:
        spec, token = place.spec, self._registers.place(instruction.value(place.operand)).token
        kind, half = token[0], token[1:]
        if kind == "?":
            raise Unsupported(f"register {half}")
        if kind == "-":
            return OperandAccess("-")
        if kind == "c" and (spec.type.units > 1 or (spec.type.kind == "mask" and self.wave_size > 32)):
            raise Unsupported("SCC as a 64-bit number: no source defines the upper half")
        if kind == "0" and spec.is_result:
            instruction.recipe.append((Fill.FIXED, layout.WAVE["sink"]))
            return OperandAccess("s")
        instruction.recipe.append((Fill.REGISTER, place.operand))
        if kind == "v":
            return OperandAccess("v", high=half == "h", whole=not half)
        return OperandAccess("s", high=half == "h")

    def _modified(self, plan: OpcodePlan, spec: OperandSpec, access: OperandAccess, bits: int) -> OperandAccess:
        """Return an access with source modifiers."""
        neg, op_sel = bool(bits & _NEG), bool(bits & _OP_SEL)
        if not plan.packed:
            high = access.high or (op_sel and spec.type.bits == 16)
            return replace(access, neg=neg, abs=bool(bits & _ABS), high=high, extend=bool(bits & _SEXT))
        # The ISA documents negate only floats; so do LLVM's encodings in DPP. A matrix operand is a row of registers,
        # whose contents its operation knows.
        if bits & (_NEG | _ABS) and not spec.type.is_float and not _OF_MATRICES.match(plan.name):
            raise Unsupported(f"{plan.name} with a negated integer: no source defines it")
        select = (op_sel, bool(bits & _OP_SEL_HI)) if plan.selects_halves else (False, True)
        if access.kind == "s" and plan.name in _ONE_SGPR and self.target.gates:
            if bits & (_OP_SEL | _OP_SEL_HI):
                raise Unsupported(f"{plan.name} with the upper SGPR of a pair selected")
            select = (False, False)
        return replace(access, neg=neg, neg_high=bool(bits & _ABS), select=select)

    def _indexed(self, plan: OpcodePlan, place: OperandPosition, access: OperandAccess, relative: int) -> OperandAccess:
        """Return the access of a vector register with upper bits of its number from MODE, or relative to M0."""
        if self._planner.banked:
            bank = plan.banks[place.operand]
            return replace(access, bank=bank + 1 if bank >= 0 and relative >> bank & 1 else 0)
        return replace(access, relative=True) if _is_relative(plan, place, relative) else access

    def _half_result(self, plan: OpcodePlan, access: OperandAccess, instruction: _InstructionBinding) -> OperandAccess:
        """Return the access of a 16-bit result.

        GFX9 mostly clears the other half (unless op_sel picks the high one); later generations keep it.
        """
        has_modifiers = plan.src0_modifiers >= 0 and not plan.sdwa
        if access.whole and has_modifiers and instruction.value(plan.src0_modifiers) & _OP_SEL_HI:
            return replace(access, high=True, whole=False)
        return replace(access, whole=access.whole and self.target.clears_high_half and plan.name not in _KEEPS_HIGH)


def _small_constants(plan: OpcodePlan, instruction: _InstructionBinding) -> set[str]:
    """Return the modifiers of constants in a product of mixed floats: they have 16 bits, whatever op_sel_hi says.

    Source: LLVM, VOP3PInstructions.td, VOP3P_Mix_Profile.
    """
    if not plan.name.startswith(_MIXED):
        return set()
    constants = (place for place in plan.sources if place.operand >= 0 and not instruction.is_register(place.operand))
    return {f"{place.name}_modifiers" for place in constants}


def _implicit(plan: OpcodePlan, place: OperandPosition, instruction: _InstructionBinding) -> OperandAccess:
    """Return the access of an operand that is not in the operand list."""
    recipe = instruction.recipe
    if place.name == "target":
        if instruction.target is None:
            raise Unsupported("the branch target is not an instruction")
        recipe.append((Fill.TARGET, 0))
        return OperandAccess("i")
    if place.name in _IMPLICIT_FILLS:
        recipe.append((_IMPLICIT_FILLS[place.name], 0))
        return OperandAccess("i")
    if place.name == "vcc":
        recipe.append((Fill.FIXED, layout.WAVE["sink"] if plan.results_dropped else layout.VCC))
        return OperandAccess("s")
    return OperandAccess("-")


def _constant(plan: OpcodePlan, place: OperandPosition, instruction: _InstructionBinding) -> OperandAccess:
    spec, position = place.spec, place.operand
    kind, value = instruction.operands[position]
    if value in SINGLES and (position, OPEN) in plan.roles:
        raise Unsupported(f"{plan.name} of a float that is encoded inline: no source defines its bits")
    bits = 64 if spec.type.bits == 64 else 32
    if inline_offset(value, bits) is not None:
        instruction.recipe.append((Fill.INLINE64 if bits == 64 else Fill.INLINE32, position))
        splat = spec.type.count > 1 and spec.type.units > 1
        return OperandAccess("c" if splat or (plan.operation.form is Form.PACKED and bits == 32) else "s")
    instruction.recipe.append((Fill.IMMEDIATE, position))
    if bits == 32:
        return OperandAccess("k")
    # A 32-bit literal is sign-extended only where the operand is a signed number (ISA documents, "Literal Constants");
    # LLVM gives it without.
    signed = spec.type.is_signed and kind != _WIDE_LITERAL
    instruction.recipe.append((Fill.HIGH_SIGNED if signed else Fill.HIGH, position))
    return OperandAccess("K")


def _is_relative(plan: OpcodePlan, place: OperandPosition, relative: int) -> bool:
    """Return whether VGPR indexing applies to a vector register of a vector operation, by the four enable bits.

    Source: ISA documents of GFX9, "VGPR Indexing Details". A source that is the result's register is indexed like the
    result; the second source of v_madmk counts as the third.

    Raises:
        Unsupported: the documents do not describe it.
    """
    if not plan.name.startswith("v_"):
        return False
    if plan.name.startswith(_NOT_INDEXED):
        raise Unsupported(f"{plan.name} in VGPR index mode")
    tied = place.spec.is_result or any(place.operand == result.operand for result in plan.results)
    sources = {"src0": 0, "src1": 2 if plan.name.startswith(("v_madmk", "v_fmamk")) else 1, "src2": 2}
    bit = 3 if tied else sources.get(place.spec.name)
    return bit is not None and bool(relative >> bit & 1)
