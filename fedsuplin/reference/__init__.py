"""The NumPy twin of the compiled engine, written to be read beside the paper."""

from .twin import ReferenceResult, run_reference

__all__ = ["ReferenceResult", "run_reference"]
