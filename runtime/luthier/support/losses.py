"""Results that a command promised and could not deliver.

Code that gives up a promised result notes the loss here. A command with losses does not exit with 0
(`luthier.cli.main`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from luthier.errors import LackError
from luthier.support.shortage import shortage

_losses: dict[str, None] = {}
"""Distinct losses in order. Single operations on a dictionary are thread-safe."""


def note_loss(what: str) -> None:
    """Note a lost result.

    Args:
        what: the result and the reason, in one line.
    """
    _losses[what] = None


@contextmanager
def lacking(what: str) -> Iterator[None]:
    """Turn errors of the system inside the block into a `LackError`.

    Args:
        what: beginning of the message, what cannot be done.

    Raises:
        LackError: the system lacks memory, descriptors or processes.
    """
    try:
        yield
    except (OSError, MemoryError) as problem:
        raise LackError(f"{what}: {shortage(problem) or getattr(problem, 'strerror', problem)}") from None


def losses() -> tuple[str, ...]:
    """Return the losses since the command began."""
    return tuple(_losses)


def forget_losses() -> None:
    """Forget all losses: another command begins."""
    _losses.clear()
