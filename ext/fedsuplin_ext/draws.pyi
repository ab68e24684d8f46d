import numpy as np
from numpy.typing import NDArray

__all__ = ["keyed_permutation"]

STATE_WORDS: int
ORDER: tuple[str, ...]

def available() -> list[str]: ...

class ContextSource:
    def __init__(
        self,
        seed: np.random.SeedSequence,
        d: int,
        n_arms: int,
        kernels: str | None = None,
    ) -> None: ...
    def fill(
        self,
        out: NDArray[np.float64],
        lengths: NDArray[np.float64] | None = None,
    ) -> None: ...
    @property
    def kernels(self) -> str: ...
    @property
    def position(self) -> NDArray[np.uint64]: ...
    @position.setter
    def position(self, words: NDArray[np.uint64]) -> None: ...
    def normals(self, n: int) -> NDArray[np.float64]: ...

def keyed_permutation(start: int, stop: int, size: int, seed: int) -> NDArray[np.int64]: ...
