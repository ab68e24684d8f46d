"""One run: the compiled loop over chunks, what is recorded, checkpoints, and the result."""

from .result import RunResult
from .runner import run

__all__ = ["RunResult", "run"]
