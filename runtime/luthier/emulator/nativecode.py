"""Loading the host object files that LLVM makes: sections in one block of memory, relocations, symbols.

LLVM's own JIT linker is not used: with many small objects it keeps one global offset table apart from all of them, and
costs more than reading the file. Objects are compiled position-independent, for the small code model, so only a few
kinds of relocation occur.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import mmap
import struct

from luthier.errors import DeviceError

_SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS = 2, 4, 8
_SHF_ALLOC, _SHF_EXEC = 2, 4
_R_64, _R_PC32, _R_PLT32, _R_PC64 = 1, 2, 4, 24
_STUB = b"\x48\xb8%s\xff\xe0"  # movabs rax, address; jmp rax
_STUB_SIZE = 16


@functools.cache
def _libraries() -> list[ctypes.CDLL]:
    name = ctypes.util.find_library("m")
    return [ctypes.CDLL(None), *([ctypes.CDLL(name)] if name else [])]


@functools.cache
def host_function(name: str) -> int:
    """Address of a C library function that compiled code calls.

    Raises:
        DeviceError: there is none.
    """
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise DeviceError(f"compiled code needs the C function {name}, which this host lacks")


class NativeCode:
    """One loaded object file; its memory lives as long as it does."""

    def __init__(self, data: bytes) -> None:
        self.symbols: dict[str, int] = {}
        """Host address of each function."""
        sections = self._sections(data)
        allocated = [index for index, section in enumerate(sections) if section[2] & _SHF_ALLOC]
        places: dict[int, int] = {}
        size = 0
        for index in allocated:
            align = max(sections[index][8], 1)
            size = (size + align - 1) // align * align
            places[index] = size
            size += sections[index][5]
        symtab = next((section for section in sections if section[1] == _SHT_SYMTAB), None)
        if symtab is None:
            raise DeviceError("the host compiler made an object without symbols")
        strings = sections[symtab[6]]
        names = data[strings[4] : strings[4] + strings[5]]
        symbols = list(struct.iter_unpack("<IBBHQQ", data[symtab[4] : symtab[4] + symtab[5]]))
        stubs_at = (size + 15) // 16 * 16
        undefined = {
            index: names[name : names.index(0, name)].decode()
            for index, (name, _, _, section, _, _) in enumerate(symbols)
            if section == 0 and index
        }
        total = stubs_at + _STUB_SIZE * len(undefined)
        self._memory = mmap.mmap(-1, max(total, 1), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for index in allocated:
            section = sections[index]
            if section[1] != _SHT_NOBITS:
                self._memory[places[index] : places[index] + section[5]] = data[section[4] : section[4] + section[5]]
        values: list[int] = []
        stub = stubs_at
        for index, (name, info, _, section, value, _) in enumerate(symbols):
            if index in undefined:
                target = host_function(undefined[index]) if undefined[index] != "_GLOBAL_OFFSET_TABLE_" else 0
                self._memory[stub : stub + 12] = _STUB.replace(b"%s", struct.pack("<Q", target))
                values.append(base + stub)
                stub += _STUB_SIZE
                continue
            address = base + places[section] + value if section in places else value
            values.append(address)
            if info & 15 == 2 and info >> 4 == 1:  # a global function
                self.symbols[names[name : names.index(0, name)].decode()] = address
        for section in sections:
            if section[1] == _SHT_RELA and section[7] in places:
                self._relocate(data[section[4] : section[4] + section[5]], places[section[7]], base, values)

    @staticmethod
    def _sections(data: bytes) -> list[tuple[int, ...]]:
        """Section headers: name, type, flags, address, offset, size, link, info, alignment, entry size."""
        if data[:4] != b"\x7fELF" or struct.unpack_from("<H", data, 18)[0] != 62:
            raise DeviceError("the emulator needs an x86-64 host with ELF objects")
        (offset,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        return [struct.unpack_from("<IIQQQQIIQQ", data, offset + index * size) for index in range(count)]

    def _relocate(self, table: bytes, place: int, base: int, values: list[int]) -> None:
        for offset, info, addend in struct.iter_unpack("<QQq", table):
            kind, value = info & 0xFFFFFFFF, values[info >> 32] + addend
            where = place + offset
            if kind in (_R_PC32, _R_PLT32):
                self._memory[where : where + 4] = struct.pack("<i", value - base - where)
            elif kind == _R_PC64:
                self._memory[where : where + 8] = struct.pack("<q", value - base - where)
            elif kind == _R_64:
                self._memory[where : where + 8] = struct.pack("<Q", value)
            else:
                raise DeviceError(f"relocation type {kind} in compiled code")
