"""Captures of a run, replayed at its end: each is written without what its launch did not access, or removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from luthier.replay.jobs import ReplayStatus
from luthier.replay.launches import Replay, SeveralReplays
from luthier.replay.processes import replay_held, replay_together, replayed_elsewhere
from luthier.support.losses import note_loss
from luthier.support.processes import LATE

if TYPE_CHECKING:
    from luthier.run.captures import Captures

_REPLAY_SECONDS, _REPLAY_FACTOR = 60, 10
"""Time that the replay of a new capture may take: so long, and so many times longer than the launch."""
_TOGETHER = 64
"""Captures that one process replays."""


def reduce(captures: Captures, progress: Callable[[str], None] = lambda name: None) -> list[Path]:
    """Replay each capture, and write it without what it did not access; return the files that are left.

    One whose replay differs is removed: somebody else wrote to its memory while it ran, or it is not deterministic.

    Args:
        progress: called with the name of each file.
    """
    kept: list[Path] = []
    files = [*captures.files]
    for at in range(0, len(files), _TOGETHER):
        equal = _replayed(captures, files[at : at + _TOGETHER])
        for path in files[at : at + _TOGETHER]:
            progress(path.name)
            if path in equal:
                kept.append(path)
            elif path in captures.files:  # it could be written
                # One that waits for what others have written meanwhile would never end.
                limit = _REPLAY_SECONDS + _REPLAY_FACTOR * captures.took[path]
                row = replayed_elsewhere(Replay(file=str(path), reduce=True), limit)
                if row.status == ReplayStatus.EQUAL:
                    kept.append(path)
                    continue
                path.unlink()
                captures.refused.append(f"{path.name}: its replay differs: {row.what}")
                if row.status == ReplayStatus.IMPOSSIBLE and LATE not in row.what:
                    note_loss(captures.refused[-1])
    return kept


def _replayed(captures: Captures, paths: Sequence[Path]) -> set[Path]:
    """Replay captures in one process, since to start one takes longer than most replays; return those that are equal
    and have been written as they are to be. The others have been written as they were captured."""
    held = {str(path): captures.held[path] for path in paths if path in captures.held}
    job = SeveralReplays(files=tuple(map(str, paths)), replay=Replay(reduce=True))
    equal, taken = replay_held(job, held, _REPLAY_SECONDS)
    for path in paths:
        if path in captures.held and str(path) in equal:
            captures.release(path)
    captures.write([path for path in paths if path in captures.held])
    again = SeveralReplays(files=taken, replay=job.replay)
    return {*map(Path, equal | replay_together(again, _REPLAY_SECONDS))}
