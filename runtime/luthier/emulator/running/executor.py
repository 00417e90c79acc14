"""The native executor of this process: its inputs, and its requests for help while it runs.

Its sources are in `runtime/native/executor/`; `luthier run` uses the same ones in the program's process. A launch runs
on its own threads, and the thread that started it waits and helps. So signals reach Python, and exceptions reach the
caller.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import agreement, layout
from luthier.emulator.constants import inline_bytes
from luthier.emulator.running.start import PRIVATE_BASE, SHARED_BASE
from luthier.errors import DeviceError
from luthier.wire.messages import Progress, RunningPlace, Sighting
from luthier.wire.structures import FieldLayout

_LIBRARY = Path(__file__).parents[1] / "native" / "libluthier_executor.so"
_GLANCE = 50
"""Milliseconds of one wait: a signal that arrives just before the thread waits does not wake it."""
_FREQUENT = 4096
MOST_UNWRITTEN = 1 << 28
"""Bytes of the largest allocation whose reads are checked (`kMostUnwritten`): filling it makes its pages resident."""
_PLACES = 256
_REASON, _CONTEXT, _GROUP, _KEY, _RECORD = (
    layout.EVENT[name] // 8 for name in ("reason", "context", "group", "key", "record")
)

FOOTPRINT = np.dtype([("address", "<u8"), ("read", "u1", 512), ("written", "u1", 512)])
"""Address of a page, and a bit for each of its bytes, lowest bit first."""
_COSTS = ("record", "accesses", "lanes", "lines", "l2", "memory", "lds", "scratch", "quads", "shared", "first", "end")
ACCESS_COSTS = np.dtype([(name, "<u8") for name in _COSTS])
"""Costs of the memory accesses of an instruction, one field each:

- ``record``: index of the instruction's record;
- ``accesses`` of waves, and their ``lanes``;
- ``lines`` of the first cache; of stores, requests to L2;
- ``l2``: requests of these lines that reach L2;
- ``memory``: lines of L2 that are read from or written to memory;
- ``lds``: cycles of LDS;
- ``scratch``: bytes of private memory, of all lanes of the waves;
- ``quads`` of lanes; if the bytes of a quad are apart, each of its lanes counts;
- ``shared``: lines that a wave touches for the first time, and that another wave brought into the first cache;
- ``first``: first byte outside LDS and private memory; ``end``: the byte after the last. Both are equal if there are
  none."""

Help = Callable[[int, int, int, int, int], bool]
"""Called with an event's reason, context address, group address, key and record; returns whether to continue."""


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(_LIBRARY))
    except OSError as problem:
        raise DeviceError(f"cannot load {_LIBRARY}: build it with `make setup` ({problem})") from problem
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("digest", ctypes.c_char_p, []),
        ("open", pointer, [pointer]),
        ("close", None, [pointer]),
        ("launch", ctypes.c_bool, [pointer, pointer, ctypes.c_uint64]),
        ("next", ctypes.c_uint64, [pointer, pointer, ctypes.c_uint64]),
        ("answer", ctypes.c_bool, [pointer, ctypes.c_bool]),
        ("abort", None, [pointer]),
        ("problem", ctypes.c_char_p, [pointer]),
        ("own", None, [pointer, pointer]),
        ("begin_anew", None, [pointer, ctypes.c_bool]),
        ("leave_unwritten", None, [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_bool]),
        ("group_number", ctypes.c_uint64, [pointer]),
        ("sightings", ctypes.c_uint64, [pointer, pointer, ctypes.c_uint64]),
        ("costs", ctypes.c_uint64, [pointer, pointer, ctypes.c_uint64]),
        ("footprint", ctypes.c_uint64, [pointer, pointer, ctypes.c_uint64]),
        ("progress", ctypes.c_uint64, [pointer, pointer, ctypes.c_uint64]),
        ("resident", ctypes.c_uint64, [pointer, *[ctypes.c_uint64] * 3]),
        ("frequent", ctypes.c_uint64, [ctypes.c_uint64, ctypes.c_uint64, pointer, ctypes.c_uint64]),
        ("take_runs", None, []),
    ):
        function = getattr(library, f"luthier_{name}")
        function.restype, function.argtypes = result, arguments
    if library.luthier_digest().decode() != agreement.digest():
        raise DeviceError(agreement.differs(f"the executor ({_LIBRARY})", "Luthier's Python modules"))
    return library


class StructureBlock:
    """One or several consecutive structures of `layout` for native code."""

    def __init__(self, structure: FieldLayout, *rows: Mapping[str, int]) -> None:
        self._bytes = bytearray(structure.size * len(rows))
        for number, values in enumerate(rows):
            for name, value in values.items():
                field = structure.fields[name]
                bits = int(value) & (1 << 8 * field.size) - 1  # distances may be negative
                at = number * structure.size + field.offset
                self._bytes[at : at + field.size] = bits.to_bytes(field.size, "little")
        self._view = (ctypes.c_char * len(self._bytes)).from_buffer(self._bytes)
        self.address = ctypes.addressof(self._view)
        """Valid during the lifetime of this object."""

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)

    def read(self, structure: FieldLayout, name: str) -> int:
        """Return a field of the first structure, as native code left it."""
        field = structure.fields[name]
        return int.from_bytes(self._bytes[field.offset : field.offset + field.size], "little")


def resident_groups(plan: Mapping[str, int], waves: int, lds: int, scratch_lane: int) -> int:
    """Return how many work-groups of a kernel a device holds at once, limited by registers, waves and LDS.

    Args:
        plan: fields of `layout.PLAN`.
        waves: waves of a work-group.
        lds: bytes of LDS of a work-group.
        scratch_lane: bytes of scratch of a lane.
    """
    return int(_library().luthier_resident(StructureBlock(layout.PLAN, plan).address, waves, lds, scratch_lane))


def leave_unwritten(address: int, size: int, *, undefined: bool) -> bool:
    """Mark memory as never written: fill it with a pattern that native code recognises.

    Args:
        size: bytes.
        undefined: also mark it for `layout.OBSERVE_UNDEFINED`.

    Returns:
        False, without any effect, for more than `MOST_UNWRITTEN` bytes.
    """
    if size > MOST_UNWRITTEN:
        return False
    _library().luthier_leave_unwritten(address, size, undefined)
    return True


def group_number(group: int) -> int:
    """Return the number in its launch of a running work-group of this process, by the address of its `layout.GROUP`."""
    return int(_library().luthier_group_number(group))


class Executor:
    """Runs launches, one at a time.

    Args:
        threads: host threads that run work-groups.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._event = (ctypes.c_uint64 * (layout.EVENT.size // 8))()
        self._process = 0
        self._handle = 0

    def _open(self) -> int:
        """Return the native executor; a child process opens its own, since it has none of its parent's threads."""
        if self._process != os.getpid():
            constants = np.frombuffer(inline_bytes(), np.uint8)
            engine = {"threads": self.threads, "constants": constants.ctypes.data, "constants_size": len(constants)}
            engine |= {"shared_base": SHARED_BASE, "private_base": PRIVATE_BASE}
            block = StructureBlock(layout.ENGINE, engine)
            handle = _library().luthier_open(block.address)
            if not handle:
                raise DeviceError("not enough memory for an executor")
            self._process, self._handle = os.getpid(), handle
            weakref.finalize(self, _close, handle, self._process)
        return self._handle

    def run(
        self,
        dispatches: Sequence[Mapping[str, int]],
        help: Help,
        look: Callable[[], None] | None = None,
        describe: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Run a launch to its end.

        Args:
            dispatches: fields of `layout.DISPATCH` for each part of the grid.
            look: called from time to time while the launch runs.
            describe: returns sentences about the launch, as notes of a KeyboardInterrupt that ends it.

        Raises:
            DeviceError: the host lacks memory or threads.
            BaseException: an exception of `help` or of a signal handler.
        """
        library, handle = _library(), self._open()
        block = StructureBlock(layout.DISPATCH, *dispatches)
        if not library.luthier_launch(handle, block.address, len(dispatches)):
            raise DeviceError(f"cannot start the launch: {library.luthier_problem(handle).decode()}")
        event, asked = self._event, False
        try:
            while (state := library.luthier_next(handle, event, _GLANCE)) != layout.ENDING:
                if state == layout.HELP:
                    asked = True
                    go_on = help(event[_REASON], event[_CONTEXT], event[_GROUP], event[_KEY], event[_RECORD])
                    asked = not library.luthier_answer(handle, go_on)
                elif look is not None:
                    look()
        except BaseException as reason:
            if isinstance(reason, KeyboardInterrupt):
                for line in describe():
                    reason.add_note(f"luthier: {line}")
            library.luthier_abort(handle)
            self._drain(asked)
            raise
        problem = library.luthier_problem(handle).decode()
        if problem:
            raise DeviceError(f"the executor failed: {problem}")

    def _drain(self, asked: bool) -> None:
        """Decline every request until the aborted launch has ended."""
        library, state = _library(), layout.HELP if asked else layout.RUNNING
        while state != layout.ENDING:
            with contextlib.suppress(KeyboardInterrupt):
                if state == layout.HELP:
                    library.luthier_answer(self._handle, False)
                state = library.luthier_next(self._handle, self._event, _GLANCE)

    def frequent(self, code: int, count: int) -> NDArray[np.uint64]:
        """Return how often the running launch has executed each of `count` records of a code.

        The count is 0 for records that no thread has executed `_FREQUENT` times.
        """
        rows = np.zeros((count, 2), np.uint64)
        row_count = min(count, _library().luthier_frequent(code, _FREQUENT, rows.ctypes.data, count))
        executions = np.zeros(count, np.uint64)
        executions[rows[:row_count, 0].astype(np.intp)] = rows[:row_count, 1]
        return executions

    def progress(self) -> Progress:
        """Return the progress of the running launch."""
        row = (ctypes.c_uint64 * (6 + 2 * _PLACES))()
        count = min(_PLACES, _library().luthier_progress(self._open(), row, _PLACES))
        groups, begun, running, resident, is_full, repeats, *places = row[: 6 + 2 * count]
        reached = tuple(map(RunningPlace, places[::2], places[1::2]))
        return Progress(groups, begun, running, resident, bool(is_full), bool(repeats), reached)

    def take_runs(self) -> None:
        """Let running launches use the functions of runs that were compiled since they began."""
        _library().luthier_take_runs()

    def forget(self, *, keep_undefined: bool = False) -> None:
        """Forget what observed launches have done.

        Args:
            keep_undefined: remember which memory was never written.
        """
        _library().luthier_begin_anew(self._open(), keep_undefined)

    def sightings(self) -> list[Sighting]:
        """Return what the checks of observed launches have seen since the last call."""
        dtype = Sighting.dtype()
        return [Sighting(*row) for row in self._rows("sightings", dtype.itemsize).view(dtype).tolist()]

    def footprint(self) -> NDArray[np.void]:
        """Return a `FOOTPRINT` for each page that observed launches have accessed, by address."""
        return self._rows("footprint", FOOTPRINT.itemsize).view(FOOTPRINT)

    def costs(self) -> NDArray[np.void]:
        """Return `ACCESS_COSTS` of the last launch observed so, in any order; others accessed no memory."""
        return self._rows("costs", ACCESS_COSTS.itemsize).view(ACCESS_COSTS)

    def _rows(self, what: str, size: int) -> NDArray[np.uint8]:
        function = getattr(_library(), f"luthier_{what}")
        rows = np.zeros(size * function(self._open(), None, 0), np.uint8)
        function(self._open(), rows.ctypes.data, len(rows) // size)
        return rows

    def own(self) -> tuple[int, int]:
        """Return the addresses of the first worker's context and group, as the last launch left them."""
        _library().luthier_own(self._handle, self._event)
        return self._event[_CONTEXT], self._event[_GROUP]


def _close(handle: int, process: int) -> None:
    if process == os.getpid():
        _library().luthier_close(handle)
