"""Ways to declare what Python and native code both read: structures, layouts, messages."""

from __future__ import annotations

import functools
import re
import struct
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct
from msgspec.structs import astuple

if TYPE_CHECKING:
    import numpy as np


class Field(Struct, frozen=True):
    """Place of a field of a record, in bytes."""

    offset: int
    size: int


class Member(Struct, frozen=True):
    """A typed field of a structure."""

    name: str
    kind: str
    """``u`` or ``i``: an integer; ``S``: characters."""
    width: int
    """Bytes of one."""
    count: int | None
    """Number of elements; None: it is no array."""
    offset: int

    @property
    def size(self) -> int:
        """Return its bytes in all."""
        return self.width * (1 if self.count is None else self.count)


class Structure:
    """A structure of C whose fields leave no gaps between them (the C++ compiler checks it).

    Args:
        fields: names and types: ``u4``, ``i8``, ``S16`` (characters), ``u4[3]`` (an array).
    """

    def __init__(self, **fields: str) -> None:
        self.members: list[Member] = []
        at = 0
        for name, type in fields.items():
            match = re.fullmatch(r"([uiS])(\d+)(?:\[(\d+)\])?", type)
            assert match is not None, type
            count = None if match[3] is None else int(match[3])
            member = Member(name, match[1], int(match[2]), count, at)
            self.members.append(member)
            at += member.size
        self.size = at

    @functools.cached_property
    def dtype(self) -> np.dtype[np.void]:
        """Return NumPy's type of it."""
        import numpy as np

        formats: list[tuple[Any, ...]] = []
        for one in self.members:
            format = f"S{one.width}" if one.kind == "S" else f"<{one.kind}{one.width}"
            formats.append((one.name, format) if one.count is None else (one.name, format, one.count))
        return np.dtype(formats)


class Layout:
    """Unsigned fields at increasing offsets, each aligned to its size (at most 8 bytes). C++ reads them by their
    offsets, since compiled code does.

    Args:
        start: offset of the first one.
        fields: names and bytes.
    """

    def __init__(self, start: int = 0, **fields: int) -> None:
        self.fields: dict[str, Field] = {}
        position = start
        for name, size in fields.items():
            align = min(size, 8)
            position = (position + align - 1) // align * align
            self.fields[name] = Field(position, size)
            position += size
        self.size = (position + 63) // 64 * 64

    def __getitem__(self, name: str) -> int:
        return self.fields[name].offset

    def dtype(self, **arrays: tuple[str, int]) -> np.dtype[np.void]:
        """Return NumPy's type of it.

        Args:
            arrays: fields that have several elements: type and number of them.
        """
        import numpy as np

        return np.dtype(
            {
                "names": list(self.fields),
                "formats": [arrays.get(name, f"<u{field.size}") for name, field in self.fields.items()],
                "offsets": [field.offset for field in self.fields.values()],
                "itemsize": self.size,
            }
        )


class Message(Struct, frozen=True):
    """Numbers of 64 bits that a request or a reply has, in this order; byte strings follow.

    Fields of subclasses are of type `int` or `bool`.
    """

    @classmethod
    def field_names(cls) -> list[str]:
        """Return the names of its fields."""
        return list(cls.__struct_fields__)

    @classmethod
    def byte_size(cls) -> int:
        """Return its bytes."""
        return 8 * len(cls.field_names())

    def pack(self) -> bytes:
        """Return the message as it is sent."""
        return struct.pack(f"<{len(self.__struct_fields__)}Q", *astuple(self))

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Return the one that was sent as `data`, which has its `size`."""
        types = cls.__annotations__.values()
        values = struct.unpack(f"<{len(types)}Q", data)
        return cls(*(bool(one) if type == "bool" else one for type, one in zip(types, values, strict=True)))
