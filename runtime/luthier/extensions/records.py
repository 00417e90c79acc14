"""Records of one class by name: built-in ones, and those of installed packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from luthier.errors import LuthierError
from luthier.extensions.entry_points import EntryPoint, points_of

Record = TypeVar("Record")


class Extensions(Struct, Generic[Record], frozen=True):
    """Records of one class by name: built-in ones, and those that packages add. Each is imported on demand."""

    group: str
    """Group of entry points, which have the names of their records."""
    what: str
    """Noun for a record in messages."""
    record: type[Record]
    built_in: Mapping[str, str] = field(default_factory=dict)
    """Built-in records: name -> ``module:object``, as in an entry point."""
    error: type[LuthierError] = LuthierError

    def names(self) -> tuple[str, ...]:
        """Return the names, built-in ones first, without importing anything."""
        return (*self.built_in, *sorted(by_name(points_of(self.group)).keys() - self.built_in.keys()))

    def load(self, name: str) -> Record:
        """Import the record with this name, which is one of `names`.

        Raises:
            LuthierError: several packages define it, it cannot be imported, or it has another class.
        """
        points = by_name(points_of(self.group)).get(name, ())
        if name in self.built_in:
            points = (EntryPoint(name, self.built_in[name], self.group), *points)
        return load_record(points, f"{self.what} {name}", self.record, self.error)

    def helps(self) -> Mapping[str, str]:
        """Import all records, and return the `help` of each by name, or the reason why it is not usable."""
        helps = {}
        for name in self.names():
            try:
                helps[name] = str(getattr(self.load(name), "help", ""))
            except LuthierError as problem:
                helps[name] = f"NOT USABLE: {problem}"
        return helps


def by_name(points: Iterable[EntryPoint], dot: str = ".") -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of each name, without duplicates of a distribution that is found twice.

    Args:
        dot: replacement for dots in names of entry points.
    """
    points_by_name: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for point in points:
        points_by_name.setdefault(point.name.replace(".", dot), {})[package_of(point), point.value] = point
    return {name: tuple(points.values()) for name, points in points_by_name.items()}


def package_of(point: EntryPoint) -> str:
    """Return the distribution that has an entry point."""
    return point.package or point.module.partition(".")[0]


def load_record(
    points: Sequence[EntryPoint], what: str, record: type[Record], error: type[LuthierError] = LuthierError
) -> Record:
    """Import the record of the entry points of one name.

    Args:
        what: noun and name for messages.

    Raises:
        LuthierError: of class `error`: there are several, it cannot be imported, or it is not a `record`.
    """
    if len(points) > 1:
        raise clash(what, map(package_of, points), error)
    (point,) = points
    loaded: Record = load(point, what, error, kind=(record, f"luthier.{record.__name__}"))
    return loaded


def load(
    point: EntryPoint, what: str, error: type[LuthierError] = LuthierError, *, kind: tuple[Any, str] | None = None
) -> Any:
    """Import the object of an entry point.

    Args:
        what: noun and name for messages.
        kind: required class, as for `isinstance`, and its name for messages.

    Raises:
        LuthierError: of class `error`: it cannot be imported, or has another class.
    """
    try:
        loaded = point.load()
    except (Exception, SystemExit) as problem:  # modules of packages may raise anything
        where = f"{what} of {package_of(point)} ({point.value})"
        text = problem if isinstance(problem, LuthierError) else repr(problem)  # the former may have a compiler's lines
        raise error(f"{where} cannot be imported: {text}") from problem
    if kind is not None and not isinstance(loaded, kind[0]):
        raise error(f"{what} of {package_of(point)}: {point.value} is not a {kind[1]}")
    return loaded


def clash(what: str, packages: Iterable[str], error: type[LuthierError] = LuthierError) -> LuthierError:
    """Return the error that several packages define the same."""
    return error(f"{what} is defined by several packages: {' and '.join(packages)}; remove one")
