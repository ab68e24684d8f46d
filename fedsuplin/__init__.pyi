"""The same names for type checkers and editors; a test compares the two."""

from fedsuplin._shared.version import __version__ as __version__
from fedsuplin.algorithm.algorithm import Algorithm as Algorithm
from fedsuplin.algorithm.doubling import Doubling as Doubling
from fedsuplin.algorithm.making import make as make
from fedsuplin.contracts.variant import Variant as Variant
from fedsuplin.errors import FedsuplinError as FedsuplinError
from fedsuplin.federation.async_connection import AsyncConnection as AsyncConnection
from fedsuplin.federation.async_connection import connect_async as connect_async
from fedsuplin.federation.connection import Connection as Connection
from fedsuplin.federation.connection import connect as connect
from fedsuplin.live.client import Client as Client
from fedsuplin.live.client import Decision as Decision
from fedsuplin.live.server import Server as Server
from fedsuplin.microbench.round_costs import Benchmark as Benchmark
from fedsuplin.microbench.round_costs import benchmark as benchmark
from fedsuplin.problems.arrays import ArrayProblem as ArrayProblem
from fedsuplin.problems.classification import ClassificationProblem as ClassificationProblem
from fedsuplin.problems.classification import DigitsProblem as DigitsProblem
from fedsuplin.problems.fixed_arms import FixedArmsProblem as FixedArmsProblem
from fedsuplin.problems.movielens import MovieLensProblem as MovieLensProblem
from fedsuplin.problems.synthetic import SyntheticProblem as SyntheticProblem
from fedsuplin.problems.tables import problem_from_table as problem_from_table
from fedsuplin.simulation.result import RunResult as RunResult
from fedsuplin.simulation.runner import run as run
from fedsuplin.study.comparison import Comparison as Comparison
from fedsuplin.study.comparison import compare as compare
from fedsuplin.study.sweeps import SweepResult as SweepResult
from fedsuplin.study.sweeps import sweep as sweep

__all__ = [
    "Algorithm",
    "ArrayProblem",
    "AsyncConnection",
    "Benchmark",
    "ClassificationProblem",
    "Client",
    "Comparison",
    "Connection",
    "Decision",
    "DigitsProblem",
    "Doubling",
    "FedsuplinError",
    "FixedArmsProblem",
    "MovieLensProblem",
    "RunResult",
    "Server",
    "SweepResult",
    "SyntheticProblem",
    "Variant",
    "__version__",
    "benchmark",
    "compare",
    "connect",
    "connect_async",
    "make",
    "problem_from_table",
    "run",
    "sweep",
]
