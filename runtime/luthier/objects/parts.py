"""The code of an object, split at its functions."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from luthier.objects.code_object import CodeObject, Kernel


class TextPart(Struct, frozen=True):
    """A function, or code between functions (`name` None)."""

    name: str | None
    address: int
    size: int
    kernel: bool
    wave_size: int
    aliases: tuple[str, ...] = ()
    """Other kernels with the same code and wave size."""


def parts(object: CodeObject, chosen: Collection[str] | None = None) -> list[TextPart]:
    """Split the executable code of an object at its functions, in address order; optionally only of some kernels.

    Code that kernels with different wave sizes share appears once for each size.
    """
    kernels: dict[int, list[Kernel]] = {}
    for kernel in object.kernels.values():
        kernels.setdefault(kernel.entry, []).append(kernel)
    default_wave = next((one.wave_size for one in object.kernels.values()), object.target.target.default_wave_size)
    named = {symbol.address: symbol for symbol in object.symbols if symbol.type == "func" and symbol.defined}
    known = sorted({*named, *kernels})
    made: list[TextPart] = []
    for start, size in object.text_ranges:
        end = start + size
        starts = known[bisect.bisect_left(known, start) : bisect.bisect_left(known, end)]
        at = start
        for address, following in itertools.pairwise([*starts, end]):
            if at < address:
                made.append(TextPart(None, at, address - at, False, default_wave))
            own, symbol = kernels.get(address, ()), named.get(address)
            length = (own[0].code_size if own else 0) or (symbol.size if symbol else 0) or following - address
            at = min(address + length, following)
            for wave_size in dict.fromkeys(one.wave_size for one in own):
                names = [one.name for one in own if one.wave_size == wave_size]
                if chosen is not None:
                    names.sort(key=lambda name: name not in chosen)
                made.append(TextPart(names[0], address, at - address, True, wave_size, tuple(names[1:])))
            if not own:
                made.append(TextPart(symbol.name if symbol else None, address, at - address, False, default_wave))
        if at < end:
            made.append(TextPart(None, at, end - at, False, default_wave))
    return [part for part in made if chosen is None or (part.kernel and part.name in chosen)]
