"""Check of what a hook may contain, on its IR after optimization: what is left there is what is generated.

Registers in generated code decide nothing: LLVM reads undefined ones (wide multiplies with an undefined half), and
knows that EXEC hides lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from luthier.arch.target import Target
from luthier.errors import HookError
from luthier.payload.ir import names_in, symbol_of
from luthier.payload.launch_state import LAUNCH
from luthier.payload.llvm import llvm

_EVERY_LANE = tuple(f"llvm.amdgcn.{name}." for name in ("writelane", "mfma", "smfmac", "wmma", "swmmac"))
"""Intrinsics that write vector registers in lanes that are not active."""


def _known(name: str, table: Mapping[str, str | None]) -> str | None:
    """Return the entry for an intrinsic, whatever types its name ends with."""
    while name:
        if name in table:
            return table[name]
        name = name.rpartition(".")[0]
    return None


def _calls(function: llvm.ValueRef) -> Iterator[llvm.ValueRef]:
    """Yield what a function calls, once for each call."""
    for block in function.blocks:
        for instruction in block.instructions:
            if instruction.opcode == "call":
                *_, callee = instruction.operands
                yield callee


def check_body(module: llvm.ModuleRef, function: llvm.ValueRef, hook: str, target: Target) -> bool:
    """Refuse what a payload cannot do.

    Args:
        module: after the last optimization.
        function: the payload in it, with everything inlined that can be.
        hook: what errors call it.
        target: that it is compiled for.

    Returns:
        Whether it writes vector registers in lanes that are not active.

    Raises:
        HookError: with what it does, by the name the author knows.
    """
    reasons: dict[str, None] = {}
    uses: dict[str, None] = {}
    writes_every_lane = False
    bodies = [function, *(one for one in module.functions if not one.is_declaration and one.name != function.name)]
    defined = {one.name for one in bodies}
    for body in bodies:
        for callee in _calls(body):
            name = callee.name
            if callee.value_kind == llvm.ValueKind.inline_asm:
                continue  # ours: the compiler plugin lets no other through
            if callee.value_kind != llvm.ValueKind.function or name in defined:
                continue
            if what := _known(name, target.launch_intrinsics):
                uses[what] = None
            elif reason := _known(name, target.refused_intrinsics):
                reasons[reason] = None
            elif "::" in name or name in LAUNCH:
                called = name.partition(".")[0] if "::" in name else LAUNCH[name].doc
                reasons[f"uses {called} in {body.name}, which cannot be inlined; pass it what it needs"] = None
            elif not name.startswith("llvm."):
                reasons[f"calls {name}, which is not defined in its module"] = None
            elif f"{name}.".startswith(_EVERY_LANE):
                writes_every_lane = True
        for name in _lds_variables(module, body):
            where = "whose size only launches tell" if body is function else f"in {body.name}, which cannot be inlined"
            reasons[f"uses LDS ({name}) {where}"] = None
    if uses:
        unavailable = "which hooks cannot have; pass it as a register argument"
        reasons = {f"uses {', '.join(uses)}, {unavailable}": None, **reasons}
    if reasons:
        raise HookError(f"hook {hook} {', and '.join(reasons)}")
    return writes_every_lane


def _lds_variables(module: llvm.ModuleRef, function: llvm.ValueRef) -> list[str]:
    variables = [one.name for one in module.global_variables if str(one.type) == "ptr addrspace(3)"]
    named = {symbol_of(name) for name in names_in(str(function)) if name.startswith("@")} if variables else ()
    return [name for name in variables if name in named]
