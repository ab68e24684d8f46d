"""Fits: how fast something grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._shared.arrays import Floats


def fit_exponents(x: Sequence[float], values: Sequence[Floats]) -> Floats:
    """p of the power law values ∝ x^p that fits best, for each seed (values are an array of seeds for each x).

    >>> exponents([1, 10, 100], [np.array([1.0, 2.0]), np.array([10.0, 2.0]), np.array([100.0, 2.0])]).round(6).tolist()
    [1.0, 0.0]
    """
    powers: Floats = np.polyfit(np.log(x), np.log(np.array(values)), 1)[0]
    return powers


def fit_line(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> tuple[float, float]:
    """Slope and R² of the straight line that fits best; 1 where y does not vary, since the line is exact.

    >>> [round(value, 6) for value in line([1, 2, 3], [5, 7, 9])]
    [2.0, 1.0]
    """
    fit = np.corrcoef(x, y)[0, 1] ** 2 if np.ptp(y) else 1.0
    return float(np.polyfit(x, y, 1)[0]), float(fit)
