"""Plans of opcodes: what the bindings of all instructions of an opcode have in common. See `bind`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from msgspec import Struct

from luthier.emulator.binding.shapes import MODIFIER
from luthier.emulator.constants import BFLOAT, HALF, OPEN
from luthier.emulator.ir.declare import DeclaredOperation, Form, OperandSpec, Unsupported
from luthier.emulator.operations import begins_with, gates, operations_of
from luthier.emulator.operations.refused import FORMS, WAVE32_ONLY, reason
from luthier.isa import InstructionArray, Isa, Opcode
from luthier.isa.access_kinds import is_float_atomic
from luthier.isa.instructions import InstructionFlag

HALF_MATRIX = ("v_wmma_f16_", "v_swmmac_f16_")
_SUFFIX = re.compile(r"(_e32|_e64|_dpp8|_dpp|_sdwa)+$")
_DPP_FIELDS = ("dpp_ctrl", "row_mask", "bank_mask", "bound_ctrl", "fi", "dpp8")
_SELECTIONS = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")
_HALVES = {"s_ceil_f16", "s_floor_f16", "s_trunc_f16", "s_rndne_f16", "s_cvt_f32_f16"}
"""Operations on 16-bit floats, besides comparisons, whose inline constants LLVM gives with 32 bits. The constants have
the operand's type (ISA documents, "Inline constants")."""
_OPEN = {"s_cvt_hi_f32_f16", "v_cvt_pk_fp8_f16", "v_cvt_pk_bf8_f16"}
"""Operations on parts of a register whose inline constants LLVM gives with 32 bits, and no document describes."""
_LDS_OF_M0 = 1 << 16
"""Bytes of LDS that 16 bits of M0 can address."""
_ADDRESSING = {"OFFEN": 1, "IDXEN": 2, "BOTHEN": 3, "ADDR64": 4}
"""Bit 0: the VGPR holds an offset; bit 1: it holds an index (before the offset)."""


def operation_name(opcode: Opcode) -> str:
    """Return the mnemonic without its encoding suffix, under which the operation is declared."""
    return _SUFFIX.sub("", opcode.mnemonic)


class OperandPosition(Struct, frozen=True):
    """Position of a declared operand in an opcode's operand list."""

    spec: OperandSpec
    operand: int
    """Index, or -1."""
    modifiers: int
    """Index of its source modifiers, or -1."""
    name: str
    """LLVM's name. For an implicit operand ``vcc``, ``target``, ``zero`` (an absent immediate) or ``none``."""


class OpcodePlan(Struct, frozen=True):
    """Binding plan shared by all instructions of one opcode."""

    operation: DeclaredOperation
    name: str
    results: tuple[OperandPosition, ...]
    sources: tuple[OperandPosition, ...]
    packed: bool
    selects_halves: bool
    """The opcode is packed and has op_sel and op_sel_hi. Otherwise both halves of each source stay in place."""
    sdwa: dict[str, int]
    """Positions of the SDWA selections of src0 and src1; empty for other encodings."""
    dpp: dict[str, int]
    """Positions of the DPP fields."""
    src0_modifiers: int
    static: tuple[tuple[str, int], ...]
    """Modifier name and operand index."""
    extra: tuple[tuple[str, int], ...]
    """Modifiers that the opcode determines, with their values."""
    writes_exec: bool
    results_dropped: bool
    checked: tuple[tuple[str, int], ...]
    """Operands with values that may be refused: name and operand index."""
    banks: tuple[int, ...]
    """By operand: the position of its upper bits in ``s_set_vgpr_msb`` (`Isa.vgpr_places`)."""
    roles: tuple[tuple[int, int], ...]
    """Operand positions that determine the code, each with its role."""


class OpcodePlanner:
    """Makes the plans of one processor and wave size, and keeps them by opcode."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa
        self.target = isa.target.target
        self.banked = self.target.addressable_vgprs > self.target.named_vgprs  # upper bits: ``s_set_vgpr_msb``
        self._operations = operations_of(self.target.emulated_major)
        sramecc = isa.target.sramecc
        ecc = self.target.supports_sramecc if sramecc is None else sramecc
        # Under SRAMECC a 16-bit load writes 0 to the other half. LLVM assumes SRAMECC unless told that it is off.
        self._clears_halves = ecc or self.target.small_loads_clear
        self._plans: dict[int, tuple[OpcodePlan, ...] | Unsupported] = {}

    def plans(self, code: InstructionArray, index: int) -> tuple[OpcodePlan, ...]:
        """Return the plan of an instruction's opcode; the plans of both halves for a dual instruction.

        Raises:
            Unsupported: no operation has that name, or the opcode is refused.
        """
        number = int(code.opcode[index])
        if number < 0:
            raise Unsupported("undecodable bytes")
        plans = self._plans.get(number)
        if plans is None:
            try:
                plans = self._plans_of(self.isa.opcode(number), code, index)
            except Unsupported as problem:
                plans = problem
            self._plans[number] = plans
        if isinstance(plans, Unsupported):
            raise plans
        return plans

    def _plans_of(self, opcode: Opcode, code: InstructionArray, index: int) -> tuple[OpcodePlan, ...]:
        if opcode.name.startswith("V_DUAL_"):
            halves = [half.strip().split(" ")[0] for half in self.isa.text(code, index).split("::")]
            return tuple(
                self._plan(opcode, _SUFFIX.sub("", half).replace("v_dual_", "v_"), suffix)
                for half, suffix in zip(halves, "XY", strict=True)
            )
        return (self._plan(opcode, operation_name(opcode), ""),)

    def _plan(self, opcode: Opcode, name: str, suffix: str) -> OpcodePlan:
        operation = self._operation(opcode, name)
        positions = _positions(opcode)
        sources = tuple(_position(spec, positions, suffix) for spec in operation.sources)
        results = tuple(_position(spec, positions, suffix) for spec in operation.results)
        if operation.form is Form.WAVE and sources and _selects_parts(name, positions):
            raise Unsupported(f"{name} with lanes or parts of registers selected")
        static = _static_modifiers(operation, name, positions, suffix)
        names = gates.checked_operands(self.target.gates, name) if self.target.gates else ()
        checked = tuple((key, positions[key]) for key in names if key in positions)
        writes_exec = name.startswith("v_cmpx_")
        return OpcodePlan(
            operation,
            name,
            results,
            sources,
            packed=bool(opcode.flags & InstructionFlag.PACKED),
            selects_halves="op_sel_hi" in positions,
            sdwa={key: positions[f"{key}_sel"] for key in ("src0", "src1") if f"{key}_sel" in positions},
            dpp={key: positions[key] for key in _DPP_FIELDS if key in positions},
            src0_modifiers=positions.get("src0_modifiers", -1),
            static=static,
            extra=tuple(self._opcode_modifiers(operation, opcode, name, positions)),
            writes_exec=writes_exec,
            results_dropped=writes_exec and not self.target.cmpx_writes_mask,
            checked=checked,
            banks=self.isa.vgpr_places(opcode.number) if self.banked else (),
            roles=_roles(name, (*results, *sources), positions, (*static, *checked)),
        )

    def _operation(self, opcode: Opcode, name: str) -> DeclaredOperation:
        """Return the operation of an opcode that is not refused."""
        operation = self._operations.get(name) or self._operations.get(f"{name}_dual")
        if operation is None:
            raise Unsupported(reason(name))
        own = begins_with(operation, self.target)
        if self.target.gates and (why := gates.refused_opcode(self.target.gates, opcode, name, own=own)):
            raise Unsupported(why)
        for (refused, form), why in FORMS.items():
            if name == refused and form in opcode.name:
                raise Unsupported(why)
        if self.isa.wave_size == 64 and name in WAVE32_ONLY:
            raise Unsupported(WAVE32_ONLY[name])
        return operation

    def _opcode_modifiers(
        self, operation: DeclaredOperation, opcode: Opcode, name: str, positions: dict[str, int]
    ) -> Iterator[tuple[str, int]]:
        has_addressing = "addressing" in operation.static
        if "_TFE_" in opcode.name or ("tfe" in positions and has_addressing):
            yield "tfe", 1
        if "_LDS_" in opcode.name and self.target.lds_bytes > _LDS_OF_M0:
            yield "wide_lds", 1
        if "_M0_" in opcode.name:
            yield "from_m0", 1
        if self._clears_halves and ("d16" in name or "d16" in positions):
            yield "sramecc", 1
        if has_addressing:
            kind = re.search(r"_(OFFEN|IDXEN|BOTHEN|ADDR64)_", f"{opcode.name}_")
            yield "addressing", _ADDRESSING[kind[1]] if kind else 0
        if self.target.signed_vector_offset and name.startswith(("global_", "flat_")) and "saddr" in positions:
            yield "signed", 1
        if self.target.fine_grained_scope != "system" and is_float_atomic(name):
            yield "coarse_only", 1


def _positions(opcode: Opcode) -> dict[str, int]:
    """Return the operands' positions by name. An operand that is tied to a result has the result's position."""
    positions = {
        operand.name: operand.tied_to if operand.tied_to >= 0 else index
        for index, operand in enumerate(opcode.operands)
        if operand.name
    }
    if "_e96_" in opcode.name:  # VOPD in three words: an unnamed operand before a source holds its modifiers
        for index, (operand, source) in enumerate(itertools.pairwise(opcode.operands)):
            if not operand.name and source.name.removeprefix("v").startswith("src"):
                positions[f"{source.name}_modifiers"] = index
    return positions


def _position(spec: OperandSpec, positions: dict[str, int], suffix: str) -> OperandPosition:
    if spec.type.kind == "scc" or spec.name in ("target", "following", "following_high"):
        return OperandPosition(spec, -1, -1, "none" if spec.type.kind == "scc" else spec.name)
    if spec.name == "vcc":
        return OperandPosition(spec, -1, -1, "vcc")
    names = [f"{spec.name}{suffix}", f"v{spec.name}{suffix}"]
    if suffix and spec.name == "imm":
        names.append("imm")
    if spec.name == "old":
        names = ["vdst_in", "vdst"]
    for name in names:
        if name in positions:
            return OperandPosition(spec, positions[name], positions.get(f"{name}_modifiers", -1), name)
    if spec.is_immediate:
        return OperandPosition(spec, -1, -1, "zero")
    if spec.type.kind == "mask":
        return OperandPosition(spec, -1, -1, "vcc")
    if spec.name == "src2" and f"vdst{suffix}" in positions:
        return OperandPosition(spec, positions[f"vdst{suffix}"], positions.get("src2_modifiers", -1), "src2")
    if spec.name.startswith("src") and not spec.is_result and "simm16" in positions:
        return OperandPosition(spec, positions["simm16"], -1, "simm16")
    return OperandPosition(spec, -1, -1, "none")


def _selects_parts(name: str, positions: dict[str, int]) -> bool:
    """Return whether an encoding selects lanes (DPP) or parts of registers (SDWA) before the operation runs."""
    if name.startswith("v_movrel") and "src0_sel" not in positions:  # the operation selects: it knows the registers
        return False
    return not positions.keys().isdisjoint(("dpp_ctrl", "dpp8", "src0_sel"))


def _static_modifiers(
    operation: DeclaredOperation, name: str, positions: dict[str, int], suffix: str
) -> tuple[tuple[str, int], ...]:
    keys = operation.static
    if not suffix:
        keys = ("clamp", "omod", "dst_sel", "dst_unused", *keys)
    if "gds" in positions and not name.startswith("ds_gws_"):
        keys = (*keys, "gds")
    return tuple((key, positions[key]) for key in keys if key in positions)


def _roles(
    name: str,
    operands: tuple[OperandPosition, ...],
    positions: dict[str, int],
    compiled_in: tuple[tuple[str, int], ...],
) -> tuple[tuple[int, int], ...]:
    roles = {positions[key]: MODIFIER for key in (*_DPP_FIELDS, *_SELECTIONS) if key in positions}
    roles |= {position: MODIFIER for key, position in positions.items() if key.endswith("_modifiers")}
    roles |= {position: MODIFIER for _, position in compiled_in}
    for place in operands:
        if place.operand >= 0 and not place.spec.is_immediate:
            roles.setdefault(place.operand, 64 if place.spec.type.bits == 64 else _role(name))
    return tuple(roles.items())


def _role(name: str) -> int:
    """Return the role of the operands of an operation that are not 64 bits wide."""
    if name in _OPEN:
        return OPEN
    if name in _HALVES or name.startswith(HALF_MATRIX) or (name.startswith("s_cmp_") and name.endswith("_f16")):
        return HALF
    return BFLOAT if name.startswith("v_wmma_bf16_") else 32
