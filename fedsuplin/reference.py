"""The plain NumPy twin of the compiled engine, written to be read beside the paper, listing by listing.

Every client and the server hold their matrices whole; every estimate is a `solve`, every determinant a `slogdet` of the
matrix as it stands. Nothing is kept that could be computed, so nothing can drift. `run` plays the same pulls as
`fedsuplin.run` and must choose the same arms in the same layers and communicate at the same pulls: tests/test_twins.py.
The phased policies are in reference_phased.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np

from .algorithm import Algorithm, Variant
from .problem import Stream
from .run import arrival_for, decision_key, prepared

TIE = 1e-9
CHUNK = 500


@dataclass(frozen=True, eq=False)
class ReferenceResult:
    """A value for every pull; from regret on they are cumulative, that pull and the sync it led to included."""

    arms: np.ndarray
    layers: np.ndarray
    clients: np.ndarray
    regret: np.ndarray
    reward: np.ndarray
    communication: np.ndarray
    messages_up: np.ndarray
    messages_down: np.ndarray
    bytes_up: np.ndarray
    bytes_down: np.ndarray


def run(algorithm: str | Variant | Algorithm, problem: Any, *, horizon: int | None = None, **parameters: Any) -> ReferenceResult:
    """Play an algorithm, or a variant by name with its parameters, on a problem: `fedsuplin.run`, every pull recorded.

    >>> import fedsuplin as fsl
    >>> run("async", fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0), horizon=50).arms.shape
    (50,)
    """
    algorithm, length = prepared(algorithm, problem, horizon, parameters)
    stream = problem.stream(length, arrival_for(algorithm, problem, length))
    ledger, play = Ledger(stream.budget), play_pulls
    if algorithm.kernel == "phased":
        from .reference_phased import play_phases as play  # here, since it is built on what is below
    play(algorithm, problem, pulls(stream, length, algorithm.n_arms), ledger)
    return ReferenceResult(*(np.array(column) for column in zip(*ledger.rows, strict=True)))


def play_pulls(algorithm: Algorithm, problem: Any, pulls: Iterator[Pull], ledger: Ledger) -> None:
    """Decide, observe, communicate: every policy but the phased ones."""
    federation, key = Federation(algorithm), decision_key(problem)
    decide = {"layered": s_lucb, "optimism": optimism, None: third_party}[algorithm.kernel]
    after_pull = {"one": async_communication, "all": sync_communication, "push": push_communication}[algorithm.syncs]
    for n, pull in enumerate(pulls):
        client = federation.clients[pull.client]
        choice, layer, norm = decide(algorithm, client, pull.contexts, pull.arms, uniform(key, n))
        x, reward = pull.contexts[choice], ledger.reward(pull, choice)
        observe(client, layer, x, reward, weigh(algorithm, client, layer, x, reward, norm, pull.sigma))
        after_pull(federation, client, layer, n)
        ledger.enter(pull, choice, layer, reward, federation.traffic)


class Pull(NamedTuple):
    """The active client, the arms that are there and, a row each, their contexts, mean rewards and corruption; the noise
    and its σ_t."""

    client: int
    arms: np.ndarray
    contexts: np.ndarray
    means: np.ndarray
    corruption: np.ndarray
    noise: float
    sigma: float


class Ledger:
    """What the pulls paid and cost so far: a row of ReferenceResult each. Holds what the adversary has left to spend."""

    def __init__(self, budget: float) -> None:
        self.budget, self.regret, self.total = budget, 0.0, 0.0
        self.rows: list[tuple[Any, ...]] = []

    def reward(self, pull: Pull, choice: int) -> float:
        """Mean + noise + corruption, which is clipped to the budget left."""
        corrupted = min(max(pull.corruption[choice], -self.budget), self.budget)
        self.budget -= abs(corrupted)
        return float(pull.means[choice] + pull.noise + corrupted)

    def enter(self, pull: Pull, choice: int, layer: int, reward: float, traffic: Traffic) -> None:
        self.regret += pull.means.max() - pull.means[choice]
        self.total += reward
        self.rows.append((pull.arms[choice], layer, pull.client, self.regret, self.total, *astuple(traffic)))


def pulls(stream: Stream, length: int, n_arms: int) -> Iterator[Pull]:
    """Pull by pull. The engine's d × lanes are turned back into K × d, without the padding."""
    for start in range(0, length, CHUNK):
        chunk = stream.take(min(CHUNK, length - start))
        for t, client in enumerate(chunk.clients):
            arms = np.arange(n_arms) if chunk.mask is None else np.flatnonzero(chunk.mask[t, :n_arms])
            contexts = chunk.contexts[t].T[arms]
            means = contexts @ chunk.theta if chunk.rewards is None else chunk.rewards[t, arms]
            corruption = np.zeros(len(arms)) if chunk.corruption is None else chunk.corruption[t, arms]
            yield Pull(int(client), arms, contexts, means, corruption, chunk.noise[t], chunk.sigma[t])


class Layers:
    """A_s and b_s of every layer, and which version of the server's they are. The server holds just this."""

    def __init__(self, n_layers: int, dim: int, ridge: float) -> None:
        self.gram = np.array([ridge * np.eye(dim)] * n_layers)
        self.moment = np.zeros((n_layers, dim))
        self.version = np.zeros(n_layers, int)


class Client(Layers):
    """The last download, and ΔA_s, Δb_s with the number of observations in them; the slots of plugins with state."""

    def __init__(self, n_layers: int, dim: int, ridge: float, state_sizes: dict[str, int]) -> None:
        super().__init__(n_layers, dim, ridge)
        self.state = {axis: np.zeros(size) for axis, size in state_sizes.items() if size}
        self.delta_gram = np.zeros((n_layers, dim, dim))
        self.delta_moment = np.zeros((n_layers, dim))
        self.observations = np.zeros(n_layers, int)


@dataclass
class Traffic:
    """The paper's count, and what really crosses the wire; in the order of ReferenceResult's last columns."""

    communication: int = 0
    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


class Federation:
    """One server, M clients, what they sent each other; for Async-LinUCB, what the server has yet to send to each client;
    for Sync, CommLayers and t_last of each layer."""

    def __init__(self, algorithm: Algorithm) -> None:
        sizes = algorithm.n_layers, algorithm.dim, algorithm.setting.ridge
        self.trigger, self.traffic = algorithm.trigger, Traffic()
        state_sizes = {axis: rule.state_size for axis, rule in algorithm.rules.items()}
        self.server, self.clients = Layers(*sizes), [Client(*sizes, state_sizes) for _ in range(algorithm.n_clients)]
        self.pending = [Layers(algorithm.n_layers, algorithm.dim, 0.0) for _ in range(algorithm.n_clients)]
        self.comm_layers: set[int] = set()
        self.t_last = [0] * algorithm.n_layers


def s_lucb(algorithm: Algorithm, client: Client, contexts: np.ndarray, *_: Any) -> tuple[int, int, float]:
    """S-LUCB, and VS-LUCB and CS-LUCB, which decide alike: layered successive screening.

    Returns the row of the contexts that is chosen, the layer s that chose it, and its ‖x‖ in the A_s⁻¹ used there.
    """
    for layer, target_width in enumerate(algorithm.target_widths):
        estimates, norms, widths = estimate(algorithm, client, layer, contexts)
        # Initial screening: A_0 = {a : r̂_0 + w_0 ≥ max(r̂_0 − w_0)}
        if layer == 0:
            kept = estimates + widths >= np.max(estimates - widths)
        # If s = S: "arbitrarily" from A_S, that is, the largest r̂_S
        if layer == algorithm.n_layers - 1:
            choice = arg_max(estimates, kept)
            break
        # Unless w_s ≤ w̄_s for all a ∈ A_s: arg max of w_s over {a ∈ A_s : w_s > w̄_s}
        wide = kept & (widths > target_width)
        if wide.any():
            choice = arg_max(widths, wide)
            break
        # A_{s+1} = {a ∈ A_s : r̂_s ≥ max r̂_s − 2w̄_s}
        kept = kept & (estimates >= np.max(estimates[kept]) - 2 * target_width)
    return choice, layer, norms[choice]


def optimism(algorithm: Algorithm, client: Client, contexts: np.ndarray, *_: Any) -> tuple[int, int, float]:
    """OFUL: one layer, arg max of r̂ + w."""
    estimates, norms, widths = estimate(algorithm, client, 0, contexts)
    choice = arg_max(estimates + widths, np.full(len(contexts), True))
    return choice, 0, norms[choice]


def third_party(
    algorithm: Algorithm, client: Client, contexts: np.ndarray, arms: np.ndarray, draw: float
) -> tuple[int, int, float]:
    """A policy that chooses itself: it sees estimates and widths of all K arms in every layer, −∞ and 0 for one not there."""
    shape = (algorithm.n_layers, algorithm.n_arms)
    estimates, norms, widths = np.full(shape, -np.inf), np.zeros(shape), np.zeros(shape)
    for layer in range(algorithm.n_layers):
        estimates[layer, arms], norms[layer, arms], widths[layer, arms] = estimate(algorithm, client, layer, contexts)
    index = algorithm.policy.choose(estimates, widths, algorithm.target_widths, draw, *state_of(client, "policy"))
    layer, arm = divmod(int(index), algorithm.n_arms)
    return int(np.flatnonzero(arms == arm)[0]), layer, norms[layer, arm]


def uniform(key: int, n: int) -> float:
    """The number in [0, 1) that pull n = 0, 1, … gives to a policy: SplitMix64, 53 bits of it."""
    z = (key + (n + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return ((z ^ (z >> 31)) >> 11) / 2**53


def state_of(client: Client, axis: str) -> list[np.ndarray]:
    """The slots that a plugin with state gets as its last argument; nothing for one without."""
    return [client.state[axis]] if axis in client.state else []


def estimate(algorithm: Algorithm, client: Client, layer: int, contexts: np.ndarray) -> tuple[np.ndarray, ...]:
    """r̂ = θ̂_sᵀx with θ̂_s = A_s⁻¹b_s, ‖x‖ in A_s⁻¹, w = α_s‖x‖. Eager: A_s + ΔA_s and b_s + Δb_s for A_s and b_s."""
    gram, theta_hat = known(algorithm, client, layer)
    norms = np.sqrt(np.sum(contexts * np.linalg.solve(gram, contexts.T).T, axis=1))
    return contexts @ theta_hat, norms, radius(algorithm, layer, gram) * norms


def known(algorithm: Algorithm, client: Client, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """The A_s that a decision uses, and θ̂_s = A_s⁻¹b_s."""
    gram, moment = client.gram[layer], client.moment[layer]
    if not algorithm.lazy:
        gram, moment = gram + client.delta_gram[layer], moment + client.delta_moment[layer]
    return gram, np.linalg.solve(gram, moment)


def radius(algorithm: Algorithm, layer: int, gram: np.ndarray) -> float:
    """α_s; where it is self-normalised, α_s + scale·√(offset + ln det(A_s)/det(λI))."""
    scale, offset = algorithm.radius_growth
    if scale == 0:
        return float(algorithm.radii[layer])
    growth = log_det(gram) - algorithm.dim * math.log(algorithm.setting.ridge)
    return float(algorithm.radii[layer]) + scale * math.sqrt(offset + growth)


def arg_max(values: np.ndarray, among: np.ndarray) -> int:
    """The lowest index whose value is within a relative 1e-9 of the largest: v ≥ m − 1e-9|m|."""
    largest = np.max(values[among])
    return int(np.flatnonzero(among & (values >= largest - TIE * abs(largest)))[0])


def log_det(gram: np.ndarray) -> float:
    return float(np.linalg.slogdet(gram).logabsdet)


def weigh(algorithm: Algorithm, client: Client, layer: int, x: np.ndarray, reward: float, norm: float, sigma: float) -> float:
    """ω; a weighting with state is also given the residual r − θ̂_sᵀx and its slots."""
    state = state_of(client, "weighting")
    residual = [reward - x @ known(algorithm, client, layer)[1]] if state else []
    return float(algorithm.weighting.weight(norm, sigma, *residual, *state))


def observe(client: Client, layer: int, x: np.ndarray, reward: float, weight: float) -> None:
    """ΔA_s ← ΔA_s + ω x xᵀ, Δb_s ← Δb_s + ω r x."""
    client.delta_gram[layer] += weight * np.outer(x, x)
    client.delta_moment[layer] += weight * reward * x
    client.observations[layer] += 1


def gain(client: Client, layer: int) -> float:
    """ln(det(A_s + ΔA_s)/det(A_s))."""
    return log_det(client.gram[layer] + client.delta_gram[layer]) - log_det(client.gram[layer])


def async_communication(federation: Federation, client: Client, layer: int, n: int) -> None:
    """Async: if det(A_s + ΔA_s)/det(A_s) > 1 + C, Sync(s, server, client i) for each s ∈ [0:S]. Costs 1."""
    elapsed = float(client.observations.sum())  # the client's pulls since its last sync, this one included
    if federation.trigger.fires(gain(client, layer), elapsed, *state_of(client, "trigger")):
        federation.traffic.communication += 1
        sync(range(len(client.gram)), federation.server, [client], federation.traffic)


def sync_communication(federation: Federation, client: Client, layer: int, n: int) -> None:
    """Sync: if (t − t_last)·ln(det(A_s + ΔA_s)/det(A_s)) > D, add s to CommLayers; when all M clients have played
    round t, Sync(s, server, clients [M]) for each s ∈ CommLayers, t_last ← t. Costs M a layer."""
    round_, turn = divmod(n, len(federation.clients))
    t, comm_layers = round_ + 1, federation.comm_layers
    elapsed = float(t - federation.t_last[layer])
    if federation.trigger.fires(gain(client, layer), elapsed, *state_of(client, "trigger")):
        comm_layers.add(layer)
    if turn == len(federation.clients) - 1 and comm_layers:
        federation.traffic.communication += len(federation.clients) * len(comm_layers)
        sync(comm_layers, federation.server, federation.clients, federation.traffic)
        for s in comm_layers:
            federation.t_last[s] = t
        comm_layers.clear()


def sync(layers: range | set[int], server: Layers, clients: list[Client], traffic: Traffic) -> None:
    """Sync(s, server, client 1..n) for each s: A_s ← A_s + ΣΔA_s, b_s ← b_s + ΣΔb_s at the server; each client takes
    them and clears its Δ. A message holds only the layers with something new in them."""
    payload = payload_of(server.moment.shape[1])
    traffic.messages_up += len(clients)
    traffic.messages_down += len(clients)
    for s in layers:
        for client in clients:
            if client.observations[s]:
                server.gram[s] += client.delta_gram[s]
                server.moment[s] += client.delta_moment[s]
                server.version[s] += 1
                traffic.bytes_up += payload
        for client in clients:
            if client.version[s] != server.version[s]:
                client.gram[s], client.moment[s] = server.gram[s], server.moment[s]
                client.version[s] = server.version[s]
                traffic.bytes_down += payload
            client.delta_gram[s], client.delta_moment[s], client.observations[s] = 0, 0, 0


def payload_of(dim: int) -> int:
    """The bytes of an A, which is symmetric, and a b."""
    return 8 * (dim * (dim + 1) // 2 + dim)


def push_communication(federation: Federation, client: Client, layer: int, n: int) -> None:
    """Async-LinUCB: if det(A_i)/det(A_i − ΔA_i) > γ_U, with A_i = A_s + ΔA_s all that client i knows, it uploads; then for
    each client j, i included, the server sends what j lacks in each s where det(A_s)/det(A_s − pending_j) > γ_D.
    Costs 1 for the upload and 1 for each client that is sent something."""
    elapsed = float(client.observations.sum())  # the client's pulls since its last upload, this one included
    if federation.trigger.fires(gain(client, layer), elapsed, *state_of(client, "trigger")):
        upload(federation, client)
        for j in range(len(federation.clients)):
            download(federation, j)


def upload(federation: Federation, client: Client) -> None:
    """ΔA_s, Δb_s of each s with something in it: to the server's A_s, b_s, to pending_j of every other client j and to what
    the client itself was sent, for it goes on knowing it."""
    waiting = [pending for j, pending in zip(federation.clients, federation.pending, strict=True) if j is not client]
    federation.traffic.communication += 1
    federation.traffic.messages_up += 1
    for s in np.flatnonzero(client.observations):
        for sums in (federation.server, client, *waiting):
            sums.gram[s] += client.delta_gram[s]
            sums.moment[s] += client.delta_moment[s]
        client.delta_gram[s], client.delta_moment[s], client.observations[s] = 0, 0, 0
        federation.traffic.bytes_up += payload_of(client.moment.shape[1])


def download(federation: Federation, j: int) -> None:
    """A_s ← A_s + pending_j at client j, likewise b_s, for each s in which the server has enough for it; j's own Δ stays."""
    client, pending, server = federation.clients[j], federation.pending[j], federation.server
    lacks = [log_det(whole) - log_det(whole - part) for whole, part in zip(server.gram, pending.gram, strict=True)]
    sent = np.flatnonzero(np.array(lacks) > federation.trigger.push_threshold)
    for s in sent:
        client.gram[s] += pending.gram[s]
        client.moment[s] += pending.moment[s]
        pending.gram[s], pending.moment[s] = 0, 0
    federation.traffic.bytes_down += len(sent) * payload_of(client.moment.shape[1])
    federation.traffic.communication += bool(len(sent))
    federation.traffic.messages_down += bool(len(sent))
