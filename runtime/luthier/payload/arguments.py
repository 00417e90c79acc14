"""The arguments with which a hook is compiled, and the resulting assembly."""

from __future__ import annotations

from msgspec import Struct

from luthier.payload.expressions import Expression
from luthier.payload.plain import PlainCount


class ConstantArgument(Struct, frozen=True):
    """A hook argument that is an LLVM constant of the parameter's type."""

    text: str


class RegisterArgument(Struct, frozen=True):
    """A hook argument read from registers where the payload runs; each point determines the registers."""

    uniform: bool
    """Whether it is in scalar registers, with one value per wave; otherwise in vector registers, with one per lane."""


class LaunchArgument(Struct, frozen=True):
    """A hook argument that is part of the kernel's launch state."""

    intrinsic: str
    """LLVM's intrinsic for it, which returns an ``i32`` or the pointer to the kernel's arguments."""
    offset: int | None = None
    """Offset of a kernel argument in bytes."""


class ComputedArgument(Struct, frozen=True):
    """A hook argument computed where the payload runs; each point determines its input registers."""

    expression: Expression


class EveryWorkGroup(Struct, frozen=True):
    """Work-groups in which a payload runs: those whose x + y equals `first` modulo `every`. z is not used, because
    hooks cannot read it in a GFX12 kernel that enables only y."""

    every: int
    first: int = 0


Argument = ConstantArgument | RegisterArgument | LaunchArgument | ComputedArgument


class Input(Struct, frozen=True):
    """A 32-bit value that the payload takes from the application."""

    uniform: bool
    argument: int | None
    """Index of the hook argument to which it belongs, or None for a state or a fixed register."""
    unit: int
    """32-bit part of that argument or state, input of a computed argument, or the fixed register unit that the hook
    reads."""
    state: str = ""
    """Name of the launch state to which it belongs (`luthier.payload.launch_state.STATES`), or empty."""
    immediate: bool = False
    """Whether it is a per-point number instead of a register."""


class PayloadAssembly(Struct, frozen=True):
    """A payload as assembly text, with the meanings of its markers."""

    text: str
    inputs: tuple[Input, ...]
    outputs: tuple[int, ...]
    """Register unit to which each output is written."""
    runs_without_lanes: bool
    writes_inactive_lanes: bool
    plain: PlainCount | None = None
    """The count that it performs, if it does nothing else."""
    ordered: bool = False
    """Whether the hook orders memory accesses, so that its waits must be kept."""
    lds: int = 0
    """Bytes of LDS that a work-group needs in addition, for all variables of the hook's module; 0 if it uses none."""
