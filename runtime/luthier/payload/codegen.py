"""From a hook's bitcode to assembly text: link, inline, lower intrinsics, optimise, emit.

A payload is ``void payload()`` whose inputs are *markers*: opaque assembly comments ``; luthier.input N REG`` that
LLVM's register allocator completes with the register where it wants input N, and ``; luthier.output N REG`` that say
where it left result N. No calling convention, no stack, no registers reserved for one.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from luthier.errors import HookError, ToolError, WaveSizeError
from luthier.isa.registers import UNIT_LIMIT, is_vector
from luthier.isa.targets import Target, TargetId, version_of
from luthier.module.llvm_types import integer_bits, units_of
from luthier.payload.allowed import check_body
from luthier.payload.calls import Intrinsic, Lowering, inline_assembly, intrinsics_called, lower_calls
from luthier.payload.expressions import Expression, ExpressionInput, lower
from luthier.payload.intrinsics import BUILT_IN
from luthier.payload.isolation import in_child, in_lasting_child
from luthier.payload.launch_state import LAUNCH, STATES, replace_size_loads
from luthier.payload.lds import NO_LDS, LdsLayout, lower_lds
from luthier.payload.llvm import llvm
from luthier.payload.plain import PlainCount, plain_count

TRIPLE = "amdgcn-amd-amdhsa"


@dataclass(frozen=True)
class ConstantArgument:
    """A hook argument fixed at instrumentation time, as an LLVM constant of the parameter's type."""

    text: str


@dataclass(frozen=True)
class RegisterArgument:
    """A hook argument read from registers where the payload runs; which registers is decided at each point."""

    uniform: bool
    """In scalar registers: one value a wave. Otherwise in vector registers: one a lane."""


@dataclass(frozen=True)
class LaunchArgument:
    """A hook argument that is part of what the kernel got at launch."""

    intrinsic: str
    """LLVM's intrinsic for it: one that gives an ``i32``, or the pointer to the kernel's arguments."""
    offset: int | None = None
    """Of a kernel argument, in bytes."""


@dataclass(frozen=True)
class ComputedArgument:
    """A hook argument computed where the payload runs; from which registers is decided at each point."""

    expression: Expression


@dataclass(frozen=True)
class EveryWorkGroup:
    """A payload that runs in some work-groups only: those whose x and y together, modulo `every`, are `first`. (A
    kernel of GFX12 may have y without z, and then hooks cannot have z.)"""

    every: int
    first: int = 0


Argument = ConstantArgument | RegisterArgument | LaunchArgument | ComputedArgument


@dataclass(frozen=True)
class Input:
    """A 32-bit value the payload takes from the application."""

    uniform: bool
    argument: int | None
    """Index of the hook argument it is part of, or None for a state or a fixed register."""
    unit: int
    """Which 32-bit part of that argument or state, which input of an argument that is computed, or the fixed register
    unit that the hook itself reads."""
    state: str = ""
    """Name of the launch state it is part of (`luthier.payload.launch_state.STATES`), or empty."""
    immediate: bool = False
    """It is no register but a number of the point's own."""


@dataclass(frozen=True)
class PayloadAssembly:
    """A payload as assembly text, with what its markers mean."""

    text: str
    inputs: tuple[Input, ...]
    outputs: tuple[int, ...]
    """Register unit that output N is written to."""
    runs_without_lanes: bool
    writes_inactive_lanes: bool
    plain: PlainCount | None = None
    """What it counts, if it does nothing else."""
    ordered: bool = False
    """The hook asks for an order of memory accesses, so its waits may be there for that."""
    lds: int = 0
    """Bytes of LDS that a work-group needs more, for all that the hook's module has there; 0 if it uses none."""


@functools.cache
def _initialise_llvm() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.lru_cache(maxsize=16)
def _machine(cpu: str, features: str) -> llvm.TargetMachine:
    """LLVM's code generator for a processor. What it makes of that at first, its rules of legalization above all, takes
    as long as compiling a hook; it keeps that, but nothing of what it has compiled."""
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
    """LLVM finds what waits for ``depctr`` counters do not name once a process, for the processor that comes first; see
    the function of this name in isa.cpp."""
    _machine("gfx1201", "").emit_assembly(llvm.parse_assembly(_WAITS_FOR_AN_SGPR, llvm.create_context()))


def parse_bitcode(bitcode: bytes, context: llvm.ContextRef) -> llvm.ModuleRef:
    """A fresh module.

    Raises:
        HookError: not bitcode, or of an LLVM newer than llvmlite's.
    """
    try:
        return llvm.parse_bitcode(bitcode, context)
    except RuntimeError as problem:
        raise HookError(f"cannot read the tool's bitcode with LLVM {llvm_version()}: {problem}") from problem


def text_of(bitcode: bytes) -> str:
    """A module's IR.

    Raises:
        HookError: as of `parse_bitcode`.
    """
    return str(parse_bitcode(bitcode, llvm.create_context()))


def llvm_version() -> str:
    """Version of the LLVM inside llvmlite."""
    return ".".join(str(part) for part in llvm.llvm_version_info)


def _join(kind: str, parts: Sequence[str], result: str) -> list[str]:
    """IR that makes a value of type `kind` from 32-bit parts, low part first."""
    if len(parts) == 1:
        if kind == "i32":
            return [f"{result} = add i32 {parts[0]}, 0"]
        if kind in ("i1", "i8", "i16"):
            return [f"{result} = trunc i32 {parts[0]} to {kind}"]
        if kind in ("half", "bfloat"):
            return [f"{result}.bits = trunc i32 {parts[0]} to i16", f"{result} = bitcast i16 {result}.bits to {kind}"]
        return [f"{result} = {'inttoptr' if kind.startswith('ptr') else 'bitcast'} i32 {parts[0]} to {kind}"]
    vector = f"<{len(parts)} x i32>"
    lines, value = [], "poison"
    for index, part in enumerate(parts):
        name = f"{result}.{index}"
        lines.append(f"{name} = insertelement {vector} {value}, i32 {part}, i32 {index}")
        value = name
    if kind.startswith("ptr"):
        lines.append(f"{result}.bits = bitcast {vector} {value} to i64")
        lines.append(f"{result} = inttoptr i64 {result}.bits to {kind}")
    else:
        lines.append(f"{result} = bitcast {vector} {value} to {kind}")
    return lines


def _input(index: int, uniform: bool, result: str) -> str:
    return inline_assembly(result, "i32", [f"; luthier.input {index} $0"], "=s" if uniform else "=v", "")


def _launch_type(argument: LaunchArgument) -> str:
    return "i32" if argument.offset is None else "ptr addrspace(4)"


def _launch_value(argument: LaunchArgument, kind: str, result: str) -> list[str]:
    """IR of launch state as a value of a parameter's type."""
    lines = [f"{result}.state = call {_launch_type(argument)} @{argument.intrinsic}()"]
    if argument.offset is not None:
        align = argument.offset & -argument.offset or 16
        place = f"{result}.place = getelementptr i8, ptr addrspace(4) {result}.state, i64 {argument.offset}"
        memory = "i8" if kind == "i1" else kind
        load = f"load {memory}, ptr addrspace(4) {result}.place, align {min(align, 16)}"
        if kind != "i1":
            return [*lines, place, f"{result} = {load}"]
        return [*lines, place, f"{result}.byte = {load}", f"{result} = trunc i8 {result}.byte to i1"]
    bits = integer_bits(kind)
    convert = "add" if bits == 32 else "zext" if bits > 32 else "trunc"
    return [*lines, f"{result} = {convert} i32 {result}.state" + (", 0" if bits == 32 else f" to {kind}")]


def _computed(expression: Expression, position: int, inputs: list[Input]) -> tuple[list[str], str]:
    """IR of an argument that is computed, and its value."""
    markers = []

    def value_of(leaf: ExpressionInput) -> str:
        markers.append(_input(len(inputs), leaf.kind != "lane", f"%in.{len(inputs)}"))
        inputs.append(Input(leaf.kind != "lane", position, leaf.number, immediate=leaf.kind == "immediate"))
        return f"%in.{len(inputs) - 1}"

    lines, value = lower(expression, value_of, f"%computed.{position}")
    return markers + lines, value


def _typed(value: str, bits: int, kind: str, result: str) -> list[str]:
    """IR of an integer as a value of a parameter's type: wider integers are extended by zeros."""
    wanted = integer_bits(kind)
    if wanted > bits:
        return [f"{result} = zext i{bits} {value} to {kind}"]
    if wanted == bits:
        return [f"{result} = or {kind} {value}, 0"]
    return [f"{result} = {'inttoptr' if kind.startswith('ptr') else 'bitcast'} i{bits} {value} to {kind}"]


_WORK_GROUP_IDS = tuple(f"llvm.amdgcn.workgroup.id.{axis}" for axis in "xy")


def _only_in(groups: EveryWorkGroup, lines: Sequence[str]) -> list[str]:
    """IR that runs `lines` in some work-groups."""
    ids = [f"%group.{axis} = call i32 @{name}()" for axis, name in zip("xy", _WORK_GROUP_IDS, strict=True)]
    return [
        *ids,
        "%group = add i32 %group.x, %group.y",
        f"%group.rest = urem i32 %group, {groups.every}",
        f"%group.chosen = icmp eq i32 %group.rest, {groups.first}",
        "br i1 %group.chosen, label %run, label %done",
        "run:",
        *lines,
        "br label %done",
        "done:",
    ]


def _wrapper(
    module: llvm.ModuleRef,
    hook: str,
    types: Sequence[str],
    arguments: Sequence[Argument],
    attributes: str,
    groups: EveryWorkGroup | None,
) -> tuple[str, list[Input]]:
    inputs: list[Input] = []
    lines: list[str] = []
    values: list[str] = []
    declared = {(name, "i32") for name in (_WORK_GROUP_IDS if groups is not None else ())}
    for position, (kind, argument) in enumerate(zip(types, arguments, strict=True)):
        if isinstance(argument, ConstantArgument):
            values.append(f"{kind} {argument.text}")
            continue
        if isinstance(argument, LaunchArgument):
            lines += _launch_value(argument, kind, f"%argument.{position}")
            declared.add((argument.intrinsic, _launch_type(argument)))
            values.append(f"{kind} %argument.{position}")
            continue
        if isinstance(argument, ComputedArgument):
            computed, value = _computed(argument.expression, position, inputs)
            lines += [*computed, *_typed(value, argument.expression.bits, kind, f"%argument.{position}")]
            values.append(f"{kind} %argument.{position}")
            continue
        parts = []
        for part in range(units_of(kind)):
            parts.append(f"%in.{len(inputs)}")
            lines.append(_input(len(inputs), argument.uniform, parts[-1]))
            inputs.append(Input(argument.uniform, position, part))
        lines += _join(kind, parts, f"%argument.{position}")
        values.append(f"{kind} %argument.{position}")
    call = [f'call void @"{hook}"({", ".join(values)})']
    body = "\n  ".join([*lines, *(call if groups is None else _only_in(groups, call)), "ret void"])
    declarations = "\n".join(sorted(f"declare {kind} @{name}()" for name, kind in declared))
    text = f"""
target datalayout = "{module.data_layout}"
target triple = "{TRIPLE}"
declare void @"{hook}"({", ".join(types)})
{declarations}
define void @luthier.payload() #0 {{
  {body}
}}
attributes #0 = {{ norecurse nounwind convergent {attributes} }}
"""
    return text, inputs


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)


_LABEL_OF_ENTRY = re.compile(r'("[^"\n]*"|[\w.$-]+):[^\n]*\n')
_FUNCTION = re.compile(r"^define [^\n]*@luthier\.payload\([^\n]*\n(.*?)^}\n", re.MULTILINE | re.DOTALL)


def _payload_body(text: str) -> re.Match[str]:
    match = _FUNCTION.search(text)
    if match is None:
        raise HookError("LLVM dropped the payload function")
    return match


def _with_inputs_and_outputs(
    body: str, start: Sequence[str], lowering: Lowering, inputs: list[Input], outputs: list[int]
) -> str:
    """Surround a lowered body with the launch state's markers, the IR `start`, the register array's set-up and the
    outputs' markers.

    All outputs are operands of one piece of assembly, so that they are in registers at the same time. Each lane has an
    array of its own; of a scalar register, what the first lane has there is the result.
    """
    entry = []
    for (state, part), value in sorted(lowering.states.items()):
        uniform = STATES[state].uniform
        entry.append("  " + _input(len(inputs), uniform, value))
        inputs.append(Input(uniform, None, part, state))
    entry += [*start, f"  %luthier.registers = alloca [{UNIT_LIMIT} x i32], align 8, addrspace(5)"]
    for unit in sorted(lowering.read | lowering.written):
        value, pointer = lowering.fresh(), lowering.fresh()
        entry += [
            "  " + _input(len(inputs), not is_vector(unit), value),
            f"  {pointer} = getelementptr i32, ptr addrspace(5) %luthier.registers, i32 {unit}",
            f"  store i32 {value}, ptr addrspace(5) {pointer}, align 4",
        ]
        inputs.append(Input(not is_vector(unit), None, unit))
    leave: list[str] = []
    markers: list[str] = []
    constraints: list[str] = []
    operands: list[str] = []
    for unit in sorted(lowering.written):
        value, pointer = lowering.fresh(), lowering.fresh()
        leave += [
            f"  {pointer} = getelementptr i32, ptr addrspace(5) %luthier.registers, i32 {unit}",
            f"  {value} = load i32, ptr addrspace(5) {pointer}, align 4",
        ]
        if not is_vector(unit):
            chosen = lowering.fresh()
            leave.append("  " + lowering.call(chosen, "i32", "llvm.amdgcn.readfirstlane.i32", ("i32", value)))
            value = chosen
        markers.append(f"; luthier.output {len(outputs)} ${len(operands)}")
        constraints.append("v" if is_vector(unit) else "s")
        operands.append(f"i32 {value}")
        outputs.append(unit)
    if markers:
        source = "\\0A".join(markers)
        leave.append(f'  call void asm sideeffect "{source}", "{",".join(constraints)}"({", ".join(operands)})')
    returns = body.count("\n  ret void")
    if leave and returns != 1:
        raise HookError("a hook that writes registers must have one way out")
    label = _LABEL_OF_ENTRY.match(body)  # where optimization gave the first block one
    first = label.end() if label else 0
    return (
        body[:first]
        + "\n".join(entry)
        + "\n"
        + body[first:].replace("\n  ret void", "\n" + "\n".join([*leave, "  ret void"]))
    )


_ORDER = re.compile(
    r"\b(fence|volatile|acquire|release|acq_rel|seq_cst|s_wait(?!_alu\b)\w*|s_sleep|s\.wait[\w.]*|\w*(_inv|_wb)\w*)\b"
)
"""Words in IR that may ask for an order of memory accesses."""
_OBJECT_VERSION = re.compile(r'!"amdhsa_code_object_version", i32 (\d+)')
"""The module flag that says which layout of implicit arguments code was compiled for."""
_INPUT_MARKER = re.compile(r'^ *(%[\w.]+) = (?:tail )?call i32 asm sideeffect "; luthier\.input [^\n]*\n', re.MULTILINE)


def _without_unused_inputs(text: str) -> str:
    """A module's text without the markers of inputs that optimization found no use for."""
    body = _payload_body(text)
    uses = Counter(re.findall(r"%[\w.]+", body[1]))
    kept = _INPUT_MARKER.sub(lambda marker: marker[0] if uses[marker[1]] > 1 else "", body[1])
    return text[: body.start(1)] + kept + text[body.end(1) :]


_FEATURES = re.compile(r'"target-features"="([^"]*)"')
_CPU = re.compile(r'"target-cpu"="[^"]*"(?! "target-features")')


def _with_features(text: str, features: Sequence[str]) -> str:
    """A module's text with subtarget features added to all of its functions."""
    if not features:
        return text
    added = ",".join(features)
    text = _CPU.sub(lambda match: f'{match[0]} "target-features"=""', text)
    return _FEATURES.sub(lambda match: f'"target-features"="{match[1]}{"," if match[1] else ""}{added}"', text)


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
        bitcode: the tool's module for this target, as the compiler plugin embedded it.
        hook: name of the hook function.
        arguments: one an hook parameter.
        target: what to generate for.
        wave_size: lanes a wave of the kernels it goes into.
        managed: names of HIP managed variables; in the module their symbol holds a pointer to the storage, here it
            *is* the storage.
        intrinsics: those that the hook may call, by name.
        groups: the work-groups that it runs in; None: all.
        lds: where the module's LDS variables are.

    Raises:
        HookError: anything the hook does that a payload cannot.
    """
    added = {name: intrinsic for name, intrinsic in intrinsics.items() if BUILT_IN.get(name) is not intrinsic}
    definitions = _definitions(intrinsics, target.target, wave_size)
    given = bitcode, hook, arguments, str(target), wave_size, managed, added, definitions, groups, lds
    if not added:
        return in_lasting_child(f"hook {hook}", _generate, *given)
    _initialise_llvm()
    return in_child(lambda: _generate(*given), f"hook {hook}")  # another package's functions may not bear pickling


def _definitions(intrinsics: Mapping[str, Intrinsic], target: Target, wave_size: int) -> dict[str, str | bytes]:
    """Name -> IR of those intrinsics that are given as IR."""
    given = {name: intrinsic.definition for name, intrinsic in intrinsics.items() if intrinsic.definition is not None}
    texts = {}
    for name, definition in given.items():
        try:
            texts[name] = definition if isinstance(definition, (str, bytes)) else definition(target, wave_size)
        except Exception as problem:  # whatever a stranger's code raises
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
            raise HookError(f"intrinsic {name}: its definition is no LLVM IR that can be linked: {problem}") from None


def _check_wave_size(function: llvm.ValueRef, target: Target, wave_size: int) -> None:
    """Code built for one wave size means something else under the other: masks and ballots have its width."""
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
    _initialise_llvm()
    target, intrinsics = TargetId.parse(target_name), {**BUILT_IN, **added}
    context = llvm.create_context()  # nothing is called otherwise because another hook was compiled before
    module = parse_bitcode(bitcode, context)
    types = tuple(str(argument.type) for argument in _hook_function(module, hook).arguments)
    if len(types) != len(arguments):
        raise HookError(f"hook {hook} takes {len(types)} arguments, {len(arguments)} given")
    _check_wave_size(_hook_function(module, hook), target.target, wave_size)
    cpu, features = target.target.name, ",".join(target.target.wave_features(wave_size))
    machine = _machine(cpu, features)
    attributes = f'"target-cpu"="{cpu}"' + (f' "target-features"="{features}"' if features else "")

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
            variable.visibility = "hidden"  # defined in the object that the payload goes into: no GOT
    module.get_function(hook).linkage = "external"

    text, inputs = _wrapper(module, hook, types, arguments, attributes, groups)
    wrapper = llvm.parse_assembly(text + "".join(storage), context)
    module.link_in(wrapper)
    _link_definitions(module, context, definitions, intrinsics_called(function.name for function in module.functions))
    for function in module.functions:
        if not function.is_declaration and function.name != "luthier.payload":
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
    module.verify()
    _optimise(module, machine)

    text = str(module)
    match = _payload_body(text)
    lowering = Lowering(target.target, wave_size)
    outputs: list[int] = []
    body = match[1]
    start: list[str] = []
    version = _OBJECT_VERSION.search(text)
    if version is None or int(version[1]) >= 500:
        body, start = replace_size_loads(body, lowering)
    else:
        lowering.implicit_offset = "implicit_offset_v4"
    body = lower_calls(body, lowering, {**intrinsics, **LAUNCH})
    body, places = lower_lds(body, lds, lowering)
    body = _with_inputs_and_outputs(body, [*start, *places], lowering, inputs, outputs)
    known = {function.name for function in module.functions}
    missing = [line for line in sorted(lowering.declarations) if line.partition("@")[2].partition("(")[0] not in known]
    text = text[: match.start(1)] + body + text[match.end(1) :] + "\n".join(missing) + "\n"
    try:
        module = llvm.parse_assembly(text, context)
    except RuntimeError as problem:
        raise HookError(f"hook {hook}: cannot lower its intrinsics: {problem}") from problem
    _optimise(module, machine)
    writes_every_lane = check_body(module, module.get_function("luthier.payload"), hook)
    text = _with_features(_without_unused_inputs(str(module)), target.target.stack_features)
    assembly = machine.emit_assembly(llvm.parse_assembly(text, context))
    return PayloadAssembly(
        assembly,
        tuple(inputs),
        tuple(outputs),
        lowering.runs_without_lanes,
        lowering.writes_inactive_lanes or writes_every_lane,
        None if inputs else plain_count(match[1]),
        _ORDER.search(text) is not None,
        lds.reserved if places else 0,
    )
