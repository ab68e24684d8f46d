from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from .loop import Engine

__all__ = ["restore", "state_of"]

PHASE: tuple[str, ...]
BOUNDED: tuple[str, ...]
MOST: int

# The arrays are of several dtypes, which `restore` checks one by one.
def state_of(e: Engine) -> dict[str, NDArray[Any]]: ...
def restore(e: Engine, state: Mapping[str, NDArray[Any]]) -> None: ...
def check_range(name: str, values: NDArray[Any], least: int, end: int) -> None: ...
