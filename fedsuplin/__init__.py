"""fedsuplin: federated linear bandits at compiled speed."""

from .algorithm import Algorithm, Variant, make
from .client import Client, Decision
from .comparison import Comparison, compare
from .datasets import ClassificationProblem, DigitsProblem, MovieLensProblem, problem_from_table
from .errors import (
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

__all__ = [
    "Algorithm",
    "ArrayProblem",
    "Chunk",
    "ClassificationProblem",
    "Client",
    "Comparison",
    "Decision",
    "DigitsProblem",
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
    "hookimpl",
    "make",
    "problem_from_table",
    "run",
    "sweep",
]
