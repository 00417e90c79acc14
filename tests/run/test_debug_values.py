"""`luthier debug`: variables compared with the program's own output, by target and optimisation.

``programs/told.hip`` is compiled twice: with debug information for the debugger, and so that it prints its variables.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from commands import PATIENCE, run_luthier
from luthier.capture import Capture, read_capture
from luthier.capture.replay import PreparedLaunch
from luthier.debug.locations import Frame, NotAvailable, numbers
from luthier.debug.view import StoppedWave
from luthier.emulator.inspection.debug import WaveStep, observer_of
from luthier.emulator.running.registers import WaveRegisters
from luthier.objects.variables import DwarfOperation, DwarfType, DwarfVariable
from rocm_stacks import stack

from .conftest import PROGRAMS
from .test_debug import opened, room
from .test_newer_rocm import RELEASE, build_newer

if TYPE_CHECKING:
    from .dap_editor import Editor

__all__ = ["build_newer"]  # a fixture: pytest finds it here
pytestmark = pytest.mark.rows()
SOURCE = PROGRAMS / "told.hip"
NEWER = ("gfx1100", "gfx1201")
CASES = [
    pytest.param(target, level, marks=[pytest.mark.rocm(RELEASE)] if target in NEWER else [], id=f"{target}-{level}")
    for target in ("gfx90a", "gfx1030", *NEWER)
    for level in ("-O0", "-O2")
]
every_case = pytest.mark.parametrize(("target", "level"), CASES)
BLOCK = 64
KINDS = defaultdict(lambda: "i4", number="u4", most="u1", small="i1", rounded="f4", average="f4", heavy="u1") | {
    **dict.fromkeys(("sum", "wide", "steps"), "i8"),
    **dict.fromkeys(("weight", "mixed"), "f8"),
}
"""Type of each variable that is a number."""


class Said(NamedTuple):
    """The program's output: bits of a variable, in the order of execution in a work-item."""

    at: Mapping[tuple[int, str], Mapping[int, list[int]]]
    """By line and name, then by work-item."""
    ever: Mapping[tuple[str, int], set[int]]
    """By name and work-item."""


@pytest.fixture(scope="session")
def facts(build_program: Callable[..., Path]) -> Said:
    """Return the program's own output, printed without a debugger."""
    done = run_luthier("run", "--device", "emu:gfx90a", "--", build_program("told", "-DSAY"))
    assert done.returncode == 0, done.stderr
    at: dict[tuple[int, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    ever: dict[tuple[str, int], set[int]] = defaultdict(set)
    for text in done.stdout.splitlines():
        line, name, item, bits = text.split()
        at[int(line), name][int(item)].append(int(bits, 16))
        ever[name, int(item)].add(int(bits, 16))
    assert {name for _, name in at} == set(re.findall(r"TELL\((?!variable)(\w+)\)", SOURCE.read_text()))
    return Said(at, ever)


@pytest.fixture(scope="session")
def capture_of(
    build_program: Callable[..., Path],
    build_newer: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, str], Path]:
    """``capture_of(target, level)``: the launch of the program that says nothing."""

    @functools.cache
    def capture(target: str, level: str) -> Path:
        folder = tmp_path_factory.mktemp("told")
        build = build_newer if target in NEWER else build_program
        words = ["capture", "--device", f"emu:{target}", "-o", folder, "--", build("told", "-g", level)]
        done = run_luthier(*words, before=stack(RELEASE) if target in NEWER else ())
        assert done.returncode == 0, done.stderr
        (capture,) = folder.glob("*.lcap")
        return capture

    return capture


def active(view: StoppedWave) -> Iterator[tuple[int, int]]:
    """Yield the lanes that are on, each with the number of its work-item in the launch."""
    size = view.registers.wave_size
    for lane in range(size):
        if view.registers.exec >> lane & 1:
            yield lane, view.workgroup * BLOCK + view.wave * size + lane


@pytest.mark.rows(1)
@every_case
def test_variables_at_their_lines(capture_of: Callable[[str, str], Path], facts: Said, target: str, level: str) -> None:
    """Before a line, a variable has the value that the program prints there, in each lane and at each pass; in
    optimised code, a shown value is one that the variable has had in that work-item."""
    seen: Counter[tuple[int, str, int]] = Counter()
    names: set[str] = set()
    with opened(capture_of(target, level)) as debugger:
        for line in sorted({line for line, _ in facts.at}):
            debugger.break_at(f"told.hip:{line}")
        while debugger.resume().why == "breakpoint":
            view = debugger.view()
            known = {one.name: one for one in view.variables()}
            for line, name in [one for one in facts.at if one[0] == view.frames[0].line]:
                try:
                    data, lanes = view.bytes_of(known[name]), view.lanes_of(known[name])
                except (KeyError, NotAvailable):
                    assert level != "-O0", (line, name)
                    continue
                names.add(name)
                for lane, item in active(view):
                    bits = int.from_bytes(data[lane].tobytes(), "little")
                    if level == "-O0":
                        assert bits == facts.at[line, name][item][seen[line, name, item]], (line, name, item)
                    assert bits in facts.ever[name, item] or not lanes >> lane & 1, (line, name, item)
                    seen[line, name, item] += 1
    if level == "-O0":
        assert seen == {(*key, item): len(one) for key, items in facts.at.items() for item, one in items.items()}
    assert {"number", "wide", "value"} <= names, names


@pytest.mark.rows(1)
@every_case
def test_no_instruction_has_a_wrong_value(
    capture_of: Callable[[str, str], Path], facts: Said, target: str, level: str
) -> None:
    """At every instruction, a shown value of a variable is one that it has had in that work-item. No value is shown
    where debug information is valid for other lanes only, or functions have no frame. Variables in memory are undefined
    before their first value, so only parameters among them are checked."""
    own = {"most", "count", "weight"} if level == "-O0" else {name for name, _ in facts.ever}
    counts: Counter[str] = Counter()
    with opened(capture_of(target, level)) as debugger:
        while debugger.where is not None and debugger.where.workgroup == 0:
            view = debugger.view()
            for variable in view.variables():
                if variable.name not in own:
                    continue
                try:
                    data, lanes = view.bytes_of(variable), view.lanes_of(variable)
                except NotAvailable:
                    continue
                for lane, item in active(view):
                    if (variable.name, item) in facts.ever and lanes >> lane & 1:
                        bits = int.from_bytes(data[lane].tobytes(), "little")
                        assert bits in facts.ever[variable.name, item], (variable.name, item, hex(view.pc), view.text)
                        counts[variable.name] += 1
            debugger.step_instruction()
    assert {"most", "weight"} | ({"small"} if level == "-O2" else set()) <= set(counts), counts


def shown(name: str, bits: int) -> str:
    """Return a value as an editor shows it."""
    if name == "heavy":
        return "true" if bits else "false"
    kind = np.dtype(KINDS[name])
    return str(np.frombuffer(bits.to_bytes(8, "little"), kind, 1)[0])


@pytest.mark.rows(1)
@every_case
def test_an_editor(
    open_editor: type[Editor], capture_of: Callable[[str, str], Path], facts: Said, target: str, level: str
) -> None:
    """Breakpoints by line and function, steps in, over and out of calls, variables, over the Debug Adapter Protocol."""
    editor = open_editor(capture_of(target, level))
    client = editor.client
    editor.take("InitializedEvent")
    client.launch()
    editor.take("launch")
    client.set_function_breakpoints([{"name": "_Z7collatzjh"}])
    editor.take("SetFunctionBreakpointsResponse")
    client.configuration_done()
    editor.wait()
    size = 64 if target == "gfx90a" else 32

    def look(*, exact: bool) -> int:
        """Compare the variables of the first lane that is on, and return how many have a value."""
        frame = editor.top()
        client.evaluate("min(lane)", frame.id)
        lane = int(editor.take("EvaluateResponse").result)
        item = (editor.stopped.threadId - 1) * size + lane
        texts = editor.locals(frame)
        known = {name: text for name, text in texts.items() if text[0] != "<" and (name, item) in facts.ever}
        for name, text in known.items():
            if name != "pair":
                values = facts.at[frame.line, name][item] if exact and (frame.line, name) in facts.at else ()
                right = values or facts.ever[name, item]
                assert text in {shown(name, one) for one in right} or (not values and level == "-O0"), (name, text)
        return len(known)

    client.continue_(1)
    assert editor.wait().reason == "breakpoint"
    inside = editor.top()
    assert inside.name == "collatz"
    assert look(exact=True) >= 1
    client.set_function_breakpoints([])  # other waves come there, too
    editor.take("SetFunctionBreakpointsResponse")
    client.step_out(editor.stopped.threadId)
    editor.wait()
    assert editor.top().name == "values"
    client.restart()
    editor.wait()
    lines = sorted({line for line, _ in facts.at})
    client.set_breakpoints({"path": str(SOURCE)}, [{"line": line} for line in lines])
    assert all(one.verified for one in editor.take("SetBreakpointsResponse").breakpoints)
    compared = 0
    for _ in range(24):
        client.continue_(1)
        editor.wait()
        compared += look(exact=True)
        client.next(editor.stopped.threadId)
        editor.wait()
        compared += look(exact=False)
    assert compared > (60 if level == "-O0" else 10), compared
    client.disconnect()
    editor.take("disconnect")
    assert editor.process.wait(PATIENCE) == 0


STORE = re.compile(
    r"(?:flat|global)_store_(?:dwordx2|b64) v(?:\[(\d+):\d+\]|(\d+)), v\[(\d+):\d+\]"
    r"(?:, (?:off|s\[(\d+):\d+\]))?(?: offset:(-?\d+))?"
)


def stores(capture: Capture, address: int) -> list[tuple[int, str, int]]:
    """Return (number of instructions executed, text, value) for each store to eight bytes of memory, from registers in
    a trace of the emulated device."""
    launch = PreparedLaunch(capture, capture.manifest.target)
    stores: list[tuple[int, str, int]] = []
    count = 0

    def look(step: WaveStep) -> None:
        nonlocal count
        count += 1
        store = STORE.match(step.text)
        if store is None:
            return
        pair, offset, data, base, constant = (int(one) if one else None for one in store.groups())
        registers = step.registers
        starts = registers.vgpr(pair, 1, np.uint64) if pair is not None else registers.vgpr(offset or 0)
        added = (0 if base is None else registers.sgpr(base, 2)) + (constant or 0)
        for lane, value in enumerate(registers.vgpr(data or 0, 1, np.uint64).tolist()):
            if registers.exec >> lane & 1 and int(starts[lane]) + added == address:
                stores.append((count, step.text, value))

    with room(), launch.memory():
        launch.execute(1, observer_of(launch.code, look, None))
    return stores


@pytest.mark.rows(1)
@pytest.mark.thorough
@every_case
def test_watchpoints_are_stores(capture_of: Callable[[str, str], Path], target: str, level: str) -> None:
    """Data breakpoints stop behind the stores of the trace that change the memory, and behind nothing else."""
    path = capture_of(target, level)
    capture = read_capture(path)
    out = int.from_bytes(bytes.fromhex(capture.manifest.arguments[1].value), "little")
    right: list[tuple[int, ...]] = []
    texts: dict[int, str] = {}
    for item in (0, 63, 77):
        before = 0
        for position, text, value in stores(capture, out + 8 * item):
            texts[position] = text
            if value != before:
                right.append((position, item, value))
            before = value
    assert len(right) == 6, right
    with opened(path) as debugger:
        items = {debugger.watch_memory(out + 8 * item, 8).number: item for item in (0, 63, 77)}
        stops: list[tuple[int, ...]] = []
        while (stop := debugger.resume()).why == "watchpoint":
            for number in stop.numbers:
                value = int.from_bytes(debugger.read(out + 8 * items[number], 8), "little")
                stops.append((stop.position, items[number], value))
                assert texts[stop.position] in stop.text
    assert stop.why == "end"
    assert sorted(stops) == sorted(right)


INT = DwarfType("int", "signed", 4)
S4, V0 = DwarfOperation("regx", (36,)), DwarfOperation("regx", (2560,))
VALUE = DwarfOperation("stack_value", ())


@pytest.mark.parametrize(
    ("kind", "expression", "value"),
    [
        pytest.param(
            INT,
            (S4, DwarfOperation("const1u", (31,)), DwarfOperation("shr", ()), VALUE),
            1,
            id="a register has 32 bits",
        ),
        pytest.param(
            INT,
            (V0, DwarfOperation("convert", ("signed", 1)), DwarfOperation("convert", ("signed", 4)), VALUE),
            -2,
            id="sign",
        ),
        pytest.param(
            INT,
            (V0, DwarfOperation("convert", ("unsigned", 1)), DwarfOperation("convert", ("signed", 4)), VALUE),
            254,
            id="zeros",
        ),
        pytest.param(
            INT, (V0, DwarfOperation("convert", ("float", 4)), VALUE), "conversion to float", id="other types"
        ),
        pytest.param(
            DwarfType("long", "signed", 8), (V0, DwarfOperation("piece", (4,))), "only 4 of its 8 bytes", id="a part"
        ),
        pytest.param(INT, (DwarfOperation("fbreg", (0,)),), "its function has no frame here", id="no frame"),
    ],
)
def test_expressions(kind: DwarfType, expression: tuple[DwarfOperation, ...], value: int | str) -> None:
    registers = WaveRegisters(np.zeros(1 << 18, np.uint8), 64, 256)
    registers.set_sgpr(4, 0xFFFFFFFF_80000000, 2)
    registers.set_vgpr(0, 0x123456FE)
    variable = DwarfVariable("x", kind, (), 0, ((None, expression),), None, (S4,))
    frame = Frame(registers, 64, np.zeros(0, np.uint8), lambda address, size: bytes(size), lambda register: False)
    if isinstance(value, str):
        with pytest.raises(NotAvailable, match=value):
            frame.value(variable, 0)
        return
    assert set(numbers(kind, frame.value(variable, 0))) == {value}  # type: ignore[arg-type]
