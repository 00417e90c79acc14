"""Captures of a run, replayed at its end: each is written without what its launch did not access, or removed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from luthier.terminal import say_text

if TYPE_CHECKING:
    from luthier.run.captures import Captures

_REPLAY_SECONDS, _REPLAY_FACTOR = 60, 10
"""Time that the replay of a new capture may take: so long, and so many times longer than the launch."""
_TOGETHER = 64
"""Captures that one process replays."""


def tell_refused(captures: Captures) -> None:
    """Say which launches were not captured, and why."""
    for text in captures.refused:
        say_text(f"luthier capture: not captured: {text}", file=sys.stderr)


def reduce(captures: Captures) -> list[Path]:
    """Replay each capture, and write it without what it did not access.

    One whose replay differs is removed: somebody else wrote to its memory while it ran, or it is not deterministic.
    """
    from luthier.cli.progress import Progress
    from luthier.cli.replay_process import replay_elsewhere

    kept: list[Path] = []
    files = [*captures.files]
    with Progress("replaying", len(files)) as progress:
        for at in range(0, len(files), _TOGETHER):
            equal = _replayed(captures, files[at : at + _TOGETHER])
            for path in files[at : at + _TOGETHER]:
                progress.step(path.name)
                if path in equal:
                    kept.append(path)
                elif path in captures.files:  # it could be written
                    # One that waits for what others have written meanwhile would never end.
                    limit = _REPLAY_SECONDS + _REPLAY_FACTOR * captures.took[path]
                    outcome = replay_elsewhere(path, reduce=True, time_limit=limit)
                    if outcome["status"] == 0:
                        kept.append(path)
                        continue
                    path.unlink()
                    captures.refused.append(f"{path.name}: its replay differs: {outcome['what']}")
    return kept


def _replayed(captures: Captures, paths: Sequence[Path]) -> set[Path]:
    """Replay captures in one process, since to start one takes longer than most replays; return those that are equal
    and have been written as they are to be. The others have been written as they were captured."""
    from luthier.cli.replay_process import replay_held, replay_together

    held = {str(path): captures.held[path] for path in paths if path in captures.held}
    equal, taken = replay_held([*map(str, paths)], held, _REPLAY_SECONDS, reduce=True)
    for path in paths:
        if path in captures.held and str(path) in equal:
            captures.release(path)
    captures.write([path for path in paths if path in captures.held])
    return {*map(Path, equal | replay_together(taken, _REPLAY_SECONDS, reduce=True))}
