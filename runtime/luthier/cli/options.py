"""Options of a sub-command as a declared structure: its parser, the checks of combinations and the run's summary follow
from it.

    class RunOptions(Options):
        label: str = option("--label", default="", in_summary=True, help="name of the run in reports")

A field is an `option`, or a `group` of options that several sub-commands have.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Self, dataclass_transform

from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import LuthierError
from luthier.terminal import say

_DECLARED = "declared"


class Need(Struct, frozen=True):
    """Condition on other options.

    Args:
        options: fields, one of which must be given.
        why: the sentence that begins with the option's name: what the option is about, and what to do.
    """

    options: tuple[str, ...]
    why: str


class DeclaredOption(Struct, frozen=True):
    """Declaration of an option.

    Args:
        flags: as of `argparse`.
        title: of its group in the help.
        needs: condition on other options.
        instead: what to do on GPUs of the machine, where the option does not exist; empty: it exists.
        in_summary: whether the summary of a run has its value.
        before: earlier spelling, which is still understood.
        argument: further arguments of `argparse.ArgumentParser.add_argument`.
    """

    flags: tuple[str, ...]
    title: str
    needs: Need | None
    instead: str
    in_summary: bool
    before: str
    argument: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the option's long name, without dashes."""
        return self.flags[-1].lstrip("-")

    def add(self, parser: argparse._ActionsContainer, **more: Any) -> None:
        """Add the option to a parser; further arguments as of `argparse`."""
        is_positional = not self.flags[0].startswith("-")  # its field is its name
        action = parser.add_argument(*self.flags, **({} if is_positional else more), **self.argument)
        if self.before:
            add_earlier_spelling(parser, self.before, action)


class DeclaredGroup(Struct, frozen=True):
    """Declaration of options that several sub-commands have; arguments as of `DeclaredOption`."""

    options: type[CommandOptions]
    title: str
    needs: Need | None


class SeveralChoices(tuple[str, ...]):
    """Choices of an option that takes several of them, `comma_separated`."""

    __slots__ = ()

    def __contains__(self, names: object) -> bool:
        return isinstance(names, list) and all(tuple.__contains__(self, name) for name in names)


def comma_separated(text: str) -> list[str]:
    """Return the parts of an argument, for options that extend a list."""
    return text.split(",")


def option(
    *flags: str,
    default: Any = None,
    title: str = "",
    needs: Need | None = None,
    instead: str = "",
    in_summary: bool = False,
    before: str = "",
    **argument: Any,
) -> Any:
    """Return a field of `CommandOptions`; arguments as of `DeclaredOption`."""
    metadata = {_DECLARED: DeclaredOption(flags, title, needs, instead, in_summary, before, argument)}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: [*default], metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def group(options: type[CommandOptions], *, title: str = "", needs: Need | None = None) -> Any:
    """Return a field of `CommandOptions` that holds others; arguments as of `DeclaredGroup`."""
    return dataclasses.field(default_factory=options, metadata={_DECLARED: DeclaredGroup(options, title, needs)})


def add_earlier_spelling(parser: argparse._ActionsContainer, spelling: str, action: argparse.Action) -> None:
    """Have a parser understand an earlier spelling of an option, and say the present one on standard error.

    Args:
        action: of the option.
    """

    class Renamed(argparse.Action):
        def __call__(
            self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
        ) -> None:
            new = action.option_strings[-1]
            say(f"{parser.prog}: {spelling} is now {new}; the next release will not know {spelling}", file=sys.stderr)
            action(parser, namespace, values, new)

    parser.add_argument(
        spelling,
        action=Renamed,
        dest=action.dest,
        default=argparse.SUPPRESS,
        nargs=action.nargs,
        type=action.type or str,
        choices=action.choices,
        help=argparse.SUPPRESS,
    )


def add_option(parser: argparse._ActionsContainer, field: Any, **more: Any) -> None:
    """Add the option of a field of `CommandOptions` to a parser; further arguments as of `argparse`."""
    field.metadata[_DECLARED].add(parser, **more)


@dataclass_transform(field_specifiers=(option, group), kw_only_default=True, frozen_default=True)
class CommandOptions:
    """Options of a sub-command; subclasses declare them. An instance has their values."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def defaults(cls) -> Self:
        """Return the options of a command line that gives none."""
        return cls()

    @classmethod
    def declare(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options to a parser."""
        titles: dict[str, argparse._ActionsContainer] = {"": parser}
        for name, default, declared in cls.defaults().given():
            if declared.title not in titles:
                titles[declared.title] = parser.add_argument_group(declared.title)
            declared.add(titles[declared.title], dest=name, default=default)

    @classmethod
    def read(cls, args: argparse.Namespace) -> Self:
        """Return the options of a command line.

        Raises:
            LuthierError: an option is given without another one that it needs.
        """
        options = cls._filled(args)
        for declared, _ in options._changed():
            needs = declared.needs
            if needs is not None and not any(getattr(args, name) for name in needs.options):
                raise LuthierError(f"--{declared.name} {needs.why}")
        return options

    @classmethod
    def _filled(cls, args: argparse.Namespace) -> Self:
        values = {}
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # each subclass is a dataclass
            declaration = field.metadata[_DECLARED]
            is_group = isinstance(declaration, DeclaredGroup)
            values[field.name] = declaration.options._filled(args) if is_group else getattr(args, field.name)
        return cls(**values)

    def given(self, title: str = "", needs: Need | None = None) -> Iterator[tuple[str, Any, DeclaredOption]]:
        """Yield the field, the value and the declaration of each option, those of groups too.

        Args:
            title, needs: those of the group.
        """
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            declaration, value = field.metadata[_DECLARED], getattr(self, field.name)
            title_here, needs_here = declaration.title or title, declaration.needs or needs
            if isinstance(declaration, DeclaredGroup):
                yield from value.given(title_here, needs_here)
            else:
                yield field.name, value, replace(declaration, title=title_here, needs=needs_here)

    def _changed(self) -> list[tuple[DeclaredOption, Any]]:
        """Return the options that have another value than if they are not given, with that value."""
        return [
            (declared, value)
            for (_, value, declared), (_, default, _) in zip(self.given(), self.defaults().given(), strict=True)
            if value != default
        ]

    def check_on_gpus(self) -> None:
        """Raise an error if an option is given that GPUs of the machine do not have.

        Raises:
            LuthierError: it is.
        """
        for declared, _ in self._changed():
            if declared.instead:
                raise LuthierError(f"--{declared.name} is what virtual devices do: {declared.instead}")

    def summary(self) -> dict[str, Any]:
        """Return the values of the options that were given and are part of a run's summary, by their names."""
        return {declared.name: value for declared, value in self._changed() if declared.in_summary}
