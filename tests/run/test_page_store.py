"""Captures in memory have equal pages of launches once."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from luthier.capture.form import COUNTS, PAGE, PLACES, Capture, CaptureManifest
from luthier.capture.page_store import AT_ONCE, ROOM, PageStore, StoredPages
from numpy.typing import NDArray

Contents = dict[int, bytes]
NUMBERS = (
    *("schema", "number", "group_segment", "private_segment", "dynamic_lds"),
    *("packet", "queue", "kernarg", "load_address", "id"),
)
MANIFEST = msgspec.convert(
    dict.fromkeys(NUMBERS, 0)
    | dict.fromkeys(("target", "kernel", "object"), "")
    | dict.fromkeys(("grid", "block"), (1, 1, 1))
    | {"arguments": (), "ranges": (), "cooperative": False},
    CaptureManifest,
)


def launch(before: Contents, after: Contents) -> Capture:
    """Return a capture with pages, each of which is in it for itself."""
    tables: list[NDArray[np.void]] = []
    pages: list[NDArray[np.uint8]] = []
    for places in (before, after):
        table = np.zeros(len(places), PLACES)
        table["address"], table["page"] = sorted(places), np.arange(len(pages), len(pages) + len(places))
        pages += [np.frombuffer(places[address], np.uint8) for address in sorted(places)]
        tables.append(table)
    stacked = np.stack(pages) if pages else np.zeros((0, PAGE), np.uint8)
    return Capture(MANIFEST, b"", stacked, tables[0], tables[1], np.zeros(0, COUNTS))


def contents(capture: Capture) -> tuple[Contents, ...]:
    return tuple(
        {address: capture.pages[page].tobytes() for address, page in places.tolist()}
        for places in (capture.before, capture.after)
    )


def test_a_page_is_kept_once_while_it_stays_the_same() -> None:
    """Random launches, each of which changes one page of thirty: the contents stay, and only these pages are added."""
    choose = random.Random(5)
    memory = {PAGE * number: choose.randbytes(PAGE) for number in range(1, 31)}
    store, sizes, captures = PageStore(), [], []
    for _ in range(100):
        changed = {choose.choice(list(memory)): choose.randbytes(PAGE)}
        captures.append((dict(memory), changed, store.shared(launch(memory, changed))))
        sizes.append(store.growth() // PAGE)
        memory |= changed
    assert sizes == [31] + [1] * 99
    assert len({id(shared.pages) for _, _, shared in captures}) == 1
    for before, after, shared in captures:
        assert contents(shared) == (before, after)


def test_a_full_array_is_followed_by_another() -> None:
    store, size = PageStore(), ROOM // 3
    made = []
    for number in range(8):
        pages = {PAGE * (1 + at): (number * size + at + 1).to_bytes(PAGE, "little") for at in range(size)}
        made.append((pages, store.shared(launch(pages, {}))))
    assert len({id(shared.pages) for _, shared in made}) == 2
    for pages, shared in made:
        assert contents(shared) == (pages, {})


def test_a_large_launch_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only changed pages of memory that is larger than the room for changes are added, and compared in few steps."""
    memory = {PAGE * (1 + at): (at + 1).to_bytes(PAGE, "little") for at in range(3 * ROOM)}
    store, captures = PageStore(), []
    calls: list[int] = []
    add = PageStore.add

    def counting(store: PageStore, addresses: NDArray[np.uint64], pages: NDArray[np.uint8]) -> NDArray[np.intp]:
        calls.append(1)
        return add(store, addresses, pages)

    monkeypatch.setattr(PageStore, "add", counting)
    for number in range(3):
        changed = {PAGE * (5 + number): b"new".ljust(PAGE, b"\0")}
        captures.append((dict(memory), changed, store.shared(launch(memory, changed))))
        memory |= changed
        assert store.growth() // PAGE == (1 if number else 1 + 3 * ROOM)
    assert len({id(shared.pages) for _, _, shared in captures}) == 1
    assert len(calls) == 3 * (3 * ROOM // AT_ONCE + 1)
    for before, after, shared in captures:
        assert contents(shared) == (before, after)


def test_more_changes_than_there_is_room_for() -> None:
    """The array grows while a launch is looked at; the numbers of its pages before stay valid."""
    store = PageStore()
    store.begin(4)
    addresses = PAGE * np.arange(1, 2 * ROOM + 1, dtype=np.uint64)
    pages = np.arange(1, 2 * ROOM * PAGE // 8 + 1, dtype=np.uint64).view(np.uint8).reshape(-1, PAGE)
    before = StoredPages(addresses[:4], store.add(addresses[:4], pages[-4:]))
    blocks = [slice(first, first + AT_ONCE) for first in range(0, len(pages), AT_ONCE)]
    after = StoredPages(addresses, np.concatenate([store.add(addresses[some], pages[some]) for some in blocks]))
    changes = before.changes_to(after)
    assert np.array_equal(changes["address"], addresses)
    assert np.array_equal(store.pages[changes["page"]], pages)
    assert np.array_equal(store.pages[before.numbers], pages[-4:])


def test_growth_counts_what_earlier_captures_keep() -> None:
    """A launch that changes more than there is room for gets a new array; captures before it keep the old one."""
    store, count, kept = PageStore(), 4 * ROOM, []
    addresses = PAGE * np.arange(1, count + 1, dtype=np.uint64)
    for launch_number in (1, 2):
        store.begin(count)
        for first in range(0, count, AT_ONCE):
            store.add(addresses[first : first + AT_ONCE], np.full((AT_ONCE, PAGE), launch_number, np.uint8))
        kept.append((store.pages, store.used, store.growth()))
    (former, former_used, first_growth), (pages, used, second_growth) = kept
    assert pages is not former
    assert (first_growth, second_growth) == (count * PAGE, (former_used + count) * PAGE)
    assert used == former_used + count


def test_zeros_are_changes() -> None:
    """A page that becomes zero, one that disappears, and one of zeros that appears."""
    store = PageStore()
    store.begin(3)
    addresses = PAGE * np.array([1, 2, 3], np.uint64)
    filled = np.full((3, PAGE), 7, np.uint8)
    before = StoredPages(addresses, store.add(addresses, filled))
    later = np.stack([filled[0], 0 * filled[0], 0 * filled[0]])
    places = PAGE * np.array([1, 2, 4], np.uint64)
    after = StoredPages(places, store.add(places, later))
    changes = before.changes_to(after)
    contents = {int(address): bool(store.pages[page].any()) for address, page in changes.tolist()}
    assert contents == {2 * PAGE: False, 3 * PAGE: False}
    assert store.read(before, 2 * PAGE - 1, 3) == b"\7" * 3
    assert store.read(after, 2 * PAGE - 1, 2) == b"\7\0"
    assert len(after.places()) == 1
