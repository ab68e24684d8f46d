"""Plain data to and from JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def convert_numpy_values(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError


def encode_for_json(value: Any) -> Any:
    """A parameter of somebody's plugin that JSON does not know: a number or a list where it is NumPy's, else how it shows."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else repr(value)


def convert_to_strict_json(value: Any) -> Any:
    """The same in what JSON knows.

    >>> as_json({"error": math.nan, 1: (np.float64(0.5), Path("a"))})
    {'error': None, '1': [0.5, 'a']}
    """
    if isinstance(value, Mapping):
        return {str(key): convert_to_strict_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert_to_strict_json(each) for each in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return convert_to_strict_json(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)
