"""Random kernels in HIP: control flow, LDS, barriers, doubles, 16-bit and packed arithmetic, calls by pointers,
recursion and inline assembly; and which of them meets which target, optimization level and tool."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FEATURES = (
    *("control flow", "LDS", "barriers", "doubles", "16-bit", "packed", "pointers", "recursion", "inline assembly"),
)
LEVELS = ("-O0", "-O1", "-O2", "-O3")
TOGETHER = 5
"""Kernels in one source."""
LANES, GROUPS = 128, 2
_CANDIDATES = 120
_AT_ONCE = 3
"""Features of one kernel."""
PRELUDE = """#include <hip/hip_runtime.h>
typedef uint32_t (*Function)(uint32_t);
typedef _Float16 Half2 __attribute__((ext_vector_type(2)));
typedef uint16_t Short2 __attribute__((ext_vector_type(2)));
#define INLINE_NEVER static __device__ __attribute__((noinline))
"""


@dataclass(frozen=True)
class Choice:
    """One kernel, and what it meets."""

    number: int
    features: tuple[str, ...]
    target: str
    level: str
    tool: str

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Return every two of the features that it combines."""
        parts = (*((feature, one) for feature in self.features for one in (self.target, self.level, self.tool)),)
        rest = itertools.combinations((self.target, self.level, self.tool), 2)
        return {*parts, *rest, *itertools.combinations(sorted(self.features), 2)}


def choices(targets: Sequence[str], tools: Sequence[str], count: int) -> list[Choice]:
    """Return kernels that combine as many pairs as possible, the first of them most.

    Each is the best of some candidates chosen at random: the one with the most pairs that none before it had.
    """
    rng = random.Random("choices")
    chosen: list[Choice] = []
    seen: set[tuple[str, str]] = set()
    for number in range(count):
        source = number // TOGETHER
        target = targets[source % len(targets)]
        level = LEVELS[(source + source // len(targets)) % len(LEVELS)]
        candidates = [
            Choice(number, tuple(rng.sample(FEATURES, _AT_ONCE)), target, level, rng.choice(tools))
            for _ in range(_CANDIDATES)
        ]
        best = max(candidates, key=lambda candidate: len(candidate.pairs - seen))
        seen |= best.pairs
        chosen.append(best)
    return chosen


def all_pairs(targets: Sequence[str], tools: Sequence[str]) -> set[tuple[str, str]]:
    """Return what `Choice.pairs` of all kernels together are to have."""
    both = {*itertools.product(FEATURES, (*targets, *LEVELS, *tools)), *itertools.combinations(sorted(FEATURES), 2)}
    return {*both, *itertools.product(targets, (*LEVELS, *tools)), *itertools.product(LEVELS, tools)}


def source_of(kernels: Sequence[Choice]) -> str:
    """Return one source with the kernels ``k<number>``, each with a number for every lane.

    They take ``(uint32_t *out, const uint32_t *in)``.
    """
    return PRELUDE + "".join(_Writer(one).text() for one in kernels)


class _Writer:
    """Writes one kernel. What it computes is in a, b and c, of 32 bits, and of what its features have besides."""

    def __init__(self, choice: Choice) -> None:
        self.rng = random.Random(f"kernel {choice.number}")
        self.has = frozenset(choice.features)
        self.name = f"k{choice.number}"
        self.loops = 0

    def text(self) -> str:
        lines = [*self.functions(), f'extern "C" __global__ void {self.name}(uint32_t *out, const uint32_t *in) {{']
        lines += ["uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, a = in[i], b = i * 0x9E3779B1u, c = blockIdx.x;"]
        lines += ["double d = a * 0.25 + 1; _Float16 h = (_Float16)(a & 255); uint16_t s = b; int16_t t = a >> 3;"]
        lines += ["Half2 p = {h, (_Float16)(b & 63)}; Short2 q = {s, (uint16_t)(a >> 9)};"]
        lines += [f"__shared__ uint32_t lds[{LANES}];"] if self.has & {"LDS", "barriers"} else []
        for _ in range(self.rng.randrange(4, 8)):
            lines += self.exchange() if self.has & {"LDS", "barriers"} and self.rng.random() < 0.4 else self.step(2)
        for feature in sorted(self.has):
            lines += self.use(feature)
        lines += ["out[i] = a ^ b * 3 ^ c * 5 ^ (uint32_t)(int64_t)(d * 16) ^ s ^ (uint32_t)t ^ (uint32_t)(float)h;"]
        return "\n".join([*lines, "out[i] += q.x ^ q.y << 16 ^ (uint32_t)(float)p.x ^ (uint32_t)(float)p.y;", "}\n"])

    def functions(self) -> Iterator[str]:
        if "pointers" in self.has:
            names = [f"{self.name}_f{number}" for number in range(self.rng.randrange(2, 5))]
            for name in names:
                yield f"INLINE_NEVER uint32_t {name}(uint32_t x) {{"
                yield from (f"x = {self.number('x')};" for _ in range(self.rng.randrange(1, 4)))
                if self.rng.random() < 0.6:
                    yield f"for (uint32_t n = x & 3; n; n--) x = {self.number('x', 'n')};"
                yield f"return x & 4 ? {self.number('x')} : x; }}"
            size = 1 << self.rng.randrange(1, 4)
            entries = ", ".join(self.rng.choice(names) for _ in range(size))
            yield f"__device__ Function {self.name}_table[{size}] = {{{entries}}};"
            self.table = size
        if "recursion" in self.has:
            name = f"{self.name}_r"
            yield f"INLINE_NEVER uint32_t {name}(uint32_t x, uint32_t n) {{ if (!n) return x;"
            yield f"uint32_t y = {name}({self.number('x', 'n')}, n - 1);"
            yield f"return y & 8 ? {self.number('x', 'y')} : y + {name}(x >> 1, n / 2); }}"

    # Statements

    def step(self, depth: int) -> list[str]:
        rng = self.rng
        kinds = 3 if depth and "control flow" in self.has else 0
        kind = rng.randrange(3 + kinds)
        if kind < 3 and (kind or not self.has):
            return [f"{self.variable()} = {self.number()};"]
        if kind < 3:
            return self.use(rng.choice(sorted(self.has)))
        inside = [line for _ in range(rng.randrange(1, 4)) for line in self.step(depth - 1)]
        if kind == 3:
            other = self.step(depth - 1)
            return [f"if ({self.test()}) {{", *inside, "} else {", *other, "}"]
        self.loops += 1
        counter = f"n{self.loops}"
        leave = [f"if ({self.test()}) {rng.choice(('break', 'continue'))};"] if rng.random() < 0.5 else []
        if kind == 4:
            bound = rng.choice(("(a & 3) + 1", "3", "(b & 7)"))
            return [f"for (uint32_t {counter} = 0, m = {bound}; {counter} < m; {counter}++) {{", *leave, *inside, "}"]
        cases = [
            f"case {number}: {self.variable()} = {self.number()}; {rng.choice(('break;', ''))}" for number in range(4)
        ]
        return ["switch (a & 7) {", *cases, "default:", *inside, "}"]

    def exchange(self) -> list[str]:
        """Return code in which lanes of a work-group read what others wrote; all of them execute it."""
        at = self.rng.choice((f"{LANES - 1} - threadIdx.x", f"(threadIdx.x + {self.rng.randrange(99)}) % {LANES}"))
        lines = [f"lds[threadIdx.x] = {self.number()};", "__syncthreads();", f"a += lds[{at}];", "__syncthreads();"]
        if "LDS" in self.has:
            lines += [f"atomicAdd(&lds[{at} & 31], b & 15);", "__syncthreads();", "c ^= lds[threadIdx.x & 31];"]
            lines += ["__syncthreads();"]
        return lines

    def use(self, feature: str) -> list[str]:
        rng, to = self.rng, self.variable()
        forms: tuple[str, ...]
        if feature == "doubles":
            of = rng.choice(
                ("d * 1.5 + {}", "d / ({} + 1.0)", "sqrt(fabs(d) + {})", "fma(d, 0.75, {})", "floor(d) - {}")
            )
            sum_ = of.format(f"({self.number()} & 1023)")
            return [f"d = {sum_}; d = fabs(d) < 65536.0 ? d : 1.0; {to} ^= (uint32_t)(int32_t)d;"]
        if feature == "16-bit":
            forms = (
                "s = s * 3 + (uint16_t){}",
                "t = t >> 2 ^ (int16_t){}",
                "h = h * (_Float16)0.5 + (_Float16)({} & 31)",
            )
            return [rng.choice(forms).format(self.number()) + f"; {to} += s ^ (uint32_t)t;"]
        if feature == "packed":
            forms = (
                "p = p * (Half2){{0.5, 0.25}} + (Half2)((_Float16)({} & 15))",
                "q = q * (Short2){{3, 5}} + (Short2)((uint16_t){})",
            )
            return [rng.choice(forms).format(self.number()) + f"; {to} ^= q.x + q.y;"]
        if feature == "pointers":
            return [f"{to} += {self.name}_table[{self.number()} & {self.table - 1}]({self.number()});"]
        if feature == "recursion":
            return [f"{to} ^= {self.name}_r({self.number()}, {self.variable()} & {rng.choice((1, 3))});"]
        if feature == "inline assembly":
            forms = (
                'asm volatile("v_xor_b32 %0, %1, %2" : "=v"({0}) : "v"({1}), "v"({0}));',
                'asm volatile("v_bfe_u32 %0, %1, 3, 9" : "=v"({0}) : "v"({1}));',
                'asm volatile("v_alignbit_b32 %0, %1, %2, 5" : "=v"({0}) : "v"({1}), "v"({0}));',
                '{{ uint32_t u; asm("s_mov_b32 %0, 0x1234\\n s_add_u32 %0, %0, 7" : "=s"(u) :: "scc"); {0} += u; }}',
                'asm volatile("v_mov_b32 v9, %1\\n s_nop 1\\n v_mov_b32 %0, v9" : "=v"({0}) : "v"({1}) : "v9");',
            )
            return [rng.choice(forms).format(to, self.variable())]
        return [f"{to} = {self.test()} ? {self.number()} : {self.number()};"]

    # Expressions

    def variable(self) -> str:
        return self.rng.choice("abc")

    def number(self, *names: str) -> str:
        names = names or ("a", "b", "c")
        left, right = self.rng.choice(names), self.rng.choice(names)
        forms = (
            "{0} * {2}u + {1}",
            "{0} ^ {1} >> {3}",
            "({0} << {3} | {1} >> {4})",
            "{0} - {1} * {2}u",
            "{0} % ({2}u + ({1} & 7))",
        )
        shift = self.rng.randrange(1, 31)
        return f"({self.rng.choice(forms).format(left, right, self.rng.randrange(1, 1 << 16), shift, 32 - shift)})"

    def test(self) -> str:
        left, right = self.variable(), self.variable()
        forms = ("{0} & {2}", "({0} & 15) < ({1} >> 28)", "threadIdx.x < {2}", "({0} ^ {1}) & 1", "__popc({0}) > 14")
        return f"({self.rng.choice(forms).format(left, right, 1 << self.rng.randrange(7))})"
