"""Compare radii, ridges and thresholds of every variant: how the practical presets were chosen.

python bench/presets.py                        every table of docs/presets.md without MovieLens
python bench/presets.py --movielens ml-20m     with MovieLens, from the folder of a release
python bench/presets.py radii async sync       some tables, some variants
python bench/presets.py --quick                two seeds and a quarter of every horizon

The tables are radii, horizons, thresholds, adversaries and floor, over eight random problems and
real data. All of them take half an hour on two cores.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import fedsuplin as fsl
from fedsuplin.plugin import Problem

LAYERED = ("async", "sync", "variance", "robust", "suplinucb")
OPTIMISM = ("oful", "fedlinucb", "async-linucb", "dislinucb")
TABLES = ("radii", "horizons", "thresholds", "adversaries", "floor")

ALPHA_SCALES = dict.fromkeys(LAYERED, (0.2, 0.15, 0.1, 0.07)) | dict.fromkeys(
    OPTIMISM, (1.0, 0.5, 0.2, 0.1, 0.05, 0.0)
)
ALPHA_SCALES["async"] = (0.5, 0.2, 0.15, 0.12, 0.1, 0.085, 0.07, 0.05)
RIDGES = (
    dict.fromkeys(LAYERED, (1.0, 0.1))
    | dict.fromkeys(OPTIMISM, (1.0,))
    | {"async": (1.0, 0.3, 0.1)}
)

# Near the best: ridge, alpha_scale.
ABOUT_THE_BEST = (
    (1.0, 0.1),
    (1.0, 0.07),
    (0.3, 0.12),
    (0.3, 0.1),
    (0.1, 0.15),
    (0.1, 0.12),
    (0.1, 0.1),
)

CS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0)
DS = (0.1, 0.3, 1.0, 3.0, 10.0)  # times the theorem's
ATTACKED_ALPHA_SCALES = (0.15, 0.1, 0.07)
CORRUPTION_SCALES = (1.0, 0.3, 0.1, 0.05, 0.0)
BUDGETS = (20.0, 100.0, 500.0)
ADVERSARIES = ("early", "targeted", "random")


# --- problems ---


@dataclass(frozen=True)
class Case:
    """A problem with the noise that a variant is made for, and the number of pulls to play."""

    name: str
    horizon: int
    make: Callable[..., Problem]
    clairvoyant: bool = True
    """Whether a linear score can come near the best arm. If not, gains are compared."""


def make_synthetic_case(
    name: str,
    dim: int,
    n_arms: int,
    n_clients: int,
    sd: float,
    horizon: int,
    kind: Any = fsl.SyntheticProblem,
) -> Case:
    """Make a synthetic case."""

    def make(variant: str, seed: int, **attack: Any) -> Problem:
        noise = (
            {"noise": "bounded", "R": 1.0, "sigma_high": sd}
            if variant == "variance"
            else {"noise_scale": sd}
        )
        return kind(
            dim,
            n_arms,
            n_clients,
            **(noise | ({"noise": "corrupted"} | attack if attack else {})),
            seed=seed,
        )

    return Case(name, horizon, make)


PAPER = make_synthetic_case("paper", 25, 20, 20, 0.1, 40_000)
LOUD = make_synthetic_case("loud", 16, 16, 4, 1.0, 100_000)
MANY = make_synthetic_case("many arms", 8, 50, 10, 0.3, 40_000)
SMALL = make_synthetic_case("small", 5, 5, 10, 0.1, 20_000)
SYNTHETIC = (
    PAPER,
    make_synthetic_case("long", 16, 16, 4, 0.1, 400_000),
    LOUD,
    MANY,
    SMALL,
    make_synthetic_case("wide", 64, 10, 8, 0.1, 40_000),
    make_synthetic_case("quiet", 10, 10, 5, 0.01, 40_000),
    make_synthetic_case(
        "fixed arms",
        10,
        20,
        10,
        0.3,
        40_000,
        functools.partial(fsl.FixedArmsProblem, own_arms=True),
    ),
)
DIGITS = Case("digits", 40_000, lambda variant, seed: fsl.DigitsProblem(n_clients=10, seed=seed))


def make_movielens_case(folder: str) -> Case:
    """Make the case of a MovieLens folder."""
    return Case(
        "MovieLens",
        37_000,
        lambda variant, seed: fsl.MovieLensProblem(folder, most_active=37, seed=seed),
        clairvoyant=False,
    )


# --- measuring ---


@dataclass(frozen=True)
class Plan:
    """How much is measured, and by how many threads."""

    cases: tuple[Case, ...]
    seeds: int
    threads: int
    shorter: int = 1

    def measure(
        self, jobs: Iterable[tuple[str, Case, dict[str, Any], dict[str, Any]]]
    ) -> np.ndarray:
        """Return, for jobs × seeds, the regret as a share of uniform play's, communication, and the
        share of regret in the second half."""
        runs = list(itertools.product(jobs, range(self.seeds)))
        with ThreadPoolExecutor(self.threads) as pool:
            found = list(pool.map(lambda run: self.play(*run[0], seed=run[1]), runs))
        return np.array(found).reshape(-1, self.seeds, 3)

    def play(
        self,
        variant: str,
        case: Case,
        parameters: dict[str, Any],
        attack: dict[str, Any],
        seed: int,
    ) -> tuple:
        """Play one run, and return its three numbers."""
        problem = case.make(variant, seed, **attack)
        rounds = case.horizon // self.shorter // problem.n_clients
        parameters = dict(parameters)
        if "times_D" in parameters:
            parameters["D"] = parameters.pop("times_D") * compute_theorem_D(
                variant, problem, rounds
            )
        result = fsl.run(variant, problem, horizon=rounds * problem.n_clients, **parameters)
        late = 1 - np.interp(result.pulls[-1] / 2, result.pulls, result.regret) / result.regret[-1]
        return result.regret[-1] / result.uniform_regret[-1], result.communication[-1], late


def compute_theorem_D(variant: str, problem: Problem, rounds: int) -> float:
    """Return the D of the theorem."""
    sizes = {"dim": problem.dim, "n_arms": problem.n_arms, "n_clients": problem.n_clients}
    return fsl.make(variant, **sizes, horizon=rounds * problem.n_clients, preset="theory").trigger.D


def compute_losses(shares: np.ndarray, cases: Sequence[Case]) -> np.ndarray:
    """Return numbers for settings × cases × seeds whose ratios compare settings."""
    clairvoyant = np.array([case.clairvoyant for case in cases])[:, None]
    return np.where(clairvoyant, shares, 1 / np.maximum(1 - shares, 1e-9))


@dataclass(frozen=True)
class Ratios:
    """Ratios of settings × cases to the best setting, by mean and by worst seed."""

    mean: np.ndarray
    worst_seed: np.ndarray

    @classmethod
    def from_shares(cls, shares: np.ndarray, cases: Sequence[Case]) -> Ratios:
        """Compute the ratios from shares of settings × cases × seeds."""
        mean, worst = (
            compute_losses(shares, cases).mean(axis=2),
            compute_losses(shares, cases).max(axis=2),
        )
        return cls(mean / mean.min(axis=0), worst / worst.min(axis=0))

    @property
    def geometric(self) -> np.ndarray:
        """The geometric mean over cases."""
        return np.exp(np.log(self.mean).mean(axis=1))

    @property
    def worst(self) -> np.ndarray:
        """The criterion: too small a radius shows in a rare bad seed first."""
        return self.worst_seed.max(axis=1)


# --- tables ---


def print_row(*cells: Any) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def print_head(title: str, *cells: Any) -> None:
    """Print the title and the head of a Markdown table."""
    print(f"\n**{title}**\n")
    print_row(*cells)
    print("|" + "---|" * len(cells))


def format_percent(share: float) -> str:
    """Format a share in per cent."""
    return f"{100 * share:.3g}"


def read_preset(variant: str) -> dict[str, Any]:
    """Return the practical preset's alpha_scale and ridge, whose row is marked."""
    made = fsl.make(variant, dim=4, n_arms=5, n_clients=2, horizon=1000)
    return {"alpha_scale": made.noise.alpha_scale, "ridge": made.setting.ridge}


def print_radii(plan: Plan, variant: str) -> None:
    """Print regret and ratios for every ridge and alpha_scale, with the preset in bold."""
    if variant == "robust":  # async if there is no corruption; otherwise it has a table of its own
        return
    grid = [{"ridge": r, "alpha_scale": a} for r in RIDGES[variant] for a in ALPHA_SCALES[variant]]
    jobs = [(variant, case, parameters, {}) for parameters in grid for case in plan.cases]
    found = plan.measure(jobs).reshape(len(grid), len(plan.cases), plan.seeds, 3)
    shares, ratios, chosen = (
        found[..., 0],
        Ratios.from_shares(found[..., 0], plan.cases),
        read_preset(variant),
    )
    names = [case.name for case in plan.cases]
    print_head(
        f"{variant}: radii", "ridge", "alpha_scale", *names, "geometric mean ratio", "worst ratio"
    )
    for i, parameters in enumerate(grid):
        words = [f"{value:g}" for value in parameters.values()]
        words = [f"**{word}**" for word in words] if parameters == chosen else words
        cells = [format_percent(share) for share in shares[i].mean(axis=1)]
        print_row(*words, *cells, f"{ratios.geometric[i]:.2f}", f"{ratios.worst[i]:.1f}")


def print_horizons(plan: Plan, variant: str) -> None:
    """Print regret of good settings on very long runs, and its share in the second half."""
    if variant != "async":
        return
    cases = (
        make_synthetic_case("long, T = 2 000 000", 16, 16, 4, 0.1, 2_000_000),
        make_synthetic_case("loud, T = 1 000 000", 16, 16, 4, 1.0, 1_000_000),
        make_synthetic_case(
            "fixed arms, shared, M = 5, T = 400 000", 10, 20, 5, 0.3, 400_000, fsl.FixedArmsProblem
        ),
    )
    jobs = [
        (variant, case, {"ridge": ridge, "alpha_scale": alpha}, {})
        for ridge, alpha in ABOUT_THE_BEST
        for case in cases
    ]
    found = plan.measure(jobs).mean(axis=1).reshape(len(ABOUT_THE_BEST), len(cases), 3)
    print_head(
        f"{variant}: long runs (second half)",
        "ridge",
        "alpha_scale",
        *(case.name for case in cases),
    )
    for (ridge, alpha), row in zip(ABOUT_THE_BEST, found, strict=True):
        print_row(
            f"{ridge:g}",
            f"{alpha:g}",
            *(f"{format_percent(share)} ({100 * late:.0f} %)" for share, _, late in row),
        )


def print_thresholds(plan: Plan, variant: str) -> None:
    """Print regret and communication over C, or over multiples of the theorem's D."""
    made = fsl.make(variant, dim=4, n_arms=5, n_clients=2, horizon=1000).trigger
    if not hasattr(made, "C") and not hasattr(made, "D"):
        return
    name, values = ("C", CS) if hasattr(made, "C") else ("times_D", DS)
    jobs = [(variant, case, {name: value}, {}) for value in values for case in plan.cases]
    found = plan.measure(jobs).mean(axis=1).reshape(len(values), len(plan.cases), 3)
    label = name.replace("times_D", "D, times the theorem's")
    print_head(f"{variant}: regret and communication", label, *(case.name for case in plan.cases))
    for value, row in zip(values, found, strict=True):
        print_row(
            f"{value:g}",
            *(f"{format_percent(share)} / {communication:.0f}" for share, communication, _ in row),
        )


def print_adversaries(plan: Plan, variant: str) -> None:
    """Print `robust` for all alpha_scales and corruption_scales, and `async`, when attacked."""
    if variant != "robust":
        return
    cases, preset = (PAPER, LOUD, SMALL), read_preset("robust")["alpha_scale"]
    attacks = [
        {"corruption": budget, "adversary": adversary}
        for budget in BUDGETS
        for adversary in ADVERSARIES
    ]
    seen = [{"corruption": 0.0}, *attacks]
    grid = list(itertools.product(ATTACKED_ALPHA_SCALES, CORRUPTION_SCALES))
    settings = [
        ("robust", {"alpha_scale": alpha, "corruption_scale": scale}) for alpha, scale in grid
    ] + [("async", {})]
    jobs = [
        (who, case, given, attack) for who, given in settings for case in cases for attack in seen
    ]
    shares = plan.measure(jobs)[..., 0].reshape(len(settings), len(cases), len(seen), plan.seeds)

    for case, of_case in zip(cases, np.moveaxis(shares, 1, 0), strict=True):
        heads = ["none", *(f"{attack['adversary']} {attack['corruption']:g}" for attack in attacks)]
        print_head(f"robust, {case.name}: alpha_scale {preset:g}", "corruption_scale", *heads)
        for (alpha, scale), row in zip([*grid, (preset, "`async`")], of_case, strict=True):
            if alpha == preset:
                print_row(scale, *(format_percent(share) for share in row.mean(axis=1)))

    attacked = shares[:-1, :, 1:].reshape(len(grid), -1, plan.seeds)
    ratios = Ratios.from_shares(attacked, [PAPER] * attacked.shape[1])
    print_head(
        "robust: ratios over all that are attacked",
        "alpha_scale",
        "corruption_scale",
        "geometric mean ratio",
        "worst ratio",
    )
    for (alpha, scale), geometric, worst in zip(grid, ratios.geometric, ratios.worst, strict=True):
        print_row(f"{alpha:g}", f"{scale:g}", f"{geometric:.2f}", f"{worst:.1f}")


def print_floor(plan: Plan, variants: Sequence[str]) -> None:
    """Print mean and worst seed of each preset, in per cent of uniform play's regret."""
    jobs = [(variant, case, {}, {}) for variant in variants for case in plan.cases]
    shares = plan.measure(jobs)[..., 0].reshape(len(variants), len(plan.cases), plan.seeds)
    print_head("The presets: mean (worst seed)", "variant", *(case.name for case in plan.cases))
    for variant, row in zip(variants, shares, strict=True):
        print_row(
            f"`{variant}`",
            *(f"{format_percent(each.mean())} ({format_percent(each.max())})" for each in row),
        )


# --- command line ---


def parse_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "what",
        nargs="*",
        metavar="table or variant",
        help=f"{', '.join(TABLES)}; or variants. [all]",
    )
    parser.add_argument(
        "--movielens", metavar="FOLDER", help="a MovieLens release, for real data beside the digits"
    )
    parser.add_argument("--seeds", type=int, default=6, help="runs of each setting. [6]")
    parser.add_argument("--threads", type=int, default=2, help="runs at a time. [2]")
    parser.add_argument("--quick", action="store_true", help="two seeds, a quarter of each horizon")
    given = parser.parse_args()
    for word in given.what:
        if word not in (*TABLES, *LAYERED, *OPTIMISM):
            parser.error(
                f"{word!r} is neither a table ({', '.join(TABLES)}) "
                f"nor one of {', '.join(LAYERED + OPTIMISM)}"
            )
    return given


def main() -> None:
    given = parse_options()
    cases = (
        *SYNTHETIC,
        DIGITS,
        *([make_movielens_case(given.movielens)] if given.movielens else []),
    )
    plan = (
        Plan(cases, 2, given.threads, 4) if given.quick else Plan(cases, given.seeds, given.threads)
    )
    variants = [word for word in given.what if word not in TABLES] or [*LAYERED, *OPTIMISM]
    tables = [word for word in given.what if word in TABLES] or list(TABLES)
    by_variant = {"radii": print_radii, "horizons": print_horizons, "thresholds": print_thresholds}
    by_variant["adversaries"] = print_adversaries
    for table, variant in itertools.product(tables, variants):
        if table in by_variant:
            by_variant[table](plan, variant)
    if "floor" in tables:
        print_floor(plan, variants)


if __name__ == "__main__":
    main()
