"""Device modules whose targets are compiled when they are needed: in a source tree, or from source in a string."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from luthier.isa.targets import TargetId
from luthier.module.manifest import Manifest

_WANTED: ContextVar[TargetId | None] = ContextVar("wanted target", default=None)


def wanted() -> TargetId | None:
    """Return the target of the application that is being instrumented; None if there is none."""
    return _WANTED.get()


@contextmanager
def wanting(target: TargetId) -> Iterator[None]:
    """Let device modules that are loaded meanwhile be compiled for the target of an application before others."""
    before = _WANTED.set(target)
    try:
        yield
    finally:
        _WANTED.reset(before)


class OnDemand(Struct, frozen=True):
    """The targets that a device module can be compiled for, and who does it."""

    compile: Callable[[TargetId], tuple[bytes, Manifest]]
    """Returns a bundle with the code for a target, and its manifest."""
    targets: tuple[TargetId, ...]
    every: bool = False
    """True if it can be compiled for any other processor, too."""

    def covering(self, target: TargetId) -> list[TargetId]:
        """Return the targets whose code would run there."""
        found = [one for one in self.targets if one.covers(target)]
        return found or ([TargetId(target.target)] if self.every else [])


def first_of(targets: Sequence[str], target: TargetId | None, *, every: bool = False) -> str:
    """Return which of a module's targets is to be compiled first, for an application of some target."""
    covering = [one for one in targets if target is not None and TargetId.parse(one).covers(target)]
    if not covering and every and target is not None:
        return target.target.name
    return (covering or targets)[0]
