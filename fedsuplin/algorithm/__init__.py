"""Algorithms: composing and making one, the unknown horizon, optimal designs."""

from .algorithm import Algorithm
from .doubling import Doubling
from .making import make

__all__ = ["Algorithm", "Doubling", "make"]
