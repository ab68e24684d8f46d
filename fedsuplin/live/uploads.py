"""Packing symmetric matrices, and checking the messages that arrive."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from .._shared.arrays import AnyArray, Floats
from .._shared.checks import is_whole_number
from ..algorithm.algorithm import Algorithm
from ..contracts.stream import NORM_TOLERANCE
from ..errors import InvalidInput
from .messages import Download, Upload

ROUNDING = 1e-12  # relative to the trace: what a sum of a few ω x xᵀ can be off
SUMMING = 1e-9  # and one of very many, at most
TINY, SHORT = (
    1e-280,
    1e-30,
)  # a trace whose entries lose digits and say nothing, and what Δb may be then
MOST_PULLS = 1 << 48  # no sum of them leaves 64 bits
LARGEST = 1e150  # of any number in an upload: their sums stay within doubles
NOT_DEFINITE = "the upload has a matrix that is not positive semi-definite, as sums of ω x xᵀ are"


def select_layers(upload: Upload, layers: Collection[int]) -> Upload:
    """What an upload has of some layers."""
    these = [layer in layers for layer in upload.layers.tolist()]
    if all(these):
        return upload
    parts = {name: getattr(upload, name)[these] for name in ("layers", "grams", "moments", "pulls")}
    return Upload(upload.client_id, **parts, asking=upload.asking)


def pack_layers(parts: list[tuple[int, Floats, Floats]], dim: int) -> dict[str, AnyArray]:
    """(layer, matrix, vector) of several layers as the fields of a message."""
    return {
        "layers": np.array([layer for layer, _, _ in parts], np.int64),
        "grams": np.array([pack_upper(matrix) for _, matrix, _ in parts]).reshape(
            len(parts), dim * (dim + 1) // 2
        ),
        "moments": np.array([vector for _, _, vector in parts]).reshape(len(parts), dim),
    }


def pack_upper(matrix: Floats) -> Floats:
    """The upper triangle, row after row.

    >>> packed(np.array([[1.0, 2.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    return matrix[list_triangle_indices(len(matrix))]


def unpack_upper(upper: Floats, dim: int) -> Floats:
    """The matrix of which this is the upper triangle, below the diagonal 0; or several, one for each row."""
    matrix = np.zeros((*upper.shape[:-1], dim, dim))
    rows, columns = list_triangle_indices(dim)
    matrix[..., rows, columns] = upper
    return matrix


@functools.lru_cache(maxsize=16)
def list_triangle_indices(dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the upper triangle, row after row."""
    return np.triu_indices(dim)


@functools.lru_cache(maxsize=16)
def find_packed_diagonal(dim: int) -> NDArray[np.intp]:
    """Where the diagonal is in a packed upper triangle.

    >>> diagonal(3).tolist()
    [0, 3, 5]
    """
    return np.cumsum([0, *range(dim, 1, -1)])


def check_message(message: Upload | Download, kind: type, dim: int, n_layers: int) -> None:
    """Layers that there are, each once, arrays that fit, and nothing but finite numbers."""
    if not isinstance(message, kind):
        raise InvalidInput(
            f"it must be an object of type {kind.__name__}, not {type(message).__name__}"
        )
    what, n = (
        kind.__name__.lower(),
        np.size(message.layers) if isinstance(message.layers, np.ndarray) else 0,
    )
    if n > n_layers:  # before any of it is looked at: an array may be large by its strides alone
        raise InvalidInput(
            f"the {what} has {n} layers, there are {n_layers}: is it for another algorithm?"
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
        is_array = isinstance(values, np.ndarray) and not isinstance(
            values, np.ma.MaskedArray
        )  # what is masked out is no number
        if not is_array or values.shape != shape or values.dtype.kind not in kinds:
            found = f"{values.dtype} of shape {values.shape}" if is_array else type(values).__name__
            raise InvalidInput(
                f"the {what}'s {name} must have the shape {shape}, of {'whole ' * (kinds == 'iu')}numbers, not {found}: "
                "is it for another algorithm?"
            )
        if kinds == "f" and not np.isfinite(values).all():
            raise InvalidInput(f"the {what}'s {name} hold NaN or infinity")
    layers = message.layers.tolist()
    if len(set(layers)) != n or n and not 0 <= min(layers) <= max(layers) < n_layers:
        raise InvalidInput(
            f"the {what}'s layers must be different ones of 0 to {n_layers - 1}, not {layers}"
        )


def check_upload(upload: Upload, algorithm: Algorithm) -> None:
    """Could a client of this algorithm have gathered this? Refused is what no pulls could have given."""
    dim, n_layers, n_clients = algorithm.dim, algorithm.n_layers, algorithm.n_clients
    check_message(upload, Upload, dim, n_layers)
    if not is_whole_number(upload.client_id) or not 0 <= upload.client_id < n_clients:
        raise InvalidInput(
            f"the upload's client_id must be a whole number from 0 to {n_clients - 1}, not {upload.client_id!r}"
        )
    asking = upload.asking
    if not isinstance(asking, tuple | list) or not all(
        is_whole_number(layer) and 0 <= layer < n_layers for layer in asking
    ):
        raise InvalidInput(
            f"the upload's asking must be layers of 0 to {n_layers - 1}, not {asking!r}"
        )
    with np.errstate(over="ignore"):  # what a double can't hold becomes infinity, and is too large
        upload = dataclasses.replace(
            upload,
            grams=np.asarray(upload.grams, np.float64),
            moments=np.asarray(upload.moments, np.float64),
            pulls=np.asarray(upload.pulls, np.int64),
        )
    if max(np.abs(values).max(initial=0) for values in (upload.grams, upload.moments)) > LARGEST:
        raise InvalidInput(
            f"the upload has numbers beyond {LARGEST:g}, which no sum of such uploads could hold"
        )
    traces = upload.grams[:, find_packed_diagonal(dim)].sum(axis=1)
    _check_trace(upload, traces, algorithm)
    _check_definite(upload, traces, dim)


def _check_trace(upload: Upload, traces: Floats, algorithm: Algorithm) -> None:
    """tr ΔA = Σ ω ‖x‖² ≤ pulls × the largest weight. A client may well have played beyond the horizon."""
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
                f"layer {layer} of the upload has the trace {trace:.6g}; its pulls can give 0 to {bound:.6g}"
            )


def _check_definite(upload: Upload, traces: Floats, dim: int) -> None:
    """ΔA + ε tr(ΔA) I is positive definite if ΔA is positive semi-definite up to rounding; and where ΔA is 0, so is Δb, but for
    contexts so short that their squares are no numbers any more."""
    slack = np.minimum(
        ROUNDING + (8 * dim + upload.pulls) * np.finfo(float).eps, SUMMING
    )  # one arm often rounds to one side
    shifted = np.array(upload.grams, np.float64, order="C")
    shifted[:, find_packed_diagonal(dim)] += (slack * traces)[:, None]
    for row, (layer, trace) in enumerate(zip(upload.layers.tolist(), traces.tolist(), strict=True)):
        if trace < TINY:
            if (
                np.abs(upload.grams[row]).max() > TINY
            ):  # of a positive semi-definite matrix no entry is larger than the trace
                raise InvalidInput(NOT_DEFINITE)
            if np.abs(upload.moments[row]).max() > SHORT:
                raise InvalidInput(
                    f"layer {layer} of the upload has a moment, and no matrix to go with it"
                )
        elif lapack.dpptrf(dim, shifted[row], lower=1)[
            1
        ]:  # LAPACK packs columns: their lower triangle is our upper one
            raise InvalidInput(NOT_DEFINITE)


def find_largest_weight(algorithm: Algorithm) -> float:
    """What one observation can count at most: the weighting says so, or nothing is known."""
    return float(getattr(algorithm.weighting, "largest_weight", np.inf))
