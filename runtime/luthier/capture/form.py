"""A captured launch as data, and its file: a ZIP archive whose members are Zstandard frames (docs/capture.md)."""

from __future__ import annotations

import functools
import io
import os
import re
import struct
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import zstandard
from msgspec import Struct
from numpy.typing import NDArray

from luthier.errors import LuthierError
from luthier.support.files import PRIVATE, write_atomically

SCHEMA = 1
PAGE = 4096
"""Bytes of a page of a capture."""
USER_SPACE = 1 << 47
"""Addresses that a program's memory can have on x86-64."""
LARGEST_MANIFEST = 1 << 24
LARGEST_SPAN = 1 << 42
"""Bytes of addresses that a launch may access."""
PLACES = np.dtype([("address", "<u8"), ("page", "<u8")])
"""Which of a capture's pages is at an address."""
COUNTS = np.dtype([("address", "<u8"), ("executions", "<u8"), ("lanes", "<u8")])
"""Executions of the instruction at a virtual address of the object, and its active lanes, summed over them."""

LARGEST_KERNARG = 1 << 20
"""Bytes of a kernel's arguments."""
_HEXADECIMAL = re.compile("[0-9a-f]*")

Pages = NDArray[np.uint8]
"""Of shape (pages, PAGE)."""
Triple = tuple[int, int, int]


class CapturedArgument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel argument, as the kernel's metadata have it."""

    name: str
    type: str
    kind: str
    offset: int
    size: int
    value: str
    """Hexadecimal, in the order of memory."""


class CaptureManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything of a capture but contents of memory."""

    schema: int
    target: str
    """Of the device: gfx90a"""
    kernel: str
    object: str
    """Name of the code object where it was captured."""
    number: int
    """Among the launches of the kernel in its process."""
    grid: Triple
    """Work-items."""
    block: Triple
    group_segment: int
    """Bytes of LDS, the dynamic part included."""
    private_segment: int
    """Bytes of scratch of a work-item."""
    dynamic_lds: int
    cooperative: bool
    packet: int
    """Addresses of the dispatch packet,"""
    queue: int
    """the queue,"""
    kernarg: int
    """the arguments,"""
    load_address: int
    """and what is added to the object's virtual addresses."""
    id: int
    """Number of the packet in its queue."""
    arguments: tuple[CapturedArgument, ...]
    ranges: tuple[tuple[int, int], ...]
    """Address and bytes of what the kernel may access, by address."""
    left_out: tuple[tuple[int, int], ...] = ()
    """Address and bytes of pages that the launch may access, and whose contents are not in the capture: it did not."""
    groups: tuple[Triple, ...] = ()
    """Ids of the work-groups that run, in the order of z, y and x; empty: all. Each sees the whole grid."""
    counted: bool = True
    """It is known how often each instruction was executed. GPUs do not tell: a replay does."""
    replayed: bool = False
    """A replay has left what is recorded here, by the same instructions, before the file was written."""


class Capture(Struct, frozen=True):
    """A captured launch."""

    manifest: CaptureManifest
    object: bytes
    """The code object."""
    pages: Pages
    """Contents of pages, each once."""
    before: NDArray[np.void]
    """`PLACES` of the pages that were not all zeros before the launch, by address."""
    after: NDArray[np.void]
    """Those of the pages that the launch has changed, as it left them."""
    counts: NDArray[np.void]
    """`COUNTS` of executed instructions, by address."""

    @property
    def span(self) -> int:
        """Return the bytes of memory that the launch may access."""
        return sum(size for _, size in self.manifest.ranges)


def write_capture(path: str | os.PathLike[str], capture: Capture) -> None:
    """Write a capture to a file, whole or not at all."""
    members = {
        "manifest.json": _compressed(msgspec.json.encode(capture.manifest)),
        "object": _compressed_object(capture.object),
        "pages": _compressed(capture.pages.tobytes()),
        "before": _compressed(capture.before.tobytes()),
        "after": _compressed(capture.after.tobytes()),
        "counts": _compressed(capture.counts.tobytes()),
    }
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # the same date for all: the same file
    write_atomically(path, held.getvalue(), PRIVATE)


def _compressed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)


_compressed_object = functools.lru_cache(maxsize=4)(_compressed)
"""The same for code objects, which many launches share."""


def read_capture(path: str | os.PathLike[str]) -> Capture:
    """Read a capture.

    Raises:
        LuthierError: the file cannot be read, or is no capture.
    """
    try:
        return checked(_read(Path(path)))
    except LuthierError as problem:
        raise LuthierError(problem.message, object=str(path)) from None
    except OSError as problem:
        raise LuthierError(f"cannot read: {problem.strerror or problem}", object=str(path)) from None
    except (EOFError, zipfile.BadZipFile, zstandard.ZstdError, msgspec.MsgspecError) as problem:
        raise LuthierError(f"no capture: {problem}", object=str(path)) from None
    except (ValueError, LookupError, struct.error, RuntimeError, OverflowError, MemoryError) as problem:
        raise LuthierError(f"a damaged capture: {problem}", object=str(path)) from None


def _read(path: Path) -> Capture:
    if not path.is_file():
        raise LuthierError("no such file")
    left = most = room_for()
    with path.open("rb") as file:
        file.read(1)  # `zipfile` takes what cannot be read for no archive
        archive = zipfile.ZipFile(file)

        def take(name: str, most: int) -> bytes:
            info = archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > path.stat().st_size:
                raise LuthierError(f"member {name} is not stored as a capture's are")
            raw = archive.read(info)
            size = zstandard.frame_content_size(raw)
            if not 0 <= size <= most:
                raise LuthierError(f"member {name} says that it has {size} bytes; {most} are the most")
            return zstandard.ZstdDecompressor().decompress(raw, max_output_size=size)

        manifest = msgspec.json.decode(take("manifest.json", min(left, LARGEST_MANIFEST)), type=CaptureManifest)
        data = {}
        for name in ("object", "pages", "before", "after", "counts"):
            data[name] = take(name, left)
            left -= len(data[name])
    if len(data["pages"]) % PAGE:
        raise LuthierError(f"{len(data['pages'])} bytes are not whole pages")
    pages = np.frombuffer(data["pages"], np.uint8).reshape(-1, PAGE)
    before, after = (np.frombuffer(data[name], PLACES) for name in ("before", "after"))
    if (len(before) + len(after)) * PAGE > most:
        raise LuthierError(f"{len(before)} and {len(after)} pages of memory; there is room for {most} bytes")
    return Capture(manifest, data["object"], pages, before, after, np.frombuffer(data["counts"], COUNTS))


def room_for() -> int:
    """Return how many bytes a capture may have: each is held twice, in this process and in the memory of the launch."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 // 2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def checked(capture: Capture) -> Capture:
    """Return a capture, if what it says can be so.

    Raises:
        LuthierError: it cannot.
    """
    told = capture.manifest
    if told.schema != SCHEMA:
        raise LuthierError(f"a capture of schema {told.schema}; this version reads {SCHEMA}")
    end = PAGE
    for address, size in told.ranges:
        if address < end or not 0 < size <= USER_SPACE - address:
            raise LuthierError(f"a range of {size} bytes at {address:#x}, where none can be")
        end = address + size
    end = 0
    for address, size in told.left_out:
        if address < end or address % PAGE or size % PAGE or not 0 < size <= USER_SPACE - address:
            raise LuthierError(f"{size} bytes are left out at {address:#x}, which cannot be")
        end = address + size
    if capture.span > LARGEST_SPAN:
        raise LuthierError(f"{capture.span} bytes of addresses, of at most {LARGEST_SPAN}")
    numbers = (*told.grid, *told.block, told.group_segment, told.private_segment, told.dynamic_lds)
    if any(not 0 <= number < 1 << 32 for number in numbers) or not all((*told.grid, *told.block)):
        raise LuthierError(f"a launch of {told.grid} in work-groups of {told.block}")
    for argument in told.arguments:
        sizes = argument.offset, argument.size, LARGEST_KERNARG - argument.offset - argument.size
        if min(sizes) < 0 or not _HEXADECIMAL.fullmatch(argument.value) or len(argument.value) != 2 * argument.size:
            raise LuthierError(f"an argument of {argument.size} bytes at {argument.offset}: {argument.value[:40]!r}")
    _check_groups(told)
    for name in ("packet", "queue", "kernarg", "load_address", "id", "number"):
        if not 0 <= getattr(told, name) < USER_SPACE:
            raise LuthierError(f"{name} {getattr(told, name):#x}, which none can be")
    starts = np.array([address for address, _ in told.ranges], np.uint64)
    ends = np.array([address + size for address, size in told.ranges], np.uint64)
    for name, places in (("before", capture.before), ("after", capture.after)):
        at: NDArray[np.uint64] = places["address"]
        if len(places) and (places["page"] >= len(capture.pages)).any():
            raise LuthierError(f"{name} names pages that the capture has not")
        if (at % PAGE).any() or (at[1:] <= at[:-1]).any():
            raise LuthierError(f"addresses of {name} are not those of pages in their order")
        if not len(places):
            continue
        if int(at.max()) >= USER_SPACE or not len(starts):
            raise LuthierError(f"{name} has pages outside of the launch's memory")
        last = np.searchsorted(starts, at + np.uint64(PAGE - 1), side="right").astype(np.int64) - 1
        if (last < 0).any() or (ends[last] <= at).any():
            raise LuthierError(f"{name} has pages outside of the launch's memory")
    return capture


def _check_groups(told: CaptureManifest) -> None:
    """Check the work-groups that are to run.

    Raises:
        LuthierError: the grid has no such work-groups, or they are not in their order.
    """
    if not told.groups:
        return
    groups = np.array(told.groups, np.int64)
    ends = -(-np.array(told.grid, np.int64) // np.array(told.block, np.int64))
    if (groups < 0).any() or (groups >= ends).any():
        raise LuthierError("work-groups are to run that the grid does not have")
    order = (groups[:, 2] * ends[1] + groups[:, 1]) * ends[0] + groups[:, 0]
    if (order[1:] <= order[:-1]).any() or (ends > 1 << 20).any():
        raise LuthierError("work-groups that are to run are not in their order")
    if told.cooperative:
        raise LuthierError("a cooperative launch of which only some work-groups are to run")
