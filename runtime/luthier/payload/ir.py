"""Reader of LLVM's textual IR: an instruction is its opcode, its operands, and the words between them.

The words are flags, attributes and orderings. Every release of LLVM adds some; the reader skips unknown ones together
with their parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from luthier.errors import HookError

_NAME = r'[%@](?:"[^"]*"|[-\w.$]+)'
_NAMES = re.compile(_NAME)
_TOKENS = re.compile(rf'{_NAME}|[!#][-\w.$]*|c?"[^"]*"|[-+\w.$]+|\S')
_TYPE = re.compile(r"(?:ptr|i\d+|half|bfloat|float|double|fp128|void|label|metadata|[<\[{])$")
_SIMPLE = re.compile(r"[%@]|-?\d|(?:true|false|null|none|undef|poison|zeroinitializer)$")
_LITERAL = re.compile(r'[<\[{!]|c?"')
_EXPRESSION = re.compile(
    r"(?:getelementptr|addrspacecast|ptrtoint|ptrtoaddr|inttoptr|bitcast|trunc|add|sub|xor|splat|blockaddress"
    r"|extractelement|insertelement|shufflevector)$"
)


class IrOperand(NamedTuple):
    """An operand. A type without a value, such as the first operand of a ``load``, has no text."""

    type: str
    """Type in LLVM's spelling; empty if it is not repeated, as for the second operand of an ``add``."""
    text: str = ""
    """``%7``, ``@counter``, ``-3``, or a constant expression."""
    operation: str = ""
    """Operation of a constant expression."""
    operands: tuple[IrOperand, ...] = ()
    """Operands of a constant expression."""

    @property
    def number(self) -> int | None:
        """Return the value of a constant integer, otherwise None."""
        if self.text in ("true", "false"):
            return int(self.text == "true")
        return int(self.text) if self.text.removeprefix("-").isdigit() else None


class IrInstruction(NamedTuple):
    """One instruction."""

    result: str
    """Name of the value that it defines, e.g. ``%7``; or empty."""
    opcode: str
    operands: tuple[IrOperand, ...]
    words: frozenset[str]
    """Flags, orderings and attributes, including those of operands."""
    type: str = ""
    """Return type of a call."""
    callee: str = ""
    """Name of the called function, or ``asm``."""


def read_instruction(line: str) -> IrInstruction | None:
    """Return the instruction in one line of a function's body; None for a label or an empty line.

    Raises:
        HookError: the line cannot be read.
    """
    return _Reader(line).instruction() if line.startswith(" ") and not line.isspace() else None


def names_in(text: str) -> list[str]:
    """Return all occurrences of names of values and globals in IR, in their spelling."""
    return _NAMES.findall(text)


def symbol_of(name: str) -> str:
    """Return the symbol of a global with the spelling ``@x`` or ``@"a b"``."""
    return name[1:].strip('"')


def replace_globals(line: str, values: Mapping[str, str], define: Callable[[str], str]) -> str:
    """Return a line with globals replaced by values.

    Args:
        values: spelling of a global -> value.
        define: adds an instruction and returns its value, to replace a constant expression of such a global.
    """
    pieces: list[str] = []
    opened: list[int] = []
    replaced: list[int] = []
    end = 0
    for match in _TOKENS.finditer(line):
        token, space, end = match.group(), line[end : match.start()], match.end()
        if token in values:
            replaced.append(len(pieces))
        pieces.append(space + values.get(token, token))
        if token == "(":
            opened.append(len(pieces) - 1)
        elif token == ")" and opened:
            first = at = opened.pop()
            while at and pieces[at - 1].strip().isalpha() and not _EXPRESSION.match(pieces[at].strip()):
                at -= 1
            operation = pieces[at].strip()
            if replaced and replaced[-1] > first and _EXPRESSION.match(operation):
                value = define(f"{''.join(pieces[at:first]).strip()} {''.join(pieces[first + 1 : -1])}")
                replaced = [*(position for position in replaced if position < first), at]
                pieces[at:] = [f" {value}"]
    return "".join(pieces) + line[end:]


class _Reader:
    """Reads one line from left to right."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._tokens = list(_TOKENS.finditer(line))
        self._at = 0
        self._words: list[str] = []

    def instruction(self) -> IrInstruction:
        result = ""
        if self._next(1) == "=":
            result = self._take()
            self._take()
        opcode = self._take()
        if opcode in ("tail", "musttail", "notail"):
            opcode = self._take()
        kind, callee = self._head() if opcode == "call" else ("", "")
        operands = self._in_parentheses() if callee else self._operands()
        while self._next():
            self._word()
        return IrInstruction(result, opcode, operands, frozenset(self._words), kind, callee)

    def _next(self, behind: int = 0) -> str:
        """Return the next token, or the one `behind` tokens after it; empty beyond the end of the line."""
        return self._tokens[self._at + behind].group() if self._at + behind < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        if not token:
            raise self._unreadable()
        self._at += 1
        return token

    def _unreadable(self) -> HookError:
        return HookError(f"cannot read LLVM's instruction {self._line.strip()!r}")

    def _since(self, first: int) -> str:
        """Return the text of the tokens from `first` up to the next one."""
        return self._line[self._tokens[first].start() : self._tokens[self._at - 1].end()]

    def _head(self) -> tuple[str, str]:
        """Read a call up to its arguments; return the type of its result, and its callee."""
        while not self._at_type():
            self._word()
        kind = self._type()
        if self._next() == "(":  # the complete type of a function with variable arguments
            self._brackets()
        token = self._take()
        while self._next() != "(":
            self._take()  # parts of inline assembly
        return kind, symbol_of(token) if token.startswith("@") else token

    def _operands(self) -> tuple[IrOperand, ...]:
        """Return the operands up to a closing parenthesis, or to the end of the line."""
        operands = []
        while self._next() not in ("", ")"):
            if self._at_type():
                operands.append(self._typed())
            elif _SIMPLE.match(self._next()):
                operands.append(IrOperand("", self._take()))
            else:
                self._word()
        return tuple(operands)

    def _in_parentheses(self) -> tuple[IrOperand, ...]:
        """Return the operands in the following parentheses."""
        if self._take() != "(":
            raise self._unreadable()
        operands = self._operands()
        self._take()
        return operands

    def _typed(self) -> IrOperand:
        kind = self._type()
        while self._next() not in ("", ",", ")", "to"):
            first, token = self._at, self._next()
            if _EXPRESSION.match(token):
                while self._next() != "(":
                    self._word()
                operands = self._in_parentheses()
                return IrOperand(kind, self._since(first), token, operands)
            if _LITERAL.match(token):
                self._brackets()
                return IrOperand(kind, self._since(first))
            if _SIMPLE.match(token):
                return IrOperand(kind, self._take())
            if token == "(":
                raise self._unreadable()
            self._word()
        return IrOperand(kind)

    def _at_type(self) -> bool:
        token = self._next()
        return _TYPE.match(token) is not None or (token.startswith("%") and self._next(1).startswith("%"))

    def _type(self) -> str:
        first = self._at
        self._brackets()
        if self._next() == "addrspace":
            self._word()
        return self._since(first)

    def _word(self) -> None:
        """Skip a comma, or a word with its number or parentheses."""
        token = self._take()
        self._words.append(token)
        if token.isalpha() and self._next().isdigit():
            self._take()
        elif self._next() == "(" and self._tokens[self._at].start() == self._tokens[self._at - 1].end():
            self._brackets()

    def _brackets(self) -> None:
        """Skip a token; from an opening bracket, skip up to the matching closing one."""
        depth = 0
        while True:
            token = self._take()
            depth += (token in "([{<") - (token in ")]}>")
            if depth <= 0 or not self._next():
                return
