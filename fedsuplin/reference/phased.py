"""Phased elimination (PE) and Fed-PE of the twin, on fixed arms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._shared.array_types import AnyArray, Counts, Flags, Floats
from ..algorithm.algorithm import Algorithm
from ..algorithm.optimal_design import find_g_optimal_design, find_multi_client_design
from ..contracts.problem import Problem
from .communication import count_payload_bytes
from .decisions import find_arg_max
from .pulls import Pull, Tally, Traffic

RANK_TOLERANCE = 1e-10  # relative to the largest singular value, as in optimal_design.py


class Phase:
    """One phase: pulls left, pulls made and sums of their rewards, each clients × arms."""

    def __init__(self, plan: AnyArray, idle: Counts) -> None:
        self.left, self.idle = plan.astype(int), idle
        self.counts, self.sums = np.zeros(plan.shape, int), np.zeros(plan.shape)

    def choose_arm(self, client: int) -> int:
        """Return the lowest arm that the phase has left for this client, else its idle arm."""
        return int(next(iter(np.flatnonzero(self.left[client])), self.idle[client]))

    def observe(self, client: int, arm: int, reward: float) -> None:
        """Count a pull of the phase and add its reward, unless the client is idle."""
        if self.left[client, arm]:
            self.left[client, arm] -= 1
            self.counts[client, arm] += 1
            self.sums[client, arm] += reward

    def is_over(self) -> bool:
        """Return whether all planned pulls of the phase were made."""
        return not self.left.any()


def play_phases(
    algorithm: Algorithm, problem: Problem, pulls: Iterator[Pull], tally: Tally
) -> None:
    """Play the twin with a phased policy; the last pull of a phase begins the next one.

    In PE each client has phases of its own, in Fed-PE all clients have the same.
    """
    traffic, M = Traffic(), algorithm.n_clients
    name = type(algorithm.policy).__name__
    assert problem.fixed_arms is not None  # checked before the run
    if name == "PhasedElimination":
        systems = [iterate_elimination_phases(algorithm, arms) for arms in problem.fixed_arms]
    elif name == "FedPE":
        systems = [iterate_fed_pe_phases(algorithm, problem, traffic)]
    else:
        systems = build_plugin_systems(algorithm.policy.begin(algorithm, problem), M, traffic)
    phases = [next(system) for system in systems]
    for pull in pulls:
        system, client = (pull.client, 0) if len(systems) == M > 1 else (0, pull.client)
        arm = phases[system].choose_arm(client)
        reward = tally.draw_reward(pull, arm)
        phases[system].observe(client, arm, reward)
        if phases[system].is_over():
            phases[system] = next(systems[system])
        tally.add_row(pull, arm, 0, reward, traffic)


def iterate_elimination_phases(algorithm: Algorithm, arms: Floats) -> Iterator[Phase]:
    """Yield the twin's phases ℓ = 1, 2, … of PE for one client, with ε = 2^-ℓ.

    With a G-optimal design π over the arms left, and g its largest ‖x‖² in V(π)⁻¹, arm a is pulled
    ⌈2gπ(a)/ε² · σ² ln(Kℓ(ℓ+1)/δ)⌉ times. θ̂ comes from these pulls alone. Every arm more than 2ε
    below the best is dropped.
    """
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
    """Return the pulls of each arm left in a phase of the twin's PE: 0 where π(a) = 0, else ≥ 1.

    If only zero vectors are left, nothing can be learnt, and the first is pulled forever.
    """
    if not arms.any():
        first: Floats = np.eye(len(arms))[0]
        return algorithm.horizon * first
    design, delta = find_g_optimal_design(arms), algorithm.noise.delta
    log_term = math.log(algorithm.n_arms * phase_number * (phase_number + 1) / delta)
    # ldexp multiplies by 1/ε² = 2^2ℓ: with σ = 0 there are so many phases that ε² underflows.
    pulls = np.ldexp(
        2 * design.value * design.weights * compute_noise_scale(algorithm) ** 2 * log_term,
        2 * phase_number,
    )
    return np.where(design.weights > 0, np.clip(np.ceil(pulls), 1, algorithm.horizon), 0)


def iterate_fed_pe_phases(
    algorithm: Algorithm, problem: Problem, traffic: Traffic
) -> Iterator[Phase]:
    """Yield the twin's phases p = 1, 2, … of Fed-PE, shared by all clients. Each costs M.

    The server solves the multi-client design π over the active arms. Client i pulls its active arm
    a ⌈π_{i,a} f_p⌉ times, f_p = 2^p, and uploads its sums. The server fits θ̂_g for each group of
    arms with the same θ, and sends it with V_g. Each client drops the arms whose upper bound is
    below its best lower bound.
    """
    assert problem.fixed_arms is not None  # checked before the run
    contexts, group = problem.fixed_arms, group_arms(algorithm, problem)
    M, K, d = contexts.shape
    active, idle = np.full((M, K), True), np.zeros(M, int)
    for phase_number in itertools.count(1):
        phase = Phase(plan_fed_pe(algorithm, contexts, active, group, 2**phase_number), idle)
        yield phase
        estimates, widths = estimate_groups(algorithm, contexts, group, phase)
        # Client i keeps {a : r̂ + w ≥ max(r̂ − w)}, the maximum over its active arms
        best = np.max(estimates - widths, axis=1, where=active, initial=-np.inf)
        active = active & (estimates + widths >= best[:, None])
        idle = np.array(
            [find_arg_max(*of_client) for of_client in zip(estimates, active, strict=True)]
        )
        charge_phase(traffic, d, group, phase, active)


def group_arms(algorithm: Algorithm, problem: Problem) -> Counts:
    """Return the group of each arm in the Fed-PE of the twin: one if they share θ, else one each.

    The policy may decide it; otherwise the problem does.
    """
    shared = algorithm.policy.shared
    if shared is None:
        shared = problem.arm_thetas is None
    return np.zeros(algorithm.n_arms, int) if shared else np.arange(algorithm.n_arms)


def plan_fed_pe(
    algorithm: Algorithm, contexts: Floats, active: Flags, group: Counts, f: int
) -> Floats:
    """Return the pulls of each client and arm in the twin's phase of Fed-PE: ⌈π_{i,a} f⌉.

    A client with nothing to do pulls its lowest active arm once. If only zero vectors are left,
    each client pulls its lowest active arm forever.
    """
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
    """Return r̂ = θ̂_gᵀx and w = σ√(2 ln(2MKH/δ))‖x‖ in V_g⁺ after a Fed-PE phase of the twin.

    H is the number of phases with Σ_p 2^p ≥ T_c: max(1, ⌈log2(2 + T_c)⌉ − 1).
    """
    M, K, d = contexts.shape
    H = max(1, math.ceil(math.log2(2 + algorithm.horizon / M)) - 1)
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
    """Count the twin's traffic at the end of a phase of Fed-PE.

    Each client sends V and b of each group in which it pulled. It receives those of all groups in
    which any client pulled, and its part of the next design, a number per active arm.
    """
    M, payload = len(active), count_payload_bytes(dim)
    # Groups × clients.
    pulled = np.array([phase.counts[:, group == g].any(axis=1) for g in np.unique(group)])
    traffic.communication += M
    traffic.messages_up += M
    traffic.messages_down += M
    traffic.bytes_up += payload * int(pulled.sum())
    traffic.bytes_down += M * payload * int(pulled.any(axis=1).sum()) + 8 * int(active.sum())


def build_plugin_systems(planned: Any, n_clients: int, traffic: Traffic) -> list[Iterator[Phase]]:
    """Return the twin's phases under a plugin: one series for all clients, or one for each."""

    def system(clients: Counts) -> Iterator[Phase]:
        while True:
            phase = Phase(planned.plan[clients], planned.idle[clients])
            yield phase
            counts, sums = np.zeros(planned.plan.shape, int), np.zeros(planned.plan.shape)
            counts[clients], sums[clients] = phase.counts, phase.sums
            for name, amount in planned.advance(clients, counts, sums).items():
                setattr(traffic, name, getattr(traffic, name) + amount)

    all_clients = np.arange(n_clients)
    if planned.together:
        return [system(all_clients)]
    return [system(each) for each in np.split(all_clients, n_clients)]


def fit_least_squares(xs: Floats, counts: Counts, sums: Floats) -> tuple[Floats, Floats]:
    """Fit θ̂ = V⁺ Σ x·(sum of its rewards) to the twin's phase; return it with a root of V⁺.

    Only the xs that were pulled count. With the rows √n x in B, V = BᵀB and V⁺ = B⁺B⁺ᵀ. So the
    root is B⁺, and computing it from B keeps twice the digits that V would leave.
    """
    roots = np.sqrt(counts[counts > 0])
    root = np.linalg.pinv(roots[:, None] * xs[counts > 0], rcond=RANK_TOLERANCE).astype(
        np.float64, copy=False
    )
    return root @ (sums[counts > 0] / roots), root


def compute_noise_scale(algorithm: Algorithm) -> float:
    """Return the σ in the formulas of the twin's phased policies, times alpha_scale."""
    return float(algorithm.noise.alpha_scale * algorithm.noise.noise_scale)
