"""The NumPy twin of the compiled engine, written to be read beside the paper."""

from .pulls import ReferenceResult
from .twin import run_reference

__all__ = ["ReferenceResult", "run_reference"]
