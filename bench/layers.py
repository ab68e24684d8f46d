"""Compare federated with isolated policies, and layers with optimism: tables of docs/baselines.md.

python bench/layers.py verdict    does communication help, at the paper's setting (20 seeds)
python bench/layers.py loses      random contexts, where one layer of optimism is far ahead
python bench/layers.py search     one player, contexts that do not explore for free
python bench/layers.py sweep      the whole sweep of radii behind `search`
python bench/layers.py dims       theorem radii on one direction after another, as d grows
python bench/layers.py federated  the federated policies on some of those problems
python bench/layers.py check      streams do not depend on chunks, and contexts are at most 1 long

Options: --seeds N, --threads N, --only NAME … (problems of search, sweep, federated, check).
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fedsuplin as fsl
from fedsuplin._shared.statistics import compute_standard_error
from fedsuplin.plugin import Chunk, Problem, Stream

Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""Returns the contexts (pulls × arms × dim) of these pulls; each takes the same number of draws."""


# --- context sequences that do not explore for free ---


def normalise(x: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Law:
    """How contexts are drawn, and θ: `begin` returns θ and the draw for a seed's generator."""

    what: str
    dim: int
    n_arms: int
    horizon: int
    noise_scale: float
    begin: Callable[[Law, np.random.Generator], tuple[np.ndarray, Draw]]

    def __str__(self) -> str:
        sizes = f"d={self.dim} K={self.n_arms} T={self.horizon // 1000}k sd={self.noise_scale:g}"
        return f"{self.what} ({sizes})"


class Sequence(Problem):
    """A problem from a law and a seed: Gaussian noise, clients in turns, arms in random order."""

    def __init__(self, law: Law, n_clients: int, seed: int) -> None:
        self.law, self.n_clients, self.seed = law, n_clients, seed
        self.dim, self.n_arms, self.horizon, self.noise_scale = (
            law.dim,
            law.n_arms,
            law.horizon,
            law.noise_scale,
        )
        theta_seed, *self.stream_seeds = np.random.SeedSequence(seed).spawn(4)
        self.theta, self.draw = law.begin(law, np.random.default_rng(theta_seed))

    def stream(self, horizon: int, arrival: Any) -> SequenceStream:
        """Return a new stream."""
        return SequenceStream(self)


class SequenceStream(Stream):
    """A stream with one generator per purpose, so that it does not depend on the chunks."""

    def __init__(self, problem: Sequence) -> None:
        self._problem, self._start = problem, 0
        self._contexts, self._order, self._noise = (
            np.random.default_rng(seed) for seed in problem.stream_seeds
        )

    def take(self, n: int) -> Chunk:
        """Draw the next n pulls."""
        problem, pulls = self._problem, np.arange(self._start, self._start + n)
        self._start += n
        contexts = problem.draw(self._contexts, pulls)
        order = self._order.random((n, problem.n_arms)).argsort(axis=1)
        return Chunk.of(
            np.take_along_axis(contexts, order[:, :, None], axis=1),
            pulls % problem.n_clients,
            theta=problem.theta,
            noise=problem.noise_scale * self._noise.standard_normal(n),
            sigma=problem.noise_scale,
        )


def sphere(law: Law, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
    """Random contexts and a random θ: they explore for free."""
    return normalise(rng.standard_normal(law.dim)), lambda rng, t: normalise(
        rng.standard_normal((len(t), law.n_arms, law.dim))
    )


def planes(stretch: int) -> Callable:
    """Contexts random within a random plane, a new one after `stretch` pulls."""

    def begin(law: Law, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        theta = normalise(rng.standard_normal(law.dim))
        bases = np.linalg.qr(rng.standard_normal((-(-law.horizon // stretch), law.dim, 2)))[0]

        def draw(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
            return np.einsum(
                "ndr,nkr->nkd",
                bases[t // stretch],
                normalise(rng.standard_normal((len(t), law.n_arms, 2))),
            )

        return theta, draw

    return begin


def rare_arm(share: float) -> Callable:
    """Nearly equal arms in one half of the coordinates, and a rare arm in the other half.

    θ is long in the other half.
    """

    def begin(law: Law, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        half = law.dim // 2
        theta = np.concatenate(
            [
                0.1 * normalise(rng.standard_normal(half)),
                0.9 * normalise(rng.standard_normal(law.dim - half)),
            ]
        )

        def draw(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
            contexts = np.zeros((len(t), law.n_arms, law.dim))
            # One block of draws per pull, whatever it is used for.
            numbers = rng.standard_normal((len(t), law.n_arms + 2, law.dim))
            contexts[:, :, :half] = normalise(numbers[:, :-2, :half])
            rare = numbers[:, -1, 0] < compute_normal_quantile(share)
            contexts[rare, 0] = 0.0
            contexts[rare, 0, half:] = normalise(numbers[rare, -2, half:])
            return contexts

        return theta, draw

    return begin


def compute_normal_quantile(p: float) -> float:
    """Return the quantile of the standard normal distribution."""
    from scipy.special import ndtri

    return float(ndtri(p))


def hidden_half(share: float) -> Callable:
    """Random contexts in one half of the coordinates, and later only in the other half."""

    def begin(law: Law, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        half = law.dim // 2

        def draw(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
            numbers = normalise(rng.standard_normal((len(t), law.n_arms, half)))
            late = t >= share * law.horizon
            contexts = np.zeros((len(t), law.n_arms, law.dim))
            contexts[~late, :, :half], contexts[late, :, law.dim - half :] = (
                numbers[~late],
                numbers[late],
            )
            return contexts

        return normalise(rng.standard_normal(law.dim)), draw

    return begin


def blocks(gap: float) -> Callable:
    """One direction after another: e_j, worth ±gap (in units of √(d/T)), or the zero arm."""

    def begin(law: Law, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        worth = gap * math.sqrt(law.dim / law.horizon)
        theta = worth * np.where(rng.random(law.dim) < 0.5, -1.0, 1.0)

        def draw(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
            contexts = np.zeros((len(t), 2, law.dim))
            contexts[np.arange(len(t)), 1, t * law.dim // law.horizon] = 1.0
            return contexts

        return theta, draw

    return begin


def hidden_sum(share: float, gap: float, lottery: int = 8) -> Callable:
    """Single directions first, and then their sum.

    For a share of the pulls there is a random e_j or the zero arm: a few e_j are worth ±0.1, the
    other m a little less than 0. Then there is only Σe_j/√m against e_0, which is worse by `gap`
    (in units of √(d/T)). Optimism abandons an e_j after bad luck, so its estimates are too low, and
    the sum adds them up.
    """

    def begin(law: Law, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        m = law.dim - 1 - lottery
        theta = np.full(law.dim, -0.5 / math.sqrt(m))
        theta[0] = -0.5 - gap * math.sqrt(law.dim / law.horizon)
        theta[1 : 1 + lottery] = np.where(rng.random(lottery) < 0.5, -0.1, 0.1)

        def draw(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
            j, late = 1 + ((law.dim - 1) * rng.random(len(t))).astype(int), t >= share * law.horizon
            contexts = np.zeros((len(t), 2, law.dim))
            contexts[np.flatnonzero(~late), 1, j[~late]] = 1.0
            contexts[late, 0, 0], contexts[late, 1, 1 + lottery :] = 1.0, 1 / math.sqrt(m)
            return contexts

        return theta, draw

    return begin


LAWS = {
    "small-K": Law("random contexts, two arms, heavy noise", 50, 2, 100_000, 1.0, sphere),
    "small-K-100": Law("random contexts, three arms, heavy noise", 100, 3, 50_000, 1.0, sphere),
    "planes": Law("a new plane every pull", 32, 8, 100_000, 0.1, planes(1)),
    "long-planes": Law("a new plane every 2000 pulls", 32, 8, 100_000, 0.1, planes(2000)),
    "rare-arm": Law(
        "a rare arm that matters, in 1 % of the pulls", 32, 8, 100_000, 0.1, rare_arm(0.01)
    ),
    "hidden-half": Law(
        "half of the directions hidden until 3T/4", 32, 8, 100_000, 0.1, hidden_half(0.75)
    ),
    "blocks": Law("one direction after another, ±3.2√(d/T)", 50, 2, 80_000, 0.1, blocks(3.2)),
    "blocks-noisy": Law(
        "one direction after another, ±8√(d/T), heavy noise", 32, 2, 102_400, 1.0, blocks(8.0)
    ),
    "hidden-sum": Law(
        "a sum of directions hidden until T/2", 64, 2, 100_000, 0.1, hidden_sum(0.5, 6.0)
    ),
}


# --- measuring ---

ALPHA_SCALES = (1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.0)
RIDGES = (1.0, 0.01)
TUNING_SEEDS = (1000, 1001)  # radii are chosen on these and reported on others
FAMILIES = {"oful": "one layer", "suplinucb": "layers"}


class Bench:
    """Run policies over seeds; the same seed is the same problem for every policy."""

    def __init__(self, seeds: int, threads: int) -> None:
        self.seeds, self.threads = range(seeds), threads

    def compare(
        self,
        policy: str,
        problem: Callable[[int], Any],
        horizon: int,
        seeds: Iterable[int] | None = None,
        **given,
    ):
        """Return regret and communication of each seed, and the comparison."""
        found = fsl.compare(
            [policy],
            problem,
            seeds=seeds or self.seeds,
            horizon=horizon,
            threads=self.threads,
            **given,
        )
        return found.last(policy, "regret"), found.last(policy, "communication"), found

    def regret(
        self, policy: str, law: Law, n_clients: int = 1, seeds: Iterable[int] | None = None, **given
    ) -> np.ndarray:
        """Return the final regret of each seed."""
        return self.compare(
            policy, functools.partial(Sequence, law, n_clients), law.horizon, seeds, **given
        )[0]


def format_mean(values: np.ndarray) -> str:
    """Format a mean with its standard error."""
    mean, error = float(values.mean()), compute_standard_error(values)
    digits = 0 if mean >= 100 else 1 if mean >= 10 else 2
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}".replace(",", " ")


def print_row(*cells: Any) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def print_head(*cells: str) -> None:
    """Print the head of a Markdown table."""
    print_row(*cells)
    print("|" + "---|" * len(cells))


def format_radius(algorithm: fsl.Algorithm) -> str:
    """Format the radii as numbers, or by their formula if they grow."""
    growth, level = algorithm.radius_growth
    radii = algorithm.radii
    if growth:
        return f"{radii[0]:.3g} + {growth:.3g}√({level:.2g} + ln det(A)/det(λI))"
    return (
        f"{radii[0]:.3g}"
        if len(radii) == 1
        else f"{radii[0]:.3g} in layer 0, {radii[1]:.3g} in layers 1 to {len(radii) - 1}"
    )


def format_trigger(algorithm: fsl.Algorithm) -> str:
    """Format the threshold of the trigger."""
    named = {name: getattr(algorithm.trigger, name, None) for name in ("C", "D", "gamma_u")}
    return (
        ", ".join(f"{name} = {value:.3g}" for name, value in named.items() if value is not None)
        or "none"
    )


# --- 1: does communication help ---

PAPER = {"dim": 25, "n_arms": 20, "n_clients": 20}
PAIRS = (("fedlinucb", "oful"), ("async", "suplinucb"), ("sync", "suplinucb"))
PRESETS = {"practical": {}, "theory": {"preset": "theory", "noise_scale": 0.1}}


def verdict(bench: Bench) -> None:
    """Print whether communication lowers the regret."""

    def problem(seed: int) -> fsl.SyntheticProblem:
        return fsl.SyntheticProblem(**PAPER, noise_scale=0.1, seed=seed)

    policies = list(dict.fromkeys(policy for pair in PAIRS for policy in pair))
    runs = {}
    print_head(
        "preset",
        "policy",
        "alpha_scale",
        "ridge",
        "trigger",
        "radius",
        "regret per client",
        "% of uniform",
        "communication",
    )
    for preset, given in PRESETS.items():
        for policy in policies:
            regret, communication, found = bench.compare(policy, problem, 40_000, **given)
            algorithm, share = found.algorithms[policy], found.rows()[0]["percent_of_uniform"]
            runs[preset, policy] = regret / PAPER["n_clients"]
            numbers = (
                f"{algorithm.noise.alpha_scale:g}",
                f"{algorithm.setting.ridge:g}",
                format_trigger(algorithm),
            )
            measured = (
                format_mean(runs[preset, policy]),
                f"{share:.1f}",
                f"{communication.mean():.0f}",
            )
            print_row(preset, f"`{policy}`", *numbers, format_radius(algorithm), *measured)
    print()
    print_head(
        "preset",
        "talking",
        "alone",
        "alone − talking, per client",
        "in standard errors",
        "lower by more than two standard errors",
    )
    for preset in PRESETS:
        for together, alone in PAIRS:
            gain = runs[preset, alone] - runs[preset, together]
            errors = gain.mean() / compute_standard_error(gain)
            holds = "holds" if errors > 2 else "does not hold"
            print_row(
                preset,
                f"`{together}`",
                f"`{alone}`",
                format_difference(gain),
                f"{errors:.1f}",
                holds,
            )


def format_difference(values: np.ndarray) -> str:
    """Format a mean difference with its standard error."""
    return f"{values.mean():.2f} ± {compute_standard_error(values):.2f}"


# --- 2: where the layers lose ---

ONE_LAYER = {
    "oful, each alone": ("oful", {}),
    "fedlinucb, theorem's radius": ("fedlinucb", {"radius": "theorem"}),
    "fedlinucb, OFUL's radius": ("fedlinucb", {"radius": "self-normalised"}),
    "fedlinucb, OFUL's radius, talks always": (
        "fedlinucb",
        {"radius": "self-normalised", "trigger": "always", "lazy": False},
    ),
    "async-linucb": ("async-linucb", {}),
    "dislinucb": ("dislinucb", {}),
}
LAYERED = {"suplinucb, each alone": ("suplinucb", {}), "async": ("async", {}), "sync": ("sync", {})}


def loses(bench: Bench) -> None:
    """Print a problem with random contexts, where one layer of optimism is far ahead."""

    def problem(seed: int) -> fsl.SyntheticProblem:
        return fsl.SyntheticProblem(dim=16, n_arms=16, n_clients=4, noise_scale=0.1, seed=seed)

    print_head(
        "policy",
        "layers",
        "regret, alpha_scale 1",
        "regret, alpha_scale 0.1",
        "communication, alpha_scale 1",
    )
    for label, (policy, given) in (ONE_LAYER | LAYERED).items():
        cells, talked = [], []
        for scale in (1.0, 0.1):
            keywords = {"preset": "theory", "noise_scale": 0.1, "alpha_scale": scale, **given}
            regret, communication, found = bench.compare(policy, problem, 400_000, **keywords)
            cells.append(format_mean(regret))
            talked.append(communication.mean())
        print_row(label, found.algorithms[policy].n_layers, *cells, f"{talked[0]:.0f}")


# --- 3: where they might pay ---


def list_theory_keywords(law: Law, **given: float) -> dict[str, Any]:
    """Return keywords for the theorem's formulas with this noise, alpha_scale and ridge."""
    return {"preset": "theory", "noise_scale": law.noise_scale, **given}


@dataclass(frozen=True)
class Tuned:
    """The best settings of a grid that is the same for each family."""

    alpha_scale: float
    ridge: float
    best_ridge: float  # at alpha_scale 1


def tune(bench: Bench, policy: str, law: Law, n_clients: int = 1, **given: Any) -> Tuned:
    """Find the best settings on the tuning seeds."""
    at = functools.partial(bench.regret, policy, law, n_clients, TUNING_SEEDS, **given)
    means = {
        (a, r): float(at(**list_theory_keywords(law, alpha_scale=a, ridge=r)).mean())
        for a in ALPHA_SCALES
        for r in RIDGES
    }
    alpha_scale, ridge = min(means, key=means.get)
    return Tuned(alpha_scale, ridge, min(RIDGES, key=lambda r: means[1.0, r]))


def search(bench: Bench, names: list[str]) -> None:
    """Print each family with the theorem's radii, the preset and tuned radii."""
    columns = ("theorem", "theorem, better ridge", "practical preset", "tuned", "at")
    print_head("contexts", "family", *columns, "tuned: one layer − layers, in standard errors")
    for name in names:
        law, last = LAWS[name], {}
        print_row(str(law), "uniform", format_mean(bench.regret("uniform", law)), *[""] * 5)
        for policy, family in FAMILIES.items():
            best = tune(bench, policy, law)
            last[policy] = bench.regret(
                policy,
                law,
                **list_theory_keywords(law, alpha_scale=best.alpha_scale, ridge=best.ridge),
            )
            cells = [
                format_mean(bench.regret(policy, law, **list_theory_keywords(law))),
                format_mean(
                    bench.regret(policy, law, **list_theory_keywords(law, ridge=best.best_ridge))
                )
                + f" (λ = {best.best_ridge:g})",
                format_mean(bench.regret(policy, law)),
                format_mean(last[policy]),
                f"alpha_scale {best.alpha_scale:g}, λ = {best.ridge:g}",
            ]
            print_row(
                "",
                f"{family} (`{policy}`)",
                *cells,
                format_in_errors(last["oful"] - last[policy]) if policy != "oful" else "",
            )


def format_in_errors(difference: np.ndarray) -> str:
    """Format a mean difference in standard errors."""
    return (
        f"{difference.mean() / compute_standard_error(difference):.1f}"
        if difference.any()
        else "the same runs"
    )


def sweep(bench: Bench, names: list[str]) -> None:
    """Print regret over all radii and ridges."""
    for name in names:
        law = LAWS[name]
        print(f"\n{law}\n")
        print_head(
            "alpha_scale",
            *(f"`{policy}`, λ = {ridge:g}" for policy in FAMILIES for ridge in RIDGES),
        )
        for scale in ALPHA_SCALES:
            given = [
                (policy, list_theory_keywords(law, alpha_scale=scale, ridge=ridge))
                for policy in FAMILIES
                for ridge in RIDGES
            ]
            print_row(
                f"{scale:g}",
                *(format_mean(bench.regret(policy, law, **keywords)) for policy, keywords in given),
            )


def dims(bench: Bench) -> None:
    """Print regret with theorem radii and 1600 pulls per direction, as d grows.

    Each family has the better of two ridges. d doubles, so that the ratio of the last target width,
    2^-S d^1.5/√T with S = ⌈log2 d⌉, to √(d/T) stays the same.
    """
    print_head(
        "d",
        "T",
        *(f"`{policy}`, λ = {ridge:g}" for policy in FAMILIES for ridge in RIDGES),
        "better one layer / better layers",
    )
    for dim in (12, 25, 50, 100, 200):
        law = Law("blocks", dim, 2, 1600 * dim, 0.1, blocks(3.2))
        found = {
            (p, r): bench.regret(p, law, **list_theory_keywords(law, ridge=r))
            for p in FAMILIES
            for r in RIDGES
        }
        better = {
            policy: min(found[policy, ridge].mean() for ridge in RIDGES) for policy in FAMILIES
        }
        print_row(
            dim,
            law.horizon,
            *(format_mean(values) for values in found.values()),
            f"{better['oful'] / better['suplinucb']:.2f}",
        )


CLIENTS = 4
FEDERATED = {label: ONE_LAYER[label] for label in list(ONE_LAYER)[1:3] + list(ONE_LAYER)[4:]} | {
    label: LAYERED[label] for label in ("async", "sync")
}


def federated(bench: Bench, names: list[str]) -> None:
    """Print the federated policies on problems that do not explore for free."""
    print_head(
        "contexts",
        "policy",
        "theorem",
        "theorem, better ridge",
        "practical preset",
        "tuned",
        "at",
        "communication when tuned",
    )
    for name in names:
        law = LAWS[name]
        for label, (policy, given) in FEDERATED.items():
            best = tune(bench, policy, law, CLIENTS, **given)
            at = functools.partial(bench.regret, policy, law, CLIENTS)
            keywords = (
                list_theory_keywords(law, alpha_scale=best.alpha_scale, ridge=best.ridge) | given
            )
            _, communication, _ = bench.compare(
                policy, functools.partial(Sequence, law, CLIENTS), law.horizon, **keywords
            )
            cells = [
                format_mean(at(**list_theory_keywords(law), **given)),
                format_mean(at(**list_theory_keywords(law, ridge=best.best_ridge), **given))
                + f" (λ = {best.best_ridge:g})",
                ""
                if given.get("radius") == "theorem"
                else format_mean(at()),  # the preset has OFUL's radius
                format_mean(at(**keywords)),
                f"alpha_scale {best.alpha_scale:g}, λ = {best.ridge:g}",
                f"{communication.mean():.0f}",
            ]
            print_row(
                f"{law}, M={CLIENTS}" if label == next(iter(FEDERATED)) else "", label, *cells
            )


# --- the problems themselves ---


def check(bench: Bench, names: list[str]) -> None:
    """Check that streams do not depend on chunks, and that contexts and θ are at most 1 long."""
    print_head("problem", "same in chunks", "longest context", "‖θ‖")
    for name in names:
        problem = Sequence(LAWS[name], 4, 0)
        whole, cut = problem.stream(problem.horizon, None), problem.stream(problem.horizon, None)
        one, parts = whole.take(300), [cut.take(n) for n in (1, 199, 100)]
        fields = ("contexts", "clients", "noise")
        same = all(
            np.array_equal(getattr(one, f), np.concatenate([getattr(part, f) for part in parts]))
            for f in fields
        )
        problem_end = problem.stream(problem.horizon, None)
        longest = max(
            float(np.linalg.norm(problem_end.take(n).contexts, axis=1).max())
            for n in split_into_chunks(problem.horizon, 5000)
        )
        print_row(
            name, "yes" if same else "NO", f"{longest:.6f}", f"{np.linalg.norm(problem.theta):.3f}"
        )
        if not same or longest > 1 + 1e-9 or np.linalg.norm(problem.theta) > 1 + 1e-9:
            raise SystemExit(f"{name} is not a proper problem")


def split_into_chunks(total: int, size: int) -> list[int]:
    """Split a number of pulls into chunks."""
    return [min(size, total - start) for start in range(0, total, size)]


SEEDS = {"verdict": 20, "loses": 4, "search": 5, "sweep": 5, "dims": 3, "federated": 5, "check": 1}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=SEEDS)
    parser.add_argument(
        "--seeds",
        type=int,
        help="how many; by default " + ", ".join(f"{n} ({w})" for w, n in SEEDS.items()),
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--only", nargs="+", choices=LAWS, default=list(LAWS), metavar="NAME", help=", ".join(LAWS)
    )
    options = parser.parse_args()
    bench = Bench(options.seeds or SEEDS[options.what], options.threads)
    command = globals()[options.what]
    if options.what in ("search", "sweep", "federated", "check"):
        command(bench, options.only)
    else:
        command(bench)


if __name__ == "__main__":
    main()
