"""What a hook may contain, decided on its IR after optimization: what is left there is what would be generated.

Registers in generated code decide nothing: LLVM reads undefined ones (wide multiplies with an undefined half), and
knows that EXEC hides lanes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from luthier.errors import HookError
from luthier.payload.launch_state import LAUNCH
from luthier.payload.llvm import llvm

_NO_STATE: Mapping[str, str] = {
    **{
        f"llvm.amdgcn.cluster.{part}.{axis}": f"the {what} in dimension {axis}"
        for part, what in (
            ("id", "cluster id"),
            ("workgroup.id", "work-group id in the cluster"),
            ("workgroup.max.id", "cluster size"),
        )
        for axis in "xyz"
    },
    "llvm.amdgcn.cluster.workgroup.flat.id": "the work-group id in the cluster",
    "llvm.amdgcn.cluster.workgroup.max.flat.id": "the cluster size",
    "llvm.amdgcn.implicit.buffer.ptr": "the implicit buffer",
    "llvm.amdgcn.lds.kernel.id": "the kernel's LDS id",
}
"""LLVM intrinsic -> what it is to the author of a hook. These are what a kernel gets at launch and hooks do not: all of
LLVM's "Kernel Prolog" inputs (AMDGPUUsage) that a function can ask for but those in `launch_state`."""

_NEVER: Mapping[str, str | None] = {
    "llvm.trap": "stops the program (a trap, abort or assert)",
    "llvm.debugtrap": "stops the program (a trap)",
    "llvm.ubsantrap": "stops the program (a trap of the sanitizer)",
    "llvm.amdgcn.s.barrier": "waits at a barrier",
    "llvm.amdgcn.s.cluster.barrier": "waits at a barrier",
    "llvm.amdgcn.s.get.barrier.state": "asks for a barrier's state",
    "llvm.amdgcn.s.get.named.barrier.state": "asks for a barrier's state",
    "llvm.amdgcn.ds.gws": "uses global wave sync",
    "llvm.amdgcn.endpgm": "ends the wave",
    "llvm.amdgcn.init.exec": "sets the execution mask",
    "llvm.amdgcn.s.alloc.vgpr": "changes the number of vector registers",
    "llvm.amdgcn.s.sendmsg": "sends a message that is the kernel's to send (printf, malloc, assert)",
    "llvm.amdgcn.s.sendmsg.rtn": None,  # asks, changes nothing: clocks
    "llvm.amdgcn.s.sendmsghalt": "halts the wave",
    "llvm.amdgcn.s.sethalt": "halts the wave",
    "llvm.amdgcn.s.setreg": "writes a hardware register",
    "llvm.set.rounding": "changes the rounding mode",
    "llvm.set.fpenv": "changes the floating-point mode",
    "llvm.set.fpmode": "changes the floating-point mode",
    "llvm.reset.fpenv": "changes the floating-point mode",
    "llvm.reset.fpmode": "changes the floating-point mode",
    "llvm.returnaddress": "asks where it was called from",
    "llvm.addressofreturnaddress": "asks where it was called from",
    "llvm.frameaddress": "asks for its frame",
    "llvm.stacksave": "needs private memory of a size known only when it runs",
}
"""Intrinsic, without the types it is overloaded by -> what it does that no hook may; the longest name decides."""

_EVERY_LANE = re.compile(r"llvm\.amdgcn\.(?:writelane|mfma|smfmac|wmma|swmmac)\b")
"""Intrinsics that write vector registers in lanes that are not active."""


def _known(name: str, table: Mapping[str, str | None]) -> str | None:
    """The entry for an intrinsic, whatever types its name ends with."""
    while name:
        if name in table:
            return table[name]
        name = name.rpartition(".")[0]
    return None


def _calls(function: llvm.ValueRef) -> Iterator[llvm.ValueRef]:
    """What a function calls, once for each call."""
    for block in function.blocks:
        for instruction in block.instructions:
            if instruction.opcode == "call":
                *_, callee = instruction.operands
                yield callee


def check_body(module: llvm.ModuleRef, function: llvm.ValueRef, hook: str) -> bool:
    """Refuse what a payload cannot do.

    Args:
        module: after the last optimization.
        function: the payload in it, with everything inlined that can be.
        hook: what errors call it.

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
            if what := _known(name, _NO_STATE):
                uses[what] = None
            elif reason := _known(name, _NEVER):
                reasons[reason] = None
            elif "::" in name or name in LAUNCH:
                called = name.partition(".")[0] if "::" in name else LAUNCH[name].doc
                reasons[f"uses {called} in {body.name}, which cannot be inlined; pass it what it needs"] = None
            elif not name.startswith("llvm."):
                reasons[f"calls {name}, which is not defined in its module"] = None
            elif _EVERY_LANE.match(name):
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
    body = str(function)
    return [
        variable.name
        for variable in module.global_variables
        if str(variable.type) == "ptr addrspace(3)" and re.search(rf'@"?{re.escape(variable.name)}(?![\w.$])', body)
    ]
