"""Captures in memory have equal pages of launches once."""

from __future__ import annotations

import random

import msgspec
import numpy as np
from luthier.capture.form import COUNTS, PAGE, PLACES, Capture, CaptureManifest
from luthier.capture.page_store import ROOM, PageStore
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
        captures.append((dict(memory), changed, *store.shared(launch(memory, changed))))
        sizes.append(captures[-1][3] // PAGE)
        memory |= changed
    assert sizes == [31] + [1] * 99
    assert len({id(shared.pages) for _, _, shared, _ in captures}) == 1
    for before, after, shared, _ in captures:
        assert contents(shared) == (before, after)


def test_a_full_array_is_followed_by_another() -> None:
    store, size = PageStore(), ROOM // 3
    made = []
    for number in range(4):
        pages = {PAGE * (1 + at): (number * size + at + 1).to_bytes(PAGE, "little") for at in range(size)}
        made.append((pages, store.shared(launch(pages, {}))[0]))
    assert len({id(shared.pages) for _, shared in made}) == 2
    for pages, shared in made:
        assert contents(shared) == (pages, {})


def test_what_is_too_large_stays_alone() -> None:
    capture = launch({PAGE * (1 + at): bytes([1]) * PAGE for at in range(ROOM + 1)}, {})
    shared, added = PageStore().shared(capture)
    assert shared is capture
    assert added == capture.pages.nbytes
