"""The closing table of a run, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table

from ..algorithm.algorithm import Algorithm
from ..contracts.problem import Problem
from ..contracts.variant import AXES
from ..problems.arrivals import pick_arrival_parameters
from ..problems.data import DataProblem
from ..problems.fixed_arms import FixedArmsProblem
from ..problems.synthetic import SyntheticProblem
from ..registry import list_parameters
from .output import describe_parts

PROBLEM_PARAMETERS = {
    *list_parameters(SyntheticProblem),
    *list_parameters(FixedArmsProblem),
}  # parameters of the problem itself, not of its noise or arrival
CONTEXTS_IN_WORDS = {"sphere": "on the unit sphere", "ball": "in the unit ball"}


def make_run_table(numbers: Mapping[str, Any], problem: Problem, algorithm: Algorithm) -> Table:
    """Make the closing table of a run."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in (
        ("problem", describe_problem(problem, numbers["horizon"], algorithm)),
        ("algorithm", describe_played_algorithm(algorithm)),
        *list_outcome_rows(numbers),
        ("pulls by layer", format_layers(numbers["layer_pulls"])),
        (
            "time",
            f"{numbers['microseconds']:.2f} µs per round in the loop, "
            f"{numbers['wall_time']:.2f} s in total, {numbers['cpu_time']:.2f} s of CPU",
        ),
        ("guarantee", make_guarantee_cell(numbers)),
    ):
        table.add_row(*row)
    return table


def list_outcome_rows(numbers: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the rows of a run's table on regret and communication, unless there was no pull."""
    if numbers["pulls"] is None:
        return
    share = numbers["percent_of_uniform"]
    against = (
        "" if share is None else f", {share:.{1 if share >= 1 else 3}f} % of uniform random play's"
    )
    yield "regret", f"{numbers['regret']:,.1f}{against}"
    yield "uniform play", f"{numbers['uniform_regret']:,.1f} on the same rounds"
    yield "communication", f"{numbers['communication']:,} (the paper's count)"
    yield "messages", f"{numbers['messages_up']:,} up, {numbers['messages_down']:,} down"
    yield "bytes", f"{decimal(numbers['bytes_up'])} up, {decimal(numbers['bytes_down'])} down"


def describe_problem(problem: Problem, horizon: int, algorithm: Algorithm) -> str:
    """Describe, for the table of a run, its problem: sizes, rounds, arrivals and seed.

    Of a plugin's problem it shows the repr.
    """
    sizes = f"d={problem.dim}, K={problem.n_arms}, M={problem.n_clients}, T={horizon:,}"
    if not is_described(problem):
        return f"{sizes}\n{problem!r}"
    arrival = describe_arrival(problem, algorithm)
    return f"{sizes}\n{describe_rounds(problem)}\n{arrival}, seed {problem.seed}"


def is_described(problem: Problem) -> TypeGuard[SyntheticProblem | DataProblem]:
    """Return whether the table of a run has words for a problem.

    They need not for a class derived from SyntheticProblem, or one without recorded parameters.
    """
    ours = type(problem) in (SyntheticProblem, FixedArmsProblem) or isinstance(problem, DataProblem)
    return ours and bool(problem.spec["parameters"])


def describe_rounds(problem: SyntheticProblem | DataProblem) -> str:
    """Describe, for the table of a run, what a client sees and how rewards are drawn."""
    if isinstance(problem, DataProblem):
        return problem.describe()
    if isinstance(problem, FixedArmsProblem):
        whose = (
            "fixed arms, different for each client"
            if problem.spec["parameters"]["own_arms"]
            else "fixed arms"
        )
        thetas = "one θ" if problem.arm_thetas is None else "one θ per arm"
        return f"{whose}, {thetas}, {describe_noise(problem)}"
    return f"contexts {CONTEXTS_IN_WORDS[problem.contexts]}, {describe_noise(problem)}"


def describe_arrival(problem: SyntheticProblem | DataProblem, algorithm: Algorithm) -> str:
    """Describe, for the table of a run, the arrival pattern that was played."""
    parameters = problem.spec["parameters"]
    name = parameters["arrival"] or ("round-robin" if algorithm.syncs == "all" else "random")
    return f"{name} arrival" + format_parameters(list_arrival_parameters(parameters))


def describe_noise(problem: SyntheticProblem) -> str:
    """Describe, for the table of a run, the noise of its problem: model and parameters."""
    stated = {"sd": problem.noise_scale, "R": problem.R, "adversary's budget": problem.corruption}
    parameters = problem.spec["parameters"]
    ours = (*PROBLEM_PARAMETERS, "R", "corruption", *list_arrival_parameters(parameters))
    others = {key: value for key, value in parameters.items() if key not in ours}
    return f"{parameters['noise']} noise" + format_parameters(stated | others)


def format_parameters(values: Mapping[str, Any]) -> str:
    """Return the parameters in a cell of a run's table, in brackets: " (sd 0.1, R 1)"."""
    shown = [f"{key} {format_parameter(each)}" for key, each in values.items() if each is not None]
    return f" ({', '.join(shown)})" if shown else ""


def list_arrival_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for the table of a run, the parameters that its arrival pattern takes."""
    others = {key: value for key, value in parameters.items() if key not in PROBLEM_PARAMETERS}
    return pick_arrival_parameters(parameters["arrival"], parameters.get("noise"), others)


def describe_played_algorithm(algorithm: Algorithm) -> str:
    """Describe, for the table of a run, its algorithm: preset, parts and parameters."""
    values: dict[str, Any] = {"ridge": algorithm.setting.ridge}
    for axis in ("noise", "trigger", "weighting"):
        values |= algorithm.spec[axis]["parameters"]
    for key in getattr(algorithm.noise, "drawing_only", ()):
        values.pop(key, None)
    shown = [
        f"{key}={format_parameter(value)}" for key, value in values.items() if value is not None
    ]
    parts = {axis: algorithm.spec[axis]["name"] or algorithm.spec[axis]["type"] for axis in AXES}
    return (
        f"{algorithm.name}, preset {algorithm.preset}\n{describe_parts(parts)}\n{', '.join(shown)}"
    )


def format_parameter(value: Any) -> str:
    """Format a parameter in the table of a run, floats to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_layers(layer_pulls: list[int]) -> str:
    """Return the row of a run's table with the pulls by layer; S is the last layer."""
    played = [f"{layer}:{pulls:,}" for layer, pulls in enumerate(layer_pulls) if pulls]
    return "  ".join(played) + f"  (S={len(layer_pulls) - 1})"


def make_guarantee_cell(numbers: Mapping[str, Any]) -> RenderableType:
    """Make the cell of a run's table that says whether the guarantee holds, and why not."""
    if numbers["guarantee"]:
        return f"holds ({numbers['theorem']})"
    reasons = Table.grid(padding=(0, 1))
    for departure in numbers["departures"]:
        reasons.add_row("-", departure)
    return Group("does not hold:", reasons)
