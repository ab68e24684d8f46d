from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedsuplin.algorithm import Algorithm

from .loop import Engine

__all__ = ["Live"]

class Live(Engine):
    def __init__(
        self,
        algorithm: Algorithm,
        *,
        kernels: str | None = None,
        key: int = 0,
    ) -> None: ...
    def select_plain(
        self, contexts: object, mask: object = None
    ) -> tuple[str, int, int] | None: ...
    def select(
        self,
        contexts: NDArray[np.float64],
        mask: NDArray[np.uint8] | None = None,
    ) -> tuple[str, int, int]: ...
    def context(self, arm: int) -> NDArray[np.float64]: ...
    def learn_from(
        self,
        x: NDArray[np.float64],
        layer: int,
        reward: float,
        sigma: float,
    ) -> tuple[str, float]: ...
    @property
    def asking(self) -> list[int]: ...
    def gathered(self, layer: int) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None: ...
    def receive(
        self,
        layers: NDArray[np.int64],
        grams: NDArray[np.float64],
        moments: NDArray[np.float64],
        sent: Iterable[int] = (),
        since: Iterable[tuple[int, NDArray[np.float64], float, float]] = (),
    ) -> tuple[str, int]: ...
    def replace(
        self, layer: int, gram: NDArray[np.float64], moment: NDArray[np.float64]
    ) -> bool: ...
    def _rule_states(self) -> dict[str, NDArray[np.float64]]: ...
    def _put_states_back(self, states: dict[str, NDArray[np.float64]]) -> None: ...
    def add(
        self,
        uploads: Iterable[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]],
    ) -> int: ...
    def sums(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
