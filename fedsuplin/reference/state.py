"""What the twin's server and clients hold: Gram matrices, moments, and the state of plugins."""

from __future__ import annotations

import numpy as np

from ..algorithm.algorithm import Algorithm
from .pulls import Traffic


class Layers:
    """A_s and b_s of every layer, and their version at the server, which holds only this."""

    def __init__(self, n_layers: int, dim: int, ridge: float) -> None:
        self.gram = np.array([ridge * np.eye(dim)] * n_layers)
        self.moment = np.zeros((n_layers, dim))
        self.version = np.zeros(n_layers, int)


class ReferenceClient(Layers):
    """A client: its last download, ΔA_s and Δb_s with their observations, plugin state."""

    def __init__(self, n_layers: int, dim: int, ridge: float, state_sizes: dict[str, int]) -> None:
        super().__init__(n_layers, dim, ridge)
        self.state = {axis: np.zeros(size) for axis, size in state_sizes.items() if size}
        self.delta_gram = np.zeros((n_layers, dim, dim))
        self.delta_moment = np.zeros((n_layers, dim))
        self.observations = np.zeros(n_layers, int)


class Federation:
    """One server, M clients, and the traffic between them.

    For Async-LinUCB it has what is pending for each client, for Sync CommLayers and each t_last.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        sizes = algorithm.n_layers, algorithm.dim, algorithm.setting.ridge
        self.trigger, self.traffic = algorithm.trigger, Traffic()
        state_sizes = {axis: rule.state_size for axis, rule in algorithm.rules.items()}
        everyone = range(algorithm.n_clients)
        self.server = Layers(*sizes)
        self.clients = [ReferenceClient(*sizes, state_sizes) for _ in everyone]
        self.pending = [Layers(algorithm.n_layers, algorithm.dim, 0.0) for _ in everyone]
        self.comm_layers: set[int] = set()
        self.t_last = [0] * algorithm.n_layers


def list_state_slots(client: ReferenceClient, axis: str) -> list[np.ndarray]:
    """Return the state that a twin's client holds for a plugin, in a list; empty if it has none."""
    return [client.state[axis]] if axis in client.state else []
