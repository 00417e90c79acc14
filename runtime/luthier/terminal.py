"""The one way to the terminal: text of which parts come from files, with everything unprintable in it made visible.

Names in code objects, bundles and run directories are whatever a stranger put there: escape sequences that a terminal
obeys, signs that turn the direction of text, line ends that forge lines of ours. All that Luthier prints goes through
here (a rule of scripts/house_rules.py); what a program or a tool prints is theirs, and passes untouched.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import IO


def visible(text: str) -> str:
    """Return a name or another piece of a line with everything that is not printable escaped: control and format
    characters, changes of direction, line ends, what is no character (lone surrogates, unassigned code points).

    Escapes are JSON's (``\\u001b``), with eight digits beyond U+FFFF, so that JSON stays JSON.
    """
    return text if text.isprintable() else "".join(one if one.isprintable() else _escaped(one) for one in text)


def visible_lines(text: str) -> str:
    """Return a text with the same escaped, but for line ends and tabs."""
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))


def visible_json(text: str) -> str:
    """Return JSON, in which what is not ASCII is escaped, with strings that are visible text when it is read."""
    return _JSON_ESCAPE.sub(_seen_json, text).replace("\x7f", r"\\u007f")


_JSON_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^u])")
_JSON_SHORT = {r"\b": r"\\u0008", r"\f": r"\\u000c", r"\r": r"\\u000d"}
"""Escapes of control characters; line ends and tabs are no harm."""


def _seen_json(found: re.Match[str]) -> str:
    escape = found[0]
    if escape[1] != "u":
        return _JSON_SHORT.get(escape, escape)
    one = json.loads(f'"{escape}"')
    return escape if one.isprintable() else _escaped(one).replace("\\", r"\\")


def say(text: object = "", *, file: IO[str] | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print one line; a line end in it is escaped, too.

    What standard error does not take is left out: that is no reason to fail.

    Args:
        file: default: standard output.
        end: is printed behind it as it is.
    """
    with _can_do_without(file):
        _write(_visible_line(str(text)), file, end, flush)


def say_text(text: object, *, file: IO[str] | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print a text of any number of lines; of standard error as `say`."""
    with _can_do_without(file):
        _write(visible_lines(str(text)), file, end, flush)


def say_raw(text: object, *, file: IO[str] | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print what another program reads, or what is drawn with escape sequences of our own, as it is."""
    _write(str(text), file, end, flush)


def _can_do_without(file: IO[str] | None) -> AbstractContextManager[None]:
    return suppress(OSError) if file is sys.stderr else nullcontext()


def _visible_line(text: str) -> str:
    """Return a line with everything escaped that is not printable, but for tabs."""
    return text if text.isprintable() else "\t".join(map(visible, text.split("\t")))


def data_output() -> IO[bytes]:
    """Return where data goes that is written to standard output: as it is to files and pipes, as visible text to
    terminals."""
    return _Shown() if sys.stdout.isatty() else sys.stdout.buffer


class _Shown(io.BytesIO):
    """Takes UTF-8, and shows it on standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        say_text(self._decoder.decode(bytes(data)), end="")
        return len(data)


def _escaped(one: str) -> str:
    return f"\\u{ord(one):04x}" if ord(one) <= 0xFFFF else f"\\U{ord(one):08x}"


def _write(text: str, file: IO[str] | None, end: str, flush: bool) -> None:
    stream = sys.stdout if file is None else file
    if not text.isascii():  # the stream may know fewer characters
        encoding = getattr(stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    stream.write(text + end)
    if flush:
        stream.flush()
