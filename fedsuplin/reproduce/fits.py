"""Fits of power laws and straight lines, to see how fast something grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._shared.array_types import Floats


def fit_exponents(x: Sequence[float], values: Sequence[Floats]) -> Floats:
    """Return p of the power law values ∝ x^p that fits an experiment best, one per seed.

    `values` has one array over the seeds for each x.

    >>> one, ten, hundred = np.array([1.0, 2.0]), np.array([10.0, 2.0]), np.array([100.0, 2.0])
    >>> fit_exponents([1, 10, 100], [one, ten, hundred]).round(6).tolist()
    [1.0, 0.0]
    """
    powers: Floats = np.polyfit(np.log(x), np.log(np.array(values)), 1)[0]
    return powers


def fit_line(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> tuple[float, float]:
    """Return slope and R² of the straight line that fits an experiment's means best.

    R² is 1 where y is constant.

    >>> [round(value, 6) for value in fit_line([1, 2, 3], [5, 7, 9])]
    [2.0, 1.0]
    """
    fit = np.corrcoef(x, y)[0, 1] ** 2 if np.ptp(y) else 1.0
    return float(np.polyfit(x, y, 1)[0]), float(fit)
