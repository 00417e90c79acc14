"""Mutation: every wait of kernels that compilers made is removed and weakened, one at a time.

What the check of all paths does not find must not be found while the kernel runs, and must leave its output alone; what
is found while it runs must be found on all paths.
"""

from __future__ import annotations

import datetime
import random
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import luthier
import numpy as np
import pytest
from luthier.emulator import CheckWarning
from luthier.errors import EmulationError
from luthier.isa import Isa
from luthier.isa.waits import wait_model
from luthier.launch_plan import LaunchPlan
from luthier.lifting import LiftedRepresentation, lift
from luthier.lifting.waits import check_waits
from luthier.objects import CodeObject, load_object

KERNELS = Path(__file__).parents[1] / "emulator" / "kernels"
N = 100
MOST = 40
"""Mutants of a kernel that are judged."""


def buffer(kind: str, count: int, fill: str = "random") -> dict[str, object]:
    return {"buffer": kind, "count": count, "fill": fill}


PLANS = {
    "vector_add": ("plain", (buffer("float32", N), buffer("float32", N), buffer("float32", N, "zero"), N)),
    "collatz": ("plain", (buffer("uint32", N, "arange"), buffer("uint32", N, "zero"), N)),
    "call_function": ("plain", (buffer("int32", N), buffer("int32", N), buffer("int32", N, "zero"), N)),
    "integers": ("plain", (buffer("int32", N), buffer("int32", N), buffer("uint32", 24 * N, "zero"), N)),
    "reduction": ("groups", (buffer("float32", N), buffer("float32", 2, "zero"), N)),
    "lanes": ("groups", (buffer("int32", N), buffer("int32", N, "zero"), N)),
}
TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]


def mutants(object: CodeObject, lifted: LiftedRepresentation) -> Iterator[bytes]:
    """The object with one wait removed, or one of its limits one more."""
    isa = Isa.of(object.target, lifted.kernel.wave_size)
    model = wait_model(object.target.target)
    for instruction in lifted.instructions:
        values = lifted.columns.values(instruction.index)
        if instruction.block < 0 or instruction.opcode.pseudo not in model.fields:
            continue
        limits = model.limits(isa, instruction.opcode, values)
        at = instruction.offset

        def with_word(word: bytes, at: int = at) -> bytes:
            return object.data[:at] + word + object.data[at + len(word) :]

        yield with_word(object.target.target.s_nop)
        for counter, pieces in model.fields[instruction.opcode.pseudo]:
            number = model.counter_index[counter]
            value = next((limit.value for limit in limits if limit.counter == number), None)
            if value is None or not pieces:
                continue
            immediate = values[instruction.opcode.operand_index["simm16"]]
            rest = value + 1
            for low, bits in pieces:
                immediate = immediate & ~(((1 << bits) - 1) << low) | (rest & ((1 << bits) - 1)) << low
                rest >>= bits
            word = int.from_bytes(instruction.bytes, "little") & ~0xFFFF | immediate & 0xFFFF
            yield with_word(word.to_bytes(4, "little"))


def outcome(data: bytes, target: str, plan: LaunchPlan) -> tuple[bytes | None, bool]:
    """What a kernel writes, None if it fails; and whether a missing wait was found."""
    device = luthier.open_device(f"emu:{target}", check="waits")
    device.step_limit = 4
    arguments = plan.materialise()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckWarning)
        try:
            device.load(data).kernel(plan.kernel).launch(*arguments, grid=plan.grid, block=plan.block)
        except EmulationError:
            return None, bool(device.findings)
    return b"".join(one.tobytes() for one in arguments if isinstance(one, np.ndarray)), bool(device.findings)


def sample(made: list[bytes]) -> list[bytes]:
    """Not all of many, others on another day."""
    day = datetime.date.today().toordinal()
    return made if len(made) <= MOST else random.Random(day).sample(made, MOST)


def judge(object: CodeObject, target: str, plan: LaunchPlan) -> Counter[str]:
    """How many mutants were found where; anything contradictory is an error."""
    lifted = lift(object, plan.kernel)
    assert not check_waits(lifted).findings
    expected, found = outcome(object.data, target, plan)
    assert expected is not None
    assert not found
    seen: Counter[str] = Counter()
    for data in sample(list(mutants(object, lifted))):
        static = bool(check_waits(lift(load_object(data), plan.kernel), unneeded=False).findings)
        written, dynamic = outcome(data, target, plan)
        changed = written != expected
        assert static or not dynamic
        assert dynamic or not changed  # poison is never without a finding
        seen["mutants"] += 1
        seen["on all paths"] += static
        seen["while it runs"] += dynamic
        seen["output changed"] += changed
        seen["redundant"] += not static
    return seen


@pytest.mark.rotating(6)
@pytest.mark.parametrize("level", ["-O1", "-O3"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PLANS)
def test_mutants_are_found_or_redundant(compile_object, name: str, target: str, level: str) -> None:
    file, arguments = PLANS[name]
    object = load_object(compile_object(KERNELS / f"{file}.hip", target, f"-I{KERNELS}", "-ffp-contract=off", level))
    seen = judge(object, target, LaunchPlan(name, (1, 1, 1), (128, 1, 1), arguments))
    print(name, target, level, dict(seen))  # the rates in docs/checking.md
    assert seen["mutants"] > 1
    assert seen["on all paths"] > 0
