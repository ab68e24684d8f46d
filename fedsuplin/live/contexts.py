"""Check the contexts of a live client."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._shared.array_checks import as_array, as_floats
from .._shared.array_types import Bytes, Floats
from ..contracts.stream import NORM_TOLERANCE
from ..errors import InvalidInput


def check_contexts(contexts: Any, mask: Any, n_arms: int, dim: int) -> tuple[Floats, Bytes | None]:
    """Return a live client's contexts and mask as arrays in C order, or raise an error.

    Most contexts are plain arrays that the compiled core checks itself. It leaves all others to
    this function, which converts them or says what is wrong.
    """
    contexts = as_floats("contexts", contexts)
    if contexts.shape != (n_arms, dim):
        raise InvalidInput(
            f"contexts must have the shape (arms, dim) = {(n_arms, dim)}, not {contexts.shape}"
        )
    available = np.ones(n_arms, bool) if mask is None else as_array("mask", mask)
    if available.shape != (n_arms,) or available.dtype != bool or not available.any():
        raise InvalidInput(f"mask must be {n_arms} booleans, at least one of them True")
    lengths = np.linalg.norm(contexts[available], axis=1)
    if not np.isfinite(lengths).all():
        raise InvalidInput("contexts hold NaN or infinity")
    if lengths.max() > 1 + NORM_TOLERANCE:
        raise InvalidInput(
            f"a context has length {lengths.max():.6g}; the theory needs at most 1: "
            "divide all by the longest"
        )
    return np.ascontiguousarray(contexts), None if mask is None else available.astype(np.uint8)
