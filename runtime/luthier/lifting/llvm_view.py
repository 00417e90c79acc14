"""A lifted kernel as LLVM IR, for LLVM's analyses: valid text that is not meant to be compiled.

It is the view of one lane. A register unit is an ``i32`` in memory: an alloca of the kernel, which passes its address
to the functions that it calls. An instruction is one call of a declared function that is named after its opcode, with a
numeric suffix if several signatures occur:

- arguments: explicit operands in order, registers as the values of their units, everything else as ``i64``; then units
  that are read implicitly, ascending; then the old values of units that may keep them (in an inactive lane, or because
  only part is written), ascending;
- result: the new values of all units that may change, ascending, as a structure;
- ``!luthier``: virtual address and assembly.

Blocks, edges, calls and returns are those of LLVM. A branch calls a function with the suffix ``.taken`` for its
condition, a jump with several targets one with the suffix ``.target``. Values of registers at launch come from
``luthier.launch.REGISTER``. ``opt -passes='cgscc(inline),function(mem2reg)'`` replaces memory by values.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from luthier.isa import OperandKind
from luthier.isa.registers import UnitSet, unit_name
from luthier.lifting.model import BasicBlock, CallSite, Function
from luthier.lifting.representation import LiftedRepresentation


def as_llvm(lifted: LiftedRepresentation) -> str:
    """Return an LLVM module with the kernel and the functions that it calls."""
    return _View(lifted).module()


class _View:
    def __init__(self, lifted: LiftedRepresentation) -> None:
        self._lifted = lifted
        reached = [index for function in lifted.functions for block in function.blocks for index in _indices(block)]
        touched = 0
        for index in reached:
            effects = lifted.effects(index)
            touched |= effects.reads | effects.writes | self._named(index)
        self._units = tuple(UnitSet(touched))
        self._declared: dict[str, tuple[str, str]] = {}
        """Symbol of a declared function -> its result and parameters."""
        self._metadata: list[str] = []
        self._lines: list[str] = []
        self._value = 0

    def module(self) -> str:
        lifted = self._lifted
        for function in lifted.functions:
            self._function(function)
        head = [
            f"; {lifted.kernel.name} of {lifted.object.name}".replace("\n", " "),
            f"source_filename = {_quoted(lifted.object.name)}",
        ]
        declared = [f"declare {result} {name}({types})" for name, (result, types) in self._declared.items()]
        return "\n".join([*head, "", *self._lines, *declared, "", *self._metadata]) + "\n"

    def _named(self, index: int) -> int:
        """Return the units of an instruction's register operands."""
        units = 0
        for kind, value in self._lifted.code.operands(index):
            if kind == OperandKind.REGISTER and value:
                register = self._lifted.isa.register(value)
                units |= _mask(register.first_unit, register.unit_count)
        return units

    def _pointers(self) -> str:
        return ", ".join(f"ptr %{unit_name(unit)}" for unit in self._units)

    def _function(self, function: Function) -> None:
        self._value = 0
        parameters = "" if function.is_kernel else self._pointers()
        linkage = "" if function.is_kernel else "internal "
        self._lines.append(f"define {linkage}void {_symbol(self._name(function))}({parameters}) {{")
        self._lines.append("entry:")
        if function.is_kernel:
            live = self._lifted.liveness.live_in(function.entry_block).all_bits
            for unit in self._units:
                self._lines.append(f"  %{unit_name(unit)} = alloca i32")
            for unit in self._units:
                if live >> unit & 1:
                    value = self._call("i32", f"luthier.launch.{unit_name(unit)}", ())
                    self._lines.append(f"  store i32 {value}, ptr %{unit_name(unit)}")
        self._lines.append(f"  br label %block{function.entry_block}")
        inside = {block.index for block in function.blocks}
        for block in function.blocks:
            self._lines.append(f"block{block.index}:")
            for index in _indices(block):
                self._instruction(index)
            self._leave(function, block, inside)
        self._lines += ["}", ""]

    def _name(self, function: Function) -> str:
        """Return a unique name of a function; hand-written functions may share one."""
        names = [other.name for other in self._lifted.functions]
        return function.name if names.count(function.name) == 1 else f"{function.name}.{function.index}"

    def _instruction(self, index: int) -> None:
        lifted = self._lifted
        effects = lifted.effects(index)
        arguments: list[str] = []
        seen = 0
        infos = lifted.isa.opcode(number).operands if (number := lifted.columns.opcode[index]) >= 0 else ()
        for position, (kind, value) in enumerate(lifted.code.operands(index)):
            if position < len(infos) and infos[position].is_def:
                continue
            if kind != OperandKind.REGISTER:
                arguments.append(f"i64 {value}")
                continue
            register = lifted.isa.register(value) if value else None
            if register is None or register.first_unit < 0:
                arguments.append("i64 0")
                continue
            units = range(register.first_unit, register.first_unit + register.unit_count)
            arguments += self._loads(units)
            seen |= _mask(register.first_unit, register.unit_count)
        arguments += self._loads(UnitSet(effects.reads & ~seen))
        arguments += self._loads(UnitSet(effects.writes & ~effects.hard_kills))
        changed = tuple(UnitSet(effects.writes))
        result = f"{{ {', '.join(['i32'] * len(changed))} }}" if changed else "void"
        results = self._call(result, self._opcode(index), arguments, self._note(index))
        for at, unit in enumerate(changed):
            new = self._fresh()
            self._lines.append(f"  {new} = extractvalue {result} {results}, {at}")
            self._lines.append(f"  store i32 {new}, ptr %{unit_name(unit)}")

    def _leave(self, function: Function, block: BasicBlock, inside: set[int]) -> None:
        """Emit the terminator of an LLVM block."""
        call = next((call for call in function.calls if call.index == block.last), None)
        if call is not None:
            self._callees(call, block)
        targets = list(dict.fromkeys(edge.to for edge in block.successors if edge.to in inside))
        if call is not None and call.kind == "tail":
            self._lines.append("  ret void")
        elif not targets:
            self._lines.append("  ret void" if block.exit in ("return", "end") else "  unreachable")
        elif len(targets) == 1:
            self._lines.append(f"  br label %block{targets[0]}")
        elif block.exit == "conditional":
            taken = next(edge.to for edge in block.successors if edge.kind != "fallthrough")
            other = next(to for to in targets if to != taken)
            chosen = self._call("i1", f"{self._opcode(block.last)}.taken", self._reads(block.last))
            self._lines.append(f"  br i1 {chosen}, label %block{taken}, label %block{other}")
        else:
            chosen = self._call("i32", f"{self._opcode(block.last)}.target", self._reads(block.last))
            cases = " ".join(f"i32 {at}, label %block{to}" for at, to in enumerate(targets[1:], 1))
            self._lines.append(f"  switch i32 {chosen}, label %block{targets[0]} [ {cases} ]")

    def _callees(self, call: CallSite, block: BasicBlock) -> None:
        names = [_symbol(self._name(self._lifted.functions[callee])) for callee in call.callees]
        if not call.known or not names:
            names.append(self._declare("void", "luthier.unknown", ["ptr"] * len(self._units)))
        pointers = self._pointers()
        if len(names) == 1:
            self._lines.append(f"  call void {names[0]}({pointers})")
            return
        chosen = self._call("i32", f"{self._opcode(block.last)}.target", self._reads(block.last))
        label = f"call{block.index}"
        cases = " ".join(f"i32 {at}, label %{label}.{at}" for at in range(1, len(names)))
        self._lines.append(f"  switch i32 {chosen}, label %{label}.0 [ {cases} ]")
        for at, name in enumerate(names):
            self._lines += [f"{label}.{at}:", f"  call void {name}({pointers})", f"  br label %{label}.end"]
        self._lines.append(f"{label}.end:")

    def _opcode(self, index: int) -> str:
        number = self._lifted.columns.opcode[index]
        return f"luthier.{self._lifted.isa.opcode(number).mnemonic if number >= 0 else 'unknown word'}"

    def _reads(self, index: int) -> list[str]:
        return self._loads(UnitSet(self._lifted.effects(index).reads))

    def _loads(self, units: Iterable[int]) -> list[str]:
        values = []
        for unit in units:
            value = self._fresh()
            self._lines.append(f"  {value} = load i32, ptr %{unit_name(unit)}")
            values.append(f"i32 {value}")
        return values

    def _call(self, result: str, name: str, arguments: Sequence[str], note: str = "") -> str:
        called = self._declare(result, name, [argument.split(" ", 1)[0] for argument in arguments])
        value = "" if result == "void" else self._fresh()
        assigned = f"{value} = " if value else ""
        self._lines.append(f"  {assigned}call {result} {called}({', '.join(arguments)}){note}")
        return value

    def _declare(self, result: str, name: str, types: Sequence[str]) -> str:
        """Return the symbol of a function of that name and type; the first type has the plain name, others a suffix."""
        signature = result, ", ".join(types)
        names = (name if not number else f"{name}.{number}" for number in itertools.count())
        symbol = next(each for each in map(_symbol, names) if self._declared.get(each, signature) == signature)
        self._declared[symbol] = signature
        return symbol

    def _note(self, index: int) -> str:
        lifted = self._lifted
        number = len(self._metadata)
        address, text = hex(lifted.columns.address[index]), lifted.isa.text(lifted.code, index)
        self._metadata.append(f"!{number} = !{{!{_quoted(address)}, !{_quoted(text)}}}")
        return f", !luthier !{number}"

    def _fresh(self) -> str:
        self._value += 1
        return f"%t{self._value}"


def _indices(block: BasicBlock) -> range:
    return range(block.first, block.last + 1)


def _mask(first: int, count: int) -> int:
    return 0 if first < 0 else ((1 << count) - 1) << first


def _quoted(text: str) -> str:
    """Return text as a string literal of LLVM assembly."""
    plain = (chr(byte) for byte in text.encode())
    escaped = "".join(
        char if char.isascii() and char.isprintable() and char not in '"\\' else f"\\{ord(char):02X}" for char in plain
    )
    return f'"{escaped}"'


def _symbol(name: str) -> str:
    return f"@{name}" if re.fullmatch(r"[A-Za-z_.$][\w.$]*", name, re.ASCII) else f"@{_quoted(name)}"
