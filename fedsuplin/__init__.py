"""fedsuplin: federated linear bandits at compiled speed.

Importing it is cheap: each name is loaded when it is first used. What plugin authors need is in
:mod:`fedsuplin.plugin`, and the errors are in :mod:`fedsuplin.errors`.
"""

from __future__ import annotations

from ._shared.lazy_names import make_lazy_names

# Every public name, and the module that defines it. The stub beside this file has the same names
# for type checkers and editors.
_HOMES = {
    "Algorithm": "fedsuplin.algorithm.algorithm",
    "ArrayProblem": "fedsuplin.problems.arrays",
    "AsyncConnection": "fedsuplin.federation.async_connection",
    "Benchmark": "fedsuplin.microbench.round_costs",
    "ClassificationProblem": "fedsuplin.problems.classification",
    "Client": "fedsuplin.live.client",
    "Comparison": "fedsuplin.study.comparison",
    "Connection": "fedsuplin.federation.connection",
    "Decision": "fedsuplin.live.client",
    "DigitsProblem": "fedsuplin.problems.classification",
    "Doubling": "fedsuplin.algorithm.doubling",
    "FedsuplinError": "fedsuplin.errors",
    "FixedArmsProblem": "fedsuplin.problems.fixed_arms",
    "MovieLensProblem": "fedsuplin.problems.movielens",
    "RunResult": "fedsuplin.simulation.result",
    "Server": "fedsuplin.live.server",
    "SweepResult": "fedsuplin.study.sweeps",
    "SyntheticProblem": "fedsuplin.problems.synthetic",
    "Variant": "fedsuplin.contracts.variant",
    "__version__": "fedsuplin._shared.version",
    "benchmark": "fedsuplin.microbench.round_costs",
    "compare": "fedsuplin.study.comparison",
    "connect": "fedsuplin.federation.connection",
    "connect_async": "fedsuplin.federation.async_connection",
    "make": "fedsuplin.algorithm.making",
    "problem_from_table": "fedsuplin.problems.tables",
    "run": "fedsuplin.simulation.runner",
    "sweep": "fedsuplin.study.sweeps",
}

__all__ = list(_HOMES)  # noqa: PLE0605
__getattr__, __dir__ = make_lazy_names(globals(), _HOMES)
