"""The options of patching, in one value from the public functions down to the code that is emitted."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, overload

from msgspec import Struct, field
from msgspec.structs import replace

from luthier.tool.counts import CounterBudget
from luthier.tool.hook_budget import HookBudget
from luthier.tool.wave_counts import USUAL_ROOM


class PatchOptions(Struct, frozen=True):
    """The way in which kernels are patched. A task starts with the options of its caller, and a tool may change its own
    task's.
    """

    strict: bool = False
    """Whether a hook or a kernel that cannot be instrumented is an error; otherwise it is left out and reported."""
    hoist: bool | None = None
    """Whether hooks that do nothing but count become counts (`InstrumentationTask.hoist`); None: as usual."""
    solve_sums: bool = False
    """Whether the reader of variables adds what follows from counters (`InstrumentationTask.solve_sums`)."""
    most_stack: int | None = None
    """Bytes of stack that kernels with a dynamic one use at most (`InstrumentationTask.most_stack`); None: unknown."""
    waves_given: bool = True
    """Whether the reader of counters knows how many waves were launched (`InstrumentationTask.waves_given`)."""
    wave_rows: int = USUAL_ROOM
    """Rows of waves that there is room for, over all launches (`InstrumentationTask.wave_rows`)."""
    counter_budget: CounterBudget = field(default_factory=CounterBudget)
    """Registers that counters may use."""
    hook_budget: HookBudget | None = None
    """Registers that hooks may cost; None: as with on_excess *keep*, and unknown to reports."""


class _OptionHolder(Protocol):
    options: PatchOptions


_Value = TypeVar("_Value")


class Option(Generic[_Value]):
    """An attribute that is a field of its owner's `options`, so that each option has one place where it is kept."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, holder: None, owner: Any) -> Option[_Value]: ...

    @overload
    def __get__(self, holder: _OptionHolder, owner: Any) -> _Value: ...

    def __get__(self, holder: _OptionHolder | None, owner: Any) -> Any:
        return self if holder is None else getattr(holder.options, self._name)

    def __set__(self, holder: _OptionHolder, value: _Value) -> None:
        changed: dict[str, Any] = {self._name: value}
        holder.options = replace(holder.options, **changed)
