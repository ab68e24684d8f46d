"""Optimal designs: how to divide pulls among fixed arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._shared.array_types import AnyArray, Flags, Floats
from .._shared.checks import check_positive
from ..errors import InvalidInput
from .design_problem import DesignProblem
from .design_solver import find_core_set_weights, find_path_weights, thin_out_weights

# A direction in which the singular value of the rows is below this part of the largest is not in
# their span: variances along it would have a rounding error above 1e-6, too much for a check.
RANK_THRESHOLD = 1e-10


@dataclass(frozen=True, eq=False)
class Design:
    """Shares of the pulls for K arms.

    Parameters
    ----------
    weights : ndarray of shape (K,)
        The share of each arm; they add up to 1.
    value : float
        The largest variance, max_a x_aᵀV(π)⁺x_a.
    rank : int
        The dimension of the arms' span: the least that `value` could be.

    Examples
    --------
    >>> from fedsuplin.plugin import find_g_optimal_design
    >>> design = find_g_optimal_design([[1, 0], [0, 1], [0.8, 0.6]])
    >>> round(design.value, 5), design.rank
    (2.0, 2)
    """

    weights: Floats
    value: float
    rank: int


@dataclass(frozen=True, eq=False)
class MultiDesign:
    """Shares of each client's pulls for K arms.

    Parameters
    ----------
    weights : ndarray of shape (M, K)
        The share of each arm for each client; zero where an arm is not active.
    value : float
        Σ_i max_a x_{i,a}ᵀV_a⁺x_{i,a}.
    rank : int
        The least that `value` could be.

    Examples
    --------
    >>> from fedsuplin.plugin import find_multi_client_design
    >>> design = find_multi_client_design([[[1], [2]], [[3], [1]]])
    >>> round(design.value, 5), design.rank
    (2.0, 2)
    """

    weights: Floats
    value: float
    rank: int


def find_g_optimal_design(arms: Any, *, tolerance: float = 1e-6) -> Design:
    """Find the G-optimal design over K arms.

    Its value is at most rank·(1 + tolerance). The span of the arms is the numerical one: a
    direction with a singular value below 1e-10 of the largest does not count.

    Parameters
    ----------
    arms : array_like of shape (K, d)
        The contexts of the arms.
    tolerance : float, default 1e-6
        The relative distance to the optimum. A tolerance of 1 stops at twice the optimum, with a
        support of a few times the rank.

    Returns
    -------
    Design
        The shares of the arms.

    Raises
    ------
    NumericalError
        If the tolerance is not reached in 100 steps.

    Examples
    --------
    >>> from fedsuplin.plugin import find_g_optimal_design
    >>> find_g_optimal_design([[1, 0], [0, 2], [0.5, 0.5]]).weights.round(3).tolist()
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
    return Design(weights, problem.compute_value(weights), problem.rank)


def find_multi_client_design(
    contexts: Any, active: Any = None, *, shared: bool = False, tolerance: float = 1e-6
) -> MultiDesign:
    """Find the design of M clients that each have their own contexts.

    Maximises Σ_a ln det V_a, where V_a = Σ_i π_{i,a} x_{i,a} x_{i,a}ᵀ on the span of arm a's active
    contexts, since each arm has its own θ_a. At the optimum Σ_i max_a x_{i,a}ᵀV_a⁺x_{i,a} =
    Σ_a rank V_a (Huang et al. 2021, Fed-PE); the value found is at most rank·(1 + tolerance).

    Parameters
    ----------
    contexts : array_like of shape (M, K, d)
        The context x_{i,a} of each client and arm.
    active : array_like of bool, shape (M, K), optional
        Which arms each client may play; all if left out. Other contexts are not read. A client
        whose active contexts are all zero spreads its pulls evenly.
    shared : bool, default False
        All arms have one θ: one block V = Σ_{i,a} π_{i,a} x_{i,a} x_{i,a}ᵀ takes the place of V_a.
    tolerance : float, default 1e-6
        The relative distance to the optimum.

    Returns
    -------
    MultiDesign
        The shares of each client's arms.

    Raises
    ------
    NumericalError
        If the tolerance is not reached in 100 steps.

    Examples
    --------
    Arm 0 needs both clients. For arm 1 the second client's longer context says more.

    >>> from fedsuplin.plugin import find_multi_client_design
    >>> contexts = [[[1, 0], [1, 0]], [[0, 1], [2, 0]]]
    >>> find_multi_client_design(contexts).weights.round(3).tolist()
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
    return MultiDesign(weights, problem.compute_value(found), problem.rank)


def _locate_blocks(informative: Flags, shared: bool) -> list[tuple[NDArray[np.intp], ...]]:
    """Return (clients, arms) of the rows of each block of a design: one, or one per active arm."""
    if shared:
        return [np.nonzero(informative)]
    columns = [np.flatnonzero(column) for column in informative.T]
    return [
        (clients, np.full_like(clients, arm)) for arm, clients in enumerate(columns) if len(clients)
    ]


def _compute_span_coordinates(rows: Floats) -> Floats:
    """Return the rows of a design in coordinates of their span in which Σ_p x_p x_pᵀ = I.

    Variances are the same in all coordinates. The largest entry is divided out first: the singular
    values of rows near the largest float could overflow.
    """
    left, singular, _ = np.linalg.svd(rows / np.abs(rows).max(), full_matrices=False)
    return np.ascontiguousarray(left[:, singular > RANK_THRESHOLD * singular[0]])


def _read_array(name: str, values: Any, axes: tuple[str, ...]) -> AnyArray:
    """Return the input of an optimal design as an array with these axes, none of them empty."""
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
    """Return the input of an optimal design as an array of real numbers with these axes."""
    array = _read_array(name, values, axes)
    if array.dtype.kind not in "fiu":
        raise InvalidInput(f"{name} must be real numbers, not {array.dtype}")
    return array.astype(float)


def _refuse_infinite(name: str, array: Floats, where: Any = True) -> None:
    """Refuse NaN and infinity in the rows of an optimal design for which `where` is true."""
    bad = np.argwhere(~np.isfinite(array).all(axis=-1) & where)
    if len(bad):
        place = tuple(bad[0].tolist())
        raise InvalidInput(
            f"{name} must be finite; {name}[{', '.join(map(str, place))}] is {array[place]}"
        )


def _check_active(active: Any, shape: tuple[int, int]) -> Flags:
    """Return which arms are active for each client of a design; every client needs one."""
    if active is None:
        return np.ones(shape, dtype=bool)
    given: Flags = _read_array("active", active, ("clients", "arms"))
    if given.dtype != bool or given.shape != shape:
        raise InvalidInput(
            f"active must be booleans of the shape {shape}, as the contexts, "
            f"not {given.dtype} of {given.shape}"
        )
    without = np.flatnonzero(~given.any(axis=1))
    if len(without):
        raise InvalidInput(f"every client needs an active arm; client {without[0]} has none")
    return given
