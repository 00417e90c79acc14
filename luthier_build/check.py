"""Check at build time that every hook of a device module can be spliced into a kernel.

For each target, a hook is compiled as for a kernel in which every register is free, with all arguments in registers.
If the hook needs constants (for example a register number), it is compiled with constants. Hooks are compiled in child
processes, so that a crash of LLVM cannot end the build.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from luthier.errors import BuildError, ConstantError, LuthierError
from luthier.isa import Isa
from luthier.isa.registers import SGPRS, VGPRS
from luthier.isa.targets import TargetId
from luthier.lifting import Live
from luthier.module import Hook, ToolModule
from luthier.patch.payloads.emission import emit
from luthier.patch.registers.allocation import bind
from luthier.patch.registers.binding import RegisterBudget
from luthier.payload import Argument, ConstantArgument, Input, RegisterArgument
from luthier.payload.cache import template_for

from luthier_build.jobs import run_all


def check_objects(objects: Mapping[str, Path], jobs: int = 0) -> None:
    """Check the hooks in one module's code objects (target -> path), several at once.

    Raises:
        BuildError: one line for each reason why a hook cannot be spliced, with its source location and targets.
    """
    work = [functools.partial(_problems_of_object, path, TargetId.parse(target)) for target, path in objects.items()]
    raise_problems(dict(zip(objects, run_all(work, jobs), strict=True)))


def raise_problems(problems_by_target: Mapping[str, Iterable[str]]) -> None:
    """Raise a `BuildError` if there are problems (target -> texts); a problem that several targets share is listed
    once."""
    targets: dict[str, list[str]] = {}
    for target, problems in problems_by_target.items():
        for problem in problems:
            targets.setdefault(problem, []).append(target)
    if targets:
        raise BuildError("\n".join(f"{problem} ({', '.join(where)})" for problem, where in targets.items()))


def problems_of_module(module: ToolModule, target: TargetId) -> list[str]:
    """Return the reasons why hooks of a module cannot be spliced, each with the hook's source location.

    Hooks that the target does not have are left out.
    """
    hooks = (module.hooks[hook.symbol] for hook in module.contents_for(target).hooks)
    return [problem for hook in hooks for problem in _problems_of_hook(hook, target)]


def _problems_of_object(path: Path, target: TargetId) -> list[str]:
    return problems_of_module(ToolModule.load(path), target)


def _problems_of_hook(hook: Hook, target: TargetId) -> Iterator[str]:
    in_memory = [parameter for parameter in hook.parameters if parameter.in_memory]
    for parameter in in_memory:
        place = f"{hook.location}: " if hook.location else ""
        name = f" {parameter.name!r}" if parameter.name else ""
        yield (
            f"{place}parameter{name} of hook {hook.name} is passed in memory: use numbers, pointers or vectors instead "
            "of structures"
        )
    if in_memory:
        return
    try:
        _splice(hook, target)
    except LuthierError as problem:
        yield problem.message


def _splice(hook: Hook, target: TargetId) -> None:
    for wave_size in hook.module.contents_for(target).wave_sizes:
        try:
            _splice_anyhow(hook, target, wave_size)
        except LuthierError as problem:
            if wave_size != target.target.default_wave_size:
                problem.message += (
                    f" (in wave{wave_size} kernels; to build no hooks for these, define LUTHIER_ONE_WAVE_SIZE before "
                    "including luthier.h)"
                )
            raise


def _splice_anyhow(hook: Hook, target: TargetId, wave_size: int) -> None:
    registers = tuple(RegisterArgument(uniform=False) for _ in hook.parameters)
    constants = tuple(ConstantArgument("zeroinitializer") for _ in hook.parameters)
    try:
        _splice_with(hook, registers, target, wave_size)
    except ConstantError:
        if not constants:
            raise
        _splice_with(hook, constants, target, wave_size)


def _source_of(source: Input, number: int) -> int:
    """Return a register that can hold an input: the register that the hook names, otherwise any SGPR for a uniform
    value or any VGPR."""
    if source.argument is None and not source.state:
        return source.unit
    return (SGPRS if source.uniform else VGPRS).start + number


def _splice_with(hook: Hook, arguments: tuple[Argument, ...], target: TargetId, wave_size: int) -> None:
    template = template_for(hook, arguments, target, wave_size)
    sources = tuple(_source_of(taken.source, number) for number, taken in enumerate(template.inputs))
    sgprs, vgprs = target.target.sgpr_limit, target.target.named_vgprs
    binding = bind(template, sources, Live(0, 0), RegisterBudget(sgprs, vgprs, sgprs, vgprs), wave_size)
    if binding is None:
        place = f"{hook.location}: " if hook.location else ""
        raise BuildError(f"{place}hook {hook.name} needs more than the {sgprs} SGPRs and {vgprs} VGPRs of a kernel")
    emit(Isa.of(target, wave_size), template, binding)
