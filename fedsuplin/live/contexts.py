"""Check the contexts of a live client and pack them as the compiled core reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsuplin_ext import norms

from .._shared.array_checks import as_array, as_floats
from .._shared.array_types import Bytes, Floats
from ..contracts.stream import NORM_TOLERANCE
from ..errors import InvalidInput


def pack_contexts(contexts: Any, mask: Any, n_arms: int, dim: int) -> tuple[Floats, Bytes | None]:
    """Return a live client's contexts and mask in the engine's layout, or raise an error."""
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
    lanes = norms.pad(n_arms)
    packed = norms.aligned_zeros(1, dim, lanes)
    norms.pack(np.ascontiguousarray(contexts)[None], available[None].astype(np.uint8), 1.0, packed)
    if mask is None:
        return packed[0], None
    return packed[0], np.pad(available, (0, lanes - n_arms)).astype(np.uint8)
