"""Parts of functions in which their own frame is set up.

A function's prologue saves the caller's frame and sets up its own; its epilogue restores the caller's. Outside of them,
variables and parameters in the frame cannot be found.
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
        addresses: addresses of all instructions, ascending.
    """

    def __init__(self, source: SourceMap, code: DecodedCode, addresses: Sequence[int]) -> None:
        self._source, self._code, self._addresses = source, code, addresses

    def body(self, address: int) -> range | None:
        """Return a function's code after its prologue; None if it is not known."""
        body = self._source.body(address)
        return None if body is None or self._code.record_at(body.start) is None else body

    def has_frame(self, address: int, register: int) -> bool:
        """Return whether a scalar register holds the function's frame at an instruction."""
        body = self.body(address)
        return body is None or (address in body and address <= self._end(body, register))

    @functools.lru_cache(maxsize=1 << 10)  # noqa: B019 - there is one debugger in a process
    def _end(self, body: range, register: int) -> int:
        """Return the address of the first instruction that overwrites the frame register, or the end of the body."""
        writes = re.compile(rf"\S+ s({register}|\[{register}:\d+\]|\[\d+:{register}\]),")
        first, last = (bisect.bisect_left(self._addresses, edge) for edge in (body.start, body.stop))
        writers = (address for address in self._addresses[first:last] if writes.match(self._text(address)))
        return next(writers, body.stop)

    def _text(self, address: int) -> str:
        record = self._code.record_at(address)
        return "" if record is None else self._code.text(record)
