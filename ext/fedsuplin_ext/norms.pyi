import numpy as np
from numpy.typing import NDArray

ORDER: tuple[str, ...]
SPLIT: str

def available() -> list[str]: ...
def default() -> str: ...
def pad(n: int, kernels: str | None = None) -> int: ...
def aligned_zeros(*shape: int) -> NDArray[np.float64]: ...
def norms_and_estimates(
    inverse: NDArray[np.float64],
    theta_hat: NDArray[np.float64],
    contexts: NDArray[np.float64],
    kernels: str | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def mean_rewards(
    contexts: NDArray[np.float64], theta: NDArray[np.float64], kernels: str | None = None
) -> NDArray[np.float64]: ...
def pack(
    contexts: NDArray[np.float64],
    mask: NDArray[np.uint8] | None,
    scale: float,
    out: NDArray[np.float64],
) -> None: ...
