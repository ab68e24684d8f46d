"""What is checked and chosen before a run begins: algorithm, length, arrivals and engine."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from fedsuplin_ext.loop import Engine

from .._shared.checks import check_positive_integer
from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import Doubling
from ..algorithm.making import make_for
from ..contracts.problem import Problem
from ..contracts.protocols import find_missing
from ..contracts.variant import Variant
from ..errors import InvalidInput
from ..problems.arrivals import make_arrival

# The spawn key of the random numbers for decisions; a problem counts its own from 0.
DECISION_STREAM = 1000


def prepare_algorithm(
    algorithm: str | Variant | Algorithm,
    problem: Problem,
    horizon: int | None,
    parameters: dict[str, Any],
) -> tuple[Algorithm, int]:
    """Return the algorithm, made if it was only named, and the number of pulls, both checked."""
    length = choose_length(algorithm, problem, horizon)
    if isinstance(algorithm, Doubling):
        raise InvalidInput(
            "one algorithm is needed here, and a Doubling has one per epoch: "
            "give doubling.algorithm(epoch)"
        )
    if isinstance(algorithm, Algorithm):
        check_no_parameters(parameters)
    else:
        algorithm = make_for(algorithm, problem, length, parameters)
    if algorithm.horizon < length:
        raise InvalidInput(
            f"the algorithm was made for a horizon of {algorithm.horizon} pulls, "
            f"but the run has {length}"
        )
    check_together(algorithm, problem)
    return algorithm, length


def check_no_parameters(parameters: dict[str, Any]) -> None:
    """Check that run got no parameters for an algorithm that is already made."""
    if parameters:
        raise InvalidInput(
            f"the algorithm is already made, so {', '.join(parameters)} can't be given to run: "
            "give it to make"
        )


def choose_length(
    algorithm: str | Variant | Algorithm | Doubling, problem: Problem, horizon: int | None
) -> int:
    """Choose a run's number of pulls: what is asked, else the problem's, else the algorithm's."""
    check_problem(problem)
    given = None if horizon is None else check_positive_integer("horizon", horizon)
    length = (
        given
        or problem.horizon
        or (algorithm.horizon if isinstance(algorithm, Algorithm) else None)
    )
    if length is None:
        raise InvalidInput(
            "neither the algorithm nor the problem has a number of pulls: give horizon="
        )
    if problem.horizon is not None and length > problem.horizon:
        raise InvalidInput(
            f"horizon={length} is longer than the problem, which has {problem.horizon} pulls"
        )
    return length


def check_problem(problem: object, or_else: str = "") -> None:
    """Check, before a run, that this is a problem, not a name or class.

    `or_else` names what else is accepted.
    """
    if isinstance(problem, type) or find_missing("problems", problem):
        raise InvalidInput(
            "the problem must be a Problem, such as "
            f"fsl.SyntheticProblem(dim=25, n_arms=20, n_clients=20){or_else}, "
            f"not {reprlib.repr(problem)}"
        )


def check_together(algorithm: Algorithm, problem: Problem) -> None:
    """Check that algorithm and problem have the same sizes, and fixed arms if these are needed."""
    for name in ("dim", "n_arms", "n_clients"):
        if getattr(algorithm, name) != getattr(problem, name):
            raise InvalidInput(
                f"{name} is {getattr(algorithm, name)} in the algorithm "
                f"and {getattr(problem, name)} in the problem"
            )
    if algorithm.kernel == "phased" and getattr(problem, "fixed_arms", None) is None:
        raise InvalidInput(
            f"{algorithm.name} needs fixed arms: each client must have the same contexts in every "
            f"round. {type(problem).__name__} does not promise that; "
            "FixedArmsProblem (--problem fixed-arms) does"
        )


def choose_arrival(algorithm: Algorithm, problem: Problem, length: int) -> Any:
    """Return the arrival pattern of a run; policies that sync all clients need whole rounds."""
    if algorithm.syncs != "all":
        return problem.arrival
    if length % algorithm.n_clients:
        raise InvalidInput(
            "this policy syncs all clients, so the horizon must be divisible by n_clients: "
            f"{length} is not by {algorithm.n_clients}"
        )
    if hasattr(problem, "check_rounds"):
        problem.check_rounds(length)
        return None
    arrival = problem.arrival or make_arrival("round-robin")
    if not getattr(arrival, "in_rounds", False):
        raise InvalidInput(
            "this policy syncs all clients, so they must come in rounds: "
            f"arrival must be 'round-robin', not {arrival}"
        )
    return arrival


def derive_decision_key(problem: Problem, epoch: int = 0) -> int:
    """Prepare the key of a run's random decisions, independent of what the problem draws."""
    which = (DECISION_STREAM, epoch) if epoch else (DECISION_STREAM,)
    return int(
        np.random.SeedSequence(problem.seed or 0, spawn_key=which).generate_state(1, np.uint64)[0]
    )


def make_engine(
    algorithm: Algorithm, problem: Problem, budget: float, kernels: str | None, epoch: int = 0
) -> Engine:
    """Prepare the compiled engine of a run; `budget` is what corruption may add up to."""
    key = derive_decision_key(problem, epoch)
    return Engine(algorithm, budget=budget, kernels=kernels, key=key)
