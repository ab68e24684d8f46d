"""Pack symmetric matrices as their upper triangles."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from .._shared.array_types import Floats


def pack_upper(matrix: Floats) -> Floats:
    """Return the upper triangle of a matrix, row after row.

    >>> pack_upper(np.array([[1.0, 2.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    return matrix[list_triangle_indices(len(matrix))]


def unpack_upper(upper: Floats, dim: int) -> Floats:
    """Return the matrix with this packed upper triangle, and zeros below the diagonal.

    Several rows give several matrices.
    """
    matrix = np.zeros((*upper.shape[:-1], dim, dim))
    rows, columns = list_triangle_indices(dim)
    matrix[..., rows, columns] = upper
    return matrix


@functools.lru_cache(maxsize=16)
def list_triangle_indices(dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of the entries of an upper triangle, row after row."""
    return np.triu_indices(dim)


@functools.lru_cache(maxsize=16)
def find_packed_diagonal(dim: int) -> NDArray[np.intp]:
    """Return where the diagonal is in a packed upper triangle.

    >>> find_packed_diagonal(3).tolist()
    [0, 3, 5]
    """
    return np.cumsum([0, *range(dim, 1, -1)])
