"""Replay of a run's captures at its end: each is written without memory that its launch did not access, or removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
_TOGETHER, _FEW = 1024, 64
"""Captures that one process replays, if all of them together may take as long; and if it failed."""


def reduce(captures: Captures, progress: Callable[[str], None] = lambda name: None) -> list[Path]:
    """Replay each capture, write it without memory that it did not access, and return the remaining files.

    A capture whose replay differs is removed: something else wrote to its memory while it ran, or it is not
    deterministic.

    Args:
        progress: called with the name of each file.
    """
    kept: list[Path] = []
    files = [*captures.files]
    for batch in _batches(files, captures.took):
        equal = _replayed(captures, batch)
        for path in batch:
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


def _batches(files: Sequence[Path], took: Mapping[Path, float]) -> Iterator[Sequence[Path]]:
    """Yield captures that one process replays, by the durations of their launches."""
    batch: list[Path] = []
    seconds = 0.0
    for path in files:
        seconds += _REPLAY_FACTOR * took[path]
        if batch and (len(batch) == _TOGETHER or seconds > _REPLAY_SECONDS):
            yield batch
            batch, seconds = [], _REPLAY_FACTOR * took[path]
        batch.append(path)
    if batch:
        yield batch


def _replayed(captures: Captures, paths: Sequence[Path]) -> set[Path]:
    """Replay captures in one process, since starting one takes longer than most replays.

    Returns:
        The captures whose replay was equal; they have been written reduced, the others unreduced.
    """
    held = {str(path): captures.held[path] for path in paths if path in captures.held}
    job = SeveralReplays(files=tuple(map(str, paths)), replay=Replay(reduce=True))
    equal, taken = replay_held(job, held, _REPLAY_SECONDS)
    if not equal and not taken and len(paths) > _FEW:  # one of them may have ended the process
        half = len(paths) // 2
        return _replayed(captures, paths[:half]) | _replayed(captures, paths[half:])
    for path in paths:
        if path in captures.held and str(path) in equal:
            captures.release(path)
    captures.write([path for path in paths if path in captures.held])
    again = SeveralReplays(files=taken, replay=job.replay)
    return {*map(Path, equal | replay_together(again, _REPLAY_SECONDS))}
