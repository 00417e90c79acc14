"""Replays that share memory do what each does alone, with less work."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from luthier.capture import Capture, read_capture
from luthier.capture.place import MappedMemory, mapped
from luthier.capture.replay import PreparedLaunch, Replayed
from luthier.capture.room import ReplayRoom
from msgspec.structs import replace

Captured = Callable[..., list[Path]]


def in_room(capture: Capture, room: ReplayRoom | None) -> Replayed:
    launch = PreparedLaunch(capture, capture.manifest.target)
    launch.room = room
    return launch.run(threads=1)  # after a fault, other threads would end at any instruction


def facts(capture: Capture, room: ReplayRoom | None) -> tuple[object, ...]:
    """Return what a replay does. Which neighbours of pages it touches depends on what the system has in memory."""
    done = in_room(capture, room)
    assert {*done.written.tolist()} <= {*done.touched.tolist()}
    equal = str(done.difference), str(done.fault), done.counts_equal
    return (done.counts.tolist(), done.written.tolist(), *equal)


def variants(capture: Capture) -> list[Capture]:
    """Return the launch, and it with another byte in its first page, without that page, and with other ranges."""
    pages = capture.pages.copy()
    pages[int(capture.before["page"][0]), 7] ^= 1
    fewer = replace(capture, before=capture.before[1:])
    ranges = (*capture.manifest.ranges, (capture.manifest.ranges[-1][0] + (1 << 30), 4096))
    wider = replace(capture, manifest=replace(capture.manifest, ranges=ranges))
    return [capture, replace(capture, pages=pages), fewer, wider]


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["reduction", "histogram"])
def test_replays_do_the_same_as_alone(captured: Captured, name: str) -> None:
    captures = [one for file in captured(name, "gfx90a")[:2] for one in variants(read_capture(file))]
    alone = [facts(capture, None) for capture in captures]
    assert len({str(one) for one in alone}) > 1
    with closing(ReplayRoom()) as room:
        assert [facts(capture, room) for capture in [*captures, *captures[::-1]]] == [*alone, *alone[::-1]]
    manifest = captures[0].manifest
    with mapped(manifest.ranges, np.zeros(0, np.uint64), captures[0].pages):  # its addresses are free again
        pass


def test_only_differing_pages_are_written(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    mappings: list[int] = []
    write, made = MappedMemory.write, os.memfd_create

    def count(memory: MappedMemory, addresses: np.ndarray, pages: np.ndarray) -> None:
        written.append(len(addresses))
        write(memory, addresses, pages)

    def counted(*arguments: object) -> int:
        mappings.append(1)
        return made(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(MappedMemory, "write", count)
    monkeypatch.setattr(os, "memfd_create", counted)
    capture = read_capture(captured("reduction", "gfx90a")[0])
    with closing(ReplayRoom()) as room:
        for launch in (capture, capture, replace(capture, before=capture.before[1:])):
            in_room(launch, room)
    assert written == [len(capture.before), 1]  # a page of zeros
    assert len(mappings) == 1
