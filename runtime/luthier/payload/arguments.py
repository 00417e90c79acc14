"""The arguments that a hook is compiled with, and what comes of that."""

from __future__ import annotations

from msgspec import Struct

from luthier.payload.expressions import Expression
from luthier.payload.plain import PlainCount


class ConstantArgument(Struct, frozen=True):
    """A hook argument fixed at instrumentation time, as an LLVM constant of the parameter's type."""

    text: str


class RegisterArgument(Struct, frozen=True):
    """A hook argument read from registers where the payload runs; which registers is decided at each point."""

    uniform: bool
    """In scalar registers: one value a wave. Otherwise in vector registers: one a lane."""


class LaunchArgument(Struct, frozen=True):
    """A hook argument that is part of what the kernel got at launch."""

    intrinsic: str
    """LLVM's intrinsic for it: one that gives an ``i32``, or the pointer to the kernel's arguments."""
    offset: int | None = None
    """Offset of a kernel argument, in bytes."""


class ComputedArgument(Struct, frozen=True):
    """A hook argument computed where the payload runs; from which registers is decided at each point."""

    expression: Expression


class EveryWorkGroup(Struct, frozen=True):
    """A payload that runs in some work-groups only: those whose x and y together, modulo `every`, are `first`. (A
    kernel of GFX12 may have y without z, and then hooks cannot have z.)"""

    every: int
    first: int = 0


Argument = ConstantArgument | RegisterArgument | LaunchArgument | ComputedArgument


class Input(Struct, frozen=True):
    """A 32-bit value the payload takes from the application."""

    uniform: bool
    argument: int | None
    """Index of the hook argument it is part of, or None for a state or a fixed register."""
    unit: int
    """32-bit part of that argument or state, input of an argument that is computed, or the fixed register unit that the
    hook itself reads."""
    state: str = ""
    """Name of the launch state it is part of (`luthier.payload.launch_state.STATES`), or empty."""
    immediate: bool = False
    """It is no register but a number of the point's own."""


class PayloadAssembly(Struct, frozen=True):
    """A payload as assembly text, with what its markers mean."""

    text: str
    inputs: tuple[Input, ...]
    outputs: tuple[int, ...]
    """Register unit that output N is written to."""
    runs_without_lanes: bool
    writes_inactive_lanes: bool
    plain: PlainCount | None = None
    """Count that it makes, if it does nothing else."""
    ordered: bool = False
    """The hook asks for an order of memory accesses, so its waits may be there for that."""
    lds: int = 0
    """Bytes of LDS that a work-group needs more, for all that the hook's module has there; 0 if it uses none."""
