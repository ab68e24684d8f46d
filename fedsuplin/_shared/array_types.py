"""Type aliases for arrays, by element type."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]
Clients: TypeAlias = NDArray[np.int32]
Flags: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
AnyArray: TypeAlias = NDArray[Any]
Number = TypeVar("Number", bound=np.generic)
