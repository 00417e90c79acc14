"""Two independent oracles for liveness on random programs.

`reference` looks, for every register and point, for a way from the launch to a read: it walks (call stack, instruction,
what one lane's bits in EXEC and in saved masks are) one step at a time, knowing only what the table of operations says.
`execute` runs programs lane by lane: what liveness calls dead is overwritten meanwhile, and nothing the program stores
may change. What nothing has written is garbage, and garbage is never compared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lift_programs import (
    KEPT,
    LANES,
    SCC,
    VCC,
    A,
    Bits,
    Machine,
    Step,
    Undefined,
    V,
    Word,
    assembly,
    operation,
    program,
    with_control,
)
from luthier.lifting import LiftedRepresentation, Liveness, lift
from luthier.objects import CodeObject


class Point(NamedTuple):
    """A place on the way of a wave, and one lane there."""

    stack: tuple[int, ...]
    """Where calls return to."""
    index: int
    bits: Bits | None
    """None where only the wave is looked at."""


def ways(steps: list[Step], point: Point) -> Iterator[Point]:
    """Where control may be next. A lane that is active is not with a wave whose EXEC is zero."""
    stack, index, bits = point
    step = steps[index]
    if step.kind == "end":
        return
    if step.kind == "return":
        yield Point(stack[:-1], stack[-1], bits)
        return
    if step.kind == "call":
        yield Point((*stack, index + 1), step.to, bits)
        return
    taken = step.kind != "next" and not (step.kind == "execz" and bits is not None and bits.e)
    falls = step.kind != "branch" and not (step.kind == "execnz" and bits is not None and bits.e)
    for after in step.op.lane(bits) if bits is not None else [None]:
        if taken:
            yield Point(stack, step.to, after)
        if falls:
            yield Point(stack, index + 1, after)


def starts() -> Iterator[Point]:
    """A lane at the launch: masks in registers may be anything."""
    for launched in (0, 1):
        for high in (False, True):
            for masks in range(16):
                v, a, b, kept = (masks >> bit & 1 for bit in range(4))
                yield Point((), 0, Bits(launched, v, a, b, kept, high, bool(launched)))


Live = dict[int, dict[int, set[int]]]
"""By step, by whether a lane is active: live units."""


def reference(program: Sample, units: set[int]) -> Live:
    """For each reachable step the units live for an active and for an inactive lane."""
    steps = program.steps
    result: Live = {}
    at_launch: set[int] = set()
    for scalar in (True, False):
        first = [Point((), 0, None)] if scalar else list(starts())
        after: dict[Point, list[Point]] = {}
        work = list(first)
        while work:
            point = work.pop()
            if point not in after:
                after[point] = list(ways(steps, point))
                work += after[point]
        if scalar:
            result = {index: {0: set(), 1: set()} for index in {point.index for point in after}}
            at_launch = set(range(V, V + program.launched_registers))
            if len(program.lifted.functions) == 1:  # else what a call writes is not told as exactly as it is here
                at_launch |= {unit for unit in units if seen_unwritten(steps, after, unit)}
        for unit in units:
            if scalar == (unit < V):
                for point in meaningful(steps, after, unit, unit in at_launch):
                    for side in (0, 1) if point.bits is None else (point.bits.e,):
                        result[point.index][side].add(unit)
    return result


def meaningful(steps: list[Step], after: dict[Point, list[Point]], unit: int, at_launch: bool) -> set[Point]:
    """The points from where a way leads to a read of the unit, and to which one leads from where it was written.

    Args:
        at_launch: the launch writes it.
    """
    before: dict[Point, list[Point]] = {}
    for point, following in after.items():
        op = steps[point.index].op
        if not (unit in op.writes and op.replaces and (point.bits is None or point.bits.e or op.every_lane)):
            for other in following:
                before.setdefault(other, []).append(point)
    work = reading(steps, after, unit)
    seen: set[Point] = set()
    while work:
        point = work.pop()
        if point not in seen:
            seen.add(point)
            work += before.get(point, [])
    if unit < V:
        return seen
    return seen & filled(steps, after, unit, at_launch)


def seen_unwritten(steps: list[Step], after: dict[Point, list[Point]], unit: int) -> bool:
    """Whether garbage in it is stored: somewhere where no way has a write before."""
    written = filled(steps, after, unit, False)
    return any("store" in steps[point.index].op.text for point in reading(steps, after.keys() - written, unit))


def reading(steps: list[Step], points: Iterable[Point], unit: int) -> list[Point]:
    return [
        point
        for point in points
        if unit in (op := steps[point.index].op).reads and (point.bits is None or point.bits.e or op.across)
    ]


def filled(steps: list[Step], after: dict[Point, list[Point]], unit: int, at_launch: bool) -> set[Point]:
    """The points where the lane's register may have been written."""
    work = [point for point in starts() if at_launch and point.bits is not None and point.bits.launched]
    for point, following in after.items():
        op = steps[point.index].op
        if unit in op.writes and (point.bits is None or point.bits.e or op.every_lane or op.some_lane):
            work += following
    seen: set[Point] = set()
    while work:
        point = work.pop()
        if point not in seen:
            seen.add(point)
            work += after[point]
    return seen


COMPARED = {*range(12), *range(40, 48), VCC, VCC + 1, SCC, *range(V, V + 6), KEPT, A}
VECTORS = {unit for unit in COMPARED if unit >= V}


@dataclass
class Sample:
    """A program and its lifted form."""

    steps: list[Step]
    lifted: LiftedRepresentation
    index_of: dict[int, int]
    """Instruction index of each reachable step."""
    launched_registers: int


def sample(seed: int, assembled: Callable[..., CodeObject], functions: int | None = None) -> Sample:
    """The program with this number."""
    rng = random.Random(seed)
    return lifted_sample(program(rng, functions or rng.choice([1, 1, 2, 3, 4])), assembled, rng.randrange(3))


def lifted_sample(steps: list[Step], assembled: Callable[..., CodeObject], identifiers: int = 0) -> Sample:
    """A program.

    Args:
        identifiers: work-item ids that the launch sets beyond the first.
    """
    descriptor = f"system_vgpr_workitem_id {identifiers}"
    code_object = assembled("gfx90a", assembly(steps), vgprs=16, agprs=16, descriptor=descriptor)
    lifted = lift(code_object, "k")
    index_of = {}
    for function in lifted.functions:
        first = 0 if function.is_kernel else int(function.name[1:])
        base = lifted.index_at(function.entry)
        assert base is not None
        for step in range(first, len(steps)):
            if steps[step].function == steps[first].function and lifted.block_of[base + step - first] >= 0:
                index_of[step] = base + step - first
    return Sample(steps, lifted, index_of, identifiers + 1)


def waits_without_lanes(assembled: Callable[..., CodeObject]) -> Sample:
    """A callee that returns where EXEC is zero, so its summary tells of active lanes that they never come back. The
    group of lanes that were not launched is the active one at the call."""

    def plain(text: str) -> Step:
        return Step(operation(random.Random(0), text))

    kernel = [plain("s_not_b64 exec"), Step(operation(random.Random(0)), "call", to=5), plain("s_mov_b64 exec, -1")]
    kernel += [plain("global_store"), Step(operation(random.Random(0)), "end")]
    callee = [Step(operation(random.Random(0)), kind, function=1) for kind in ("execz", "end", "return")]
    callee[0].to = 7
    return lifted_sample(with_control([*kernel, *callee]), assembled)


def compare(program: Sample, expected: Live, liveness: Liveness) -> tuple[int, int]:
    """How many (point, lane, register) are live though they need not be, and of how many.

    Raises:
        AssertionError: one is dead that is read.
    """
    # Behind a call that never returns the lifted form has code that the reference never gets to.
    assert set(program.index_of) >= set(expected)
    needless = total = 0
    for step, by_side in expected.items():
        live = liveness.live_before(program.index_of[step])
        place = f"step {step}: {program.steps[step].op.text}\n{assembly(program.steps)}"
        for actual, wanted in ((live.active, by_side[1]), (live.inactive, by_side[0])):
            assert set(actual) & COMPARED >= wanted, (place, sorted(wanted - set(actual)))
            needless += len((set(actual) & VECTORS) - wanted)
            total += len(VECTORS)
        assert live.all_lanes == live.active | live.inactive
    return needless, total


def execute(program: Sample, seed: int, clobber: Callable[[Machine, int], None]) -> list[object]:
    """Run a program and return what it stored. `clobber` may change the machine before each step."""
    machine = Machine(random.Random(seed), program.launched_registers)
    index, stack = 0, []
    for _ in range(400):
        clobber(machine, index)
        step = program.steps[index]
        following = index + 1
        if step.kind == "end":
            break
        if step.kind == "return":
            following = stack.pop()
        elif step.kind == "call":
            stack.append(index + 1)
            following = step.to
        elif step.kind == "scc0" and machine.scalar[SCC].garbage:
            break
        elif (
            step.kind == "branch"
            or (step.kind == "scc0" and not machine.scalar[SCC].value)
            or (step.kind == "execz" and not machine.exec.value)
            or (step.kind == "execnz" and machine.exec.value)
        ):
            following = step.to
        elif step.op.run is not None:
            try:
                step.op.run(machine)
            except Undefined:
                break
        index = following
    return machine.stored


def overwrite_the_dead(program: Sample, liveness: Liveness, seed: int, trials: int) -> None:
    """Check that overwriting what is dead changes nothing that is stored."""
    for trial in range(trials):
        expected = execute(program, trial, lambda machine, index: None)
        noise = random.Random(1000 * seed + trial)

        def clobber(machine: Machine, index: int, noise: random.Random = noise) -> None:
            if noise.random() > 0.3:
                return
            live = liveness.live_before(program.index_of[index])
            for unit in machine.scalar:
                if unit not in live.active:
                    machine.scalar[unit] = Word(noise.getrandbits(1 if unit == SCC else 32))
            for unit, lanes in machine.vector.items():
                for lane in LANES:
                    dead = unit not in (live.active if machine.exec.value >> lane & 1 else live.inactive)
                    if dead and lanes[lane] is not None:
                        lanes[lane] = noise.getrandbits(32)

        assert execute(program, trial, clobber) == expected, assembly(program.steps)
