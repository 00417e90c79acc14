"""Launches that pass fewer bytes of arguments than their kernel takes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from luthier.findings.finding import Finding
from luthier.objects import Kernel
from luthier.objects.arguments import size_of


class ArgumentSizes:
    """Compares the bytes that launches pass with those that kernels take, whichever is known first. Thread-safe.

    Kernels are identified by name; if several share one, the smallest size is required.

    Args:
        keep: receives the findings.
    """

    def __init__(self, keep: Callable[[Finding], None]) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[Finding, int]]] = defaultdict(list)

    def given(self, finding: Finding, kernel: str, size: int) -> None:
        """Add a launch, with the finding to report if its kernel takes more bytes."""
        with self._lock:
            if kernel not in self._taken:
                self._waiting[kernel].append((finding, size))
                return
            taken = self._taken[kernel]
        self._compare(finding, kernel, size, taken)

    def takes(self, kernel: Kernel) -> None:
        """Add a launched kernel."""
        size = size_of(kernel)
        with self._lock:
            self._taken[kernel.name] = min(size, self._taken.get(kernel.name, size))
            waiting = self._waiting.pop(kernel.name, [])
        for finding, given in waiting:
            self._compare(finding, kernel.name, given, size)

    def _compare(self, finding: Finding, kernel: str, given: int, taken: int) -> None:
        if given < taken:
            finding.detail = f"{given} bytes of arguments for {kernel}, which takes {taken}"
            self._keep(finding)
