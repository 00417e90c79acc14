"""Kernel metadata: the MessagePack map of the NT_AMDGPU_METADATA note, and the kernel arguments it describes.

The map is kept whole, in order, with unknown keys; versions 3 to 6 differ in keys and hidden arguments only.

Source: LLVM AMDGPUUsage "Code Object V3 Metadata" to "Code Object V6 Metadata".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgpack

from luthier.errors import ObjectError

NT_AMDGPU_METADATA = 32
NOTE_OWNER = "AMDGPU"

Metadata = dict[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True)
class KernelArgument:
    """One argument of a kernel, hidden ones included. Missing entries are "" or 0."""

    name: str
    offset: int
    """Bytes from the start of the kernarg segment."""
    size: int
    """Bytes."""
    value_kind: str
    """``by_value``, ``global_buffer``, ``dynamic_shared_pointer``, ``image``, …, or ``hidden_…``."""
    type_name: str = ""
    address_space: str = ""
    access: str = ""
    actual_access: str = ""
    pointee_align: int = 0
    """Bytes, of a ``dynamic_shared_pointer``."""
    is_const: bool = False
    is_restrict: bool = False
    is_volatile: bool = False
    is_pipe: bool = False

    @property
    def hidden(self) -> bool:
        """The runtime fills it in, not the caller."""
        return self.value_kind.startswith("hidden_")


def decode_metadata(data: bytes, *, object: str, offset: int) -> Metadata:
    """Decode the note's description.

    Raises:
        ObjectError: not one well-formed MessagePack map with string keys.
    """
    try:
        unpacker = msgpack.Unpacker(raw=False, strict_map_key=True, max_buffer_size=max(len(data), 1))
        unpacker.feed(data)
        metadata = unpacker.unpack()
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as problem:
        reason = str(problem) or type(problem).__name__
        raise ObjectError(f"malformed kernel metadata: {reason}", object=object, offset=offset) from None
    if not isinstance(metadata, dict) or not all(isinstance(key, str) for key in metadata):
        raise ObjectError("kernel metadata is not a map with string keys", object=object, offset=offset)
    return metadata


def encode_metadata(metadata: Metadata) -> bytes:
    """The inverse of `decode_metadata`.

    Raises:
        ObjectError: something in it has no MessagePack form.
    """
    try:
        packed: bytes = msgpack.packb(metadata)
    except (ValueError, TypeError, OverflowError) as problem:
        raise ObjectError(f"kernel metadata cannot be encoded: {problem}") from None
    return packed


def entry(table: Metadata, key: str, kind: type[_T], default: _T, *, object: str, kernel: str | None = None) -> _T:
    """`table[key]`, or `default` where it is missing.

    Raises:
        ObjectError: the value is of another type, or a negative or over-long integer.
    """
    value: Any = table.get(key, default)
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if not right or (isinstance(value, int) and not 0 <= value < 1 << 32):
        raise ObjectError(f"metadata entry {key} is not a valid {kind.__name__}", object=object, kernel=kernel)
    return cast(_T, value)


def maps(table: Metadata, key: str, *, object: str, kernel: str | None = None) -> list[Metadata]:
    """The list of maps at `key`, empty where it is missing."""
    rows = entry(table, key, list, [], object=object, kernel=kernel)
    if not all(isinstance(row, dict) for row in rows):
        raise ObjectError(f"metadata entry {key} is not a list of maps", object=object, kernel=kernel)
    return rows


def arguments_of(kernel: Metadata, *, object: str, name: str) -> tuple[KernelArgument, ...]:
    """The arguments a kernel's metadata entry lists."""

    def read(row: Metadata) -> KernelArgument:
        def get(key: str, kind: type[_T], default: _T) -> _T:
            return entry(row, key, kind, default, object=object, kernel=name)

        return KernelArgument(
            name=get(".name", str, ""),
            offset=get(".offset", int, 0),
            size=get(".size", int, 0),
            value_kind=get(".value_kind", str, ""),
            type_name=get(".type_name", str, ""),
            address_space=get(".address_space", str, ""),
            access=get(".access", str, ""),
            actual_access=get(".actual_access", str, ""),
            pointee_align=get(".pointee_align", int, 0),
            is_const=get(".is_const", bool, False),
            is_restrict=get(".is_restrict", bool, False),
            is_volatile=get(".is_volatile", bool, False),
            is_pipe=get(".is_pipe", bool, False),
        )

    return tuple(read(row) for row in maps(kernel, ".args", object=object, kernel=name))
