"""Lines of `luthier::printf`, formatted on the host like in C."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from luthier.errors import ToolError
from luthier.wire.channels import LINE_MORE, Passed

_SMALL, _LARGE = (Passed.INT, Passed.UNSIGNED), (Passed.LONG, Passed.UNSIGNED_LONG)
_LONGEST = 4096
"""The most characters of a field: arguments may give any width or precision."""
_CONVERSION = re.compile(rb"%(?:(%)|([-+ #0]*)(\d+|\*)?(?:\.(\d+|\*)?(?<=[.\d*]))?([hljzt]*)([a-zA-Z]))", re.DOTALL)

Strings = Callable[[int], bytes | None]
"""Returns the constant string at a device address, or None."""


class Printer:
    """A sink for a channel of lines.

    Args:
        strings: finds formats and string arguments.
        write: receives the text.
    """

    def __init__(self, strings: Strings, write: Callable[[str], object]) -> None:
        self._strings = strings
        self._write = write
        self._begun: list[int] = []
        self._known: dict[int, bytes | None] = {}

    def __call__(self, batch: NDArray[Any]) -> None:
        """Print the lines that are complete after these slots."""
        text = []
        for words in batch["words"].tolist():
            if words[0] == LINE_MORE:
                words = self._begun + words[1:] if self._begun else []
            self._begun = []
            if not words:
                continue  # its first slot was lost
            if words[1] & 255 > len(words) - 2:
                self._begun = words
                continue
            text.append(self._line(words))
        if text:
            self._write("".join(text))

    def _string(self, address: int) -> bytes | None:
        if address not in self._known:
            self._known[address] = self._strings(address)
        return self._known[address]

    def _line(self, words: list[int]) -> str:
        signature = words[1]
        count = signature & 255
        format = self._string(words[0])
        if format is None:
            return f"<luthier::printf: the format at {words[0]:#x} is not a constant string of the module>\n"
        arguments = [(signature >> (8 + 4 * at) & 15, words[2 + at]) for at in range(count)]
        try:
            return b"".join(self._parts(format, iter(arguments))).decode(errors="replace")
        except ToolError as problem:
            return f"<luthier::printf: {problem.message}>\n"

    def _parts(self, format: bytes, arguments: Iterator[tuple[int, int]]) -> Iterator[bytes]:
        at = 0
        while (percent := format.find(b"%", at)) >= 0:
            yield format[at:percent]
            match = _CONVERSION.match(format, percent)
            if match is None:
                raise ToolError(f"the format {format!r} is malformed")
            at = match.end()
            yield b"%" if match[1] else self._field(format, match, arguments)
        yield format[at:]
        if next(arguments, None) is not None:
            raise ToolError(f"the format {format!r} has too few fields for its arguments")

    def _field(self, format: bytes, match: re.Match[bytes], arguments: Iterator[tuple[int, int]]) -> bytes:
        def take(*kinds: int) -> tuple[int, int]:
            kind, word = next(arguments, (0, 0))
            if kind not in kinds:
                raise ToolError(f"the format {format!r} does not fit its arguments")
            return kind, word

        def number(text: bytes | None) -> int:
            value = _signed(take(*_SMALL)[1], 32) if text == b"*" else int(text or b"0")
            if abs(value) > _LONGEST:
                raise ToolError(f"a field has {abs(value)} characters, more than {_LONGEST}")
            return value

        flags, width, length, letter = match[2].decode(), number(match[3]), match[5], match[6].decode()
        dot = match[0].find(b".") >= 0
        precision = number(match[4]) if dot else None
        if width < 0:
            flags, width = flags + "-", -width
        if precision is not None and precision < 0:
            precision = None
        if letter in "diouxX":
            is_long = bool(length.strip(b"h"))
            _, word = take(*(_LARGE if is_long else _SMALL))
            bits = 64 if is_long else {b"": 32, b"h": 16}.get(length, 8)
            return _pad(*_integer(word, bits, letter, flags, precision), flags, width, precision is None)
        if letter in "fFeEgG":
            _, word = take(Passed.DOUBLE)
            value = struct.unpack("<d", struct.pack("<Q", word))[0]
            alternate = "#" if "#" in flags else ""
            digits = 6 if precision is None else precision
            text = f"%{alternate}.{digits}{letter}" % abs(value)
            negative = math.copysign(1.0, value) < 0
            return _pad(_sign(negative, flags), text, flags, width, math.isfinite(value))
        if letter == "c":
            return _pad_bytes(bytes([take(*_SMALL)[1] & 255]), flags, width)
        if letter == "s":
            word = take(Passed.STRING)[1]
            string = b"(null)" if word == 0 else self._string(word)
            if string is None:
                string = f"(string at {word:#x})".encode()
            return _pad_bytes(string[:precision], flags, width)
        if letter == "p":
            word = take(Passed.POINTER, Passed.STRING)[1]
            return _pad_bytes(hex(word).encode() if word else b"(nil)", flags, width)
        raise ToolError(f"the format {format!r} has %{letter}, which luthier::printf does not support")


def _signed(word: int, bits: int) -> int:
    word &= (1 << bits) - 1
    return word - (1 << bits) if word >> (bits - 1) else word


def _sign(negative: bool, flags: str) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _integer(word: int, bits: int, letter: str, flags: str, precision: int | None) -> tuple[str, str]:
    """Return the prefix before padding zeros, and the digits."""
    if letter in "di":
        value = _signed(word, bits)
        prefix, digits = _sign(value < 0, flags), str(abs(value))
    else:
        value = word & ((1 << bits) - 1)
        digits = format(value, {"u": "d"}.get(letter, letter))
        prefix = f"0{letter}" if "#" in flags and letter in "xX" and value else ""
    digits = "" if precision == 0 and value == 0 else digits.rjust(precision or 0, "0")
    if letter == "o" and "#" in flags and not digits.startswith("0"):
        digits = "0" + digits
    return prefix, digits


def _pad(prefix: str, digits: str, flags: str, width: int, zeros: bool) -> bytes:
    if "0" in flags and "-" not in flags and zeros:
        digits = digits.rjust(width - len(prefix), "0")
    return _pad_bytes((prefix + digits).encode(), flags, width)


def _pad_bytes(text: bytes, flags: str, width: int) -> bytes:
    return text.ljust(width) if "-" in flags else text.rjust(width)
