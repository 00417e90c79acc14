"""`FileSlice`: a part of a file or of memory, read within its bounds.

Files are mapped, not read: a host library of a gigabyte is mostly code that nobody looks at.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from luthier.errors import ObjectError

_LARGEST_STREAM = 1 << 28
"""Bytes that are read from what cannot be mapped, as a pipe or a device."""
_FIRST_WINDOW = 1 << 12
_WINDOW = 1 << 18
"""Bytes that a search copies and lets go at a time; what is looked for is mostly near."""


class FileSlice(NamedTuple):
    """The bytes [start, end) of `root`, and what to call them. Offsets count from `start`."""

    root: bytes | bytearray | mmap.mmap
    name: str
    start: int
    end: int
    depth: int = 0
    """Containers around it."""
    unpacked: bool = False
    """It came out of a compressed container."""
    path: str = ""
    """Path of the file that it is in; "" of bytes in memory."""

    @staticmethod
    def of_file(path: str | os.PathLike[str], name: str) -> FileSlice:
        """Return a file, mapped; read where it cannot be mapped, as from a pipe.

        Raises:
            ObjectError: it cannot be read, or cannot be mapped and is too long.
        """
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                if stat.S_ISREG(status.st_mode) and status.st_size:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    return FileSlice(mapped, name, 0, len(mapped), path=os.fspath(path))
                data = file.read(_LARGEST_STREAM + 1)
                if len(data) > _LARGEST_STREAM:
                    raise ObjectError(f"no regular file, and gives more than {_LARGEST_STREAM} bytes", object=name)
                return FileSlice.of_bytes(data, name)
        except (OSError, ValueError) as problem:  # ValueError: a path with a null character
            reason = getattr(problem, "strerror", None) or problem
            raise ObjectError(f"cannot read: {reason}", object=name) from problem

    @staticmethod
    def of_bytes(data: bytes | bytearray, name: str) -> FileSlice:
        """Return bytes in memory as a place."""
        return FileSlice(data, name, 0, len(data))

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return self.end - self.start

    @property
    def view(self) -> memoryview:
        """Return the bytes in place; a reference to the view keeps the mapping."""
        return memoryview(self.root)[self.start : self.end].toreadonly()

    def fail(self, message: str, offset: int) -> NoReturn:
        """Raise the error that what is here is malformed.

        Args:
            offset: from its beginning.

        Raises:
            ObjectError: always.
        """
        raise ObjectError(message, object=self.name, offset=offset)

    def begins(self, *magics: bytes) -> bool:
        """Return whether it begins with one of these."""
        return any(self.peek(0, len(magic)) == magic for magic in magics)

    def peek(self, offset: int, size: int) -> bytes:
        """Return `size` bytes, or those that there are."""
        return bytes(self.root[self.start + offset : min(self.start + offset + size, self.end)])

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Return bytes at an offset; `what` names them in the error that some are missing."""
        return self.cut(offset, size, what).peek(0, size)

    def unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[int, ...]:
        """Return fields at an offset; `what` as of `read`."""
        if offset + layout.size > self.size:
            self.fail(f"{what} reaches past the end", offset)
        return layout.unpack_from(self.root, self.start + offset)

    def cut(self, offset: int, size: int, what: str) -> FileSlice:
        """Return a part of this place with the same name."""
        if offset + size > self.size:
            self.fail(f"{what} of {size:#x} bytes reaches past the end", offset)
        return self._replace(start=self.start + offset, end=self.start + offset + size)

    def inner(self, label: str = "") -> FileSlice:
        """Return this place as something in a container, called `label` there."""
        return self._replace(name=f"{self.name}[{label}]" if label else self.name, depth=self.depth + 1)

    def find(self, patterns: Iterable[bytes], offset: int = 0) -> int:
        """Return the offset of the first of `patterns`, from `offset` on; -1 where there is none."""
        wanted = tuple(patterns)
        overlap = max(map(len, wanted)) - 1
        at, size = offset, _FIRST_WINDOW
        while at < self.size:
            window = self.peek(at, size + overlap)
            hits = [hit for pattern in wanted if (hit := window.find(pattern)) >= 0]
            if hits:
                return at + min(hits)
            self._replace(start=self.start + at, end=min(self.start + at + size, self.end)).let_go()
            at += size
            size = _WINDOW
        return -1

    def let_go(self) -> None:
        """Give memory that mapped pages occupy back to the system; they are read again when they are needed."""
        if isinstance(self.root, mmap.mmap):
            first = self.start // mmap.PAGESIZE * mmap.PAGESIZE
            if self.end > first:
                self.root.madvise(mmap.MADV_DONTNEED, first, self.end - first)
