"""Hooks that read and write registers, made up from a seed: their HIP source, and in Python what they must do."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VCC, M0, EXEC, SCC, VGPR, AGPR = 106, 124, 126, 128, 256, 1280
WORD = np.uint64(0xFFFFFFFF)
Lanes = NDArray[np.uint64]
"""A 32-bit value a lane."""


def name_of(unit: int) -> str:
    """Return a register unit as hooks spell it."""
    special = {VCC: "VCC_LO", VCC + 1: "VCC_HI", M0: "M0", EXEC: "EXEC_LO", EXEC + 1: "EXEC_HI", SCC: "SCC"}
    if unit in special:
        return special[unit]
    return f"AGPR{unit - AGPR}" if unit >= AGPR else f"VGPR{unit - VGPR}" if unit >= VGPR else f"SGPR{unit}"


class Wave:
    """The registers of a wave: vectors have a value a lane, scalars one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.units: dict[int, Lanes] = {}
        self.scalars: dict[int, int] = {}

    @property
    def active(self) -> NDArray[np.bool_]:
        mask = self.scalars[EXEC] | self.scalars.get(EXEC + 1, 0) << 32
        return np.array([mask >> lane & 1 for lane in range(self.size)], bool)

    def seen(self, unit: int) -> Lanes:
        """Return what each lane reads."""
        if unit >= VGPR:
            return self.units[unit].copy()
        return np.full(self.size, self.scalars[unit], np.uint64)

    def put(self, unit: int, value: Lanes, active: NDArray[np.bool_]) -> None:
        if unit >= VGPR:
            self.units[unit] = np.where(active, value, self.units[unit])
        else:
            first = int(value[np.flatnonzero(active)[0]])
            self.scalars[unit] = int(first != 0) if unit == SCC else first


@dataclass(frozen=True)
class Step:
    """One statement of a hook.

    ``read``: value `into` := registers; ``write``: registers := value `a`, in lanes where value `b` is odd if there is
    one; ``xor``, ``add``: value `into` := a ^ b, a + constant.
    """

    kind: str
    unit: int = 0
    words: int = 1
    into: int = 0
    a: int = 0
    b: int = -1
    constant: int = 0


_TYPES = {1: "uint32_t", 2: "uint64_t", 4: "U4"}


@dataclass(frozen=True)
class HookModel:
    """A hook as its steps."""

    name: str
    steps: tuple[Step, ...]

    @property
    def reaches(self) -> frozenset[int]:
        """Return the units it reads or writes."""
        return frozenset(
            unit
            for step in self.steps
            if step.kind in ("read", "write")
            for unit in range(step.unit, step.unit + step.words)
        )

    @property
    def writes(self) -> frozenset[int]:
        return frozenset(
            unit for step in self.steps if step.kind == "write" for unit in range(step.unit, step.unit + step.words)
        )

    def source(self) -> str:
        """Return the source in HIP."""
        lines = []
        for step in self.steps:
            kind = _TYPES[step.words]
            register = f"luthier::{name_of(step.unit)}"
            if step.kind == "read":
                lines.append(f"{kind} x{step.into} = luthier::readReg<{kind}>({register});")
            elif step.kind == "xor":
                lines.append(f"{kind} x{step.into} = x{step.a} ^ x{step.b};")
            elif step.kind == "add":
                lines.append(f"{kind} x{step.into} = x{step.a} + {step.constant:#x}u;")
            elif step.kind == "constant":
                lines.append(f"{kind} x{step.into} = {step.constant:#x}u;")
            else:
                condition = f"if (odd(x{step.b})) " if step.b >= 0 else ""
                lines.append(f"{condition}luthier::writeReg<{kind}>({register}, x{step.a});")
        body = "\n  ".join(lines)
        return f"LUTHIER_HOOK_ANNOTATE {self.name}() {{\n  {body}\n}}\n"

    def run(self, wave: Wave) -> None:
        """Execute the hook.

        Each lane sees registers of its own while it runs; at the end vectors change in its lanes, and of scalars what
        the first lane has is kept.
        """
        active = wave.active
        if not active.any():
            return
        own: dict[int, Lanes] = {}
        values: dict[int, list[Lanes]] = {}
        for step in self.steps:
            units = range(step.unit, step.unit + step.words)
            if step.kind == "read":
                values[step.into] = [own[unit].copy() if unit in own else wave.seen(unit) for unit in units]
            elif step.kind == "constant":
                zero = np.zeros(wave.size, np.uint64)
                values[step.into] = [zero + np.uint64(step.constant), *[zero] * (step.words - 1)]
            elif step.kind == "xor":
                values[step.into] = [a ^ b for a, b in zip(values[step.a], values[step.b], strict=True)]
            elif step.kind == "add":
                values[step.into] = _add(values[step.a], step.constant)
            else:
                odd = (values[step.b][0] & np.uint64(1)).astype(bool) if step.b >= 0 else np.ones(wave.size, bool)
                for unit, value in zip(units, values[step.a], strict=True):
                    before = own[unit] if unit in own else wave.seen(unit)
                    own[unit] = np.where(odd, value, before)
        for unit, value in own.items():
            wave.put(unit, value, active)


def _add(words: list[Lanes], constant: int) -> list[Lanes]:
    """Return words plus a constant: for one or two words, added to all of it; for four, to each."""
    if len(words) == 4:
        return [(word + np.uint64(constant)) & WORD for word in words]
    low = words[0] + np.uint64(constant)
    return [low & WORD, *((word + (low >> np.uint64(32))) & WORD for word in words[1:])]


SUPPORT = """
typedef uint32_t U4 __attribute__((ext_vector_type(4)));
__device__ inline bool odd(uint32_t x) { return x & 1; }
__device__ inline bool odd(uint64_t x) { return x & 1; }
__device__ inline bool odd(U4 x) { return x.x & 1; }
"""


@dataclass(frozen=True)
class Places:
    """Registers that hooks may use."""

    vectors: tuple[int, ...]
    scalars: tuple[int, ...]
    accumulators: tuple[int, ...]
    fixed: tuple[int, ...]


def _starts(files: Iterable[tuple[int, ...]], words: int) -> list[int]:
    """Return the first units of this many neighbours."""
    starts = [unit for file in files for unit in file if set(range(unit, unit + words)) <= set(file)]
    return [*starts, M0, SCC] if words == 1 else starts


def made_up(name: str, random_: random.Random, places: Places) -> HookModel:
    """Return a hook with two to four reads and writes of registers."""
    words = random_.choice((1, 1, 1, 2, 2, 4))

    files = (places.vectors, places.scalars, places.accumulators, places.fixed)
    chosen = [file for file in files if random_.random() < 0.7] or files
    starts = _starts(chosen, words) or _starts(files, words)
    weights = [2.0 if VGPR <= unit < AGPR else 1.0 for unit in starts]

    def pick() -> int:
        return random_.choices(starts, weights)[0]

    read = [pick() for _ in range(random_.randint(2, 4))]
    write = (
        random_.sample(read, len(read)) if random_.random() < 0.6 else [pick() for _ in range(random_.randint(2, 4))]
    )
    steps: list[Step] = []
    values = 0

    def add(kind: str, **rest: int) -> int:
        nonlocal values
        values += 1
        steps.append(Step(kind, words=words, into=values - 1, **rest))
        return values - 1

    known = [add("read", unit=unit) for unit in read]
    shape = random_.choice(("rotate", "rotate", "chain", "mixed"))
    for number, unit in enumerate(write):
        value = known[(number + 1) % len(known)]
        if shape == "chain" and number:
            value = add("read", unit=write[number - 1])  # what was just written there
        elif shape == "mixed":
            how = random_.randrange(4)
            if how == 0:
                value = add("xor", a=random_.choice(known), b=random_.choice(known))
            elif how == 1:
                value = add("add", a=random_.choice(known), constant=random_.randrange(1, 1 << 31))
            elif how == 2 and words < 4:
                value = add("constant", constant=random_.choice((0, 1, 7, 0x12345678)))
        condition = random_.choice(known) if random_.random() < 0.15 else -1
        steps.append(Step("write", unit, words, a=value, b=condition))
    return HookModel(name, tuple(steps))
