"""Every instruction of every target through the whole device, against the pseudo-code of the ISA documents.

Each opcode that the emulator executes is encoded with registers, immediates and modifiers chosen at random, decoded,
bound, compiled and run on one wave with edge values and random ones, some lanes off; all registers and memory are
compared with what an interpreter of the documents' pseudo-code makes of the same state. LUTHIER_FUZZ=n tries n times
as many variations of each opcode.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest
from effort import EMULATED, EVERYTHING, FUZZ, sample
from isa_compare import differences
from isa_documents import base_name
from isa_ledger import ELSEWHERE, OF_GFX12, not_here, texts
from isa_memory import MemoryMachine
from isa_state import EXEC, MODES, Bench
from isa_trials import FLOAT_NAME, PLANS, build, initial, instruction, mode_for, seed_of
from luthier.emulator.inspection.coverage import coverage, samples
from luthier.errors import LuthierError
from luthier.isa import Isa

TARGETS = (*EMULATED, "gfx1250")
JUMP = re.compile(r"\bPC\b")
MARK = 96
"""The SGPR in which the two endings of a jump leave a number."""
SHARE = 24
"""`make test` tries one opcode in this number, different ones on each target; `make test-all` tries all."""
BATCH = 200


@functools.cache
def executed(isa: Isa) -> list[int]:
    """LLVM's numbers of the opcodes that the emulator executes, exact or bounded."""
    table_of = coverage(str(isa.target))
    names = {name for table in (table_of.exact, table_of.bounded) for group in table.values() for name in group}
    return [number for number in sorted(samples(isa)) if isa.opcode(number).name in names]


def trials(isa: Isa, number: int) -> list[tuple[str, int]]:
    """The plans to try an opcode with: one, and more if asked for; with modifiers if it has output modifiers."""
    opcode = isa.opcode(number)
    first = seed_of(opcode.mnemonic, number) % len(PLANS)
    if not PLANS[first].modifiers and any(operand.name in ("clamp", "omod") for operand in opcode.operands):
        first += 1
    return [
        ("", (first + step) % len(PLANS)) if step < len(PLANS) else (str(step), step % len(PLANS))
        for step in range(FUZZ)
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_instructions(target: str) -> None:
    isa = Isa.of(target)
    tried = compare(isa, sample(executed(isa), SHARE, TARGETS.index(target)))
    if EVERYTHING:  # few opcodes have three sources: a share of them may well be tried without modifiers
        assert tried["MODE"] == set(MODES)
        for name in ("clamp", "omod", "src0_modifiers", "src1_modifiers", "src2_modifiers"):
            assert len(tried[name]) > 1, f"{name} is always at its default"


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "rounding"), [("gfx942", 1), ("gfx1030", 2), ("gfx1201", 3)])
def test_rounding(target: str, rounding: int) -> None:
    """Floats, with MODE rounding up, down, or to zero."""
    isa = Isa.of(target)
    floats = [number for number in executed(isa) if FLOAT_NAME.search(isa.opcode(number).mnemonic)]
    compare(isa, sample(floats, SHARE), rounding)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_wave64(target: str) -> None:
    """RDNA's other wave size. GFX11 permutes within 32 lanes, which its document does not say (LLVM's
    GCNSubtarget::supportsWaveWideBPermute)."""
    isa = Isa.of(target, 64)
    narrow = ("ds_permute_b32", "ds_bpermute_b32") if isa.target.target.major == 11 else ()
    compare(isa, sample([number for number in executed(isa) if isa.opcode(number).mnemonic not in narrow], SHARE))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_following_undefined_values(target: str) -> None:
    """Code that follows undefined values computes the same."""
    isa = Isa.of(target)
    compare(isa, sample(executed(isa), 4 * SHARE, 2 * TARGETS.index(target)), undefined=True)


def compare(isa: Isa, numbers: list[int], rounding: int = 0, *, undefined: bool = False) -> dict[str, set[int]]:
    """Run each opcode on the device and by the documents; which values each modifier and MODE had."""
    tried: dict[str, set[int]] = {}
    machine = MemoryMachine(isa)
    end = isa.assemble("s_endpgm\n").instructions.code
    marks = [isa.assemble(f"s_mov_b32 s{MARK}, {mark}\n").instructions.code for mark in (1, 2)]
    todo = []
    problems = []
    for number in numbers:
        opcode = isa.opcode(number)
        name = base_name(opcode.mnemonic)
        if not_here(opcode):
            continue
        text = texts(isa, opcode)
        if text is None:
            problems.append(f"{opcode.name}: no pseudo-code, and not said to be elsewhere")
            continue
        for extra, plan in trials(isa, number):
            random = np.random.default_rng(seed_of(name, opcode.mnemonic, plan, machine.major, extra))
            decoded = build(isa, number, PLANS[plan], random)
            if decoded is None:
                problems.append(f"{opcode.name}: cannot be encoded")
                continue
            ins = instruction(isa, decoded)
            ins.text_of_code = text
            code = decoded.code
            mode = mode_for(ins, random) | rounding | rounding << 2
            if JUMP.search(text):  # to one of two endings that leave a mark
                code += marks[0] + end + marks[1]
            for modifier, value in (*ins.values.items(), ("MODE", mode)):
                tried.setdefault(modifier, set()).add(value)
            todo.append((ins, code, mode, random))
    for start in range(0, len(todo), BATCH):
        part = todo[start : start + BATCH]
        modes = [mode for _, _, mode, _ in part]
        bench = Bench(isa, [code for _, code, _, _ in part], end, modes, undefined=undefined)
        machine.address = bench.place.address
        for position, (ins, _, mode, random) in enumerate(part):
            try:
                before = initial(isa, ins, ins.text_of_code, random, bench.place.address, mode)
                if JUMP.search(ins.text_of_code):
                    address = bench.address_of(position)
                    source = ins.operands.get("src0")
                    if source is not None and source.kind == "s":
                        before.put_wide(source.index, 2, address + 4 * int(random.choice([1, 3])))
                    expected, target = machine.jump(before, ins, address)
                    if not re.fullmatch("s_getpc_b64", ins.name):
                        expected.state.sgprs[MARK] = {4: 1, 12: 2}[target - address]
                    else:
                        expected.state.sgprs[MARK] = 1
                else:
                    expected = machine.expected(before, ins)
                actual = bench.run(position, before)
            except (LuthierError, ValueError, LookupError) as problem:
                problems.append(f"{ins.opcode.name}, {ins.text}: {problem!r}")
                continue
            different = differences(expected, actual)
            if different:
                exec_bits = before.wide(EXEC, 2)
                problems.append(
                    f"{ins.opcode.name}, {ins.text}, EXEC {exec_bits:#x}, MODE {mode:#x}: {'; '.join(different[:3])}"
                )
    assert not problems, f"{len(problems)} of {len(todo)} trials:\n" + "\n".join(problems[:400])
    return tried


@pytest.mark.rows(9)
@pytest.mark.parametrize("target", TARGETS)
def test_ledger(target: str) -> None:
    """No opcode is left out: each is compared above, or named in a table with the place or the reason."""
    isa = Isa.of(target)
    missing = []
    for number in executed(isa):
        opcode = isa.opcode(number)
        if not_here(opcode) is None and texts(isa, opcode) is None:
            missing.append(opcode.name)
    assert not missing


def test_other_modules_exist() -> None:
    """What the ledger sends elsewhere has a place to go."""
    for _, module, _ in (*ELSEWHERE, *OF_GFX12):
        assert (Path(__file__).parents[1] / module).is_file(), module
