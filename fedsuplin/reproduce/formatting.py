"""Verdicts: a claim, what was measured, and whether it holds, does not, or can't be told from these seeds."""

from __future__ import annotations

import math

from .._shared.arrays import Floats
from .._shared.statistics import compute_standard_error


def format_mean_error(values: Floats) -> str:
    """Mean ± standard error, to the first digit of the error.

    >>> mean_error(np.array([1230.0, 1250.0])), mean_error(np.array([0.5, 0.53]))
    ('1,240 ± 10', '0.52 ± 0.02')
    """
    return format_with_error(values.mean(), compute_standard_error(values))


def format_with_error(mean: float, error: float) -> str:
    if not error > 0:  # the same for every seed, or one seed only
        return format_number(mean)
    digits = max(0, -math.floor(math.log10(error)))
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}"


def format_number(value: float, *, sign: bool = False) -> str:
    """In three digits or, from 1000 on, whole.

    >>> number(12345.6), number(0.01234), number(3.0, sign=True)
    ('12,346', '0.0123', '+3')
    """
    plus = "+" if sign else ""
    return f"{value:{plus},.0f}" if abs(value) >= 999.5 else f"{value:{plus}.3g}"
