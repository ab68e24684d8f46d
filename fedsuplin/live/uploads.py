"""Put uploads together, take them apart, and check those that arrive."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np
from scipy.linalg import lapack

from .._shared.array_types import AnyArray, Floats
from .._shared.checks import is_whole_number
from ..algorithm.algorithm import Algorithm
from ..contracts.stream import NORM_TOLERANCE
from ..errors import InvalidInput
from .algorithm_checks import check_client_id
from .messages import Download, Upload
from .triangles import find_packed_diagonal, pack_upper

ROUNDING = 1e-12  # error of a sum of a few ω x xᵀ, relative to its trace
SUMMING = 1e-9  # error of a sum of very many, at most
TINY = 1e-280  # below this trace the entries of ΔA lose digits and prove nothing
SHORT = 1e-30  # largest entry of Δb that is accepted with such a ΔA
MOST_PULLS = 1 << 48  # sums of many such counts still fit 64 bits
LARGEST = 1e150  # largest number in an upload: sums of many are still finite
NOT_DEFINITE = "the upload has a matrix that is not positive semi-definite, as sums of ω x xᵀ are"


def select_layers(upload: Upload, layers: Collection[int]) -> Upload:
    """Return an upload with some of its layers only."""
    these = [layer in layers for layer in upload.layers.tolist()]
    if all(these):
        return upload
    parts = {name: getattr(upload, name)[these] for name in ("layers", "grams", "moments", "pulls")}
    return Upload(upload.client_id, **parts, asking=upload.asking)


def pack_layers(parts: list[tuple[int, Floats, Floats]], dim: int) -> dict[str, AnyArray]:
    """Return the fields of an upload or a download from (layer, matrix, vector) of its layers."""
    return {
        "layers": np.array([layer for layer, _, _ in parts], np.int64),
        "grams": np.array([pack_upper(matrix) for _, matrix, _ in parts]).reshape(
            len(parts), dim * (dim + 1) // 2
        ),
        "moments": np.array([vector for _, _, vector in parts]).reshape(len(parts), dim),
    }


def check_message(message: Upload | Download, kind: type, dim: int, n_layers: int) -> None:
    """Check the form of an upload, or of a download, which has the same arrays.

    Layers exist and differ, arrays have the right shapes, and numbers are finite.
    """
    if not isinstance(message, kind):
        raise InvalidInput(
            f"expected an object of type {kind.__name__}, not {type(message).__name__}"
        )
    what = kind.__name__.lower()
    n = np.size(message.layers) if isinstance(message.layers, np.ndarray) else 0
    if n > n_layers:  # checked first: an array can be huge by its strides alone
        raise InvalidInput(
            f"the {what} has {n} layers, the algorithm {n_layers}: is it for another algorithm?"
        )
    shapes = {
        "layers": ((n,), "iu"),
        "grams": ((n, dim * (dim + 1) // 2), "f"),
        "moments": ((n, dim), "f"),
    }
    if kind is Upload:
        shapes["pulls"] = ((n,), "iu")
    for name, (shape, kinds) in shapes.items():
        values = getattr(message, name)
        # A masked entry is not a number.
        is_array = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
        if not is_array or values.shape != shape or values.dtype.kind not in kinds:
            found = f"{values.dtype} of shape {values.shape}" if is_array else type(values).__name__
            raise InvalidInput(
                f"the {what}'s {name} must have the shape {shape}, of "
                f"{'whole ' * (kinds == 'iu')}numbers, not {found}: is it for another algorithm?"
            )
        if kinds == "f" and not np.isfinite(values).all():
            raise InvalidInput(f"the {what}'s {name} hold NaN or infinity")
    layers = message.layers.tolist()
    if len(set(layers)) != n or n and not 0 <= min(layers) <= max(layers) < n_layers:
        raise InvalidInput(
            f"the {what}'s layers must be different ones of 0 to {n_layers - 1}, not {layers}"
        )


def check_upload(upload: Upload, algorithm: Algorithm) -> None:
    """Check an upload: raise an error if no client of this algorithm could have gathered it."""
    dim, n_layers = algorithm.dim, algorithm.n_layers
    check_message(upload, Upload, dim, n_layers)
    check_client_id(upload.client_id, algorithm, "the upload's client_id")
    asking = upload.asking
    if not isinstance(asking, tuple | list) or not all(
        is_whole_number(layer) and 0 <= layer < n_layers for layer in asking
    ):
        raise InvalidInput(
            f"the upload's asking must be layers of 0 to {n_layers - 1}, not {asking!r}"
        )
    with np.errstate(over="ignore"):  # too large for a double: becomes infinity, and is refused
        upload = dataclasses.replace(
            upload,
            grams=np.asarray(upload.grams, np.float64),
            moments=np.asarray(upload.moments, np.float64),
            pulls=np.asarray(upload.pulls, np.int64),
        )
    if max(np.abs(values).max(initial=0) for values in (upload.grams, upload.moments)) > LARGEST:
        raise InvalidInput(
            f"the upload has numbers beyond {LARGEST:g}; sums of many could not hold them"
        )
    traces = upload.grams[:, find_packed_diagonal(dim)].sum(axis=1)
    _check_trace(upload, traces, algorithm)
    _check_definite(upload, traces, dim)


def _check_trace(upload: Upload, traces: Floats, algorithm: Algorithm) -> None:
    """Check that an upload has tr ΔA = Σ ω ‖x‖² ≤ pulls × the largest weight.

    The horizon is no bound: a client may play beyond it.
    """
    pulls = upload.pulls
    if len(pulls) and (pulls.min() < 1 or pulls.max() > MOST_PULLS):
        raise InvalidInput(
            f"the upload's pulls must be from 1 to {MOST_PULLS}, not {pulls.tolist()}"
        )
    most = pulls * find_largest_weight(algorithm) * (1 + NORM_TOLERANCE) ** 2 * (1 + SUMMING)
    for layer, trace, bound in zip(
        upload.layers.tolist(), traces.tolist(), most.tolist(), strict=True
    ):
        if not 0 <= trace <= bound:
            raise InvalidInput(
                f"layer {layer} of the upload has the trace {trace:.6g}; "
                f"its pulls can give 0 to {bound:.6g}"
            )


def _check_definite(upload: Upload, traces: Floats, dim: int) -> None:
    """Check that an upload's ΔA is positive semi-definite: ΔA + ε tr(ΔA) I has a factor.

    Where ΔA is 0, so must be Δb, except for contexts so short that their squares underflow.
    """
    # ε grows with the pulls: an arm that is played often is always rounded to the same side.
    slack = np.minimum(ROUNDING + (8 * dim + upload.pulls) * np.finfo(float).eps, SUMMING)
    shifted = np.array(upload.grams, np.float64, order="C")
    shifted[:, find_packed_diagonal(dim)] += (slack * traces)[:, None]
    for row, (layer, trace) in enumerate(zip(upload.layers.tolist(), traces.tolist(), strict=True)):
        if trace < TINY:
            # No entry of a positive semi-definite matrix is larger than its trace.
            if np.abs(upload.grams[row]).max() > TINY:
                raise InvalidInput(NOT_DEFINITE)
            if np.abs(upload.moments[row]).max() > SHORT:
                raise InvalidInput(
                    f"layer {layer} of the upload has a moment, but its matrix is zero"
                )
        # LAPACK packs columns: their lower triangle is our upper one.
        elif lapack.dpptrf(dim, shifted[row], lower=1)[1]:
            raise InvalidInput(NOT_DEFINITE)


def find_largest_weight(algorithm: Algorithm) -> float:
    """Return the largest weight of one observation in an upload; infinity if there is no limit."""
    return float(getattr(algorithm.weighting, "largest_weight", np.inf))
