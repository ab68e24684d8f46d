"""PE and Fed-PE of the twin, on fixed arms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._shared.arrays import AnyArray, Counts, Flags, Floats
from ..algorithm.algorithm import Algorithm
from ..algorithm.optimal_design import find_g_optimal_design, find_multi_client_design
from .communication import count_payload_bytes
from .decisions import find_arg_max
from .pulls import Pull, Tally, Traffic

RANK_TOLERANCE = 1e-10  # of the span, as in design.py


class Phase:
    """How often each client has still to pull each arm and, so far, how often it did and what that paid: clients × arms."""

    def __init__(self, plan: AnyArray, idle: Counts) -> None:
        self.left, self.idle = plan.astype(int), idle
        self.counts, self.sums = np.zeros(plan.shape, int), np.zeros(plan.shape)

    def arm(self, client: int) -> int:
        """The lowest arm that the plan has left for this client, else its idle arm."""
        return int(next(iter(np.flatnonzero(self.left[client])), self.idle[client]))

    def observe(self, client: int, arm: int, reward: float) -> None:
        """An idle client's pulls are not counted."""
        if self.left[client, arm]:
            self.left[client, arm] -= 1
            self.counts[client, arm] += 1
            self.sums[client, arm] += reward

    def is_over(self) -> bool:
        return not self.left.any()


def play_phases(algorithm: Algorithm, problem: Any, pulls: Iterator[Pull], ledger: Tally) -> None:
    """Play what is planned; when a phase is over, the next one begins with its last pull. In PE each client has phases of
    its own, in Fed-PE all have the same."""
    traffic, M = Traffic(), algorithm.n_clients
    name = type(algorithm.policy).__name__
    if name == "PhasedElimination":
        systems = [iterate_elimination_phases(algorithm, arms) for arms in problem.fixed_arms]
    elif name == "FedPE":
        systems = [iterate_fed_pe_phases(algorithm, problem, traffic)]
    else:
        systems = build_plugin_systems(algorithm.policy.begin(algorithm, problem), M, traffic)
    phases = [next(system) for system in systems]
    for pull in pulls:
        system, client = (pull.client, 0) if len(systems) == M > 1 else (0, pull.client)
        arm = phases[system].arm(client)
        reward = ledger.reward(pull, arm)
        phases[system].observe(client, arm, reward)
        if phases[system].is_over():
            phases[system] = next(systems[system])
        ledger.enter(pull, arm, 0, reward, traffic)


def iterate_elimination_phases(algorithm: Algorithm, arms: Floats) -> Iterator[Phase]:
    """PE: in phase ℓ = 1, 2, …, with ε = 2^-ℓ, a G-optimal design π over the arms left, g its largest ‖x‖² in V(π)⁻¹;
    ⌈2gπ(a)/ε² · σ² ln(Kℓ(ℓ+1)/δ)⌉ pulls of arm a; θ̂ from these alone; drop every arm more than 2ε below the best."""
    K, left = len(arms), np.arange(len(arms))
    for phase_number in itertools.count(1):
        plan = np.zeros((1, K))
        plan[0, left] = plan_elimination(algorithm, arms[left], phase_number)
        phase = Phase(plan, left[:1])
        yield phase
        theta_hat, _ = fit_least_squares(arms, phase.counts[0], phase.sums[0])
        estimates = arms[left] @ theta_hat
        # Keep {a : r̂ ≥ max r̂ − 2ε}
        left = left[estimates >= np.max(estimates) - 2 * 2.0**-phase_number]


def plan_elimination(algorithm: Algorithm, arms: Floats, phase_number: int) -> Floats:
    """The pulls of each arm left: 0 where π(a) = 0, else at least 1. Zero vectors alone teach nothing: the first, forever."""
    if not arms.any():
        first: Floats = np.eye(len(arms))[0]
        return algorithm.horizon * first
    design, delta = find_g_optimal_design(arms), algorithm.noise.delta
    log_term = math.log(algorithm.n_arms * phase_number * (phase_number + 1) / delta)
    # 1/ε² = 2^2ℓ, which ldexp multiplies by: with σ = 0 there are phases whose ε² is no longer a number above 0
    pulls = np.ldexp(
        2 * design.value * design.weights * compute_noise_scale(algorithm) ** 2 * log_term,
        2 * phase_number,
    )
    return np.where(design.weights > 0, np.clip(np.ceil(pulls), 1, algorithm.horizon), 0)


def iterate_fed_pe_phases(algorithm: Algorithm, problem: Any, traffic: Traffic) -> Iterator[Phase]:
    """Fed-PE: in phase p the server solves the multi-client design π over the active arms; client i pulls its active arm a
    ⌈π_{i,a} f_p⌉ times, f_p = K d 2^(p−1), and uploads its sums; the server fits θ̂_g for each group of arms with the same θ
    and sends it with V_g; each client drops the arms whose upper bound is below its best lower bound. Costs M."""
    contexts, group = problem.fixed_arms, group_arms(algorithm, problem)
    M, K, d = contexts.shape
    active, idle = np.full((M, K), True), np.zeros(M, int)
    for phase_number in itertools.count(1):
        phase = Phase(
            plan_fed_pe(algorithm, contexts, active, group, K * d * 2 ** (phase_number - 1)), idle
        )
        yield phase
        estimates, widths = estimate_groups(algorithm, contexts, group, phase)
        # Client i keeps {a : r̂ + w ≥ max(r̂ − w)}, the maximum over its active arms
        best = np.max(estimates - widths, axis=1, where=active, initial=-np.inf)
        active = active & (estimates + widths >= best[:, None])
        idle = np.array(
            [find_arg_max(*of_client) for of_client in zip(estimates, active, strict=True)]
        )
        charge_phase(traffic, d, group, phase, active)


def group_arms(algorithm: Algorithm, problem: Any) -> Counts:
    """The group of each arm: all in one where they share θ, each its own where it has a θ; the policy may say which."""
    shared = algorithm.policy.shared
    if shared is None:
        shared = problem.arm_thetas is None
    return np.zeros(algorithm.n_arms, int) if shared else np.arange(algorithm.n_arms)


def plan_fed_pe(
    algorithm: Algorithm, contexts: Floats, active: Flags, group: Counts, f: int
) -> Floats:
    """⌈π_{i,a} f⌉; a client who would have nothing to do pulls its lowest active arm once. Where only zero vectors are left,
    each client pulls its lowest forever."""
    if not contexts[active].any():
        lowest: Floats = np.eye(algorithm.n_arms)[active.argmax(axis=1)]
        return algorithm.horizon * lowest
    design = find_multi_client_design(contexts, active, shared=not group.any())
    plan = np.where(active, np.clip(np.ceil(design.weights * f), 0, algorithm.horizon), 0)
    for i in np.flatnonzero(~plan.any(axis=1)):
        plan[i, np.flatnonzero(active[i])[0]] = 1
    return plan


def estimate_groups(
    algorithm: Algorithm, contexts: Floats, group: Counts, phase: Phase
) -> tuple[Floats, Floats]:
    """r̂ = θ̂_gᵀx and w = σ√(2 ln(2MKH/δ))‖x‖ in V_g⁺, clients × arms, with H phases: H = max(1, ⌈log2(1 + T_c/(K d))⌉)."""
    M, K, d = contexts.shape
    H = max(1, math.ceil(math.log2(1 + algorithm.horizon / M / (K * d))))
    scale = compute_noise_scale(algorithm) * math.sqrt(
        2 * math.log(2 * M * K * H / algorithm.noise.delta)
    )
    estimates, widths = np.zeros((M, K)), np.zeros((M, K))
    for g in np.unique(group):
        xs = contexts[:, group == g]
        theta_hat, root = fit_least_squares(
            xs, phase.counts[:, group == g], phase.sums[:, group == g]
        )
        estimates[:, group == g] = xs @ theta_hat
        widths[:, group == g] = scale * np.linalg.norm(xs @ root, axis=-1)
    return estimates, widths


def charge_phase(traffic: Traffic, dim: int, group: Counts, phase: Phase, active: Flags) -> None:
    """The end of a phase: each client sends V and b of each group that it pulled in; it is sent those of all groups that
    anybody pulled in, and its part of the next design, a number for each active arm."""
    M, payload = len(active), count_payload_bytes(dim)
    pulled = np.array(
        [phase.counts[:, group == g].any(axis=1) for g in np.unique(group)]
    )  # groups × clients
    traffic.communication += M
    traffic.messages_up += M
    traffic.messages_down += M
    traffic.bytes_up += payload * int(pulled.sum())
    traffic.bytes_down += M * payload * int(pulled.any(axis=1).sum()) + 8 * int(active.sum())


def build_plugin_systems(planned: Any, n_clients: int, traffic: Traffic) -> list[Iterator[Phase]]:
    """A policy that is neither: by what it plans and makes of the phases itself, one system for all or one for each client."""

    def system(clients: Counts) -> Iterator[Phase]:
        while True:
            phase = Phase(planned.plan[clients], planned.idle[clients])
            yield phase
            counts, sums = np.zeros(planned.plan.shape, int), np.zeros(planned.plan.shape)
            counts[clients], sums[clients] = phase.counts, phase.sums
            for name, amount in planned.advance(clients, counts, sums).items():
                setattr(traffic, name, getattr(traffic, name) + amount)

    everybody = np.arange(n_clients)
    return (
        [system(everybody)]
        if planned.together
        else [system(each) for each in np.split(everybody, n_clients)]
    )


def fit_least_squares(xs: Floats, counts: Counts, sums: Floats) -> tuple[Floats, Floats]:
    """θ̂ = V⁺ Σ x·(the sum of its rewards), V = Σ n x xᵀ, over the xs that were pulled; and a root of V⁺.

    With the rows √n x in B, V = BᵀB and V⁺ = B⁺B⁺ᵀ: the root is B⁺, which has twice the digits that V would leave of it.
    """
    roots = np.sqrt(counts[counts > 0])
    root = np.linalg.pinv(roots[:, None] * xs[counts > 0], rcond=RANK_TOLERANCE).astype(
        np.float64, copy=False
    )
    return root @ (sums[counts > 0] / roots), root


def compute_noise_scale(algorithm: Algorithm) -> float:
    """The σ of the formulas, times alpha_scale."""
    return float(algorithm.noise.alpha_scale * algorithm.noise.noise_scale)
