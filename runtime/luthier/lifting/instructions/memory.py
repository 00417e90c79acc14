"""Memory accesses of operations, by mnemonic: address space, kind and size.

Sources: the ISA documents, chapters on scalar memory, vector memory, flat and LDS operations; LLVM's mnemonics.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

from msgspec import Struct

from luthier.isa import InstructionFlag, Opcode

Space = Literal["global", "flat", "scratch", "buffer", "lds", "scalar", "scalar buffer", "image"]
"""Kind of address of an access.

*global*, *flat*: 64-bit addresses; *scratch*: byte offsets in a lane's private memory; *buffer*: an index and an offset
for a descriptor in SGPRs; *lds*: byte offsets in the work-group's LDS; *scalar*, *scalar buffer*: like global and
buffer, but one address per wave; *image*: coordinates.
"""
AccessKind = Literal["load", "store", "atomic"]


class MemoryAccess(Struct, frozen=True):
    """The memory access of an operation."""

    space: Space
    kind: AccessKind
    size: int | None
    """Bytes per lane, or per wave if it is scalar, at each address; None if a data format determines it."""
    count: int = 1
    """Number of addresses: 2 for LDS operations with two offsets."""
    scale: int = 1
    """Unit in bytes of each of two offsets."""
    unaddressable: str | None = None
    """Reason why its addresses cannot be computed; None if they can."""


_SPACES: dict[str, Space] = {
    "flat": "flat",
    "global": "global",
    "cluster": "global",
    "scratch": "scratch",
    "buffer": "buffer",
    "tbuffer": "buffer",
    "s": "scalar",
    "s_buffer": "scalar buffer",
    "s_scratch": "scalar",
}
_NAME = re.compile(rf"(?P<space>{'|'.join(_SPACES)})_(?P<kind>load|store|atomic)_(?P<rest>\w+)")
_ODD_SPACES = {
    "cluster": "it loads for several work-groups of a cluster",
    "s_scratch": "it accesses the scratch of the whole wave",
}
_WORDS = {
    **dict.fromkeys(("ubyte", "sbyte", "byte"), 1),
    **dict.fromkeys(("ushort", "sshort", "short"), 2),
    "dword": 4,
    "pk": 4,
    "x2": 8,
}
_BITS = re.compile(r"[buif](\d+)")
_DWORDS = re.compile(r"dwordx(\d+)")
_UNADDRESSABLE = {
    "addtid": "the lane's number is part of the address",
    "block": "M0 selects the dwords that it accesses",
    "ordered": "it runs in the order of waves",
    "src2": "it has a second address in LDS",
}
"""Word in a mnemonic -> reason."""
_TENSORS: dict[str, AccessKind] = {"tensor_load_to_lds": "load", "tensor_store_from_lds": "store"}
_TWO = re.compile(r"2st64|2addr_stride64|2addr|(?:read|write|wrxchg)2(?=_)")
"""Part of the mnemonic of an LDS operation with two offsets."""
_LDS_NOTHING = re.compile(r"ds_(?:permute|bpermute|swizzle|nop$|gws_|add_gs|sub_gs)")
"""LDS operations that do not access LDS."""
_LDS_ELSEWHERE = re.compile(r"ds_(?:append|consume|bvh_|ordered_count|atomic_)")


def _size(words: list[str]) -> int | None:
    """Return the bytes, by the last word of a mnemonic that determines them.

    Words after `tr` are ignored: they give the size of an element.
    """
    end = words.index("tr") if "tr" in words[1:] else len(words)
    for word in reversed(words[:end]):
        if word in _WORDS:
            return _WORDS[word]
        if dwords := _DWORDS.fullmatch(word):
            return 4 * int(dwords[1])
        if bits := _BITS.fullmatch(word):
            return int(bits[1]) // 8
    return None


@functools.lru_cache(maxsize=4096)
def memory_access(opcode: Opcode) -> MemoryAccess | None:
    """Return the memory access of an operation; None if it has none, such as operations on caches and prefetches."""
    name = re.sub(r"_e(?:32|64)$", "", opcode.mnemonic)
    if opcode.flags & InstructionFlag.IMAGE:
        return _image(name)
    if name.startswith("ds_"):
        return _lds(name)
    if name in _TENSORS:
        return MemoryAccess(
            "global", _TENSORS[name], None, unaddressable="a descriptor selects the part of a tensor that it copies"
        )
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    space, words = _SPACES[match["space"]], match["rest"].split("_")
    kind: AccessKind = match["kind"]  # type: ignore[assignment]
    reason = next((why for word, why in _UNADDRESSABLE.items() if word in words), None)
    reason = _ODD_SPACES.get(match["space"], reason)
    if "tr" in words and opcode.pseudo.endswith("_w64"):
        return MemoryAccess(space, kind, (_size(words) or 0) // 2, unaddressable=reason)
    if "format" in words:
        return MemoryAccess(space, kind, None, unaddressable=reason)
    if kind == "atomic":
        packed = "pk" in words
        return MemoryAccess(space, kind, 4 if packed else _size(words) or 4, unaddressable=reason)
    return MemoryAccess(space, kind, _size(words), unaddressable=reason)


def _image(name: str) -> MemoryAccess | None:
    if "get_" in name:
        return None
    kind: AccessKind = "atomic" if "atomic" in name else "store" if "store" in name else "load"
    return MemoryAccess("image", kind, None, unaddressable="images are addressed by coordinates")


def _lds(name: str) -> MemoryAccess | None:
    if _LDS_ELSEWHERE.match(name):
        return MemoryAccess("lds", "atomic", None, unaddressable="its address is not in one register")
    if _LDS_NOTHING.match(name):
        return None
    words = name.split("_")
    kind: AccessKind = "atomic"
    if name.startswith(("ds_read", "ds_load")):
        kind = "load"
    elif name.startswith(("ds_write", "ds_store")) and "xchg" not in name:
        kind = "store"
    size = 4 if "pk" in words else _size(words)
    reason = next((why for word, why in _UNADDRESSABLE.items() if word in words), None)
    two = _TWO.search(name)
    if two is None or size is None:
        return MemoryAccess("lds", kind, size, unaddressable=reason)
    return MemoryAccess("lds", kind, size, 2, size * (64 if "64" in two[0] else 1), reason)
