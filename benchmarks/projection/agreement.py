"""Measure how well projected times agree with measured ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from luthier.errors import LuthierError
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray


class Agreement(Struct, frozen=True):
    """Errors of projected times over a set of launches."""

    launches: int
    rank_correlation: float
    """Spearman's rho; NaN for fewer than three launches, or if all times are equal."""
    mean_error: float
    """Mean of |projected - measured| / measured."""
    weighted_error: float
    """Sum of |projected - measured| over the sum of measured times: long launches count more."""
    median_ratio: float
    """Of projected over measured times: below 1 if projections are too fast."""
    fastest_among: float
    """Share of launches that are measured as at least as fast as the one with the shortest projected time."""


def agreement(projected: ArrayLike, measured: ArrayLike) -> Agreement:
    """Return the agreement of projected and measured times, in any unit.

    Raises:
        LuthierError: there are no times, not as many of both, or one is not a positive number.
    """
    # SciPy takes as long to import as Luthier, and others need only this module's class.
    from scipy.stats import spearmanr

    p, m = _times(projected), _times(measured)
    if p.shape != m.shape:
        raise LuthierError(
            f"{p.size} projected times cannot be compared with {m.size} measured ones: give both of each"
        )
    rho = float(spearmanr(p, m).statistic) if p.size > 2 and np.ptp(p) and np.ptp(m) else math.nan
    distance = np.abs(p - m)
    return Agreement(
        p.size,
        rho,
        float(np.mean(distance / m)),
        float(distance.sum() / m.sum()),
        float(np.median(p / m)),
        float(np.mean(m <= m[np.argmin(p)])),
    )


def best_constant(projected: ArrayLike, measured: ArrayLike) -> float:
    """Return the factor of all projected times with the smallest mean error.

    |c p - m| / m = (p / m) |c - m / p| is a weighted distance, so the best c is the median of m / p by weights p / m.

    Raises:
        LuthierError: as for `agreement`.
    """
    p, m = _times(projected), _times(measured)
    if p.shape != m.shape:
        raise LuthierError(f"{p.size} projected times cannot be scaled to {m.size} measured ones: give both of each")
    ratios = m / p
    order = np.argsort(ratios)
    weights = np.cumsum((p / m)[order])
    return float(ratios[order][np.searchsorted(weights, weights[-1] / 2)])


def _times(values: ArrayLike) -> NDArray[np.float64]:
    times = np.asarray(values, np.float64)
    if times.ndim != 1 or not times.size:
        raise LuthierError("times to compare must be a list with at least one number")
    wrong = times[~(np.isfinite(times) & (times > 0))]
    if wrong.size:
        raise LuthierError(f"a time to compare must be a positive number, not {wrong[0]}")
    return times


def halves(count: int, seed: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the indices of two random halves, for calibration and validation."""
    order = np.random.default_rng(seed).permutation(count).tolist()
    return sorted(order[: count // 2]), sorted(order[count // 2 :])
