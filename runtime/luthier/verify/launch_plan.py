"""Launches of kernels without their application: sizes and arguments from a TOML file, or derived from metadata.

A file has a table for each kernel::

    [vector_add]
    grid = [4, 1, 1]      # work-groups
    block = [256, 1, 1]   # work-items
    arguments = [
        { buffer = "float32", count = 1000, fill = "random" },
        { buffer = "float32", count = 1000, fill = "zero" },
        1000,
        { scalar = "float32", value = 0.5 },
        { structure = 24, fields = [             # bytes of a structure by value; all other bytes are zero
            { at = 0, buffer = "int32", count = 16 },
            { at = 16, scalar = "uint32", value = 7 },
        ] },
    ]

Fills are ``zero``, ``random`` (reproducible), ``arange``, or a number.
"""

from __future__ import annotations

import math
import os
import tomllib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.errors import LuthierError
from luthier.objects import Kernel
from luthier.objects.arguments import explicit
from luthier.objects.metadata import KernelArgument

DEFAULT_BUFFER_BYTES = 1 << 16
Dimensions = tuple[int, int, int]


class StructureArgument(Struct, frozen=True):
    """A structure by value."""

    data: bytes
    """Its bytes, with zeros where it points to buffers."""
    buffers: tuple[tuple[int, NDArray[Any]], ...] = ()
    """Byte offsets of pointers, and their buffers."""


Argument = NDArray[Any] | int | float | np.generic | StructureArgument


class LaunchPlan(Struct, frozen=True):
    """One launch of one kernel."""

    kernel: str
    grid: Dimensions
    """Work-groups."""
    block: Dimensions
    """Work-items of a work-group."""
    arguments: tuple[Mapping[str, Any] | int | float, ...]
    dynamic_lds: int = 0
    """Bytes."""

    def materialise(self) -> list[Argument]:
        """Return new arguments, with the same values each time.

        Raises:
            LuthierError: an argument is malformed.
        """
        return [self._argument(index, argument) for index, argument in enumerate(self.arguments)]

    def _argument(self, index: int, argument: Mapping[str, Any] | int | float) -> Argument:
        if isinstance(argument, int | float):
            return argument
        try:
            if "structure" not in argument:
                return self._value(index, argument)
            data, buffers = bytearray(int(argument["structure"])), list[tuple[int, NDArray[Any]]]()
            for number, field in enumerate(argument.get("fields", ())):
                at, value = int(field["at"]), self._value((index, number), field)
                size = 8 if isinstance(value, np.ndarray) else value.nbytes
                if not 0 <= at <= len(data) - size:
                    raise ValueError(f"a field of {size} bytes at byte {at} is outside the structure of {len(data)}")
                if isinstance(value, np.ndarray):
                    buffers.append((at, value))
                else:
                    data[at : at + size] = value.tobytes()
            return StructureArgument(bytes(data), tuple(buffers))
        except (KeyError, MemoryError, OverflowError, TypeError, ValueError) as problem:
            raise LuthierError(f"argument {index + 1} of the launch plan: {problem}", kernel=self.kernel) from None

    def _value(self, place: object, fields: Mapping[str, Any]) -> NDArray[Any] | np.generic:
        """Return a number or a filled buffer; `place` seeds random ones."""
        if "scalar" in fields:
            scalar: np.generic = _number_type(fields["scalar"]).type(fields["value"])
            return scalar
        kind, count = _number_type(fields["buffer"]), int(fields["count"])
        return self._buffer(place, kind, count, fields.get("fill", "zero"))

    def _buffer(self, place: object, kind: np.dtype[Any], count: int, fill: object) -> NDArray[Any]:
        """Return a filled buffer of `count` numbers.

        Raises:
            MemoryError, OverflowError, TypeError, ValueError: the buffer cannot be made.
        """
        if count < 0:
            raise ValueError(f"count must not be negative, but is {count}")
        if fill == "zero":
            return np.zeros(count, kind)
        if fill == "arange":
            return np.arange(count).astype(kind)
        if fill == "random":
            generator = np.random.default_rng(zlib.crc32(f"{self.kernel}/{place}".encode()))
            if kind.kind == "f":
                return generator.uniform(-1, 1, count).astype(kind)
            return generator.integers(0, 100, count).astype(kind)
        if isinstance(fill, int | float):
            return np.full(count, kind.type(fill), kind)
        raise ValueError(f"fill must be zero, random, arange or a number, not {fill!r}")


def _number_type(name: Any) -> np.dtype[Any]:
    """Return the NumPy type of this name.

    Raises:
        TypeError: there is no such type, or it is not numeric.
    """
    kind: np.dtype[Any] = np.dtype(name)
    if kind.kind not in "biufc":
        raise TypeError(f"{name!r} is not a numeric type")
    return kind


def read_plans(path: str | os.PathLike[str]) -> dict[str, LaunchPlan]:
    """Read a file of launch plans: kernel name -> plan.

    Raises:
        LuthierError: the file cannot be read, or is malformed.
    """
    try:
        tables = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as problem:
        raise LuthierError(f"cannot read the launch plan: {problem}", object=os.fspath(path)) from None
    plans = {}
    for kernel, table in tables.items():
        try:
            unknown = table.keys() - {"grid", "block", "arguments", "dynamic_lds"}
            if unknown:
                raise ValueError(f"unknown key {sorted(unknown)[0]!r}")
            dynamic_lds = int(table.get("dynamic_lds", 0))
            if dynamic_lds < 0:
                raise ValueError(f"dynamic_lds must not be negative, but is {dynamic_lds}")
            plans[kernel] = LaunchPlan(
                kernel,
                _dimensions(table["grid"]),
                _dimensions(table["block"]),
                tuple(table.get("arguments", ())),
                dynamic_lds,
            )
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as problem:
            raise LuthierError(f"malformed launch plan: {problem}", object=os.fspath(path), kernel=kernel) from None
    return plans


def _dimensions(value: Any) -> Dimensions:
    sizes = [int(size) for size in (value if isinstance(value, list) else [value])]
    if not 1 <= len(sizes) <= 3 or any(size < 1 for size in sizes):
        raise ValueError(f"a size is one to three positive numbers, not {value!r}")
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


def default_plan(kernel: Kernel) -> LaunchPlan:
    """Return a launch of a kernel from its metadata alone.

    Every pointer gets a buffer of small random numbers, every number is the number of work-items.

    Raises:
        LuthierError: an argument is neither a pointer nor a number.
    """
    grid, block = made_up_sizes(kernel)
    arguments: list[Mapping[str, Any]] = []
    for argument in explicit(kernel):
        made_up = made_up_argument(argument, grid, block)
        if made_up is None:
            raise LuthierError(
                f"cannot make up argument {argument.name or len(arguments) + 1} ({argument.value_kind}, "
                f"{argument.size} bytes); give a launch plan: --write-plan PLAN.toml writes a template",
                kernel=kernel.name,
            )
        arguments.append(made_up)
    return LaunchPlan(kernel.name, grid, block, tuple(arguments))


def made_up_sizes(kernel: Kernel) -> tuple[Dimensions, Dimensions]:
    """Return the made-up number of work-groups, and of work-items of a work-group, for a kernel without a plan."""
    return (2, 1, 1), kernel.required_workgroup or (min(256, kernel.largest_workgroup), 1, 1)


def made_up_argument(argument: KernelArgument, grid: Dimensions, block: Dimensions) -> Mapping[str, Any] | None:
    """Return the entry of a plan for an argument, from its metadata alone; None if none can be made up."""
    if argument.value_kind == "global_buffer":
        return {"buffer": "int32", "count": DEFAULT_BUFFER_BYTES // 4, "fill": "random"}
    if argument.value_kind == "by_value" and argument.size in (1, 2, 4, 8):
        items = math.prod(grid) * math.prod(block)
        return {"scalar": f"uint{8 * argument.size}", "value": items & ((1 << 8 * argument.size) - 1)}
    return None
