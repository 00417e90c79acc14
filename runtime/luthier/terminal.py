"""Output to the terminal, with unprintable characters made visible.

Names in code objects, bundles and run directories are untrusted: they may contain terminal escape sequences, changes of
text direction, and line ends that forge Luthier's lines. All of Luthier's output goes through this module (a rule of
scripts/house_rules.py); output of programs and tools is passed on unchanged.
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
    """Return a part of a line with all unprintable characters escaped: control and format characters, changes of
    direction, line ends, lone surrogates, unassigned code points.

    Escapes are JSON's (``\\u001b``), with eight digits beyond U+FFFF, so that JSON stays valid.
    """
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def visible_lines(text: str) -> str:
    """Return a text with all unprintable characters escaped except line ends and tabs."""
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))


def visible_json(text: str) -> str:
    """Return ASCII JSON whose strings, once parsed, are visible text."""
    return _JSON_ESCAPE.sub(_seen_json, text).replace("\x7f", r"\\u007f")


_JSON_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^u])")
_JSON_SHORT = {r"\b": r"\\u0008", r"\f": r"\\u000c", r"\r": r"\\u000d"}
"""Short escapes of control characters; line ends and tabs are harmless."""


def _seen_json(match: re.Match[str]) -> str:
    escape = match[0]
    if escape[1] != "u":
        return _JSON_SHORT.get(escape, escape)
    character = json.loads(f'"{escape}"')
    return escape if character.isprintable() else _escaped(character).replace("\\", r"\\")


def say(text: object = "", *, file: IO[str] | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print one line; line ends in it are escaped.

    Errors of writing to standard error are ignored.

    Args:
        file: default: standard output.
        end: printed after it, unchanged.
    """
    with _can_do_without(file):
        _write(_visible_line(str(text)), file, end, flush)


def say_text(text: object, *, file: IO[str] | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print a text of any number of lines; errors of standard error are ignored like in `say`."""
    with _can_do_without(file):
        _write(visible_lines(str(text)), file, end, flush)


def say_raw(text: object, *, file: IO[str] | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print text unchanged: for other programs, or with Luthier's own escape sequences."""
    _write(str(text), file, end, flush)


def _can_do_without(file: IO[str] | None) -> AbstractContextManager[None]:
    return suppress(OSError) if file is sys.stderr else nullcontext()


def _visible_line(text: str) -> str:
    """Return a line with all unprintable characters escaped except tabs."""
    return text if text.isprintable() else "\t".join(map(visible, text.split("\t")))


def data_output() -> IO[bytes]:
    """Return a binary stream to standard output: unchanged for files and pipes, as visible text for terminals."""
    return _Shown() if sys.stdout.isatty() else sys.stdout.buffer


class _Shown(io.BytesIO):
    """Accepts UTF-8, and prints it as visible text on standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        say_text(self._decoder.decode(bytes(data)), end="")
        return len(data)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"


def _write(text: str, file: IO[str] | None, end: str, flush: bool) -> None:
    stream = sys.stdout if file is None else file
    if not text.isascii():  # the stream may not support all characters
        encoding = getattr(stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    stream.write(text + end)
    if flush:
        stream.flush()
