"""Kernels compiled by clang, against the output of llvm-objdump."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.isa.registers import SCALAR_MASK, UnitSet
from luthier.lifting import LiftedRepresentation, lift
from luthier.lifting.code import text
from luthier.lifting.listing import as_data
from luthier.objects import CodeObject, load_object

pytestmark = pytest.mark.rows()

TARGETS = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
LEAF, MIDDLE, OTHER, TAIL = "_Z4leaffi", "_Z6middlefi", "_Z5otherfi", "_Z4tailfi"
FUNCTIONS = {
    "straight": set(),
    "loop": set(),
    "divergent": set(),
    "switched": set(),
    "trapped": set(),
    "calls": {MIDDLE, LEAF},
    "calls_tail": {TAIL, LEAF},
    "calls_exported": {"exported"},
    "recursive": {"_Z9fibonaccii"},
    "selected": {LEAF, OTHER},
    "selected_by_lane": {LEAF, OTHER},
    "from_constant": {LEAF, OTHER},
    "from_variable": {LEAF, OTHER},
    "from_argument": {LEAF, OTHER},
}
UNKNOWN = {"from_variable", "from_argument"}
SOURCES = {
    "calls.hip": list(FUNCTIONS),
    "divergence.hip": ["nested", "branches", "arms", "waterfall", "calls_in_branches", "atomics", "search"],
}
CASES = [(target, kernel) for target in TARGETS for kernel in FUNCTIONS]


class Disassembly:
    """What llvm-objdump prints: by address the text, the size, and the target of a branch."""

    def __init__(self, path: str) -> None:
        command = ["llvm-objdump-22", "-d", "--no-show-raw-insn", path]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.text: dict[int, str] = {}
        self.target: dict[int, int] = {}
        symbols = {name: int(address, 16) for address, name in re.findall(r"^(\w+) <(.+)>:$", text, re.M)}
        for line in text.splitlines():
            match = re.match(r"\t(.+?)\s*// ([0-9A-F]{12}):[0-9A-F ]*(<(.+)>)?$", line)
            if match:
                address = int(match[2], 16)
                self.text[address] = re.sub(r"\s+", " ", match[1])
                if match[4]:
                    name, _, offset = match[4].partition("+")
                    self.target[address] = symbols[name] + int(offset or "0", 16)
        self.following = dict(zip(self.text, list(self.text)[1:], strict=False))

    def reach(self, entry: int) -> tuple[set[int], set[int]]:
        """Addresses reachable from `entry` inside its function, and where blocks must begin."""
        seen: set[int] = set()
        leaders = {entry}
        work = [entry]
        while work:
            address = work.pop()
            if address in seen or address not in self.text:
                continue
            seen.add(address)
            mnemonic = self.text[address].split()[0]
            after = self.following.get(address)
            if mnemonic.startswith(("s_branch", "s_cbranch")):
                leaders.add(self.target[address])
                work.append(self.target[address])
            if mnemonic.startswith(("s_cbranch", "s_swappc")) and after is not None:
                leaders.add(after)
            if not mnemonic.startswith(("s_branch", "s_endpgm", "s_setpc")) and after is not None:
                work.append(after)
        return seen, leaders


@pytest.fixture(scope="module")
def disassembled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[CodeObject], Disassembly]:
    made: dict[int, Disassembly] = {}

    def disassembled(code_object: CodeObject) -> Disassembly:
        if id(code_object) not in made:
            made[id(code_object)] = Disassembly(code_object.name)
        return made[id(code_object)]

    return disassembled


@pytest.mark.rows(11)
@pytest.mark.parametrize(("target", "kernel"), CASES)
def test_control_flow(
    target: str,
    kernel: str,
    compiled: Callable[..., CodeObject],
    disassembled: Callable[[CodeObject], Disassembly],
) -> None:
    code_object = compiled(target, "calls.hip")
    lifted = lift(code_object, kernel)
    oracle = disassembled(code_object)
    assert {function.name for function in lifted.functions} == {kernel} | FUNCTIONS[kernel]
    assert bool(lifted.unknown) == (kernel in UNKNOWN), [unknown.reason for unknown in lifted.unknown]
    for function in lifted.functions:
        seen, leaders = oracle.reach(function.entry)
        addresses = {
            lifted.columns.address[index] for block in function.blocks for index in range(block.first, block.last + 1)
        }
        if kernel != "trapped":  # what follows a trap is a matter of opinion
            assert addresses == seen
            assert {lifted.columns.address[block.first] for block in function.blocks} >= leaders & seen
    for block in lifted.blocks:
        for index in range(block.first, block.last + 1):
            instruction = lifted.instructions[index]
            assert instruction.text == oracle.text[instruction.address]
        for edge in block.successors:
            assert block.index in lifted.blocks[edge.to].predecessors


@pytest.mark.parametrize("target", TARGETS)
def test_addresses(target: str, compiled: Callable[..., CodeObject]) -> None:
    code_object = compiled(target, "calls.hip")
    lifted = lift(code_object, "calls")
    constants, leaf = code_object.symbol("constants"), code_object.symbol(LEAF)
    assert constants is not None
    assert leaf is not None
    kinds = {(reference.kind, reference.target) for reference in lifted.pc_references}
    assert ("data", constants.address) in kinds
    assert ("code", leaf.address) in kinds
    for reference in lifted.pc_references:
        # As the hardware computes it: the program counter behind s_getpc_b64 and the two literals.
        getpc, low, high = (lifted.instructions[index] for index in (reference.getpc, reference.low, reference.high))
        assert (getpc.opcode.pseudo, low.opcode.pseudo, high.opcode.pseudo) == (
            "S_GETPC_B64",
            "S_ADD_U32",
            "S_ADDC_U32",
        )
        literals = [int.from_bytes(one.bytes[4:8], "little") for one in (low, high)]
        if len(high.bytes) == 4:
            literals[1] = (high.operands[2][1]) & 0xFFFFFFFF
        offset = literals[0] | literals[1] << 32
        assert (getpc.address + 4 + offset) & (1 << 64) - 1 == reference.target


@pytest.mark.parametrize("target", TARGETS)
def test_tables_of_functions(target: str, compiled: Callable[..., CodeObject]) -> None:
    code_object = compiled(target, "calls.hip")
    leaf, other, table = (code_object.symbol(name) for name in (LEAF, OTHER, "_ZL14constant_table"))
    assert leaf is not None
    assert other is not None
    assert table is not None
    lifted = lift(code_object, "from_constant")
    (code_table,) = lifted.code_tables
    assert (code_table.address, code_table.targets) == (table.address, (leaf.address, other.address))
    assert [lifted.pc_references[index].target for index in code_table.references] == [table.address]


@pytest.mark.parametrize(
    ("target", "source", "kernel"),
    [(target, source, kernel) for target in TARGETS for source, kernels in SOURCES.items() for kernel in kernels],
)
def test_liveness_is_plausible(target: str, source: str, kernel: str, compiled: Callable[..., CodeObject]) -> None:
    """At the entry only what the hardware sets is live; what an instruction reads is live before it, unless it may be
    garbage."""
    lifted = lift(compiled(target, source), kernel)
    for block in lifted.blocks:
        filled = SCALAR_MASK
        for index in range(block.first, block.last + 1):
            before = lifted.liveness.live_before(index)
            assert int(lifted.effects(index).reads) & filled & ~before.active == 0
            filled |= lifted.effects(index).writes
        if block.exit == "end":
            assert not lifted.liveness.live_out(block.index).all_lanes
    entry = lifted.liveness.live_in(lifted.functions[0].entry_block)
    saved = 0  # callees save registers that were never written
    for instruction in lifted.instructions:
        if instruction.block >= 0 and instruction.mnemonic.startswith("buffer_store"):
            saved |= instruction.uses
    assert {unit for unit in UnitSet(entry.active & ~saved) if unit >= 256} <= {256, 257, 258}
    assert entry.inactive & ~SCALAR_MASK == 0  # every lane that was launched is active
    if len(lifted.functions) == 1 and not lifted.unknown and kernel != "trapped":  # a trap may read everything
        assert {unit for unit in entry.active if unit < 106} <= set(range(lifted.kernel.sgpr_count))


def test_one_decode_for_many_kernels(compiled: Callable[..., CodeObject]) -> None:
    code_object = compiled("gfx90a", "calls.hip")
    first, second = lift(code_object, "straight"), lift(code_object, "straight")
    assert first.code is second.code
    assert first.code.address == code_object.kernels["straight"].entry


def test_decoded_code_is_not_kept_for_ever(
    compiled: Callable[..., CodeObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little is kept, kernels are the same, also those that share functions."""
    code_object = compiled("gfx90a", "calls.hip")
    isa = lift(code_object, "straight").isa
    plenty = {kernel: as_data(lift(code_object, kernel)) for kernel in FUNCTIONS}
    monkeypatch.setattr(text._kept, "most", 1)
    again = load_object(code_object.data)
    for kernel in FUNCTIONS:
        assert as_data(lift(again, kernel))["blocks"] == plenty[kernel]["blocks"]
        assert len(text.text_of(again, isa)._pieces) == 1


def test_instruction_view(compiled: Callable[..., CodeObject], tmp_path: Path) -> None:
    lifted = lift(compiled("gfx942", "calls.hip"), "straight")
    assert len(lifted.instructions) == len(lifted.code)
    first, last = lifted.instructions[lifted.blocks[0].first], lifted.instructions[lifted.blocks[0].last]
    assert lifted.object.data[first.offset : first.offset + first.size] == first.bytes
    assert last.mnemonic == "s_endpgm"
    assert (first.block, last.block) == (0, lifted.blocks[-1].index)
    store = next(one for one in lifted.instructions if one.mnemonic == "global_store_dword")
    assert store.is_vector
    assert not store.is_scalar
    assert not last.is_vector
    operand = store.operand("vdata")
    assert operand is not None
    assert lifted.isa.register(operand[1]).first_unit in store.uses
    assert not store.defs
    assert store.restriction is None
    assert lifted.index_at(first.address) == first.index
    assert lifted.index_at(first.address + 1) is None
    with pytest.raises(IndexError):
        lifted.instructions[len(lifted.code)]


@pytest.mark.parametrize("target", TARGETS)
def test_stripped(target: str, compiled: Callable[..., CodeObject], tmp_path: Path) -> None:
    """Without the symbols of functions there are the same blocks at the same addresses."""
    whole = compiled(target, "calls.hip")
    path = tmp_path / "stripped.co"
    subprocess.run(["llvm-objcopy-22", "--strip-all", whole.name, str(path)], check=True)
    stripped = load_object(path)
    for kernel in FUNCTIONS:
        if kernel == "trapped":  # where a function ends is not known, so what is behind its trap is code
            continue
        before, after = lift(whole, kernel), lift(stripped, kernel)

        def blocks(lifted: LiftedRepresentation) -> list[tuple[int, int, str]]:
            columns = lifted.columns
            return sorted((columns.address[b.first], columns.address[b.last], b.exit) for b in lifted.blocks)

        if (
            kernel == "from_constant" or kernel in UNKNOWN
        ):  # an array's extent, and what a pointer may lead to, is in symbols
            assert after.unknown
            continue
        if kernel == "calls_tail":  # a jump to code that nothing else names is as good as a branch
            assert [place[:2] for place in blocks(before)] == [place[:2] for place in blocks(after)]
            continue
        assert blocks(before) == blocks(after)
        assert {function.entry for function in before.functions} == {function.entry for function in after.functions}
        assert len(before.unknown) == len(after.unknown)
        for old, new in zip(before.functions, after.functions, strict=True):
            assert new.name in (old.name, f"sub_{old.entry:x}")
