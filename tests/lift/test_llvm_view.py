"""Lifted kernels as LLVM IR: what LLVM parses, and what its passes find."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from assembly import assembled, function, kernel_text
from luthier.cli.main import main
from luthier.lifting import LiftedRepresentation, lift
from luthier.lifting.llvm_view import as_llvm
from luthier.objects import CodeObject, load_object
from msgspec.structs import replace

INPUTS = Path(__file__).parent / "inputs"


def _parsed(lifted: LiftedRepresentation) -> llvm.ModuleRef:
    module = llvm.parse_assembly(as_llvm(lifted))
    module.verify()
    return module


def _promoted(text: str) -> str:
    """With values in the place of memory, by LLVM."""
    command = ["opt-22", "-passes=cgscc(inline),function(mem2reg)", "-S", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("source", ["calls.hip", "divergence.hip"])
def test_blocks_edges_calls_and_instructions(compile_object: Callable[..., Path], target: str, source: str) -> None:
    """Every kernel: one call for each instruction, one block for each block, the same ways out of it."""
    object = load_object(compile_object(INPUTS / source, target))
    for name in object.kernels:
        lifted = lift(object, name)
        module = _parsed(lifted)
        defined = {one.name: one for one in module.functions if not one.is_declaration}
        assert set(defined) == {one.name for one in lifted.functions}
        for lifted_function in lifted.functions:
            blocks = {block.name: block for block in defined[lifted_function.name].blocks}
            for block in lifted_function.blocks:
                text = str(blocks[f"block{block.index}"])
                instructions = block.last - block.first + 1
                assert text.count(", !luthier !") == instructions
                last = blocks.get(f"call{block.index}.end", blocks[f"block{block.index}"])
                ways = re.findall(r"label %block(\d+)", str(list(last.instructions)[-1]))
                assert {int(way) for way in ways} == {edge.to for edge in block.successors}
            called = set(re.findall(r"call void @(\w+)\(", str(defined[lifted_function.name])))
            assert {callee for callee in called if not callee.startswith("luthier")} == {
                lifted.functions[callee].name for call in lifted_function.calls for callee in call.callees
            }
        text = as_llvm(lifted)
        for index in (index for block in lifted.blocks for index in range(block.first, block.last + 1)):
            address = hex(lifted.columns.address[index])
            assert f'!{{!"{address}", !"{lifted.isa.text(lifted.code, index)}"}}' in text


@pytest.fixture
def small() -> CodeObject:
    """A kernel whose values can be followed by hand, with a function."""
    body = """
  v_mov_b32 v1, v0
  v_mov_b32 v2, 7
  v_add_u32 v3, v1, v2
  s_mov_b32 s8, 3
  s_mov_b32 s8, 4
  v_mul_lo_u32 v3, v3, s8
  s_getpc_b64 s[10:11]
  s_add_u32 s10, s10, leaf@rel32@lo+4
  s_addc_u32 s11, s11, leaf@rel32@hi+12
  s_swappc_b64 s[30:31], s[10:11]
  s_endpgm"""
    leaf = function("leaf", ["v_add_u32 v4, v3, v3", "s_setpc_b64 s[30:31]"])
    code = function("k", body.strip().splitlines()) + ".hidden leaf\n" + leaf
    return assembled(kernel_text(code, "gfx90a"), "gfx90a")


def test_values_flow_as_in_the_kernel(small: CodeObject) -> None:
    """LLVM, inlining and promoting memory, finds the instruction that each operand comes from, over calls. A vector
    register that an instruction writes keeps its value in lanes that are not active: that is an operand, too."""
    lifted = lift(small, "k")
    assert {one.name for one in lifted.functions} == {"k", "leaf"}
    text = _promoted(as_llvm(lifted))
    made = dict(re.findall(r"(%[\w.]+) = (call [^\n]*)", text))
    struct = dict(re.findall(r"(%[\w.]+) = extractvalue [^\n]* (%[\w.]+), 0", text))

    def origin(value: str) -> str:
        call = made.get(struct.get(value, value), "undef")
        return re.sub(r"\.\d+$", "", re.findall(r"@([\w.]+)\(", call)[0]) if "@" in call else call

    kernel = text[: text.index("\n}")]
    add, in_leaf = (what for what in made.values() if "v_add_u32" in what and what in kernel)
    assert [origin(one) for one in re.findall(r"i32 (%[\w.]+)", add)][:2] == ["luthier.v_mov_b32_e32"] * 2
    assert [origin(one) for one in re.findall(r"i32 (%[\w.]+)", in_leaf)][:2] == ["luthier.v_mul_lo_u32"] * 2
    (multiply,) = (what for what in made.values() if "v_mul_lo_u32" in what)
    operands = [origin(one) for one in re.findall(r"i32 (%[\w.]+|undef)", multiply)]
    assert operands[:2] == ["luthier.v_add_u32_e32", "luthier.s_mov_b32"]
    assert operands[-1] == "luthier.v_add_u32_e32", "the old value of v3"
    first, second = re.findall(r"call [^\n]*@luthier.s_mov_b32\(([^)]*)\)", text)
    assert (first, second) == ("i64 3", "i64 4"), "scalars are replaced as a whole"


def test_command(small: CodeObject, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(small.data)
    assert main(["lift", str(path), "--llvm"]) == 0
    llvm.parse_assembly(capfd.readouterr().out).verify()


def test_names_are_quoted() -> None:
    """Whatever a kernel is called."""
    name = 'k<int>::\u00e9 "x\\'
    lifted = lift(assembled(kernel_text(function("k", ["s_endpgm"]), "gfx90a"), "gfx90a"), "k")
    lifted = replace(lifted, functions=(replace(lifted.functions[0], name=name),))
    assert [one.name for one in _parsed(lifted).functions if not one.is_declaration] == [name]


def test_one_kernel_at_a_time(compile_object: Callable[..., Path], capfd: pytest.CaptureFixture[str]) -> None:
    path = compile_object(INPUTS / "calls.hip", "gfx90a")
    assert main(["lift", str(path), "--llvm"]) == 1
    assert "--llvm prints one kernel" in capfd.readouterr().err
