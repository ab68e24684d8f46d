"""Several policies on the same problem and the same seeds: means with standard errors, curves with bands, Table 1 measured.

The runs are independent and the loop holds no GIL, so threads share them out.
"""

from __future__ import annotations

import csv
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.arrays import Counts, Floats
from .._shared.checks import check_positive_integer
from .._shared.files import open_atomically
from .._shared.statistics import compute_confidence_band, compute_standard_error
from ..algorithm.algorithm import Algorithm
from ..algorithm.composing import compose_recipe, list_keywords
from ..algorithm.making import make_for
from ..contracts.variant import AXES, Variant
from ..errors import InvalidInput, unknown
from ..problems.base import make_problem_from_spec
from ..simulation.preparing import check_problem
from ..simulation.result import COUNTS, SUMS, RunResult
from ..simulation.runner import run
from .backends import raise_if_stopped, run_in_threads

if TYPE_CHECKING:
    import pandas


COMPARED_MEASURES = ("regret", "communication", "bytes_up", "bytes_down")


@dataclass(frozen=True, eq=False)
class Comparison:
    """The runs of each policy, a seed each, with what can be said over the seeds.

    >>> import fedsuplin as fsl
    >>> found = compare(["async", "oful"], fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2), seeds=3, horizon=500)
    >>> [row["policy"] for row in found.rows()], len(found.runs["async"])
    (['async', 'oful'], 3)
    """

    runs: dict[str, list[RunResult]]
    algorithms: dict[str, Algorithm]
    """One of each policy's, for its numbers; other seeds differ in the problem only."""
    seeds: tuple[int, ...]
    """Those that were asked for."""
    complete: bool = True
    """False when it was stopped: then policies have the seeds that were finished."""
    unplayed: tuple[int, ...] = ()
    """The seeds that no run was finished with, when it was stopped."""

    @property
    def played(self) -> tuple[int, ...]:
        """The seeds that a run was finished with."""
        return tuple(seed for seed in self.seeds if seed not in self.unplayed)

    @property
    def over(self) -> str:
        """How many seeds the policies have, in words: fewer than were asked for where it was stopped."""
        counts = [len(results) for results in self.runs.values()] or [0]
        fewest, most, asked = min(counts), max(counts), len(self.seeds)
        number = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        if fewest < asked:
            return f"{number} of {asked:,} seed" + ("" if asked == 1 else "s")
        return "one seed" if asked == 1 else f"{number} seeds"

    @property
    def has_errors(self) -> bool:
        """Whether any policy has the two seeds that a standard error needs."""
        return any(len(results) > 1 for results in self.runs.values())

    @property
    def told_as(self) -> str:
        """What its numbers are, in words."""
        return f"mean ± standard error over {self.over}" if self.has_errors else self.over

    def last(self, policy: str, what: str) -> Floats:
        """The final value of a cumulative array ("regret", "communication", …), a number for each seed."""
        return np.array([getattr(result, what)[-1] for result in self.runs[policy]], float)

    def curve(self, policy: str, what: str) -> tuple[Counts, Floats, Floats]:
        """Recorded pulls, the mean over the seeds, and half the width of its 95 % confidence band."""
        results = self.runs[policy]
        values = np.array([getattr(result, what) for result in results], float)
        return results[0].pulls, values.mean(axis=0), compute_confidence_band(values)

    def rows(self) -> list[dict[str, Any]]:
        """A row a policy: mean and standard error of what was measured, µs a round, and its row in the paper's Table 1."""
        return [self._row(policy) for policy in self.runs]

    def _row(self, policy: str) -> dict[str, Any]:
        algorithm, results = self.algorithms[policy], self.runs[policy]
        row: dict[str, Any] = {"policy": policy, "preset": algorithm.preset, "seeds": len(results)}
        for what in COMPARED_MEASURES:
            values = self.last(policy, what)
            row |= {what: float(values.mean()), f"{what}_error": compute_standard_error(values)}
        uniform = self.last(policy, "uniform_regret").mean()
        row["percent_of_uniform"] = float(100 * row["regret"] / uniform) if uniform > 0 else None
        row["microseconds"] = float(np.median([result.microseconds for result in results]))
        return row | self._claim(algorithm)

    def _claim(self, algorithm: Algorithm) -> dict[str, Any]:
        claim = algorithm.claim
        if claim is None:
            return dict.fromkeys(
                ("system", "actions", *(f"{what}_bound" for what in ("regret", "communication")))
            )
        bounds = {"regret_bound": claim.regret, "communication_bound": claim.communication}
        texts = {name: None if bound is None else bound.text for name, bound in bounds.items()}
        values = {
            f"{name}_value": None if bound is None else bound(algorithm.setting)
            for name, bound in bounds.items()
        }
        return {"system": claim.system, "actions": claim.actions, **texts, **values}

    def bound_curve(self, policy: str, what: str, pulls: Counts) -> Floats | None:
        """The order that Table 1 has for this policy ("regret" or "communication") with the constant 1, at these pulls."""
        algorithm = self.algorithms[policy]
        bound = None if algorithm.claim is None else getattr(algorithm.claim, what)
        if bound is None:
            return None
        return np.array([bound(algorithm.setting.with_horizon(max(2, int(n)))) for n in pulls])

    def plot(self, path: str | os.PathLike[str] | None = None, *, bounds: bool = False) -> Any:
        """Regret with confidence bands, and communication, on logarithmic axes; `bounds` adds Table 1's as dashed lines."""
        from ..view.comparison_figure import draw_comparison

        return draw_comparison(self, path, bounds=bounds)

    def to_frame(self) -> pandas.DataFrame:
        """A pandas DataFrame, a row a policy, seed and recorded pull."""
        frames = [
            result.to_frame().assign(policy=policy, seed=result.seed)
            for policy, runs in self.runs.items()
            for result in runs
        ]
        import pandas  # which a result's frame needs too, and says how to get

        return pandas.concat(frames, ignore_index=True)

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """The table, a row a policy."""
        path, rows = Path(path), self.rows()
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with open_atomically(path, newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        return path

    def write_curves(self, path: str | os.PathLike[str]) -> Path:
        """The curves, a row a policy, seed and recorded pull."""
        path = Path(path)
        with open_atomically(path, newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("policy", "seed", "pulls", *SUMS, *COUNTS))
            for policy, results in self.runs.items():
                for result in results:
                    columns = [getattr(result, name).tolist() for name in ("pulls", *SUMS, *COUNTS)]
                    writer.writerows(
                        (policy, result.seed, *row) for row in zip(*columns, strict=True)
                    )
        return path

    def __repr__(self) -> str:
        lines = [
            f"  {row['policy']:<14} regret {format_short_with_error(row, 'regret')}, "
            f"communication {format_short_with_error(row, 'communication')}, {row['microseconds']:.3g} µs a pull"
            for row in self.rows()
        ]
        return "\n".join(
            [
                f"Comparison over {self.over}"
                + (" (mean ± standard error)" if self.has_errors else ""),
                *lines,
            ]
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from ..view.notebook import render_comparison

        return render_comparison(self)


def format_short_with_error(row: Mapping[str, Any], what: str) -> str:
    error = row[f"{what}_error"]
    return f"{row[what]:.5g}" + ("" if math.isnan(error) else f" ± {error:.2g}")


def compare(
    policies: str | Sequence[str] | Mapping[str, str | Variant],
    problem: Any,
    *,
    seeds: int | Iterable[int] = 10,
    horizon: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    **parameters: Any,
) -> Comparison:
    """Play several policies on the same problem with the same seeds.

    `policies` are a name or several, or labels with a name or a Variant each. `problem` is one that has a seed, which is
    replaced, or a function from a seed to a problem. `seeds` is how many, or which. Further keywords go to each policy that
    takes them.
    Policies that sync all clients have them take turns where the problem leaves that open, the others random arrival.

    >>> import fedsuplin as fsl
    >>> print(compare(["oful", "uniform"], fsl.SyntheticProblem(dim=3, n_arms=4, n_clients=2), seeds=2, horizon=100).seeds)
    (0, 1)
    """
    named, which = label_policies(policies), list_distinct_seeds(seeds)
    by_policy = assign_keywords(named, parameters)
    problems = [reseed_problem(problem, seed) for seed in which]
    length = problems[0].horizon if horizon is None else check_positive_integer("horizon", horizon)
    if length is None:
        raise InvalidInput("neither the problem nor horizon= says how many pulls to play")
    threads = os.cpu_count() if threads is None else check_positive_integer("threads", threads)
    made = {label: make_for(named[label], problems[0], length, by_policy[label]) for label in named}

    stop = threading.Event()

    def one(label: str, at: int) -> RunResult:
        algorithm = make_for(named[label], problems[at], length, by_policy[label])
        return run(
            algorithm, problems[at], horizon=length, progress=lambda *_: raise_if_stopped(stop)
        )

    runs, complete = run_in_threads(
        [(label, at) for at in range(len(which)) for label in named], one, stop, threads, progress
    )
    kept = {
        label: [runs[label, at] for at in range(len(which)) if (label, at) in runs]
        for label in named
    }
    unplayed = tuple(
        seed for at, seed in enumerate(which) if not any((label, at) in runs for label in named)
    )
    return Comparison(
        {label: found for label, found in kept.items() if found}, made, which, complete, unplayed
    )


def label_policies(policies: Any) -> dict[str, str | Variant]:
    """Policies by what the table calls them: names as they are; a Variant has no name, so it needs a label."""
    if isinstance(policies, Mapping):
        named = dict(policies)
    else:
        several = (
            policies
            if isinstance(policies, Iterable) and not isinstance(policies, str)
            else [policies]
        )
        named = {check_name(each): each for each in several}
    if not named:
        raise InvalidInput("there is nothing to compare: name at least one policy")
    return named


def check_name(policy: Any) -> str:
    if not isinstance(policy, str):
        raise InvalidInput(
            f"policies are names, or labels with a name or a Variant each, {{'mine': Variant(…)}}, not {policy!r}"
        )
    return policy


def list_distinct_seeds(seeds: Any) -> tuple[int, ...]:
    """How many, or which. One that is there twice would pass for two, and make the standard error too small."""
    which = (
        tuple(seeds)
        if isinstance(seeds, Iterable)
        else tuple(range(check_positive_integer("seeds", seeds)))
    )
    if not which:
        raise InvalidInput("there is nothing to compare: give at least one seed")
    if len(set(which)) < len(which):
        raise InvalidInput(
            "some runs are in the comparison twice: each combination of policy and seed must be there once"
        )
    return which


def assign_keywords(
    named: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Each keyword to the policies that take it; one that none takes is an error."""
    everywhere = {key: value for key, value in parameters.items() if key == "preset"}
    parts = {axis: parameters.get(axis) for axis in (*AXES, "syncs", "lazy")}
    takes = {
        label: list_keywords(compose_recipe(variant, parts)[1]) for label, variant in named.items()
    }
    for key in parameters:
        if (
            key not in everywhere
            and key not in parts
            and not any(key in taken for taken in takes.values())
        ):
            raise unknown("keyword for " + ", ".join(named), key, set().union(*takes.values()))
    given = {axis: part for axis, part in parts.items() if part is not None}
    return {
        label: everywhere
        | given
        | {key: value for key, value in parameters.items() if key in taken}
        for label, taken in takes.items()
    }


def reseed_problem(problem: Any, seed: int) -> Any:
    """The problem with another seed."""
    found = problem(seed) if callable(problem) else problem
    check_problem(found, ", or a function from a seed to one")
    if callable(problem):
        return found
    spec = getattr(problem, "spec", {})
    if not spec.get("parameters") or "seed" not in spec["parameters"]:
        raise InvalidInput(
            f"{problem!r} has no seed to change: give a function from a seed to a problem, such as lambda seed: …"
        )
    return make_problem_from_spec({**spec, "parameters": spec["parameters"] | {"seed": seed}})
