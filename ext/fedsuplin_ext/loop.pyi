from typing import Any

import numpy as np

from .rules import Rule

REFRESH: int
STATUS: tuple[str, ...]

class Engine:
    client_regret: np.ndarray
    client_pulls: np.ndarray
    layer_pulls: np.ndarray
    recorded: int
    def __init__(
        self, algorithm: Any, *, budget: float = ..., kernels: str | None = None, refresh: int = ..., key: int = 0
    ) -> None: ...
    def record_into(
        self,
        record_at: np.ndarray,
        sums: np.ndarray,
        counts: np.ndarray,
        by_pull: np.ndarray | None = None,
    ) -> None: ...
    plan: np.ndarray
    counts: np.ndarray
    reward_sums: np.ndarray
    left: np.ndarray
    idle: np.ndarray
    def play(self, chunk: Any, t: int = 0) -> tuple[str, int]: ...
    def begin_phase(
        self,
        plan: np.ndarray,
        idle: np.ndarray,
        together: bool,
        *,
        clients: np.ndarray | None = None,
        traffic: dict[str, int] | None = None,
    ) -> None: ...
    @property
    def totals_now(self) -> dict[str, float]: ...
    @property
    def kernels(self) -> str: ...
    @property
    def drift(self) -> float: ...
    @property
    def memory_used(self) -> int: ...
    chosen: int
    @property
    def rules(self) -> dict[str, Rule]: ...
    def server_layer(self, layer: int) -> dict[str, Any]: ...
    def client_layer(self, client: int, layer: int) -> dict[str, Any]: ...
