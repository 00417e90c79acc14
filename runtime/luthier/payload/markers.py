"""Markers: opaque assembly comments that LLVM's register allocator completes with the registers of inputs and
outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from luthier.errors import HookError
from luthier.isa.registers import UNIT_LIMIT, is_vector
from luthier.payload.arguments import Input
from luthier.payload.calls import Lowering, inline_assembly
from luthier.payload.ir import names_in
from luthier.payload.launch_state import STATES


def input_marker(index: int, uniform: bool, result: str) -> str:
    """Return the IR that defines an input as a 32-bit value."""
    return inline_assembly(result, "i32", [f"; luthier.input {index} $0"], "=s" if uniform else "=v", "")


def split_payload(text: str) -> tuple[str, str, str]:
    """Split a module's text into the part before the payload's body, the body, and the part after it."""
    before, name, rest = text.partition("@luthier.payload(")
    head, _, rest = rest.partition("\n")
    body, end, behind = rest.partition("\n}\n")
    if not end or not before.rpartition("\n")[2].startswith("define "):
        raise HookError("LLVM dropped the payload function")
    return f"{before}{name}{head}\n", f"{body}\n", f"}}\n{behind}"


def with_inputs_and_outputs(
    body: str, start: Sequence[str], lowering: Lowering, inputs: list[Input], outputs: list[int]
) -> str:
    """Surround a lowered body with markers of launch state and outputs, and with the set-up of the register array.

    The IR `start` comes before the set-up. All outputs are operands of one assembly block, so that they are in
    registers at the same time. Each lane has its own array; the result of a scalar register is that of the first lane.
    """
    entry = []
    for (state, part), value in sorted(lowering.states.items()):
        uniform = STATES[state].uniform
        entry.append("  " + input_marker(len(inputs), uniform, value))
        inputs.append(Input(uniform, None, part, state))
    entry += [*start, f"  %luthier.registers = alloca [{UNIT_LIMIT} x i32], align 8, addrspace(5)"]
    for unit in sorted(lowering.read | lowering.written):
        value, pointer = lowering.fresh(), lowering.fresh()
        entry += [
            "  " + input_marker(len(inputs), not is_vector(unit), value),
            f"  {pointer} = getelementptr i32, ptr addrspace(5) %luthier.registers, i32 {unit}",
            f"  store i32 {value}, ptr addrspace(5) {pointer}, align 4",
        ]
        inputs.append(Input(not is_vector(unit), None, unit))
    leave: list[str] = []
    markers: list[str] = []
    constraints: list[str] = []
    operands: list[str] = []
    for unit in sorted(lowering.written):
        value, pointer = lowering.fresh(), lowering.fresh()
        leave += [
            f"  {pointer} = getelementptr i32, ptr addrspace(5) %luthier.registers, i32 {unit}",
            f"  {value} = load i32, ptr addrspace(5) {pointer}, align 4",
        ]
        if not is_vector(unit):
            chosen = lowering.fresh()
            leave.append("  " + lowering.call(chosen, "i32", "llvm.amdgcn.readfirstlane.i32", ("i32", value)))
            value = chosen
        markers.append(f"; luthier.output {len(outputs)} ${len(operands)}")
        constraints.append("v" if is_vector(unit) else "s")
        operands.append(f"i32 {value}")
        outputs.append(unit)
    if markers:
        source = "\\0A".join(markers)
        leave.append(f'  call void asm sideeffect "{source}", "{",".join(constraints)}"({", ".join(operands)})')
    returns = body.count("\n  ret void")
    if leave and returns != 1:
        raise HookError("a hook that writes registers must have exactly one return")
    # Optimization may have given the first block a label.
    first = 0 if body.startswith((" ", "\n")) else body.index("\n") + 1
    return (
        body[:first]
        + "\n".join(entry)
        + "\n"
        + body[first:].replace("\n  ret void", "\n" + "\n".join([*leave, "  ret void"]))
    )


def without_unused_inputs(text: str) -> str:
    """Return a module's text without the markers of inputs that are unused after optimization."""
    before, body, behind = split_payload(text)
    uses = Counter(names_in(body))
    markers = {line for line in body.splitlines(keepends=True) if '"; luthier.input ' in line}
    unused = {line for line in markers if uses[line.split(maxsplit=1)[0]] == 1}
    return "".join([before, *(line for line in body.splitlines(keepends=True) if line not in unused), behind])
