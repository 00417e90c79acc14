"""The GPUs of the machine: programs find them as without Luthier, with the tool library beside."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from luthier.errors import DeviceError

KIND = "hip"
"""Begin of their names, as of `luthier.open_device`."""
_VISIBLE = "ROCR_VISIBLE_DEVICES"
"""Environment variable that tells ROCr which GPUs there are, by numbers or by their unique names."""


class MachineGpus(Struct, frozen=True):
    """GPUs of the machine, which ROCm finds without Luthier."""

    numbers: tuple[int, ...] = ()
    """Those that programs are to see, as ROCm counts; empty: all."""

    @property
    def names(self) -> list[str]:
        """Return what ``--device`` calls them."""
        return [f"{KIND}:{number}" for number in self.numbers] or [KIND]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return variables that let programs see these alone.

        Args:
            base: the environment so far, which may hide some already: numbers count what it leaves.

        Raises:
            DeviceError: it does not leave so many.
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
    """Return the GPUs that ``--device`` names: ``hip`` for all, or ``hip:NUMBER``, several separated by commas.

    Raises:
        DeviceError: something else is named, or one twice.
    """
    if text.strip() == KIND:
        return MachineGpus()
    numbers = []
    for name in text.split(","):
        kind, _, number = name.strip().partition(":")
        if kind != KIND or not number.isdecimal():
            raise DeviceError(
                f"no GPU of this machine: {name!r}; they are called {KIND}:0, {KIND}:1, …, all of them {KIND}"
            )
        numbers.append(int(number))
    if len({*numbers}) < len(numbers):
        raise DeviceError(f"a GPU is named twice: {text}")
    return MachineGpus(tuple(numbers))
