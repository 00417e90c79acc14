"""Records of one class by name: Luthier's own, and those of installed packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from luthier.errors import LuthierError
from luthier.extensions.entry_points import EntryPoint, points_of

Record = TypeVar("Record")


class Extensions(Struct, Generic[Record], frozen=True):
    """Records of one class by name: Luthier's own, and those that packages add, each imported when it is asked for."""

    group: str
    """Group of entry points, each with the name of its record."""
    what: str
    """Word for one of them, in messages."""
    record: type[Record]
    built_in: Mapping[str, str] = field(default_factory=dict)
    """Luthier's own: name -> ``module:object``, as in an entry point."""
    error: type[LuthierError] = LuthierError

    def names(self) -> tuple[str, ...]:
        """Return the names, Luthier's own first; nothing is imported."""
        return (*self.built_in, *sorted(by_name(points_of(self.group)).keys() - self.built_in.keys()))

    def load(self, name: str) -> Record:
        """Import the record of this name, which is one of `names`.

        Raises:
            LuthierError: several packages define it, it cannot be imported, or it is something else.
        """
        points = by_name(points_of(self.group)).get(name, ())
        if name in self.built_in:
            points = (EntryPoint(name, self.built_in[name], self.group), *points)
        return load_record(points, f"{self.what} {name}", self.record, self.error)

    def helps(self) -> Mapping[str, str]:
        """Import all records, and return by name the `help` of each, or why there is none."""
        found = {}
        for name in self.names():
            try:
                found[name] = str(getattr(self.load(name), "help", ""))
            except LuthierError as problem:
                found[name] = f"NOT USABLE: {problem}"
        return found


def by_name(points: Iterable[EntryPoint], dot: str = ".") -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of each name; a distribution that is seen twice has one.

    Args:
        dot: what a dot in the name of an entry point stands for.
    """
    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for point in points:
        found.setdefault(point.name.replace(".", dot), {})[package_of(point), point.value] = point
    return {name: tuple(points.values()) for name, points in found.items()}


def package_of(point: EntryPoint) -> str:
    """Return the distribution that has an entry point."""
    return point.package or point.module.partition(".")[0]


def load_record(
    points: Sequence[EntryPoint], what: str, record: type[Record], error: type[LuthierError] = LuthierError
) -> Record:
    """Import what the entry points of one name stand for.

    Args:
        what: with its name, for messages.

    Raises:
        LuthierError: an `error`: there are several, it cannot be imported, or it is no `record`.
    """
    if len(points) > 1:
        raise clash(what, map(package_of, points), error)
    (point,) = points
    loaded: Record = load(point, what, error, kind=(record, f"luthier.{record.__name__}"))
    return loaded


def load(
    point: EntryPoint, what: str, error: type[LuthierError] = LuthierError, *, kind: tuple[Any, str] | None = None
) -> Any:
    """Import what an entry point stands for.

    Args:
        what: what it is, for messages.
        kind: the class that it must be of, as of `isinstance`, and the word for it.

    Raises:
        LuthierError: an `error`: it cannot be imported, or it is of another kind.
    """
    try:
        loaded = point.load()
    except (Exception, SystemExit) as problem:  # whatever a stranger's module raises at import
        where = f"{what} of {package_of(point)} ({point.value})"
        raise error(f"{where} cannot be imported: {problem!r}") from problem
    if kind is not None and not isinstance(loaded, kind[0]):
        raise error(f"{what} of {package_of(point)}: {point.value} is no {kind[1]}")
    return loaded


def clash(what: str, packages: Iterable[str], error: type[LuthierError] = LuthierError) -> LuthierError:
    """Return the error that several packages define the same."""
    return error(f"{what} is defined by several packages: {' and '.join(packages)}; remove one")
