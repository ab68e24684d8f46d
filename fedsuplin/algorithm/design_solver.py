"""The interior-point solver behind the optimal designs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.linalg import LinAlgError
from scipy.linalg import cho_factor, cho_solve, qr

from .._shared.arrays import Counts, Floats
from ..errors import NumericalError

# Parts of the tolerance: what the path to the weights may use, and what they may have used once rows are left out. The rest
# is for the rounding of whoever checks the value with another formula.
PATH_PART = 0.25
USED_PART = 0.5
STEP_LIMIT = 100  # Newton steps of one path; 5 to 15 are usual
HALVING_LIMIT = 30  # of one step; when they don't help, it is rounding that is in the way
KEPT = 0.01  # what a step leaves at least of every weight and slack
SMALL_BLOCK = 256  # up to so many rows the curvature is factored as it stands, which rounds less than the shorter form


@dataclass(frozen=True, eq=False)
class DesignProblem:
    """Rows in coordinates of the span of their block, block after block, and the client that each row belongs to."""

    blocks: tuple[Floats, ...]
    clients: Counts
    n_clients: int

    @property
    def rank(self) -> int:
        return sum(block.shape[1] for block in self.blocks)

    def cut(self, values: Floats) -> list[Floats]:
        """Something with an entry for each row, in the parts that belong to the blocks."""
        return np.split(values, np.cumsum([len(block) for block in self.blocks])[:-1])

    def whitened(self, weights: Floats) -> list[Floats]:
        """V(π)^(-1/2) x_p for the rows of each block. LinAlgError when a V is singular."""
        return [
            _whiten(block, part) for block, part in zip(self.blocks, self.cut(weights), strict=True)
        ]

    def sum_by_client(self, values: Floats) -> Floats:
        return np.bincount(self.clients, values, self.n_clients).astype(np.float64, copy=False)

    def normalised(self, weights: Floats) -> Floats:
        return weights / self.sum_by_client(weights)[self.clients]

    def largest_by_client(self, variances: Floats) -> Floats:
        largest = np.zeros(self.n_clients)
        np.maximum.at(largest, self.clients, variances)
        return largest

    def value(self, weights: Floats) -> float:
        """Σ_i max_p x_pᵀV⁺x_p over the rows p of client i. At the optimum, and only there, it is the rank."""
        return float(self.largest_by_client(_compute_variances(self.whitened(weights))).sum())


def _whiten(rows: Floats, weights: Floats) -> Floats:
    """rows · L⁻ᵀ for V = LLᵀ. In coordinates of the span L is far from singular: its inverse costs no accuracy.

    And no time, where a triangular solve by SciPy's OpenBLAS wakes all threads for four rows.
    """
    root = np.linalg.cholesky(rows.T @ (weights[:, None] * rows))
    return rows @ np.linalg.inv(root).T


def _compute_variances(whitened: list[Floats]) -> Floats:
    return np.concatenate([np.einsum("pk,pk->p", rows, rows) for rows in whitened])


def find_core_set_weights(problem: DesignProblem, tolerance: float) -> Floats:
    """Weights of one client's rows with a value within USED_PART of the tolerance, on a core set of the rows.

    The start of Kumar and Yildirim (2005): a row with the largest part orthogonal to those before it, which is what QR
    pivots on. Then the optimum on the core set, and as long as rows outside are above the bound, some of them join: as many
    as the rank twice, then as many as there are. With a tolerance of 1 that ends at about three times the rank.
    """
    (rows,), rank, bound = problem.blocks, problem.rank, problem.rank * (1 + USED_PART * tolerance)
    core = _pick_spread_out_rows(rows)
    while True:
        part = DesignProblem((rows[core],), problem.clients[core], 1)
        weights = np.zeros(len(rows))
        weights[core] = find_path_weights(part, tolerance)
        whitened = problem.whitened(weights)
        variances = _compute_variances(whitened)
        above = np.setdiff1d(
            np.flatnonzero(variances > bound), core
        )  # those of the core are not, but for rounding
        if not len(above):
            return weights
        spread = above[
            _pick_spread_out_rows(whitened[0][above])
        ]  # the largest alone would often be neighbours of each other
        largest = above[np.argsort(-variances[above], kind="stable")][
            : max(0, len(core) - 2 * rank)
        ]
        core = np.unique(np.concatenate([core, spread, largest]))


def _pick_spread_out_rows(rows: Floats) -> Floats:
    """As many rows as there are dimensions at most, each the one with the largest part orthogonal to those before it."""
    _, pivots = qr(rows.T, mode="r", pivoting=True, check_finite=False)
    return np.sort(pivots[: rows.shape[1]])


def thin_out_weights(problem: DesignProblem, weights: Floats, tolerance: float) -> Floats:
    """The weights without the smallest, as many as can go with a value within USED_PART of the tolerance, by bisection."""
    order, bound = np.argsort(weights, kind="stable"), problem.rank * (1 + USED_PART * tolerance)
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        fewer = weights.copy()
        fewer[order[:middle]] = 0.0
        if _compute_value_of_support(problem, fewer) <= bound:
            weights, low = problem.normalised(fewer), middle
        else:
            high = middle
    return weights


def _compute_value_of_support(problem: DesignProblem, weights: Floats) -> float:
    """The value of the weights once normalised; infinite when a client or a direction is left without any."""
    if not problem.sum_by_client(weights).all():
        return np.inf
    try:
        return problem.value(problem.normalised(weights))
    except LinAlgError:
        return np.inf


def find_path_weights(problem: DesignProblem, tolerance: float) -> Floats:
    """Weights with a value within PATH_PART of the tolerance, by following the central path (a primal-dual interior point).

    On the path π_p (ν_i − variance_p) = μ for each row p of client i, of n rows in all. Summed, Σ_i ν_i = rank + nμ, and ν_i
    is above the client's variances: the value is at most rank + nμ, and falls to the rank with μ. Each step solves Newton's
    equations, so that arms nearly collinear or many optimal designs, which slow first-order methods down, do not matter.
    """
    size, rank, excess, goal = len(problem.clients), problem.rank, np.inf, PATH_PART * tolerance
    lowest_barrier = (
        goal * rank / (4 * size)
    )  # further down there is nothing to gain but rounding errors
    with contextlib.suppress(
        LinAlgError
    ):  # equations too close to singular end the path as the limit does
        point = _find_start(problem)
        for _ in range(STEP_LIMIT):
            excess = problem.largest_by_client(point.variances).sum() / rank - 1
            if excess <= goal:
                return point.weights
            point = _advance(problem, point, lowest_barrier)
    raise NumericalError(
        f"the design of {size} contexts of rank {rank} reached a value of rank·(1 + {excess:.1e}) in at most {STEP_LIMIT} steps; "
        f"a tolerance of {tolerance:.1e} takes rank·(1 + {goal:.1e}). Ask for a larger tolerance"
    )


@dataclass(frozen=True, eq=False)
class _PathPoint:
    """Where a path has come to: weights π > 0, a price ν_i for each client, and slacks s > 0, which tend to ν_i − variance_p."""

    weights: Floats
    slacks: Floats
    prices: Floats
    whitened: list[Floats]
    variances: Floats

    def room(self, step: _NewtonStep) -> float:
        """How much of the step, at most all of it, leaves KEPT of every weight and slack."""
        shrinking = float(
            max(np.max(-step.weights / self.weights), np.max(-step.slacks / self.slacks))
        )
        return (1 - KEPT) / max(1 - KEPT, shrinking)

    def moved(self, problem: DesignProblem, step: _NewtonStep, length: float) -> _PathPoint:
        weights = problem.normalised(
            self.weights + length * step.weights
        )  # the sums are 1 already, but for rounding
        whitened = problem.whitened(weights)
        slacks, prices = self.slacks + length * step.slacks, self.prices + length * step.prices
        return _PathPoint(weights, slacks, prices, whitened, _compute_variances(whitened))

    def slope(self, step: _NewtonStep, barrier: float) -> float:
        """The derivative of Σ ln det V + μ Σ_p ln π_p along the step."""
        return float((self.variances + barrier / self.weights) @ step.weights)


@dataclass(frozen=True, eq=False)
class _NewtonStep:
    weights: Floats
    slacks: Floats
    prices: Floats


def _find_start(problem: DesignProblem) -> _PathPoint:
    """Even weights, which span all there is, and prices a tenth of the optimum's mean above the variances."""
    weights = problem.normalised(np.ones(len(problem.clients)))
    whitened = problem.whitened(weights)
    variances = _compute_variances(whitened)
    prices = problem.largest_by_client(variances) + 0.1 * problem.rank / problem.n_clients
    return _PathPoint(weights, prices[problem.clients] - variances, prices, whitened, variances)


def _advance(problem: DesignProblem, point: _PathPoint, lowest_barrier: float) -> _PathPoint:
    """A step with Mehrotra's choice of μ: the further a step straight to μ = 0 would come, the lower."""
    newton = _NewtonEquations(problem, point)
    straight = newton.step(0.0)
    room = point.room(straight)
    gap = float(point.weights @ point.slacks)
    gap_there = float(
        (point.weights + room * straight.weights) @ (point.slacks + room * straight.slacks)
    )
    barrier = max(lowest_barrier, gap / len(point.weights) * (gap_there / gap) ** 3)
    step = newton.step(barrier - straight.weights * straight.slacks)
    if (
        point.slope(step, barrier) <= 0
    ):  # the second-order term misled; without it the slope is positive
        step = newton.step(barrier)
    return _climb(problem, point, step, barrier)


def _climb(
    problem: DesignProblem, point: _PathPoint, step: _NewtonStep, barrier: float
) -> _PathPoint:
    """The step, halved until the concave Σ ln det V + μ Σ ln π is not far past its highest point along it.

    The slope tells: it is positive at the start, and at the end must not have turned to less than minus half of that.
    """
    length, slope = point.room(step), point.slope(step, barrier)
    for _ in range(HALVING_LIMIT):
        moved = point.moved(problem, step, length)
        if moved.slope(step, barrier) >= -slope / 2:
            break
        length /= 2
    return moved


class _NewtonEquations:
    """The equations of a step at a point, factored once:

        (C + diag(s/π)) dπ + Aᵀdν = variance − Aᵀν + target/π,    A dπ = 0,    ds = (target − s dπ)/π − s

    where C is the curvature of −Σ ln det, (x_pᵀV⁺x_q)² for rows p and q of one block, and A sums over each client's rows.
    """

    def __init__(self, problem: DesignProblem, point: _PathPoint) -> None:
        self.problem, self.point = problem, point
        scales = problem.cut(np.sqrt(point.weights / point.slacks))
        self.inverses = [
            _make_inverse(rows, scale) for rows, scale in zip(point.whitened, scales, strict=True)
        ]
        self.sums = np.equal.outer(problem.clients, np.arange(problem.n_clients)).astype(
            float
        )  # Aᵀ
        self.spread = self.solve(self.sums)
        self.price_factor = cho_factor(self.sums.T @ self.spread, check_finite=False)

    def solve(self, right: Floats) -> Floats:
        parts = zip(self.inverses, self.problem.cut(right), strict=True)
        return np.concatenate([inverse(part) for inverse, part in parts])

    def step(self, target: float | Floats) -> _NewtonStep:
        point = self.point
        free = self.solve(
            point.variances - point.prices[self.problem.clients] + target / point.weights
        )
        prices = cho_solve(self.price_factor, self.problem.sum_by_client(free), check_finite=False)
        weights = free - self.spread @ prices
        slacks = (target - point.slacks * weights) / point.weights - point.slacks
        return _NewtonStep(weights, slacks, prices)


def _make_inverse(rows: Floats, scale: Floats) -> Callable[[Floats], Floats]:
    """(C + diag(1/scale²))⁻¹ as a function of vectors or columns, for C_pq = (rows_p · rows_q)², scaled to I + SCS.

    C = FFᵀ with a column of F for each pair of coordinates. When there are more rows than pairs,
    (I + SFFᵀS)⁻¹ = I − SF(I + FᵀS²F)⁻¹FᵀS has less to factor.
    """
    size, rank = rows.shape
    if size <= max(SMALL_BLOCK, rank * (rank + 1) // 2):
        whole = _factor_beside_identity((rows @ rows.T) ** 2 * np.outer(scale, scale))
        return lambda right: _scale_rows(
            scale, cho_solve(whole, _scale_rows(scale, right), check_finite=False)
        )
    first, second = np.triu_indices(rank)
    pairs = (
        rows[:, first]
        * rows[:, second]
        * np.where(first == second, 1.0, np.sqrt(2.0))
        * scale[:, None]
    )
    short = _factor_beside_identity(pairs.T @ pairs)

    def solve(right: Floats) -> Floats:
        right = _scale_rows(scale, right)
        return _scale_rows(
            scale, right - pairs @ cho_solve(short, pairs.T @ right, check_finite=False)
        )

    return solve


def _factor_beside_identity(matrix: Floats) -> tuple[Floats, bool]:
    """The Cholesky factor of I + matrix, in the place of the matrix."""
    matrix[np.diag_indices_from(matrix)] += 1.0
    factor, lower = cho_factor(matrix, overwrite_a=True, check_finite=False)
    return factor, lower


def _scale_rows(scale: Floats, values: Floats) -> Floats:
    """diag(scale) times a vector or columns."""
    return (scale * values.T).T
