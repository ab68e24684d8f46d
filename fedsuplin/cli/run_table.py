"""What the command line tells: the closing table of a run, its files, and the tables of variants and plugins.

Numbers first (`summary`, `variant_rows`, `plugin_rows`: plain data, also for --json), words and tables after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.table import Table

from ..algorithm.algorithm import Algorithm
from ..contracts.variant import AXES
from ..problems.base import pick_arrival_parameters
from ..problems.data import DataProblem
from ..problems.fixed_arms import FixedArmsProblem
from ..problems.synthetic import SyntheticProblem
from ..registry import list_parameters
from .output import describe_parts

PROBLEM_PARAMETERS = {
    *list_parameters(SyntheticProblem),
    *list_parameters(FixedArmsProblem),
}  # what is of the problem itself, and of no part
CONTEXTS_IN_WORDS = {"sphere": "on the unit sphere", "ball": "in the unit ball"}


def make_run_table(numbers: Mapping[str, Any], problem: Any, algorithm: Algorithm) -> Table:
    """The closing table of a run, for people."""
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
            f"{numbers['microseconds']:.2f} µs a round in the loop, {numbers['wall_time']:.2f} s in all",
        ),
        ("guarantee", make_guarantee_cell(numbers)),
    ):
        table.add_row(*row)
    return table


def list_outcome_rows(numbers: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Regret and communication; nothing where the run was stopped before its first pull."""
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


def describe_problem(problem: Any, horizon: int, algorithm: Algorithm) -> str:
    sizes = f"d={problem.dim}, K={problem.n_arms}, M={problem.n_clients}, T={horizon:,}"
    ours = type(problem) in (SyntheticProblem, FixedArmsProblem) or isinstance(problem, DataProblem)
    if (
        not ours or not problem.spec["parameters"]
    ):  # of one derived from them the words below may be wrong
        return f"{sizes}\n{problem!r}"
    return f"{sizes}\n{describe_rounds(problem)}\n{describe_arrival(problem, algorithm)}, seed {problem.seed}"


def describe_rounds(problem: SyntheticProblem | DataProblem) -> str:
    """What a client sees, and how its rewards come about."""
    if isinstance(problem, DataProblem):
        return problem.describe()
    if isinstance(problem, FixedArmsProblem):
        whose = (
            "fixed arms of each client's own"
            if problem.spec["parameters"]["own_arms"]
            else "fixed arms"
        )
        thetas = "one θ" if problem.arm_thetas is None else "a θ for each arm"
        return f"{whose}, {thetas}, {describe_noise(problem)}"
    return f"contexts {CONTEXTS_IN_WORDS[problem.contexts]}, {describe_noise(problem)}"


def describe_arrival(problem: SyntheticProblem | DataProblem, algorithm: Algorithm) -> str:
    """The pattern that was played, with whatever it was told."""
    parameters = problem.spec["parameters"]
    name = parameters["arrival"] or ("round-robin" if algorithm.syncs == "all" else "random")
    told = [
        f"{key} {format_parameter(value)}"
        for key, value in list_arrival_parameters(parameters).items()
    ]
    return f"{name} arrival" + (f" ({', '.join(told)})" if told else "")


def describe_noise(problem: Any) -> str:
    """The model's name, what every problem knows of its noise, and whatever else the model was told."""
    known = {"sd": problem.noise_scale, "R": problem.R, "adversary's budget": problem.corruption}
    parameters = problem.spec["parameters"]
    ours = (*PROBLEM_PARAMETERS, "R", "corruption", *list_arrival_parameters(parameters))
    others = {key: value for key, value in parameters.items() if key not in ours}
    told = [
        f"{words} {format_parameter(value)}"
        for words, value in (known | others).items()
        if value is not None
    ]
    return f"{problem.spec['parameters']['noise']} noise" + (
        f" ({', '.join(told)})" if told else ""
    )


def list_arrival_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a problem's parameters that are its arrival pattern's."""
    others = {key: value for key, value in parameters.items() if key not in PROBLEM_PARAMETERS}
    return pick_arrival_parameters(parameters["arrival"], parameters.get("noise"), others)


def describe_played_algorithm(algorithm: Algorithm) -> str:
    """The preset and every parameter, as the parts have them after presets and options."""
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
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_layers(layer_pulls: list[int]) -> str:
    """Those of the layers that were played, as layer:pulls; S is the last layer."""
    played = [f"{layer}:{pulls:,}" for layer, pulls in enumerate(layer_pulls) if pulls]
    return "  ".join(played) + f"  (S={len(layer_pulls) - 1})"


def make_guarantee_cell(numbers: Mapping[str, Any]) -> RenderableType:
    if numbers["guarantee"]:
        return f"holds ({numbers['theorem']})"
    reasons = Table.grid(padding=(0, 1))
    for departure in numbers["departures"]:
        reasons.add_row("-", departure)
    return Group("does not hold:", reasons)
