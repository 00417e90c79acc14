"""A captured launch as data, and its file: a ZIP archive whose members are Zstandard frames (docs/capture.md)."""

from __future__ import annotations

import functools
import io
import os
import re
import struct
import threading
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import zstandard
from msgspec import Struct
from numpy.typing import NDArray

from luthier.emulator.running.memory import host_memory
from luthier.errors import LuthierError
from luthier.support.files import PRIVATE, write_atomically

SCHEMA = 1
PAGE = 4096
"""Bytes of a page of a capture."""
USER_SPACE = 1 << 47
"""End of the addresses of user space on x86-64."""
LARGEST_MANIFEST = 1 << 24
LARGEST_SPAN = 1 << 42
"""Bytes of addresses that a launch may access."""
PLACES = np.dtype([("address", "<u8"), ("page", "<u8")])
"""Page number in a capture of the page at an address."""
COUNTS = np.dtype([("address", "<u8"), ("executions", "<u8"), ("lanes", "<u8")])
"""Executions of the instruction at a virtual address of the object, and its active lanes summed over them."""

LARGEST_KERNARG = 1 << 20
"""The most bytes of a kernel's arguments."""
KERNARG_ALIGNMENT = 64
"""Bytes: compilers widen scalar loads of arguments to this alignment, so that they read beyond the last argument."""
_HEXADECIMAL = re.compile("[0-9a-f]*")

Pages = NDArray[np.uint8]
"""Of shape (pages, PAGE)."""
Triple = tuple[int, int, int]


class CapturedArgument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel argument, as described by the kernel's metadata."""

    name: str
    type: str
    kind: str
    offset: int
    size: int
    value: str
    """Hexadecimal, in memory order."""


class CaptureManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A capture without its contents of memory."""

    schema: int
    target: str
    """Target of the device, e.g. gfx90a."""
    kernel: str
    object: str
    """Name of the code object in the program."""
    number: int
    """Number among the launches of the kernel in its process."""
    grid: Triple
    """Work-items."""
    block: Triple
    group_segment: int
    """Bytes of LDS, including the dynamic part."""
    private_segment: int
    """Bytes of scratch of a work-item."""
    dynamic_lds: int
    cooperative: bool
    packet: int
    """Address of the dispatch packet."""
    queue: int
    """Address of the queue."""
    kernarg: int
    """Address of the arguments."""
    load_address: int
    """Added to the object's virtual addresses."""
    id: int
    """Number of the packet in its queue."""
    arguments: tuple[CapturedArgument, ...]
    ranges: tuple[tuple[int, int], ...]
    """Address and bytes of memory that the kernel may access, by address."""
    left_out: tuple[tuple[int, int], ...] = ()
    """Address and bytes of accessible pages that are not in the capture, because the launch did not access them."""
    groups: tuple[Triple, ...] = ()
    """Ids of the work-groups that run, ordered by z, y and x; empty: all. Each sees the whole grid."""
    counted: bool = True
    """The capture has execution counts. GPUs do not provide them: a replay does."""
    replayed: bool = False
    """Before the file was written, a replay left the recorded memory and counts."""


class Capture(Struct, frozen=True):
    """A captured launch."""

    manifest: CaptureManifest
    object: bytes
    """The code object."""
    pages: Pages
    """Distinct contents of pages."""
    before: NDArray[np.void]
    """`PLACES` of the non-zero pages before the launch, by address."""
    after: NDArray[np.void]
    """`PLACES` of the pages that the launch changed, with their contents after it."""
    counts: NDArray[np.void]
    """`COUNTS` of executed instructions, by address."""

    @property
    def span(self) -> int:
        """Return the bytes of memory that the launch may access."""
        return sum(size for _, size in self.manifest.ranges)


def write_capture(path: str | os.PathLike[str], capture: Capture) -> None:
    """Write a capture to a file atomically."""
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
            archive.writestr(zipfile.ZipInfo(name), data)  # a fixed date makes the file reproducible
    write_atomically(path, held.getvalue(), PRIVATE)


def _compressed(data: bytes) -> bytes:
    return _compressor().compress(data)


def _compressor() -> zstandard.ZstdCompressor:
    """Return the compressor of this thread: making one takes longer than compressing a small member."""
    if not hasattr(_own, "compressor"):
        _own.compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    compressor: zstandard.ZstdCompressor = _own.compressor
    return compressor


_own = threading.local()
_compressed_object = functools.lru_cache(maxsize=4)(_compressed)
"""`_compressed` for code objects, which many launches share."""


def read_capture(path: str | os.PathLike[str]) -> Capture:
    """Read a capture.

    Raises:
        LuthierError: the file cannot be read, or is not a capture.
    """
    try:
        return checked(_read(Path(path)))
    except LuthierError as problem:
        raise LuthierError(problem.message, object=str(path)) from None
    except OSError as problem:
        raise LuthierError(f"cannot read: {problem.strerror or problem}", object=str(path)) from None
    except (EOFError, zipfile.BadZipFile, zstandard.ZstdError, msgspec.MsgspecError) as problem:
        raise LuthierError(f"not a capture: {problem}", object=str(path)) from None
    except (ValueError, LookupError, struct.error, RuntimeError, OverflowError, MemoryError) as problem:
        raise LuthierError(f"the capture is damaged: {problem}", object=str(path)) from None


def _read(path: Path) -> Capture:
    if not path.is_file():
        raise LuthierError("no such file")
    left = most = room_for()
    with path.open("rb") as file:
        file.read(1)  # `zipfile` reports an unreadable file as a bad archive
        archive = zipfile.ZipFile(file)

        def take(name: str, most: int) -> bytes:
            info = archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > path.stat().st_size:
                raise LuthierError(f"member {name} is compressed or truncated; members of captures are stored")
            raw = archive.read(info)
            size = zstandard.frame_content_size(raw)
            if not 0 <= size <= most:
                raise LuthierError(f"member {name} declares {size} bytes; at most {most} are allowed")
            return zstandard.ZstdDecompressor().decompress(raw, max_output_size=size)

        manifest = msgspec.json.decode(take("manifest.json", min(left, LARGEST_MANIFEST)), type=CaptureManifest)
        data = {}
        for name in ("object", "pages", "before", "after", "counts"):
            data[name] = take(name, left)
            left -= len(data[name])
    if len(data["pages"]) % PAGE:
        raise LuthierError(f"pages have {len(data['pages'])} bytes, which is not a multiple of {PAGE}")
    pages = np.frombuffer(data["pages"], np.uint8).reshape(-1, PAGE)
    before, after = (np.frombuffer(data[name], PLACES) for name in ("before", "after"))
    if (len(before) + len(after)) * PAGE > most:
        raise LuthierError(f"{len(before)} and {len(after)} pages of memory; only {most} bytes are available")
    return Capture(manifest, data["object"], pages, before, after, np.frombuffer(data["counts"], COUNTS))


def room_for() -> int:
    """Return how many bytes a capture may have: each is in memory twice, in the capture and in the launch's memory."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 // 2
    return host_memory() // 2


def checked(capture: Capture) -> Capture:
    """Return a capture after checking it.

    Raises:
        LuthierError: it is inconsistent.
    """
    manifest = capture.manifest
    if manifest.schema != SCHEMA:
        raise LuthierError(f"the capture has schema {manifest.schema}; this version reads schema {SCHEMA}")
    _check_ranges(manifest)
    if capture.span > LARGEST_SPAN:
        raise LuthierError(f"the ranges have {capture.span} bytes; at most {LARGEST_SPAN} are allowed")
    _check_launch(manifest)
    _check_groups(manifest)
    for name in ("before", "after"):
        _check_pages(capture, name)
    return capture


def _check_ranges(manifest: CaptureManifest) -> None:
    """Raise an error if ranges of memory are not in order, or not in user space."""
    end = PAGE
    for address, size in manifest.ranges:
        if address < end or not 0 < size <= USER_SPACE - address:
            raise LuthierError(f"invalid range of {size} bytes at {address:#x}")
        end = address + size
    end = 0
    for address, size in manifest.left_out:
        if address < end or address % PAGE or size % PAGE or not 0 < size <= USER_SPACE - address:
            raise LuthierError(f"invalid left-out range of {size} bytes at {address:#x}")
        end = address + size


def _check_launch(manifest: CaptureManifest) -> None:
    """Raise an error if sizes, arguments or addresses of the launch are invalid."""
    numbers = (*manifest.grid, *manifest.block, manifest.group_segment, manifest.private_segment, manifest.dynamic_lds)
    if any(not 0 <= number < 1 << 32 for number in numbers) or not all((*manifest.grid, *manifest.block)):
        raise LuthierError(f"invalid sizes: a launch of {manifest.grid} in work-groups of {manifest.block}")
    for argument in manifest.arguments:
        sizes = argument.offset, argument.size, LARGEST_KERNARG - argument.offset - argument.size
        if min(sizes) < 0 or not _HEXADECIMAL.fullmatch(argument.value) or len(argument.value) != 2 * argument.size:
            text = f"{argument.size} bytes at {argument.offset}: {argument.value[:40]!r}"
            raise LuthierError(f"invalid argument of {text}")
    for name in ("packet", "queue", "kernarg", "load_address", "id", "number"):
        if not 0 <= getattr(manifest, name) < USER_SPACE:
            raise LuthierError(f"{name} {getattr(manifest, name):#x} is not in user space")


def _check_pages(capture: Capture, name: str) -> None:
    """Raise an error if pages of memory are not in order, not in the launch's memory, or have no contents.

    Args:
        name: field of the capture: ``before`` or ``after``.
    """
    places = getattr(capture, name)
    if not len(places):
        return
    at: NDArray[np.uint64] = places["address"]
    if (places["page"] >= len(capture.pages)).any():
        raise LuthierError(f"{name} names pages that are not in the capture")
    if (at % PAGE).any() or (at[1:] <= at[:-1]).any():
        raise LuthierError(f"addresses of {name} are not sorted page addresses")
    ranges = np.array(capture.manifest.ranges, np.uint64).reshape(-1, 2)
    last = np.searchsorted(ranges[:, 0], at + np.uint64(PAGE - 1), side="right").astype(np.int64) - 1
    if int(at.max()) >= USER_SPACE or (last < 0).any() or (ranges.sum(axis=1)[last] <= at).any():
        raise LuthierError(f"{name} has pages outside of the launch's memory")


def _check_groups(manifest: CaptureManifest) -> None:
    """Check the list of work-groups.

    Raises:
        LuthierError: they are not in the grid, or not in order.
    """
    if not manifest.groups:
        return
    groups = np.array(manifest.groups, np.int64)
    ends = -(-np.array(manifest.grid, np.int64) // np.array(manifest.block, np.int64))
    if (groups < 0).any() or (groups >= ends).any():
        raise LuthierError("the list of work-groups has ids outside the grid")
    order = (groups[:, 2] * ends[1] + groups[:, 1]) * ends[0] + groups[:, 0]
    if (order[1:] <= order[:-1]).any() or (ends > 1 << 20).any():
        raise LuthierError("the list of work-groups is not in order")
    if manifest.cooperative:
        raise LuthierError("a cooperative launch cannot run only some of its work-groups")
