"""Refusals on all generations: instructions that are not lifted, and operations that are not allowed in hooks.

The table also has instructions that only some generations have.
"""

from __future__ import annotations

from collections.abc import Mapping

CONTROL: Mapping[str, str] = {
    "S_CBRANCH_G_FORK": "divergent fork branches keep a stack of addresses",
    "S_CBRANCH_I_FORK": "divergent fork branches keep a stack of addresses",
    "S_CBRANCH_JOIN": "divergent fork branches keep a stack of addresses",
    "S_SUBVECTOR_LOOP_BEGIN": "sub-vector loops run their body twice, with halves of EXEC",
    "S_SUBVECTOR_LOOP_END": "sub-vector loops run their body twice, with halves of EXEC",
    "S_RFE_B64": "a return from a trap handler outside a trap handler",
    "S_RFE_RESTORE_B64": "a return from a trap handler outside a trap handler",
    "S_CODE_END": "control reaches the end-of-code marker",
    "S_ALLOC_VGPR": "the number of vector registers changes while the kernel runs",
    "S_ADD_PC_I64": "a computed jump relative to the program counter",
    "S_SWAP_PC_I64": "not supported yet",
    "S_SET_PC_I64": "not supported yet",
    "V_ILLEGAL": "control reaches an illegal instruction",
    "S_ILLEGAL": "control reaches an illegal instruction",
}

LAUNCH_INTRINSICS: Mapping[str, str] = {
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

INTRINSICS: Mapping[str, str | None] = {
    "llvm.trap": "stops the program (a trap, abort or assert)",
    "llvm.debugtrap": "stops the program (a trap)",
    "llvm.ubsantrap": "stops the program (a trap of the sanitizer)",
    "llvm.amdgcn.s.barrier": "waits at a barrier",
    "llvm.amdgcn.s.cluster.barrier": "waits at a barrier",
    "llvm.amdgcn.s.get.barrier.state": "reads a barrier's state",
    "llvm.amdgcn.s.get.named.barrier.state": "reads a barrier's state",
    "llvm.amdgcn.ds.gws": "uses global wave sync",
    "llvm.amdgcn.endpgm": "ends the wave",
    "llvm.amdgcn.init.exec": "sets the execution mask",
    "llvm.amdgcn.s.alloc.vgpr": "changes the number of vector registers",
    "llvm.amdgcn.s.sendmsg": "sends a message, which only the kernel may send (printf, malloc, assert)",
    "llvm.amdgcn.s.sendmsg.rtn": None,  # only reads, e.g. clocks
    "llvm.amdgcn.s.sendmsghalt": "halts the wave",
    "llvm.amdgcn.s.sethalt": "halts the wave",
    "llvm.amdgcn.s.setreg": "writes a hardware register",
    "llvm.set.rounding": "changes the rounding mode",
    "llvm.set.fpenv": "changes the floating-point mode",
    "llvm.set.fpmode": "changes the floating-point mode",
    "llvm.reset.fpenv": "changes the floating-point mode",
    "llvm.reset.fpmode": "changes the floating-point mode",
    "llvm.returnaddress": "reads its return address",
    "llvm.addressofreturnaddress": "reads its return address",
    "llvm.frameaddress": "reads its frame address",
    "llvm.stacksave": "needs private memory of a size known only at run time",
}
