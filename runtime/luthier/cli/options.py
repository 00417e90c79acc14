"""Options of a sub-command, declared as a class from which follow its parser, the checks of combinations and the
summary of the run.

    class RunOptions(Options):
        label: str = option("--label", default="", in_summary=True, help="name of the run in reports")

A field is an `option`, or a `group` of options that several sub-commands share.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self, dataclass_transform

from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import LuthierError
from luthier.terminal import say


class Need(Struct, frozen=True):
    """Requirement for another option.

    Args:
        options: fields, at least one of which must be given.
        why: end of the error message that begins with the option's name.
    """

    options: tuple[str, ...]
    why: str


class DeclaredOption(Struct, frozen=True):
    """Declaration of an option.

    Args:
        flags: as for `argparse`.
        title: title of its group in the help.
        needs: requirement for another option.
        instead: what to use on GPUs, where the option does not exist; "" if it exists.
        in_summary: whether the summary of a run contains it.
        before: earlier spelling, still accepted.
        default: its value if it is not given; a list is copied.
        argument: further arguments of `argparse.ArgumentParser.add_argument`.
    """

    flags: tuple[str, ...]
    title: str
    needs: Need | None
    instead: str
    in_summary: bool
    before: str
    default: Any
    argument: Mapping[str, Any]

    def initial(self) -> Any:
        """Return the default value."""
        return [*self.default] if isinstance(self.default, list) else self.default

    @property
    def name(self) -> str:
        """Return the option's long name, without dashes."""
        return self.flags[-1].lstrip("-")

    def add(self, parser: argparse._ActionsContainer, **more: Any) -> None:
        """Add the option to a parser; further arguments as for `argparse`."""
        is_positional = not self.flags[0].startswith("-")  # `argparse` takes its name as the field
        action = parser.add_argument(*self.flags, **({} if is_positional else more), **self.argument)
        if self.before:
            add_earlier_spelling(parser, self.before, action)


class DeclaredGroup(Struct, frozen=True):
    """Declaration of options that several sub-commands share; arguments as for `DeclaredOption`."""

    options: type[CommandOptions]
    title: str
    needs: Need | None

    def initial(self) -> CommandOptions:
        """Return the default values of its options."""
        return self.options.defaults()


class SeveralChoices(tuple[str, ...]):
    """Choices of an option that takes a comma-separated list of them."""

    __slots__ = ()

    def __contains__(self, names: object) -> bool:
        return isinstance(names, list) and all(tuple.__contains__(self, name) for name in names)


def comma_separated(text: str) -> list[str]:
    """Split an argument at commas, for options that extend a list."""
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
    """Declare a field of `CommandOptions`; arguments as for `DeclaredOption`."""
    return DeclaredOption(flags, title, needs, instead, in_summary, before, default, argument)


def group(options: type[CommandOptions], *, title: str = "", needs: Need | None = None) -> Any:
    """Declare a field of `CommandOptions` that is a group; arguments as for `DeclaredGroup`."""
    return DeclaredGroup(options, title, needs)


def add_earlier_spelling(parser: argparse._ActionsContainer, spelling: str, action: argparse.Action) -> None:
    """Accept an earlier spelling of the option of an action, with a warning on standard error."""

    class Renamed(argparse.Action):
        def __call__(
            self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
        ) -> None:
            new = action.option_strings[-1]
            say(f"{parser.prog}: {spelling} is now {new}; the next release does not accept {spelling}", file=sys.stderr)
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


def add_option(parser: argparse._ActionsContainer, declared: Any, **more: Any) -> None:
    """Add the option that `option` declares to a parser; further arguments as for `argparse`."""
    declared.add(parser, **more)


@dataclass_transform(field_specifiers=(option, group), kw_only_default=True, frozen_default=True)
class CommandOptions:
    """Base class of the options of a sub-command. An instance has their values.

    It is no dataclass: importing `dataclasses` takes a tenth of the time of a short command.
    """

    _declared: ClassVar[dict[str, DeclaredOption | DeclaredGroup]] = {}
    """By field, those of base classes first."""

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, (DeclaredOption, DeclaredGroup))}
        cls._declared = cls._declared | own

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - self._declared.keys():
            raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
        for name, declared in self._declared.items():
            setattr(self, name, values[name] if name in values else declared.initial())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def but(self, **values: Any) -> Self:
        """Return the options with other values of some fields."""
        return type(self)(**{**{name: getattr(self, name) for name in self._declared}, **values})

    @classmethod
    def defaults(cls) -> Self:
        """Return the default values of all options."""
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
        """Return the values of the options on a command line.

        Raises:
            LuthierError: an option is given without another that it needs.
        """
        options = cls._filled(args)
        for declared, _ in options._changed():
            needs = declared.needs
            if needs is not None and not any(getattr(args, name) for name in needs.options):
                raise LuthierError(f"--{declared.name} {needs.why}")
        return options

    @classmethod
    def _filled(cls, args: argparse.Namespace) -> Self:
        return cls(
            **{
                name: declared.options._filled(args) if isinstance(declared, DeclaredGroup) else getattr(args, name)
                for name, declared in cls._declared.items()
            }
        )

    def given(self, title: str = "", needs: Need | None = None) -> Iterator[tuple[str, Any, DeclaredOption]]:
        """Yield the field, value and declaration of each option, including those in groups.

        Args:
            title, needs: of the enclosing group.
        """
        for name, declaration in self._declared.items():
            value = getattr(self, name)
            title_here, needs_here = declaration.title or title, declaration.needs or needs
            if isinstance(declaration, DeclaredGroup):
                yield from value.given(title_here, needs_here)
            else:
                yield name, value, replace(declaration, title=title_here, needs=needs_here)

    def _changed(self) -> list[tuple[DeclaredOption, Any]]:
        """Return the options whose value is not the default, with that value."""
        return [
            (declared, value)
            for (_, value, declared), (_, default, _) in zip(self.given(), self.defaults().given(), strict=True)
            if value != default
        ]

    def check_on_gpus(self) -> None:
        """Check that every option that is given exists on GPUs of the machine.

        Raises:
            LuthierError: one does not.
        """
        for declared, _ in self._changed():
            if declared.instead:
                raise LuthierError(f"--{declared.name} works on virtual devices only; {declared.instead}")

    def summary(self) -> dict[str, Any]:
        """Return option -> value for the options that were given and belong in a run's summary."""
        return {declared.name: value for declared, value in self._changed() if declared.in_summary}
