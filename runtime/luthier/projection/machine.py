"""Machine models: the numbers of a GPU that times are projected with, as data, each with its source.

A model is a TOML file (or JSON) of `MachineModel`'s fields. Each number is a table ``{value, unit, source}``. With
``base = "NAME"`` a file only has what differs from a built-in model. Registers, waves, SIMDs and LDS of a compute unit
are facts of the processor (`luthier.arch`).
"""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from luthier.arch.target import Target
from luthier.arch.targets import TARGETS, target_named
from luthier.errors import LuthierError
from luthier.support.suggestions import did_you_mean

_FOLDER = Path(__file__).parent / "machines"
_ABSTRACT = frozenset(("cdna", "rdna"))
"""Files that only other files build on."""


class Quantity(Struct, frozen=True, forbid_unknown_fields=True):
    """A number of a machine."""

    value: float
    unit: str
    source: str
    """Document, measurement, or ``estimate`` with its reason."""


UNITS: Mapping[str, str] = {
    "clock": "MHz",
    "compute_units": "compute units",
    "launch_overhead": "us",
    "workgroup_launch": "cycles",
    "issue": "cycles",
    "valu_lanes": "lanes/cycle",
    "valu_latency": "cycles",
    "trans_factor": "issues",
    "f64_factor": "issues",
    "wide_factor": "issues",
    "multiply_factor": "issues",
    "convert_factor": "issues",
    "trans_latency": "cycles",
    "f64_latency": "cycles",
    "matrix_pass": "cycles",
    "matrix_16bit": "cycles",
    "matrix_8bit": "cycles",
    "salu_issue": "cycles",
    "salu_latency": "cycles",
    "branch_taken": "cycles",
    "branch_not_taken": "cycles",
    "vector_to_memory": "cycles",
    "barrier": "cycles",
    "lds_latency": "cycles",
    "lds_pair_lanes": "lanes/cycle",
    "address_lanes": "lanes/cycle",
    "quad_rate": "quads/cycle",
    "l1_size": "KiB",
    "l1_width": "bytes/cycle",
    "return_width": "bytes/cycle",
    "l1_latency": "cycles",
    "l1_drift": "share",
    "scalar_size": "KiB",
    "scalar_line": "bytes",
    "scalar_latency": "cycles",
    "l2_size": "KiB",
    "l2_line": "bytes",
    "l2_width": "bytes/cycle",
    "l2_latency": "cycles",
    "mall_size": "KiB",
    "mall_bandwidth": "GB/s",
    "mall_latency": "ns",
    "memory_bandwidth": "GB/s",
    "memory_efficiency": "share",
    "memory_latency": "ns",
    "fetch_width": "bytes/cycle",
}
"""Field -> its unit."""
SIZES = frozenset(("compute units", "bytes", "KiB"))
"""Units of numbers that are facts of a GPU."""
_MAY_BE_ZERO = frozenset(
    (
        *("launch_overhead", "workgroup_launch", "valu_latency", "trans_latency", "f64_latency", "salu_latency"),
        *("vector_to_memory", "matrix_pass", "matrix_16bit", "matrix_8bit", "mall_size", "mall_bandwidth"),
        *("mall_latency", "barrier", "lds_pair_lanes", "l1_drift"),
    )
)
"""Fields whose value may be 0: the machine has no such delay, or no such thing."""


class MachineModel(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Numbers of a GPU. A latency is that of one operation alone; a *wave* has as many lanes as the kernel's waves."""

    name: str
    """The product."""
    processor: str
    """As LLVM names it, e.g. ``gfx942``."""
    validation: str = ""
    """Errors of projected times compared with measured ones; empty: never compared."""

    clock: Quantity
    compute_units: Quantity
    launch_overhead: Quantity
    """Time of a kernel that does nothing."""
    workgroup_launch: Quantity
    """Time between the starts of two work-groups on the device."""

    issue: Quantity
    """Time between two instructions of a wave."""
    valu_lanes: Quantity
    """Lanes of a 32-bit vector operation that a SIMD begins in a cycle."""
    valu_latency: Quantity
    """Time from the end of issue of a vector operation to that of an instruction that reads its result."""
    trans_factor: Quantity
    """Issue time of a transcendental operation, as a multiple of that of a 32-bit operation; likewise:"""
    f64_factor: Quantity
    wide_factor: Quantity
    """Of a 64-bit integer operation."""
    multiply_factor: Quantity
    """Of a 32-bit integer multiplication."""
    convert_factor: Quantity
    """Of a conversion between 32-bit integers, 32-bit and 16-bit floating-point numbers, except of bytes."""
    trans_latency: Quantity
    """As `valu_latency`."""
    f64_latency: Quantity
    matrix_pass: Quantity
    """Of a pass of MFMA (`Generation.passes`); 0: there is none."""
    matrix_16bit: Quantity
    """Of a 16x16x16 WMMA of 16-bit numbers; 0: there is none."""
    matrix_8bit: Quantity
    """Of a 16x16x16 WMMA of numbers of at most 8 bits."""
    salu_issue: Quantity
    """Time that a scalar operation takes of the SIMD's share of the scalar unit."""
    salu_latency: Quantity
    """As `valu_latency`."""
    branch_taken: Quantity
    branch_not_taken: Quantity
    vector_to_memory: Quantity
    """Time from the issue of a vector operation to that of a memory instruction that reads its result."""
    barrier: Quantity
    """Time from the last wave's arrival at a barrier until waves continue."""

    lds_latency: Quantity
    """Of one access without conflicts, without the cycles that it takes of LDS."""
    lds_pair_lanes: Quantity
    """Lanes of an instruction with two addresses that LDS serves in a cycle, each address counted; 0: no such limit."""
    address_lanes: Quantity
    """Addresses of vector memory instructions that a compute unit takes in a cycle."""
    quad_rate: Quantity
    """Quads of neighbouring lanes that the vector cache looks up; lanes whose bytes are apart count as quads."""
    l1_size: Quantity
    """Of the vector cache of a compute unit."""
    l1_width: Quantity
    """That a compute unit's vector cache delivers."""
    return_width: Quantity
    """Of loads' results to registers, of all lanes of the wave, for a compute unit."""
    l1_latency: Quantity
    l1_drift: Quantity
    """Of the lines that waves without barriers would share if they stayed in step, the share that a vector cache
    smaller than the data of a work-group loses before the next wave reads them."""
    scalar_size: Quantity
    scalar_line: Quantity
    scalar_latency: Quantity
    l2_size: Quantity
    """That one compute unit can use."""
    l2_line: Quantity
    l2_width: Quantity
    """Of the whole device."""
    l2_latency: Quantity
    mall_size: Quantity
    """Of the cache on the side of memory (Infinity Cache); 0: there is none."""
    mall_bandwidth: Quantity
    mall_latency: Quantity
    memory_bandwidth: Quantity
    """As specified."""
    memory_efficiency: Quantity
    """Share of it that a stream of reads and writes gets."""
    memory_latency: Quantity
    fetch_width: Quantity
    """Of instructions, for a compute unit."""

    def __post_init__(self) -> None:
        target_named(self.processor)
        for name, unit in UNITS.items():
            quantity: Quantity = getattr(self, name)
            least = 0.0 if name in _MAY_BE_ZERO else 1e-6
            if quantity.unit != unit:
                raise LuthierError(f"{name} of machine {self.name} must be in {unit}, not {quantity.unit!r}")
            if not least <= quantity.value < 1e12:
                raise LuthierError(
                    f"{name} of machine {self.name} must be {'at least' if least == 0 else 'more than'} 0, "
                    f"not {quantity.value:g}"
                )
            if unit == "share" and quantity.value > 1:
                raise LuthierError(f"{name} of machine {self.name} must be at most 1, not {quantity.value:g}")
            if unit == "compute units" and (quantity.value < 1 or quantity.value % 1):
                raise LuthierError(f"{name} of machine {self.name} must be a whole number, not {quantity.value:g}")
            if unit == "bytes" and (quantity.value < 4 or quantity.value % 4):
                raise LuthierError(f"{name} of machine {self.name} must be a multiple of 4, not {quantity.value:g}")
            if not quantity.source.strip():
                raise LuthierError(f"{name} of machine {self.name} has no source: say where its value is from")

    @property
    def target(self) -> Target:
        """Return the facts of its processor."""
        return target_named(self.processor)

    def cycles(self, nanoseconds: float) -> float:
        """Return a time in cycles."""
        return nanoseconds * self.clock.value / 1000

    def bytes_per_cycle(self, gigabytes_per_second: float) -> float:
        """Return a bandwidth per cycle."""
        return gigabytes_per_second * 1000 / self.clock.value

    def value(self, name: str) -> float:
        """Return the value of a field of `UNITS`."""
        quantity: Quantity = getattr(self, name)
        return quantity.value

    def with_values(self, values: Mapping[str, float], source: str) -> MachineModel:
        """Return the machine with other values from one source, such as a calibration; it was never validated.

        Raises:
            LuthierError: there is no such number, or a value is out of range.
        """
        if unknown := next((name for name in values if name not in UNITS), None):
            raise LuthierError(f"machines have no number {unknown!r}{did_you_mean(unknown, UNITS)}")
        changed = {name: Quantity(float(value), UNITS[name], source) for name, value in values.items()}
        return msgspec.structs.replace(self, validation="", **changed)


def machine_names() -> tuple[str, ...]:
    """Return the names of the built-in models."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml") if path.stem not in _ABSTRACT))


@functools.cache
def machine_named(name: str) -> MachineModel:
    """Return the built-in model of this name, or of the GPU that stands for a processor such as ``gfx942``.

    Raises:
        LuthierError: there is none.
    """
    names = machine_names()
    wanted = name.lower().replace(" ", "").removeprefix("emu:").partition(":")[0]
    if wanted in names:
        return _model(_merged(wanted), wanted)
    if wanted in TARGETS:
        defaults = [one for one in names if _raw(one).get("default") and _raw(one).get("processor") == wanted]
        if defaults:
            return _model(_merged(defaults[0]), defaults[0])
        raise LuthierError(
            f"no machine model for {wanted}; there are {', '.join(names)}: give others by --machine FILE"
        )
    raise LuthierError(f"no machine model {name!r}{did_you_mean(wanted, names)}; there are {', '.join(names)}")


def read_machine(path: str | Path) -> MachineModel:
    """Return the model in a TOML or JSON file.

    Raises:
        LuthierError: it cannot be read, or its numbers are incomplete or invalid.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as problem:
        raise LuthierError(f"cannot read: {problem.strerror or problem}", object=str(path)) from None
    except ValueError as problem:
        raise LuthierError(f"not a machine model: {problem}", object=str(path)) from None
    if not isinstance(values, dict):
        raise LuthierError("not a machine model: must be a table", object=str(path))
    base = values.pop("base", None)
    if base is not None and base not in (*machine_names(), *_ABSTRACT):
        raise LuthierError(f"base {base!r} is not a built-in model: {', '.join(machine_names())}", object=str(path))
    if base is not None:
        values = {**_merged(base), "validation": "", **values}
    return _model(values, str(path))


def _raw(name: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text())


def _merged(name: str) -> dict[str, Any]:
    """Return the fields of a built-in model, with those of its base."""
    values = _raw(name)
    base = values.pop("base", None)
    return {**_merged(base), "validation": "", **values} if base else values


def _model(values: dict[str, Any], where: str) -> MachineModel:
    try:
        return msgspec.convert({name: value for name, value in values.items() if name != "default"}, MachineModel)
    except msgspec.ValidationError as problem:
        raise LuthierError(f"not a machine model: {problem}", object=where) from None
    except LuthierError as problem:
        raise LuthierError(problem.message, object=where) from None
