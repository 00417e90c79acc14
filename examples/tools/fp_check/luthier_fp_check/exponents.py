"""Exponents of results: counts by kernel and source line, and the smaller formats that they would fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from luthier import Run, SiteSums, Table
from numpy.typing import NDArray

LOWEST, COUNT = -32, 64
"""Exponents with their own column, as in device.hip; so are the columns after these."""
(ZERO, BELOW, ABOVE, INFINITE, INVALID, TINY, OVER_E4M3, OVER_E5M2, OVER_F16, OVER_BF16) = range(COUNT, COUNT + 10)
COLUMNS = 80
_SUMMARY = (
    *("kernel", "source", "results", "zero", "infinite", "NaN", "smallest", "largest"),
    *("% in f16", "% in bf16", "% in e5m2", "% in e4m3"),
)


@dataclass(frozen=True)
class Format:
    """A format of fewer bits: exponents of its normal numbers, and columns of larger numbers."""

    lowest: int
    highest: int
    beyond: tuple[int, ...]


FORMATS = {
    "f16": Format(-14, 15, (OVER_F16,)),
    "e5m2": Format(-14, 15, (OVER_E5M2,)),
    "e4m3": Format(-6, 8, (OVER_E4M3,)),
}
"""By name: IEEE 754 binary16, and the formats of 8 bits of OCP's specification. Numbers are rounded to nearest."""


@dataclass
class Exponents:
    """Results of one line."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(COLUMNS, np.int64))
    smallest: float = float("inf")
    largest: float = 0.0

    def add(self, counts: NDArray[np.uint64], extremes: NDArray[np.uint64]) -> None:
        """Add the results of an instruction."""
        self.counts += counts.astype(np.int64)
        if extremes[1]:
            low, high = np.array([~extremes[0], extremes[1]], np.uint64).view(np.float64).tolist()
            self.smallest, self.largest = min(self.smallest, low), max(self.largest, high)

    @property
    def results(self) -> int:
        """Return the number of results."""
        return int(self.counts[: INVALID + 1].sum())

    def share(self, name: str) -> float | None:
        """Return the percentage of finite numbers that are zero or, rounded, normal in a format; None without any."""
        counts = self.counts
        finite = self.results - int(counts[INFINITE] + counts[INVALID])
        if not finite:
            return None
        if name == "bf16":
            fitting = finite - int(counts[TINY] + counts[OVER_BF16])
        else:
            form = FORMATS[name]
            fitting = int(counts[ZERO] + counts[form.lowest - LOWEST : form.highest - LOWEST + 1].sum())
            fitting -= sum(int(counts[column]) for column in form.beyond)
        return round(100 * fitting / finite, 2)

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yield exponents with results, from the smallest on."""
        names = [str(LOWEST + place) for place in range(COUNT)]
        order = [(f"below {LOWEST}", BELOW), *((name, at) for at, name in enumerate(names))]
        for name, column in (*order, (f"{LOWEST + COUNT} and above", ABOVE)):
            if self.counts[column]:
                yield name, int(self.counts[column])


def tables(run: Run, counts: SiteSums) -> Iterable[Table]:
    """Yield the summary of each line, and the histograms."""
    lines: dict[tuple[str, str], Exponents] = {}
    ends = _extremes(run, counts.capacity)
    for (site, sums), own in zip(counts.read(run), ends, strict=False):
        if sums.any():
            lines.setdefault((site.kernel, site.source), Exponents()).add(sums, own)
    rows = []
    for (kernel, source), line in sorted(lines.items()):
        both = (line.smallest, line.largest) if line.largest else (None, None)
        kinds = (int(line.counts[column]) for column in (ZERO, INFINITE, INVALID))
        shares = (line.share(name) for name in ("f16", "bf16", "e5m2", "e4m3"))
        rows.append((kernel, source, line.results, *kinds, *both, *shares))
    yield Table("exponents", _SUMMARY, rows)
    buckets = [(*key, name, many) for key, one in sorted(lines.items()) for name, many in one.buckets()]
    yield Table("exponent histogram", ("kernel", "source", "exponent", "results"), buckets)


def _extremes(run: Run, sites: int) -> NDArray[np.uint64]:
    """Return [sites, 2] the extremes over all devices: each is the largest of its column."""
    extremes = np.zeros((sites, 2), np.uint64)
    for variable in run.variables("extremes"):
        extremes = np.maximum(extremes, variable.read(np.uint64)[: extremes.size].reshape(extremes.shape))
    return extremes
