"""Code generation, from a hook's bitcode to assembly text: link, inline, lower intrinsics, optimise, emit.

A payload is ``void payload()`` whose inputs are *markers*: opaque assembly comments ``; luthier.input N REG``, which
LLVM's register allocator completes with the register for input N, and ``; luthier.output N REG`` with the register of
result N. There is no calling convention, no stack, and no register reserved for either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from luthier.errors import HookError, ToolError, WaveSizeError
from luthier.isa.targets import Target, TargetId
from luthier.payload.allowed import check_body
from luthier.payload.arguments import Argument, EveryWorkGroup, Input, PayloadAssembly
from luthier.payload.calls import Intrinsic, Lowering, intrinsics_called, lower_calls
from luthier.payload.intrinsics import BUILT_IN
from luthier.payload.isolation import in_child, in_lasting_child
from luthier.payload.launch_state import LAUNCH, replace_size_loads
from luthier.payload.lds import NO_LDS, LdsLayout, lower_lds
from luthier.payload.llvm import llvm
from luthier.payload.machine import initialise_llvm, machine_for, optimise, parse_bitcode
from luthier.payload.markers import split_payload, with_inputs_and_outputs, without_unused_inputs
from luthier.payload.plain import PlainCount, plain_count
from luthier.payload.wrapper import wrapper_of

_ORDER = re.compile(
    r"\b(?:(?:fence|volatile|acquire|release|acq_rel|seq_cst|s_sleep)\b|s_wait(?!_alu\b)|s\.wait)|_inv|_wb"
)
"""Words in IR that may order memory accesses."""
_OBJECT_VERSION = '!"amdhsa_code_object_version", i32 '
"""The module flag that determines the layout of implicit arguments."""
_FEATURES = re.compile(r'"target-features"="([^"]*)"')
_TARGET = re.compile(r'"target-cpu"="([^"]*)"(?: "target-features"="[^"]*")?')
_CPU = re.compile(r'"target-cpu"="[^"]*"(?! "target-features")')


def _with_features(text: str, features: Sequence[str]) -> str:
    """Return a module's text with subtarget features added to all its functions."""
    if not features:
        return text
    added = ",".join(features)
    text = _CPU.sub(lambda match: f'{match[0]} "target-features"=""', text)
    return _FEATURES.sub(lambda match: f'"target-features"="{match[1]}{"," if match[1] else ""}{added}"', text)


def _retargeted(text: str, processor: str, attributes: str) -> str:
    """Return a module's text with functions for other processors retargeted to this one.

    Otherwise functions that cannot be inlined would be compiled for their original processor.
    """
    return _TARGET.sub(lambda match: match[0] if match[1] == processor else attributes, text)


def _hook_function(module: llvm.ModuleRef, hook: str) -> llvm.ValueRef:
    try:
        return module.get_function(hook)
    except NameError:
        raise HookError(f"the bitcode has no function {hook!r}") from None


def generate(
    bitcode: bytes,
    hook: str,
    arguments: Sequence[Argument],
    target: TargetId,
    wave_size: int,
    managed: frozenset[str] = frozenset(),
    intrinsics: Mapping[str, Intrinsic] = BUILT_IN,
    groups: EveryWorkGroup | None = None,
    lds: LdsLayout = NO_LDS,
) -> PayloadAssembly:
    """Compile one hook with its arguments to assembly.

    Args:
        bitcode: the tool's module for this target, as embedded by the compiler plugin.
        hook: name of the hook function.
        arguments: one per hook parameter.
        target: the target of the code.
        wave_size: lanes per wave of the kernels to instrument.
        managed: names of HIP managed variables. In the module, their symbol holds a pointer to the storage; in the
            payload, it *is* the storage.
        intrinsics: intrinsics that the hook may call, by name.
        groups: the work-groups in which it runs; None: all.
        lds: offsets of the module's LDS variables.

    Raises:
        HookError: the hook does something that a payload cannot do.
    """
    added = {name: intrinsic for name, intrinsic in intrinsics.items() if BUILT_IN.get(name) is not intrinsic}
    definitions = _definitions(intrinsics, target.target, wave_size)
    options = bitcode, hook, arguments, str(target), wave_size, managed, added, definitions, groups, lds
    if not added:
        return in_lasting_child(f"hook {hook}", _generate, *options)
    initialise_llvm()
    return in_child(lambda: _generate(*options), f"hook {hook}")  # other packages' functions may not be picklable


def _definitions(intrinsics: Mapping[str, Intrinsic], target: Target, wave_size: int) -> dict[str, str | bytes]:
    """Return name -> IR of the intrinsics that are defined as IR."""
    texts = {}
    for name, intrinsic in intrinsics.items():
        definition = intrinsic.definition
        if definition is None:
            continue
        try:
            texts[name] = definition if isinstance(definition, (str, bytes)) else definition(target, wave_size)
        except Exception as problem:  # from another package's code
            raise ToolError(
                f"intrinsic {name} of {intrinsics[name].package} cannot be defined: {problem!r}"
            ) from problem
    return texts


def _link_definitions(
    module: llvm.ModuleRef, context: llvm.ContextRef, definitions: Mapping[str, str | bytes], called: set[str]
) -> None:
    for name in sorted(called & definitions.keys()):
        text = definitions[name]
        try:
            parse = llvm.parse_assembly if isinstance(text, str) else llvm.parse_bitcode
            defined = parse(text, context)
            defined.triple, defined.data_layout = module.triple, module.data_layout
            module.link_in(defined)
        except RuntimeError as problem:
            raise HookError(f"intrinsic {name}: its definition cannot be linked as LLVM IR: {problem}") from None


def _check_wave_size(function: llvm.ValueRef, target: Target, wave_size: int) -> None:
    """Raise an error if code was built for another wave size, since its masks and ballots have another width."""
    if len(target.wave_sizes) == 1:
        return
    built_for = 64 if any(b"+wavefrontsize64" in attribute for attribute in function.attributes) else 32
    if built_for != wave_size:
        raise WaveSizeError(f"built for wave{built_for}, the kernel runs as wave{wave_size}")


def _generate(
    bitcode: bytes,
    hook: str,
    arguments: Sequence[Argument],
    target_name: str,
    wave_size: int,
    managed: frozenset[str],
    added: Mapping[str, Intrinsic],
    definitions: Mapping[str, str | bytes],
    groups: EveryWorkGroup | None,
    lds: LdsLayout,
) -> PayloadAssembly:
    initialise_llvm()
    target, intrinsics = TargetId.parse(target_name).target, {**BUILT_IN, **added}
    context = llvm.create_context()  # a new one, so that names do not depend on earlier hooks
    module = parse_bitcode(bitcode, context)
    types = _parameter_types(module, hook, arguments)
    _check_wave_size(_hook_function(module, hook), target, wave_size)
    features = ",".join(target.wave_features(wave_size))
    machine = machine_for(target.llvm_name, features)
    storage = _place_variables(module, managed)
    module.get_function(hook).linkage = "external"
    attributes = f'"target-cpu"="{target.llvm_name}"' + (f' "target-features"="{features}"' if features else "")
    wrapper, inputs = wrapper_of(module, hook, types, arguments, attributes, groups)
    module.link_in(llvm.parse_assembly(wrapper + storage, context))
    _link_definitions(module, context, definitions, intrinsics_called(function.name for function in module.functions))
    _inline_everything(module)
    optimise(module, machine)
    lowered = _lower(str(module), module, Lowering(target, wave_size), {**intrinsics, **LAUNCH}, lds, inputs)
    try:
        module = llvm.parse_assembly(_retargeted(lowered.text, target.llvm_name, attributes), context)
    except RuntimeError as problem:
        raise HookError(f"hook {hook}: cannot lower its intrinsics: {problem}") from problem
    optimise(module, machine)
    writes_every_lane = check_body(module, module.get_function("luthier.payload"), hook, target)
    text = _with_features(without_unused_inputs(str(module)), target.stack_features)
    assembly = machine.emit_assembly(llvm.parse_assembly(text, context))
    return PayloadAssembly(
        assembly,
        tuple(inputs),
        lowered.outputs,
        lowered.lowering.runs_without_lanes,
        lowered.lowering.writes_inactive_lanes or writes_every_lane,
        lowered.plain,
        _ORDER.search(text) is not None,
        lds.reserved if lowered.uses_lds else 0,
    )


def _parameter_types(module: llvm.ModuleRef, hook: str, arguments: Sequence[Argument]) -> tuple[str, ...]:
    """Return the types of the hook's parameters, and check their number."""
    types = tuple(str(argument.type) for argument in _hook_function(module, hook).arguments)
    if len(types) != len(arguments):
        raise HookError(f"hook {hook} takes {len(types)} arguments, not {len(arguments)}")
    return types


def _place_variables(module: llvm.ModuleRef, managed: frozenset[str]) -> str:
    """Make variables symbols of the patched object, so that no GOT is needed. Return IR for managed variables: in the
    module their symbols hold pointers to the storage."""
    storage = []
    for variable in module.global_variables:
        if variable.name.startswith("llvm."):
            continue
        if variable.name in managed:
            name, kind = variable.name, str(variable.global_value_type)
            variable.name = f"{name}.pointer"
            address = (
                f'@"{name}"' if kind == "ptr addrspace(1)" else f'addrspacecast (ptr addrspace(1) @"{name}" to ptr)'
            )
            storage.append(
                f'@"{name}" = external hidden addrspace(1) global i8, align 8\n'
                f'@"{name}.pointer" = hidden addrspace(1) constant {kind} {address}\n'
            )
        elif variable.is_declaration or variable.linkage == llvm.Linkage.available_externally:
            variable.visibility = "hidden"
    return "".join(storage)


def _inline_everything(module: llvm.ModuleRef) -> None:
    """Mark all functions that the payload calls for inlining, since calls would need a stack."""
    for function in module.functions:
        if not function.is_declaration and function.name != "luthier.payload":
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    module.verify()


class _Lowered(Struct, frozen=True):
    """A module after the replacement of intrinsics."""

    text: str
    outputs: tuple[int, ...]
    lowering: Lowering
    plain: PlainCount | None
    uses_lds: bool


def _lower(
    text: str,
    module: llvm.ModuleRef,
    lowering: Lowering,
    intrinsics: Mapping[str, Intrinsic],
    lds: LdsLayout,
    inputs: list[Input],
) -> _Lowered:
    """Replace intrinsics in the payload's body, and add markers of inputs and outputs around it.

    Args:
        text: text of the optimized module.
        inputs: receives the inputs that intrinsics need.
    """
    before, payload, behind = split_payload(text)
    body, start = payload, list[str]()
    _, version, rest = text.partition(_OBJECT_VERSION)
    if not version or int(rest.partition("}")[0]) >= 500:
        body, start = replace_size_loads(body, lowering)
    else:
        lowering.implicit_offset = "implicit_offset_v4"
    body = lower_calls(body, lowering, intrinsics)
    body, places = lower_lds(body, lds, lowering)
    outputs: list[int] = []
    body = with_inputs_and_outputs(body, [*start, *places], lowering, inputs, outputs)
    declared = {function.name for function in module.functions}
    missing = [
        line for line in sorted(lowering.declarations) if line.partition("@")[2].partition("(")[0] not in declared
    ]
    text = "".join([before, body, behind, *(f"{line}\n" for line in missing)])
    plain = None if inputs else plain_count(payload)
    return _Lowered(text, tuple(outputs), lowering, plain, bool(places))
