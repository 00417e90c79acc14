"""Scopes at which float atomics work on fine-grained memory, compared with LLVM's choice of instructions."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
from luthier.arch.targets import TARGETS
from luthier.findings.unsafe_atomics import is_unsafe
from luthier.isa.access_kinds import is_float_atomic

OPERATIONS = [
    ("fadd", "float"),
    ("fadd", "double"),
    ("fadd", "<2 x half>"),
    ("fadd", "<2 x bfloat>"),
    ("fmin", "float"),
    ("fmax", "double"),
]
SCOPES = {"agent": 'syncscope("agent")', "system": ""}
PROMISE = "!amdgpu.no.fine.grained.memory !0, "
PROCESSORS = [name for name, target in TARGETS.items() if "generic" not in name]


def atomic_of(processor: str, operation: tuple[str, str], scope: str, promise: str) -> str:
    """Return the atomic instruction that LLVM chooses, given a promise about the memory."""
    name, type = operation
    module = llvm.parse_assembly(
        f"""target triple = "amdgcn-amd-amdhsa"
        define void @f(ptr addrspace(1) %p, {type} %v) {{
          %old = atomicrmw {name} ptr addrspace(1) %p, {type} %v {SCOPES[scope]} monotonic, {promise}
                           !amdgpu.ignore.denormal.mode !0
          ret void
        }}
        !0 = !{{}}"""
    )
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=processor)
    (atomic,) = re.findall(r"^\s+((?:global|flat|buffer)_atomic_.*)", machine.emit_assembly(module), re.MULTILINE)
    return str(atomic)


@pytest.mark.parametrize(("operation", "count"), [*zip(OPERATIONS, (16, 5, 8, 6, 23, 16), strict=True)])
def test_llvm_knows_the_promise(operation: tuple[str, str], count: int) -> None:
    """So many processors have an instruction for the operation."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    atomics = [atomic_of(processor, operation, "agent", PROMISE) for processor in PROCESSORS]
    assert sum("cmpswap" not in atomic for atomic in atomics) == count


@pytest.mark.rows(6)
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("operation", OPERATIONS, ids=" of ".join)
@pytest.mark.parametrize("scope", SCOPES)
def test_llvm(processor: str, operation: tuple[str, str], scope: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = TARGETS[processor]
    promised, careful = (atomic_of(processor, operation, scope, promise) for promise in (PROMISE, ""))
    if "cmpswap" in promised:  # there is no instruction
        return
    assert is_float_atomic(promised.split()[0])
    works = scope == target.fine_grained_scope or target.fine_grained_scope == "system"
    assert ("cmpswap" not in careful) is works
    assert is_unsafe(target, promised) is not works
