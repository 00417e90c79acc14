"""Verification of original and patched kernel on the emulated device: every output byte must be equal, and every
counter must equal the emulator's count."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.devices import open_device
from luthier.devices.in_process import reported
from luthier.emulator import CheckWarning, DeviceBuffer, EmulatedDevice, LaunchStats, Module
from luthier.emulator.running.execution import QUANTUM
from luthier.emulator.running.launch import Turns
from luthier.emulator.running.start import DYNAMIC_STACK
from luthier.emulator.running.stats import AddressCounts
from luthier.errors import EmulationError, LiftError, LuthierError, VerifyError
from luthier.findings.finding import Finding
from luthier.hazards.wait_states import HazardReport, check_hazards
from luthier.lifting import lift
from luthier.objects import CodeObject, Symbol, load_object
from luthier.patch import KernelReport, PatchedObject, RefusedError
from luthier.patch.output.object import patch_object_with
from luthier.support.table import Table
from luthier.support.wording import enumerated
from luthier.tool import ExecutionCounts, TaskShare, Tool, ToolGroup
from luthier.tool.counts import KernelCounts
from luthier.tool.options import PatchOptions
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import LaunchPlan, StructureArgument, default_plan
from luthier.verify.skeleton import structures_in


class KernelVerdict(Struct, frozen=True):
    """Result of verifying one kernel.

    If `problems` is empty, original and patched kernel are equal in this launch.
    """

    kernel: str
    target: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    compared_bytes: int
    """Bytes of arguments and variables compared after the launch."""
    counters: Mapping[str, int]
    """Tool variables after the patched launch: those of at most 8 bytes, and the `expected` ones."""
    expected: Mapping[str, int]
    """Values that the variables must have, from the emulator's own counts."""
    instructions: tuple[int, int]
    """Wave-instructions executed, original and patched."""
    not_lifted: int
    """Wave-instructions of the original in code that was not lifted, reached by calls with unknown targets: not
    instrumented and not counted."""
    refused: int
    """Wave-instructions of the original at sites whose hooks were refused: these hooks do not count them."""
    patch: KernelReport | None
    """None: nothing was inserted."""
    problems: tuple[str, ...]
    counted: int = 0
    """Instructions whose executions or active lanes are known from counters and were compared with the emulator's
    counts; both kinds added up."""
    tables: tuple[Table, ...] = ()
    """Tables that tools report."""
    missing_waits: tuple[str, ...] = ()
    """Uses in the original of registers of operations that may not have completed. If there are any, both ran without
    late results."""
    hazards: tuple[str, ...] = ()
    """Hazards of the original, on any path or met by the launch; also a note if the patched kernel could not be lifted
    again and was checked in this launch only. Hazards of the patched kernel alone are `problems`."""
    races: tuple[str, ...] = ()
    """Differences of the original from itself when its waves run in another order, and how both were then compared."""

    made_up: tuple[str, ...] = ()
    """Arguments that are not numbers but got made-up numbers, since there was no plan."""

    @property
    def equal(self) -> bool:
        """Return whether everything that was compared is equal.

        `not_lifted` and `refused` tell what was not compared.
        """
        return not self.problems

    @property
    def complete(self) -> bool:
        """Return whether every requested hook was inserted, and every executed instruction is in the counts."""
        return not self.not_lifted and not self.refused

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return {**msgspec.to_builtins(self), "equal": self.equal, "complete": self.complete}


def verify_object(
    object: CodeObject,
    tools: Tool | ToolGroup | Sequence[Tool],
    kernels: Iterable[str] | None = None,
    plans: Mapping[str, LaunchPlan] | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    strict: bool = False,
    hoist: bool | None = None,
) -> list[KernelVerdict]:
    """Verify kernels of an object, one after another.

    Args:
        object: the application's code object.
        tools: tools that instrument it.
        kernels: names; None: all kernels.
        plans: launches by kernel; a kernel without a plan gets made-up arguments.
        progress: called with each kernel's name.
        strict: whether a refused hook is an error.
        hoist: whether hooks that only count become counters; None: the default.

    Raises:
        LuthierError: a kernel cannot be launched or run, or the only kernel cannot be patched. Differences, and kernels
            among several that cannot be patched, become `problems`.
    """
    verdicts = []
    tools = ToolGroup.of(tools)
    options = PatchOptions(strict=strict, hoist=hoist, most_stack=DYNAMIC_STACK)
    names = list(object.kernels if kernels is None else kernels)
    for name in names:
        if name not in object.kernels:
            raise VerifyError(f"no kernel {name!r}; there are: {enumerated(object.kernels)}", object=object.name)
        if progress is not None:
            progress(name)
        plan, made_up = (plans or {}).get(name), tuple[str, ...]()
        if plan is None:
            plan = default_plan(object.kernels[name])
            made_up = tuple(
                f"argument {number} ({argument.type}, {argument.size} bytes) is not a number, but got a made-up one"
                for number, argument in structures_in(object, object.kernels[name])
            )
        try:
            verdicts.append(msgspec.structs.replace(_verify_kernel(object, tools, plan, options), made_up=made_up))
        except (LiftError, RefusedError) as problem:
            if strict or len(names) == 1:
                raise
            verdicts.append(_not_verified(object, plan, problem))
    return verdicts


def _not_verified(object: CodeObject, plan: LaunchPlan, problem: LuthierError) -> KernelVerdict:
    """Return the verdict on a kernel that cannot be patched."""
    message = f"not verified: {problem.message}"
    return KernelVerdict(
        plan.kernel, str(object.target), plan.grid, plan.block, 0, {}, {}, (0, 0), 0, 0, None, (message,)
    )


def verify_kernel(
    object: CodeObject,
    tools: Tool | ToolGroup | Sequence[Tool],
    plan: LaunchPlan,
    *,
    strict: bool = False,
    hoist: bool | None = None,
) -> KernelVerdict:
    """Verify one kernel under one launch."""
    options = PatchOptions(strict=strict, hoist=hoist, most_stack=DYNAMIC_STACK)
    return _verify_kernel(object, ToolGroup.of(tools), plan, options)


def _verify_kernel(object: CodeObject, group: ToolGroup, plan: LaunchPlan, options: PatchOptions) -> KernelVerdict:
    tasks: list[tuple[InstrumentationTask, list[TaskShare]]] = []
    patched = patch_object_with(
        options, object, lambda task: tasks.append((task, group.instrument_each(task))), [plan.kernel]
    )
    ((task, shares),) = tasks
    report = patched.report.kernels[0] if patched.report.kernels else None
    original, instrumented, waits = _launch_both(object, patched.data, plan)
    problems = [str(finding) for finding in instrumented.missing_waits]
    hazards, added = _hazards(object, patched, plan.kernel, original.hazards, instrumented.hazards)
    problems += added
    asked = _ComparedWishes(group, task, shares, refused_of(report))
    compared = _compare(object, patched, asked, original, instrumented)
    races: tuple[str, ...] = ()
    if compared.problems and (races := _races(object, plan, original)):
        try:
            original = _launch_in(BACKWARD, object, object, plan, original)
            instrumented = _launch_in(BACKWARD, object, patched.data, plan, instrumented)
            compared = _compare(object, patched, asked, original, instrumented)
            races = (*races, "original and patched kernel are compared with waves running one after another")
        except EmulationError as problem:
            races = (*races, f"they cannot be compared with waves running one after another: {problem.message}")
    tables: list[Table] = []
    for tool in group.tools:
        if type(tool).report is not Tool.report:
            tables += reported(tool, instrumented.module, patched)
        elif compared.kernel_counts is not None:
            tables += tool.tables(compared.kernel_counts)
    return KernelVerdict(
        plan.kernel,
        str(object.target),
        plan.grid,
        plan.block,
        compared.bytes,
        compared.counters,
        compared.expected,
        (original.stats.instructions, instrumented.stats.instructions),
        compared.not_lifted,
        compared.refused,
        report,
        (*problems, *compared.problems),
        compared.counted,
        tuple(tables),
        waits,
        hazards,
        races,
    )


class _ComparedWishes(Struct, frozen=True):
    """Requests of tools in the kernel."""

    group: ToolGroup
    task: InstrumentationTask
    shares: Sequence[TaskShare]
    refused: set[int]
    """Numbers of the refused insertions."""


class _Compared(Struct, frozen=True):
    """Result of comparing two runs; fields as in `KernelVerdict`."""

    problems: Sequence[str]
    bytes: int
    counters: Mapping[str, int]
    expected: Mapping[str, int]
    not_lifted: int
    refused: int
    counted: int
    kernel_counts: KernelCounts | None


def _outputs(object: CodeObject, run: _Run) -> dict[str, bytes]:
    """Return the contents of arguments and variables after a launch, by description."""
    outputs = {what: data.tobytes() for what, data in run.outputs()}
    for symbol in object.symbols:
        if symbol.type == "object" and symbol.dynamic and symbol.size and not symbol.name.endswith(".kd"):
            data = run.module.variable(symbol.name).read()
            outputs[f"variable {symbol.name}"] = _without_addresses(object, symbol, data)
    return outputs


def _compare(
    object: CodeObject, patched: PatchedObject, asked: _ComparedWishes, original: _Run, instrumented: _Run
) -> _Compared:
    """Compare the outputs of two runs, and counters with the emulator's own counts."""
    task, group = asked.task, asked.group
    before, after = _outputs(object, original), _outputs(object, instrumented)
    problems = [text for what, left in before.items() for text in _differences(what, left, after[what])]
    counts, not_lifted = counts_of(task, original.stats.by_address)
    expected = predicted(task, group, asked.shares, counts, asked.refused)
    counters: dict[str, int] = {}
    for name, size in patched.report.variables.items():
        if size > 8 and name not in expected:
            continue  # tables that tools report
        counters[name] = int.from_bytes(instrumented.module.variable(name).read(), "little")
    problems += unexpected(counters, expected)
    counted = 0
    kernel_counts = None
    if task.lifted.kernel.name in patched.counters:
        kernel_counts = patched.counters[task.lifted.kernel.name].read(instrumented.module, instrumented.stats.waves)
        counted = int(kernel_counts.counted.sum() + kernel_counts.lanes_counted.sum())
        problems += miscounted(task, kernel_counts, counts)
    refused = int(counts.executions[sorted({task.insertions[number].at for number in asked.refused})].sum())
    size = sum(map(len, before.values()))
    return _Compared(problems, size, counters, expected, not_lifted, refused, counted, kernel_counts)


BACKWARD, INTERLEAVED = Turns(quantum=1 << 22, backward=True), Turns(quantum=1)
"""Orders of waves that differ from an ordinary launch's: one wave after another, the last one first; and all waves of a
work-group in the shortest possible turns."""


def _races(object: CodeObject, plan: LaunchPlan, original: _Run) -> tuple[str, ...]:
    """Return the differences of the original from itself when its waves run in another order."""
    before = _outputs(object, original)
    for turns in (BACKWARD, INTERLEAVED):
        try:
            again = _launch_in(turns, object, object, plan, original)
        except EmulationError:
            continue  # waves wait for others that come later in this order
        after = _outputs(object, again)
        different = [what for what, data in before.items() if data != after[what]]
        executed, now = (
            np.stack([one.addresses, one.executions]) for one in (original.stats.by_address, again.stats.by_address)
        )
        if not np.array_equal(executed, now):
            different.append("the executed instructions")
        if different:
            return tuple(
                f"the original has a race: in another order of its waves it differs from itself in {what}"
                for what in different
            )
    return ()


def _launch_in(turns: Turns, object: CodeObject, source: CodeObject | bytes, plan: LaunchPlan, before: _Run) -> _Run:
    """Run a kernel again with its waves in another order and immediate results.

    Raises:
        EmulationError: it fails, or takes much longer than `before`.
    """
    device = open_device(f"emu:{object.target.target.name}", threads=1)
    device.turns, device.step_limit = turns, 2 * before.stats.instructions // QUANTUM + _SHORT
    return _launch(device, source, plan)


MOST_SEARCHES = 30
"""Paths from a producer to a consumer that are searched for in each kernel, to limit the time with many hazards."""


def _hazards(
    object: CodeObject,
    patched: PatchedObject,
    kernel: str,
    met_before: Sequence[Finding],
    met: Sequence[Finding],
) -> tuple[tuple[str, ...], list[str]]:
    """Return the hazards of the original, and those that only the patched kernel has.

    The latter are at inserted instructions, or at application instructions that did not have them before. Hazards come
    from all paths, and from the launches, which also reach code that was not lifted. The first result has a note if the
    patched kernel cannot be lifted again.

    Args:
        met_before, met: hazards that launches of the original and of the patched kernel met.
    """
    before = check_hazards(lift(object, kernel), unneeded=False, searches=MOST_SEARCHES)
    on_paths = {(place.address, hazard) for place, hazard in before.consumers}
    texts = [*_static(before), *_met(met_before, on_paths)]
    new_address = {one.kernel: one for one in patched.maps}.get(kernel)
    known = on_paths | {(one.offset, one.rule) for one in met_before}
    if new_address is not None:
        moved = ((new_address.moved(address), hazard) for address, hazard in known)
        known |= {(address, hazard) for address, hazard in moved if address is not None}
    added: list[str] = []
    try:
        after = check_hazards(lift(load_object(patched.data), kernel), False, MOST_SEARCHES)
    except LiftError as problem:
        texts.append(f"{kernel}: the patched kernel was checked for hazards in this launch only: {problem.message}")
    else:
        added += _static(after, known)
        known |= {(place.address, hazard) for place, hazard in after.consumers}
    return tuple(texts), [*added, *_met(met, known)]


def _met(hazards: Sequence[Finding], known: Container[tuple[int, str]]) -> Iterator[str]:
    """Return hazards that a launch met as text, without known ones (address of the consumer, hazard)."""
    return (str(one) for one in hazards if (one.offset, one.rule) not in known)


def _static(report: HazardReport, known: Container[tuple[int, str]] = ()) -> Iterator[str]:
    """Yield hazards on all paths as text, without known ones (address of the consumer, hazard)."""
    explained: set[tuple[int, str]] = set()
    for finding in report.findings:
        explained.add((finding.consumer.address, finding.hazard))
        if (finding.consumer.address, finding.hazard) not in known:
            yield str(finding)
    for place, hazard in report.consumers:
        if (place.address, hazard) not in known and (place.address, hazard) not in explained:
            yield f"{report.kernel}: {place}: {hazard}"


_SHORT = 256
"""`EmulatedDevice.step_limit` until it is known that an original has all waits. One without may loop as often as the
poison in a register says."""


def _launch_both(object: CodeObject, patched: bytes, plan: LaunchPlan) -> tuple[_Run, _Run, tuple[str, ...]]:
    """Run the original and the patched kernel with late results; also return the waits that the original lacks.

    Both check for hazards. If the original lacks waits, its results depend on timing: then both run with immediate
    results.
    """
    target = f"emu:{object.target.target.name}"
    checked = open_device(target, check=["waits", "hazards"])
    full, checked.step_limit = checked.step_limit, _SHORT
    original = None
    try:
        original = _launch(checked, object, plan)
    except EmulationError:
        if not _missing_waits(checked):  # run it again with the full limit
            checked.step_limit = full
            original = _launch(checked, object, plan)
    checked.step_limit = full
    missing = _missing_waits(checked)
    if not missing and original is not None:
        return original, _launch(checked, patched, plan), ()
    waits = tuple(str(finding) for finding in missing)
    device = open_device(target, check="hazards")
    return _launch(device, object, plan), _launch(device, patched, plan), waits


def _missing_waits(device: EmulatedDevice) -> tuple[Finding, ...]:
    """Return the missing waits that the last launch met."""
    return tuple(one for one in device.findings if one.check == "waits")


def refused_of(report: KernelReport | None) -> set[int]:
    """Return the numbers of the refused insertions."""
    return {one.insertion for one in report.refusals if one.insertion is not None} if report is not None else set()


def predicted(
    task: InstrumentationTask, group: ToolGroup, shares: Sequence[TaskShare], counts: ExecutionCounts, refused: set[int]
) -> dict[str, int]:
    """Return the values that tools' variables must have, from the emulator's own counts.

    Args:
        shares: requests of each tool.
        refused: numbers of the refused insertions.
    """
    expected: dict[str, int] = {}
    for tool, own in zip(group.tools, shares, strict=True):
        seen = _without_refused(task, counts, own.hooks, refused)
        expected |= tool.expected(task, seen) if seen is not None else {}
    return expected


def unexpected(counters: Mapping[str, int], expected: Mapping[str, int]) -> list[str]:
    """Return the wrong or missing variables as text."""
    problems = []
    for name, value in expected.items():
        if name not in counters:
            problems.append(f"the tool expects a variable {name}, which the patched object does not define")
        elif counters[name] != value:
            problems.append(f"{name} is {counters[name]}, the emulator counted {value}")
    return problems


def miscounted(task: InstrumentationTask, counted: KernelCounts, truth: ExecutionCounts) -> list[str]:
    """Return the differences of counters from the emulator's counts as text."""
    problems = []
    for what, column, known, real in (
        ("executions", counted.executions, counted.counted, truth.executions),
        ("active lanes", counted.active_lanes, counted.lanes_counted, truth.active_lanes),
    ):
        wrong = np.flatnonzero(known & (column != real))
        if len(wrong):
            first = int(wrong[0])
            problems.append(
                f"{what} of {len(wrong)} instructions are miscounted: the first, at "
                f"{task.lifted.columns.address[first]:#x}, is {column[first]}, the emulator counted {real[first]}"
            )
    waves = counted.waves
    if waves is not None and not waves.missing:
        for stretches, runs, real in (
            (waves.stretches, waves.runs, truth.executions),
            (waves.lane_stretches, waves.lane_runs, truth.active_lanes),
        ):
            if (runs.sum(0) != real[[first for first, _ in stretches]]).any():
                problems.append("the counts of single waves do not add up to the emulator's counts")
    return problems


class _Run(Struct, frozen=True):
    module: Module
    arguments: list[Any]
    stats: LaunchStats
    missing_waits: tuple[Finding, ...]
    hazards: tuple[Finding, ...]

    def outputs(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield description and contents of the arguments that the launch may have written."""
        for number, argument in enumerate(self.arguments, 1):
            if isinstance(argument, np.ndarray):
                yield f"argument {number}", argument
            elif isinstance(argument, StructureArgument):
                yield from ((f"argument {number}, buffer at byte {at},", array) for at, array in argument.buffers)


def _launch(device: EmulatedDevice, source: CodeObject | bytes, plan: LaunchPlan) -> _Run:
    module = device.load(source)
    for channel in module.channels.values():
        channel.listen(lambda records: None)
    arguments = plan.materialise()
    buffers: list[tuple[NDArray[Any], DeviceBuffer]] = []
    given: list[Any] = []
    for argument in arguments:
        if not isinstance(argument, StructureArgument):
            given.append(argument)
            continue
        data = bytearray(argument.data)
        for at, array in argument.buffers:
            buffers.append((array, device.allocate(array.nbytes)))
            buffers[-1][1].write(array)
            data[at : at + 8] = buffers[-1][1].address.to_bytes(8, "little")
        given.append(np.void(bytes(data)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        module.kernel(plan.kernel).launch(*given, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
    for array, buffer in buffers:
        array[...] = np.frombuffer(buffer.read(), array.dtype)
        buffer.free()
    hazards = tuple(one for one in device.findings if one.check == "hazards")
    return _Run(module, arguments, device.stats, _missing_waits(device), hazards)


def _without_addresses(object: CodeObject, symbol: Symbol, data: bytes) -> bytes:
    """Return a variable's bytes with zeros for relocated ones, since the two objects have different addresses."""
    blanked = bytearray(data)
    for relocation in object.relocations:
        place = relocation.offset - symbol.address
        if 0 <= place < symbol.size:
            blanked[place : place + 8] = bytes(len(blanked[place : place + 8]))
    return bytes(blanked)


def _differences(what: str, left: bytes, right: bytes) -> list[str]:
    if left == right:
        return []
    a, b = np.frombuffer(left, np.uint8), np.frombuffer(right, np.uint8)
    different = np.flatnonzero(a != b) if len(a) == len(b) else np.array([min(len(a), len(b))])
    return [f"{what} differs in {len(different)} of {len(a)} bytes, first at byte {int(different[0])}"]


def counts_of(task: InstrumentationTask, by_address: AddressCounts) -> tuple[ExecutionCounts, int]:
    """Return the emulator's counts by instruction index, and the executions in code that was not lifted."""
    addresses = task.lifted.code.addresses
    executions, lanes = np.zeros(len(addresses), np.int64), np.zeros(len(addresses), np.int64)
    index = np.searchsorted(addresses, by_address.addresses)
    known = index < len(addresses)
    known[known] = addresses[index[known]] == by_address.addresses[known]
    known[known] = task.lifted.reached[index[known]]
    executions[index[known]] = by_address.executions[known]
    lanes[index[known]] = by_address.active_lanes[known]
    return ExecutionCounts(executions, lanes), int(by_address.executions[~known].sum())


def _without_refused(
    task: InstrumentationTask, counts: ExecutionCounts, own: range, refused: set[int]
) -> ExecutionCounts | None:
    """Return the counts that one tool's hooks see: zero at sites where they were refused.

    None if only some of several hooks at one instruction were refused: then the tool's variables cannot be predicted.

    Args:
        own: positions of the tool's hooks among the insertions.
    """
    left_out = {task.insertions[number].at for number in own if number in refused}
    if not left_out:
        return counts
    if any(task.insertions[number].at in left_out for number in own if number not in refused):
        return None
    executions, lanes = counts.executions.copy(), counts.active_lanes.copy()
    executions[list(left_out)] = lanes[list(left_out)] = 0
    return ExecutionCounts(executions, lanes)
