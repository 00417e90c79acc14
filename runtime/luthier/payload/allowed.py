"""Check of the contents of a hook, on its IR after optimization, from which code is generated.

Registers in the generated code are no basis for such a check: LLVM reads undefined ones (wide multiplies with an
undefined half), and takes into account that EXEC hides lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from luthier.arch.target import Target
from luthier.errors import HookError
from luthier.payload.ir import names_in, symbol_of
from luthier.payload.launch_state import LAUNCH
from luthier.payload.llvm import llvm

_EVERY_LANE = tuple(f"llvm.amdgcn.{name}." for name in ("writelane", "mfma", "smfmac", "wmma", "swmmac"))
"""Intrinsics that write vector registers in inactive lanes."""


def _known(name: str, table: Mapping[str, str | None]) -> str | None:
    """Return the entry for an intrinsic, ignoring the types at the end of its name."""
    while name:
        if name in table:
            return table[name]
        name = name.rpartition(".")[0]
    return None


def _calls(function: llvm.ValueRef) -> Iterator[llvm.ValueRef]:
    """Yield the callee of each call in a function."""
    for block in function.blocks:
        for instruction in block.instructions:
            if instruction.opcode == "call":
                *_, callee = instruction.operands
                yield callee


def check_body(module: llvm.ModuleRef, function: llvm.ValueRef, hook: str, target: Target) -> bool:
    """Check that a payload contains only supported operations.

    Args:
        module: the module after the last optimization.
        function: the payload in it, after inlining.
        hook: name of the hook for errors.
        target: the target of the code.

    Returns:
        Whether it writes vector registers in inactive lanes.

    Raises:
        HookError: an operation is not supported, with the name that authors of hooks know.
    """
    reasons: dict[str, None] = {}
    uses: dict[str, None] = {}
    writes_every_lane = False
    callees = (each for each in module.functions if not each.is_declaration and each.name != function.name)
    bodies = [function, *callees]
    defined = {each.name for each in bodies}
    for body in bodies:
        for callee in _calls(body):
            name = callee.name
            if callee.value_kind == llvm.ValueKind.inline_asm:
                continue  # Luthier's own: the compiler plugin rejects any other
            if callee.value_kind != llvm.ValueKind.function or name in defined:
                continue
            if what := _known(name, target.launch_intrinsics):
                uses[what] = None
            elif reason := _known(name, target.refused_intrinsics):
                reasons[reason] = None
            elif "::" in name or name in LAUNCH:
                called = name.partition(".")[0] if "::" in name else LAUNCH[name].doc
                reasons[f"uses {called} in {body.name}, which cannot be inlined; pass the value to it"] = None
            elif not name.startswith("llvm."):
                reasons[f"calls {name}, which is not defined in its module"] = None
            elif f"{name}.".startswith(_EVERY_LANE):
                writes_every_lane = True
        for name in _lds_variables(module, body):
            where = "of a size known only at launch" if body is function else f"in {body.name}, which cannot be inlined"
            reasons[f"uses LDS ({name}) {where}"] = None
    if uses:
        unavailable = "which hooks cannot read; pass it as a register argument"
        reasons = {f"uses {', '.join(uses)}, {unavailable}": None, **reasons}
    if reasons:
        raise HookError(f"hook {hook} {', and '.join(reasons)}")
    return writes_every_lane


def _lds_variables(module: llvm.ModuleRef, function: llvm.ValueRef) -> list[str]:
    variables = [variable.name for variable in module.global_variables if str(variable.type) == "ptr addrspace(3)"]
    named = {symbol_of(name) for name in names_in(str(function)) if name.startswith("@")} if variables else ()
    return [name for name in variables if name in named]
