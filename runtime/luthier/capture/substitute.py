"""Replay of a captured launch with the kernel of another code object: from another compiler, changed source, or for
another processor.

The other object has its own memory. It gets the recorded arguments, and the recorded contents of the variables that
both objects have. What it changes in them is copied to the variables of the recorded object.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from luthier.capture.form import KERNARG_ALIGNMENT, Capture
from luthier.capture.pages import without
from luthier.capture.program import Program, device_of, isa_of
from luthier.capture.replay import Executed, PreparedLaunch
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.running.execution import Observer
from luthier.emulator.running.loader import LoadedImage
from luthier.emulator.running.memory import AllocationTable, host_bytes
from luthier.emulator.running.observation import Observation
from luthier.emulator.running.start import Geometry, hidden_value
from luthier.errors import DeviceError, LuthierError
from luthier.objects import CodeObject, Kernel, KernelArgument, Symbol
from luthier.objects.origins import teller
from luthier.support.wording import enumerated


class SubstitutedLaunch(PreparedLaunch):
    """A captured launch with the kernel of the same name in another code object.

    Args:
        object: the other code object.
        target: target of the device; None: the recorded one.

    Raises:
        LuthierError: the object lacks the kernel, or its arguments differ, or it is not for the device.
    """

    def __init__(self, capture: Capture, object: CodeObject, target: str | None = None) -> None:
        self._substitute = object
        manifest = capture.manifest
        device = device_of(capture, target, object)
        if manifest.kernel not in object.kernels:
            raise LuthierError(
                f"no kernel {manifest.kernel}; there are: {enumerated(object.kernels)}", object=object.name
            )
        self._recorded_object = CodeObject(capture.object, manifest.object)
        before, kernel = self._recorded_object.kernels.get(manifest.kernel), object.kernels[manifest.kernel]
        if before is None:
            raise LuthierError("the capture's code object does not have the kernel", kernel=manifest.kernel)
        _check_arguments(before, kernel)
        memory = AllocationTable(limit=1 << 62)
        self._image = LoadedImage(object, memory, lambda name: None)
        self._own = kernel
        size = -(-max(kernel.kernarg_size, 1) // KERNARG_ALIGNMENT) * KERNARG_ALIGNMENT
        self._kernarg = memory.allocate(size, f"arguments of {manifest.kernel}")
        code = DecodedCode(isa_of(object, device, kernel), object.text_as_loaded(self._image.address_of))
        code.origin = teller(object)
        program = Program(
            object,
            kernel,
            code,
            place=self._image.host(code.base),
            group=kernel.group_segment_fixed_size + manifest.dynamic_lds,
            private=kernel.private_segment_fixed_size
            + max(0, manifest.private_segment - before.private_segment_fixed_size),
            kernarg=self._kernarg.address,
        )
        super().__init__(capture, str(device), program, memory)
        self._before = before
        self._initial = [allocation.view().copy() for allocation in self._image.allocations]

    def prepare(self) -> None:
        """Set the object's memory to its contents before the launch."""
        for allocation, initial in zip(self._image.allocations, self._initial, strict=True):
            allocation.view()[:] = initial
        self._kernarg.view()[:] = 0
        arguments = np.frombuffer(self._arguments(), np.uint8)
        self._kernarg.view()[: len(arguments)] = arguments
        for contents, place in self._variables():
            host_bytes(place, len(contents))[:] = contents

    def execute(
        self,
        threads: int | None,
        observer: Observer | None,
        observed: Observation | None = None,
    ) -> Executed:
        """Execute the launch, then copy changes of shared variables to the recorded object's."""
        pairs = list(self._shared())
        before = [host_bytes(self._image.host(new.address), new.size).copy() for _, new in pairs]
        outcome = super().execute(threads, observer, observed)
        for (old, new), initial in zip(pairs, before, strict=True):
            now = host_bytes(self._image.host(new.address), new.size)
            changed = now != initial
            if changed.any() and self._is_captured(old):
                host_bytes(self._place(old), old.size)[changed] = now[changed]
        return outcome

    def _arguments(self) -> bytes:
        """Return the recorded arguments; hidden ones that were not recorded are computed."""
        manifest = self.capture.manifest
        raw = host_bytes(manifest.kernarg, self._before.kernarg_size).tobytes()
        recorded = {one.value_kind: one for one in self._before.arguments if one.hidden}
        made = bytearray(self._own.kernarg_size)
        explicit = [one for one in self._before.arguments if not one.hidden]
        for old in explicit:
            made[old.offset : old.offset + old.size] = raw[old.offset : old.offset + old.size]
        for argument in self._own.arguments:
            if not argument.hidden:
                continue
            known = recorded.get(argument.value_kind)
            value = b"" if known is None else raw[known.offset : known.offset + known.size]
            if len(value) != argument.size:
                value = _hidden(argument, self.capture).to_bytes(8, "little")[: argument.size]
            made[argument.offset : argument.offset + argument.size] = value.ljust(argument.size, b"\0")
        return bytes(made)

    # Variables ------------------------------------------------------------------------------------------------------

    def _place(self, symbol: Symbol) -> int:
        """Return the address of a symbol of the recorded object."""
        return symbol.address + self.capture.manifest.load_address

    def _is_captured(self, symbol: Symbol) -> bool:
        """Return whether the memory of a variable of the recorded object is in the capture."""
        begin = self._place(symbol)
        return any(at <= begin and begin + symbol.size <= at + size for at, size in self.capture.manifest.ranges)

    def _shared(self) -> Iterator[tuple[Symbol, Symbol]]:
        """Yield the variables that both objects have.

        Raises:
            LuthierError: their sizes differ.
        """
        moved = [one.offset for one in self._recorded_object.relocations]
        for old in self._recorded_object.symbols:
            if old.type != "object" or not old.defined or not old.size or old.name.endswith(".kd"):
                continue
            new = self._substitute.symbol(old.name)
            if new is None or not new.defined or new.type != "object":
                continue
            if any(old.address <= offset < old.address + old.size for offset in moved):
                continue  # it contains addresses of the object itself
            if new.size != old.size:
                message = f"the variable {old.name} has {new.size} bytes, but {old.size} in the captured object"
                raise LuthierError(message, object=self._substitute.name)
            yield old, new

    def _variables(self) -> Iterator[tuple[NDArray[np.uint8], int]]:
        """Yield the contents of variables that were changed before the launch, and their new addresses."""
        for old, new in self._shared():
            if not self._is_captured(old):
                continue
            begin = self._place(old)
            initial = np.frombuffer(self._recorded_object.read(old.address, old.size), np.uint8)
            contents = initial.copy()
            for address, size in without([(begin, old.size)], self.capture.manifest.left_out):
                contents[address - begin :][:size] = host_bytes(address, size)
            if not np.array_equal(contents, initial):
                yield contents, self._image.host(new.address)


def _check_arguments(before: Kernel, after: Kernel) -> None:
    """Check that a kernel takes the same explicit arguments as the recorded one.

    Raises:
        DeviceError: it does not.
    """
    old, new = (
        [(one.offset, one.size, one.value_kind) for one in kernel.arguments if not one.hidden]
        for kernel in (before, after)
    )
    if old != new:
        message = f"its arguments differ from the captured kernel's: {_listed(new)} instead of {_listed(old)}"
        raise DeviceError(message, kernel=after.name)


def _listed(arguments: list[tuple[int, int, str]]) -> str:
    return ", ".join(f"{kind} of {size} bytes at {offset}" for offset, size, kind in arguments) or "none"


def _hidden(argument: KernelArgument, capture: Capture) -> int:
    """Return the value of a hidden argument that the recorded kernel does not have."""
    manifest, axis = capture.manifest, {"x": 0, "y": 1, "z": 2}.get(argument.value_kind[-1], 0)
    if argument.value_kind.startswith("hidden_remainder_"):
        return manifest.grid[axis] % manifest.block[axis]
    if argument.value_kind.startswith("hidden_block_count_"):
        return manifest.grid[axis] // manifest.block[axis]
    x, y, z = (-(-whole // part) for whole, part in zip(manifest.grid, manifest.block, strict=True))
    return hidden_value(argument, Geometry((x, y, z), manifest.block, manifest.dynamic_lds), manifest.queue)
