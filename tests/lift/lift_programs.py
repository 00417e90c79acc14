"""Random programs for liveness: what compilers make of divergent code, and more."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from lift_machine import (
    GARBAGE,
    KEPT,
    LANES,
    MASK_OPERATIONS,
    SCC,
    VCC,
    WORD,
    A,
    Bits,
    Machine,
    Op,
    Undefined,
    V,
    Word,
    anything,
)


def operation(rng: random.Random, only: str = "") -> Op:
    """A random operation, whose text holds `only`.

    Lambdas bind what was drawn by default arguments, as they outlive the draw.
    """
    d, a, b = (V + rng.randrange(6) for _ in range(3))
    x, y, z = (rng.randrange(6) for _ in range(3))
    vd, va, vb = (f"v{unit - V}" for unit in (d, a, b))

    def both(m: Machine, lane: int, result: Callable[[int, int], int]) -> int | None:
        left, right = m.vector[a][lane], m.vector[b][lane]
        return None if left is None or right is None else result(left, right)

    def vector_add(m: Machine) -> None:
        m.each(d, lambda lane: both(m, lane, lambda left, right: left + right))

    def broadcast(m: Machine) -> None:
        m.each(d, lambda lane: None if m.scalar[x].garbage else m.scalar[x].value)

    def select(m: Machine) -> None:
        chosen = m.pair(VCC)
        m.each(
            d,
            lambda lane: None if chosen.garbage >> lane & 1 else m.vector[b if chosen.value >> lane & 1 else a][lane],
        )

    def compared(m: Machine) -> Word:
        word = Word(0)
        for lane in m.active():
            less = both(m, lane, lambda left, right: left % 3 < right % 3)
            word.value |= (less or 0) << lane
            word.garbage |= (less is None) << lane
        return word

    def compare(m: Machine) -> None:
        m.set_pair(VCC, compared(m))

    def compare_exec(m: Machine) -> None:
        compare(m)
        m.set_exec(m.pair(VCC))

    def write_lane(m: Machine) -> None:
        m.vector[d][2] = None if m.scalar[x].garbage else m.scalar[x].value

    def first(m: Machine) -> None:
        lane = m.active()[0] if m.active() else 0
        if m.exec.value and not m.active():
            raise Undefined  # a lane that is not looked at
        value = m.vector[a][lane]
        m.scalar[x] = GARBAGE if value is None else Word(value)

    def permute(m: Machine) -> None:
        old, at = dict(m.vector[b]), dict(m.vector[a])
        m.each(d, lambda lane: None if (to := at[lane]) is None else old[LANES[to % len(LANES)]])

    def arithmetic(result: Callable[[Machine], int], sources: list[int]) -> Callable[[Machine], None]:
        def run(m: Machine) -> None:
            if any(m.scalar[unit].garbage for unit in sources):
                m.scalar[x], m.scalar[SCC] = GARBAGE, Word(0, 1)
            else:
                total = result(m)
                m.scalar[x], m.scalar[SCC] = Word(total & WORD), Word(total >> 32)

        return run

    def add(m: Machine) -> int:
        return m.scalar[y].value + m.scalar[z].value

    def add_carry(m: Machine) -> int:
        return add(m) + m.scalar[SCC].value

    def conditional(m: Machine) -> None:
        if m.scalar[SCC].garbage:
            m.scalar[x] = GARBAGE
        elif m.scalar[SCC].value:
            m.scalar[x] = m.scalar[y]

    def store(m: Machine) -> None:
        m.stored.append([(lane, m.vector[a][lane], m.vector[b][lane]) for lane in m.active()])

    vcc = [VCC, VCC + 1]
    aa, ab = f"v[{a - V & 6}:{(a - V & 6) + 1}]", f"v[{b - V & 6}:{(b - V & 6) + 1}]"

    def compare_bits(t: Bits) -> list[Bits]:
        return anything(t, "v") if t.e else [t._replace(v=0)]

    choices = [
        Op(f"v_mov_b32_e32 {vd}, {va}", [a], [d], run=lambda m: m.each(d, lambda lane: m.vector[a][lane])),
        Op(f"v_mov_b32_e32 {vd}, s{x}", [x], [d], run=broadcast),
        Op(f"v_add_u32_e32 {vd}, {va}, {vb}", [a, b], [d], run=vector_add),
        Op(f"v_cndmask_b32_e32 {vd}, {va}, {vb}, vcc", [a, b, *vcc], [d], run=select),
        Op(f"v_cmp_lt_u32_e32 vcc, {va}, {vb}", [a, b], vcc, compare_bits, run=compare),
        Op(
            f"v_cmpx_lt_u32_e32 vcc, {va}, {vb}",
            [a, b],
            vcc,
            lambda t: [t._replace(e=v, v=v) for v in ((0, 1) if t.e else (0,))],
            run=compare_exec,
        ),
        Op(f"v_writelane_b32 {vd}, s{x}, 2", [x], [d], replaces=False, some_lane=True, run=write_lane),
        Op(f"v_readfirstlane_b32 s{x}, {va}", [a], [x], across=True, run=first),
        Op(f"ds_bpermute_b32 {vd}, {va}, {vb}", [a, b], [d], across=True, run=permute),
        Op(f"v_accvgpr_read_b32 {vd}, a0", [A], [d], across=True, run=lambda m: m.each(d, lambda n: m.vector[A][n])),
        Op(f"s_mov_b32 s{x}, s{y}", [y], [x], run=lambda m: m.scalar.update({x: m.scalar[y]})),
        Op(f"s_add_u32 s{x}, s{y}, s{z}", [y, z], [x, SCC], run=arithmetic(add, [y, z])),
        Op(f"s_addc_u32 s{x}, s{y}, s{z}", [y, z, SCC], [x, SCC], run=arithmetic(add_carry, [y, z, SCC])),
        Op(f"s_cmov_b32 s{x}, s{y}", [y, SCC], [x], replaces=False, run=conditional),
        *MASK_OPERATIONS,
        Op(f"global_store_dword {va}, {vb}, s[10:11]", [a, b, 10, 11], run=store),
    ]
    choices = [op for op in choices if only in op.text]
    if not only and rng.random() < 0.03:
        reads = [*range(a & ~1, (a & ~1) + 2), *range(b & ~1, (b & ~1) + 2)]
        text = f"v_mfma_f32_4x4x4f16 a[0:3], {aa}, {ab}, 0"

        def matrix(m: Machine) -> None:
            result = {}
            for lane, other in zip(LANES, LANES[::-1], strict=True):
                left, right = m.vector[reads[0]][lane], m.vector[reads[3]][other]
                result[lane] = None if left is None or right is None else left ^ right
            m.vector[A] = result

        return Op(text, reads, [A], across=True, every_lane=True, run=matrix)
    if only == "overwrite" or (not only and rng.random() < 0.02):  # what is kept in lanes, if they are active

        def overwrite(m: Machine) -> None:
            m.each(KEPT, lambda lane: None if m.scalar[x].garbage else m.scalar[x].value)

        return Op(f"v_mov_b32_e32 v7, s{x}", [x], [KEPT], lambda t: [t, *anything(t, "kept")], run=overwrite)
    weights = [
        3.0 if "store" in op.text else 0.7 if "s[" in op.text else 0.3 if "v7" in op.text else 1.0 for op in choices
    ]
    return rng.choices(choices, weights)[0]


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
    by: int = 0
    """Steps a branch goes on or back; 0: anywhere in the function."""


def divergent(rng: random.Random, function: int, depth: int = 0) -> list[Step]:
    """What compilers make of branches and loops."""

    def body() -> list[Step]:
        if depth < 2 and rng.random() < 0.4:
            return divergent(rng, function, depth + 1)
        if rng.random() < 0.2:
            return [plain(rng, function), Step(Op(""), "call", function=function)]
        return [plain(rng, function) for _ in range(rng.randint(1, 3))]

    def named(text: str) -> Step:
        return Step(operation(rng, text), function=function)

    compare = named("v_cmp_lt_u32")
    # Nested ones keep the outer mask in the other pair.
    if depth:
        inner = [compare, named("s_and_saveexec_b64 s[6:7]"), *body()]
        return [*inner, named("s_or_b64 exec, exec, s[6:7]")]
    shape = rng.choice(["if", "else", "else2", "loop", "kept", "moved"])
    if shape == "moved":
        head = [compare, named("s_and_saveexec_b64 s[8:9], vcc"), *body()]
        low = rng.choice(["s_mov_b32 s6, s8", "s_mov_b32 s6, s9"])
        moves = rng.choice([["s_cselect_b64"], ["s_mov_b32 s7, s9", low]])
        return [*head, *[named(text) for text in moves], named("s_or_b64 exec, exec, s[6:7]")]
    if shape == "kept":
        head = [compare, named("s_and_saveexec_b64 s[8:9], vcc"), named("v7, s8, 0"), named("v7, s9, 1"), *body()]
        middle = [named("overwrite")] if rng.random() < 0.3 else []
        return [*head, *middle, named("s6, v7, 0"), named("s7, v7, 1"), named("s_or_b64 exec, exec, s[6:7]")]
    if shape == "if":
        return [compare, named("s_and_saveexec_b64 s[8:9], vcc"), *body(), named("s_or_b64 exec, exec, s[8:9]")]
    if shape == "else":
        head = [compare, named("s_and_saveexec_b64 s[8:9], vcc"), named("s_xor_b64 s[8:9], exec, s[8:9]"), *body()]
        return [*head, named("s_andn2_saveexec_b64 s[8:9]"), *body(), named("s_or_b64 exec, exec, s[8:9]")]
    if shape == "else2":
        head = [compare, named("s_and_saveexec_b64 s[6:7], vcc"), *[plain(rng, function) for _ in range(2)]]
        middle = [named("s_or_saveexec_b64 s[8:9], s[6:7]"), named("s_xor_b64 exec, exec, s[8:9]")]
        return [*head, *middle, *[plain(rng, function)], named("s_or_b64 exec, exec, s[8:9]")]
    loop = [
        plain(rng, function),
        compare,
        named("s_or_b64 s[6:7], vcc, s[6:7]"),
        named("s_andn2_b64 exec, exec, s[6:7]"),
    ]
    back = Step(Op(""), "execnz", function=function, by=-len(loop))
    return [named("s_mov_b64 s[6:7], 0"), *loop, back, named("s_or_b64 exec, exec, s[6:7]")]


def plain(rng: random.Random, function: int) -> Step:
    """An operation on vector registers."""
    only = rng.choice(["v_mov_b32_e32 v", "v_add_u32", "v_cndmask", "ds_bpermute", "global_store", "v_mov_b32_e32 v"])
    return Step(operation(rng, only), function=function)


def program(rng: random.Random, functions: int) -> list[Step]:
    """Random blocks; a function calls only later ones, each with its own link register, so there is no recursion."""
    steps: list[Step] = []
    firsts: list[int] = []
    calls: list[tuple[int, int]] = []
    for function in range(functions):
        firsts.append(len(steps))
        start = len(steps)
        if function == 0:
            steps += [Step(operation(rng, "v_mov_b32_e32 v"), function=0) for _ in range(rng.randint(0, 6))]
        if function > 0 and rng.random() < 0.3:  # changes a mask, or not
            changing = [Step(operation(rng, "s_mov_b64 s[8:9], s[6:7]"), function=function)] * rng.randint(1, 2)
            steps += [Step(Op(""), "scc0", function=function, by=1 + len(changing)), *changing]
            steps += [Step(Op(""), "return", function=function)]
            steps[start].to = start + steps[start].by
            continue
        saves = function > 0 and rng.random() < 0.5
        if saves:  # what callees do that keep registers for their callers
            steps += [Step(operation(rng, only), function=function) for only in ("v7, s8, 0", "v7, s9, 1")]
        for _ in range(rng.randint(2, 4)):
            if rng.random() < 0.5:
                steps += divergent(rng, function)
            else:
                steps += [Step(operation(rng), function=function) for _ in range(rng.randint(0, 4))]
            kind = rng.choice(["scc0", "execz", "execnz", "next", "call", "branch", "next"])
            if kind != "next":
                steps.append(Step(Op(""), kind, function=function))
        if function == 0:  # some way to see what there is at the end
            steps += [Step(operation(rng, only), function=0) for only in ("s_or_b64 exec", "store", "store")]
        if saves or (function > 0 and rng.random() < 0.2):  # the latter brings them what was kept last
            steps += [Step(operation(rng, only), function=function) for only in ("s8, v7, 0", "s9, v7, 1")]
        steps.append(Step(Op(""), "end" if function == 0 else "return", function=function))
        for index, step in enumerate(steps[start:], start):
            if step.kind == "call" and function + 1 < functions:
                calls.append((index, rng.randrange(function + 1, functions)))
            elif step.kind == "call":
                steps[index] = plain(rng, function)
            if step.kind in ("branch", "scc0", "execz", "execnz"):
                step.to = index + step.by if step.by else rng.randrange(start, len(steps))
    for place, callee in calls:
        steps[place].to = firsts[callee]
    return with_control(steps)


def with_control(steps: list[Step]) -> list[Step]:
    """The steps with the instructions that make calls, branches and ends."""
    for step in steps:
        link = 40 + 2 * step.function
        if step.kind == "call":
            callee_link = 40 + 2 * steps[step.to].function
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
