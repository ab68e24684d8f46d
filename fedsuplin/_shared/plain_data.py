"""Conversion of values to plain data for JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np


def encode_json(value: Any, fallback: Callable[[Any], Any] = repr, **options: Any) -> str:
    """Return plain data, and NumPy's numbers and arrays in it, as JSON text.

    NumPy's numbers and arrays become numbers and lists. `fallback` converts anything else that
    JSON has no form for. Other keywords are those of `json.dumps`.

    >>> encode_json({"every": np.int64(5), "law": object}, fallback=str)
    '{"every": 5, "law": "<class \\'object\\'>"}'
    """

    def convert(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.generic | np.ndarray) else fallback(value)

    return json.dumps(value, default=convert, **options)


def convert_to_plain_data(value: Any, fallback: Callable[[Any], Any] = repr) -> Any:
    """Return a value as plain data: dicts, lists, text, numbers, booleans and None.

    >>> convert_to_plain_data({"sizes": (np.float64(0.5), 2)})
    {'sizes': [0.5, 2]}
    """
    return json.loads(encode_json(value, fallback))


def refuse_value(value: Any) -> NoReturn:
    """Raise TypeError for a value that is not plain data, as a fallback of `encode_json`."""
    raise TypeError(f"{value!r} is not plain data")


def convert_to_strict_json(value: Any) -> Any:
    """Return plain data that the JSON standard allows: NaN and infinity become None, keys text.

    >>> convert_to_strict_json({"error": math.nan, 1: (np.float64(0.5), object)})
    {'error': None, '1': [0.5, "<class 'object'>"]}
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


def convert_to_lists(values: Any) -> Any:
    """Return an array as nested lists, for a specification; None stays None."""
    return None if values is None else np.asarray(values, dtype=float).tolist()


def collect_fields(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that make it again."""
    return {
        field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.init
    }
