"""How the twin decides which arm to play."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..algorithm.algorithm import Algorithm
from .state import ReferenceClient, list_state_slots

TIE_TOLERANCE = 1e-9


def choose_by_s_lucb(
    algorithm: Algorithm, client: ReferenceClient, contexts: np.ndarray, *_: Any
) -> tuple[int, int, float]:
    """Choose an arm by layered successive screening: S-LUCB, and VS-LUCB and CS-LUCB alike.

    Return the chosen row of the contexts, the layer s that chose it, and its ‖x‖ in the A_s⁻¹ used
    there.
    """
    for layer, target_width in enumerate(algorithm.target_widths):
        estimates, norms, widths = estimate_arms(algorithm, client, layer, contexts)
        # Initial screening: A_0 = {a : r̂_0 + w_0 ≥ max(r̂_0 − w_0)}
        if layer == 0:
            kept = estimates + widths >= np.max(estimates - widths)
        # If s = S: "arbitrarily" from A_S, that is, the largest r̂_S
        if layer == algorithm.n_layers - 1:
            choice = find_arg_max(estimates, kept)
            break
        # Unless w_s ≤ w̄_s for all a ∈ A_s: arg max of w_s over {a ∈ A_s : w_s > w̄_s}
        wide = kept & (widths > target_width)
        if wide.any():
            choice = find_arg_max(widths, wide)
            break
        # A_{s+1} = {a ∈ A_s : r̂_s ≥ max r̂_s − 2w̄_s}
        kept = kept & (estimates >= np.max(estimates[kept]) - 2 * target_width)
    return choice, layer, norms[choice]


def choose_by_optimism(
    algorithm: Algorithm, client: ReferenceClient, contexts: np.ndarray, *_: Any
) -> tuple[int, int, float]:
    """Choose the arm of the largest r̂ + w in the only layer, as OFUL does."""
    estimates, norms, widths = estimate_arms(algorithm, client, 0, contexts)
    choice = find_arg_max(estimates + widths, np.full(len(contexts), True))
    return choice, 0, norms[choice]


def choose_by_plugin(
    algorithm: Algorithm,
    client: ReferenceClient,
    contexts: np.ndarray,
    arms: np.ndarray,
    draw: float,
) -> tuple[int, int, float]:
    """Let a plugin decide for the twin, from estimates and widths of all K arms in every layer.

    An arm that is not available has the estimate −∞ and the width 0.
    """
    shape = (algorithm.n_layers, algorithm.n_arms)
    estimates, norms, widths = np.full(shape, -np.inf), np.zeros(shape), np.zeros(shape)
    for layer in range(algorithm.n_layers):
        estimates[layer, arms], norms[layer, arms], widths[layer, arms] = estimate_arms(
            algorithm, client, layer, contexts
        )
    index = algorithm.policy.choose(
        estimates, widths, algorithm.target_widths, draw, *list_state_slots(client, "policy")
    )
    layer, arm = divmod(int(index), algorithm.n_arms)
    return int(np.flatnonzero(arms == arm)[0]), layer, norms[layer, arm]


def draw_uniform(key: int, n: int) -> float:
    """Return the number in [0, 1) for the twin's decision at pull n: 53 bits of SplitMix64.

    Pulls count from 0.
    """
    z = (key + (n + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return ((z ^ (z >> 31)) >> 11) / 2**53


def estimate_arms(
    algorithm: Algorithm, client: ReferenceClient, layer: int, contexts: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return r̂ = θ̂_sᵀx, ‖x‖ in A_s⁻¹, and w = α_s‖x‖ of each arm, for a decision of the twin.

    θ̂_s is A_s⁻¹b_s.

    An eager policy uses A_s + ΔA_s and b_s + Δb_s for A_s and b_s.
    """
    gram, theta_hat = solve_known(algorithm, client, layer)
    norms = np.sqrt(np.sum(contexts * np.linalg.solve(gram, contexts.T).T, axis=1))
    return contexts @ theta_hat, norms, compute_radius(algorithm, layer, gram) * norms


def solve_known(
    algorithm: Algorithm, client: ReferenceClient, layer: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the A_s that a decision of the twin uses, and θ̂_s = A_s⁻¹b_s."""
    gram, moment = client.gram[layer], client.moment[layer]
    if not algorithm.lazy:
        gram, moment = gram + client.delta_gram[layer], moment + client.delta_moment[layer]
    return gram, np.linalg.solve(gram, moment)


def compute_radius(algorithm: Algorithm, layer: int, gram: np.ndarray) -> float:
    """Return α_s for a decision; self-normalised, α_s + scale·√(offset + ln det(A_s)/det(λI))."""
    scale, offset = algorithm.radius_growth
    if scale == 0:
        return float(algorithm.radii[layer])
    growth = compute_log_det(gram) - algorithm.dim * math.log(algorithm.setting.ridge)
    return float(algorithm.radii[layer]) + scale * math.sqrt(offset + growth)


def find_arg_max(values: np.ndarray, among: np.ndarray) -> int:
    """Return the arm that the twin decides for: the lowest whose value is nearly the largest.

    That is v ≥ m − 1e-9|m|, where m is the largest.
    """
    largest = np.max(values[among])
    return int(np.flatnonzero(among & (values >= largest - TIE_TOLERANCE * abs(largest)))[0])


def compute_log_det(gram: np.ndarray) -> float:
    """Return ln det A, for the radius of the twin's decisions and for when it syncs."""
    return float(np.linalg.slogdet(gram).logabsdet)
