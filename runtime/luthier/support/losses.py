"""Results that a command promised and could not give.

Whoever gives up a promised result notes it here. A command that has lost something does not exit with 0
(`luthier.cli.main`), whatever it did besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from luthier.errors import LackError
from luthier.support.shortage import shortage

_losses: dict[str, None] = {}
"""In the order in which they were noted; each once. Single operations on a dictionary are safe from several threads."""


def note_loss(what: str) -> None:
    """Note a result that was promised and is lost.

    Args:
        what: the result, and why it is lost, in a line.
    """
    _losses[what] = None


@contextmanager
def lacking(what: str) -> Iterator[None]:
    """Turn what the system refuses inside into a `LackError`.

    Args:
        what: cannot be done, in words.

    Raises:
        LackError: the system lacks memory, descriptors or the like.
    """
    try:
        yield
    except (OSError, MemoryError) as problem:
        raise LackError(f"{what}: {shortage(problem) or getattr(problem, 'strerror', problem)}") from None


def losses() -> tuple[str, ...]:
    """Return what was noted since the command began."""
    return tuple(_losses)


def forget_losses() -> None:
    """Forget all of it: another command begins."""
    _losses.clear()
