"""What `async` does, in careful NumPy with BLAS: the fair opponent of the compiled loop.

It does the same job: layers, lazy clients that share the server's snapshots, Sherman–Morrison
steps, and the determinant trigger. It chooses the arms, the layers and the syncs of the engine,
which `play_layered` returns so that they can be compared before anything is timed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from .._shared.array_types import Floats
from ..algorithm.algorithm import Algorithm
from ..algorithm.making import make_for
from ..errors import InvalidInput
from ..problems.synthetic import SyntheticProblem
from ..simulation.runner import run
from .settings import HORIZON
from .timing import make_timing

TIE = 1e-9  # an arg max takes the first arm within this relative distance of the largest value


@dataclass(slots=True)
class Snapshot:
    """One layer of the server, which clients share: A, P = A⁻¹, b and θ̂ = P b."""

    gram: Floats
    inverse: Floats
    moment: Floats
    theta_hat: Floats


@dataclass(slots=True)
class Gathered:
    """What a client has gathered in a layer since its download: ΔA, Δb, (A+ΔA)⁻¹, the gain."""

    inverse: Floats
    delta_gram: Floats
    delta_moment: Floats
    gain: float = 0.0


@dataclass
class NumpyLayered:
    """FedSupLinUCB with asynchronous communication, in NumPy.

    It holds the state of the server and of all clients. The algorithm must be `async`, with any
    constants.
    """

    algorithm: Algorithm
    n_syncs: int = 0
    server: list[Snapshot] = field(init=False)
    held: list[list[Snapshot]] = field(init=False)
    gathered: list[list[Gathered | None]] = field(init=False)

    def __post_init__(self) -> None:
        algorithm = self.algorithm
        check_is_async(algorithm)
        dim, n_layers, ridge = algorithm.dim, algorithm.n_layers, algorithm.setting.ridge
        self._dim, self._last = dim, n_layers - 1
        self._radii = [float(radius) for radius in algorithm.radii]
        self._targets = [float(target) for target in algorithm.target_widths]
        self._threshold = float(algorithm.trigger.threshold)
        self.server = [
            Snapshot(ridge * np.eye(dim), np.eye(dim) / ridge, np.zeros(dim), np.zeros(dim))
            for _ in range(n_layers)
        ]
        self.held = [list(self.server) for _ in range(algorithm.n_clients)]
        self.gathered = [[None] * n_layers for _ in range(algorithm.n_clients)]
        self._projected, self._outer = np.empty((algorithm.n_arms, dim)), np.empty((dim, dim))

    def select(self, client: int, contexts: Floats) -> tuple[int, int]:
        """Return the arm that S-LUCB chooses for a client, and the layer that chose it."""
        arms: np.ndarray | None = None  # the kept arms; None while all are kept
        kept = contexts
        for layer, held in enumerate(self.held[client]):
            estimates = kept @ held.theta_hat
            target = self._targets[layer]
            if layer == self._last and layer > 0:
                choice = find_first_of_largest(estimates)
                break
            widths = self._compute_widths(kept, held.inverse, self._radii[layer])
            if layer == 0:  # the initial screening: r̂ + w ≥ max(r̂ − w)
                stays = estimates + widths >= (estimates - widths).max()
                widths = np.where(stays, widths, -1.0)
                estimates = np.where(stays, estimates, -np.inf)
            if self._last == 0:  # one layer: no width matters after the screening
                choice = find_first_of_largest(estimates)
                break
            if widths.max() > target:
                choice = find_first_of_largest(widths)
                break
            stays = estimates >= estimates.max() - 2 * target
            if not stays.all():
                rows = np.flatnonzero(stays)
                arms = rows if arms is None else arms[rows]
                kept = contexts[arms]
        return (choice if arms is None else int(arms[choice])), layer

    def _compute_widths(self, contexts: Floats, inverse: Floats, radius: float) -> Floats:
        """Return α √(xᵀP x) of every context."""
        projected = np.dot(contexts, inverse, out=self._projected[: len(contexts)])
        widths: Floats = np.einsum("kd,kd->k", projected, contexts)
        np.sqrt(widths, out=widths)
        widths *= radius
        return widths

    def update(self, client: int, layer: int, x: Floats, reward: float) -> None:
        """Learn from a reward in the layer that chose the arm; sync if the trigger fires."""
        mine = self.gathered[client][layer]
        if mine is None:
            dim, inverse = self._dim, self.held[client][layer].inverse.copy()
            mine = Gathered(inverse, np.zeros((dim, dim)), np.zeros(dim))
            self.gathered[client][layer] = mine
        y = mine.inverse @ x
        squared = float(x @ y)
        np.multiply(y[:, None], y / (1 + squared), out=self._outer)
        mine.inverse -= self._outer
        np.multiply(x[:, None], x, out=self._outer)
        mine.delta_gram += self._outer
        mine.delta_moment += reward * x
        mine.gain += math.log1p(squared)
        if mine.gain > self._threshold:
            self.sync(client)

    def sync(self, client: int) -> None:
        """Upload what a client has gathered in every layer, and download the new snapshots.

        If no other client has uploaded since its last download, the server takes over the client's
        inverse; else it computes one from scratch.
        """
        self.n_syncs += 1
        for layer, mine in enumerate(self.gathered[client]):
            there = self.server[layer]
            if mine is not None:
                gram, moment = there.gram + mine.delta_gram, there.moment + mine.delta_moment
                is_newest = self.held[client][layer] is there
                inverse: Floats = (
                    mine.inverse if is_newest else np.linalg.inv(gram).astype(float, copy=False)
                )
                there = Snapshot(gram, inverse, moment, inverse @ moment)
                self.server[layer], self.gathered[client][layer] = there, None
            self.held[client][layer] = there


def check_is_async(algorithm: Algorithm) -> None:
    """Check that an algorithm is what the layered NumPy opponent does: that of `async`."""
    wrong = {
        "policy": algorithm.kernel != "layered",
        "syncs": algorithm.syncs != "one",
        "lazy": not algorithm.lazy,
        "trigger": not hasattr(algorithm.trigger, "threshold"),
        "radius_growth": algorithm.radius_growth[0] != 0,
    }
    if any(wrong.values()):
        found = ", ".join(
            f"{name} {getattr(algorithm, name)}" for name, is_wrong in wrong.items() if is_wrong
        )
        raise InvalidInput(f"the layered NumPy opponent plays async alone, not {found}")


def find_first_of_largest(values: Floats) -> int:
    """Return the first index whose value is the largest, up to rounding."""
    largest = values.max()
    return int(np.argmax(values >= largest - TIE * abs(largest)))


def play_layered(
    player: NumpyLayered, clients: list[int], contexts: Floats, theta: Floats, noise: Floats
) -> tuple[list[int], list[int]]:
    """Play rounds × arms × dim contexts, with rewards and regret; return arms and layers."""
    arms, layers, regret = [], [], 0.0
    for t, client in enumerate(clients):
        rows = contexts[t]
        arm, layer = player.select(client, rows)
        means = rows @ theta
        player.update(client, layer, rows[arm], means[arm] + noise[t])
        regret += means.max() - means[arm]
        arms.append(arm)
        layers.append(layer)
    return arms, layers


def take_layered_rows(problem: SyntheticProblem, n: int) -> tuple[list[int], Floats, Floats]:
    """Return a problem's first clients, contexts (rounds × arms × dim) and noise, for NumPy."""
    chunk = problem.stream(n, problem.arrival).take(n)
    rows = np.ascontiguousarray(chunk.contexts[:, :, : problem.n_arms].transpose(0, 2, 1))
    return chunk.clients.tolist(), rows, chunk.noise.copy()


def check_layered_arms(algorithm: Algorithm, problem: SyntheticProblem, n: int) -> None:
    """Check that the layered NumPy chooses the engine's arms and layers in the first n pulls."""
    result = run(algorithm, problem, horizon=n, record="all")
    player = NumpyLayered(algorithm)
    clients, rows, noise = take_layered_rows(problem, n)
    assert problem.theta is not None and result.arms is not None and result.layers is not None
    arms, layers = play_layered(player, clients, rows, problem.theta, noise)
    same = result.arms.tolist() == arms and result.layers.tolist() == layers
    if not same or player.n_syncs != result.communication[-1]:
        raise AssertionError(
            f"the engine and the layered NumPy differ within {n} pulls of {problem!r}: "
            "nothing is timed unless both choose the same arms, layers and syncs"
        )


def time_layered_rounds(dim: int, n_arms: int, n_clients: int, n: int) -> float:
    """Return the CPU seconds of n rounds of the NumPy that does what `async` does."""
    problem = SyntheticProblem(dim, n_arms, n_clients, seed=0)
    algorithm = make_for("async", problem, HORIZON, {})
    clients, rows, noise = take_layered_rows(problem, n)
    assert problem.theta is not None  # it has one for all arms
    theta = problem.theta
    return make_timing(lambda: play_layered(NumpyLayered(algorithm), clients, rows, theta, noise))()
