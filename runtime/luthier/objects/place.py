"""`FileSlice`: a part of a file or of memory, with bounds-checked reads.

Files are mapped, not read: a host library of a gigabyte is mostly code that is never accessed.
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
"""Maximum bytes read from a file that cannot be mapped, such as a pipe or device."""
_FIRST_WINDOW = 1 << 12
_WINDOW = 1 << 18
"""Bytes that a search copies and releases at a time; the first window is small, since most matches are near."""


class FileSlice(NamedTuple):
    """The bytes [start, end) of `root`, with a name. Offsets count from `start`."""

    root: bytes | bytearray | mmap.mmap
    name: str
    start: int
    end: int
    depth: int = 0
    """Number of containers around it."""
    unpacked: bool = False
    """Whether it comes from a compressed container."""
    path: str = ""
    """Path of its file; "" for bytes in memory."""

    @staticmethod
    def of_file(path: str | os.PathLike[str], name: str) -> FileSlice:
        """Map a file, or read it if it cannot be mapped, like a pipe.

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
                    raise ObjectError(f"longer than {_LARGEST_STREAM} bytes, but not a regular file", object=name)
                return FileSlice.of_bytes(data, name)
        except (OSError, ValueError) as problem:  # ValueError: a path with a null character
            reason = getattr(problem, "strerror", None) or problem
            raise ObjectError(f"cannot read: {reason}", object=name) from problem

    @staticmethod
    def of_bytes(data: bytes | bytearray, name: str) -> FileSlice:
        """Return a slice of bytes in memory."""
        return FileSlice(data, name, 0, len(data))

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return self.end - self.start

    @property
    def view(self) -> memoryview:
        """Return the bytes in place; the view keeps the mapping alive."""
        return memoryview(self.root)[self.start : self.end].toreadonly()

    def fail(self, message: str, offset: int) -> NoReturn:
        """Raise an error for malformed contents.

        Args:
            offset: offset from the beginning of the slice.

        Raises:
            ObjectError: always.
        """
        raise ObjectError(message, object=self.name, offset=offset)

    def begins(self, *magics: bytes) -> bool:
        """Return whether it begins with one of these magic numbers."""
        return any(self.peek(0, len(magic)) == magic for magic in magics)

    def peek(self, offset: int, size: int) -> bytes:
        """Return `size` bytes, or fewer at the end."""
        return bytes(self.root[self.start + offset : min(self.start + offset + size, self.end)])

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Return bytes at an offset; `what` names them in the error if some are missing."""
        return self.cut(offset, size, what).peek(0, size)

    def unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[int, ...]:
        """Return fields at an offset; `what` as for `read`."""
        if offset + layout.size > self.size:
            self.fail(f"{what} reaches past the end", offset)
        return layout.unpack_from(self.root, self.start + offset)

    def cut(self, offset: int, size: int, what: str) -> FileSlice:
        """Return a part with the same name."""
        if offset + size > self.size:
            self.fail(f"{what} of {size:#x} bytes reaches past the end", offset)
        return self._replace(start=self.start + offset, end=self.start + offset + size)

    def inner(self, label: str = "") -> FileSlice:
        """Return this slice as a member of a container, named `label` there."""
        return self._replace(name=f"{self.name}[{label}]" if label else self.name, depth=self.depth + 1)

    def find(self, patterns: Iterable[bytes], offset: int = 0) -> int:
        """Return the offset of the first of `patterns`, from `offset` on; -1 if there is none."""
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
        """Release the memory of mapped pages; they are read again on demand."""
        if isinstance(self.root, mmap.mmap):
            first = self.start // mmap.PAGESIZE * mmap.PAGESIZE
            if self.end > first:
                self.root.madvise(mmap.MADV_DONTNEED, first, self.end - first)
