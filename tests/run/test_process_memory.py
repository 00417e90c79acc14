"""Memory of another process, as captures read it: what is there before a launch, and what has changed after."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from luthier.capture.form import PAGE
from luthier.capture.page_store import PageStore, StoredPages
from luthier.errors import DeviceError
from luthier.run.process_memory import ProcessMemory, _read_each, _shared, read_memory
from numpy.typing import NDArray

PAGES = 600
"""More than are compared at once."""
MOST = 1 << 30
ALIAS = 0x7E0000000000
Change = Callable[[], None]


class Child:
    """A process with private and shared memory that executes commands."""

    def __init__(self, steps: Sequence[Change]) -> None:
        self._commands, writer = os.pipe()
        did, self._did = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for step in steps:
                os.read(self._commands, 1)
                step()
                os.write(self._did, b"x")
            os.read(self._commands, 1)
            os._exit(0)
        self._tell, self._read = writer, did

    def go_on(self) -> None:
        """Let it do the next step, and wait for it."""
        os.write(self._tell, b"x")
        os.read(self._read, 1)

    def end(self) -> None:
        """Let it end."""
        os.write(self._tell, b"x")
        os.waitpid(self.pid, 0)


@pytest.fixture
def start() -> Iterator[Callable[[Sequence[Change]], Child]]:
    children: list[Child] = []

    def make(steps: Sequence[Change]) -> Child:
        children.append(Child(steps))
        return children[-1]

    yield make
    for child in children:
        child.end()


def mapping(pages: int, flags: int = mmap.MAP_PRIVATE) -> tuple[mmap.mmap, int]:
    made = mmap.mmap(-1, pages * PAGE, flags | mmap.MAP_ANONYMOUS)
    return made, np.frombuffer(made, np.uint8).ctypes.data


def contents(store: PageStore, places: NDArray[np.void]) -> dict[int, bytes]:
    return {address: store.pages[page].tobytes() for address, page in places.tolist()}


def changed(memory: ProcessMemory, before: StoredPages, store: PageStore) -> dict[int, bytes]:
    return contents(store, before.changes_to(memory.after(store)))


def page(text: bytes) -> bytes:
    return text.ljust(PAGE, b"\0")


def test_what_changes_is_found(start: Callable[[Sequence[Change]], Child]) -> None:
    """Pages that are written, new ones, and those that are given back; nothing of what is beside the ranges."""
    own, at = mapping(PAGES)
    other, host = mapping(2)
    own[: 300 * PAGE] = page(b"old") * 300
    other[:PAGE] = page(b"alias")

    def change() -> None:
        own[5 * PAGE : 5 * PAGE + 3] = b"new"
        own[280 * PAGE : 280 * PAGE + 3] = b"NEW"
        own[290 * PAGE : 290 * PAGE + 3] = b"xxx"  # outside the range
        own[500 * PAGE : 500 * PAGE + 4] = b"made"
        own.madvise(mmap.MADV_DONTNEED, 7 * PAGE, PAGE)
        other[PAGE : PAGE + 1] = b"b"

    child = start([change])
    ranges = [(at, 290 * PAGE), (at + 290 * PAGE + 8, (PAGES - 290) * PAGE - 8)]
    memory = ProcessMemory(child.pid, ranges, [(ALIAS, 2 * PAGE, host)], MOST)
    store = PageStore()
    before = memory.before(store)
    wanted = {at + PAGE * number: page(b"old") for number in range(300)} | {ALIAS: page(b"alias")}
    wanted[at + 290 * PAGE] = bytes(PAGE)
    assert contents(store, before.places()) == {address: held for address, held in wanted.items() if any(held)}
    assert changed(memory, before, store) == {}
    child.go_on()
    assert changed(memory, before, store) == {
        at + 5 * PAGE: page(b"new"),
        at + 7 * PAGE: bytes(PAGE),
        at + 280 * PAGE: page(b"NEW"),
        at + 500 * PAGE: page(b"made"),
        ALIAS + PAGE: page(b"b"),
    }
    assert store.read(before, ALIAS + 1, 3) == b"lia"
    assert store.read(before, at - 2, 4) == b"\0\0ol"


def test_shared_memory_that_others_have_written(start: Callable[[Sequence[Change]], Child]) -> None:
    """The page is not in the process's page tables."""
    shared, at = mapping(3, mmap.MAP_SHARED)
    child = start([])
    memory = ProcessMemory(child.pid, [(at, 3 * PAGE)], [], MOST)
    store = PageStore()
    before = memory.before(store)
    shared[PAGE : PAGE + 4] = b"ours"
    assert changed(memory, before, store) == {at + PAGE: page(b"ours")}
    with pytest.raises(DeviceError, match="shared memory"):
        ProcessMemory(child.pid, [(at, 3 * PAGE)], [], 2 * PAGE).before(PageStore())


def test_older_kernels_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 6.11 shared mappings are found in the text of /proc/PID/maps."""
    kept = [mapping(pages, mmap.MAP_SHARED)[0] for pages in (1, 5)]
    asked = _shared(os.getpid())

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTTY, "")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    assert asked == _shared(os.getpid())
    assert len(asked) >= len(kept)


def test_memory_that_the_process_may_not_read(start: Callable[[Sequence[Change]], Child]) -> None:
    own, at = mapping(4)
    own[:] = page(b"held") * 4
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    child = start([lambda: protect(at + PAGE, PAGE, 0)])
    child.go_on()
    memory = ProcessMemory(child.pid, [(at, 4 * PAGE)], [], MOST)
    store = PageStore()
    assert contents(store, memory.before(store).places()) == {at + PAGE * number: page(b"held") for number in range(4)}


def test_what_is_too_large_or_gone_is_refused(start: Callable[[Sequence[Change]], Child]) -> None:
    own, at = mapping(4)
    own[:] = page(b"held") * 4
    child = start([])
    with pytest.raises(DeviceError, match="--most"):
        ProcessMemory(child.pid, [(at, 4 * PAGE)], [], 3 * PAGE).before(PageStore())
    with pytest.raises(DeviceError, match="several pages"):
        ProcessMemory(child.pid, [(at, 2 * PAGE)], [(at, PAGE, at + 2 * PAGE)], MOST).before(PageStore())
    with pytest.raises(DeviceError, match="cannot be read"):
        ProcessMemory(1 << 22, [(at, 4 * PAGE)], [], MOST).before(PageStore())


@pytest.mark.parametrize("most", [1, 4095, 4096, 10_000, 3 * PAGE])
def test_memory_comes_in_pieces(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system moves less than 2 GiB in one call; this test uses a lower limit."""
    expected = np.random.default_rng(most).integers(0, 256, (3, PAGE), np.uint8)
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, buffers, at: preadv(file, [buffers[0][:most]], at))
    actual = np.zeros_like(expected)
    _read_each(os.getpid(), [(expected.ctypes.data, actual)])
    assert np.array_equal(actual, expected)
    assert read_memory(os.getpid(), expected.ctypes.data + 1, 5000) == expected.tobytes()[1:5001]


@pytest.mark.parametrize("address", [-1, 0, 1 << 47, (1 << 63) - 8, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, 1 << 70])
def test_addresses_that_no_process_has(address: int) -> None:
    with pytest.raises(DeviceError, match="cannot be read"):
        read_memory(os.getpid(), address, 8)
