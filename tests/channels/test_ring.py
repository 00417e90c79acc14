"""The host's end of rings, on memory that tests write as waves would: in any order, and not to the end."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from luthier.channels import ChannelDrain, Description, Ring, describe
from luthier.channels.layout import FIELD, HEAD, RING
from luthier.errors import ToolError
from luthier.wire.channels import MAGIC, VERSION, Kind, Mode
from numpy.typing import NDArray

DTYPE = np.dtype([("ticket", "<u8"), ("check", "<u4")])


class Waves:
    """A model of a device that writes to a ring of 128 records."""

    def __init__(self, start: int = 0) -> None:
        self.description = Description("c", DTYPE, 128, Mode.WAIT, Kind.RECORDS)
        self.memory = np.zeros(self.description.ring_size, np.uint8)
        self.variable = np.zeros(HEAD.itemsize, np.uint8)
        self.control = self.memory[: RING.itemsize].view(RING)
        self.control["reserved"] = self.control["read"] = start
        self.ring = Ring(self.description, self.variable, self.memory, 4096)
        self.sequence = self.memory[RING.itemsize :][: 4 * 128].view("<u4")
        self.records = self.memory[RING.itemsize + 4 * 128 :].view(DTYPE)
        for ticket in range(max(start - 128, 0), start):
            self.commit(ticket)

    def commit(self, ticket: int) -> None:
        self.records[ticket % 128] = ticket, ticket * 7 & 0xFFFFFFFF
        self.sequence[ticket % 128] = ((ticket >> 7) + 1) & 0xFFFFFFFF


def tickets(batches: list[NDArray[Any]]) -> list[int]:
    """Return the tickets of complete records."""
    records = np.concatenate([np.zeros(0, DTYPE), *batches])
    assert np.array_equal(records["check"], (records["ticket"] * 7 & 0xFFFFFFFF).astype(np.uint32))
    return [int(ticket) for ticket in records["ticket"]]


@pytest.mark.rows(5)
@pytest.mark.parametrize("seed", range(20))
def test_tickets_in_order_whatever_the_order_of_waves(seed: int) -> None:
    """Some waves are killed: what they left half-done is lost, nothing else."""
    rng = np.random.default_rng(seed)
    start = int(rng.choice([0, 5, 1 << 31, (1 << 39) - 200]))
    waves = Waves(start)
    batches: list[NDArray[Any]] = []
    reserved, pending = start, list[int]()
    for _ in range(200):
        count = int(rng.integers(0, 65))
        if reserved + count - int(waves.control["read"][0]) <= 128:
            pending += range(reserved, reserved + count)
            reserved += count
            waves.control["reserved"] = reserved
        rng.shuffle(pending)
        for _ in range(int(rng.integers(0, len(pending) + 1))):
            waves.commit(pending.pop())
        batches.append(waves.ring.take())
        assert tickets(batches) == list(range(start, int(waves.control["read"][0])))
    more = int(rng.integers(0, 300))  # waves that wait for room have tickets, too
    waves.control["reserved"] = reserved + more
    batches += waves.ring.settle()
    assert tickets(batches) == sorted(set(range(start, reserved)) - set(pending))
    assert waves.ring.lost == len(pending) + more
    assert waves.ring.taken == reserved - start - len(pending)
    assert not waves.ring.waiting


@pytest.mark.parametrize("reserved", [3, 1 << 40, 1 << 63, (1 << 64) - 1])
def test_counters_that_the_program_has_overwritten(reserved: int) -> None:
    """The reader continues and reports that records may be lost."""
    waves = Waves(5)
    for ticket in range(5, 15):
        waves.commit(ticket)
    waves.control["reserved"] = 10
    batches = [waves.ring.take()]
    waves.control["reserved"], waves.control["read"] = reserved, 1 << 50
    batches += [waves.ring.take(), *waves.ring.settle()]
    assert tickets(batches) == list(range(5, 15 if reserved > 10 else 10))
    assert waves.ring.lost == (128 if reserved > 10 else 0)
    assert waves.ring.damaged


def test_a_producer_beside_the_drain() -> None:
    """Records that another thread writes while they are taken, with a sink that raises now and then."""
    waves = Waves()
    batches: list[NDArray[Any]] = []

    def sink(batch: NDArray[Any]) -> None:
        batches.append(batch)
        if len(batches) == 3:
            raise ValueError("once")

    drain = ChannelDrain()
    drain.add(waves.ring, sink)

    def produce() -> None:
        for ticket in range(20000):
            while ticket - int(waves.control["read"][0]) >= 128:
                time.sleep(0)
            waves.control["reserved"] = ticket + 1
            waves.commit(ticket)

    thread = threading.Thread(target=produce)
    thread.start()
    thread.join()
    drain.stop()
    assert tickets(batches) == list(range(20000))
    assert [str(problem) for problem in drain.problems] == ["once"]


def described(**changes: Any) -> bytes:
    """A channel of one field."""
    head, field = np.zeros(1, HEAD), np.zeros(1, FIELD)
    values = {"magic": MAGIC, "version": VERSION, "record_size": 4, "field_count": 1, **changes}
    for name, value in values.items():
        if name in (HEAD.names or ()):
            head[name] = value
    field["name"], field["size"], field["kind"] = b"a", 4, b"u"
    for name in ("offset", "size", "count", "field_kind"):
        if name in changes:
            field[name.removeprefix("field_")] = changes[name]
    return head.tobytes() + field.tobytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"record_size": 0},
        {"record_size": 129},
        {"field_count": 2},
        {"mode": 9},
        {"kind": 5},
        {"offset": 4},
        {"size": 3},
        {"field_kind": b"O"},
        {"field_kind": b"x"},
        {"count": 60000},
    ],
    ids=str,
)
def test_malformed_descriptions(changes: dict[str, Any]) -> None:
    assert describe("c", described()) == Description("c", np.dtype([("a", "<u4")]), 1 << 18, Mode.WAIT, Kind.RECORDS)
    with pytest.raises(ToolError, match=r"\(object c\)"):
        describe("c", described(**changes))


def test_damaged_descriptions() -> None:
    """Any bytes behind the first ones: an error, or a channel that is none too large."""
    rng = np.random.default_rng(1)
    good = described()
    assert describe("c", b"") is describe("c", bytes(100)) is None
    for _ in range(2000):
        data = bytearray(good[: rng.integers(len(MAGIC), len(good) + 1)])
        for at in rng.integers(len(MAGIC), len(good), rng.integers(0, 6)):
            if at < len(data):
                data[at] = rng.integers(256)
        try:
            description = describe("c", bytes(data))
        except ToolError:
            continue
        assert description is not None
        assert description.ring_size < 2 << 30
