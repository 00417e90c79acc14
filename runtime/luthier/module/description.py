"""Description of a tool's device module: hooks with their parameters, and variables.

There is one description of each, whether it comes from bitcode, from the build's manifest, or from both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from luthier.channels.mark import is_channel
from luthier.errors import HookError, WaveSizeError
from luthier.isa.targets import TargetId
from luthier.module import llvm_types

_SIGNS = {"int": True, "uint": False, "bool": False}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a hook."""

    name: str
    type: str
    """C++ type as written in the source, or the LLVM type when the source could not be read."""
    kind: str
    """``bool``, ``int`` (signed), ``uint``, ``integer`` (sign not known), ``float``, ``pointer`` or ``vector``."""
    size: int
    """Bytes; 0 when unknown."""
    llvm: str
    """LLVM type in the bitcode, e.g. ``i1``, ``ptr``, ``<4 x float>``."""

    @classmethod
    def of_llvm(cls, llvm: str, name: str = "", signed: bool | None = None) -> Parameter:
        """Return a parameter of which only the bitcode is known."""
        return cls(name, llvm, llvm_types.kind_of(llvm, signed), -(-llvm_types.bits_of(llvm) // 8), llvm)

    @property
    def signed(self) -> bool | None:
        """Return the signedness of an integer, as far as it is known."""
        return _SIGNS.get(self.kind)

    @property
    def in_memory(self) -> bool:
        """Return whether it is a structure that the caller leaves in memory: no hook can have it."""
        return self.llvm == llvm_types.PRIVATE_POINTER  # also `byval`, which the optimizer drops where it can

    def __str__(self) -> str:
        return f"{self.type} {self.name}".strip()


@dataclass(frozen=True)
class Hook:
    """A hook of a tool's module, to be given to `InstrumentationTask.insert_hook_before`."""

    name: str
    """Name as written in the source, e.g. ``count<float>``."""
    symbol: str
    """Name of the function in the bitcode."""
    parameters: tuple[Parameter, ...] = ()
    documentation: str = ""
    location: str = ""
    """``file:line``, with ``:column`` where the source was read; or empty."""
    targets: tuple[str, ...] = ()
    """Targets that have it, when not all do."""
    owner: LoadedModule | None = field(default=None, repr=False)
    """The loaded module that it is a hook of; None for a description alone."""

    @property
    def module(self) -> LoadedModule:
        """Return the module that it is a hook of.

        Raises:
            HookError: it is a description alone.
        """
        if self.owner is None:
            raise HookError(f"hook {self.name} is a description; take it from a ToolModule")
        return self.owner

    def __hash__(self) -> int:  # templates are kept by hook, and looked up for every site
        return hash((self.symbol, id(self.owner)))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})"


@dataclass(frozen=True)
class VariableStorage:
    """Requirements on a variable's place in an object."""

    align: int = 1
    initial: bytes = b""
    """Initial value, of the variable's size."""
    pointers: tuple[tuple[int, str, int], ...] = ()
    """Addresses inside the initial value: (byte offset, symbol, addend)."""
    problem: str = ""
    """Reason why it cannot be placed in an object, or empty."""


@dataclass(frozen=True)
class DeviceVariable:
    """A variable of a tool's module."""

    name: str
    """Name as written in the source, e.g. ``counters::total``."""
    symbol: str
    type: str
    """C++ type, or empty when the source could not be read."""
    size: int
    """Bytes of what the author declared, also when it is managed."""
    managed: bool
    """HIP's symbol holds a pointer to the storage; HIP allocates and publishes it."""
    constant: bool
    documentation: str = ""
    location: str = ""
    storage: VariableStorage = field(
        default=VariableStorage(problem="only its description is known"), compare=False, repr=False
    )

    @property
    def is_state(self) -> bool:
        """Return whether it holds what hooks write and tools read: not a constant, not a channel."""
        return not self.constant and not is_channel(self.storage.initial)


@dataclass(frozen=True)
class DeviceContents:
    """Everything found in one target's bitcode for one wave size, and with it what was compiled for the other."""

    target: TargetId
    hooks: tuple[Hook, ...]
    intrinsics: tuple[str, ...]
    """Names of the intrinsics that hooks call, e.g. ``luthier::readReg.i32.i32``."""
    variables: tuple[DeviceVariable, ...]
    cuid: str
    """The compilation-unit id clang put in the module; empty before clang 18, and where its user says so."""
    llvm: str
    """Version of the LLVM that wrote the bitcode, e.g. ``22.1.8``."""
    bitcode: bytes = b""
    wave_size: int = 0
    """Lanes a wave that it was compiled for; 0 where bitcode of an earlier compiler plugin does not say."""
    other: DeviceContents | None = None
    """Contents for the target's other wave size."""
    lds: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)
    """LDS variables: symbol -> (size, alignment) in bytes."""
    only_added: frozenset[str] = frozenset()
    """Symbols of variables that hooks only add to, without a look at the result. No code on the device reads them, so
    that part of a sum may be somewhere else while kernels run."""
    one_wave_size: str = ""
    """Reason why the target's other wave size is missing, or empty."""
    source: str = ""
    """Name of the source file, as it was given to clang."""

    @property
    def digest(self) -> str:
        """Return a digest that differs where any of its bitcode does."""
        return hashlib.sha256(self.bitcode + (self.other.bitcode if self.other else b"")).hexdigest()

    @property
    def wave_sizes(self) -> tuple[int, ...]:
        """Return the lanes per wave of the kernels that its hooks can go into.

        They are in the order of the target's (`Target.wave_sizes`).
        """
        built = {one.wave_size or self.target.target.default_wave_size for one in (self, self.other) if one}
        return tuple(size for size in self.target.target.wave_sizes if size in built)

    def only_adds_to(self, symbol: str) -> bool:
        """Return whether hooks for neither wave size do anything with a variable but add to it."""
        return all(symbol in one.only_added for one in (self, self.other) if one is not None)

    def for_waves(self, wave_size: int) -> DeviceContents:
        """Return what was compiled for kernels of this wave size.

        Bitcode that does not name its wave size is assumed to fit.

        Raises:
            WaveSizeError: nothing was.
        """
        for one in (self, self.other):
            if one is not None and one.wave_size in (0, wave_size):
                return one
        reason = f" ({self.one_wave_size})" if self.one_wave_size else ""
        raise WaveSizeError(f"built for wave{self.wave_size} alone{reason}, the kernel runs as wave{wave_size}")


def qualified(module: LoadedModule, symbol: str) -> str:
    """Return the name by which code refers to a variable, since other modules may have one of the same name."""
    return f"{symbol}@{id(module):x}"


class LoadedModule(Protocol):
    """The parts of a `ToolModule` that its hooks need."""

    name: str

    @property
    def variables(self) -> Mapping[str, DeviceVariable]:
        """Return the variables by symbol name."""

    def contents_for(self, target: TargetId) -> DeviceContents:
        """Return what was compiled for applications of this target."""
