"""Checks of a captured launch: those of the emulated device (`luthier.emulator.inspection.checks`)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import Code
from luthier.emulator.inspection.checks import AnyFinding, Checks, Finding, LaunchChecker, LaunchWatch, with_sources
from luthier.emulator.inspection.debug import observer_of
from luthier.emulator.inspection.sighted import FLOAT_KINDS, uses_of
from luthier.emulator.running.execution import Observer
from luthier.emulator.running.executor import FOOTPRINT, Executor
from luthier.emulator.running.memory import Memory
from luthier.objects.source import SourceMap
from luthier.wire.messages import Sighting


class Observed(Struct):
    """Behaviour of a launch towards memory, barriers and floats, as native code sees it; by one thread, but for floats.

    Args:
        what: `luthier.emulator.layout.OBSERVE_RACES` and the like.
        floats: exceptional ones that `OBSERVE_FLOATS` is of: `FLOAT_NAN` and the like.
    """

    what: int
    floats: int = FLOAT_KINDS
    sightings: list[Sighting] = field(default_factory=list)
    """What was found, of all but `OBSERVE_FOOTPRINT`."""
    footprint: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, FOOTPRINT))
    """Bytes that are read and written, of `OBSERVE_FOOTPRINT`."""

    def begin(self, code: Code) -> int:
        """Return the address of what a launch of this code is to know of its instructions (`uses` of `layout.PLAN`)."""
        code.floats, code.undefined = self.floats, bool(self.what & layout.OBSERVE_UNDEFINED)
        return uses_of(code)

    def take(self, executor: Executor) -> None:
        """Take what the executor of a launch that has ended knows."""
        self.sightings = executor.sightings()
        self.footprint = executor.footprint()


class Watching:
    """Checks of all parts of a launch.

    All of the captured memory counts as written: nobody knows what of it the program has.

    Args:
        names: of `luthier.emulator.inspection.checks.CHECKS`.
        kernel: its name, for findings.

    Raises:
        DeviceError: there is no such check.
    """

    def __init__(self, names: Collection[str], code: Code, kernel: str) -> None:
        self._checks = Checks(names, Memory())
        self._code, self._kernel = code, kernel
        self._running: tuple[LaunchChecker | None, LaunchWatch | None] = (None, None)
        self._found: dict[tuple[object, ...], AnyFinding] = {}

    def begin(self) -> tuple[Observer | None, int]:
        """Return what looks at every instruction of the next part, and the address of its `layout.WATCH`; 0: none."""
        checker = self._checks.checker(self._kernel)
        watch = self._checks.launch_watch(self._code, self._kernel)
        self._running = checker, watch
        observer = None if checker is None else observer_of(self._code, None, None, checker)
        return observer, 0 if watch is None else watch.address

    def end(self, numbering: Callable[[int], int]) -> None:
        """Collect what was found in the part that has ended.

        Args:
            numbering: returns the number of a work-group in the launch, for its number in the part.
        """
        checker, watch = self._running
        found: list[AnyFinding] = [] if checker is None else [*checker.findings()]
        if watch is not None:  # which knows the dispatch alone
            found += [replace(one, workgroup=numbering(one.workgroup)) for one in watch.findings()]
        for finding in found:
            key = identity(finding)
            known = self._found.get(key)
            if isinstance(finding, Finding) and isinstance(known, Finding):
                self._found[key] = replace(known, count=known.count + finding.count)
            else:
                self._found.setdefault(key, finding)

    def findings(self, source: SourceMap) -> tuple[AnyFinding, ...]:
        """Return what was found so far, each once, with the lines of the object's source."""
        return with_sources(self._found.values(), source)


def identity(finding: AnyFinding) -> tuple[object, ...]:
    """Return what two findings of the same defect share: the check, the instructions and the register."""
    more = (str(getattr(finding, name, "")) for name in ("hazard", "register", "access"))
    return (finding.check, *finding_addresses(finding), *more)


def finding_addresses(finding: AnyFinding) -> tuple[int, ...]:
    """Return the virtual addresses of the instructions of a finding."""
    other = getattr(finding, "other", None)
    second = getattr(finding, "producer", None) if other is None else other.address
    return (finding.address,) if second is None else (finding.address, int(second))
