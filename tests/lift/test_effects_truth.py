"""Every opcode: what lifting says that it reads and writes, against what it does on the emulated device.

`make test-all` looks at every opcode of every target, in LUTHIER_FUZZ forms each.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest
from effort import EVERYTHING, FUZZ
from lift_truth import Bench, Impossible
from luthier.emulator.inspection.coverage import NOT_COMPUTE, samples
from luthier.errors import EmulationError
from luthier.isa import Isa
from luthier.isa import registers as r
from luthier.lifting.instructions.semantics import Control, LaneChange, control_of

STEP = 1 if EVERYTHING else 24
TARGETS = [("gfx950", 64), ("gfx1151", 32), ("gfx1201", 64)]
if EVERYTHING:
    TARGETS += [("gfx906", 64), ("gfx908", 64), ("gfx90a", 64), ("gfx942", 64), ("gfx1030", 32), ("gfx1030", 64)]
    TARGETS += [("gfx1100", 32), ("gfx1100", 64), ("gfx1200", 32), ("gfx1201", 32)]
FILES = ("vsa", "svx", "av", "xv")
"""Sorts of registers, those that are taken first first."""
ELSEWHERE = ("s_getpc", "s_setpc", "s_swappc", "s_call", "s_rfe", "s_endpgm", "s_trap", "s_set_pc", "s_swap_pc")
"""These give or take addresses of code, which are other ones in each run, or do not come back."""
SKIPPING = "s_setvskip"
"""What it changes of MODE is followed apart, as `SkipMode`."""


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "wave"), TARGETS)
def test_says_what_the_device_does(target: str, wave: int) -> None:
    isa = Isa.of(target, wave)
    bench = Bench(isa, int(os.environ.get("LUTHIER_SEED", "1")))
    outcomes: Counter[str] = Counter()
    differences = []
    numbers = [number for number in sorted(samples(isa)) if not isa.opcode(number).flags & NOT_COMPUTE]
    for number in numbers[int(bench.random.integers(STEP)) :: STEP]:
        opcode = isa.opcode(number)
        if opcode.mnemonic.startswith(ELSEWHERE) or control_of(opcode.pseudo, isa.target.target) is Control.REFUSED:
            continue
        sample, index = samples(isa)[number]
        for _ in range(FUZZ):
            mask = int(bench.random.integers(1, 1 << wave, dtype=np.uint64))
            try:
                code = bench.variant(opcode, sample.operands(index), str(bench.random.choice(FILES)))
                problems = bench.problems(code, int(bench.random.choice([mask, mask, -1, 0])), bench.effects(code))
            except (Impossible, EmulationError) as problem:
                outcomes[type(problem).__name__] += 1
                continue
            outcomes["ran"] += 1
            if opcode.mnemonic.startswith(SKIPPING):
                problems = [problem for problem in problems if problem != "MODE changes"]
            differences += [f"{isa.text(code, 0)}: {problem}" for problem in problems]
    print(outcomes)
    assert not differences
    assert outcomes["ran"] > 0.9 * outcomes.total() > 1600 / STEP


@pytest.mark.rows(5)
@pytest.mark.parametrize(
    ("text", "lost", "problem"),
    [
        ("v_add_f32 v5, v6, v7", {"reads": 1 << r.VGPR_FIRST + 7}, "v5 depends on what is not read"),
        ("v_add_f32 v5, v6, s7", {"reads": 1 << 7}, "v5 depends on what is not read"),
        ("v_add_f32 v5, v6, v7", {"writes": 1 << r.VGPR_FIRST + 5}, "v5 changes"),
        ("v_addc_co_u32 v5, vcc, v6, v7, vcc", {"reads": 3 << r.VCC_LO}, "v5 depends on what is not read"),
        ("v_readlane_b32 s5, v6, 3", {"cross_reads": 1 << r.VGPR_FIRST + 6}, "s5 depends on what is not read"),
        ("s_add_u32 s5, s6, s7", {"writes": 1 << r.SCC}, "SCC changes"),
        ("s_addc_u32 s5, s6, s7", {"reads": 1 << r.SCC}, "s5 depends on what is not read"),
        ("s_or_saveexec_b64 s[4:5], s[6:7]", {"writes": 3 << r.EXEC_LO}, "EXEC changes"),
        ("s_or_saveexec_b64 s[4:5], s[6:7]", {"lanes": 4}, "BECOMES_ACTIVE"),
        ("s_cbranch_scc1 1", {"reads": 1 << r.SCC}, "control depends on what is not read"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3", {"writes": 1 << r.MODE}, "MODE changes"),
        ("v_cvt_f16_f32 v5, v6", {"reads": 1 << r.MODE}, "v5 depends on what is not read"),
        ("ds_write_b32 v5, v6", {"reads": 1 << r.VGPR_FIRST + 6}, "memory, LDS or control depends"),
        ("v_accvgpr_read_b32 v5, a6", {"reads": 1 << r.AGPR_FIRST + 6}, "v5 depends on what is not read"),
    ],
)
def test_the_bench_notices(text: str, lost: dict[str, int], problem: str) -> None:
    """What effects leave out is found."""
    isa = Isa.of("gfx90a")
    code = isa.decode(isa.assemble(text).instructions.code)
    problems = []
    for seed in range(8):
        bench = Bench(isa, seed)
        right = bench.effects(code)
        assert bench.problems(code, 0x5555555533333333, right) == []
        wrong = right._replace(**{name: getattr(right, name) & ~units for name, units in lost.items()})
        problems += bench.problems(code, 0x5555555533333333, wrong)
    assert any(problem in one for one in problems), problems


def test_the_bench_notices_what_is_not_replaced() -> None:
    isa = Isa.of("gfx90a")
    move = isa.decode(isa.assemble("s_cmov_b32 s5, s6").instructions.code)
    bench = Bench(isa, 0)
    effects = bench.effects(move)
    problems = [one for _ in range(8) for one in bench.problems(move, -1, effects._replace(kills=effects.writes))]
    assert "s5 depends on what is not read, or is not replaced" in problems


SAVING = [f"{name}_saveexec" for name in ("and", "or", "xor", "nand", "nor", "xnor", "andn1", "andn2", "orn1", "orn2")]
SAVING += ["andn1_wrexec", "andn2_wrexec"]
LOGIC = ("and", "or", "xor", "andn2", "orn2", "nand", "nor", "xnor")


def exec_writes() -> list[str]:
    """Operations on masks that give EXEC, with sources that are constant, EXEC itself, or anything."""
    texts = [f"s_{name}_b64 s[4:5], {a}" for name in SAVING for a in (-1, 0, "exec", "s[6:7]")]
    texts += [f"s_{name}_b64 exec, {a}" for name in ("mov", "not", "wqm") for a in (-1, 0, "exec", "s[6:7]")]
    for name in LOGIC:
        for left in (-1, "exec", "s[6:7]"):
            texts += [f"s_{name}_b64 exec, {left}, {other}" for other in (0, "exec", "s[8:9]")]
    return texts


@pytest.mark.rows(22)
@pytest.mark.parametrize("text", exec_writes())
def test_lanes_of_exec_writes(text: str) -> None:
    """Lanes change as `LaneChange` says: from unrelated masks, with one operand constant or EXEC, all of it happens."""
    isa = Isa.of("gfx90a")
    code = isa.decode(isa.assemble(text).instructions.code)
    bench = Bench(isa, 1)
    effects = bench.effects(code)
    for lanes_on in (0x0F0F33550F0F3355, -1, 0):
        assert bench.problems(code, lanes_on, effects) == []
    if "s[6:7]" in text and "s[8:9]" not in text and ", 0" not in text:
        for change in LaneChange:
            if effects.lanes & change:
                wrong = effects._replace(lanes=effects.lanes & ~change)
                assert bench.problems(code, 0x0F0F33550F0F3355, wrong), f"{text}: {change} never happens"
