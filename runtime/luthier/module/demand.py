"""Device modules whose targets are compiled when they are needed: in a source tree, or from source in a string."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from msgspec import Struct

from luthier.isa.targets import TargetId
from luthier.module.manifest import ModuleManifest

Choice = TypeVar("Choice")
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

    compile: Callable[[TargetId], tuple[bytes, ModuleManifest]]
    """Returns a bundle with the code for a target, and its manifest."""
    targets: tuple[TargetId, ...]
    every: bool = False
    """True if it can be compiled for any other processor, too."""

    def serving(self, target: TargetId) -> list[TargetId]:
        """Return the targets whose bitcode serves applications of one, the best first."""
        if self.every and not any(one.covers(target) for one in self.targets):
            return [TargetId(target.target)]
        return best_for(target, self.targets, lambda one: one)


def first_of(targets: Sequence[str], target: TargetId | None, *, every: bool = False) -> str:
    """Return which of a module's targets is to be compiled first, for an application of some target."""
    if target is None:
        return targets[0]
    if every and not any(TargetId.parse(one).covers(target) for one in targets):
        return target.target.name
    return next(iter(best_for(target, targets, TargetId.parse)), targets[0])


def best_for(target: TargetId, choices: Sequence[Choice], target_of: Callable[[Choice], TargetId]) -> list[Choice]:
    """Return the choices whose bitcode serves applications of a target, the best first.

    That is what was compiled for the processor, then for its generic one, then for others that have that in common,
    those of the same generation first.
    """

    def distance(choice: Choice) -> tuple[bool, bool, bool]:
        built = target_of(choice)
        return (
            not built.covers(target),
            built.target is not target.target,
            built.target.parent is not target.target.parent,
        )

    return sorted((choice for choice in choices if target_of(choice).serves(target)), key=distance)
