"""GPUs of the machine, which programs use as without Luthier, except for the tool library."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from luthier.errors import DeviceError

KIND = "hip"
"""Prefix of their names, as for `luthier.open_device`."""
_VISIBLE = "ROCR_VISIBLE_DEVICES"
"""Environment variable that selects GPUs for ROCr, by numbers or unique names."""


class MachineGpus(Struct, frozen=True):
    """GPUs of the machine, which ROCm finds without Luthier."""

    numbers: tuple[int, ...] = ()
    """Those that programs see, by ROCm's numbers; empty: all."""

    @property
    def names(self) -> list[str]:
        """Return their names for ``--device``."""
        return [f"{KIND}:{number}" for number in self.numbers] or [KIND]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return environment variables that restrict programs to these GPUs.

        Args:
            base: environment so far; if it hides GPUs, the numbers count the remaining ones.

        Raises:
            DeviceError: not enough GPUs remain.
        """
        if not self.numbers:
            return {}
        seen = base[_VISIBLE].split(",") if base.get(_VISIBLE) else None
        if seen is not None and max(self.numbers) >= len(seen):
            raise DeviceError(f"there is no {KIND}:{max(self.numbers)}: {_VISIBLE} is {base[_VISIBLE]}")
        return {_VISIBLE: ",".join(str(number) if seen is None else seen[number] for number in self.numbers)}


def names_machine_gpus(text: str) -> bool:
    """Return whether a value of ``--device`` begins with a GPU of the machine."""
    return text.strip().partition(":")[0].split(",")[0] == KIND


def parse_machine_gpus(text: str) -> MachineGpus:
    """Return the GPUs that ``--device`` names: ``hip`` for all, or ``hip:NUMBER``, separated by commas.

    Raises:
        DeviceError: another device is named, or a GPU is named twice.
    """
    if text.strip() == KIND:
        return MachineGpus()
    numbers = []
    for name in text.split(","):
        kind, _, number = name.strip().partition(":")
        if kind != KIND or not number.isdecimal():
            raise DeviceError(f"{name!r} is not a GPU of this machine: use {KIND}:0, {KIND}:1, …, or {KIND} for all")
        numbers.append(int(number))
    if len({*numbers}) < len(numbers):
        raise DeviceError(f"a GPU is named twice: {text}")
    return MachineGpus(tuple(numbers))
