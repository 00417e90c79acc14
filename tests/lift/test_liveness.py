"""Liveness against two independent oracles, on random programs.

`reference` looks, for every register and point, for a way to a read: it walks (call stack, instruction, is the lane
active) one step at a time, knowing only what the table of operations below says. Both must agree to the bit. `Machine`
executes programs lane by lane: what liveness calls dead is overwritten while it runs, and nothing the program stores
may change.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from luthier.lifting import LiftedRepresentation, lift
from luthier.objects import CodeObject

PROGRAMS = int(os.environ.get("LUTHIER_FUZZ", "60"))
LANES = 4
ALL = (1 << 64) - 1
V, A, VCC, SCC, EXEC = 256, 512, 106, 128, 126


# What operations do, written down by hand. A unit is a number as in docs/architecture.md; only those named here are
# compared.

STAY, NARROW, WIDEN, ANY = "aa ii", "aa ai ii", "aa ia ii", "aa ai ia ii"
EVERYONE, FLIP, LEAVE = "aa ia", "ai ia", "ai ia ii"


@dataclass
class Op:
    text: str
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    lanes: str = STAY
    """Which (before, after) pairs of a lane being active or inactive there are."""
    across: bool = False
    """Reads any lane."""
    replaces: bool = True
    """Its writes replace the register in the active lanes."""
    every_lane: bool = False
    """Its writes replace the register in every lane."""
    run: Callable[[Machine], None] | None = None


class Machine:
    """A wave of four lanes; masks have all 64 bits."""

    def __init__(self, rng: random.Random) -> None:
        self.scalar = {unit: rng.getrandbits(32) for unit in [*range(12), VCC, VCC + 1]}
        self.scalar[SCC] = rng.getrandbits(1)
        self.exec = rng.getrandbits(64)
        self.vector = {unit: [rng.getrandbits(32) for _ in range(LANES)] for unit in [*range(V, V + 6), A]}
        self.stored: list[object] = []

    def pair(self, unit: int) -> int:
        return self.scalar[unit] | self.scalar[unit + 1] << 32

    def set_pair(self, unit: int, value: int) -> None:
        self.scalar[unit], self.scalar[unit + 1] = value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF

    def active(self) -> list[int]:
        return [lane for lane in range(LANES) if self.exec >> lane & 1]

    def each(self, unit: int, value: Callable[[int], int]) -> None:
        new = {lane: value(lane) & 0xFFFFFFFF for lane in self.active()}
        for lane, result in new.items():
            self.vector[unit][lane] = result

    def set_exec(self, value: int) -> None:
        self.exec = value & ALL
        self.scalar[SCC] = int(self.exec != 0)


def operation(rng: random.Random, only: str = "") -> Op:
    """A random operation, whose text holds `only`.

    Lambdas bind what was drawn by default arguments, as they outlive the draw.
    """
    d, a, b = (V + rng.randrange(6) for _ in range(3))
    x, y, z = (rng.randrange(6) for _ in range(3))
    vd, va, vb = (f"v{unit - V}" for unit in (d, a, b))

    def vector_add(m: Machine) -> None:
        m.each(d, lambda lane: m.vector[a][lane] + m.vector[b][lane])

    def select(m: Machine) -> None:
        m.each(d, lambda lane: m.vector[b if m.pair(VCC) >> lane & 1 else a][lane])

    def compare(m: Machine) -> None:
        m.set_pair(VCC, sum(1 << lane for lane in m.active() if m.vector[a][lane] % 3 < m.vector[b][lane] % 3))

    def compare_exec(m: Machine) -> None:
        compare(m)
        m.exec = m.pair(VCC)

    def write_lane(m: Machine) -> None:
        m.vector[d][2] = m.scalar[x]

    def read_first(m: Machine) -> None:
        m.scalar[x] = m.vector[a][m.active()[0] if m.active() else 0]

    def permute(m: Machine) -> None:
        old = list(m.vector[b])
        m.each(d, lambda lane: old[m.vector[a][lane] % LANES])

    def add(m: Machine) -> None:
        total = m.scalar[y] + m.scalar[z]
        m.scalar[x], m.scalar[SCC] = total & 0xFFFFFFFF, total >> 32

    def add_carry(m: Machine) -> None:
        total = m.scalar[y] + m.scalar[z] + m.scalar[SCC]
        m.scalar[x], m.scalar[SCC] = total & 0xFFFFFFFF, total >> 32

    def conditional(m: Machine) -> None:
        if m.scalar[SCC]:
            m.scalar[x] = m.scalar[y]

    def save(new: Callable[[Machine], int]) -> Callable[[Machine], None]:
        def run(m: Machine) -> None:
            old, value = m.exec, new(m)
            m.set_pair(8, old)
            m.set_exec(value)

        return run

    def put(new: Callable[[Machine], int], scc: bool = True) -> Callable[[Machine], None]:
        def run(m: Machine) -> None:
            before = m.scalar[SCC]
            m.set_exec(new(m))
            if not scc:
                m.scalar[SCC] = before

        return run

    def store(m: Machine) -> None:
        m.stored.append([(lane, m.vector[a][lane], m.vector[b][lane]) for lane in m.active()])

    saved, mask = [8, 9, SCC], [VCC, VCC + 1]
    aa, ab = f"v[{a - V & 6}:{(a - V & 6) + 1}]", f"v[{b - V & 6}:{(b - V & 6) + 1}]"
    choices = [
        Op(f"v_mov_b32_e32 {vd}, {va}", [a], [d], run=lambda m: m.each(d, lambda lane: m.vector[a][lane])),
        Op(f"v_mov_b32_e32 {vd}, s{x}", [x], [d], run=lambda m: m.each(d, lambda lane: m.scalar[x])),
        Op(f"v_add_u32_e32 {vd}, {va}, {vb}", [a, b], [d], run=vector_add),
        Op(f"v_cndmask_b32_e32 {vd}, {va}, {vb}, vcc", [a, b, *mask], [d], run=select),
        Op(f"v_cmp_lt_u32_e32 vcc, {va}, {vb}", [a, b], mask, run=compare),
        Op(f"v_cmpx_lt_u32_e32 vcc, {va}, {vb}", [a, b], mask, NARROW, run=compare_exec),
        Op(f"v_writelane_b32 {vd}, s{x}, 2", [x], [d], replaces=False, run=write_lane),
        Op(f"v_readfirstlane_b32 s{x}, {va}", [a], [x], across=True, run=read_first),
        Op(f"ds_bpermute_b32 {vd}, {va}, {vb}", [a, b], [d], across=True, run=permute),
        Op(f"v_accvgpr_read_b32 {vd}, a0", [A], [d], across=True, run=lambda m: m.each(d, lambda n: m.vector[A][n])),
        Op(f"s_mov_b32 s{x}, s{y}", [y], [x], run=lambda m: m.scalar.update({x: m.scalar[y]})),
        Op(f"s_add_u32 s{x}, s{y}, s{z}", [y, z], [x, SCC], run=add),
        Op(f"s_addc_u32 s{x}, s{y}, s{z}", [y, z, SCC], [x, SCC], run=add_carry),
        Op(f"s_cmov_b32 s{x}, s{y}", [y, SCC], [x], replaces=False, run=conditional),
        Op("s_and_saveexec_b64 s[8:9], vcc", mask, saved, NARROW, run=save(lambda m: m.exec & m.pair(VCC))),
        Op("s_or_saveexec_b64 s[8:9], vcc", mask, saved, WIDEN, run=save(lambda m: m.exec | m.pair(VCC))),
        Op("s_andn2_saveexec_b64 s[8:9], s[8:9]", [8, 9], saved, LEAVE, run=save(lambda m: m.pair(8) & ~m.exec)),
        Op("s_andn1_saveexec_b64 s[8:9], vcc", mask, saved, NARROW, run=save(lambda m: ~m.pair(VCC) & m.exec)),
        Op("s_xor_saveexec_b64 s[8:9], -1", [], saved, FLIP, run=save(lambda m: ~m.exec)),
        Op("s_or_saveexec_b64 s[8:9], -1", [], saved, EVERYONE, run=save(lambda m: ALL)),
        Op("s_or_b64 exec, exec, s[8:9]", [8, 9], [SCC], WIDEN, run=put(lambda m: m.exec | m.pair(8))),
        Op("s_andn2_b64 exec, exec, s[8:9]", [8, 9], [SCC], NARROW, run=put(lambda m: m.exec & ~m.pair(8))),
        Op("s_andn2_b64 exec, s[8:9], exec", [8, 9], [SCC], LEAVE, run=put(lambda m: m.pair(8) & ~m.exec)),
        Op("s_xor_b64 exec, exec, s[8:9]", [8, 9], [SCC], ANY, run=put(lambda m: m.exec ^ m.pair(8))),
        Op("s_mov_b64 exec, s[8:9]", [8, 9], [], ANY, run=put(lambda m: m.pair(8), scc=False)),
        Op("s_mov_b64 exec, -1", [], [], EVERYONE, run=put(lambda m: ALL, scc=False)),
        Op(f"global_store_dword {va}, {vb}, s[10:11]", [a, b, 10, 11], run=store),
    ]
    choices = [op for op in choices if only in op.text]
    if not only and rng.random() < 0.05:
        reads = [*range(a & ~1, (a & ~1) + 2), *range(b & ~1, (b & ~1) + 2)]
        text = f"v_mfma_f32_4x4x4f16 a[0:3], {aa}, {ab}, 0"

        def matrix(m: Machine) -> None:
            m.vector[A] = [m.vector[reads[0]][lane] ^ m.vector[reads[3]][3 - lane] for lane in range(LANES)]

        return Op(text, reads, [A], across=True, every_lane=True, run=matrix)
    return rng.choices(choices, [3.0 if "store" in op.text else 2.0 if "exec" in op.text else 1.0 for op in choices])[0]


# Programs


@dataclass
class Step:
    """One instruction of a program. Functions and labels are numbers."""

    op: Op
    kind: str = "next"
    """next, branch, scc0, execz, execnz, call, return or end"""
    to: int = -1
    """Step a branch goes to, or first step of the function called."""
    function: int = 0


def program(rng: random.Random, functions: int) -> list[Step]:
    """Random blocks; a function calls only later ones, each with its own link register, so there is no recursion."""
    steps: list[Step] = []
    firsts: list[int] = []
    calls: list[tuple[int, int]] = []
    for function in range(functions):
        firsts.append(len(steps))
        start = len(steps)
        for _ in range(rng.randint(2, 4)):
            steps += [Step(operation(rng), function=function) for _ in range(rng.randint(0, 4))]
            kind = rng.choice(["scc0", "execz", "execnz", "next", "call", "branch"])
            if kind == "call":
                if function + 1 == functions:
                    continue
                calls.append((len(steps), rng.randrange(function + 1, functions)))
            if kind != "next":
                steps.append(Step(Op(""), kind, function=function))
        if function == 0:  # some way to see what there is at the end
            steps += [Step(operation(rng, only), function=0) for only in ("s_or_b64 exec", "store", "store")]
        steps.append(Step(Op(""), "end" if function == 0 else "return", function=function))
        for step in steps[start:]:
            if step.kind in ("branch", "scc0", "execz", "execnz"):
                step.to = rng.randrange(start, len(steps))
    for place, callee in calls:
        steps[place].to = firsts[callee]
    for step in steps:
        link = 40 + 2 * step.function
        if step.kind == "call":
            callee_link = 40 + 2 * firsts.index(step.to)
            step.op = Op(
                f"s_call_b64 s[{callee_link}:{callee_link + 1}], f{step.to}", [], [callee_link, callee_link + 1]
            )
        elif step.kind == "return":
            step.op = Op(f"s_setpc_b64 s[{link}:{link + 1}]", [link, link + 1])
        elif step.kind == "end":
            step.op = Op("s_endpgm")
        elif step.kind == "branch":
            step.op = Op(f"s_branch .L{step.to}")
        elif step.kind == "scc0":
            step.op = Op(f"s_cbranch_scc0 .L{step.to}", [SCC])
        elif step.kind != "next":
            step.op = Op(f"s_cbranch_{step.kind} .L{step.to}")
    return steps


def assembly(steps: list[Step]) -> str:
    lines = []
    for index, step in enumerate(steps):
        if index == 0 or step.function != steps[index - 1].function:
            name = "k" if index == 0 else f"f{index}"
            lines.append(f"func {name}")
        lines += [f".L{index}:", f"  {step.op.text}"]
        if index + 1 == len(steps) or steps[index + 1].function != step.function:
            lines.append(f"endfunc {'k' if step.function == 0 else name}")
    return "\n".join(lines) + "\n"


Point = tuple[tuple[int, ...], int, str]
"""(where calls return to, step, "a" or "i": the lane is active)"""


def ways(steps: list[Step], point: Point, scalar: bool) -> Iterator[Point]:
    """Where control may be next. A lane that is active is not with a wave whose EXEC is zero."""
    stack, index, side = point
    step = steps[index]
    if step.kind == "end":
        return
    if step.kind == "return":
        yield stack[:-1], stack[-1], side
        return
    if step.kind == "call":
        yield (*stack, index + 1), step.to, side
        return
    taken = step.kind != "next" and not (step.kind == "execz" and side == "a" and not scalar)
    falls = step.kind != "branch" and not (step.kind == "execnz" and side == "a" and not scalar)
    for after in [pair[1] for pair in step.op.lanes.split() if pair[0] == side]:
        if taken:
            yield stack, step.to, after
        if falls:
            yield stack, index + 1, after


def reference(steps: list[Step], units: set[int]) -> dict[int, dict[str, set[int]]]:
    """For each reachable step the units live for an active and for an inactive lane."""
    result: dict[int, dict[str, set[int]]] = {}
    start = [((), 0, "a"), ((), 0, "i")]
    # Which points there are does not depend on the lane: collect them with every side.
    points: set[Point] = set()
    work: list[Point] = list(start)
    while work:
        point = work.pop()
        if point in points:
            continue
        points.add(point)
        for stack, index, _ in ways(steps, point, scalar=True):
            work += [(stack, index, "a"), (stack, index, "i")]
    for unit in units:
        scalar = unit < V
        before: dict[Point, list[Point]] = {}
        live: list[Point] = []
        for point in points:
            op = steps[point[1]].op
            if unit in op.reads and (scalar or point[2] == "a" or op.across):
                live.append(point)
            replaced = unit in op.writes and op.replaces and (scalar or point[2] == "a" or op.every_lane)
            if not replaced:
                for after in ways(steps, point, scalar):
                    before.setdefault(after, []).append(point)
        seen: set[Point] = set()
        while live:
            point = live.pop()
            if point not in seen:
                seen.add(point)
                live += before.get(point, [])
        for _, index, side in seen:
            result.setdefault(index, {}).setdefault(side, set()).add(unit)
    for _, index, _ in points:
        result.setdefault(index, {})
    return result


COMPARED = {*range(12), *range(40, 48), VCC, VCC + 1, SCC, *range(V, V + 6), A}


def lifted_program(
    seed: int, assembled: Callable[..., CodeObject]
) -> tuple[list[Step], LiftedRepresentation, dict[int, int]]:
    """A program, its lifted form, and the instruction index of each reachable step."""
    rng = random.Random(seed)
    steps = program(rng, rng.choice([1, 1, 2, 3, 4]))
    code_object = assembled("gfx90a", assembly(steps), vgprs=32)
    lifted = lift(code_object, "k")
    index_of = {}
    for function in lifted.functions:
        first = 0 if function.is_kernel else int(function.name[1:])
        base = lifted.index_at(function.entry)
        assert base is not None
        for step in range(first, len(steps)):
            if steps[step].function == steps[first].function and lifted.block_of[base + step - first] >= 0:
                index_of[step] = base + step - first
    return steps, lifted, index_of


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_agrees_with_reference(seed: int, assembled: Callable[..., CodeObject]) -> None:
    steps, lifted, index_of = lifted_program(seed, assembled)
    expected = reference(steps, COMPARED)
    # Behind a call that never returns the lifted form has code that the reference never gets to.
    exact = set(index_of) == set(expected)
    assert exact or set(index_of) > set(expected)
    for step in expected:
        live = lifted.liveness.live_before(index_of[step])
        active = expected[step].get("a", set())
        inactive = expected[step].get("i", set())
        place = f"step {step}: {steps[step].op.text}\n{assembly(steps)}"
        assert set(live.active) & COMPARED >= active, place
        assert set(live.inactive) & COMPARED >= inactive, place
        assert live.all_lanes == live.active | live.inactive
        if exact:
            assert set(live.active) & COMPARED == active, place
            assert set(live.inactive) & COMPARED == inactive, place


def execute(steps: list[Step], seed: int, clobber: Callable[[Machine, int, int], None]) -> list[object]:
    """Run a program and return what it stored. `clobber` may change the machine before each step."""
    machine = Machine(random.Random(seed))
    index, stack = 0, []
    for time in range(400):
        clobber(machine, index, time)
        step = steps[index]
        following = index + 1
        if step.kind == "end":
            break
        if step.kind == "return":
            following = stack.pop()
        elif step.kind == "call":
            stack.append(index + 1)
            following = step.to
        elif (
            step.kind == "branch"
            or (step.kind == "scc0" and not machine.scalar[SCC])
            or (step.kind == "execz" and not machine.exec)
            or (step.kind == "execnz" and machine.exec)
        ):
            following = step.to
        elif step.op.run is not None:
            step.op.run(machine)
        index = following
    return machine.stored


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_overwriting_the_dead_changes_nothing(seed: int, assembled: Callable[..., CodeObject]) -> None:
    steps, lifted, index_of = lifted_program(seed, assembled)
    for trial in range(20):
        expected = execute(steps, trial, lambda machine, index, time: None)
        noise = random.Random(1000 * seed + trial)

        def clobber(machine: Machine, index: int, time: int, noise: random.Random = noise) -> None:
            if noise.random() > 0.3:
                return
            live = lifted.liveness.live_before(index_of[index])
            for unit in machine.scalar:
                if unit not in live.active:
                    machine.scalar[unit] = noise.getrandbits(1 if unit == SCC else 32)
            for unit, lanes in machine.vector.items():
                for lane in range(LANES):
                    if unit not in (live.active if machine.exec >> lane & 1 else live.inactive):
                        lanes[lane] = noise.getrandbits(32)

        assert execute(steps, trial, clobber) == expected, assembly(steps)
