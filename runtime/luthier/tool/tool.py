"""`Tool`: what a tool author subclasses, how options reach it, and how installed tools are found."""

from __future__ import annotations

import dataclasses
import os
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from luthier.errors import LuthierError, ToolCodeError, ToolError
from luthier.extensions.entry_points import EntryPoint, points_of
from luthier.extensions.records import by_name, load, package_of
from luthier.support.suggestions import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from luthier.support.table import Table
    from luthier.tool.counts import KernelCounts
    from luthier.tool.observation import ApiEvent, Launch, LiveChannel, LoadedObject, Run
    from luthier.tool.task import InstrumentationTask

ENTRY_POINT_GROUP = "luthier.tools"


@dataclass(frozen=True)
class ExecutionCounts:
    """Executions of each instruction of a kernel, by instruction index of its lifted representation.

    They are the emulator's own: the reference.
    """

    executions: NDArray[np.int64]
    """[n] times a wave executed it."""
    active_lanes: NDArray[np.int64]
    """[n] sum over those times of the lanes active in EXEC."""


class Tool:
    """Base class of tools.

    A tool is a package with a device module (hooks in HIP) and a subclass of this, named in the entry-point group
    ``luthier.tools``. Options are the fields of a nested dataclass ``Options``, given on the command line as
    ``tool:field=value,field=value``.
    """

    @dataclass(frozen=True)
    class Options:
        """A tool without options."""

    reset_each_launch: ClassVar[bool] = False
    """Under `luthier run`, whether its variables get their initial values before every launch."""
    hsa_events: ClassVar[Sequence[str]] = ("*",)
    """Names or patterns of the HSA functions that `at_hsa_event` gets under `luthier run`."""
    hip_events: ClassVar[Sequence[str]] = ("*",)
    """Patterns of the HIP functions that `at_hip_event` gets, as for `hsa_events`."""
    memory_events: ClassVar[Sequence[str]] = ("*",)
    """Patterns of the events that `at_memory_event` gets."""
    name: ClassVar[str] = ""
    """Name on the command line, set from the entry point; with its package where several have a tool of that name."""

    def __init__(self, **options: Any) -> None:
        fields = _option_fields(type(self))
        for key in options:
            if key not in fields:
                raise ToolError(f"{self.label()} has no option {key!r}; it has {', '.join(fields) or 'none'}")
        self.options: Any = self.Options(**options)

    @classmethod
    def label(cls) -> str:
        """Return what errors call the tool."""
        return f"tool {cls.name or cls.__name__}"

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert hooks into one kernel."""
        raise NotImplementedError

    def why_idle(self) -> str:
        """Return why nothing was inserted, for the error that then ends a command; empty if no reason is known."""
        return ""

    def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
        """Return the values that the tool's variables must have after one launch that began with their initial values.

        Args:
            task: the kernel, as instrumented.
            counts: how often each instruction ran in the original kernel.

        Returns:
            Variable name -> value as an integer; a tool that cannot predict its results returns nothing. What
            `InstrumentationTask.count` counts into no variable is compared without being asked for.
        """
        return {}

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        """Return tables of what was counted in one kernel.

        Args:
            counts: what all tools together had counted into no variable.
        """
        return ()

    # Under `luthier run`; all of these are called in the service's process, one at a time.

    def at_init(self, run: Run) -> None:
        """Handle the start of the program, which is about to happen."""

    def at_code_object(self, loaded: LoadedObject) -> None:
        """Handle a code object that a process has loaded on a device."""

    def at_kernel_launch(self, launch: Launch) -> None:
        """Handle a kernel that is about to be launched; nothing else runs on the device.

        ``launch.instrumented = False`` lets the original run. A tool with this method or `at_kernel_end` makes launches
        wait for each other.
        """

    def at_kernel_end(self, launch: Launch) -> None:
        """Handle the end of a launch."""

    def at_records(self, channel: LiveChannel, batch: NDArray[Any]) -> None:
        """Handle records of one of the tool's channels, while the program runs or just after.

        They arrive before the `at_kernel_end` of the launch that pushed them. A tool without this method finds them in
        the run directory.

        Args:
            channel: on which device of which process.
            batch: [n] of ``channel.dtype``, in the order of tickets, or what `unpacked` makes of it; the tool's own to
                keep.
        """

    def unpacked(self, channel: LiveChannel, batch: NDArray[Any]) -> NDArray[Any]:
        """Return the records that those of a batch stand for: those for `at_records` and tables in the run directory.

        For tools whose hooks push less than they tell, such as one record for all lanes of a wave. All batches of a
        channel must give records of one type.

        Args:
            channel: as for `at_records`.
            batch: [n] of ``channel.dtype``; at most 4,096, since each may stand for many.
        """
        return batch

    def at_hsa_event(self, event: ApiEvent) -> None:
        """Handle the begin or the end of a call of one of the functions `hsa_events`.

        Events of a thread come in their order, soon after they happened: the program does not wait.
        """

    def at_hip_event(self, event: ApiEvent) -> None:
        """Handle the begin or the end of a call of one of the functions `hip_events`, like `at_hsa_event`.

        Of the call that initialises HIP, the end is the earliest event that can be reported.
        """

    def at_memory_event(self, event: ApiEvent) -> None:
        """Handle what happens to memory that the program has of HIP, like `at_hsa_event`.

        The event, which has no end, is called ``allocated`` (``address``, ``size`` as the program asked for it, and the
        bytes ``reserved`` for it, in which nothing else lies); ``freed`` (``address``): the program has given it back,
        but it is kept for a while; ``forgotten`` (``address``): it is HIP's again; or ``complained`` (``kind``, a
        `luthier.findings.kinds.FindingKind`, ``address``, ``base``, ``size``): what was given back is none, or again.
        For a tool with this method HIP is asked for more than the program asks for, and gets it back later, as under
        `luthier sanitize`.
        """

    def at_exit(self, run: Run) -> None:
        """Handle the end of the program; `report` is called next."""

    def report(self, run: Run) -> Iterable[Table]:
        """Return the findings of the run, as tables.

        By default: the sums of all variables that are one number, and `tables` of what was counted.
        """
        from luthier.support.table import Table

        names = dict.fromkeys(variable.name for variable in run.variables() if variable.number is not None)
        sums = [Table("", ("variable", "value"), [(name, run.total(name)) for name in names])] if names else []
        return [*sums, *(table for counts in run.counts() for table in self.tables(counts))]


def failed(tool: Tool, function: str, problem: BaseException) -> str:
    """Return where a tool's own code failed: tool, function, file and line, and the exception.

    The line is the innermost one that is not Luthier's.
    """
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_OURS)] or frames
    where = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    text = f": {problem}" if str(problem) else ""
    return f"{tool.label()} failed in {function}{where}: {type(problem).__name__}{text}"


_OURS = str(Path(__file__).parent.parent) + os.sep
"""How files of Luthier's own begin."""


class TaskShare(NamedTuple):
    """The part of a task that one tool has asked for."""

    hooks: range
    """Positions in ``task.insertions``."""
    counts: range
    """Positions in ``task.counts``."""


class ToolGroup:
    """Tools that instrument together: the hooks of each follow those of the one before it, also at one point.

    Args:
        tools: in the order in which they instrument.

    Attributes:
        inserted: hooks, counts and edits that each tool has asked for in all tasks so far.

    Raises:
        ToolError: an installed tool is there twice: its variables would be, too.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tuple(tools)
        names = [tool.name for tool in self.tools if tool.name]
        for name in names:
            if names.count(name) > 1:
                raise ToolError(f"tool {name} is given {names.count(name)} times")
        self.inserted = [0] * len(self.tools)

    @classmethod
    def of(cls, tools: Tool | ToolGroup | Sequence[Tool]) -> ToolGroup:
        """Return the group of one tool or several; a group is returned as it is."""
        if isinstance(tools, ToolGroup):
            return tools
        return cls([tools] if isinstance(tools, Tool) else tools)

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert the hooks of all tools into one kernel."""
        self.instrument_each(task)

    def instrument_each(self, task: InstrumentationTask) -> list[TaskShare]:
        """Let each tool instrument the kernel, and return what each has asked for."""
        shares = []
        for number, tool in enumerate(self.tools):
            hooks, counts, edits = len(task.insertions), len(task.counts), len(task.edits)
            try:
                tool.instrument(task)
            except LuthierError:
                raise
            except Exception as problem:  # whatever a tool's own code raises
                raise ToolCodeError(failed(tool, "instrument", problem), kernel=task.lifted.kernel.name) from problem
            share = TaskShare(range(hooks, len(task.insertions)), range(counts, len(task.counts)))
            shares.append(share)
            self.inserted[number] += len(share.hooks) + len(share.counts) + len(task.edits) - edits
        return shares

    @property
    def watches_memory(self) -> bool:
        """Return whether a tool wants to be told of the memory that programs have of HIP."""
        return any(type(tool).at_memory_event is not Tool.at_memory_event for tool in self.tools)

    @property
    def idle(self) -> list[Tool]:
        """Return the tools that have inserted nothing."""
        return [tool for tool, count in zip(self.tools, self.inserted, strict=True) if not count]


def _parse_value(field: dataclasses.Field[Any], text: str, tool: str) -> Any:
    kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    try:
        if kind == "bool":
            return {
                "1": True,
                "true": True,
                "yes": True,
                "on": True,
                "0": False,
                "false": False,
                "no": False,
                "off": False,
            }[text.lower()]
        if kind == "int":
            return int(text, 0)
        if kind == "float":
            return float(text)
    except (KeyError, ValueError):
        means = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise ToolError(f"option {field.name} of {tool} is {means}, not {text!r}") from None
    if kind != "str":
        raise ToolError(f"option {field.name} of {tool} has type {kind}, which cannot be given as text")
    return text


def find_entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of installed tools by what names each alone, without importing them.

    It is the tool's name, or ``PACKAGE:NAME`` where several packages install a tool of that name.
    """
    found = {}
    for name, points in by_name(points_of(ENTRY_POINT_GROUP)).items():
        several = len({point.value for point in points}) > 1
        found.update({f"{package_of(point)}:{name}" if several else name: point for point in points})
    return found


def find_tool(specification: str) -> tuple[str, EntryPoint, str]:
    """Return what names a tool alone, its entry point, and its options.

    Args:
        specification: ``NAME`` or ``PACKAGE:NAME``, and behind a colon options. A package's name is that of the
            distribution. What may be both is an option.

    Raises:
        ToolError: there is no such tool, or several packages have one.
    """
    points = find_entry_points()
    first, _, rest = specification.partition(":")
    second, _, options = rest.partition(":")
    in_package = [
        name for name, point in points.items() if point.name == second and _same_package(package_of(point), first)
    ]
    if in_package and (first not in points or second not in _option_fields(_load(first, points[first]))):
        return in_package[0], points[in_package[0]], options
    if first in points:
        return first, points[first], rest
    if clashing := [name for name, point in points.items() if point.name == first]:
        raise ToolError(f"several packages have a tool {first!r}: say {' or '.join(clashing)}")
    hint = did_you_mean(first, points)
    raise ToolError(f"no tool {first!r} is installed; there are {', '.join(sorted(points)) or 'none'}{hint}")


def _same_package(name: str, other: str) -> bool:
    """Return whether two names are of one distribution (PyPA, "Names and normalization")."""
    return _BETWEEN_WORDS.sub("-", name).lower() == _BETWEEN_WORDS.sub("-", other).lower()


_BETWEEN_WORDS = re.compile(r"[-_.]+")


def tool_class(name: str) -> type[Tool]:
    """Import the installed tool called `name`, or ``PACKAGE:NAME``.

    Raises:
        ToolError: there is none, there are several, or it cannot be imported.
    """
    known, point, options = find_tool(name)
    if options:
        raise ToolError(f"{name!r} is no tool's name: leave out the options {options!r}")
    return _load(known, point)


def _load(name: str, point: EntryPoint) -> type[Tool]:
    loaded = load(point, f"tool {name}", ToolError)
    if not (isinstance(loaded, type) and issubclass(loaded, Tool)):
        raise ToolError(f"tool {name}: {point.value} is not a subclass of luthier.Tool")
    loaded.name = name
    return loaded


def _option_fields(tool: type[Tool]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(tool.Options)}


def parse_tools(specifications: Sequence[str]) -> ToolGroup:
    """Make the tools of several specifications; see `parse_tool`.

    Raises:
        ToolError: also if a tool is named twice.
    """
    return ToolGroup([parse_tool(specification) for specification in specifications])


def parse_tool(specification: str) -> Tool:
    """Make a tool from ``name`` or ``name:option=value,option=value``, or from either behind ``package:``.

    Raises:
        ToolError: unknown tool or option, a name that several packages give, or a value of the wrong type.
    """
    name, point, rest = find_tool(specification)
    cls = _load(name, point)
    fields = _option_fields(cls)
    options: dict[str, Any] = {}
    for assignment in filter(None, rest.split(",")):
        key, separator, text = assignment.partition("=")
        field = fields.get(key)
        if field is None:
            hint = did_you_mean(key, fields)
            raise ToolError(f"{cls.label()} has no option {key!r}; it has {', '.join(fields) or 'none'}{hint}")
        if key in options:
            raise ToolError(f"option {key} of {cls.label()} is given twice")
        options[key] = _parse_value(field, text if separator else "true", cls.label())
    return cls(**options)
