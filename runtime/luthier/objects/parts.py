"""The code of an object, cut at its functions."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from luthier.objects.code_object import CodeObject


class Part(Struct, frozen=True):
    """A function, or what lies between functions (`name` None)."""

    name: str | None
    address: int
    size: int
    kernel: bool
    wave_size: int


def parts(found: CodeObject, chosen: Collection[str] | None = None) -> list[Part]:
    """Return the executable code of an object, cut at its functions, in address order; of all or of some kernels."""
    kernels = {one.entry: one for one in found.kernels.values()}
    default_wave = next((one.wave_size for one in kernels.values()), found.target.target.default_wave_size)
    named = {symbol.address: symbol for symbol in found.symbols if symbol.type == "func" and symbol.defined}
    made: list[Part] = []
    for start, size in found.text_ranges:
        end = start + size
        starts = sorted(address for address in {*named, *kernels} if start <= address < end)
        at = start
        for address, following in itertools.pairwise([*starts, end]):
            if at < address:
                made.append(Part(None, at, address - at, False, default_wave))
            own, symbol = kernels.get(address), named.get(address)
            length = (own.code_size if own else 0) or (symbol.size if symbol else 0) or following - address
            at = min(address + length, following)
            name = own.name if own else symbol.name if symbol else None
            made.append(Part(name, address, at - address, own is not None, own.wave_size if own else default_wave))
        if at < end:
            made.append(Part(None, at, end - at, False, default_wave))
    return [part for part in made if chosen is None or (part.kernel and part.name in chosen)]
