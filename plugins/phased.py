"""Phased elimination with optimal designs, for fixed arms: PE (each client alone) and Fed-PE.

A phase is planned here, between pulls: how often each client pulls each arm. The compiled loop
plays it and returns the number of pulls and the sum of rewards of each client and arm. From these
the arms that can't be the best are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsuplin.plugin import (
    Bound,
    Claim,
    Design,
    Setting,
    Variant,
    find_g_optimal_design,
    find_multi_client_design,
    hookimpl,
)
from fedsuplin_plugins.noise import Gaussian

TIE = 1e-9
MOST_DOUBLINGS = 200  # without noise a phase has only a few pulls, and there are many


@dataclass(frozen=True)
class PhasedNoise(Gaussian):
    """σ-sub-Gaussian noise for phased policies: one layer, no radius; designs give the widths."""

    drawn_as: ClassVar[str] = "gaussian"

    def n_layers(self, setting: Setting) -> int:
        """Return the number of layers."""
        return 1

    def radii(self, setting: Setting) -> np.ndarray:
        """Return the radius of each layer."""
        return np.zeros(1)

    def target_widths(self, setting: Setting) -> np.ndarray:
        """Return the target width of each layer."""
        return np.zeros(1)


@dataclass(frozen=True)
class PhasedElimination:
    """Phase ℓ pulls arms by a G-optimal design, then drops those 2·2^-ℓ below the best.

    After the phase each arm's mean is known to 2^-ℓ.
    """

    kernel: ClassVar[str] = "phased"

    def begin(self, algorithm: Any, problem: Any) -> EliminationPhases:
        """Return the phases of one run."""
        return EliminationPhases(algorithm, problem.fixed_arms)


class EliminationPhases:
    """Each client's arms that are left, its phase, and its plan."""

    together = False

    def __init__(self, algorithm: Any, arms: np.ndarray) -> None:
        self._algorithm, self._arms = algorithm, arms
        n_clients, n_arms, _ = arms.shape
        self._kept = np.ones((n_clients, n_arms), bool)
        self._phase = np.zeros(n_clients, int)
        self._designs: dict[bytes, Design] = {}  # one for clients with the same arms left
        self.plan, self.idle = (
            np.zeros((n_clients, n_arms), np.int64),
            np.zeros(n_clients, np.int64),
        )
        for client in range(n_clients):
            self._plan(client)

    def advance(self, clients: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> dict[str, int]:
        """Drop arms and plan the next phase of these clients."""
        for client in clients:
            self._drop(client, counts[client], sums[client])
            self._plan(client)
        return {}

    def _plan(self, client: int) -> None:
        """Plan to pull arm a ⌈2gπ(a)/ε²·σ² ln(Kℓ(ℓ+1)/δ)⌉ times.

        ε = 2^-ℓ, and g is the largest ‖x‖² in V(π)⁻¹.
        """
        noise, horizon = self._algorithm.noise, self._algorithm.horizon
        self._phase[client] += 1
        phase, kept = int(self._phase[client]), np.flatnonzero(self._kept[client])
        arms = self._arms[client, kept]
        self.plan[client] = 0
        if not arms.any():  # all arms left have reward 0: any will do from now on
            self.plan[client, kept[0]] = horizon
            return
        design = self._find_design(arms)
        scale = (noise.alpha_scale * noise.noise_scale) ** 2 * math.log(
            self._arms.shape[1] * phase * (phase + 1) / noise.delta
        )
        pulls = np.ceil(
            np.ldexp(2 * design.value * design.weights * scale, min(2 * phase, MOST_DOUBLINGS))
        )
        self.plan[client, kept] = np.where(design.weights > 0, np.clip(pulls, 1, horizon), 0)

    def _find_design(self, arms: np.ndarray) -> Design:
        """Return the G-optimal design of some arms, computed once per set of arms."""
        key = arms.tobytes()
        if key not in self._designs:
            self._designs[key] = find_g_optimal_design(arms)
        return self._designs[key]

    def _drop(self, client: int, counts: np.ndarray, sums: np.ndarray) -> None:
        """Drop the arms more than 2ε below the best, by least squares from this phase alone."""
        arms = self._arms[client]
        theta_hat = np.linalg.pinv((counts * arms.T) @ arms, hermitian=True) @ (sums @ arms)
        estimates = np.where(self._kept[client], arms @ theta_hat, -np.inf)
        self._kept[client] = estimates >= estimates.max() - 2 * 0.5 ** self._phase[client]


@dataclass(frozen=True)
class FedPE:
    """Clients share what they pull in a phase, by a design over clients and arms.

    Each drops its own arms. `shared` is True for one θ, False for one θ per arm; by default,
    whichever the problem has.
    """

    kernel: ClassVar[str] = "phased"
    per_arm: ClassVar[bool] = True

    shared: bool | None = None

    def begin(self, algorithm: Any, problem: Any) -> SharedPhases:
        """Return the phases of one run."""
        shared = problem.arm_thetas is None if self.shared is None else self.shared
        return SharedPhases(algorithm, problem.fixed_arms, shared)


class SharedPhases:
    """Each client's active arms and plan, and the server's fit between two phases."""

    together = True

    def __init__(self, algorithm: Any, arms: np.ndarray, shared: bool) -> None:
        self._algorithm, self._arms, self._shared = algorithm, arms, shared
        n_clients, n_arms, dim = arms.shape
        self._groups = np.zeros(n_arms, int) if shared else np.arange(n_arms)
        self._active = np.ones((n_clients, n_arms), bool)
        self._phase, self._payload = 0, 8 * (dim * (dim + 1) // 2 + dim)
        self.idle = np.zeros(n_clients, np.int64)
        self._plan()

    def advance(self, clients: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> dict[str, int]:
        """Fit, drop arms and plan the next phase. It ends for all clients at once."""
        estimates, norms = self._fit(counts, sums)
        self._drop(estimates, norms)
        self._plan()
        return self._count_traffic(counts)

    def _plan(self) -> None:
        """Plan ⌈π_{i,a} f_p⌉ pulls for arm a of client i in phase p, where f_p = 2^p."""
        n_clients, n_arms, _ = self._arms.shape
        self._phase += 1
        pulls_per_client = 2.0**self._phase
        if not self._arms[self._active].any():  # all have reward 0: any will do from now on
            self.plan = np.zeros((n_clients, n_arms), np.int64)
            self.plan[np.arange(n_clients), self._active.argmax(axis=1)] = self._algorithm.horizon
            return
        weights = find_multi_client_design(self._arms, self._active, shared=self._shared).weights
        self.plan = np.minimum(np.ceil(weights * pulls_per_client), self._algorithm.horizon).astype(
            np.int64
        )
        for client in np.flatnonzero(self.plan.sum(axis=1) == 0):
            self.plan[client, self._active[client].argmax()] = 1

    def _fit(self, counts: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return x_{i,a}ᵀθ̂_a, and ‖x_{i,a}‖ in V_a⁺.

        V_a = Σ n x xᵀ and θ̂_a = V_a⁺ Σ r x, over the clients and the arms of the group.
        """
        estimates, norms = np.zeros(counts.shape), np.zeros(counts.shape)
        for group in np.unique(self._groups):
            members = self._groups == group
            x = self._arms[:, members].reshape(-1, self._arms.shape[2])
            inverse = np.linalg.pinv((counts[:, members].reshape(-1) * x.T) @ x, hermitian=True)
            theta_hat = inverse @ (sums[:, members].reshape(-1) @ x)
            estimates[:, members] = (x @ theta_hat).reshape(len(counts), -1)
            squares = np.einsum("nd,de,ne->n", x, inverse, x).reshape(len(counts), -1)
            norms[:, members] = np.sqrt(np.maximum(squares, 0))
        return estimates, norms

    def _drop(self, estimates: np.ndarray, norms: np.ndarray) -> None:
        """Drop arms whose upper bound is below the client's best lower bound.

        The width is σ√(2 ln(2MK·phases/δ))·‖x‖, for as many phases as 2 + 4 + 8 + … ≥ T_c needs.
        """
        noise, setting = self._algorithm.noise, self._algorithm.setting
        n_clients, n_arms, _ = self._arms.shape
        phases = max(1, math.ceil(math.log2(2 + setting.rounds)) - 1)
        level = math.sqrt(2 * math.log(2 * n_clients * n_arms * phases / noise.delta))
        widths = noise.alpha_scale * noise.noise_scale * level * norms
        estimates = np.where(self._active, estimates, -np.inf)
        best_lower = (estimates - widths).max(axis=1, keepdims=True)
        self._active &= estimates + widths >= best_lower
        estimates = np.where(self._active, estimates, -np.inf)
        largest = estimates.max(axis=1, keepdims=True)
        self.idle = (estimates >= largest - TIE * np.abs(largest)).argmax(axis=1)

    def _count_traffic(self, counts: np.ndarray) -> dict[str, int]:
        """Return what the phase cost.

        Clients send the sums of each group that they pulled. The server sends the fit of each
        group, and to each client its share of the design.
        """
        n_clients = len(counts)
        pulled = np.array(
            [counts[:, self._groups == group].any(axis=1) for group in np.unique(self._groups)]
        )
        return {
            "communication": n_clients,
            "messages_up": n_clients,
            "messages_down": n_clients,
            "bytes_up": int(pulled.sum()) * self._payload,
            "bytes_down": n_clients * int(pulled.any(axis=1).sum()) * self._payload
            + 8 * int(self._active.sum()),
        }


REGRET = Bound("√(d T log T)", d=0.5, T=0.5, log_T=0.5)
PE = Variant(
    summary="phased elimination by G-optimal designs: each client alone, for fixed arms",
    policy="pe",
    trigger="never",
    noise="phased",
    lazy=False,
    claim=Claim("single player", "fixed", REGRET, None),
    presets={"theory": {}, "practical": {"alpha_scale": 0.3}},
)
FED_PE = Variant(
    summary="Fed-PE: federated phased elimination, by a design over clients and arms, "
    "for fixed arms",
    policy="fed-pe",
    trigger="never",
    noise="phased",
    syncs="all",
    lazy=False,
    claim=Claim(
        "sync",
        "fixed",
        REGRET,
        Bound("d² M K log T", d=2, M=1, K=1, log_T=1),
    ),
    presets={"theory": {}, "practical": {"alpha_scale": 0.3}},
)


@hookimpl
def fedsuplin_register_policies(register: Callable[[str, Any], None]) -> None:
    register("pe", PhasedElimination)
    register("fed-pe", FedPE)


@hookimpl
def fedsuplin_register_noise_models(register: Callable[[str, Any], None]) -> None:
    register("phased", PhasedNoise)


@hookimpl
def fedsuplin_register_variants(register: Callable[[str, Any], None]) -> None:
    register("pe", PE)
    register("fed-pe", FED_PE)
