"""Variables in a code object's debug information: those visible at an address, and their locations.

Source: DWARF Debugging Information Format, version 5, sections 2.6, 4.1 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from elftools.dwarf.compileunit import CompileUnit
from elftools.dwarf.die import DIE
from elftools.dwarf.dwarf_expr import DWARFExprParser
from elftools.dwarf.locationlists import BaseAddressEntry, LocationEntry, LocationExpr, LocationParser
from msgspec import Struct, field

from luthier.objects import elf as E
from luthier.objects.dwarf import Dwarf, DwarfError, number_of, readable, text_of

Range = tuple[int, int]
"""Virtual addresses [begin, end)."""
_ENCODINGS = {2: "boolean", 4: "float", 5: "signed", 6: "signed", 7: "unsigned", 8: "unsigned"}
"""DW_ATE_*, also for characters, which are shown as numbers."""
_TRANSPARENT = {
    f"DW_TAG_{name}_type" for name in ("const", "volatile", "restrict", "atomic", "packed", "shared", "immutable")
} | {"DW_TAG_typedef"}
_POINTERS = {f"DW_TAG_{name}_type" for name in ("pointer", "reference", "rvalue_reference")}
_RECORDS = {f"DW_TAG_{name}_type" for name in ("structure", "class", "union")}
_VARIABLES = {"DW_TAG_variable", "DW_TAG_formal_parameter"}
_SCOPES = {"DW_TAG_subprogram", "DW_TAG_inlined_subroutine", "DW_TAG_lexical_block"}
_MOST_NESTED = 16
"""Maximum nesting of types; deeper ones are shown without their contents."""
_MOST_MEMBERS = 4096


class DwarfType(Struct, frozen=True):
    """Type of a variable."""

    name: str
    kind: str
    """"signed", "unsigned", "float", "boolean", "pointer", "array", "record", or "unknown"."""
    size: int
    """Bytes; 0: unknown."""
    element: DwarfType | None = None
    """Type of the elements of an array."""
    members: tuple[tuple[str, int, DwarfType], ...] = ()
    """Name, offset in bytes and type of a record's members."""


class DwarfOperation(Struct, frozen=True):
    """Operation of a DWARF expression."""

    name: str
    """Without ``DW_OP_``."""
    arguments: tuple[Any, ...]
    """Numbers; addresses instead of indices into the address table, kind and size instead of types."""


Expression = tuple[DwarfOperation, ...]


class DwarfVariable(Struct, frozen=True):
    """Variable or parameter of a function."""

    name: str
    type: DwarfType
    scope: tuple[Range, ...]
    """Code in which it is visible."""
    depth: int
    """Number of inlined calls around it."""
    locations: tuple[tuple[Range | None, Expression], ...]
    """Its location by range of the program counter; None: everywhere in its scope."""
    constant: int | None
    """Value of a variable without a location."""
    frame_base: Expression
    """Frame base of its function."""

    def expression_at(self, address: int) -> Expression | None:
        """Return its location at an instruction; None if the compiler recorded none."""
        for span, expression in self.locations:
            if span is None or span[0] <= address < span[1]:
                return expression
        return None


class _Scope(Struct):
    ranges: tuple[Range, ...]
    depth: int
    frame_base: Expression
    code: bool = field(default=True)
    """Whether it is inside a function with code."""


class VariableMap:
    """The variables of one code object, read by unit on demand.

    Attributes:
        problems: what could not be read, and why.
    """

    def __init__(self, elf: E.ElfFile) -> None:
        self.problems: list[str] = []
        self._units: list[tuple[tuple[Range, ...], Dwarf, CompileUnit]] = []
        self._read: dict[int, list[DwarfVariable]] = {}
        try:
            dwarf = Dwarf(elf)
            self._units = [(unit.ranges, dwarf, unit.cu) for unit in dwarf.units()]
        except DwarfError as problem:
            self.problems.append(f"debug information: {problem}")

    def at(self, address: int) -> list[DwarfVariable]:
        """Return the variables visible at an instruction, outer scopes first."""
        return [one for one in self.near([address]) if _within(address, one.scope)]

    def near(self, addresses: Sequence[int]) -> list[DwarfVariable]:
        """Return the variables of all functions in the units that contain instructions, outer scopes first."""
        variables = []
        for number, (ranges, dwarf, cu) in enumerate(self._units):
            if any(_within(address, ranges) for address in addresses):
                if number not in self._read:
                    self._read[number] = self._variables(dwarf, cu)
                variables += self._read[number]
        return variables

    def _variables(self, dwarf: Dwarf, cu: CompileUnit) -> list[DwarfVariable]:
        variables: list[DwarfVariable] = []
        try:
            with readable("variables"):
                for variable in _Unit(dwarf, cu).variables():
                    variables.append(variable)
        except DwarfError as problem:
            self.problems.append(str(problem))
        return variables


class _Unit:
    """Reads one compilation unit."""

    def __init__(self, dwarf: Dwarf, cu: CompileUnit) -> None:
        self.dwarf, self.cu = dwarf, cu
        self._parser = DWARFExprParser(cu.structs)
        lists = dwarf.info.location_lists()
        self._locations = LocationParser(lists)
        self._types: dict[int, DwarfType] = {}

    def variables(self) -> Iterator[DwarfVariable]:
        """Yield the variables of functions with code, in order."""
        around: list[_Scope] = []
        outside = _Scope((), 0, (), code=False)
        for die in self.dwarf.entries(self.cu, _VARIABLES):
            if die is None:
                if around:
                    around.pop()
                continue
            scope = around[-1] if around else outside
            variable = self._variable(die, scope) if die.tag in _VARIABLES and scope.code else None
            if variable is not None:
                yield variable
            if die.has_children:
                around.append(self._scope(die, scope))

    def _scope(self, die: DIE, outer: _Scope) -> _Scope:
        ranges = self.dwarf.ranges(self.cu, die) if die.tag in _SCOPES else ()
        if not ranges:
            return _Scope((), outer.depth, (), code=False)
        depth = outer.depth + (die.tag == "DW_TAG_inlined_subroutine")
        base = outer.frame_base
        if die.tag == "DW_TAG_subprogram":
            depth, base = 0, ()
            if (attribute := die.attributes.get("DW_AT_frame_base")) is not None and isinstance(attribute.value, list):
                base = self._expression(attribute.value)
        return _Scope(ranges, depth, base)

    def _variable(self, die: DIE, scope: _Scope) -> DwarfVariable | None:
        origin = self._referred(die, "DW_AT_abstract_origin") or self._referred(die, "DW_AT_specification") or die
        name = text_of(die, "DW_AT_name") or text_of(origin, "DW_AT_name")
        if not name:
            return None
        constant = die.attributes.get("DW_AT_const_value")
        value = constant.value if constant is not None and isinstance(constant.value, int) else None
        kind = self._type(self._referred(origin, "DW_AT_type"), 0)
        return DwarfVariable(name, kind, scope.ranges, scope.depth, self._places(die), value, scope.frame_base)

    def _places(self, die: DIE) -> tuple[tuple[Range | None, Expression], ...]:
        attribute = die.attributes.get("DW_AT_location")
        if attribute is None:
            return ()
        parsed = self._locations.parse_from_attribute(attribute, self.cu["version"], die)
        if isinstance(parsed, LocationExpr):
            return ((None, self._expression(parsed.loc_expr)),)
        low = self.cu.get_top_DIE().attributes.get("DW_AT_low_pc")
        base = low.value if low is not None else 0
        places: list[tuple[Range | None, Expression]] = []
        for entry in parsed or ():
            if isinstance(entry, LocationEntry):
                start = 0 if entry.is_absolute else base
                span = entry.begin_offset + start, entry.end_offset + start
                places.append((span, self._expression(entry.loc_expr)))
            elif isinstance(entry, BaseAddressEntry):
                base = entry.base_address
        return tuple(places)

    def _expression(self, data: Sequence[int]) -> Expression:
        operations = []
        for operation in self._parser.parse_expr(list(data)):
            name, arguments = operation.op_name.removeprefix("DW_OP_"), tuple(operation.args)
            if name in ("addrx", "constx"):
                name = "addr" if name == "addrx" else "constu"
                arguments = (self.dwarf.info.get_addr(self.cu, arguments[0]),)
            elif name == "convert" and arguments[0]:
                kind = self._type(self.cu.get_DIE_from_refaddr(self.cu.cu_offset + arguments[0]), 0)
                arguments = kind.kind, kind.size
            operations.append(DwarfOperation(name, arguments))
        return tuple(operations)

    def _referred(self, die: DIE, attribute: str) -> DIE | None:
        return die.get_DIE_from_attribute(attribute) if attribute in die.attributes else None

    def _type(self, die: DIE | None, depth: int) -> DwarfType:
        if die is None:
            return DwarfType("void", "unknown", 0)
        if die.offset not in self._types:
            self._types[die.offset] = self._read_type(die, depth)
        return self._types[die.offset]

    def _read_type(self, die: DIE, depth: int) -> DwarfType:
        name, size = text_of(die, "DW_AT_name"), number_of(die, "DW_AT_byte_size")
        if depth > _MOST_NESTED:
            return DwarfType(name, "unknown", size)
        if die.tag in _TRANSPARENT:
            inner = self._type(self._referred(die, "DW_AT_type"), depth + 1)
            return DwarfType(name or inner.name, inner.kind, inner.size, inner.element, inner.members)
        if die.tag == "DW_TAG_base_type":
            return DwarfType(name, _ENCODINGS.get(number_of(die, "DW_AT_encoding"), "unknown"), size)
        if die.tag == "DW_TAG_enumeration_type":
            return DwarfType(name, "unsigned", size)
        if die.tag in _POINTERS:
            return DwarfType(f"{self._name(self._referred(die, 'DW_AT_type'))} *", "pointer", size or 8)
        if die.tag == "DW_TAG_array_type":
            return self._array(die, depth)
        if die.tag in _RECORDS:
            members = tuple(self._members(die, depth))
            return DwarfType(name, "record", size, members=members)
        return DwarfType(name, "unknown", size)

    def _name(self, die: DIE | None) -> str:
        """Return the name of a type, without reading more, since its pointee may lead back to it."""
        for _ in range(_MOST_NESTED):
            if die is None:
                return "void"
            if text_of(die, "DW_AT_name"):
                return text_of(die, "DW_AT_name")
            die = self._referred(die, "DW_AT_type")
        return "?"

    def _array(self, die: DIE, depth: int) -> DwarfType:
        kind = self._type(self._referred(die, "DW_AT_type"), depth + 1)
        counts = []
        for child in die.iter_children():
            if child.tag == "DW_TAG_subrange_type":
                bound = child.attributes.get("DW_AT_upper_bound")
                count = number_of(child, "DW_AT_count")
                counts.append(bound.value + 1 if bound is not None and isinstance(bound.value, int) else count)
        for count in reversed(counts):
            kind = DwarfType(f"{kind.name}[{count}]", "array", kind.size * count, element=kind)
        return kind

    def _members(self, die: DIE, depth: int) -> Iterator[tuple[str, int, DwarfType]]:
        for number, child in enumerate(die.iter_children()):
            if number > _MOST_MEMBERS:
                return
            if child.tag in ("DW_TAG_member", "DW_TAG_inheritance") and "DW_AT_bit_size" not in child.attributes:
                kind = self._type(self._referred(child, "DW_AT_type"), depth + 1)
                if "DW_AT_external" not in child.attributes:  # static ones are elsewhere
                    name = text_of(child, "DW_AT_name") or kind.name
                    yield name, number_of(child, "DW_AT_data_member_location"), kind


def _within(address: int, ranges: Sequence[Range]) -> bool:
    return any(begin <= address < end for begin, end in ranges)
