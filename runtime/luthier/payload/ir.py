"""Reader of LLVM's textual IR: an instruction as its opcode, its operands, and the words between them.

The words are flags, attributes and orderings. Every release of LLVM has more of them; the reader passes over those that
nobody asks for, with whatever they have in parentheses.
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
    """An operand. A type that stands alone, as the first operand of a ``load`` does, has no text."""

    type: str
    """Type in LLVM's spelling; empty where it is not repeated, as in the second operand of an ``add``."""
    text: str = ""
    """``%7``, ``@counter``, ``-3``, or a constant expression."""
    operation: str = ""
    """Operation of a constant expression."""
    operands: tuple[IrOperand, ...] = ()
    """Operands of a constant expression."""

    @property
    def number(self) -> int | None:
        """Return the value of a constant integer; None of anything else."""
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
    """Flags, orderings and attributes, of operands as well."""
    type: str = ""
    """Type of what a call returns."""
    callee: str = ""
    """Name of the function that is called, or ``asm``."""


def read_instruction(line: str) -> IrInstruction | None:
    """Return the instruction in one line of a function's body; None for a label or an empty line.

    Raises:
        HookError: the line cannot be read.
    """
    return _Reader(line).instruction() if line.startswith(" ") and not line.isspace() else None


def names_in(text: str) -> list[str]:
    """Return the names of values and globals in IR, as they are spelled and as often as they are there."""
    return _NAMES.findall(text)


def symbol_of(name: str) -> str:
    """Return the symbol of a global that is spelled ``@x`` or ``@"a b"``."""
    return name[1:].strip('"')


def replace_globals(line: str, values: Mapping[str, str], define: Callable[[str], str]) -> str:
    """Return a line in which values stand for globals.

    Args:
        values: by the globals' names, as they are spelled.
        define: gives the value of an instruction, which takes the place of a constant expression of such a global.
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
                replaced = [*(one for one in replaced if one < first), at]
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
        """Return the token that comes next, or one behind it; empty beyond the end of the line."""
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
        """Return the text of the tokens from `first` on to the next one."""
        return self._line[self._tokens[first].start() : self._tokens[self._at - 1].end()]

    def _head(self) -> tuple[str, str]:
        """Pass over a call up to its arguments; return the type of its result, and what it calls."""
        while not self._at_type():
            self._word()
        kind = self._type()
        if self._next() == "(":  # of a function with variable arguments there is the whole type
            self._brackets()
        token = self._take()
        while self._next() != "(":
            self._take()  # what belongs to inline assembly
        return kind, symbol_of(token) if token.startswith("@") else token

    def _operands(self) -> tuple[IrOperand, ...]:
        """Return the operands up to a parenthesis that closes, or to the end of the line."""
        found = []
        while self._next() not in ("", ")"):
            if self._at_type():
                found.append(self._typed())
            elif _SIMPLE.match(self._next()):
                found.append(IrOperand("", self._take()))
            else:
                self._word()
        return tuple(found)

    def _in_parentheses(self) -> tuple[IrOperand, ...]:
        """Return the operands in the parentheses that come next."""
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
        """Pass over a word with the number or the parentheses that belong to it, or over a comma."""
        token = self._take()
        self._words.append(token)
        if token.isalpha() and self._next().isdigit():
            self._take()
        elif self._next() == "(" and self._tokens[self._at].start() == self._tokens[self._at - 1].end():
            self._brackets()

    def _brackets(self) -> None:
        """Pass over a token, with everything up to the one that closes it if it is a bracket."""
        depth = 0
        while True:
            token = self._take()
            depth += (token in "([{<") - (token in ")]}>")
            if depth <= 0 or not self._next():
                return
