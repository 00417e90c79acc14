"""Compilation of variants to host machine code with llvmlite. Imported only when something must be compiled."""

from __future__ import annotations

import functools
import queue
from collections.abc import Sequence

import llvmlite.binding as llvm
from llvmlite import ir

from luthier.emulator.ir.declare import Unsupported
from luthier.emulator.ir.variant import FusedKey, Variant
from luthier.emulator.native.emit import emit
from luthier.emulator.native.fused import emit_run
from luthier.emulator.native.nativecode import link
from luthier.emulator.native.processor import processor
from luthier.support.threads import Worker

_BATCH = 48
"""Number of variants in one image."""


@functools.cache
def _target() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = processor()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=host.name,
        features=",".join([*host.features, "-prefer-256-bit", "-vzeroupper"]),
        opt=2,
        reloc="pic",
        codemodel="small",
    )


def compile_variants(variants: Sequence[Variant | FusedKey]) -> tuple[list[bytes], dict[str, str]]:
    """Return images with the functions of variants and runs, and the reasons for missing functions by symbol.

    While LLVM compiles one batch on another thread, the next one is generated.

    Raises:
        Exception: raised by a semantic function; a note names the variant.
    """
    refusals: dict[str, str] = {}
    modules: queue.SimpleQueue[ir.Module | None] = queue.SimpleQueue()
    images: list[bytes] = []
    problems: list[BaseException] = []

    def compile_modules() -> None:
        try:
            while (module := modules.get()) is not None:
                images.append(_image(module))
        except BaseException as problem:
            problems.append(problem)

    compiler = Worker(compile_modules)
    try:
        for start in range(0, len(variants), _BATCH):
            modules.put(_module(variants[start : start + _BATCH], refusals))
    finally:
        modules.put(None)
        compiler.join()
    if problems:
        raise problems[0]
    return images, refusals


def _module(variants: Sequence[Variant | FusedKey], refusals: dict[str, str]) -> ir.Module:
    """Return a module with the variants' functions; add the reasons for refused variants to `refusals`."""
    while True:
        module = ir.Module("operations")
        for variant in variants:
            if variant.symbol in refusals:
                continue
            try:
                emit_run(module, variant) if isinstance(variant, FusedKey) else emit(module, variant)
            except Unsupported as problem:  # the module holds a partial function: begin again without it
                refusals[variant.symbol] = str(problem)
                break
            except Exception as problem:
                problem.add_note(f"while generating {variant}") if hasattr(problem, "add_note") else None
                raise
        else:
            return module


def _image(module: ir.Module) -> bytes:
    """Return the linked machine code of a module."""
    module.triple = llvm.get_process_triple()
    return link(_target().emit_object(llvm.parse_assembly(str(module))))
