"""Lines of `luthier::printf` against the C library's."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from luthier.channels import Printer
from luthier.errors import LuthierError
from luthier.module import ToolModule

from .conftest import Loaded

SLOT = np.dtype([("words", "<u8", 8)])
INT, UNSIGNED, LONG, UNSIGNED_LONG, DOUBLE, POINTER, STRING = range(1, 8)


class Call:
    """A generated call: its format, what travels of its arguments, and the arguments for the C library."""

    def __init__(self, rng: random.Random) -> None:
        self.strings: dict[int, bytes] = {}
        self.kinds: list[int] = []
        self.words: list[int] = []
        self.c: list[Any] = []
        self.format = b""
        for _ in range(rng.randrange(5)):
            self.format += rng.choice([b"", b"a", b"%%", b"x y"]) + self.field(rng)
        self.format += b"\n"

    def add(self, kind: int, word: int, c: Any) -> None:
        self.kinds.append(kind)
        self.words.append(word & (1 << 64) - 1)
        self.c.append(c)

    def star(self, rng: random.Random, least: int, most: int) -> None:
        value = rng.randrange(least, most)
        self.add(INT, value, ctypes.c_int(value))

    def field(self, rng: random.Random) -> bytes:
        letter = rng.choice("diouxXfFeEgGcsp")
        flags = "".join(rng.sample("-+ #0", rng.randrange(3)))
        if letter in "csp":  # what other flags do with these, C does not say
            flags = flags.replace("+", "").replace(" ", "").replace("#", "").replace("0", "")
        if letter in "diu":
            flags = flags.replace("#", "")
        # The GNU library pads with zeros on the right for a negative width with flag 0.
        width = rng.choice(["", str(rng.randrange(1, 20)), "*"])
        if width == "*":
            self.star(rng, 0 if "0" in flags else -12, 20)
        precision = ""
        if letter not in "cp":
            precision = rng.choice(["", f".{rng.randrange(12)}", ".", ".*"])
            if precision == ".*":
                self.star(rng, -2, 12)
        length = self.value(rng, letter)
        return f"%{flags}{width}{precision}{length}{letter}".encode()

    def value(self, rng: random.Random, letter: str) -> str:
        """Add an argument; the length modifier."""
        if letter in "diouxX":
            length = rng.choice(["", "h", "hh", "l", "ll", "z"])
            value = rng.choice([0, 1, rng.randrange(1 << 64), rng.randrange(100), -rng.randrange(1, 1000)])
            if length in ("", "h", "hh"):
                self.add(rng.choice([INT, UNSIGNED]), value, ctypes.c_int(value & 0xFFFFFFFF))
            else:
                self.add(rng.choice([LONG, UNSIGNED_LONG]), value, ctypes.c_ulonglong(value & (1 << 64) - 1))
            return length
        if letter in "fFeEgG":
            number = rng.choice([0.0, -0.0, 1.5, rng.uniform(-1e6, 1e6), *map(float, ("inf", "-inf", "nan")), 1e300])
            self.add(DOUBLE, struct.unpack("<Q", struct.pack("<d", number))[0], ctypes.c_double(number))
        elif letter == "c":
            value = rng.randrange(32, 127)
            self.add(INT, value, ctypes.c_int(value))
        elif letter == "s":
            text = bytes(rng.randrange(97, 123) for _ in range(rng.randrange(12)))
            address = 0x1000 + 256 * len(self.strings)
            self.strings[address] = text
            self.add(STRING, address, ctypes.c_char_p(text))
        else:
            value = rng.choice([0, rng.randrange(1 << 48)])
            self.add(POINTER, value, ctypes.c_void_p(value))
        return ""

    def slots(self) -> Any:
        """As the device lays the call out."""
        signature = len(self.kinds) | sum(kind << (8 + 4 * at) for at, kind in enumerate(self.kinds))
        self.strings[1 << 40] = self.format
        rows = [[1 << 40, signature, *self.words[:6]]]
        if len(self.words) > 6:
            rows.append([1, *self.words[6:]])
        slots = np.zeros(len(rows), SLOT)
        for at, row in enumerate(rows):
            slots["words"][at, : len(row)] = row
        return slots


def test_as_the_c_library() -> None:
    libc = ctypes.CDLL(None)
    rng = random.Random(1)
    compared = 0
    for _ in range(4000):
        call = Call(rng)
        if len(call.kinds) > 13:
            continue
        buffer = ctypes.create_string_buffer(1 << 12)
        libc.snprintf(buffer, len(buffer), call.format, *call.c)
        out: list[str] = []
        printer = Printer(call.strings.get, out.append)
        slots = call.slots()
        for at in range(len(slots)):  # the second slot may come in a later batch
            printer(slots[at : at + 1])
        assert "".join(out) == buffer.value.decode(), call.format
        compared += 1
    assert compared > 3000


@pytest.mark.parametrize(
    ("format", "signature", "says"),
    [
        (None, 0, "is not a constant string of the module"),
        (b"%d", 0, "does not fit"),
        (b"%s", 1 | INT << 8, "does not fit"),
        (b"%d", 1 | LONG << 8, "does not fit"),
        (b"x", 1 | INT << 8, "too few fields"),
        (b"%", 0, "malformed"),
        (b"%y", 1 | INT << 8, "does not support"),
        (b"%*d", 2 | INT << 8 | INT << 12, "a field has 1000000 characters"),
    ],
)
def test_what_cannot_be_printed_says_so(format: bytes | None, signature: int, says: str) -> None:
    """Formats unknown when the tool is built are checked at run time, and lost records leave no partial line."""
    slots = np.zeros(3, SLOT)
    slots["words"][0, :3] = 5, signature, 1000000
    slots["words"][1, :2] = 6, 0
    slots["words"][2, 0] = 1  # the rest of a line whose beginning was lost
    out: list[str] = []
    Printer({5: format, 6: b"next\n"}.get, out.append)(slots)
    first, second = "".join(out).splitlines()
    assert first.startswith("<luthier::printf: ")
    assert says in first
    assert second == "next"


GOOD = r"""
#include <luthier/channel.h>
enum Small : uint8_t { kOne = 1 };
LUTHIER_HOOK_ANNOTATE say(uint32_t stored) {
  const char *const when[] = {"even", "odd"};
  luthier::printf("%u|%-6s|%+.3f|%#llx|%c|%%|%5d|%s|%hhu|%p\n", stored, "name", 0.5f * stored, 1ull << 40 | stored, 'c',
                  -3, stored % 2 ? when[1] : when[0], kOne, (void *)0);
  if (stored == 0)
    luthier::printf("%u %u\n", blockIdx.x, blockDim.x);
  luthier::printf("%d%d%d%d%d%d %d%d%d%d%d%d%d\n", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, (int)stored);
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
def test_hooks_print(
    make_module: Callable[..., ToolModule],
    trace: Callable[..., Loaded],
    capsys: pytest.CaptureFixture[str],
    target: str,
) -> None:
    loaded = trace(target, make_module(GOOD, "gfx90a", "gfx1201"), "say")
    loaded.launch(np.full(70, 1, np.uint32), 64)
    lines = ["0 64"] + [
        line
        for stored in range(0, 210, 3)
        for line in (
            f"{stored}|name  |{stored / 2:+.3f}|{1 << 40 | stored:#x}|c|%|   -3|{('even', 'odd')[stored % 2]}|1|(nil)",
            f"012345 67891011{stored}",
        )
    ]
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(lines)
    heard: list[str] = []
    loaded.module.channel("printf").listen(heard.append)
    loaded.launch(np.full(70, 1, np.uint32), 64)
    assert sorted("".join(heard).splitlines()) == sorted(lines)
    assert capsys.readouterr().out == ""


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (r'"%s\n", stored', "does not fit"),
        (r'"%d\n"', "does not fit"),
        (r'"none\n", stored', "does not fit"),
        (r'"%lld\n", stored', "does not fit"),
        (r'"%d\n", 1.5f', "does not fit"),
        (r'"%n\n", &stored', "does not fit"),
        (r'"%a\n", 1.5', "does not fit"),
        (r'"%", stored', "does not fit"),
        (r'"%d", Any{1}', "takes numbers, pointers and strings"),
        ('"' + "%d" * 14 + '"' + ", 1" * 14, "at most 13 arguments"),
    ],
)
def test_refused_by_the_compiler(make_module: Callable[..., ToolModule], call: str, message: str) -> None:
    hook = f"LUTHIER_HOOK_ANNOTATE say(uint32_t stored) {{ luthier::printf({call}); }}"
    with pytest.raises(LuthierError, match=message):
        make_module(f"#include <luthier/channel.h>\nstruct Any {{ int a; }};\n{hook}", "gfx90a")
