"""The options of patching, in one record that the public functions pass down to code emission."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, overload

from msgspec import Struct, field
from msgspec.structs import replace

from luthier.tool.counts import CounterBudget
from luthier.tool.hook_budget import HookBudget
from luthier.tool.wave_counts import USUAL_ROOM


class PatchOptions(Struct, frozen=True):
    """Options of patching. A task starts with the options of its caller; a tool may change those of its own task."""

    strict: bool = False
    """Whether a hook or kernel that cannot be instrumented is an error; otherwise it is left out and reported."""
    hoist: bool | None = None
    """Whether to use counts in place of hooks that only count (`InstrumentationTask.hoist`); None: the default."""
    solve_sums: bool = False
    """Whether the reader of variables adds the sums that follow from counters (`InstrumentationTask.solve_sums`)."""
    most_stack: int | None = None
    """Maximum bytes of dynamic stack that kernels use (`InstrumentationTask.most_stack`); None: unknown."""
    waves_given: bool = True
    """Whether the reader of counters knows the number of launched waves (`InstrumentationTask.waves_given`)."""
    wave_rows: int = USUAL_ROOM
    """Number of rows for waves, over all launches (`InstrumentationTask.wave_rows`)."""
    counter_budget: CounterBudget = field(default_factory=CounterBudget)
    """Registers that counters may use."""
    hook_budget: HookBudget | None = None
    """Registers that hooks may use; None: *keep* (`HookBudget.on_excess`), without a report."""


class _OptionHolder(Protocol):
    options: PatchOptions


_Value = TypeVar("_Value")


class Option(Generic[_Value]):
    """An attribute that reads and writes the field of the same name in its owner's `options`."""

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
