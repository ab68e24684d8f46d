"""Standard errors and confidence bands of means."""

from __future__ import annotations

import math

import numpy as np

from .array_types import Floats

CONFIDENCE = 0.95


def compute_standard_error(values: Floats) -> float:
    """Return the standard error of the mean; NaN for a single value, which has no spread."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def compute_student_factor(freedom: float) -> float:
    """Return how many standard errors half a 95 % confidence interval is wide, by Student's t.

    >>> round(compute_student_factor(9), 3)
    2.262
    """
    from scipy.special import stdtrit  # takes long to import, and --help does without

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def compute_confidence_band(values: Floats) -> Floats:
    """Return half the width of the mean's 95 % confidence interval for each column of values.

    One row has no spread, so its band is 0 wide.
    """
    n = len(values)
    if n < 2:
        return np.zeros(values.shape[1])
    deviations: Floats = values.std(axis=0, ddof=1)
    return compute_student_factor(n - 1) * deviations / math.sqrt(n)
