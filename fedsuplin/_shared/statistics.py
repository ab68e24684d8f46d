"""Several policies on the same problem and the same seeds: means with standard errors, curves with bands, Table 1 measured.

The runs are independent and the loop holds no GIL, so threads share them out.
"""

from __future__ import annotations

import math

import numpy as np

from .arrays import Floats

CONFIDENCE = 0.95


def compute_standard_error(values: Floats) -> float:
    """Of the mean; NaN says that one value tells nothing of its own spread."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def compute_confidence_band(values: Floats) -> Floats:
    """Half the width of the 95 % confidence interval of the mean, by Student's t; 0 where there is one seed only."""
    from scipy.special import stdtrit

    n = len(values)
    if n < 2:
        return np.zeros(values.shape[1])
    deviations: Floats = values.std(axis=0, ddof=1)
    return float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * deviations / math.sqrt(n)
