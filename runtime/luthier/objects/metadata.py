"""Kernel metadata: the MessagePack map of the NT_AMDGPU_METADATA note, and the kernel arguments it describes.

The map is kept complete and in order, with unknown keys; versions 3 to 6 differ in keys and hidden arguments.

Source: LLVM AMDGPUUsage "Code Object V3 Metadata" to "Code Object V6 Metadata".
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar, cast

import msgpack
from msgspec import Struct

from luthier.errors import ObjectError

NT_AMDGPU_METADATA = 32
NOTE_OWNER = "AMDGPU"

Metadata = dict[str, Any]
KERNELS = "amdhsa.kernels"
SAME_IN_BOTH = {
    ".group_segment_fixed_size": "group_segment_fixed_size",
    ".private_segment_fixed_size": "private_segment_fixed_size",
    ".wavefront_size": "wave_size",
}
"""Entry of a kernel's metadata -> attribute of its descriptor that it duplicates."""
_NO_ARGUMENTS = b"\x90"
"""An empty list, packed."""
_LONG = 1 << 16
"""Lists of arguments with more bytes are not cached, since they are malicious."""
_T = TypeVar("_T")


class KernelArgument(Struct, frozen=True):
    """One argument of a kernel, also hidden ones. Missing entries are "" or 0; those without a default always exist,
    except for the name."""

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
        """Return whether the runtime sets it, not the caller."""
        return self.value_kind.startswith("hidden_")


class DescribedKernel(NamedTuple):
    """One entry of ``amdhsa.kernels``."""

    row: Metadata
    """The entry. Kernels may share a list of arguments."""
    arguments: tuple[KernelArgument, ...]


def decode_metadata(data: bytes | memoryview, *, object: str, offset: int) -> Metadata:
    """Decode the note's description.

    Raises:
        ObjectError: it is not a well-formed MessagePack map with string keys.
    """
    with _malformed(object, offset):
        metadata = _unpacker(data).unpack()
        if not isinstance(metadata, dict) or not all(isinstance(key, str) for key in metadata):
            raise ValueError("not a map with string keys")
    return cast(Metadata, metadata)


def decode_kernels(data: bytes | memoryview, *, object: str, offset: int) -> list[DescribedKernel]:
    """Return the kernels in the note's description, and check all of it.

    This is much faster than `decode_metadata` for many kernels: lists of arguments, which are most of the metadata and
    differ little, are unpacked once.

    Raises:
        ObjectError: it is not well-formed, or an entry of an argument has a wrong type.
    """
    kernels: list[DescribedKernel] = []
    with _malformed(object, offset):
        unpacker = _unpacker(data)
        for _ in range(unpacker.read_map_header()):
            key = unpacker.unpack()
            if not isinstance(key, str):
                raise ValueError("not a map with string keys")
            if key == KERNELS:
                kernels = [_kernel(unpacker, data) for _ in range(unpacker.read_array_header())]
            else:
                unpacker.unpack()
    return kernels


def _unpacker(data: bytes | memoryview) -> Any:
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=True, max_buffer_size=max(len(data), 1))
    unpacker.feed(data)
    return unpacker


@contextlib.contextmanager
def _malformed(object: str, offset: int) -> Iterator[None]:
    """Add the location to every decoding error."""
    try:
        yield
    except ObjectError as problem:
        problem.object = object
        raise
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as problem:
        reason = str(problem) or type(problem).__name__
        raise ObjectError(f"malformed kernel metadata: {reason}", object=object, offset=offset) from None


def _kernel(unpacker: Any, data: bytes | memoryview) -> DescribedKernel:
    row: Metadata = {}
    packed = _NO_ARGUMENTS
    unpack = unpacker.unpack
    for _ in range(unpacker.read_map_header()):
        key = unpack()
        if key == ".args":
            start = unpacker.tell()
            unpacker.skip()
            packed = bytes(data[start : unpacker.tell()])
            row[key] = None
        elif type(key) is str:
            row[key] = unpack()
        else:
            raise ValueError("not a map with string keys")
    unpack_arguments = _unpack_arguments if len(packed) < _LONG else _unpack_arguments.__wrapped__
    try:
        rows, arguments = unpack_arguments(packed)
    except ObjectError as problem:
        problem.kernel = str(row.get(".name", ""))
        raise
    if ".args" in row:
        row[".args"] = rows
    return DescribedKernel(row, arguments)


def encode_metadata(metadata: Metadata) -> bytes:
    """Encode metadata: the inverse of `decode_metadata`.

    Raises:
        ObjectError: a value has no MessagePack form.
    """
    try:
        packed: bytes = msgpack.packb(metadata)
    except (ValueError, TypeError, OverflowError) as problem:
        raise ObjectError(f"kernel metadata cannot be encoded: {problem}") from None
    return packed


def entry(table: Metadata, key: str, kind: type[_T], default: _T, *, object: str, kernel: str | None = None) -> _T:
    """Return `table[key]`, or `default` if it is missing.

    Raises:
        ObjectError: the value has another type, or is a negative or too large integer.
    """
    value: Any = table.get(key, default)
    too_large = isinstance(value, int) and not 0 <= value < 1 << 32
    if type(value) is not kind or too_large:  # a bool is not an int
        raise ObjectError(f"metadata entry {key} is not a valid {kind.__name__}", object=object, kernel=kernel)
    return value


def are_sizes(value: object) -> bool:
    """Return whether an entry is a list of three sizes."""
    return (
        isinstance(value, list) and len(value) == 3 and all(type(size) is int and 0 <= size < 1 << 32 for size in value)
    )


def check_shapes(row: Metadata, *, object: str, kernel: str) -> None:
    """Check that the entries of a kernel that are not numbers have the right form.

    Raises:
        ObjectError: one does not.
    """
    sizes = row.get(".reqd_workgroup_size")
    if sizes is not None and not are_sizes(sizes):
        raise ObjectError(
            "metadata entry .reqd_workgroup_size is not a valid list of three sizes", object=object, kernel=kernel
        )
    entry(row, ".uses_dynamic_stack", bool, False, object=object, kernel=kernel)


def numbers(table: Metadata, defaults: dict[str, int], *, object: str, kernel: str) -> list[int]:
    """Return several integers like `entry`."""
    values = [table.get(key, default) for key, default in defaults.items()]
    for value in values:
        if type(value) is not int or not 0 <= value < 1 << 32:
            return [entry(table, key, int, default, object=object, kernel=kernel) for key, default in defaults.items()]
    return values


@functools.lru_cache(maxsize=1024)
def _unpack_arguments(packed: bytes) -> tuple[list[Metadata], tuple[KernelArgument, ...]]:
    """Unpack a kernel's list of arguments.

    Cached, since libraries have tens of thousands of kernels and a few hundred different lists.
    """
    rows = _unpacker(packed).unpack()
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ObjectError("metadata entry .args is not a list of maps")
    return rows, tuple(map(_argument, rows))


def _argument(row: Metadata) -> KernelArgument:
    def get(key: str, kind: type[_T], default: _T) -> _T:
        return entry(row, key, kind, default, object="")

    for key in (".offset", ".size", ".value_kind"):
        if key not in row:
            raise ObjectError(f"metadata lacks the entry {key} of an argument")
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
