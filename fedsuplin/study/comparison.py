"""Play several policies on the same problem with the same seeds."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shared.array_types import Counts, Floats
from .._shared.checks import check_positive_integer
from .._shared.files import write_csv_rows
from .._shared.statistics import compute_confidence_band, compute_standard_error
from ..algorithm.algorithm import Algorithm
from ..algorithm.composing import compose_recipe, list_keywords
from ..algorithm.making import make_for
from ..contracts.problem import Problem
from ..contracts.variant import AXES, Variant
from ..errors import InvalidInput, unknown
from ..problems.specs import make_problem_from_spec
from ..simulation.preparing import check_problem
from ..simulation.result import RunResult
from ..simulation.runner import run
from .backends import StopFlag, is_core_left, raise_if_stopped, run_jobs
from .curves import CURVE_COLUMNS, list_curve_rows
from .grid import list_seeds

if TYPE_CHECKING:
    import os

    import pandas
    from matplotlib.figure import Figure


COMPARED_MEASURES = ("regret", "communication", "bytes_up", "bytes_down")


@dataclass(frozen=True, eq=False)
class Comparison:
    """The runs of several policies on the same problem, one run per seed.

    Parameters
    ----------
    runs : dict of str to list of RunResult
        The finished runs of each policy, by its label.
    algorithms : dict of str to Algorithm
        One algorithm of each policy, for its constants; with other seeds only the problem differs.
    seeds : tuple of int
        The seeds that were asked for.
    complete : bool, default True
        False if the comparison was stopped: then a policy has only the seeds that were finished.
    unplayed : tuple of int, default ()
        The seeds with which no run was finished, if the comparison was stopped.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2)
    >>> found = fsl.compare(["async", "oful"], problem, seeds=3, horizon=500)
    >>> [row["policy"] for row in found.rows()], len(found.runs["async"])
    (['async', 'oful'], 3)
    """

    runs: dict[str, list[RunResult]]
    algorithms: dict[str, Algorithm]
    seeds: tuple[int, ...]
    complete: bool = True
    unplayed: tuple[int, ...] = ()

    @property
    def played(self) -> tuple[int, ...]:
        """Return the seeds with which at least one run was finished."""
        return tuple(seed for seed in self.seeds if seed not in self.unplayed)

    @property
    def seeds_in_words(self) -> str:
        """Return how many seeds the policies have, in words: fewer than asked for if stopped."""
        counts = [len(results) for results in self.runs.values()] or [0]
        fewest, most, asked = min(counts), max(counts), len(self.seeds)
        number = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        if fewest < asked:
            return f"{number} of {asked:,} seed" + ("" if asked == 1 else "s")
        return "one seed" if asked == 1 else f"{number} seeds"

    @property
    def has_errors(self) -> bool:
        """Return True if any policy has the two seeds that a standard error needs."""
        return any(len(results) > 1 for results in self.runs.values())

    @property
    def description(self) -> str:
        """Return what the numbers of the table are, in words."""
        over = self.seeds_in_words
        return f"mean ± standard error over {over}" if self.has_errors else over

    def last(self, policy: str, what: str) -> Floats:
        """Return the final value of a cumulative array, one number per seed.

        Parameters
        ----------
        policy : str
            The label of the policy.
        what : str
            The name of the array, such as ``"regret"`` or ``"communication"``.

        Returns
        -------
        numpy.ndarray
            One number per finished run.
        """
        return np.array([getattr(result, what)[-1] for result in self.runs[policy]], float)

    def curve(self, policy: str, what: str) -> tuple[Counts, Floats, Floats]:
        """Return the mean curve of a cumulative array with its 95 % confidence band.

        Parameters
        ----------
        policy : str
            The label of the policy.
        what : str
            The name of the array, such as ``"regret"`` or ``"communication"``.

        Returns
        -------
        pulls : numpy.ndarray
            The recorded pulls.
        mean : numpy.ndarray
            The mean over the seeds at these pulls.
        half : numpy.ndarray
            Half the width of the confidence band, by Student's t; 0 with one seed.
        """
        results = self.runs[policy]
        values = np.array([getattr(result, what) for result in results], float)
        return results[0].pulls, values.mean(axis=0), compute_confidence_band(values)

    def rows(self) -> list[dict[str, Any]]:
        """Return the table: one row per policy.

        Returns
        -------
        list of dict
            Mean and standard error of what was measured, µs per pull, and the policy's row in
            the paper's Table 1.
        """
        return [self._make_row(policy) for policy in self.runs]

    def _make_row(self, policy: str) -> dict[str, Any]:
        """Return the row of one policy in the table of the comparison."""
        algorithm, results = self.algorithms[policy], self.runs[policy]
        row: dict[str, Any] = {"policy": policy, "preset": algorithm.preset, "seeds": len(results)}
        for what in COMPARED_MEASURES:
            values = self.last(policy, what)
            row |= {what: float(values.mean()), f"{what}_error": compute_standard_error(values)}
        uniform = self.last(policy, "uniform_regret").mean()
        row["percent_of_uniform"] = float(100 * row["regret"] / uniform) if uniform > 0 else None
        row["microseconds"] = float(np.median([result.microseconds for result in results]))
        return row | _describe_claim(algorithm)

    def bound_curve(self, policy: str, what: str, pulls: Counts) -> Floats | None:
        """Return the order of a policy's bound in Table 1, with the constant 1.

        Parameters
        ----------
        policy : str
            The label of the policy.
        what : str
            ``"regret"`` or ``"communication"``.
        pulls : numpy.ndarray
            The pulls at which to compute it.

        Returns
        -------
        numpy.ndarray or None
            The bound at these pulls; None where the paper states none.
        """
        algorithm = self.algorithms[policy]
        bound = None if algorithm.claim is None else getattr(algorithm.claim, what)
        if bound is None:
            return None
        return np.array([bound(algorithm.setting.with_horizon(max(2, int(n)))) for n in pulls])

    def plot(self, path: str | os.PathLike[str] | None = None, *, bounds: bool = False) -> Figure:
        """Draw regret with confidence bands, and communication, on logarithmic axes.

        Parameters
        ----------
        path : str or PathLike, optional
            Where to save the figure, too; the suffix decides the format.
        bounds : bool, default False
            Add the bounds of Table 1 as dashed lines.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from ..view.comparison_figure import draw_comparison

        return draw_comparison(self, path, bounds=bounds)

    def to_frame(self) -> pandas.DataFrame:
        """Return the curves as a pandas DataFrame.

        Returns
        -------
        pandas.DataFrame
            One row per policy, seed and recorded pull.
        """
        frames = [
            result.to_frame().assign(policy=policy, seed=result.seed)
            for policy, runs in self.runs.items()
            for result in runs
        ]
        import pandas  # to_frame() of a result has raised if it is missing

        return pandas.concat(frames, ignore_index=True)

    def write_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the table as a CSV file, one row per policy.

        Parameters
        ----------
        path : str or PathLike
            Where to write it.

        Returns
        -------
        pathlib.Path
            The same path.
        """
        return write_csv_rows(path, self.rows())

    def write_curves(self, path: str | os.PathLike[str]) -> Path:
        """Write the curves as a CSV file, one row per policy, seed and recorded pull.

        Parameters
        ----------
        path : str or PathLike
            Where to write it.

        Returns
        -------
        pathlib.Path
            The same path.
        """
        labelled = [(policy, result) for policy in self.runs for result in self.runs[policy]]
        runs = [{"policy": policy, "seed": result.seed} for policy, result in labelled]
        curves = [{name: getattr(result, name) for name in CURVE_COLUMNS} for _, result in labelled]
        names = ("policy", "seed")
        return write_csv_rows(path, list_curve_rows(runs, curves, names), (*names, *CURVE_COLUMNS))

    def __repr__(self) -> str:
        means = " (mean ± standard error)" if self.has_errors else ""
        lines = [
            f"  {row['policy']:<14} regret {_format_mean(row, 'regret')}, "
            f"communication {_format_mean(row, 'communication')}, "
            f"{row['microseconds']:.3g} µs per pull"
            for row in self.rows()
        ]
        return "\n".join([f"Comparison over {self.seeds_in_words}{means}", *lines])

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from ..view.notebook import render_comparison

        return render_comparison(self)


def _describe_claim(algorithm: Algorithm) -> dict[str, Any]:
    """Return a compared algorithm's row in the paper's Table 1, and its bounds."""
    claim = algorithm.claim
    if claim is None:
        return dict.fromkeys(("system", "actions", "regret_bound", "communication_bound"))
    bounds = {"regret_bound": claim.regret, "communication_bound": claim.communication}
    texts = {name: None if bound is None else bound.text for name, bound in bounds.items()}
    values = {
        f"{name}_value": None if bound is None else bound(algorithm.setting)
        for name, bound in bounds.items()
    }
    return {"system": claim.system, "actions": claim.actions, **texts, **values}


def _format_mean(row: Mapping[str, Any], what: str) -> str:
    """Return a mean with its standard error, for the text of a comparison."""
    error = row[f"{what}_error"]
    return f"{row[what]:.5g}" + ("" if math.isnan(error) else f" ± {error:.2g}")


def compare(
    policies: str | Sequence[str] | Mapping[str, str | Variant],
    problem: Problem | Callable[[int], Problem],
    *,
    seeds: int | Iterable[int] = 10,
    horizon: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    **parameters: Any,
) -> Comparison:
    """Play several policies on the same problem with the same seeds.

    Policies that sync all clients let them take turns where the problem leaves the arrival
    open; the others have random arrival. Ctrl-C ends the comparison with the runs that were
    finished.

    Parameters
    ----------
    policies : str, sequence of str, or mapping of str to policy
        What to play: names (``"async"``, ``"async+robust"``), or labels with a name or a
        :class:`Variant` each.
    problem : Problem, or callable from a seed to one
        What to play on. The seed of a problem is replaced by each of `seeds`.
    seeds : int or iterable of int, default 10
        How many seeds, or which.
    horizon : int, optional
        The number of pulls; by default as many as the problem has.
    threads : int, optional
        How many runs at a time; by default one per core.
    progress : callable, optional
        Called after each run with the number of finished runs, the number of all runs, and
        the label of the policy.
    **parameters : Any
        Keywords of :func:`make`. Each goes to the policies that take it.

    Returns
    -------
    Comparison
        The runs by policy: ``.rows()``, ``.curve()``, ``.to_frame()``, ``.plot()``.

    Raises
    ------
    InvalidInput
        If there is nothing to compare, a seed is given twice, or no horizon is known.
    UnknownName
        If a policy does not exist, or no policy takes a keyword.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> problem = fsl.SyntheticProblem(dim=3, n_arms=4, n_clients=2)
    >>> fsl.compare(["oful", "uniform"], problem, seeds=2, horizon=100).seeds
    (0, 1)
    """
    labelled, which = label_policies(policies), list_distinct_seeds(seeds)
    keywords = assign_keywords(labelled, parameters)
    problems = [reseed_problem(problem, seed) for seed in which]
    length = problems[0].horizon if horizon is None else check_positive_integer("horizon", horizon)
    if length is None:
        raise InvalidInput("the problem has no horizon: give the number of pulls as horizon=")
    threads = None if threads is None else check_positive_integer("threads", threads)

    def make_algorithm(label: str, at: int) -> Algorithm:
        return make_for(labelled[label], problems[at], length, keywords[label])

    def run_one(job: tuple[str, int], stop: StopFlag | None) -> tuple[tuple[str, int], RunResult]:
        watch = None if stop is None else lambda *_: raise_if_stopped(stop)
        algorithm, at = make_algorithm(*job), job[1]
        return job, run(algorithm, problems[at], horizon=length, progress=watch, prefetch=prefetch)

    algorithms = {label: make_algorithm(label, 0) for label in labelled}
    jobs = [(label, at) for at in range(len(which)) for label in labelled]
    prefetch = is_core_left("threads", threads, len(jobs))
    results: dict[tuple[str, int], RunResult] = {}
    complete = True
    try:
        with contextlib.closing(run_jobs("threads", threads, run_one, jobs)) as ended:
            for job, result in ended:
                results[job] = result
                if progress is not None:
                    progress(len(results), len(jobs), job[0])
    except KeyboardInterrupt:
        complete = False
    runs = {
        label: [results[label, at] for at in range(len(which)) if (label, at) in results]
        for label in labelled
    }
    played = {at for _, at in results}
    unplayed = tuple(seed for at, seed in enumerate(which) if at not in played)
    finished = {label: found for label, found in runs.items() if found}
    return Comparison(finished, algorithms, which, complete, unplayed)


def label_policies(policies: Any) -> dict[str, str | Variant]:
    """Return the compared policies by label; a Variant has no name and needs a label."""
    if isinstance(policies, Mapping):
        labelled = dict(policies)
    else:
        one = isinstance(policies, str) or not isinstance(policies, Iterable)
        labelled = {check_name(each): each for each in ([policies] if one else policies)}
    if not labelled:
        raise InvalidInput("there is nothing to compare: name at least one policy")
    return labelled


def check_name(policy: Any) -> str:
    """Check that a compared policy without a label is a name."""
    if not isinstance(policy, str):
        raise InvalidInput(
            "policies are names, or labels with a name or a Variant each, "
            f"as in {{'mine': Variant(…)}}, not {policy!r}"
        )
    return policy


def list_distinct_seeds(seeds: Any) -> tuple[int, ...]:
    """Return the seeds of a comparison: how many, or which.

    A seed given twice would count as two, and make the standard error too small.
    """
    which = tuple(list_seeds(seeds))
    if len(set(which)) < len(which):
        raise InvalidInput(
            "some runs are in the comparison twice: "
            "each combination of policy and seed must be there once"
        )
    return which


def assign_keywords(
    labelled: Mapping[str, Any], parameters: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the keywords that each compared policy takes. One that none takes is an error."""
    everywhere = {key: value for key, value in parameters.items() if key == "preset"}
    parts = {axis: parameters.get(axis) for axis in (*AXES, "syncs", "lazy")}
    takes = {
        label: list_keywords(compose_recipe(variant, parts)[1])
        for label, variant in labelled.items()
    }
    known = {*everywhere, *parts}.union(*takes.values())
    for key in parameters:
        if key not in known:
            choices = set().union(*takes.values())
            raise unknown("keyword for " + ", ".join(labelled), key, choices)
    everywhere |= {axis: part for axis, part in parts.items() if part is not None}
    return {
        label: everywhere | {key: value for key, value in parameters.items() if key in taken}
        for label, taken in takes.items()
    }


def reseed_problem(problem: Problem | Callable[[int], Problem], seed: int) -> Problem:
    """Return the problem of a comparison with another seed."""
    if callable(problem):
        made = problem(seed)
        check_problem(made, ", or a function from a seed to one")
        return made
    check_problem(problem, ", or a function from a seed to one")
    spec = getattr(problem, "spec", {})
    if not spec.get("parameters") or "seed" not in spec["parameters"]:
        raise InvalidInput(
            f"{problem!r} has no seed to change: "
            "give a function from a seed to a problem, such as lambda seed: …"
        )
    parameters = spec["parameters"] | {"seed": seed}
    reseeded: Problem = make_problem_from_spec({**spec, "parameters": parameters})
    return reseeded
