"""Conversion and checks of arrays; each error names the array and the entry."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from .array_types import AnyArray, Flags, Floats, Number


def as_array(name: str, values: Any) -> AnyArray:
    """Check that values can be an array, and return it. Entries that are masked out are refused."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InvalidInput(
            f"{name} has entries that are masked out: pass mask= for arms that are not available"
        )
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise InvalidInput(f"{name} can't be read as an array: {error}") from None


def as_floats(name: str, values: Any) -> Floats:
    """Check that values can be an array of float64, and return it, aligned for C."""
    array = as_array(name, values)
    # From other kinds NumPy would drop imaginary parts, count days or parse text.
    if array.dtype.kind not in "fiubO":
        raise InvalidInput(
            f"{name} can't be read as an array of numbers: its type is {array.dtype}"
        )
    try:
        return np.require(array, np.float64, "A")
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise InvalidInput(f"{name} can't be read as an array of numbers: {error}") from None


def check_array(
    name: str, values: Any, shape: tuple[int, ...], there: Flags | None = None
) -> Floats:
    """Check that an array is finite and has a shape. Where `there` is False, entries become 0."""
    array = as_floats(name, values)
    if array.shape != shape:
        raise InvalidInput(f"{name} must have the shape {shape}, not {array.shape}")
    if there is not None:
        array = np.where(there, array, 0.0)
    if not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InvalidInput(f"{name}{list(at)} is {array[at]}: every entry must be finite")
    return np.ascontiguousarray(array)


def check_whole_numbers(
    name: str, values: Floats, least: int, most: int, dtype: type[Number]
) -> NDArray[Number]:
    """Check that an array of floats has whole numbers in a range, and return it as integers."""
    wrong = ~((values == np.floor(values)) & (values >= least) & (values <= most))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidInput(
            f"{name}{list(at)} is {values[at]}: it must be a whole number from {least} to {most}"
        )
    return np.ascontiguousarray(values, dtype=dtype)


@contextlib.contextmanager
def report_memory_errors(what: str, shape: tuple[int, ...]) -> Iterator[None]:
    """Turn NumPy's error for an array that is too large into one that names the array."""
    try:
        yield
    except (MemoryError, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{what} of shape {shape}: there is no memory for that ({error})"
        ) from None
