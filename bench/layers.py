"""Federated against alone, and layers against one layer of optimism: the tables of docs/baselines.md, each with its command.

python bench/layers.py verdict    does talking help, like against like, at the paper's setting (20 seeds)
python bench/layers.py loses      random contexts, where one layer of optimism is far ahead
python bench/layers.py search     one player, contexts that do not explore for free: each family by the theorem, preset and tuned
python bench/layers.py sweep      the whole sweep of radii behind `search`
python bench/layers.py dims       theorem radii on one direction after another, as d grows
python bench/layers.py federated  the federated policies on some of those problems
python bench/layers.py check      that what these problems yield does not depend on how it is cut, and is no longer than 1

Options: --seeds N, --threads N, --only NAME … (problems of `search`, `sweep`, `federated` and `check`).
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
from fedsuplin.plugin import Chunk, Problem, Stream

Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]
"""The contexts (pulls × arms × dim) of the pulls with these numbers; each pull takes the same number of draws."""


# --- context sequences that do not explore for free ------------------------------------------------------------------------


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Law:
    """How contexts come, and what θ is; `begin` gives θ and the draw for a seed's generator."""

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
    """A law with a seed: hidden θ, Gaussian noise, clients in turns, arms in random order."""

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
        return SequenceStream(self)


class SequenceStream(Stream):
    """One pass; one generator for each purpose, so that what it yields does not depend on how it is cut."""

    def __init__(self, problem: Sequence) -> None:
        self._problem, self._start = problem, 0
        self._contexts, self._order, self._noise = (
            np.random.default_rng(seed) for seed in problem.stream_seeds
        )

    def take(self, n: int) -> Chunk:
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
    """Random contexts, random θ: they explore for free."""
    return unit(rng.standard_normal(law.dim)), lambda rng, t: unit(
        rng.standard_normal((len(t), law.n_arms, law.dim))
    )


def planes(stretch: int) -> Callable:
    """Contexts random within a random plane, a new one after `stretch` pulls."""

    def begin(law: Law, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        theta = unit(rng.standard_normal(law.dim))
        bases = np.linalg.qr(rng.standard_normal((-(-law.horizon // stretch), law.dim, 2)))[0]

        def draw(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
            return np.einsum(
                "ndr,nkr->nkd",
                bases[t // stretch],
                unit(rng.standard_normal((len(t), law.n_arms, 2))),
            )

        return theta, draw

    return begin


def rare_arm(share: float) -> Callable:
    """Arms nearly equal, in one half of the coordinates; in a few rounds one arm from the other half, where θ is long."""

    def begin(law: Law, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        half = law.dim // 2
        theta = np.concatenate(
            [0.1 * unit(rng.standard_normal(half)), 0.9 * unit(rng.standard_normal(law.dim - half))]
        )

        def draw(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
            contexts = np.zeros((len(t), law.n_arms, law.dim))
            numbers = rng.standard_normal(
                (len(t), law.n_arms + 2, law.dim)
            )  # one block of draws a pull, whatever it is for
            contexts[:, :, :half] = unit(numbers[:, :-2, :half])
            rare = numbers[:, -1, 0] < normal_quantile(share)
            contexts[rare, 0] = 0.0
            contexts[rare, 0, half:] = unit(numbers[rare, -2, half:])
            return contexts

        return theta, draw

    return begin


def normal_quantile(p: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(p))


def hidden_half(share: float) -> Callable:
    """Random contexts in one half of the coordinates; in the other half only after that share of the pulls."""

    def begin(law: Law, rng: np.random.Generator) -> tuple[np.ndarray, Draw]:
        half = law.dim // 2

        def draw(rng: np.random.Generator, t: np.ndarray) -> np.ndarray:
            numbers = unit(rng.standard_normal((len(t), law.n_arms, half)))
            late = t >= share * law.horizon
            contexts = np.zeros((len(t), law.n_arms, law.dim))
            contexts[~late, :, :half], contexts[late, :, law.dim - half :] = (
                numbers[~late],
                numbers[late],
            )
            return contexts

        return unit(rng.standard_normal(law.dim)), draw

    return begin


def blocks(gap: float) -> Callable:
    """One direction after another, T/d pulls each: e_j, worth ±gap, or the zero arm. `gap` is in units of √(d/T)."""

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
    """For a share of the pulls a random e_j or the zero arm: a few e_j are worth ±0.1, the other m a little less than
    nothing. Then only Σe_j/√m against e_0, which is worse by `gap` (in units of √(d/T)).

    Optimism leaves an e_j when luck was against it, so that its estimates are too low, and the sum adds them up.
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


# --- measuring -------------------------------------------------------------------------------------------------------------

ALPHA_SCALES = (1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.0)
RIDGES = (1.0, 0.01)
TUNING_SEEDS = (1000, 1001)  # radii are chosen on these and reported on others
FAMILIES = {"oful": "one layer", "suplinucb": "layers"}


class Bench:
    """Runs one policy over seeds; the same seed is the same problem for every policy."""

    def __init__(self, seeds: int, threads: int) -> None:
        self.seeds, self.threads = range(seeds), threads

    def compared(
        self,
        policy: str,
        problem: Callable[[int], Any],
        horizon: int,
        seeds: Iterable[int] | None = None,
        **given,
    ):
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
        """Final regret, a number for each seed."""
        return self.compared(
            policy, functools.partial(Sequence, law, n_clients), law.horizon, seeds, **given
        )[0]


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def shown(values: np.ndarray) -> str:
    mean, error = float(values.mean()), standard_error(values)
    digits = 0 if mean >= 100 else 1 if mean >= 10 else 2
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}".replace(",", " ")


def row(*cells: Any) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def head(*cells: str) -> None:
    row(*cells)
    print("|" + "---|" * len(cells))


def radius_text(algorithm: fsl.Algorithm) -> str:
    """The radii as numbers; where one grows, by its formula."""
    growth, level = algorithm.radius_growth
    radii = algorithm.radii
    if growth:
        return f"{radii[0]:.3g} + {growth:.3g}√({level:.2g} + ln det(A)/det(λI))"
    return (
        f"{radii[0]:.3g}"
        if len(radii) == 1
        else f"{radii[0]:.3g} in layer 0, {radii[1]:.3g} in layers 1 to {len(radii) - 1}"
    )


def trigger_text(algorithm: fsl.Algorithm) -> str:
    named = {name: getattr(algorithm.trigger, name, None) for name in ("C", "D", "gamma_u")}
    return (
        ", ".join(f"{name} = {value:.3g}" for name, value in named.items() if value is not None)
        or "none"
    )


# --- 1: does talking help --------------------------------------------------------------------------------------------------

PAPER = {"dim": 25, "n_arms": 20, "n_clients": 20}
PAIRS = (("fedlinucb", "oful"), ("async", "suplinucb"), ("sync", "suplinucb"))
PRESETS = {"practical": {}, "theory": {"preset": "theory", "noise_scale": 0.1}}


def verdict(bench: Bench) -> None:
    def problem(seed: int) -> fsl.SyntheticProblem:
        return fsl.SyntheticProblem(**PAPER, noise_scale=0.1, seed=seed)

    policies = list(dict.fromkeys(policy for pair in PAIRS for policy in pair))
    runs = {}
    head(
        "preset",
        "policy",
        "alpha_scale",
        "ridge",
        "trigger",
        "radius",
        "regret a client",
        "% of uniform",
        "communication",
    )
    for preset, given in PRESETS.items():
        for policy in policies:
            regret, communication, found = bench.compared(policy, problem, 40_000, **given)
            algorithm, share = found.algorithms[policy], found.rows()[0]["percent_of_uniform"]
            runs[preset, policy] = regret / PAPER["n_clients"]
            numbers = (
                f"{algorithm.noise.alpha_scale:g}",
                f"{algorithm.setting.ridge:g}",
                trigger_text(algorithm),
            )
            measured = (shown(runs[preset, policy]), f"{share:.1f}", f"{communication.mean():.0f}")
            row(preset, f"`{policy}`", *numbers, radius_text(algorithm), *measured)
    print()
    head(
        "preset",
        "talking",
        "alone",
        "alone − talking, a client",
        "in standard errors",
        "lower by more than two standard errors",
    )
    for preset in PRESETS:
        for together, alone in PAIRS:
            gain = runs[preset, alone] - runs[preset, together]
            errors = gain.mean() / standard_error(gain)
            holds = "holds" if errors > 2 else "does not hold"
            row(preset, f"`{together}`", f"`{alone}`", shown_signed(gain), f"{errors:.1f}", holds)


def shown_signed(values: np.ndarray) -> str:
    return f"{values.mean():.2f} ± {standard_error(values):.2f}"


# --- 2: where the layers lose ----------------------------------------------------------------------------------------------

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
    def problem(seed: int) -> fsl.SyntheticProblem:
        return fsl.SyntheticProblem(dim=16, n_arms=16, n_clients=4, noise_scale=0.1, seed=seed)

    head(
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
            regret, communication, found = bench.compared(policy, problem, 400_000, **keywords)
            cells.append(shown(regret))
            talked.append(communication.mean())
        row(label, found.algorithms[policy].n_layers, *cells, f"{talked[0]:.0f}")


# --- 3: where they might pay -----------------------------------------------------------------------------------------------


def theory(law: Law, **given: float) -> dict[str, Any]:
    """The theorem's formulas for this noise; alpha_scale and ridge may be given."""
    return {"preset": "theory", "noise_scale": law.noise_scale, **given}


@dataclass(frozen=True)
class Tuned:
    """The best of the same grid for each family."""

    alpha_scale: float
    ridge: float
    best_ridge: float  # at alpha_scale 1


def tuned(bench: Bench, policy: str, law: Law, n_clients: int = 1, **given: Any) -> Tuned:
    at = functools.partial(bench.regret, policy, law, n_clients, TUNING_SEEDS, **given)
    means = {
        (a, r): float(at(**theory(law, alpha_scale=a, ridge=r)).mean())
        for a in ALPHA_SCALES
        for r in RIDGES
    }
    alpha_scale, ridge = min(means, key=means.get)
    return Tuned(alpha_scale, ridge, min(RIDGES, key=lambda r: means[1.0, r]))


def search(bench: Bench, names: list[str]) -> None:
    columns = ("theorem", "theorem, better ridge", "practical preset", "tuned", "at")
    head("contexts", "family", *columns, "tuned: one layer − layers, in standard errors")
    for name in names:
        law, last = LAWS[name], {}
        row(str(law), "uniform", shown(bench.regret("uniform", law)), *[""] * 5)
        for policy, family in FAMILIES.items():
            best = tuned(bench, policy, law)
            last[policy] = bench.regret(
                policy, law, **theory(law, alpha_scale=best.alpha_scale, ridge=best.ridge)
            )
            cells = [
                shown(bench.regret(policy, law, **theory(law))),
                shown(bench.regret(policy, law, **theory(law, ridge=best.best_ridge)))
                + f" (λ = {best.best_ridge:g})",
                shown(bench.regret(policy, law)),
                shown(last[policy]),
                f"alpha_scale {best.alpha_scale:g}, λ = {best.ridge:g}",
            ]
            row(
                "",
                f"{family} (`{policy}`)",
                *cells,
                in_errors(last["oful"] - last[policy]) if policy != "oful" else "",
            )


def in_errors(difference: np.ndarray) -> str:
    return (
        f"{difference.mean() / standard_error(difference):.1f}"
        if difference.any()
        else "the same runs"
    )


def sweep(bench: Bench, names: list[str]) -> None:
    for name in names:
        law = LAWS[name]
        print(f"\n{law}\n")
        head(
            "alpha_scale",
            *(f"`{policy}`, λ = {ridge:g}" for policy in FAMILIES for ridge in RIDGES),
        )
        for scale in ALPHA_SCALES:
            given = [
                (policy, theory(law, alpha_scale=scale, ridge=ridge))
                for policy in FAMILIES
                for ridge in RIDGES
            ]
            row(
                f"{scale:g}",
                *(shown(bench.regret(policy, law, **keywords)) for policy, keywords in given),
            )


def dims(bench: Bench) -> None:
    """Theorem radii, 1600 pulls a direction; each family with the better of two ridges.

    d doubles, so that the last target width, 2^-S d^1.5/√T with S = ⌈log2 d⌉, stays the same against √(d/T).
    """
    head(
        "d",
        "T",
        *(f"`{policy}`, λ = {ridge:g}" for policy in FAMILIES for ridge in RIDGES),
        "better one layer / better layers",
    )
    for dim in (12, 25, 50, 100, 200):
        law = Law("blocks", dim, 2, 1600 * dim, 0.1, blocks(3.2))
        found = {
            (p, r): bench.regret(p, law, **theory(law, ridge=r)) for p in FAMILIES for r in RIDGES
        }
        better = {
            policy: min(found[policy, ridge].mean() for ridge in RIDGES) for policy in FAMILIES
        }
        row(
            dim,
            law.horizon,
            *(shown(values) for values in found.values()),
            f"{better['oful'] / better['suplinucb']:.2f}",
        )


CLIENTS = 4
FEDERATED = {label: ONE_LAYER[label] for label in list(ONE_LAYER)[1:3] + list(ONE_LAYER)[4:]} | {
    label: LAYERED[label] for label in ("async", "sync")
}


def federated(bench: Bench, names: list[str]) -> None:
    head(
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
            best = tuned(bench, policy, law, CLIENTS, **given)
            at = functools.partial(bench.regret, policy, law, CLIENTS)
            keywords = theory(law, alpha_scale=best.alpha_scale, ridge=best.ridge) | given
            _, communication, _ = bench.compared(
                policy, functools.partial(Sequence, law, CLIENTS), law.horizon, **keywords
            )
            cells = [
                shown(at(**theory(law), **given)),
                shown(at(**theory(law, ridge=best.best_ridge), **given))
                + f" (λ = {best.best_ridge:g})",
                ""
                if given.get("radius") == "theorem"
                else shown(at()),  # the preset has OFUL's radius
                shown(at(**keywords)),
                f"alpha_scale {best.alpha_scale:g}, λ = {best.ridge:g}",
                f"{communication.mean():.0f}",
            ]
            row(f"{law}, M={CLIENTS}" if label == next(iter(FEDERATED)) else "", label, *cells)


# --- the problems themselves -----------------------------------------------------------------------------------------------


def check(bench: Bench, names: list[str]) -> None:
    """A stream cut in three is the stream in one piece; contexts and θ are no longer than 1."""
    head("problem", "same however cut", "longest context", "‖θ‖")
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
            for n in cut_up(problem.horizon, 5000)
        )
        row(name, "yes" if same else "NO", f"{longest:.6f}", f"{np.linalg.norm(problem.theta):.3f}")
        if not same or longest > 1 + 1e-9 or np.linalg.norm(problem.theta) > 1 + 1e-9:
            raise SystemExit(f"{name} is not a proper problem")


def cut_up(total: int, size: int) -> list[int]:
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
