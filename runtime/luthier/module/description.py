"""Description of a tool's device module: hooks with parameters, and variables.

The same classes describe what comes from bitcode, from the build's manifest, or from both.
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
    """C++ type as written in the source, or LLVM type if the source could not be read."""
    kind: str
    """``bool``, ``int`` (signed), ``uint``, ``integer`` (unknown sign), ``float``, ``pointer`` or ``vector``."""
    size: int
    """Bytes; 0 if unknown."""
    llvm: str
    """LLVM type in the bitcode, e.g. ``i1``, ``ptr``, ``<4 x float>``."""

    @classmethod
    def of_llvm(cls, llvm: str, name: str = "", signed: bool | None = None) -> Parameter:
        """Return a parameter that is known from bitcode only."""
        return cls(name, llvm, llvm_types.kind_of(llvm, signed), -(-llvm_types.bits_of(llvm) // 8), llvm)

    @property
    def signed(self) -> bool | None:
        """Return whether an integer is signed; None if unknown."""
        return _SIGNS.get(self.kind)

    @property
    def in_memory(self) -> bool:
        """Return whether it is a structure passed in memory, which hooks cannot take."""
        return self.llvm == llvm_types.PRIVATE_POINTER  # also `byval`, which the optimizer may drop

    def __str__(self) -> str:
        return f"{self.type} {self.name}".strip()


@dataclass(frozen=True)
class Hook:
    """A hook of a tool's module, for `InstrumentationTask.insert_hook_before`."""

    name: str
    """Name as written in the source, e.g. ``count<float>``."""
    symbol: str
    """Name of the function in the bitcode."""
    parameters: tuple[Parameter, ...] = ()
    documentation: str = ""
    location: str = ""
    """``file:line``, with ``:column`` if the source was read; or ""."""
    targets: tuple[str, ...] = ()
    """Targets that have it, if not all do."""
    owner: LoadedModule | None = field(default=None, repr=False)
    """Its loaded module; None for a mere description."""

    @property
    def module(self) -> LoadedModule:
        """Return its module.

        Raises:
            HookError: it is a mere description.
        """
        if self.owner is None:
            raise HookError(f"hook {self.name} is only a description: take it from a ToolModule")
        return self.owner

    def __hash__(self) -> int:  # templates are cached by hook, and looked up for every site
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
    """Reason why it cannot be placed in an object, or ""."""


@dataclass(frozen=True)
class DeviceVariable:
    """A variable of a tool's module."""

    name: str
    """Name as written in the source, e.g. ``counters::total``."""
    symbol: str
    type: str
    """C++ type, or "" if the source could not be read."""
    size: int
    """Bytes of the declared variable, also if it is managed."""
    managed: bool
    """Whether HIP's symbol is a pointer to the storage, which HIP allocates and publishes."""
    constant: bool
    documentation: str = ""
    location: str = ""
    storage: VariableStorage = field(
        default=VariableStorage(problem="only its description is known"), compare=False, repr=False
    )

    @property
    def is_state(self) -> bool:
        """Return whether hooks write it and tools read it: it is neither a constant nor a channel."""
        return not self.constant and not is_channel(self.storage.initial)


@dataclass(frozen=True)
class DeviceContents:
    """Contents of a target's bitcode for one wave size, with those for the other."""

    target: TargetId
    hooks: tuple[Hook, ...]
    intrinsics: tuple[str, ...]
    """Names of the intrinsics that hooks call, e.g. ``luthier::readReg.i32.i32``."""
    variables: tuple[DeviceVariable, ...]
    cuid: str
    """Compilation-unit ID from clang; "" before clang 18, or if the user disabled it."""
    llvm: str
    """Version of the LLVM that wrote the bitcode, e.g. ``22.1.8``."""
    bitcode: bytes = b""
    wave_size: int = 0
    """Wave size for which it was compiled; 0 for bitcode of earlier compiler plugins."""
    other: DeviceContents | None = None
    """Contents for the target's other wave size."""
    lds: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)
    """LDS variables: symbol -> (size, alignment) in bytes."""
    only_added: frozenset[str] = frozenset()
    """Symbols of variables that hooks only add to, without using the result. No device code reads them, so part of a
    sum may be kept elsewhere while kernels run."""
    one_wave_size: str = ""
    """Reason why the target's other wave size is missing, or ""."""
    source: str = ""
    """Name of the source file, as passed to clang."""

    @property
    def digest(self) -> str:
        """Return a digest of all its bitcode."""
        return hashlib.sha256(self.bitcode + (self.other.bitcode if self.other else b"")).hexdigest()

    @property
    def wave_sizes(self) -> tuple[int, ...]:
        """Return the wave sizes of kernels in which its hooks can run, in the order of the target's
        (`Target.wave_sizes`).
        """
        built = {one.wave_size or self.target.target.default_wave_size for one in (self, self.other) if one}
        return tuple(size for size in self.target.target.wave_sizes if size in built)

    def only_adds_to(self, symbol: str) -> bool:
        """Return whether hooks for both wave sizes only add to a variable."""
        return all(symbol in one.only_added for one in (self, self.other) if one is not None)

    def for_waves(self, wave_size: int) -> DeviceContents:
        """Return the contents for kernels of this wave size.

        Bitcode without a wave size is assumed to fit.

        Raises:
            WaveSizeError: there are none.
        """
        for contents in (self, self.other):
            if contents is not None and contents.wave_size in (0, wave_size):
                return contents
        reason = f" ({self.one_wave_size})" if self.one_wave_size else ""
        raise WaveSizeError(f"built for wave{self.wave_size} only{reason}, but the kernel runs as wave{wave_size}")


def qualified(module: LoadedModule, symbol: str) -> str:
    """Return the name of a variable in code, unique among modules."""
    return f"{symbol}@{id(module):x}"


class LoadedModule(Protocol):
    """Interface of a `ToolModule` for its hooks."""

    name: str

    @property
    def variables(self) -> Mapping[str, DeviceVariable]:
        """Return the variables by symbol name."""

    def contents_for(self, target: TargetId) -> DeviceContents:
        """Return the contents for applications of this target."""
