"""What the twin's server and clients hold."""

from __future__ import annotations

import numpy as np

from ..algorithm.algorithm import Algorithm
from .pulls import Traffic


class Layers:
    """A_s and b_s of every layer, and which version of the server's they are. The server holds just this."""

    def __init__(self, n_layers: int, dim: int, ridge: float) -> None:
        self.gram = np.array([ridge * np.eye(dim)] * n_layers)
        self.moment = np.zeros((n_layers, dim))
        self.version = np.zeros(n_layers, int)


class ReferenceClient(Layers):
    """The last download, and ΔA_s, Δb_s with the number of observations in them; the slots of plugins with state."""

    def __init__(self, n_layers: int, dim: int, ridge: float, state_sizes: dict[str, int]) -> None:
        super().__init__(n_layers, dim, ridge)
        self.state = {axis: np.zeros(size) for axis, size in state_sizes.items() if size}
        self.delta_gram = np.zeros((n_layers, dim, dim))
        self.delta_moment = np.zeros((n_layers, dim))
        self.observations = np.zeros(n_layers, int)


class Federation:
    """One server, M clients, what they sent each other; for Async-LinUCB, what the server has yet to send to each client;
    for Sync, CommLayers and t_last of each layer."""

    def __init__(self, algorithm: Algorithm) -> None:
        sizes = algorithm.n_layers, algorithm.dim, algorithm.setting.ridge
        self.trigger, self.traffic = algorithm.trigger, Traffic()
        state_sizes = {axis: rule.state_size for axis, rule in algorithm.rules.items()}
        self.server, self.clients = (
            Layers(*sizes),
            [ReferenceClient(*sizes, state_sizes) for _ in range(algorithm.n_clients)],
        )
        self.pending = [
            Layers(algorithm.n_layers, algorithm.dim, 0.0) for _ in range(algorithm.n_clients)
        ]
        self.comm_layers: set[int] = set()
        self.t_last = [0] * algorithm.n_layers


def list_state_slots(client: ReferenceClient, axis: str) -> list[np.ndarray]:
    """The slots that a plugin with state gets as its last argument; nothing for one without."""
    return [client.state[axis]] if axis in client.state else []
