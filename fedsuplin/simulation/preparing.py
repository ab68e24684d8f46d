"""What is checked and chosen before a run begins."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from .._shared.checks import check_positive_integer
from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import Doubling
from ..algorithm.making import make_for
from ..contracts.variant import Variant
from ..errors import InvalidInput
from ..problems.base import make_arrival

DECISION_STREAM = 1000  # which of a seed's streams decisions have; a problem counts its own from 0


def prepare_algorithm(
    algorithm: str | Variant | Algorithm,
    problem: Any,
    horizon: int | None,
    parameters: dict[str, Any],
) -> tuple[Algorithm, int]:
    """The algorithm and the number of pulls, checked against each other before anything runs."""
    length = choose_length(algorithm, problem, horizon)
    if isinstance(algorithm, Doubling):
        raise InvalidInput(
            "this needs one algorithm, and a Doubling has one for each epoch: give doubling.algorithm(epoch)"
        )
    if isinstance(algorithm, Algorithm):
        if parameters:
            raise InvalidInput(
                f"the algorithm is already made, so {', '.join(parameters)} can't be given to run: give it to make"
            )
    else:
        algorithm = make_for(algorithm, problem, length, parameters)
    if algorithm.horizon < length:
        raise InvalidInput(
            f"the algorithm was made for a horizon of {algorithm.horizon} pulls, but the run has {length}"
        )
    check_together(algorithm, problem)
    return algorithm, length


def choose_length(algorithm: Any, problem: Any, horizon: int | None) -> int:
    """How many pulls to play: as was said, else as the problem has, else as the algorithm was made for."""
    check_problem(problem)
    given = None if horizon is None else check_positive_integer("horizon", horizon)
    length = (
        given
        or problem.horizon
        or (algorithm.horizon if isinstance(algorithm, Algorithm) else None)
    )
    if length is None:
        raise InvalidInput(
            "neither the algorithm nor the problem says how many pulls to play: give horizon="
        )
    if problem.horizon is not None and length > problem.horizon:
        raise InvalidInput(
            f"horizon={length} is longer than the problem, which has {problem.horizon} pulls"
        )
    return length


def check_problem(problem: Any, or_else: str = "") -> None:
    """The names of problems are for the command line: here it is an object, or what else the caller takes."""
    needed = ("dim", "n_arms", "n_clients", "horizon", "stream")
    if isinstance(problem, type) or not all(hasattr(problem, name) for name in needed):
        raise InvalidInput(
            f"the problem must be a Problem, such as fsl.SyntheticProblem(dim=25, n_arms=20, n_clients=20){or_else}, "
            f"not {reprlib.repr(problem)}"
        )


def check_together(algorithm: Algorithm, problem: Any) -> None:
    """Are they of the same sizes, and has the problem what the policy needs?"""
    for name in ("dim", "n_arms", "n_clients"):
        if getattr(algorithm, name) != getattr(problem, name):
            raise InvalidInput(
                f"{name} is {getattr(algorithm, name)} in the algorithm and {getattr(problem, name)} in the problem"
            )
    if algorithm.kernel == "phased" and getattr(problem, "fixed_arms", None) is None:
        raise InvalidInput(
            f"{algorithm.name} needs fixed arms: each client must have the same contexts in every round. "
            f"{type(problem).__name__} does not promise that; FixedArmsProblem (--problem fixed-arms) does"
        )


def choose_arrival(algorithm: Algorithm, problem: Any, length: int) -> Any:
    """The arrival pattern of this run; policies that sync all clients need whole rounds."""
    if algorithm.syncs != "all":
        return problem.arrival
    if length % algorithm.n_clients:
        raise InvalidInput(
            f"this policy syncs all clients, so the horizon must be divisible by n_clients: "
            f"{length} is not by {algorithm.n_clients}"
        )
    if hasattr(problem, "check_rounds"):
        problem.check_rounds(length)
        return None
    arrival = problem.arrival or make_arrival("round-robin")
    if not getattr(arrival, "in_rounds", False):
        raise InvalidInput(
            f"this policy syncs all clients, so they must come in rounds: arrival must be 'round-robin', not {arrival}"
        )
    return arrival


def derive_decision_key(problem: Any, epoch: int = 0) -> int:
    """Of the random number that a policy is given each pull: from the problem's seed, and independent of what that draws."""
    which = (DECISION_STREAM, epoch) if epoch else (DECISION_STREAM,)
    return int(
        np.random.SeedSequence(problem.seed or 0, spawn_key=which).generate_state(1, np.uint64)[0]
    )
