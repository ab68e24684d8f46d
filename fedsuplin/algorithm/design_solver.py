"""The interior-point solver behind the optimal designs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.linalg import LinAlgError

from .._shared.array_types import Floats
from .._shared.lazy_names import LazyModule
from ..errors import NumericalError
from .design_problem import DesignProblem, compute_variances

if TYPE_CHECKING:
    from scipy import linalg
else:
    linalg = LazyModule("scipy.linalg")  # takes longer to import than the rest of a short run

# Parts of the tolerance: what the path to the weights may use, and what they may have used once
# rows are left out. The rest is for the rounding of another formula that checks the value.
PATH_PART = 0.25
USED_PART = 0.5
STEP_LIMIT = 100  # Newton steps of one path; 5 to 15 are usual
HALVING_LIMIT = 30  # of one step; when more are needed, rounding is in the way
KEPT = 0.01  # what a step leaves at least of every weight and slack
# Up to this many rows the curvature is factored as it is, which rounds less than the shorter form.
SMALL_BLOCK = 256


def find_core_set_weights(problem: DesignProblem, tolerance: float) -> Floats:
    """Solve for the weights of one client's rows on a core set, within USED_PART of the tolerance.

    The start is that of Kumar and Yildirim (2005): rows that each have the largest part orthogonal
    to those before, which is what QR pivots on. Then comes the optimum on the core set. As long as
    rows outside are above the bound, some of them join: twice as many as the rank, then as many as
    there are in the core set. With a tolerance of 1 that ends at about three times the rank.
    """
    (rows,), rank, bound = problem.blocks, problem.rank, problem.rank * (1 + USED_PART * tolerance)
    core = _pick_spread_out_rows(rows)
    while True:
        part = DesignProblem((rows[core],), problem.clients[core], 1)
        weights = np.zeros(len(rows))
        weights[core] = find_path_weights(part, tolerance)
        whitened = problem.whiten(weights)
        variances = compute_variances(whitened)
        # Rows of the core set are above the bound only by rounding.
        above = np.setdiff1d(np.flatnonzero(variances > bound), core)
        if not len(above):
            return weights
        # The largest alone would often be neighbours of each other.
        spread = above[_pick_spread_out_rows(whitened[0][above])]
        by_variance = above[np.argsort(-variances[above], kind="stable")]
        largest = by_variance[: max(0, len(core) - 2 * rank)]
        core = np.unique(np.concatenate([core, spread, largest]))


def _pick_spread_out_rows(rows: Floats) -> Floats:
    """Pick one row per dimension, each with the largest part orthogonal to those before."""
    _, pivots = linalg.qr(rows.T, mode="r", pivoting=True, check_finite=False)
    return np.sort(pivots[: rows.shape[1]])


def thin_out_weights(problem: DesignProblem, weights: Floats, tolerance: float) -> Floats:
    """Set the smallest weights to 0: as many as USED_PART of the tolerance allows, by bisection."""
    order, bound = np.argsort(weights, kind="stable"), problem.rank * (1 + USED_PART * tolerance)
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        fewer = weights.copy()
        fewer[order[:middle]] = 0.0
        if _compute_value_of_support(problem, fewer) <= bound:
            weights, low = problem.normalise(fewer), middle
        else:
            high = middle
    return weights


def _compute_value_of_support(problem: DesignProblem, weights: Floats) -> float:
    """Return the value of normalised weights; infinite if a client or a direction has none."""
    if not problem.sum_by_client(weights).all():
        return np.inf
    try:
        return problem.compute_value(problem.normalise(weights))
    except LinAlgError:
        return np.inf


def find_path_weights(problem: DesignProblem, tolerance: float) -> Floats:
    """Solve for weights within PATH_PART of the tolerance by following the central path.

    This is a primal-dual interior-point method. On the path π_p (ν_i − variance_p) = μ for each row
    p of client i, of n rows in all. Summed, Σ_i ν_i = rank + nμ, and ν_i is above the client's
    variances: the value is at most rank + nμ, and falls to the rank with μ. Each step solves
    Newton's equations, so nearly collinear arms and many optimal designs, which slow first-order
    methods down, do not matter.
    """
    size, rank, excess, goal = len(problem.clients), problem.rank, np.inf, PATH_PART * tolerance
    lowest_barrier = goal * rank / (4 * size)  # below it, rounding errors are all that changes
    with contextlib.suppress(LinAlgError):  # nearly singular equations end the path too
        point = _find_start(problem)
        for _ in range(STEP_LIMIT):
            excess = problem.find_largest_by_client(point.variances).sum() / rank - 1
            if excess <= goal:
                return point.weights
            point = _advance(problem, point, lowest_barrier)
    raise NumericalError(
        f"the design of {size} contexts of rank {rank} reached a value of "
        f"rank·(1 + {excess:.1e}) in at most {STEP_LIMIT} steps; "
        f"a tolerance of {tolerance:.1e} takes rank·(1 + {goal:.1e}). Ask for a larger tolerance"
    )


@dataclass(frozen=True, eq=False)
class _PathPoint:
    """A point on the path.

    It has weights π > 0, a price ν_i per client, and slacks s > 0, which tend to ν_i − variance_p.
    """

    weights: Floats
    slacks: Floats
    prices: Floats
    whitened: list[Floats]
    variances: Floats

    def find_longest_step(self, step: _NewtonStep) -> float:
        """Return how much of the solver's step, at most all, leaves KEPT of weights and slacks."""
        shrinking = float(
            max(np.max(-step.weights / self.weights), np.max(-step.slacks / self.slacks))
        )
        return (1 - KEPT) / max(1 - KEPT, shrinking)

    def move(self, problem: DesignProblem, step: _NewtonStep, length: float) -> _PathPoint:
        """Return the point to which a part of the solver's step leads."""
        weights = problem.normalise(self.weights + length * step.weights)  # undoes rounding only
        whitened = problem.whiten(weights)
        slacks, prices = self.slacks + length * step.slacks, self.prices + length * step.prices
        return _PathPoint(weights, slacks, prices, whitened, compute_variances(whitened))

    def compute_slope(self, step: _NewtonStep, barrier: float) -> float:
        """Return the derivative of Σ ln det V + μ Σ_p ln π_p along the step."""
        return float((self.variances + barrier / self.weights) @ step.weights)


@dataclass(frozen=True, eq=False)
class _NewtonStep:
    """A change of weights, slacks and prices."""

    weights: Floats
    slacks: Floats
    prices: Floats


def _find_start(problem: DesignProblem) -> _PathPoint:
    """Return the start of the solver: even weights, and prices above the variances.

    They are above by a tenth of the mean price at the optimum.
    """
    weights = problem.normalise(np.ones(len(problem.clients)))
    whitened = problem.whiten(weights)
    variances = compute_variances(whitened)
    prices = problem.find_largest_by_client(variances) + 0.1 * problem.rank / problem.n_clients
    return _PathPoint(weights, prices[problem.clients] - variances, prices, whitened, variances)


def _advance(problem: DesignProblem, point: _PathPoint, lowest_barrier: float) -> _PathPoint:
    """Make a step of the solver with Mehrotra's choice of μ.

    The further a step to μ = 0 gets, the lower it is.
    """
    newton = _NewtonEquations(problem, point)
    straight = newton.find_step(0.0)
    longest = point.find_longest_step(straight)
    gap = float(point.weights @ point.slacks)
    gap_there = float(
        (point.weights + longest * straight.weights) @ (point.slacks + longest * straight.slacks)
    )
    barrier = max(lowest_barrier, gap / len(point.weights) * (gap_there / gap) ** 3)
    step = newton.find_step(barrier - straight.weights * straight.slacks)
    if point.compute_slope(step, barrier) <= 0:  # without the second-order term it is positive
        step = newton.find_step(barrier)
    return _climb(problem, point, step, barrier)


def _climb(
    problem: DesignProblem, point: _PathPoint, step: _NewtonStep, barrier: float
) -> _PathPoint:
    """Make a step of the solver, halved until Σ ln det V + μ Σ ln π is not far past its peak.

    The function is concave. Its slope is positive at the start, and at the end must not be below
    minus half of that.
    """
    length, slope = point.find_longest_step(step), point.compute_slope(step, barrier)
    for _ in range(HALVING_LIMIT):
        moved = point.move(problem, step, length)
        if moved.compute_slope(step, barrier) >= -slope / 2:
            break
        length /= 2
    return moved


class _NewtonEquations:
    """The equations of a step at a point, factored once.

        (C + diag(s/π)) dπ + Aᵀdν = variance − Aᵀν + target/π
        A dπ = 0
        ds = (target − s dπ)/π − s

    C is the curvature of −Σ ln det, (x_pᵀV⁺x_q)² for rows p and q of one block. A sums over each
    client's rows.
    """

    def __init__(self, problem: DesignProblem, point: _PathPoint) -> None:
        self.problem, self.point = problem, point
        scales = problem.split_by_block(np.sqrt(point.weights / point.slacks))
        self.inverses = [
            _make_inverse(rows, scale) for rows, scale in zip(point.whitened, scales, strict=True)
        ]
        clients = np.arange(problem.n_clients)
        self.sums = np.equal.outer(problem.clients, clients).astype(float)  # Aᵀ
        self.spread = self.solve(self.sums)
        self.price_factor = linalg.cho_factor(self.sums.T @ self.spread, check_finite=False)

    def solve(self, right: Floats) -> Floats:
        """Return (C + diag(s/π))⁻¹ times a vector or columns."""
        parts = zip(self.inverses, self.problem.split_by_block(right), strict=True)
        return np.concatenate([inverse(part) for inverse, part in parts])

    def find_step(self, target: float | Floats) -> _NewtonStep:
        """Return the step to where weights times slacks are `target`."""
        point = self.point
        free = self.solve(
            point.variances - point.prices[self.problem.clients] + target / point.weights
        )
        prices = linalg.cho_solve(
            self.price_factor, self.problem.sum_by_client(free), check_finite=False
        )
        weights = free - self.spread @ prices
        slacks = (target - point.slacks * weights) / point.weights - point.slacks
        return _NewtonStep(weights, slacks, prices)


def _make_inverse(rows: Floats, scale: Floats) -> Callable[[Floats], Floats]:
    """Return the solver's (C + diag(1/scale²))⁻¹ as a function, scaled to I + SCS.

    C_pq = (rows_p · rows_q)², so C = FFᵀ with a column of F for each pair of coordinates. When
    there are more rows than pairs, (I + SFFᵀS)⁻¹ = I − SF(I + FᵀS²F)⁻¹FᵀS has less to factor.
    """
    size, rank = rows.shape
    if size <= max(SMALL_BLOCK, rank * (rank + 1) // 2):
        whole = _factor_beside_identity((rows @ rows.T) ** 2 * np.outer(scale, scale))
        return lambda right: _scale_rows(
            scale, linalg.cho_solve(whole, _scale_rows(scale, right), check_finite=False)
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
            scale, right - pairs @ linalg.cho_solve(short, pairs.T @ right, check_finite=False)
        )

    return solve


def _factor_beside_identity(matrix: Floats) -> tuple[Floats, bool]:
    """Return the Cholesky factor of I + matrix for the solver, which overwrites the matrix."""
    matrix[np.diag_indices_from(matrix)] += 1.0
    factor, lower = linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)
    return factor, lower


def _scale_rows(scale: Floats, values: Floats) -> Floats:
    """Return diag(scale) times a vector or columns, for the Newton equations of the solver."""
    return (scale * values.T).T
