"""Device modules whose targets are compiled on demand, in a source tree or from a string."""

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
    """Return the target of the instrumented application; None if there is none."""
    return _WANTED.get()


@contextmanager
def wanting(target: TargetId) -> Iterator[None]:
    """Compile device modules that are loaded meanwhile for an application's target first."""
    before = _WANTED.set(target)
    try:
        yield
    finally:
        _WANTED.reset(before)


class OnDemand(Struct, frozen=True):
    """Targets for which a device module can be compiled, and the compiler."""

    compile: Callable[[TargetId], tuple[bytes, ModuleManifest]]
    """Returns a bundle with the code for a target, and its manifest."""
    targets: tuple[TargetId, ...]
    every: bool = False
    """Whether it can also be compiled for any other processor."""

    def serving(self, target: TargetId) -> list[TargetId]:
        """Return the targets whose bitcode serves applications of a target, best first."""
        if self.every and not any(one.covers(target) for one in self.targets):
            return [TargetId(target.target)]
        return best_for(target, self.targets, lambda built: built)


def first_of(targets: Sequence[str], target: TargetId | None, *, every: bool = False) -> str:
    """Return which of a module's targets to compile first for an application's target."""
    if target is None:
        return targets[0]
    if every and not any(TargetId.parse(one).covers(target) for one in targets):
        return target.target.name
    return next(iter(best_for(target, targets, TargetId.parse)), targets[0])


def best_for(target: TargetId, choices: Sequence[Choice], target_of: Callable[[Choice], TargetId]) -> list[Choice]:
    """Return the choices whose bitcode serves applications of a target, best first.

    The best is compiled for the processor, followed by its generic processor, then by other processors with that
    generic one, those of the same generation first.
    """

    def distance(choice: Choice) -> tuple[bool, bool, bool]:
        built = target_of(choice)
        return (
            not built.covers(target),
            built.target is not target.target,
            built.target.parent is not target.target.parent,
        )

    return sorted((choice for choice in choices if target_of(choice).serves(target)), key=distance)
