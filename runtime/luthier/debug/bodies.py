"""Parts of functions in which their frames are there.

Where a function begins it puts the caller's frame by and makes its own, and where it ends it puts the caller's back:
what is in its frame, parameters too, is elsewhere then.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Sequence

from luthier.emulator.binding.program import DecodedCode
from luthier.objects.source import SourceMap


class Bodies:
    """The bodies of a code object's functions.

    Args:
        addresses: of all instructions, ascending.
    """

    def __init__(self, source: SourceMap, code: DecodedCode, addresses: Sequence[int]) -> None:
        self._source, self._code, self._addresses = source, code, addresses

    def body(self, address: int) -> range | None:
        """Return the part of a function's code behind what makes its frame; None if it is not known."""
        found = self._source.body(address)
        return None if found is None or self._code.record_at(found.start) is None else found

    def has_frame(self, address: int, register: int) -> bool:
        """Return whether at an instruction a scalar register has the frame of the function that it is in."""
        body = self.body(address)
        return body is None or (address in body and address <= self._end(body, register))

    @functools.lru_cache(maxsize=1 << 10)  # noqa: B019 - there is one debugger in a process
    def _end(self, body: range, register: int) -> int:
        """Return the instruction that puts another frame into a register; what is behind all, if there is none."""
        writes = re.compile(rf"\S+ s({register}|\[{register}:\d+\]|\[\d+:{register}\]),")
        first, last = (bisect.bisect_left(self._addresses, edge) for edge in (body.start, body.stop))
        behind = (one for one in self._addresses[first:last] if writes.match(self._text(one)))
        return next(behind, body.stop)

    def _text(self, address: int) -> str:
        record = self._code.record_at(address)
        return "" if record is None else self._code.text(record)
