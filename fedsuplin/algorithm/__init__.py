"""Making algorithms: composition, numbers, unknown horizons, and optimal designs."""

from .algorithm import Algorithm
from .doubling import Doubling
from .making import make

__all__ = ["Algorithm", "Doubling", "make"]
