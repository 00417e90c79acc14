"""LLVM: reading bitcode, optimizing, and its code generators."""

from __future__ import annotations

import functools

from luthier.errors import HookError
from luthier.isa.targets import version_of
from luthier.payload.llvm import llvm

TRIPLE = "amdgcn-amd-amdhsa"


@functools.cache
def initialise_llvm() -> None:
    """Set up all of LLVM's targets, once per process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.lru_cache(maxsize=16)
def machine_for(cpu: str, features: str) -> llvm.TargetMachine:
    """Return LLVM's code generator for a processor.

    It is cached, since its set-up, above all of its legalization rules, takes as long as compiling a hook.
    """
    if version_of(cpu)[:2] == (10, 1):
        _settle_dependency_counters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, features=features, opt=2)


_WAITS_FOR_AN_SGPR = f"""
target triple = "{TRIPLE}"
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
define i32 @wait(i32 %lane) {{
  %first = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %lane)
  %more = add i32 %first, 7
  ret i32 %more
}}
"""


@functools.cache
def _settle_dependency_counters() -> None:
    """Make LLVM initialise its names of ``depctr`` counters.

    It does so once per process, for the first processor; see the function of this name in isa.cpp.
    """
    machine_for("gfx1201", "").emit_assembly(llvm.parse_assembly(_WAITS_FOR_AN_SGPR, llvm.create_context()))


def parse_bitcode(bitcode: bytes, context: llvm.ContextRef) -> llvm.ModuleRef:
    """Return a fresh module.

    Raises:
        HookError: it is not bitcode, or is from a newer LLVM than llvmlite's.
    """
    try:
        return llvm.parse_bitcode(bitcode, context)
    except RuntimeError as problem:
        raise HookError(f"cannot read the tool's bitcode with LLVM {llvm_version()}: {problem}") from problem


def llvm_version() -> str:
    """Return the version of the LLVM inside llvmlite."""
    return ".".join(str(part) for part in llvm.llvm_version_info)


def optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Run LLVM's passes on a module, in place."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
