"""Linking of LLVM's host object files to images that can be kept and loaded at any address.

LLVM's JIT linker is not used: with many small objects it keeps one global offset table apart from all of them, and
costs more than reading the file. Objects are position-independent code for the small code model, so only a few kinds
of relocation occur, and most are resolved when the sections are joined to one block.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import struct
from collections.abc import Iterator
from typing import Any, Protocol

from luthier.errors import DeviceError

_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS = 2, 4, 8
_SHF_ALLOC = 2
_R_64, _R_PC32, _R_PLT32, _R_PC64 = 1, 2, 4, 24
_STUB = b"\x48\xb8\0\0\0\0\0\0\0\0\xff\xe0"  # movabs rax, address; jmp rax
_STUB_SIZE, _STUB_ADDRESS = 16, 2
_INDIRECT = b"\x48\xa1"  # movabs rax, [address]: in place of the stub's first two bytes


def _libraries() -> Iterator[ctypes.CDLL]:
    yield ctypes.CDLL(None)
    yield ctypes.CDLL("libm.so.6")


@functools.cache
def host_function(name: str) -> int:
    """Return the address of a C library function that compiled code calls.

    Raises:
        DeviceError: the host has no such function.
    """
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise DeviceError(f"compiled code needs the C function {name}, which this host lacks")


class CodeSpace(Protocol):
    """Memory for machine code that other processes execute at the same addresses."""

    def code(self, size: int) -> tuple[memoryview, int]:
        """Return memory for `size` bytes, aligned to 64, and its address."""

    def import_slot(self, name: str) -> int:
        """Return the address of a pointer that each process sets to its own C function `name`."""


class NativeCode:
    """Loaded image; its memory lives as long as this object.

    Args:
        space: where to load it; None: into this process.

    Raises:
        DeviceError: the image calls a C function that this host lacks.
    """

    def __init__(self, image: bytes, space: CodeSpace | None = None) -> None:
        header, _, contents = image.partition(b"\n")
        description = json.loads(header)
        if space is None:
            # Empty if every operation of the batch was refused during code generation.
            mapped = mmap.mmap(-1, max(len(contents), 1), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            self._memory, base = memoryview(mapped), ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        else:
            self._memory, base = space.code(len(contents))
        self._memory[: len(contents)] = contents
        for name, place in description["calls"].items():
            if space is not None:
                self._memory[place - _STUB_ADDRESS : place] = _INDIRECT
            address = host_function(name) if space is None else space.import_slot(name)
            struct.pack_into("<Q", self._memory, place, address)
        for place, value in description["pointers"]:
            struct.pack_into("<Q", self._memory, place, base + value)
        self.symbols: dict[str, int] = {name: base + place for name, place in description["functions"].items()}
        """Host address of each function."""


def _header(image: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(image[: image.index(b"\n")])
    return header


def called_by(image: bytes) -> list[str]:
    """Return the names of the C functions that an image's code calls."""
    return list(_header(image)["calls"])


def functions_of(image: bytes) -> list[str]:
    """Return the names of an image's functions."""
    return list(_header(image)["functions"])


def link(data: bytes) -> bytes:
    """Return the image of an object file.

    An image is a line of JSON and then the contents. The JSON lists the offsets of functions, the offsets that hold
    the address of a C function, and the offsets that hold an address in the image.

    Raises:
        DeviceError: `data` is not an x86-64 ELF object, or has an unknown type of relocation.
    """
    return _Linker(data).image()


class _Linker:
    def __init__(self, data: bytes) -> None:
        sections = self._sections(data)
        symtab = next((section for section in sections if section[1] == _SHT_SYMTAB), None)
        if symtab is None:
            raise DeviceError("the compiled object has no symbol table")
        places: dict[int, int] = {}
        size = 0
        for index, section in enumerate(sections):
            if section[2] & _SHF_ALLOC:
                align = max(section[8], 1)
                size = (size + align - 1) // align * align
                places[index] = size
                size += section[5]
        self.contents = bytearray((size + 15) // 16 * 16)
        for index, place in places.items():
            section = sections[index]
            if section[1] != _SHT_NOBITS:
                self.contents[place : place + section[5]] = data[section[4] : section[4] + section[5]]
        self.calls: dict[str, int] = {}
        self.functions: dict[str, int] = {}
        self.pointers: list[tuple[int, int]] = []
        strings = sections[symtab[6]]
        names = data[strings[4] : strings[4] + strings[5]]
        values: list[int | None] = []
        for name_at, info, _, section_index, value, _ in struct.iter_unpack(
            "<IBBHQQ", data[symtab[4] : symtab[4] + symtab[5]]
        ):
            name = names[name_at : names.index(0, name_at)].decode()
            values.append(self._value(name, info, section_index, value, places))
        for section in sections:
            if section[1] == _SHT_RELA and section[7] in places:
                self._relocate(data[section[4] : section[4] + section[5]], places[section[7]], values)

    def image(self) -> bytes:
        header = {"functions": self.functions, "calls": self.calls, "pointers": self.pointers}
        return json.dumps(header).encode() + b"\n" + self.contents

    def _value(self, name: str, info: int, section: int, value: int, places: dict[int, int]) -> int | None:
        """Return the offset of a symbol in the image; None if relocations may not refer to it."""
        if section in places:
            place = places[section] + value
            if info & 15 == 2 and info >> 4 == 1:  # a global function
                self.functions[name] = place
            return place
        if section or not name or name == "_GLOBAL_OFFSET_TABLE_":
            return None
        if name not in self.calls:
            self.calls[name] = len(self.contents) + _STUB_ADDRESS
            self.contents += _STUB.ljust(_STUB_SIZE, b"\0")
        return self.calls[name] - _STUB_ADDRESS

    @staticmethod
    def _sections(data: bytes) -> list[tuple[int, ...]]:
        """Return the section headers: name, type, flags, address, offset, size, link, info, alignment, entry size."""
        if data[:4] != b"\x7fELF" or struct.unpack_from("<H", data, 18)[0] != 62:
            raise DeviceError("the emulator needs an x86-64 host with ELF objects")
        (offset,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        return [struct.unpack_from("<IIQQQQIIQQ", data, offset + index * size) for index in range(count)]

    def _relocate(self, table: bytes, section: int, values: list[int | None]) -> None:
        for offset, info, addend in struct.iter_unpack("<QQq", table):
            kind, symbol, place = info & 0xFFFFFFFF, values[info >> 32], section + offset
            if symbol is None or kind not in (_R_64, _R_PC32, _R_PLT32, _R_PC64):
                raise DeviceError(f"unsupported relocation type {kind} in compiled code")
            value = symbol + addend
            if kind == _R_64:
                self.pointers.append((place, value))
            elif kind == _R_PC64:
                struct.pack_into("<q", self.contents, place, value - place)
            else:
                struct.pack_into("<i", self.contents, place, value - place)
