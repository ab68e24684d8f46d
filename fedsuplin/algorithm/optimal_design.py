"""Optimal designs: how to divide pulls among fixed arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._shared.arrays import AnyArray, Flags, Floats
from .._shared.checks import check_positive
from ..errors import InvalidInput
from .design_solver import DesignProblem, find_core_set_weights, find_path_weights, thin_out_weights

# A direction in which the singular value of the rows is below this part of the largest is not in their span: variances
# along it would carry a rounding error above 1e-6, and nobody could check the design.
RANK_THRESHOLD = 1e-10


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


def find_g_optimal_design(arms: Any, *, tolerance: float = 1e-6) -> Design:
    """The G-optimal design over K arms (K × d): value ≤ rank·(1 + tolerance), rank the dimension of the arms' span.

    A tolerance of 1 stops at twice the optimum, with a support of a few times the rank. The span is the numerical one: see
    RANK_THRESHOLD. Raises NumericalError when STEP_LIMIT steps do not reach the tolerance.

    >>> g_optimal([[1, 0], [0, 2], [0.5, 0.5]]).weights.round(3).tolist()
    [0.5, 0.5, 0.0]
    """
    arms = _read_floats("arms", arms, ("arms", "dim"))
    tolerance = check_positive("tolerance", tolerance)
    _refuse_infinite("arms", arms)
    if not arms.any():
        raise InvalidInput("arms must not all be zero: there is nothing to estimate")
    problem = DesignProblem(
        (_compute_span_coordinates(arms),), np.zeros(len(arms), dtype=np.intp), 1
    )
    weights = thin_out_weights(problem, find_core_set_weights(problem, tolerance), tolerance)
    return Design(weights, problem.value(weights), problem.rank)


def find_multi_client_design(
    contexts: Any, active: Any = None, *, shared: bool = False, tolerance: float = 1e-6
) -> MultiDesign:
    """The design of M clients with the contexts x_{i,a} (M × K × d), each over the arms of its own that are `active` (M × K).

    Maximises Σ_a ln det V_a, V_a = Σ_i π_{i,a} x_{i,a} x_{i,a}ᵀ on the span of arm a's active contexts, since each arm has
    its own θ_a. Then Σ_i max_a x_{i,a}ᵀV_a⁺x_{i,a} = Σ_a rank V_a (Huang et al. 2021, Fed-PE), and value ≤ rank·(1 + tolerance).
    With `shared`, all arms have one θ: the same with one block V = Σ_{i,a} π_{i,a} x_{i,a} x_{i,a}ᵀ.

    Contexts that are not active are not looked at. A client whose active contexts are all zero spreads its pulls evenly.

    >>> contexts = [[[1, 0], [1, 0]], [[0, 1], [2, 0]]]  # for arm 0 both clients are needed, for arm 1 the second tells more
    >>> multi_client(contexts).weights.round(3).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    contexts = _read_floats("contexts", contexts, ("clients", "arms", "dim"))
    tolerance = check_positive("tolerance", tolerance)
    active = _check_active(active, contexts.shape[:2])
    _refuse_infinite("contexts", contexts, active)
    informative = active & contexts.any(axis=2)
    if not informative.any():
        raise InvalidInput(
            "contexts must not all be zero where they are active: there is nothing to estimate"
        )
    blocks = _locate_blocks(informative, shared)
    clients, arms = (np.concatenate(part) for part in zip(*blocks, strict=True))
    informed, index = np.unique(clients, return_inverse=True)
    problem = DesignProblem(
        tuple(_compute_span_coordinates(contexts[block]) for block in blocks), index, len(informed)
    )
    found = thin_out_weights(problem, find_path_weights(problem, tolerance), tolerance)
    weights = active / active.sum(axis=1, keepdims=True)
    weights[informed] = 0.0
    weights[clients, arms] = found
    return MultiDesign(weights, problem.value(found), problem.rank)


def _locate_blocks(informative: Flags, shared: bool) -> list[tuple[NDArray[np.intp], ...]]:
    """The (clients, arms) of each block's rows: all in one, or those of each arm that has any."""
    if shared:
        return [np.nonzero(informative)]
    columns = [np.flatnonzero(column) for column in informative.T]
    return [
        (clients, np.full_like(clients, arm)) for arm, clients in enumerate(columns) if len(clients)
    ]


def _compute_span_coordinates(rows: Floats) -> Floats:
    """The rows in coordinates of their span in which Σ_p x_p x_pᵀ = I; variances are the same in all coordinates.

    The largest entry is divided out first: a singular value of floats need not be one, if they are near the largest float.
    """
    left, singular, _ = np.linalg.svd(rows / np.abs(rows).max(), full_matrices=False)
    return np.ascontiguousarray(left[:, singular > RANK_THRESHOLD * singular[0]])


def _read_array(name: str, values: Any, axes: tuple[str, ...]) -> AnyArray:
    shape = f"({', '.join(axes)})"
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name} must be an array of the shape {shape}: {error}") from None
    if array.ndim != len(axes) or not array.size:
        raise InvalidInput(
            f"{name} must have the shape {shape}, each at least 1, not {array.shape}"
        )
    return array


def _read_floats(name: str, values: Any, axes: tuple[str, ...]) -> Floats:
    array = _read_array(name, values, axes)
    if array.dtype.kind not in "fiu":
        raise InvalidInput(f"{name} must be real numbers, not {array.dtype}")
    return array.astype(float)


def _refuse_infinite(name: str, array: Floats, where: Any = True) -> None:
    """Raises when there is a NaN or an infinity in a row of the array that `where` is true for."""
    bad = np.argwhere(~np.isfinite(array).all(axis=-1) & where)
    if len(bad):
        place = tuple(bad[0].tolist())
        raise InvalidInput(
            f"{name} must be finite; {name}[{', '.join(map(str, place))}] is {array[place]}"
        )


def _check_active(active: Any, shape: tuple[int, int]) -> Flags:
    if active is None:
        return np.ones(shape, dtype=bool)
    given: Flags = _read_array("active", active, ("clients", "arms"))
    if given.dtype != bool or given.shape != shape:
        raise InvalidInput(
            f"active must be booleans of the shape {shape}, as the contexts, not {given.dtype} of {given.shape}"
        )
    without = np.flatnonzero(~given.any(axis=1))
    if len(without):
        raise InvalidInput(f"every client needs an active arm; client {without[0]} has none")
    return given
