"""Numbers, means and their errors as text for verdicts and pages."""

from __future__ import annotations

import math

from .._shared.array_types import Floats
from .._shared.statistics import compute_standard_error


def format_mean_error(values: Floats) -> str:
    """Return mean ± standard error over seeds as text, for an experiment's verdicts and pages.

    It goes to the first digit of the error.

    >>> import numpy as np
    >>> format_mean_error(np.array([1230.0, 1250.0])), format_mean_error(np.array([0.5, 0.53]))
    ('1,240 ± 10', '0.52 ± 0.02')
    """
    return format_with_error(values.mean(), compute_standard_error(values))


def format_with_error(mean: float, error: float) -> str:
    """Return a mean ± its error as text for verdicts and pages, to the first digit of the error."""
    if not error > 0:  # the same for every seed, or one seed only
        return format_number(mean)
    digits = max(0, -math.floor(math.log10(error)))
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}"


def format_number(value: float, *, sign: bool = False) -> str:
    """Return a number as text for verdicts and pages: three digits, or whole from 1000 on.

    >>> format_number(12345.6), format_number(0.01234), format_number(3.0, sign=True)
    ('12,346', '0.0123', '+3')
    """
    plus = "+" if sign else ""
    return f"{value:{plus},.0f}" if abs(value) >= 999.5 else f"{value:{plus}.3g}"
