"""Measure on the emulated device what drawn configurations of timed kernels do; one file for each, kept.

    python benchmarks/projection/measure_kernels.py CHECKOUT CACHE --kernel convolution --gpu MI250X --count 60

A configuration whose file is in CACHE is not measured again, so the command can be interrupted and repeated, and a
larger --count continues a smaller one. CACHE gets code objects and counts, no measured times. Use a new one after a
change of what `luthier.projection.measure` counts.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import luthier
import msgspec
import numpy as np
from kernel_launches import SOURCES, KernelLaunch, Zeros, source_of
from luthier.emulator.running.storage import DeviceBuffer
from luthier.errors import LuthierError
from luthier.projection import LaunchWork, MachineModel, machine_named, measure
from luthier.projection.work import from_json, to_json
from luthier.support.files import writing_atomically
from msgspec import Struct
from timed_kernels import HUB, TimedKernel, aiter, benchmark_hub, mgpusim, mgpusim_mi300x

from luthier_build.compile import compile_application
from luthier_build.toolchain import Toolchain

SEED = 57
PROGRAMS = "programs"
"""All programs of MGPUSim together."""
OF_MGPUSIM = {"MI300A": mgpusim, "MI300X": mgpusim_mi300x}
"""GPU -> reader of its times of programs."""
READERS = {**OF_MGPUSIM, "MI350X": aiter}
"""GPU -> reader of its times, but for those of benchmark_hub."""
MOST_BYTES = 1 << 30
"""Of a launch's buffers."""


class MeasuredLaunches(Struct, frozen=True, eq=False):
    """What the launches of a configuration execute."""

    compiler: str
    works: list[LaunchWork]
    buffers: list[int]
    """Bytes of all buffers, by launch."""


def drawn(kernels: Iterable[TimedKernel], count: int, seed: int = SEED) -> list[TimedKernel]:
    """Return the `count` configurations that come first in a random order, which is the same on every GPU."""
    return sorted(kernels, key=lambda kernel: hashlib.sha256(f"{seed} {kernel.label}".encode()).digest())[:count]


def timed(checkout: Path, name: str, gpu: str) -> list[TimedKernel]:
    """Return the records of a kernel on a GPU; of all programs, if `name` is `PROGRAMS`.

    Raises:
        LuthierError: they cannot be read, or there are none.
    """
    if gpu in READERS:
        names = SOURCES if name == PROGRAMS else (name,)
        kernels = [kernel for kernel in READERS[gpu](checkout) if kernel.name in names]
    else:
        kernels = list(benchmark_hub(checkout, name, gpu)) if name in HUB else []
    if not kernels:
        raise LuthierError(f"{checkout} has no times of {name} on {gpu}: see --help for kernels and GPUs")
    return kernels


class KernelMeter:
    """Compiles and measures configurations for one GPU.

    Args:
        cache: folder for code objects and counts.
        clang: compiler; None: Luthier's choice.
        groups: work-groups of a launch that run.
    """

    def __init__(self, checkout: Path, cache: Path, gpu: str, clang: str | None = None, groups: int = 8) -> None:
        self.machine: MachineModel = machine_named(gpu)
        self.checkout, self.groups = checkout, groups
        self.target = self.machine.processor
        self.toolchain = Toolchain.find(dict(os.environ) if clang is None else {**os.environ, "LUTHIER_CLANG": clang})
        self.folder = cache / f"{self.target}-clang{self.toolchain.llvm_major}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.device = luthier.open_device(f"emu:{self.target}")
        self._buffers: dict[tuple[int, int], DeviceBuffer] = {}
        """Zeroed buffers by size and position; no launch writes what another one reads."""

    def path(self, kernel: TimedKernel, suffix: str) -> Path:
        """Return the place of a file about a configuration."""
        return self.folder / f"{kernel.name}-{kernel.label}{suffix}"

    def compiled(self, kernel: TimedKernel) -> Path:
        """Return the code object of a configuration.

        Raises:
            BuildError: the compiler fails.
        """
        source = source_of(kernel)
        if not source.is_compiled:
            return self.checkout / source.file.format_map(kernel.parameters)
        output = self.path(kernel, ".hsaco") if source.defines else self.folder / f"{kernel.name}.hsaco"
        if not output.is_file():
            text = output.with_suffix(".hip")
            text.write_text(source.text(self.checkout, kernel.parameters))
            try:
                flags = source.flags_of(self.checkout)
                compile_application(text, self.target, output, flags=flags, toolchain=self.toolchain)
            finally:
                text.unlink()
        return output

    def measured(self, kernel: TimedKernel) -> MeasuredLaunches:
        """Return what a configuration executes, from its file if there is one.

        Raises:
            LuthierError: it cannot be compiled, does not run, or needs too much memory.
        """
        path = self.path(kernel, ".json")
        if path.is_file():
            try:
                return from_json(path.read_bytes(), MeasuredLaunches)
            except msgspec.DecodeError as problem:
                raise LuthierError(f"{path} is damaged or of another version ({problem}): remove it") from None
        works, sizes = [], []
        for launch in source_of(kernel).launches(kernel.parameters):
            sizes.append(sum(map(_size, launch.arguments)))
            if sizes[-1] > MOST_BYTES:
                raise LuthierError(f"needs {sizes[-1] >> 20} MiB of buffers; at most {MOST_BYTES >> 20} are allocated")
            works.append(self._measured(self.compiled(kernel), launch))
        result = MeasuredLaunches(self.toolchain.version.splitlines()[0], works, sizes)
        with writing_atomically(path) as file:
            file.write(to_json(result))
        return result

    def _measured(self, path: Path, launch: KernelLaunch) -> LaunchWork:
        module = self.device.load(path)
        try:
            handle = module.kernel(symbol_of(module.object.kernels, launch.kernel))
            arguments = [self._argument(place, value) for place, value in enumerate(launch.arguments)]
            return measure(
                handle,
                *arguments,
                machine=self.machine,
                grid=launch.grid,
                block=launch.block,
                dynamic_lds=launch.dynamic_lds,
                most_groups=self.groups,
            )
        finally:
            module.unload()

    def _argument(self, place: int, value: Any) -> Any:
        if not isinstance(value, Zeros):
            return value
        if (value.size, place) not in self._buffers:
            self._buffers[value.size, place] = self.device.allocate(value.size)
        return self._buffers[value.size, place]


def symbol_of(names: Iterable[str], name: str) -> str:
    """Return the symbol of a kernel that may be mangled.

    Raises:
        LuthierError: there is none, or several.
    """
    matching = [symbol for symbol in names if symbol == name or symbol.startswith(f"_Z{len(name)}{name}")]
    if len(matching) != 1:
        raise LuthierError(f"{len(matching)} kernels are named {name}; there must be one")
    return matching[0]


def _size(argument: Any) -> int:
    return argument.size if isinstance(argument, Zeros) else argument.nbytes if isinstance(argument, np.ndarray) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the configurations that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument(
        "--kernel",
        required=True,
        help="convolution, dedispersion, f4gemm, a program of MGPUSim, or programs: all of them",
    )
    parser.add_argument("--gpu", choices=("MI250X", "W6600", "W7800", *READERS), required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--clang", help="compiler; default: the one that `luthier doctor` names")
    options = parser.parse_args(arguments)
    failed = 0
    try:
        meter = KernelMeter(options.checkout, options.cache, options.gpu, options.clang)
        kernels = drawn(timed(options.checkout, options.kernel, options.gpu), options.count)
    except LuthierError as problem:
        print(f"measure_kernels: {problem}", file=sys.stderr)
        return 1
    for kernel in kernels:
        try:
            meter.measured(kernel)
        except LuthierError as problem:
            failed += 1
            print(f"{kernel.name} {kernel.label}: {problem}", file=sys.stderr)
    print(f"{options.kernel} on {options.gpu}: {len(kernels) - failed} measured, {failed} not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
