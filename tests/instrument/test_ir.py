"""Reading LLVM's textual IR, with flags and attributes that no release has."""

from __future__ import annotations

import pytest
from luthier.errors import HookError
from luthier.payload.ir import IrOperand, read_instruction, replace_globals
from luthier.payload.plain import PlainCount, plain_count

ADDED = 'getelementptr fresh span(0, 8) (i8, ptr addrspacecast (ptr addrspace(1) @"a b" to ptr), i64 8)'
COUNT = f"""\
  %1 = fresh call range(i64 0, 65) i64 @llvm.amdgcn.ballot.i64(i1 fresh true) #1
  %2 = call fresh i64 @llvm.ctpop.i64(i64 known(3) %1), !fresh !7
  %3 = mul fresh nuw i64 %2, 5
  %4 = call i64 @"luthier::sAtomicAdd.i64.ptr.i64"(ptr align 8 fresh(none) {ADDED}, i64 %3) #3
  ret void
"""


def test_what_is_not_known_is_passed_over() -> None:
    instruction = read_instruction(
        f"  %4 = call i64 @f(ptr align 8 fresh(none) {ADDED}, <2 x i32> <i32 1, i32 2>, i1 fresh true)"
    )
    assert instruction is not None
    assert (instruction.result, instruction.opcode, instruction.type, instruction.callee) == ("%4", "call", "i64", "f")
    place, *rest = instruction.operands
    assert (place.type, place.text, place.operation) == ("ptr", ADDED, "getelementptr")
    assert rest == [IrOperand("<2 x i32>", "<i32 1, i32 2>"), IrOperand("i1", "true")]
    assert [value.number for value in place.operands] == [None, None, 8]
    assert plain_count(COUNT.replace("fresh call", "tail call")) == PlainCount("a b", 8, 5, True)


@pytest.mark.parametrize("change", [("i1 fresh true", "i1 %0"), ("i64 8)", "i64 %0)"), ("mul", "udiv"), ("%3)", "%9)")])
def test_what_is_no_count(change: tuple[str, str]) -> None:
    assert plain_count(COUNT.replace("fresh call", "tail call").replace(*change)) is None


@pytest.mark.parametrize("line", ["  %1 = call void @f(ptr fresh (ptr @x to ptr))", "  %1 = call void", "  %1 ="])
def test_what_cannot_be_read_is_refused(line: str) -> None:
    with pytest.raises(HookError, match="cannot read LLVM's instruction"):
        read_instruction(line)


def test_constant_expressions_become_instructions() -> None:
    made: list[str] = []

    def define(instruction: str) -> str:
        made.append(instruction)
        return f"%made{len(made)}"

    line = "  store i32 ptrtoint (ptr addrspace(3) getelementptr fresh (i8, ptr addrspace(3) @x, i32 4) to i32), ptr @y"
    assert replace_globals(line, {"@x": "%x"}, define) == "  store i32 %made2, ptr @y"
    assert made == [
        "getelementptr fresh i8, ptr addrspace(3) %x, i32 4",
        "ptrtoint ptr addrspace(3) %made1 to i32",
    ]
