"""fedsuplin: federated linear bandits at compiled speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .algorithm import Algorithm, Variant, make
from .client import Client, Decision
from .comparison import Comparison, compare
from .datasets import ClassificationProblem, DigitsProblem, MovieLensProblem, problem_from_table
from .doubling import Doubling
from .errors import (
    FederationError,
    FederationWarning,
    FedsuplinError,
    InterruptedRun,
    InvalidInput,
    MissingExtra,
    NumericalError,
    PluginError,
    PluginWarning,
    UnknownName,
)
from .fixed_arms import FixedArmsProblem
from .hookspecs import hookimpl
from .problem import ArrayProblem, Chunk, Problem, Stream, SyntheticProblem
from .result import RunResult
from .run import run
from .server import Server
from .setting import Setting
from .sweep import SweepResult, sweep
from .version import __version__

if TYPE_CHECKING:
    from .federation.connection import AsyncConnection, Connection, connect, connect_async

__all__ = [
    "Algorithm",
    "ArrayProblem",
    "AsyncConnection",
    "Chunk",
    "ClassificationProblem",
    "Client",
    "Comparison",
    "Connection",
    "Decision",
    "DigitsProblem",
    "Doubling",
    "FederationError",
    "FederationWarning",
    "FedsuplinError",
    "FixedArmsProblem",
    "InterruptedRun",
    "InvalidInput",
    "MissingExtra",
    "MovieLensProblem",
    "NumericalError",
    "PluginError",
    "PluginWarning",
    "Problem",
    "RunResult",
    "Server",
    "Setting",
    "Stream",
    "SweepResult",
    "SyntheticProblem",
    "UnknownName",
    "Variant",
    "__version__",
    "compare",
    "connect",
    "connect_async",
    "hookimpl",
    "make",
    "problem_from_table",
    "run",
    "sweep",
]

NETWORK = ("AsyncConnection", "Connection", "connect", "connect_async")


def __getattr__(name: str) -> Any:
    """What needs the network is imported when it is first used: a simulation does without."""
    if name not in NETWORK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .federation import connection

    globals().update({each: getattr(connection, each) for each in NETWORK})
    return globals()[name]
