"""Many runs: comparisons and sweeps, and the backends that run them."""

from .comparison import Comparison, compare
from .sweeps import SweepResult, sweep

__all__ = ["Comparison", "SweepResult", "compare", "sweep"]
