"""What clients and the server of a live federation say to each other: small frozen messages, symmetric matrices packed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Upload:
    """What a client has gathered since its downloads: ΔA (packed upper triangle) and Δb of each layer that has something new."""

    client_id: int
    layers: np.ndarray
    grams: np.ndarray
    """Layers × d(d+1)/2."""
    moments: np.ndarray
    """Layers × d."""
    asking: tuple[int, ...] = ()
    """The layers whose trigger has fired."""


@dataclass(frozen=True, eq=False)
class Download:
    """What the server knows: A (packed upper triangle) and b of some layers."""

    layers: np.ndarray
    grams: np.ndarray
    moments: np.ndarray


def packed(matrix: np.ndarray) -> np.ndarray:
    """The upper triangle, row after row.

    >>> packed(np.array([[1.0, 2.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    return matrix[np.triu_indices(len(matrix))]


def unpacked(triangle: np.ndarray, dim: int) -> np.ndarray:
    """The matrix of which this is the upper triangle; below the diagonal it is 0."""
    matrix = np.zeros((dim, dim))
    matrix[np.triu_indices(dim)] = triangle
    return matrix


def together(parts: list[tuple[int, np.ndarray, np.ndarray]], dim: int) -> dict[str, np.ndarray]:
    """(layer, matrix, vector) of several layers as the fields of a message."""
    return {
        "layers": np.array([layer for layer, _, _ in parts], np.int64),
        "grams": np.array([packed(matrix) for _, matrix, _ in parts]).reshape(len(parts), dim * (dim + 1) // 2),
        "moments": np.array([vector for _, _, vector in parts]).reshape(len(parts), dim),
    }


def check_message(message: Upload | Download, kind: type, dim: int, n_layers: int) -> None:
    """Layers that there are, each once, arrays that fit, and nothing but finite numbers."""
    if not isinstance(message, kind):
        raise InvalidInput(f"it must be an object of type {kind.__name__}, not {type(message).__name__}")
    what, n = kind.__name__.lower(), np.size(message.layers) if isinstance(message.layers, np.ndarray) else 0
    if n > n_layers:  # before any of it is looked at: an array may be large by its strides alone
        raise InvalidInput(f"the {what} has {n} layers, there are {n_layers}: is it for another algorithm?")
    shapes = {"layers": ((n,), "iu"), "grams": ((n, dim * (dim + 1) // 2), "f"), "moments": ((n, dim), "f")}
    for name, (shape, kinds) in shapes.items():
        values = getattr(message, name)
        if not isinstance(values, np.ndarray) or values.shape != shape or values.dtype.kind not in kinds:
            found = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise InvalidInput(
                f"the {what}'s {name} must have the shape {shape}, of {'whole ' * (kinds == 'iu')}numbers, not {found}: "
                "is it for another algorithm?"
            )
        if not np.isfinite(values).all():
            raise InvalidInput(f"the {what}'s {name} hold NaN or infinity")
    if len(np.unique(message.layers)) != n or n and not 0 <= message.layers.min() <= message.layers.max() < n_layers:
        raise InvalidInput(f"the {what}'s layers must be different ones of 0 to {n_layers - 1}, not {message.layers.tolist()}")


def check_upload(upload: Upload, dim: int, n_layers: int, n_clients: int) -> None:
    check_message(upload, Upload, dim, n_layers)
    if not is_whole(upload.client_id) or not 0 <= upload.client_id < n_clients:
        raise InvalidInput(f"the upload's client_id must be a whole number from 0 to {n_clients - 1}, not {upload.client_id!r}")
    asking = upload.asking
    if not isinstance(asking, tuple | list) or not all(is_whole(layer) and 0 <= layer < n_layers for layer in asking):
        raise InvalidInput(f"the upload's asking must be layers of 0 to {n_layers - 1}, not {asking!r}")


def is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
