"""The intrinsics of ``luthier/luthier.h``: access to registers, and atomic additions once per wave."""

from __future__ import annotations

from msgspec.structs import replace

from luthier.errors import HookError
from luthier.hazards.wait_states.model import hazard_model
from luthier.isa import registers as r
from luthier.module.llvm_types import units_of
from luthier.payload.calls import Intrinsic, IntrinsicCall, Lowering, inline_assembly

_FILES = {
    "SGPRs": r.SGPRS,
    "VCC": r.VCC,
    "M0": (r.M0,),
    "EXEC": r.EXEC,
    "SCC": (r.SCC,),
    "VGPRs": r.VGPRS,
    "AGPRs": r.AGPRS,
}
"""Registers that hooks read and write."""
_READ_ONLY = {"MODE": (r.MODE,)}
_OTHERS = {
    "trap temporaries": r.TTMPS,
    "FLAT_SCRATCH": (r.FLAT_SCRATCH_LO, r.FLAT_SCRATCH_HI),
}


def check_accessible(register: r.RegisterRange, what: str, *, write: bool = False) -> None:
    """Check that hooks can read, or write, a register.

    Args:
        what: the user of the register, for the error.

    Raises:
        HookError: the register does not exist, or hooks cannot access it.
    """
    unit, count = register.first, register.count
    last = unit + count - 1
    for name, units in (_FILES | ({} if write else _READ_ONLY)).items():
        if unit in units:
            if last not in units:
                raise HookError(f"{what}: {count} registers from unit {unit} on exceed {name}")
            return
    for name, units in _READ_ONLY.items():
        if unit in units:
            raise HookError(f"{what}: hooks cannot write {name}")
    for name, units in _OTHERS.items():
        if unit in units:
            raise HookError(f"{what}: hooks can neither read nor write {name}")
    raise HookError(f"{what}: there is no register unit {unit}")


def _register_access(
    call: IntrinsicCall, lowering: Lowering, kind: str, *, write: bool = False
) -> tuple[range, list[str], list[str]]:
    """Return the units of a register, IR for pointers to them, and the pointers.

    Each unit is accessed separately, since partially overlapping accesses would keep the array in memory.
    """
    register = r.RegisterRange(call.constant(0), units_of(kind))
    check_accessible(register, call.base, write=write)
    units = register.units
    pointers = [lowering.fresh() for _ in units]
    text = [
        f"{pointer} = getelementptr i32, ptr addrspace(5) %luthier.registers, i32 {unit}"
        for pointer, unit in zip(pointers, units, strict=True)
    ]
    return units, text, pointers


def _read_register(call: IntrinsicCall, lowering: Lowering) -> list[str]:
    kind = call.return_type
    units, text, pointers = _register_access(call, lowering, kind)
    lowering.read.update(units)
    if call.result is None:
        return []
    if len(units) == 1:
        return [*text, f"{call.result} = load {kind}, ptr addrspace(5) {pointers[0]}, align 4"]
    vector, value = f"<{len(units)} x i32>", "poison"
    for index, pointer in enumerate(pointers):
        part, joined = lowering.fresh(), lowering.fresh()
        text.append(f"{part} = load i32, ptr addrspace(5) {pointer}, align 4")
        text.append(f"{joined} = insertelement {vector} {value}, i32 {part}, i32 {index}")
        value = joined
    if not kind.startswith("ptr"):
        return [*text, f"{call.result} = bitcast {vector} {value} to {kind}"]
    bits = lowering.fresh()
    return [
        *text,
        f"{bits} = bitcast {vector} {value} to i64",
        f"{call.result} = inttoptr i64 {bits} to {kind}",
    ]


def _write_register(call: IntrinsicCall, lowering: Lowering) -> list[str]:
    kind, value = call.arguments[1]
    units, text, pointers = _register_access(call, lowering, kind, write=True)
    lowering.written.update(units)
    if len(units) == 1:
        return [*text, f"store {kind} {value}, ptr addrspace(5) {pointers[0]}, align 4"]
    if kind.startswith("ptr"):
        bits = lowering.fresh()
        text.append(f"{bits} = ptrtoint {kind} {value} to i64")
        kind, value = "i64", bits
    vector = f"<{len(units)} x i32>"
    parts = lowering.fresh()
    text.append(f"{parts} = bitcast {kind} {value} to {vector}")
    for index, pointer in enumerate(pointers):
        part = lowering.fresh()
        text.append(f"{part} = extractelement {vector} {parts}, i32 {index}")
        text.append(f"store i32 {part}, ptr addrspace(5) {pointer}, align 4")
    return text


def _write_exec(call: IntrinsicCall, lowering: Lowering) -> list[str]:
    """Lower a write of EXEC like `_write_register`, with its width."""
    ((kind, mask),) = call.arguments
    register = ("i32", str(r.EXEC_LO))
    if lowering.wave_size == 64:
        return _write_register(replace(call, arguments=(register, (kind, mask))), lowering)
    low = lowering.fresh()
    write = _write_register(replace(call, arguments=(register, ("i32", low))), lowering)
    return [f"{low} = trunc {kind} {mask} to i32", *write]


_ATOMIC_ADD = {
    # type: (GFX9 and GFX10 mnemonic, GFX11 and later mnemonic, type of the data registers)
    "i32": ("global_atomic_add", "global_atomic_add_u32", "i32"),
    "i64": ("global_atomic_add_x2", "global_atomic_add_u64", "i64"),
    "float": ("global_atomic_add_f32", "global_atomic_add_f32", "i32"),
}


def _scalar_atomic_add(call: IntrinsicCall, lowering: Lowering) -> list[str]:
    """Lower an atomic addition of a uniform value, once per wave regardless of EXEC.

    If address or value are in vector registers, those of the first active lane are used, and the payload does not run
    without active lanes (`make_template` detects the remaining readfirstlane).

    EXEC selects lane 0 around the atomic, inside one opaque assembly block: if LLVM saw EXEC change, its atomic
    optimizer would combine an earlier ballot with the new mask.
    """
    (pointer_type, pointer), (kind, value) = call.arguments
    if kind not in _ATOMIC_ADD:
        raise HookError(f"{call.base} adds 32- or 64-bit integers or floats, not {kind}")
    older, newer, data = _ATOMIC_ADD[kind]
    target = lowering.target
    wave, mask = (64, "exec") if lowering.wave_size == 64 else (32, "exec_lo")
    lowering.runs_without_lanes = lowering.writes_inactive_lanes = True
    # LLVM does not analyse this block. Vector instructions of the application may have read the same SGPRs, and memory
    # instructions may still read EXEC.
    settled = [*target.inserted_waits, *([] if target.scalar_wait is None else [target.scalar_wait])]
    lines = [
        *settled,
        f"s_mov_b{wave} $0, {mask}",
        f"s_mov_b{wave} {mask}, 1",
        "v_mov_b32 $1, 0",
        "v_lshlrev_b64 $2, 0, $4" if data == "i64" else "v_mov_b32 $2, $4",
    ]
    # Wait states since the last v_readfirstlane of the address.
    missing = hazard_model(target, lowering.wave_size).behind_vector_scalars - len(lines)
    if missing > 0:
        lines.append(f"s_nop {missing - 1}")
    name = newer if target.sized_memory_names else older
    atomic = f"{name} $1, $2, $3"
    if call.result is None:
        lines.append(atomic)
    else:
        lines.append(f"{name} $2, $1, $2, $3 {target.returning_atomic}")
        lines.append(target.wait_for_loads)
    lines += [*settled, f"s_mov_b{wave} {mask}, $0"]
    address, place, bits, uniform, done = (lowering.fresh() for _ in range(5))
    operands = f"i64 {place}, {data} {uniform}"
    text = [
        f"{address} = ptrtoint {pointer_type} {pointer} to i64",
        lowering.call(place, "i64", "llvm.amdgcn.readfirstlane.i64", ("i64", address)),
        f"{bits} = bitcast {kind} {value} to {data}",
        lowering.call(uniform, data, f"llvm.amdgcn.readfirstlane.{data}", (data, bits)),
        inline_assembly(done, f"{{ i{wave}, i32, {data} }}", lines, "=&s,=&v,=&v,s,s", operands),
    ]
    if call.result is None:
        return text
    lanes, old = lowering.fresh(), lowering.fresh()
    return [
        *text,
        f"{lanes} = extractvalue {{ i{wave}, i32, {data} }} {done}, 2",
        lowering.call(old, data, f"llvm.amdgcn.readlane.{data}", (data, lanes), ("i32", "0")),
        f"{call.result} = bitcast {data} {old} to {kind}",
    ]


BUILT_IN: dict[str, Intrinsic] = {
    intrinsic.name: intrinsic
    for intrinsic in (
        Intrinsic(
            "luthier::readReg",
            "readReg<T>(reg)",
            "reads a register, e.g. `luthier::readReg<float>(luthier::VGPR4)`; the register is a constant",
            _read_register,
        ),
        Intrinsic(
            "luthier::writeReg",
            "writeReg<T>(reg, value)",
            "writes a register for the application and for later hooks",
            _write_register,
        ),
        Intrinsic(
            "luthier::writeExec",
            "writeExec(mask)",
            "sets EXEC for the application's next instructions; in wave32 its lower 32 bits",
            _write_exec,
        ),
        Intrinsic(
            "luthier::sAtomicAdd",
            "sAtomicAdd<T>(address, value)",
            "one atomic addition per wave of a uniform value (32- or 64-bit integer, `float`), regardless of EXEC; "
            "returns the old value",
            _scalar_atomic_add,
        ),
    )
}
"""Name -> record of the intrinsics of ``luthier/luthier.h``. For other packages see `luthier.payload.registry`."""
