"""A patched kernel as text: its code in the patched object, decoded, with names for addresses.

Instructions of the application begin with two spaces, spliced ones with ``+``, and replaced ones with ``~``. The
listing leaves out, as ``...``, instructions of the application that are unchanged and have no changed neighbour, and
spliced ones that the case does not ask for.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

import pytest
from luthier.isa import NO_TARGET
from luthier.lifting import LiftedRepresentation
from luthier.objects import CodeObject
from luthier.patch import patch_object
from luthier.patch.layout import placement
from luthier.patch.layout.slots import SlotLayout, lay_out
from luthier.tool.task import InstrumentationTask

_GETPC = re.compile(r"s_getpc_b64 s\[(\d+):\d+\]")
_NUMBER = r"(?:lit\()?(-?(?:0x[0-9a-f]+|\d+))\)?$"
_LOW = re.compile(r"s_add(?:_co)?_u32 s\d+, s(\d+), " + _NUMBER)
_HIGH = re.compile(r"s_add(?:c|_co_ci)_u32 s\d+, s(\d+), " + _NUMBER)

_UPPER = re.compile(r" /\*v\d+\*/")
"""The number of a register with upper bits: decoding the new code does not follow these bits."""
_AWAY = re.compile(r". (s_branch|s_endpgm|s_setpc_b64)\b")


class Patched:
    """A patched kernel, and the places of its instructions.

    Attributes:
        data: the patched object.
        lifted: the kernel before.
        report: the report of patching it.
    """

    def __init__(self, object: CodeObject, name: str, insert: Callable[[InstrumentationTask], None]) -> None:
        layouts: list[SlotLayout] = []
        tasks: list[InstrumentationTask] = []

        def keep(*arguments: object) -> SlotLayout:
            layouts.append(lay_out(*arguments))  # type: ignore[arg-type]
            return layouts[-1]

        def instrument(task: InstrumentationTask) -> None:
            tasks.append(task)
            insert(task)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(placement, "lay_out", keep)
            made = patch_object(object, instrument, [name])
        self.data = made.data
        self.lifted: LiftedRepresentation = tasks[0].lifted
        (self.report,) = made.report.kernels
        self._layout = layouts[-1]
        self._object = CodeObject(made.data)
        self._kernel = self._object.kernels[name]

    def text(self, show: str = "") -> str:
        """Return registers, code, tables and refusals.

        Args:
            show: pattern of the spliced instructions to list.
        """
        before, after, report = self.lifted.kernel.descriptor, self._kernel.descriptor, self.report
        counts = [("VGPRs", before.vgprs, after.vgprs), ("SGPRs", before.sgprs, after.sgprs)]
        counts += [("waves a SIMD", *report.waves_per_simd)]
        changes = [f"{name} {old} -> {new}" for name, old, new in counts if old != new]
        head = f"hooks {report.insertions}, sites {report.sites}, added instructions {report.added_instructions}"
        return "\n".join(
            ["; ".join([head, *changes]), *_shortened(self._code(), show), *self._tables(), *self._refusals()]
        )

    # Addresses and names

    @property
    def _base(self) -> int:
        """Address of the new code."""
        return next(section.address for section in self._object.sections if section.name == ".luthier.text")

    def _origins(self) -> dict[int, int]:
        """Address in the patched object -> index of the application's instruction that is there now."""
        reached = [index for index, block in enumerate(self.lifted.block_of) if block >= 0]
        places = self._layout.instruction[: len(reached)]  # behind them what calls by pointers go to
        return dict(zip((places + self._base).tolist(), reached, strict=True))

    def _functions(self) -> dict[int, str]:
        """Address in the patched object -> function, which begins with the payloads before its first instruction."""
        at = {self.lifted.columns.address[index]: address for address, index in self._origins().items()}
        entries = dict(zip((self._layout.instruction + self._base).tolist(), self._layout.entry.tolist(), strict=True))
        return {entries[at[one.entry]] + self._base: one.name for one in self.lifted.functions}

    def _name(self, address: int, functions: dict[int, str]) -> str:
        """Of a function, a variable or a place in a section."""
        if address in functions:
            return functions[address]
        for symbol in self._object.symbols:
            if symbol.type == "object" and symbol.address <= address < symbol.address + symbol.size:
                return symbol.name + (f"+{address - symbol.address}" if address > symbol.address else "")
        for section in self._object.sections:
            if section.address <= address < section.address + section.size:
                return f"{section.name}+{address - section.address}"
        return "nowhere"

    # Lines

    def _code(self) -> list[tuple[str, str]]:
        """Return the lines, each with its kind: "label", "same" as in the application, "changed" or "spliced"."""
        isa, base = self.lifted.isa, self._base
        code = isa.decode(self._object.read(base, self._layout.size), base)
        texts = [isa.text(code, index) for index in range(len(code))]
        functions, origins = self._functions(), self._origins()
        addresses, targets = code.addresses.tolist(), code.target.tolist()
        literals = self._literals(texts, (code.addresses + code.size).tolist())
        labels = {}
        if self._kernel.entry not in functions:  # its two entries are branches
            labels = {self._kernel.entry: "entry", self._kernel.entry + 256: "entry + 256"}
        local = sorted({target for target in targets if target != NO_TARGET} - {*functions, *labels})
        labels |= functions | {target: f".L{number}" for number, target in enumerate(local)}
        lines: list[tuple[str, str]] = []
        for index, (address, text) in enumerate(zip(addresses, texts, strict=True)):
            if address in labels:
                lines.append((f"{labels[address]}:", "label"))
            elif address not in origins and lines and _AWAY.match(lines[-1][0]):
                continue  # padding
            origin = origins.get(address)
            same = origin is not None and text == _UPPER.sub("", isa.text(self.lifted.code, origin))
            if targets[index] != NO_TARGET:
                text = f"{text.rpartition(' ')[0]} {labels[targets[index]]}"
                same = False
            elif index in literals:
                half, target = literals[index]
                text = f"{text.rpartition(' ')[0]} {half}({self._name(target, functions)})"
                same = False
            if origin is None:
                lines.append((f"+ {text}", "spliced"))
            else:
                replaced = self.lifted.columns.opcode[origin] != int(code.opcode[index])
                lines.append((f"{'~' if replaced else ' '} {text}", "same" if same else "changed"))
        return lines

    @staticmethod
    def _literals(texts: Sequence[str], ends: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Instructions that add to what s_getpc_b64 gave: which half, and the address it makes.

        Args:
            texts: [n] assembly.
            ends: [n] address behind each instruction.
        """
        literals: dict[int, tuple[str, int]] = {}
        started: dict[int, int] = {}
        low: dict[int, tuple[int, int]] = {}
        for index, text in enumerate(texts):
            if match := _GETPC.match(text):
                started[int(match[1])] = ends[index]
            elif (match := _LOW.match(text)) and int(match[1]) in started:
                low[int(match[1])] = index, int(match[2], 0)
            elif (match := _HIGH.match(text)) and int(match[1]) - 1 in low:
                first = int(match[1]) - 1
                at, value = low.pop(first)
                offset = (value & 0xFFFFFFFF) + (int(match[2], 0) << 32)
                target = (started.pop(first) + offset) % (1 << 64)
                literals |= {at: ("lo", target), index: ("hi", target)}
        return literals

    def _tables(self) -> Iterator[str]:
        """Copied tables of function addresses."""
        functions = self._functions()
        for section in self._object.sections:
            if section.name == ".luthier.got":
                inside = [
                    relocation
                    for relocation in self._object.relocations
                    if section.address <= relocation.offset < section.address + section.size
                ]
                for relocation in sorted(inside, key=lambda entry: entry.offset):
                    place = relocation.offset - section.address
                    yield f"{section.name}+{place}: {self._name(relocation.addend, functions)}"

    def _refusals(self) -> Iterator[str]:
        for refusal in self.report.refusals:
            assert refusal.address is not None
            index = self.lifted.index_at(refusal.address)
            assert index is not None
            text = self.lifted.isa.text(self.lifted.code, index)
            yield f"refused {refusal.place} {text!r}, {refusal.kind}: {refusal.message}"


def _shortened(lines: list[tuple[str, str]], show: str) -> Iterator[str]:
    """Yield the lines without those that a reader does not need."""
    groups = [(kind, [line for line, _ in group]) for kind, group in itertools.groupby(lines, key=lambda pair: pair[1])]
    for number, (kind, group) in enumerate(groups):
        if kind == "same":
            first, last = number > 0 and groups[number - 1][0] != "label", number + 1 < len(groups)
            if len(group) > first + last + 1:
                group = [*group[:first], "  ...", *group[len(group) - last :]]
            yield from group
        elif kind == "spliced":
            shown = (line if re.search(show, line) else "+ ..." for line in group)
            yield from (line for line, equal in itertools.groupby(shown) for _ in (equal if line != "+ ..." else "1"))
        else:
            yield from group
