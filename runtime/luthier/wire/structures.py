"""Declarations that Python and native code share: structures, layouts, messages."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, get_type_hints

from msgspec import MsgspecError, Struct, msgpack
from msgspec.structs import astuple

from luthier.errors import LuthierError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class StructureField(Struct, frozen=True):
    """Place of a field of a record, in bytes."""

    offset: int
    size: int


class Member(Struct, frozen=True):
    """A typed field of a structure."""

    name: str
    kind: str
    """``u`` or ``i``: an integer; ``S``: characters."""
    width: int
    """Bytes of an element."""
    count: int | None
    """Number of elements; None: not an array."""
    offset: int

    @property
    def size(self) -> int:
        """Return its total size in bytes."""
        return self.width * (1 if self.count is None else self.count)


class WireStructure:
    """A C structure without padding between its fields, which the C++ compiler checks.

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
        """Return the NumPy type."""
        import numpy as np

        formats: list[tuple[Any, ...]] = []
        for member in self.members:
            format = f"S{member.width}" if member.kind == "S" else f"<{member.kind}{member.width}"
            formats.append((member.name, format) if member.count is None else (member.name, format, member.count))
        return np.dtype(formats)


class FieldLayout:
    """Unsigned fields at increasing offsets, each aligned to its size (at most 8 bytes). C++ reads them by offset, as
    compiled code does.

    Args:
        start: offset of the first field.
        fields: names and sizes in bytes.
    """

    def __init__(self, start: int = 0, **fields: int) -> None:
        self.fields: dict[str, StructureField] = {}
        position = start
        for name, size in fields.items():
            align = min(size, 8)
            position = (position + align - 1) // align * align
            self.fields[name] = StructureField(position, size)
            position += size
        self.size = (position + 63) // 64 * 64

    def __getitem__(self, name: str) -> int:
        return self.fields[name].offset

    def dtype(self, **arrays: tuple[str, int]) -> np.dtype[np.void]:
        """Return the NumPy type.

        Args:
            arrays: fields with several elements: type and number.
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


class ProtocolError(LuthierError):
    """A malformed message."""


class File(int):
    """Descriptor of an open file, sent beside a message, which contains its index.

    The receiver of a request closes its files after the reply.
    """


class ForeignText(bytes):
    """Bytes of a text from a program; `str` decodes it, with U+FFFD for invalid UTF-8."""

    def __str__(self) -> str:
        return self.decode(errors="replace")


class PathText(bytes):
    """Bytes of a path or symbol; `str` decodes it like `os.fsdecode`."""

    def __str__(self) -> str:
        return os.fsdecode(bytes(self))


class Message(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A request, a reply, or a part of them, sent as MessagePack (https://msgpack.org): an array of its fields.

    Fields are of type `int`, `bool`, `str`, `bytes`, `File`, `ForeignText`, `PathText`, another message, or a tuple of
    any number of one of these; ``Annotated[bytes, Row]`` is rows of a message of numbers, with the layout of C++.
    """

    REQUEST: ClassVar[int] = 0
    """Number of a request."""
    REPLY: ClassVar[type] = NoneType
    """Type of its reply."""

    def __post_init__(self) -> None:
        """Check that its numbers are not negative.

        Raises:
            ValueError: a number is negative.
        """
        for value in astuple(self):
            for number in value if value.__class__ is tuple else (value,):
                if number.__class__ is int and number < 0:
                    raise ValueError(f"{number} is not an unsigned number")

    @classmethod
    def types(cls) -> dict[str, Any]:
        """Return the types of its fields."""
        hints = get_type_hints(cls, include_extras=True)
        return {name: hints[name] for name in cls.__struct_fields__}

    @classmethod
    @functools.cache
    def dtype(cls) -> np.dtype[np.void]:
        """Return the NumPy type of a message of numbers."""
        import numpy as np

        return np.dtype([(name, "?" if type is bool else "<u8") for name, type in cls.types().items()], align=True)

    @classmethod
    def read_rows(cls, data: bytes) -> NDArray[np.void]:
        """Return consecutive messages of numbers in memory.

        Raises:
            ProtocolError: the last one is incomplete.
        """
        import numpy as np

        if len(data) % cls.dtype().itemsize:
            raise ProtocolError(f"{len(data)} bytes are not rows of {cls.dtype().itemsize} bytes")
        return np.frombuffer(data, cls.dtype())

    @classmethod
    def unpack(cls, data: bytes, files: Sequence[int] = ()) -> Self:
        """Decode the message that was sent as `data`, with file descriptors beside it.

        Raises:
            ProtocolError: it is malformed.
        """
        left = list(files)
        try:
            message = (_files_decoder(cls, left) if files else _decoder(cls)).decode(data)
        except (MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise ProtocolError(f"a message is malformed: {problem}") from None
        if left:
            raise ProtocolError("a message was sent with files that do not belong to it")
        assert isinstance(message, cls)
        return message


def pack(value: object) -> tuple[bytes, list[int]]:
    """Encode a message, or a tuple with messages; return it and the descriptors of its files."""
    files: list[int] = []

    def encode(value: object) -> object:
        if isinstance(value, File):
            files.append(int(value))
            return len(files) - 1
        assert isinstance(value, (ForeignText, PathText)), value
        return bytes(value)

    return msgpack.encode(value, enc_hook=encode), files


Requested = TypeVar("Requested", bound=Message)
_requests: dict[int, str] = {}
"""Names of requests by number."""


def request(number: int, reply: type = NoneType) -> Callable[[type[Requested]], type[Requested]]:
    """Return a decorator that declares a message as a request.

    Args:
        number: number of the request.
        reply: type of the reply: a message, or one of the types of their fields.

    Raises:
        ValueError: another request has the number.
    """

    def decorate(declared: type[Requested]) -> type[Requested]:
        name = f"{declared.__module__}.{declared.__qualname__}"
        if _requests.setdefault(number, name) != name:
            raise ValueError(f"{name} has the number {number}, which {_requests[number]} has: choose a free one")
        declared.REQUEST, declared.REPLY = number, reply
        return declared

    return decorate


def _decode(type: type, value: Any, files: list[int]) -> object:
    """Decode a value of a type that MessagePack does not have."""
    if type is File:
        if value != 0 or not files:
            raise ProtocolError("a message was sent without its file")
        return File(files.pop())
    if not isinstance(value, bytes):
        raise ProtocolError("a message is malformed: a text is not bytes")
    return type(value)


def _files_decoder(declared: type[Message], files: list[int]) -> msgpack.Decoder[Message]:
    return msgpack.Decoder(declared, dec_hook=lambda type, value: _decode(type, value, files))


@functools.cache
def _decoder(declared: type[Message]) -> msgpack.Decoder[Message]:
    return _files_decoder(declared, [])
