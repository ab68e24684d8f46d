"""Checks of single numbers."""

from __future__ import annotations

import math
import numbers
from typing import TypeGuard

import numpy as np

from ..errors import InvalidInput

LARGEST_SIZE = 2**31 - 1
LARGEST_COUNT = 2**62


def check_positive_integer(name: str, value: object, most: int = LARGEST_COUNT) -> int:
    """`value` as an int of at least 1, or an error that names it. 40_000.0 is fine, 2.5 and True are not."""
    whole = _read_whole_number(value)
    if whole is None or isinstance(value, bool) or whole < 1:
        raise InvalidInput(f"{name} must be a whole number of at least 1, not {value!r}")
    if whole > most:
        raise InvalidInput(
            f"{name} must be at most {most}, which is more than anybody's memory or time holds"
        )
    return whole


def _read_whole_number(value: object) -> int | None:
    if isinstance(value, numbers.Integral):
        return int(value)
    return (
        int(float(value)) if isinstance(value, numbers.Real) and float(value).is_integer() else None
    )


def check_size(name: str, value: object) -> int:
    """d, K or M: as `positive_integer`, and an int in C."""
    return check_positive_integer(name, value, LARGEST_SIZE)


def check_finite(name: str, value: object) -> float:
    """`value` as a finite float, or an error that names it."""
    try:
        if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number beyond all floats; its digits would fill the screen
        raise InvalidInput(
            f"{name} must be a finite number, and none this large is in double precision"
        ) from None
    raise InvalidInput(f"{name} must be a finite number, not {value!r}")


def check_positive(name: str, value: object) -> float:
    number = check_finite(name, value)
    if number <= 0:
        raise InvalidInput(f"{name} must be positive, not {value!r}")
    return number


def check_not_negative(name: str, value: object) -> float:
    number = check_finite(name, value)
    if number < 0:
        raise InvalidInput(f"{name} must be at least 0, not {value!r}")
    return number


def check_probability(name: str, value: object) -> float:
    """`value` strictly between 0 and 1."""
    number = check_finite(name, value)
    if not 0 < number < 1:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, not {value!r}")
    return number


def check_seed(seed: object, most: int | None = None) -> int:
    """Return a seed as an int, or raise an error if it is not a whole number from 0 to `most`."""
    if not is_whole_number(seed) or seed < 0 or (most is not None and seed > most):
        raise InvalidInput(f"seed must be a whole number of at least 0, not {seed!r}")
    return int(seed)


def is_whole_number(value: object) -> TypeGuard[int]:
    """Return whether a value is an int of Python's or NumPy's. True and 2.0 are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
