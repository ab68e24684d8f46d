import numpy as np
from numpy.typing import NDArray

def bound_forms(
    inverse: NDArray[np.float64], contexts: NDArray[np.float64], kernels: str | None = None
) -> NDArray[np.float64] | None: ...
def find_directions(
    inverse: NDArray[np.float64],
    tau: float,
    least: int = 0,
    n_arms: int = 1,
    kernels: str | None = None,
) -> tuple[NDArray[np.float64], float] | None: ...
