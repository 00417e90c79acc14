"""`Tool`, the base class of tools; parsing of tool options; and the search for installed tools."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
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

    from luthier.findings.finding import Finding, Unchecked
    from luthier.isa.targets import TargetId
    from luthier.support.table import Table
    from luthier.tool.counts import KernelCounts
    from luthier.tool.observation import ApiEvent, Launch, LiveChannel, LoadedObject, Run
    from luthier.tool.task import InstrumentationTask

ENTRY_POINT_GROUP = "luthier.tools"
OWN_PACKAGE = "luthier"
"""Luthier's own distribution, whose wheels contain tools."""


@dataclass(frozen=True)
class ExecutionCounts:
    """Executions of each instruction of a kernel, by instruction index of its lifted representation.

    The emulator counts them itself; they are the reference for verification.
    """

    executions: NDArray[np.int64]
    """[n] executions by waves."""
    active_lanes: NDArray[np.int64]
    """[n] sum of the lanes active in EXEC over these executions."""


class Tool:
    """Base class of tools.

    A tool is a package with a device module (hooks in HIP) and a subclass of this, named in the entry-point group
    ``luthier.tools``. Options are the fields of a nested dataclass ``Options``, given on the command line as
    ``tool:field=value,field=value``.
    """

    @dataclass(frozen=True)
    class Options:
        """A tool without options."""

    reads_clock: ClassVar[bool] = False
    """Whether its results are times of the device's clock, which virtual devices do not have; results then say so."""
    reset_each_launch: ClassVar[bool] = False
    """Under `luthier run`, whether to reset the tool's variables to their initial values before every launch."""
    hsa_events: ClassVar[Sequence[str]] = ("*",)
    """Names or patterns of the HSA functions for which `at_hsa_event` is called under `luthier run`."""
    hip_events: ClassVar[Sequence[str]] = ("*",)
    """Names or patterns of the HIP functions for which `at_hip_event` is called under `luthier run`."""
    memory_events: ClassVar[Sequence[str]] = ("*",)
    """Names or patterns of the events for which `at_memory_event` is called."""
    name: ClassVar[str] = ""
    """Name on the command line, set from the entry point; prefixed by the package if several have such a tool."""

    def __init__(self, **options: Any) -> None:
        fields = _option_fields(type(self))
        for key in options:
            if key not in fields:
                raise ToolError(f"{self.label()} has no option {key!r}; it has {', '.join(fields) or 'none'}")
        self.options: Any = self.Options(**options)

    @classmethod
    def label(cls) -> str:
        """Return the name of the tool in errors."""
        return f"tool {cls.name or cls.__name__}"

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert hooks into one kernel."""
        raise NotImplementedError

    def why_idle(self) -> str:
        """Return why nothing was inserted, for the error that ends the command; empty if no reason is known."""
        return ""

    def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
        """Return the values that the tool's variables must have after one launch that starts from initial values.

        Args:
            task: the instrumented kernel.
            counts: executions of each instruction in the original kernel.

        Returns:
            Variable name -> value as an integer; empty if the tool cannot predict its results. Counts of
            `InstrumentationTask.count` that go to no variable are always compared.
        """
        return {}

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        """Return tables of the counts of one kernel.

        Args:
            counts: the counts that all tools requested without a variable.
        """
        return ()

    # The methods below are called under `luthier run`, in the service's process, one at a time.

    def at_init(self, run: Run) -> None:
        """Handle the imminent start of the program."""

    def at_code_object(self, loaded: LoadedObject) -> None:
        """Handle a code object that a process has loaded on a device."""

    def at_kernel_launch(self, launch: Launch) -> None:
        """Handle the imminent launch of a kernel; nothing else runs on the device.

        Set ``launch.instrumented = False`` to run the original kernel. A tool that overrides this method or
        `at_kernel_end` serialises launches.
        """

    def at_kernel_end(self, launch: Launch) -> None:
        """Handle the end of a launch."""

    def at_records(self, channel: LiveChannel, batch: NDArray[Any]) -> None:
        """Handle records of one of the tool's channels, while the program runs or just afterwards.

        Records arrive before `at_kernel_end` of the launch that pushed them. If a tool does not override this method,
        they are written to the run directory.

        Args:
            channel: the channel on one device of one process.
            batch: [n] of ``channel.dtype``, in the order of tickets, or the result of `unpacked`. The tool may keep it.
        """

    def unpacked(self, channel: LiveChannel, batch: NDArray[Any]) -> NDArray[Any]:
        """Expand the records of a batch to those for `at_records` and for tables in the run directory.

        This is for tools whose hooks push compact records, such as one for all lanes of a wave. All batches of a
        channel must expand to records of one type.

        Args:
            channel: as for `at_records`.
            batch: [n] of ``channel.dtype``; at most 4,096, since each may expand to many.
        """
        return batch

    def at_hsa_event(self, event: ApiEvent) -> None:
        """Handle the begin or the end of a call of one of the functions `hsa_events`.

        Events of a thread arrive in order, shortly after they happened: the program does not wait.
        """

    def at_hip_event(self, event: ApiEvent) -> None:
        """Handle the begin or the end of a call of one of the functions `hip_events`, like `at_hsa_event`.

        The earliest event is the end of the call that initialises HIP.
        """

    def at_memory_event(self, event: ApiEvent) -> None:
        """Handle an event of memory that the program allocates from HIP, like `at_hsa_event`.

        Events have no end. Their names and arguments are:

        - ``allocated`` (``address``, the requested ``size``, and the bytes ``reserved`` exclusively for it);
        - ``freed`` (``address``): the program has freed the memory, which is kept for a while;
        - ``forgotten`` (``address``): the memory was returned to HIP;
        - ``complained`` (``kind``, a `luthier.findings.kinds.FindingKind`, ``address``, ``base``, ``size``): the freed
          address is not an allocation, or was freed before.

        If a tool overrides this method, allocations are enlarged and freed later, as under `luthier sanitize`.
        """

    def at_exit(self, run: Run) -> None:
        """Handle the end of the program; `report` is called next."""

    def report(self, run: Run) -> Iterable[Table]:
        """Return the results of the run as tables.

        By default: the sums of all variables that are a single number, and `tables` of the counts.
        """
        from luthier.support.table import Table

        names = dict.fromkeys(variable.name for variable in run.variables() if variable.number is not None)
        sums = [Table("", ("variable", "value"), [(name, run.total(name)) for name in names])] if names else []
        return [*sums, *(table for counts in run.counts() for table in self.tables(counts))]

    def findings(self, run: Run) -> Iterable[Finding]:
        """Return the errors of the program that the tool has found, for ``luthier sanitize --device hip``."""
        return ()

    def unchecked(self, run: Run) -> Iterable[Unchecked]:
        """Return what the tool could not check, for the same command."""
        return ()


def failed(tool: Tool, function: str, problem: BaseException) -> str:
    """Return a message about an exception in a tool's code: tool, function, file and line, and the exception.

    The line is the innermost one outside Luthier, and outside the generated module that looks up hooks.
    """
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_OURS) and _LOOKUP not in (frame.line or "")]
    own = own or frames
    where = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    text = f": {problem}" if str(problem) else ""
    return f"{tool.label()} failed in {function}{where}: {type(problem).__name__}{text}"


_LOOKUP = "_ToolModule.from_package("
"""In the line that looks up a hook, of modules that `luthier_build` generates."""
_OURS = str(Path(__file__).parent.parent) + os.sep
"""Prefix of the paths of Luthier's files."""


class TaskShare(NamedTuple):
    """The part of a task that one tool requested."""

    hooks: range
    """Positions in ``task.insertions``."""
    counts: range
    """Positions in ``task.counts``."""


class ToolGroup:
    """Tools that instrument together. At one point, hooks run in the order of their tools.

    Args:
        tools: in the order in which they instrument.

    Attributes:
        inserted: number of hooks, counts and edits that each tool has requested in all tasks so far.

    Raises:
        ToolError: an installed tool occurs twice, which would duplicate its variables.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tuple(tools)
        names = [tool.name for tool in self.tools if tool.name]
        for name in names:
            if names.count(name) > 1:
                raise ToolError(f"tool {name} is given {names.count(name)} times: give it once")
        self.inserted = [0] * len(self.tools)

    @classmethod
    def of(cls, tools: Tool | ToolGroup | Sequence[Tool]) -> ToolGroup:
        """Return a group of one tool or several; a group is returned unchanged."""
        if isinstance(tools, ToolGroup):
            return tools
        return cls([tools] if isinstance(tools, Tool) else tools)

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert the hooks of all tools into one kernel."""
        self.instrument_each(task)

    def instrument_each(self, task: InstrumentationTask) -> list[TaskShare]:
        """Let each tool instrument the kernel, and return the share of each."""
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

    def follow_sources(self, target: TargetId | None = None) -> None:
        """Rebuild the device modules of tools whose packages are built in their source trees, if sources changed.

        Args:
            target: target of an application for which there must be code, if possible.

        Raises:
            LuthierError: changed sources cannot be built.
        """
        for name in dict.fromkeys(type(tool).__module__ for tool in self.tools):
            file = getattr(sys.modules.get(name), "__file__", None)
            if file is not None and any(Path(file).parent.glob("*.hipfb")):
                from luthier.module.packages import follow_sources  # slow to import

                follow_sources(Path(file).parent, target)

    @property
    def watches_memory(self) -> bool:
        """Return whether a tool overrides `Tool.at_memory_event`."""
        return any(type(tool).at_memory_event is not Tool.at_memory_event for tool in self.tools)

    @property
    def idle(self) -> list[Tool]:
        """Return the tools that inserted nothing."""
        return [tool for tool, count in zip(self.tools, self.inserted, strict=True) if not count]


def _parse_value(field: dataclasses.Field[Any], text: str, tool: str) -> Any:
    kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    try:
        if kind == "bool":
            return _TRUTH[text.lower()]
        if kind == "int":
            return int(text, 0)
        if kind == "float":
            return float(text)
    except (KeyError, ValueError):
        expected = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise ToolError(f"option {field.name} of {tool} must be {expected}, not {text!r}") from None
    if kind != "str":
        raise ToolError(f"option {field.name} of {tool} has type {kind}, which cannot be given on the command line")
    return text


_TRUTH = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


def tools_by_name() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of installed tools by name, without importing them.

    Tools of Luthier's own distribution are left out if another one has a tool of that name.
    """
    every = by_name(points_of(ENTRY_POINT_GROUP))
    added = {name: tuple(point for point in every[name] if package_of(point) != OWN_PACKAGE) for name in every}
    return {name: added[name] or every[name] for name in every}


def find_entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of `tools_by_name` by unique name.

    The unique name is ``NAME``, or ``PACKAGE:NAME`` if several packages install a tool of that name.
    """
    by_unique_name = {}
    for name, points in tools_by_name().items():
        several = len({point.value for point in points}) > 1
        by_unique_name.update({f"{package_of(point)}:{name}" if several else name: point for point in points})
    return by_unique_name


def find_tool(specification: str) -> tuple[str, EntryPoint, str]:
    """Return the unique name of a tool, its entry point, and its options.

    Args:
        specification: ``NAME`` or ``PACKAGE:NAME``, optionally followed by a colon and options. PACKAGE is the name of
            the distribution. If the second part may be either a name or an option, it is an option.

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
        raise ToolError(f"several packages have a tool {first!r}: use {' or '.join(clashing)}")
    hint = did_you_mean(first, points)
    raise ToolError(f"no tool {first!r} is installed; installed are {', '.join(sorted(points)) or 'none'}{hint}")


def _same_package(name: str, other: str) -> bool:
    """Return whether two names denote the same distribution (PyPA, "Names and normalization")."""
    return _BETWEEN_WORDS.sub("-", name).lower() == _BETWEEN_WORDS.sub("-", other).lower()


_BETWEEN_WORDS = re.compile(r"[-_.]+")


def tool_class(name: str) -> type[Tool]:
    """Import an installed tool, given as ``NAME`` or ``PACKAGE:NAME``.

    Raises:
        ToolError: there is no such tool, there are several, or it cannot be imported.
    """
    unique_name, point, options = find_tool(name)
    if options:
        raise ToolError(f"{name!r} is not the name of a tool: leave out the options {options!r}")
    return _load(unique_name, point)


def _load(name: str, point: EntryPoint) -> type[Tool]:
    loaded = load(point, f"tool {name}", ToolError)
    if not (isinstance(loaded, type) and issubclass(loaded, Tool)):
        raise ToolError(f"tool {name}: {point.value} is not a subclass of luthier.Tool")
    loaded.name = name
    return loaded


def _option_fields(tool: type[Tool]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(tool.Options)}


def parse_tools(specifications: Sequence[str]) -> ToolGroup:
    """Create tools from several specifications; see `parse_tool`.

    Raises:
        ToolError: as for `parse_tool`, or a tool is named twice.
    """
    return ToolGroup([parse_tool(specification) for specification in specifications])


def parse_tool(specification: str) -> Tool:
    """Create a tool from ``[package:]name[:option=value,option=value]``.

    Raises:
        ToolError: the tool or an option is unknown, several packages have a tool of that name, or a value has the wrong
            type.
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
