from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsuplin.algorithm import Algorithm
from fedsuplin.contracts.stream import Chunk

from .rules import Rule

SHORTCUTS: tuple[str, ...]
REFRESH: int
SUMS: tuple[str, ...]
COUNTS: tuple[str, ...]
BY_PULL: tuple[str, ...]
STATUS: tuple[str, ...]

class Engine:
    def __init__(
        self,
        algorithm: Algorithm,
        *,
        budget: float = ...,
        kernels: str | None = None,
        refresh: int = ...,
        key: int = 0,
        n_clients: int | None = None,
        shortcuts: Collection[str] = ...,
        patience: int | None = None,
    ) -> None: ...
    @property
    def client_regret(self) -> NDArray[np.float64]: ...
    @property
    def client_pulls(self) -> NDArray[np.int64]: ...
    @property
    def layer_pulls(self) -> NDArray[np.int64]: ...
    @property
    def recorded(self) -> int: ...
    @property
    def chosen(self) -> int: ...
    @property
    def trigger(self) -> Rule: ...
    @property
    def weighting(self) -> Rule: ...
    @property
    def policy(self) -> Rule | None: ...
    # Of a phased policy; None until its first phase begins.
    @property
    def plan(self) -> NDArray[np.int64] | None: ...
    @property
    def counts(self) -> NDArray[np.int64] | None: ...
    @property
    def reward_sums(self) -> NDArray[np.float64] | None: ...
    @property
    def left(self) -> NDArray[np.int64] | None: ...
    @property
    def idle(self) -> NDArray[np.int64] | None: ...
    def record_into(
        self,
        record_at: NDArray[np.int64] | None,
        sums: NDArray[np.float64] | None,
        counts: NDArray[np.int64] | None,
        by_pull: NDArray[np.int32] | None = None,
    ) -> None: ...
    def play(self, chunk: Chunk, t: int = 0) -> tuple[str, int]: ...
    def begin_phase(
        self,
        plan: NDArray[np.int64],
        idle: NDArray[np.int64],
        together: bool,
        *,
        clients: NDArray[np.int64] | None = None,
        traffic: Mapping[str, int] | None = None,
    ) -> None: ...
    @property
    def totals_now(self) -> dict[str, float]: ...
    @property
    def kernels(self) -> str: ...
    @property
    def drift(self) -> float: ...
    @property
    def memory_used(self) -> int: ...
    @property
    def rules(self) -> dict[str, Rule]: ...
    # Matrices, vectors and numbers, by name.
    def server_layer(self, layer: int) -> dict[str, Any]: ...
    def certificate(self, layer: int) -> dict[str, Any]: ...
    def client_layer(self, client: int, layer: int) -> dict[str, Any]: ...

def whole(upper: NDArray[np.float64]) -> NDArray[np.float64]: ...
