"""How the twin learns from a reward: the weight of an observation, and where it is added."""

from __future__ import annotations

import numpy as np

from ..algorithm.algorithm import Algorithm
from .decisions import solve_known
from .state import ReferenceClient, list_state_slots


def weigh_observation(
    algorithm: Algorithm,
    client: ReferenceClient,
    layer: int,
    x: np.ndarray,
    reward: float,
    norm: float,
    sigma: float,
) -> float:
    """Return the weight ω of an observation of the twin.

    A weighting with state also gets the residual r − θ̂_sᵀx and its state. One that does not read
    the norm gets NaN.
    """
    if not getattr(algorithm.weighting, "reads_norm", True):
        norm = np.nan
    state = list_state_slots(client, "weighting")
    residual = [reward - x @ solve_known(algorithm, client, layer)[1]] if state else []
    return float(algorithm.weighting.weight(norm, sigma, *residual, *state))


def add_observation(
    client: ReferenceClient, layer: int, x: np.ndarray, reward: float, weight: float
) -> None:
    """Add an observation to a client of the twin: ΔA_s ← ΔA_s + ω x xᵀ, Δb_s ← Δb_s + ω r x."""
    client.delta_gram[layer] += weight * np.outer(x, x)
    client.delta_moment[layer] += weight * reward * x
    client.observations[layer] += 1
