"""Cases of one line whose kernel has marks among its instructions for hooks and edits.

- ``hook NAME(argument, …)``: the hook runs before the next instruction; ``hook after NAME(…)``: after the previous one;
  ``hook every``: before every instruction; ``hook edges``: on every edge of a branch; ``hook entry``: at the kernel's
  entry. A number or a register is an argument. ``… if COMPARISON`` is a guard.
- ``add TEXT``: an instruction is added before the next one; ``append TEXT``: after the one before; ``replace OLD by
  NEW``.

The hooks of FILE.test, if it has any, are in FILE.hip beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from luthier.lifting import LiftedRepresentation
from luthier.module import ToolModule
from luthier.objects import CodeObject
from luthier.tool.task import HookArgument, InstrumentationTask, reg

_MARK = re.compile(r"(hook|add|append|replace) (.*)")
_HOOK = re.compile(r"(?:(after|every|edges|entry) )?(\w+)(?:\(([^)]*)\))?(?: if (.*))?")


class Mark(NamedTuple):
    """A hook or an edit."""

    kind: str
    text: str
    label: str


def argument(text: str) -> HookArgument:
    """Return a number or a register."""
    for number in (lambda text: int(text, 0), float):
        try:
            return number(text)
        except ValueError:
            pass
    return reg(text)


def arguments(text: str | None) -> list[HookArgument]:
    """Return the arguments of a hook, which commas separate."""
    return [argument(part) for part in text.split(", ")] if text else []


def marked(body: str) -> tuple[str, list[Mark]]:
    """Return the body of a kernel with a label for each mark, and the marks."""
    marks: list[Mark] = []
    items = []
    for item in body.split("; "):
        match = _MARK.fullmatch(item)
        if match is None:
            items.append(item)
            continue
        mark = Mark(match[1], match[2], f"mark{len(marks)}")
        marks.append(mark)
        items.append(f"{mark.label}:")
        if mark.kind == "replace":
            items.append(mark.text.partition(" by ")[0])
    return "; ".join(items), marks


def inserting(
    object: CodeObject, marks: list[Mark], module: ToolModule | None
) -> Callable[[InstrumentationTask], None]:
    """Return the function that inserts what the marks say."""
    addresses = {symbol.name: symbol.address for symbol in object.symbols}

    def instrument(task: InstrumentationTask) -> None:
        for mark in marks:
            index = task.lifted.index_at(addresses[mark.label])
            assert index is not None
            if mark.kind == "hook":
                _insert(task, index, mark.text, module)
            elif mark.kind == "replace":
                task.replace(index, mark.text.partition(" by ")[2])
            else:
                before = mark.kind == "add"
                (task.add_before if before else task.add_after)(index - (not before), mark.text)

    return instrument


def _insert(task: InstrumentationTask, index: int, text: str, module: ToolModule | None) -> None:
    match = _HOOK.fullmatch(text)
    assert match is not None, text
    assert module is not None, "the file has no hooks"
    place, name, given, guard = match.groups()
    hook, values, tests = module.hook(name), arguments(given), [guard] if guard else []
    assert not tests or place in (None, "after", "every"), f"{place} takes no guard"
    if place == "entry":
        task.insert_hook_at_kernel_entry(hook, *values)
    elif place == "edges":
        for edge in task.lifted.edges:
            if edge.kind in ("taken", "branch"):
                task.insert_hook_on_edge(edge, hook, *values)
    elif place == "after":
        task.insert_hook_after(index - 1, hook, *values, only_if=tests)
    else:
        for instruction in task.instructions:
            if place == "every" or instruction.index == index:
                task.insert_hook_before(instruction, hook, *values, only_if=tests)


def added(before: LiftedRepresentation, after: LiftedRepresentation, pattern: str) -> str:
    """Return how often code has more instructions whose text matches, each `s_nop` as often as its wait states."""

    def counts(lifted: LiftedRepresentation) -> Counter[str]:
        counter: Counter[str] = Counter()
        for index, block in enumerate(lifted.block_of):
            name, _, operand = lifted.isa.text(lifted.code, index).partition(" ")
            if block >= 0 and re.match(pattern, name):
                counter[name] += int(operand, 0) + 1 if name == "s_nop" else 1
        return counter

    return ", ".join(f"{count} {name}" for name, count in sorted((counts(after) - counts(before)).items()))


def right_before(
    object: CodeObject, before: LiftedRepresentation, after: LiftedRepresentation, marks: list[Mark], count: int
) -> str:
    """Return the instructions right before the application's that follow marks, without the numbers of registers."""
    addresses = {symbol.name: symbol.address for symbol in object.symbols}
    texts = [after.isa.text(after.code, index) for index in range(len(after.code))]
    parts = []
    for mark in marks:
        index = before.index_at(addresses[mark.label])
        assert index is not None
        text = before.isa.text(before.code, index)
        assert texts.count(text) == 1, f"{text} occurs {texts.count(text)} times"
        end = texts.index(text)
        parts += texts[end - count : end]
    return "; ".join(re.sub(r"\b([sv])\d+", r"\1N", part) for part in parts)
