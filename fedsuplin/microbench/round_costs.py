"""benchmark: what a round of any policy or plugin costs, and which stages cost it."""

from __future__ import annotations

import functools
import itertools
import os
import statistics
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsuplin_ext.stages import cost_of_a_switch

from .._shared.checks import check_positive_integer
from ..algorithm.algorithm import Algorithm
from ..algorithm.composing import compose_recipe
from ..algorithm.making import make_for
from ..algorithm.suitable_variants import find_natural_noise, needs_fixed_arms
from ..contracts.problem import Problem
from ..contracts.variant import Variant
from ..errors import InvalidInput, unknown
from ..problems.fixed_arms import FixedArmsProblem
from ..problems.synthetic import SyntheticProblem
from ..registry import plugins
from ..simulation.runner import run
from .settings import HORIZON, PAPER, choose_pulls
from .timing import Played, play_timed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .opponents import Opponents

# Twins and opponents are imported where they are used: they take longer to load than all that
# `import fedsuplin` and its names load otherwise.

CHECKED = 200  # pulls compared with the reference at the paper's setting; fewer at larger sizes
STAGED_TURNS = 2  # runs with the stop watch, which give the shares
KINDS = {"triggers": "trigger", "weightings": "weighting", "policies": "policy"}
CORRUPTION = 50.0  # what the adversary of corrupted noise may add


@dataclass(frozen=True, eq=False)
class Benchmark:
    """What rounds of several policies cost, in CPU time.

    Parameters
    ----------
    rows : list of dict
        One row per policy and size: ``policy``, ``dim``, ``n_arms``, ``n_clients``, ``pulls``,
        ``turns``; ``microseconds`` per round in the loop (the best turn), ``spread`` (how much
        longer the median turn took, as a share), ``drawing`` in µs; ``stages`` in µs, by name;
        and ``times``: how many times the cost of the first policy this one has.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> found = fsl.benchmark("async", against="oful", dim=4, n_arms=5, n_clients=2, pulls=400)
    >>> [row["policy"] for row in found.rows], found.rows[0]["times"]
    (['async', 'oful'], 1.0)
    """

    rows: list[dict[str, Any]]

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Plot the µs per round of all policies, over d and over K.

        Parameters
        ----------
        path : str or os.PathLike, optional
            The file to save the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from ..view.benchmark_figure import draw_benchmark

        return draw_benchmark(self.rows, path)


def benchmark(
    policy: str | Variant | Sequence[str | Variant],
    *,
    against: str | Variant | None = None,
    dim: int | Sequence[int] = PAPER["dim"],
    n_arms: int | Sequence[int] = PAPER["n_arms"],
    n_clients: int = PAPER["n_clients"],
    turns: int = 6,
    pulls: int | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    **parameters: Any,
) -> Benchmark:
    """Measure what a round of a policy or plugin costs, and which stages cost it.

    First the arms of every policy are compared with those of its NumPy twin, then all policies are
    timed in turns.

    Parameters
    ----------
    policy : str, Variant or list of these
        What to measure: a variant, or a registered trigger, weighting or policy, which is then a
        part of ``async``.
    against : str or Variant, optional
        What to compare with: another policy, without ``parameters``; ``"numpy-linucb"``, a LinUCB
        with one layer in NumPy; ``"numpy-layered"``, NumPy that does what ``async`` does; or the
        LinUCB of a library of the extra ``peers``: ``"contextualbandits"``, ``"coba"`` or
        ``"mabwiser"``. The same policy twice shows how far two measurements are apart.
    dim, n_arms : int or list of int
        The sizes d and K. Every d is measured with every K.
    n_clients : int
        The number of clients, M.
    turns : int
        How often each is timed; the best turn counts.
    pulls : int, optional
        The length of a run. Defaults to 10 000 at the paper's setting, fewer at larger sizes.
    progress : callable, optional
        Called as ``progress(what, done, total)`` before each size.
    **parameters : object
        Further keywords of :func:`make` for the policies, such as ``trigger="periodic"``.

    Returns
    -------
    Benchmark
        One row per policy and size.

    Raises
    ------
    InvalidInput
        If an argument can't be used.
    MissingExtra
        If a library to compare with is not installed.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> sizes = {"dim": 4, "n_arms": 5, "n_clients": 2, "pulls": 400, "turns": 1}
    >>> row, = fsl.benchmark("async", **sizes).rows
    >>> sorted(row["stages"])
    ['kernels', 'other', 'rule', 'screening', 'sync', 'update']
    """
    from .opponents import OPPONENTS, Opponents

    check_positive_integer("turns", turns)
    policies = [policy] if isinstance(policy, str | Variant) else list(policy)
    if not policies:
        raise InvalidInput("benchmark needs at least one policy")
    n_clients = check_positive_integer("n_clients", n_clients)
    pulls = None if pulls is None else check_positive_integer("pulls", pulls)
    for measured in policies:
        check_name(measured)
    if against is not None:
        check_name(against, OPPONENTS)
    sizes = list(itertools.product(list_sizes("dim", dim), list_sizes("n_arms", n_arms)))
    rows: list[dict[str, Any]] = []
    with Opponents() as opponents:
        for done, (d, k) in enumerate(sizes):
            progress(f"d={d}, K={k}", done, len(sizes))
            named: dict[str, Any] = {"dim": d, "n_arms": k, "n_clients": n_clients}
            rows += measure_size(policies, against, named, turns, pulls, parameters, opponents)
    progress("done", len(sizes), len(sizes))
    return Benchmark(rows)


def list_sizes(name: str, sizes: int | Sequence[int]) -> list[int]:
    """Return sizes of a benchmark as a list, each checked."""
    listed = list(sizes) if isinstance(sizes, Sequence) and not isinstance(sizes, str) else [sizes]
    if not listed:
        raise InvalidInput(f"{name} must be a whole number or a list of some, not an empty list")
    return [check_positive_integer(name, n) for n in listed]


def measure_size(
    policies: list[str | Variant],
    against: str | Variant | None,
    sizes: dict[str, Any],
    turns: int,
    pulls: int | None,
    parameters: dict[str, Any],
    opponents: Opponents,
) -> list[dict[str, Any]]:
    """Compare the answers of all policies at one size with their twins, then time all in turns."""
    from .opponents import OPPONENTS, limit_rounds

    pulls = choose_pulls(HORIZON // 4, sizes) if pulls is None else pulls
    given = [resolve_policy(policy, parameters) for policy in policies]
    if against is not None and against not in OPPONENTS:
        given.append(resolve_policy(against, {}))
    problem = make_problem_for(*given[0], sizes)
    algorithms: dict[str, Algorithm] = {}
    for name, keywords in given:
        label = make_different(format_label(name, keywords), algorithms)
        algorithms[label] = make_for(name, problem, max(pulls, HORIZON), keywords)
    for algorithm in algorithms.values():
        check_answers(algorithm, problem, choose_pulls(CHECKED, sizes))
    timings: dict[str, Callable[[], Played]] = {
        label: functools.partial(play_timed, algorithm, problem, pulls)
        for label, algorithm in algorithms.items()
    }
    played = dict.fromkeys(timings, pulls)
    if isinstance(against, str) and against in OPPONENTS:
        played[against] = limit_rounds(against, pulls)
        opponents.check(against, *sizes.values(), choose_pulls(CHECKED, sizes))
        timing = opponents.request_timing(against, *sizes.values(), played[against])
        timings[against] = lambda: Played(loop=timing())
    taken = [{label: timing() for label, timing in timings.items()} for _ in range(turns)]
    first = min(turn[next(iter(timings))].loop for turn in taken) / pulls
    rows = []
    for label in timings:
        loops = [turn[label].loop for turn in taken]
        drawing = min(turn[label].drawing for turn in taken)
        row = {
            "policy": label,
            **sizes,
            "pulls": played[label],
            "turns": turns,
            "microseconds": 1e6 * min(loops) / played[label],
            "spread": statistics.median(loops) / min(loops) - 1,
            "drawing": 1e6 * drawing / pulls if label in algorithms else None,
            "times": min(loops) / played[label] / first,
            "stages": {},
        }
        if label in algorithms:
            shares = measure_shares(algorithms[label], problem, pulls)
            row["stages"] = {name: s * row["microseconds"] for name, s in shares.items()}
        rows.append(row)
    return rows


def check_name(policy: str | Variant, others: tuple[str, ...] = ()) -> None:
    """Refuse a name to measure that no variant, trigger, weighting or policy has, nor `others`."""
    known = {name for kind in ("variants", *KINDS) for name in plugins.names(kind)} | {*others}
    if isinstance(policy, str) and policy not in known:
        raise unknown("policy or plugin to measure", policy, known)


def resolve_policy(
    policy: str | Variant, parameters: dict[str, Any]
) -> tuple[str | Variant, dict[str, Any]]:
    """Return the variant to measure and its keywords; a part by name becomes a part of `async`."""
    if isinstance(policy, str) and policy not in plugins.names("variants"):
        for kind, part in KINDS.items():
            if policy in plugins.names(kind):
                return "async", {part: policy} | parameters
    return policy, parameters


def format_label(policy: str | Variant, keywords: dict[str, Any]) -> str:
    """Return the name of a measured policy with its keywords."""
    name = policy if isinstance(policy, str) else "a Variant"
    return ", ".join([name, *(f"{key} {value}" for key, value in keywords.items())])


def make_different(label: str, others: Container[str]) -> str:
    """Return the label of a policy that is measured twice with a number, such as "async (2)"."""
    numbered = (f"{label} ({n})" for n in itertools.count(2))
    return label if label not in others else next(new for new in numbered if new not in others)


def make_problem_for(
    policy: str | Variant, keywords: dict[str, Any], sizes: dict[str, Any]
) -> Problem:
    """Make the problem that a policy is measured on, with the noise that it is made for."""
    parts = {part: keywords.get(part) for part in KINDS.values()}
    _, recipe = compose_recipe(policy, parts)
    if needs_fixed_arms(recipe):
        return FixedArmsProblem(**sizes, seed=0)
    noise = find_natural_noise(recipe)
    more: dict[str, Any] = {"corruption": CORRUPTION} if noise == "corrupted" else {}
    return SyntheticProblem(**sizes, noise=noise, seed=0, **more)


def check_answers(algorithm: Algorithm, problem: Problem, n: int) -> None:
    """Check that the engine chooses the arms and layers of its NumPy twin in the first n pulls."""
    from ..reference.twin import run_reference

    ours = run(algorithm, problem, horizon=n, record="all")
    theirs = run_reference(algorithm, problem, horizon=n)
    for name in ("arms", "layers"):
        if not np.array_equal(getattr(ours, name), getattr(theirs, name)):
            raise AssertionError(
                f"the {name} of {algorithm.name} differ from those of its NumPy twin within {n} "
                "pulls: nothing is timed unless both agree"
            )


def measure_shares(algorithm: Algorithm, problem: Problem, pulls: int) -> dict[str, float]:
    """Return the share of each stage in the loop, without what the stop watch itself costs."""
    switch = cost_of_a_switch()
    runs = [play_timed(algorithm, problem, pulls, by_stage=True) for _ in range(STAGED_TURNS)]
    best = min(runs, key=lambda played: played.loop).stages
    ticks = {name: max(0.0, n - many * switch) for name, (n, many) in best.items()}
    total = sum(ticks.values()) or 1.0
    return {name: n / total for name, n in ticks.items()}
