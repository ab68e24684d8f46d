"""Checks of single numbers; each error names the argument."""

from __future__ import annotations

import math
import numbers
from typing import TypeGuard

import numpy as np

from ..errors import InvalidInput

LARGEST_SIZE = 2**31 - 1
LARGEST_COUNT = 2**62


def check_positive_integer(name: str, value: object, most: int = LARGEST_COUNT) -> int:
    """Check that an argument is a whole number of at least 1; 4e4 is one, 2.5 and True are not.

    Parameters
    ----------
    name : str
        The name of the argument, for the error.
    value : object
        What was given for it.
    most : int, default 2**62
        The largest value allowed.

    Returns
    -------
    int
        The value.

    Raises
    ------
    InvalidInput
        If it is not.

    Examples
    --------
    >>> from fedsuplin.plugin import check_positive_integer
    >>> check_positive_integer("every", 40_000.0)
    40000
    """
    whole = _read_whole_number(value)
    if whole is None or isinstance(value, bool) or whole < 1:
        raise InvalidInput(f"{name} must be a whole number of at least 1, not {value!r}")
    if whole > most:
        raise InvalidInput(
            f"{name} must be at most {most}: no computer has the memory or time for more"
        )
    return whole


def _read_whole_number(value: object) -> int | None:
    """Return an argument that is a whole number of any type as an int; None if it is not."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and float(value).is_integer():
        return int(float(value))
    return None


def check_size(name: str, value: object) -> int:
    """Check an argument that is a dimension or a number of arms or clients: it must fit C's int."""
    return check_positive_integer(name, value, LARGEST_SIZE)


def check_finite(name: str, value: object) -> float:
    """Check that an argument is a finite number.

    Parameters
    ----------
    name : str
        The name of the argument, for the error.
    value : object
        What was given for it.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InvalidInput
        If it is not.

    Examples
    --------
    >>> from fedsuplin.plugin import check_finite
    >>> check_finite("C", 1)
    1.0
    """
    try:
        if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # a whole number beyond all floats; its digits would fill the screen
        raise InvalidInput(
            f"{name} must be a finite number, and double precision has none this large"
        ) from None
    raise InvalidInput(f"{name} must be a finite number, not {value!r}")


def check_positive(name: str, value: object) -> float:
    """Check that an argument is a finite number above 0.

    Parameters
    ----------
    name : str
        The name of the argument, for the error.
    value : object
        What was given for it.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InvalidInput
        If it is not.

    Examples
    --------
    >>> from fedsuplin.plugin import check_positive
    >>> check_positive("C", 0.5)
    0.5
    """
    number = check_finite(name, value)
    if number <= 0:
        raise InvalidInput(f"{name} must be positive, not {value!r}")
    return number


def check_not_negative(name: str, value: object) -> float:
    """Check that an argument is a finite number of at least 0.

    Parameters
    ----------
    name : str
        The name of the argument, for the error.
    value : object
        What was given for it.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InvalidInput
        If it is not.

    Examples
    --------
    >>> from fedsuplin.plugin import check_not_negative
    >>> check_not_negative("corruption", 0)
    0.0
    """
    number = check_finite(name, value)
    if number < 0:
        raise InvalidInput(f"{name} must be at least 0, not {value!r}")
    return number


def check_probability(name: str, value: object) -> float:
    """Check that an argument lies strictly between 0 and 1.

    Parameters
    ----------
    name : str
        The name of the argument, for the error.
    value : object
        What was given for it.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InvalidInput
        If it does not.

    Examples
    --------
    >>> from fedsuplin.plugin import check_probability
    >>> check_probability("delta", 0.01)
    0.01
    """
    number = check_finite(name, value)
    if not 0 < number < 1:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, not {value!r}")
    return number


def check_seed(seed: object, most: int | None = None) -> int:
    """Check that an argument is a seed, from 0 to `most`, and return it as an int."""
    if not is_whole_number(seed) or seed < 0 or (most is not None and seed > most):
        raise InvalidInput(f"seed must be a whole number of at least 0, not {seed!r}")
    return int(seed)


def is_whole_number(value: object) -> TypeGuard[int]:
    """Return whether an argument is an int of Python's or NumPy's. True and 2.0 are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_seconds(name: str, seconds: object) -> None:
    """Check that an argument is a positive, finite number of seconds."""
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 < seconds < float("inf")
    ):
        raise InvalidInput(f"{name} must be a positive number of seconds, not {seconds!r}")
