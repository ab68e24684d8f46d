"""DesignProblem: the rows that an optimal design weighs, and the value of its weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shared.array_types import Counts, Floats


@dataclass(frozen=True, eq=False)
class DesignProblem:
    """Rows in coordinates of the span of their block, and the client that each row belongs to."""

    blocks: tuple[Floats, ...]
    clients: Counts
    n_clients: int

    @property
    def rank(self) -> int:
        """The sum of the dimensions of the blocks."""
        return sum(block.shape[1] for block in self.blocks)

    def split_by_block(self, values: Floats) -> list[Floats]:
        """Split an array with one entry per row into the parts of the blocks."""
        return np.split(values, np.cumsum([len(block) for block in self.blocks])[:-1])

    def whiten(self, weights: Floats) -> list[Floats]:
        """Return V(π)^(-1/2) x_p for the rows of each block; LinAlgError if a V is singular."""
        return [
            _whiten(block, part)
            for block, part in zip(self.blocks, self.split_by_block(weights), strict=True)
        ]

    def sum_by_client(self, values: Floats) -> Floats:
        """Add up values of rows, by client."""
        return np.bincount(self.clients, values, self.n_clients).astype(np.float64, copy=False)

    def normalise(self, weights: Floats) -> Floats:
        """Scale the weights so that those of each client add up to 1."""
        return weights / self.sum_by_client(weights)[self.clients]

    def find_largest_by_client(self, variances: Floats) -> Floats:
        """Return the largest variance of each client's rows."""
        largest = np.zeros(self.n_clients)
        np.maximum.at(largest, self.clients, variances)
        return largest

    def compute_value(self, weights: Floats) -> float:
        """Return Σ_i max_p x_pᵀV⁺x_p over the rows p of client i.

        At the optimum, and only there, it is the rank.
        """
        return float(self.find_largest_by_client(compute_variances(self.whiten(weights))).sum())


def _whiten(rows: Floats, weights: Floats) -> Floats:
    """Return rows · L⁻ᵀ for V = LLᵀ, in one block of a design problem.

    In coordinates of the span L is far from singular, so its inverse costs no accuracy. It saves
    time: a triangular solve by SciPy's OpenBLAS wakes all threads for four rows.
    """
    root = np.linalg.cholesky(rows.T @ (weights[:, None] * rows))
    return rows @ np.linalg.inv(root).T


def compute_variances(whitened: list[Floats]) -> Floats:
    """Return the variance of every row of a design problem: its squared length once whitened."""
    return np.concatenate([np.einsum("pk,pk->p", rows, rows) for rows in whitened])
