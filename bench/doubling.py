"""What an unknown horizon costs: regret and communication of epochs that double, against a run that knows how long it will be.

python bench/doubling.py                        async and sync at the paper's setting, two horizons, 20 seeds; some minutes
python bench/doubling.py --seeds 2 --horizons 4000   fewer, to see that it works

The runs of a seed have the same problem, contexts, noise and clients, so ratios are paired: their mean over the seeds, ± its
standard error. "told too much" is a run that was made for a horizon many times too long, which is the other thing that somebody
can do who does not know it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import fedsuplin as fsl

PAPER = {"dim": 25, "n_arms": 20, "n_clients": 20}
NOISE = 0.1
LATER = 65_536  # pulls of a first epoch that somebody chose
TOO_MUCH = (10, 1000)
MEASURED = ("regret", "communication", "bytes_up")


def ways(variant: str, horizon: int) -> dict[str, Callable[[], Any]]:
    """What can be played, by name: the first is what the others are compared with."""

    def made(horizon: int | None) -> Any:
        return fsl.make(variant, **PAPER, horizon=horizon, noise_scale=NOISE)

    later = {**PAPER, "noise_scale": NOISE}
    found = {
        "horizon known": lambda: made(horizon),
        "unknown, doubling": lambda: made(None),
        f"unknown, doubling from {LATER:,} on": lambda: fsl.Doubling(variant, later, first=LATER),
    }
    return found | {
        f"told {times} times too much": lambda times=times: made(horizon * times)
        for times in TOO_MUCH
    }


def measured(variant: str, horizon: int, seeds: int) -> dict[str, dict[str, np.ndarray]]:
    """By way and by what is measured, a number for each seed; with uniform play's regret, which is the same for all."""
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(seeds):
        problem = fsl.SyntheticProblem(**PAPER, noise_scale=NOISE, seed=seed)
        for way, algorithm in ways(variant, horizon).items():
            result = fsl.run(algorithm(), problem, horizon=horizon)
            for what in (*MEASURED, "uniform_regret"):
                found.setdefault(way, {}).setdefault(what, []).append(
                    float(getattr(result, what)[-1])
                )
    return {
        way: {what: np.array(values) for what, values in by.items()} for way, by in found.items()
    }


def shown(values: np.ndarray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    digits = 2 if abs(values.mean()) < 100 else 0
    return f"{values.mean():,.{digits}f} ± {error:,.{digits}f}"


def print_table(variant: str, horizon: int, seeds: int) -> None:
    found = measured(variant, horizon, seeds)
    known = found["horizon known"]
    print(f"\n{variant}, T = {horizon:,}, {seeds} seeds\n")
    print(
        "| | regret | % of uniform play's | ratio | communication | ratio | bytes up, ratio |\n|---|---|---|---|---|---|---|"
    )
    for way, values in found.items():
        ratios = {what: shown(values[what] / known[what]) for what in MEASURED}
        share = f"{100 * values['regret'].mean() / values['uniform_regret'].mean():.1f}"
        cells = (
            shown(values["regret"]),
            share,
            ratios["regret"],
            shown(values["communication"]),
            ratios["communication"],
        )
        print(f"| {way} | {' | '.join(cells)} | {ratios['bytes_up']} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--variants", nargs="+", default=["async", "sync"])
    parser.add_argument("--horizons", nargs="+", type=int, default=[40_000, 640_000])
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    for variant in given.variants:
        for horizon in given.horizons:
            print_table(variant, horizon, given.seeds)


if __name__ == "__main__":
    main()
