"""Replay of a run's captures at its end: each is written without memory that its launch did not access, or removed."""

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
"""Time limit of the replay of a new capture: seconds, plus a multiple of the time of the launch."""
_TOGETHER = 1024
"""Captures that one process replays."""


def reduce(captures: Captures, progress: Callable[[str], None] = lambda name: None) -> list[Path]:
    """Replay each capture, write it without memory that it did not access, and return the remaining files.

    A capture whose replay differs is removed: something else wrote to its memory while it ran, or it is not
    deterministic.

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
                # A launch that waits for concurrent writes of others would never end.
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
    """Replay captures in one process, since starting one takes longer than most replays.

    Returns:
        The captures whose replay was equal; they have been written reduced, the others unreduced.
    """
    held = {str(path): captures.held[path] for path in paths if path in captures.held}
    job = SeveralReplays(files=tuple(map(str, paths)), replay=Replay(reduce=True))
    equal, taken = replay_held(job, held, _REPLAY_SECONDS)
    for path in paths:
        if path in captures.held and str(path) in equal:
            captures.release(path)
    captures.write([path for path in paths if path in captures.held])
    again = SeveralReplays(files=taken, replay=job.replay)
    return {*map(Path, equal | replay_together(again, _REPLAY_SECONDS))}
