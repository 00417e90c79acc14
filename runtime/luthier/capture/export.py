"""A captured launch as a standalone HIP program: source, code object, memory.

The program allocates new memory, so addresses change. Pointer arguments are known. A word of memory that looks like an
address in the launch's memory may be a number: it is changed only on request.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from luthier.capture.against import Contents
from luthier.capture.form import PAGE, Capture, CapturedArgument
from luthier.errors import LuthierError
from luthier.objects import CodeObject, Symbol
from luthier.support.files import PRIVATE, make_private, write_atomically

ARGUMENTS, BEFORE, AFTER = range(3)
"""Locations of pointers."""
_WORD = 8
SOURCE = "launch.cpp"
COMPILE = f"hipcc -std=c++17 {SOURCE} -o launch"
_CMAKE = """\
cmake_minimum_required(VERSION 3.21)
project(launch LANGUAGES CXX)
find_package(hip REQUIRED)
add_executable(launch launch.cpp)
target_compile_features(launch PRIVATE cxx_std_17)
target_link_libraries(launch PRIVATE hip::host)
add_custom_command(TARGET launch POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy
  ${CMAKE_SOURCE_DIR}/kernel.hsaco ${CMAKE_SOURCE_DIR}/arguments.bin ${CMAKE_SOURCE_DIR}/before.bin
  ${CMAKE_SOURCE_DIR}/after.bin ${CMAKE_SOURCE_DIR}/relocations.bin $<TARGET_FILE_DIR:launch>)
"""


class ExportedBuffer(Struct, frozen=True):
    """Memory of the program: an allocation or a variable of the code object."""

    address: int
    """Recorded address."""
    size: int
    variable: str = ""


Piece = tuple[int, int, bytes]
"""Contents of a buffer: its number, the offset and the bytes."""


class Exported(Struct):
    """Parts of a launch whose memory may be at any address."""

    object: CodeObject
    groups: tuple[int, ...]
    """Work-groups in three dimensions."""
    buffers: list[ExportedBuffer] = field(default_factory=list)
    arguments: bytes = b""
    """Explicit arguments."""
    before: list[Piece] = field(default_factory=list)
    after: list[Piece] = field(default_factory=list)
    """Contents of the buffers before the launch, and changed contents after it."""
    relocations: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """Location (`ARGUMENTS` …), buffer and offset of each pointer, then target buffer and offset in it."""
    pointers: int = 0
    """Words in memory that were treated as addresses."""


def export_hip(capture: Capture, folder: str | os.PathLike[str], *, relocate: bool = False) -> Exported:
    """Write a HIP program that launches a captured kernel to a new or empty folder.

    Args:
        relocate: change words of memory that look like addresses of the launch's memory.

    Raises:
        LuthierError: the launch cannot be exported, or the program cannot be written.
    """
    made = exported(capture, relocate=relocate)
    parts = _files(capture, made)
    path = Path(folder)
    try:
        make_private(path)
        if any(path.iterdir()):
            raise LuthierError("the folder for the program is not empty: name a new or an empty one", object=str(path))
        for name, data in parts.items():
            write_atomically(path / name, data, PRIVATE)
    except OSError as problem:
        raise LuthierError(f"cannot write: {problem.strerror or problem}", object=str(path)) from None
    return made


def exported(capture: Capture, *, relocate: bool = False) -> Exported:
    """Return the parts of a captured launch, whose memory may then be at any address; arguments as for `export_hip`.

    Raises:
        LuthierError: the launch cannot be exported.
    """
    return _Export(capture, relocate=relocate).parts()


def _files(capture: Capture, made: Exported) -> dict[str, bytes]:
    """Return the files of the program by name."""
    return {
        SOURCE: (files("luthier.capture") / "assets" / SOURCE).read_bytes(),
        "launch.h": _header(capture, made).encode(),
        "CMakeLists.txt": _CMAKE.encode(),
        "kernel.hsaco": made.object.data,
        "arguments.bin": made.arguments,
        "before.bin": _packed(made.before),
        "after.bin": _packed(made.after),
        "relocations.bin": b"".join(struct.pack("<5Q", *row) for row in made.relocations),
    }


def _packed(pieces: Iterable[Piece]) -> bytes:
    return b"".join(struct.pack("<3Q", number, offset, len(data)) + data for number, offset, data in pieces)


def _header(capture: Capture, made: Exported) -> str:
    manifest = capture.manifest
    rows = [
        f"    {{{json.dumps(it.variable) if it.variable else 'nullptr'}, {it.size}}}, // was at {it.address:#x}"
        for it in made.buffers
    ]
    return "\n".join(
        (
            f"static const Buffer BUFFERS[{max(len(rows), 1)}] = {{",
            *rows,
            "};",
            f"#define BUFFER_COUNT {len(rows)}",
            f"#define KERNEL {json.dumps(manifest.kernel)}",
            f"#define GRID {', '.join(map(str, made.groups))}",
            f"#define BLOCK {', '.join(map(str, manifest.block))}",
            f"#define DYNAMIC_LDS {manifest.dynamic_lds}",
            f"#define TARGET {json.dumps(str(made.object.target))}",
            "",
        )
    )


class _Export:
    def __init__(self, capture: Capture, *, relocate: bool) -> None:
        self.capture, self.relocate = capture, relocate
        self.object = CodeObject(capture.object, capture.manifest.object)
        self._check()
        manifest = capture.manifest
        self.made = Exported(self.object, tuple(a // b for a, b in zip(manifest.grid, manifest.block, strict=True)))
        self._starts = np.array([address for address, _ in capture.manifest.ranges], np.uint64)
        self._ends = np.array([address + size for address, size in capture.manifest.ranges], np.uint64)

    def _check(self) -> None:
        """Check that a standalone program can run the launch.

        Raises:
            LuthierError: it cannot.
        """
        manifest = self.capture.manifest
        kernel = self.object.kernels.get(manifest.kernel)
        if kernel is None:
            raise LuthierError("the capture's code object does not have the kernel", kernel=manifest.kernel)
        for refused, why in (
            (manifest.groups, "it runs only some work-groups: export the original capture"),
            (manifest.cooperative, "it is a cooperative launch"),
            (
                any(whole % size for whole, size in zip(manifest.grid, manifest.block, strict=True)),
                f"its {manifest.grid} work-items are not a multiple of its work-groups of {manifest.block}",
            ),
        ):
            if refused:
                raise LuthierError(f"the launch cannot be exported: {why}", kernel=manifest.kernel)

    def parts(self) -> Exported:
        """Return the parts."""
        made = self.made
        made.arguments = self._arguments()
        for symbol in self._changed_variables():
            self._buffer_at(self._place(symbol))
        done = 0
        while done < len(made.buffers):  # pointers in memory may add buffers
            made.before += self._pieces(BEFORE, done)
            made.after += self._pieces(AFTER, done)
            done += 1
        return made

    def _arguments(self) -> bytes:
        """Return the explicit arguments, and note their pointers."""
        explicit = [one for one in self.capture.manifest.arguments if not one.kind.startswith("hidden_")]
        segment = bytearray(max((one.offset + one.size for one in explicit), default=0))
        for number, argument in enumerate(explicit):
            raw = bytes.fromhex(argument.value)
            segment[argument.offset : argument.offset + argument.size] = raw
            self._argument(number, argument, raw)
        return bytes(segment)

    def _argument(self, number: int, argument: CapturedArgument, raw: bytes) -> None:
        whole = len(raw) // _WORD * _WORD
        for at, address in self._addresses(np.frombuffer(raw[:whole], np.uint64)):
            pointer = argument.kind == "global_buffer"
            where = f"argument {number} ({argument.name or argument.type or argument.kind})"
            self._note(ARGUMENTS, 0, argument.offset + at, address, "" if pointer else where)

    def _addresses(self, words: NDArray[np.uint64]) -> Iterator[tuple[int, int]]:
        """Yield byte offset and value of the words that are addresses in the launch's memory."""
        if not len(self._starts):
            return
        inside = np.searchsorted(self._starts, words, side="right").astype(np.int64) - 1
        for at in np.flatnonzero((inside >= 0) & (words < self._ends[inside])).tolist():
            yield at * _WORD, int(words[at])

    def _note(self, where: int, buffer: int, offset: int, address: int, doubtful: str) -> None:
        """Note a pointer.

        Args:
            doubtful: description of a word that may be a number; empty: the word is a pointer.

        Raises:
            LuthierError: the word may be a number and `relocate` is off, or its target cannot be exported.
        """
        if doubtful and not self.relocate:
            raise LuthierError(
                f"the launch cannot be exported: {doubtful} looks like a pointer, {address:#x}; --relocate "
                "changes all such words",
                kernel=self.capture.manifest.kernel,
            )
        target = self._buffer_at(address)
        self.made.pointers += bool(doubtful)
        self.made.relocations.append((where, buffer, offset, target, address - self.made.buffers[target].address))

    def _buffer_at(self, address: int) -> int:
        """Return the number of the buffer that contains an address.

        Raises:
            LuthierError: it is in the code object, but not in a variable that HIP can find.
        """
        for number, buffer in enumerate(self.made.buffers):
            if buffer.address <= address < buffer.address + buffer.size:
                return number
        self.made.buffers.append(self._new_buffer(address))
        return len(self.made.buffers) - 1

    def _new_buffer(self, address: int) -> ExportedBuffer:
        manifest = self.capture.manifest
        virtual = address - manifest.load_address
        if any(one.vaddr <= virtual < one.vaddr + one.memsz for one in self.object.segments):
            for symbol in self.object.symbols:
                if symbol.address <= virtual < symbol.address + symbol.size and self._can_be_found(symbol):
                    return ExportedBuffer(self._place(symbol), symbol.size, symbol.name)
            raise LuthierError(
                f"the launch cannot be exported: {address:#x} is in the code object, but not in a variable that HIP "
                "can find",
                kernel=manifest.kernel,
            )
        return ExportedBuffer(*next(one for one in manifest.ranges if one[0] <= address < sum(one)))

    @staticmethod
    def _can_be_found(symbol: Symbol) -> bool:
        return symbol.type == "object" and symbol.dynamic and symbol.defined and not symbol.name.endswith(".kd")

    def _place(self, symbol: Symbol) -> int:
        return symbol.address + self.capture.manifest.load_address

    def _changed_variables(self) -> Iterator[Symbol]:
        """Yield the variables that changed since they were loaded, or that the launch changes.

        Raises:
            LuthierError: HIP cannot find one of them.
        """
        before, after = Contents(self.capture, after=False), Contents(self.capture)
        gone = self.capture.manifest.left_out
        for symbol in self.object.symbols:
            if symbol.type != "object" or not symbol.defined or not symbol.size or symbol.name.endswith(".kd"):
                continue
            begin = self._place(symbol)
            if any(at < begin + symbol.size and begin < at + size for at, size in gone):
                continue  # nothing accessed it
            if any(symbol.address <= one.offset < symbol.address + symbol.size for one in self.object.relocations):
                continue  # the loader fills it
            now, initial = before.read(begin, symbol.size), self.object.read(symbol.address, symbol.size)
            if self.object.symbol(f"{symbol.name}.managed") is not None:
                raise LuthierError(
                    f"the launch cannot be exported: it may access the managed variable {symbol.name}",
                    kernel=self.capture.manifest.kernel,
                )
            if now.tobytes() == initial and np.array_equal(now, after.read(begin, symbol.size)):
                continue
            if not self._can_be_found(symbol):
                raise LuthierError(
                    f"the launch cannot be exported: HIP cannot find the changed variable {symbol.name}",
                    kernel=self.capture.manifest.kernel,
                )
            yield symbol

    def _pieces(self, where: int, number: int) -> Iterator[Piece]:
        """Yield the recorded contents of a buffer, and note pointers in them."""
        buffer = self.made.buffers[number]
        places = self.capture.before if where == BEFORE else self.capture.after
        for address, page in zip(places["address"].tolist(), places["page"].tolist(), strict=True):
            begin, end = max(address, buffer.address), min(address + PAGE, buffer.address + buffer.size)
            if begin >= end:
                continue
            data = self.capture.pages[page][begin - address : end - address]
            yield number, begin - buffer.address, data.tobytes()
            skip = -begin % _WORD
            words = np.frombuffer(data[skip:].tobytes()[: (len(data) - skip) // _WORD * _WORD], np.uint64)
            for at, value in self._addresses(words):
                place = begin + skip + at
                name = buffer.variable or f"the {buffer.size} bytes at {buffer.address:#x}"
                word = f"a word {place - buffer.address} bytes into {name}"
                self._note(where, number, place - buffer.address, value, word)
