"""Optimal designs: how to divide pulls among arms so that the arm known least is known as well as it can be.

A design π gives arm a the share π_a of the pulls. With V(π) = Σ_a π_a x_a x_aᵀ, the variance of arm a's estimate is
x_aᵀV(π)⁺x_a over the number of pulls. Kiefer and Wolfowitz (1960): the π that makes the largest variance least is the one
that maximises ln det V(π), and the largest variance is then the dimension of the arms' span. So the answer is known before
it is found, and every design here is checked against it before it is returned.

The designs of one player and of many clients are one problem, `_Problem`: maximise the sum over blocks of
ln det(Σ_p π_p x_p x_pᵀ), where each row p belongs to one client and the π_p of each client sum to 1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, qr

from .arrays import AnyArray, Counts, Flags, Floats
from .errors import InvalidInput, NumericalError
from .setting import positive

__all__ = ["Design", "MultiDesign", "g_optimal", "multi_client"]

# A direction in which the singular value of the rows is below this part of the largest is not in their span: variances
# along it would carry a rounding error above 1e-6, and nobody could check the design.
RANK_THRESHOLD = 1e-10

# Parts of the tolerance: what the path to the weights may use, and what they may have used once rows are left out. The rest
# is for the rounding of whoever checks the value with another formula.
PATH_PART = 0.25
USED_PART = 0.5

STEP_LIMIT = 100  # Newton steps of one path; 5 to 15 are usual
HALVING_LIMIT = 30  # of one step; when they don't help, it is rounding that is in the way
KEPT = 0.01  # what a step leaves at least of every weight and slack
SMALL_BLOCK = 256  # up to so many rows the curvature is factored as it stands, which rounds less than the shorter form


@dataclass(frozen=True, eq=False)
class Design:
    """Shares of the pulls for K arms. `value` is the largest variance max_a x_aᵀV(π)⁺x_a, `rank` the least it could be.

    >>> design = g_optimal([[1, 0], [0, 1], [0.8, 0.6]])
    >>> round(design.value, 5), design.rank
    (2.0, 2)
    """

    weights: Floats  # K
    value: float
    rank: int


@dataclass(frozen=True, eq=False)
class MultiDesign:
    """Shares of each client's pulls for K arms. `value` is Σ_i max_a x_{i,a}ᵀV_a⁺x_{i,a}, `rank` the least it could be.

    >>> design = multi_client([[[1], [2]], [[3], [1]]])
    >>> round(design.value, 5), design.rank
    (2.0, 2)
    """

    weights: Floats  # M × K, zero where an arm is not active
    value: float
    rank: int


def g_optimal(arms: Any, *, tolerance: float = 1e-6) -> Design:
    """The G-optimal design over K arms (K × d): value ≤ rank·(1 + tolerance), rank the dimension of the arms' span.

    A tolerance of 1 stops at twice the optimum, with a support of a few times the rank. The span is the numerical one: see
    RANK_THRESHOLD. Raises NumericalError when STEP_LIMIT steps do not reach the tolerance.

    >>> g_optimal([[1, 0], [0, 2], [0.5, 0.5]]).weights.round(3).tolist()
    [0.5, 0.5, 0.0]
    """
    arms = _as_floats("arms", arms, ("arms", "dim"))
    tolerance = positive("tolerance", tolerance)
    _refuse_infinite("arms", arms)
    if not arms.any():
        raise InvalidInput("arms must not all be zero: there is nothing to estimate")
    problem = _Problem((_span_coordinates(arms),), np.zeros(len(arms), dtype=np.intp), 1)
    weights = _thinned(problem, _core_set_weights(problem, tolerance), tolerance)
    return Design(weights, problem.value(weights), problem.rank)


def multi_client(contexts: Any, active: Any = None, *, shared: bool = False, tolerance: float = 1e-6) -> MultiDesign:
    """The design of M clients with the contexts x_{i,a} (M × K × d), each over the arms of its own that are `active` (M × K).

    Maximises Σ_a ln det V_a, V_a = Σ_i π_{i,a} x_{i,a} x_{i,a}ᵀ on the span of arm a's active contexts, since each arm has
    its own θ_a. Then Σ_i max_a x_{i,a}ᵀV_a⁺x_{i,a} = Σ_a rank V_a (Huang et al. 2021, Fed-PE), and value ≤ rank·(1 + tolerance).
    With `shared`, all arms have one θ: the same with one block V = Σ_{i,a} π_{i,a} x_{i,a} x_{i,a}ᵀ.

    Contexts that are not active are not looked at. A client whose active contexts are all zero spreads its pulls evenly.

    >>> contexts = [[[1, 0], [1, 0]], [[0, 1], [2, 0]]]  # for arm 0 both clients are needed, for arm 1 the second tells more
    >>> multi_client(contexts).weights.round(3).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    contexts = _as_floats("contexts", contexts, ("clients", "arms", "dim"))
    tolerance = positive("tolerance", tolerance)
    active = _checked_active(active, contexts.shape[:2])
    _refuse_infinite("contexts", contexts, active)
    informative = active & contexts.any(axis=2)
    if not informative.any():
        raise InvalidInput("contexts must not all be zero where they are active: there is nothing to estimate")
    blocks = _places(informative, shared)
    clients, arms = (np.concatenate(part) for part in zip(*blocks, strict=True))
    informed, index = np.unique(clients, return_inverse=True)
    problem = _Problem(tuple(_span_coordinates(contexts[block]) for block in blocks), index, len(informed))
    found = _thinned(problem, _path_weights(problem, tolerance), tolerance)
    weights = active / active.sum(axis=1, keepdims=True)
    weights[informed] = 0.0
    weights[clients, arms] = found
    return MultiDesign(weights, problem.value(found), problem.rank)


def _places(informative: Flags, shared: bool) -> list[tuple[NDArray[np.intp], ...]]:
    """The (clients, arms) of each block's rows: all in one, or those of each arm that has any."""
    if shared:
        return [np.nonzero(informative)]
    columns = [np.flatnonzero(column) for column in informative.T]
    return [(clients, np.full_like(clients, arm)) for arm, clients in enumerate(columns) if len(clients)]


def _span_coordinates(rows: Floats) -> Floats:
    """The rows in coordinates of their span in which Σ_p x_p x_pᵀ = I; variances are the same in all coordinates.

    The largest entry is divided out first: a singular value of floats need not be one, if they are near the largest float.
    """
    left, singular, _ = np.linalg.svd(rows / np.abs(rows).max(), full_matrices=False)
    return np.ascontiguousarray(left[:, singular > RANK_THRESHOLD * singular[0]])


@dataclass(frozen=True, eq=False)
class _Problem:
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
        return [_whitened(block, part) for block, part in zip(self.blocks, self.cut(weights), strict=True)]

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
        return float(self.largest_by_client(_variances(self.whitened(weights))).sum())


def _whitened(rows: Floats, weights: Floats) -> Floats:
    """rows · L⁻ᵀ for V = LLᵀ. In coordinates of the span L is far from singular: its inverse costs no accuracy.

    And no time, where a triangular solve by SciPy's OpenBLAS wakes all threads for four rows.
    """
    root = np.linalg.cholesky(rows.T @ (weights[:, None] * rows))
    return rows @ np.linalg.inv(root).T


def _variances(whitened: list[Floats]) -> Floats:
    return np.concatenate([np.einsum("pk,pk->p", rows, rows) for rows in whitened])


def _core_set_weights(problem: _Problem, tolerance: float) -> Floats:
    """Weights of one client's rows with a value within USED_PART of the tolerance, on a core set of the rows.

    The start of Kumar and Yildirim (2005): a row with the largest part orthogonal to those before it, which is what QR
    pivots on. Then the optimum on the core set, and as long as rows outside are above the bound, some of them join: as many
    as the rank twice, then as many as there are. With a tolerance of 1 that ends at about three times the rank.
    """
    (rows,), rank, bound = problem.blocks, problem.rank, problem.rank * (1 + USED_PART * tolerance)
    core = _spread_out(rows)
    while True:
        part = _Problem((rows[core],), problem.clients[core], 1)
        weights = np.zeros(len(rows))
        weights[core] = _path_weights(part, tolerance)
        whitened = problem.whitened(weights)
        variances = _variances(whitened)
        above = np.setdiff1d(np.flatnonzero(variances > bound), core)  # those of the core are not, but for rounding
        if not len(above):
            return weights
        spread = above[_spread_out(whitened[0][above])]  # the largest alone would often be neighbours of each other
        largest = above[np.argsort(-variances[above], kind="stable")][: max(0, len(core) - 2 * rank)]
        core = np.unique(np.concatenate([core, spread, largest]))


def _spread_out(rows: Floats) -> Floats:
    """As many rows as there are dimensions at most, each the one with the largest part orthogonal to those before it."""
    _, pivots = qr(rows.T, mode="r", pivoting=True, check_finite=False)
    return np.sort(pivots[: rows.shape[1]])


def _thinned(problem: _Problem, weights: Floats, tolerance: float) -> Floats:
    """The weights without the smallest, as many as can go with a value within USED_PART of the tolerance, by bisection."""
    order, bound = np.argsort(weights, kind="stable"), problem.rank * (1 + USED_PART * tolerance)
    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        fewer = weights.copy()
        fewer[order[:middle]] = 0.0
        if _value_of_support(problem, fewer) <= bound:
            weights, low = problem.normalised(fewer), middle
        else:
            high = middle
    return weights


def _value_of_support(problem: _Problem, weights: Floats) -> float:
    """The value of the weights once normalised; infinite when a client or a direction is left without any."""
    if not problem.sum_by_client(weights).all():
        return np.inf
    try:
        return problem.value(problem.normalised(weights))
    except LinAlgError:
        return np.inf


@dataclass(frozen=True, eq=False)
class _Point:
    """Where a path has come to: weights π > 0, a price ν_i for each client, and slacks s > 0, which tend to ν_i − variance_p."""

    weights: Floats
    slacks: Floats
    prices: Floats
    whitened: list[Floats]
    variances: Floats

    def room(self, step: _Step) -> float:
        """How much of the step, at most all of it, leaves KEPT of every weight and slack."""
        shrinking = float(max(np.max(-step.weights / self.weights), np.max(-step.slacks / self.slacks)))
        return (1 - KEPT) / max(1 - KEPT, shrinking)

    def moved(self, problem: _Problem, step: _Step, length: float) -> _Point:
        weights = problem.normalised(self.weights + length * step.weights)  # the sums are 1 already, but for rounding
        whitened = problem.whitened(weights)
        slacks, prices = self.slacks + length * step.slacks, self.prices + length * step.prices
        return _Point(weights, slacks, prices, whitened, _variances(whitened))

    def slope(self, step: _Step, barrier: float) -> float:
        """The derivative of Σ ln det V + μ Σ_p ln π_p along the step."""
        return float((self.variances + barrier / self.weights) @ step.weights)


@dataclass(frozen=True, eq=False)
class _Step:
    weights: Floats
    slacks: Floats
    prices: Floats


def _path_weights(problem: _Problem, tolerance: float) -> Floats:
    """Weights with a value within PATH_PART of the tolerance, by following the central path (a primal-dual interior point).

    On the path π_p (ν_i − variance_p) = μ for each row p of client i, of n rows in all. Summed, Σ_i ν_i = rank + nμ, and ν_i
    is above the client's variances: the value is at most rank + nμ, and falls to the rank with μ. Each step solves Newton's
    equations, so that arms nearly collinear or many optimal designs, which slow first-order methods down, do not matter.
    """
    size, rank, excess, goal = len(problem.clients), problem.rank, np.inf, PATH_PART * tolerance
    lowest_barrier = goal * rank / (4 * size)  # further down there is nothing to gain but rounding errors
    with contextlib.suppress(LinAlgError):  # equations too close to singular end the path as the limit does
        point = _start(problem)
        for _ in range(STEP_LIMIT):
            excess = problem.largest_by_client(point.variances).sum() / rank - 1
            if excess <= goal:
                return point.weights
            point = _advanced(problem, point, lowest_barrier)
    raise NumericalError(
        f"the design of {size} contexts of rank {rank} reached a value of rank·(1 + {excess:.1e}) in at most {STEP_LIMIT} steps; "
        f"a tolerance of {tolerance:.1e} takes rank·(1 + {goal:.1e}). Ask for a larger tolerance"
    )


def _start(problem: _Problem) -> _Point:
    """Even weights, which span all there is, and prices a tenth of the optimum's mean above the variances."""
    weights = problem.normalised(np.ones(len(problem.clients)))
    whitened = problem.whitened(weights)
    variances = _variances(whitened)
    prices = problem.largest_by_client(variances) + 0.1 * problem.rank / problem.n_clients
    return _Point(weights, prices[problem.clients] - variances, prices, whitened, variances)


def _advanced(problem: _Problem, point: _Point, lowest_barrier: float) -> _Point:
    """A step with Mehrotra's choice of μ: the further a step straight to μ = 0 would come, the lower."""
    newton = _Newton(problem, point)
    straight = newton.step(0.0)
    room = point.room(straight)
    gap = float(point.weights @ point.slacks)
    gap_there = float((point.weights + room * straight.weights) @ (point.slacks + room * straight.slacks))
    barrier = max(lowest_barrier, gap / len(point.weights) * (gap_there / gap) ** 3)
    step = newton.step(barrier - straight.weights * straight.slacks)
    if point.slope(step, barrier) <= 0:  # the second-order term misled; without it the slope is positive
        step = newton.step(barrier)
    return _climbed(problem, point, step, barrier)


def _climbed(problem: _Problem, point: _Point, step: _Step, barrier: float) -> _Point:
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


class _Newton:
    """The equations of a step at a point, factored once:

        (C + diag(s/π)) dπ + Aᵀdν = variance − Aᵀν + target/π,    A dπ = 0,    ds = (target − s dπ)/π − s

    where C is the curvature of −Σ ln det, (x_pᵀV⁺x_q)² for rows p and q of one block, and A sums over each client's rows.
    """

    def __init__(self, problem: _Problem, point: _Point) -> None:
        self.problem, self.point = problem, point
        scales = problem.cut(np.sqrt(point.weights / point.slacks))
        self.inverses = [_inverse(rows, scale) for rows, scale in zip(point.whitened, scales, strict=True)]
        self.sums = np.equal.outer(problem.clients, np.arange(problem.n_clients)).astype(float)  # Aᵀ
        self.spread = self.solve(self.sums)
        self.price_factor = cho_factor(self.sums.T @ self.spread, check_finite=False)

    def solve(self, right: Floats) -> Floats:
        parts = zip(self.inverses, self.problem.cut(right), strict=True)
        return np.concatenate([inverse(part) for inverse, part in parts])

    def step(self, target: float | Floats) -> _Step:
        point = self.point
        free = self.solve(point.variances - point.prices[self.problem.clients] + target / point.weights)
        prices = cho_solve(self.price_factor, self.problem.sum_by_client(free), check_finite=False)
        weights = free - self.spread @ prices
        slacks = (target - point.slacks * weights) / point.weights - point.slacks
        return _Step(weights, slacks, prices)


def _inverse(rows: Floats, scale: Floats) -> Callable[[Floats], Floats]:
    """(C + diag(1/scale²))⁻¹ as a function of vectors or columns, for C_pq = (rows_p · rows_q)², scaled to I + SCS.

    C = FFᵀ with a column of F for each pair of coordinates. When there are more rows than pairs,
    (I + SFFᵀS)⁻¹ = I − SF(I + FᵀS²F)⁻¹FᵀS has less to factor.
    """
    size, rank = rows.shape
    if size <= max(SMALL_BLOCK, rank * (rank + 1) // 2):
        whole = _factored_beside_identity((rows @ rows.T) ** 2 * np.outer(scale, scale))
        return lambda right: _scaled(scale, cho_solve(whole, _scaled(scale, right), check_finite=False))
    first, second = np.triu_indices(rank)
    pairs = rows[:, first] * rows[:, second] * np.where(first == second, 1.0, np.sqrt(2.0)) * scale[:, None]
    short = _factored_beside_identity(pairs.T @ pairs)

    def solve(right: Floats) -> Floats:
        right = _scaled(scale, right)
        return _scaled(scale, right - pairs @ cho_solve(short, pairs.T @ right, check_finite=False))

    return solve


def _factored_beside_identity(matrix: Floats) -> tuple[Floats, bool]:
    """The Cholesky factor of I + matrix, in the place of the matrix."""
    matrix[np.diag_indices_from(matrix)] += 1.0
    factor, lower = cho_factor(matrix, overwrite_a=True, check_finite=False)
    return factor, lower


def _scaled(scale: Floats, values: Floats) -> Floats:
    """diag(scale) times a vector or columns."""
    return (scale * values.T).T


def _as_array(name: str, values: Any, axes: tuple[str, ...]) -> AnyArray:
    shape = f"({', '.join(axes)})"
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name} must be an array of the shape {shape}: {error}") from None
    if array.ndim != len(axes) or not array.size:
        raise InvalidInput(f"{name} must have the shape {shape}, each at least 1, not {array.shape}")
    return array


def _as_floats(name: str, values: Any, axes: tuple[str, ...]) -> Floats:
    array = _as_array(name, values, axes)
    if array.dtype.kind not in "fiu":
        raise InvalidInput(f"{name} must be real numbers, not {array.dtype}")
    return array.astype(float)


def _refuse_infinite(name: str, array: Floats, where: Any = True) -> None:
    """Raises when there is a NaN or an infinity in a row of the array that `where` is true for."""
    bad = np.argwhere(~np.isfinite(array).all(axis=-1) & where)
    if len(bad):
        place = tuple(bad[0].tolist())
        raise InvalidInput(f"{name} must be finite; {name}[{', '.join(map(str, place))}] is {array[place]}")


def _checked_active(active: Any, shape: tuple[int, int]) -> Flags:
    if active is None:
        return np.ones(shape, dtype=bool)
    given: Flags = _as_array("active", active, ("clients", "arms"))
    if given.dtype != bool or given.shape != shape:
        raise InvalidInput(f"active must be booleans of the shape {shape}, as the contexts, not {given.dtype} of {given.shape}")
    without = np.flatnonzero(~given.any(axis=1))
    if len(without):
        raise InvalidInput(f"every client needs an active arm; client {without[0]} has none")
    return given
