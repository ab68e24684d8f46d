"""fedsuplin: federated linear bandits at compiled speed."""

from .algorithm import Algorithm, Variant, make
from .comparison import Comparison, compare
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
from .setting import Setting
from .version import __version__

__all__ = [
    "Algorithm",
    "ArrayProblem",
    "Chunk",
    "Comparison",
    "FedsuplinError",
    "FixedArmsProblem",
    "InterruptedRun",
    "InvalidInput",
    "MissingExtra",
    "NumericalError",
    "PluginError",
    "PluginWarning",
    "Problem",
    "RunResult",
    "Setting",
    "Stream",
    "SyntheticProblem",
    "UnknownName",
    "Variant",
    "__version__",
    "compare",
    "hookimpl",
    "make",
    "run",
]
