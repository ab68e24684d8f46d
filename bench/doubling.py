"""Measure what an unknown horizon costs: epochs that double, against runs with a known horizon.

python bench/doubling.py                             two horizons, 20 seeds; some minutes
python bench/doubling.py --seeds 2 --horizons 4000   fewer, to see that it works

All runs are at the paper's setting. Those of a seed have the same problem, contexts, noise and
clients, so ratios are paired: their mean over the seeds, ± its standard error. The alternative to
doubling is a run that is made for a horizon many times too long.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import fedsuplin as fsl
from fedsuplin._shared.statistics import compute_standard_error

PAPER = {"dim": 25, "n_arms": 20, "n_clients": 20}
NOISE = 0.1
LATER = 65_536  # pulls of a first epoch that is chosen by hand
TOO_LONG = (10, 1000)  # horizons, times the true one
MEASURED = ("regret", "communication", "bytes_up")


def list_ways(variant: str, horizon: int) -> dict[str, Callable[[], Any]]:
    """Return what can be played, by name; the others are compared with the first."""

    def made(horizon: int | None) -> Any:
        return fsl.make(variant, **PAPER, horizon=horizon, noise_scale=NOISE)

    later = {**PAPER, "noise_scale": NOISE}
    found = {
        "horizon known": lambda: made(horizon),
        "unknown, doubling": lambda: made(None),
        f"unknown, doubling from {LATER:,} on": lambda: fsl.Doubling(variant, later, first=LATER),
    }
    return found | {
        f"made for {times} times the horizon": lambda times=times: made(horizon * times)
        for times in TOO_LONG
    }


def measure_ways(variant: str, horizon: int, seeds: int) -> dict[str, dict[str, np.ndarray]]:
    """Return each measure by way and seed, with the regret of uniform play, the same for all."""
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(seeds):
        problem = fsl.SyntheticProblem(**PAPER, noise_scale=NOISE, seed=seed)
        for way, algorithm in list_ways(variant, horizon).items():
            result = fsl.run(algorithm(), problem, horizon=horizon)
            for what in (*MEASURED, "uniform_regret"):
                found.setdefault(way, {}).setdefault(what, []).append(
                    float(getattr(result, what)[-1])
                )
    return {
        way: {what: np.array(values) for what, values in by.items()} for way, by in found.items()
    }


def format_mean(values: np.ndarray) -> str:
    """Format a mean with its standard error."""
    error = compute_standard_error(values)
    digits = 2 if abs(values.mean()) < 100 else 0
    return f"{values.mean():,.{digits}f} ± {error:,.{digits}f}"


def print_table(variant: str, horizon: int, seeds: int) -> None:
    """Print the table of a variant and horizon."""
    found = measure_ways(variant, horizon, seeds)
    known = found["horizon known"]
    print(f"\n{variant}, T = {horizon:,}, {seeds} seeds\n")
    print(
        "| | regret | % of uniform play's | ratio | communication | ratio | bytes up, ratio |\n"
        "|---|---|---|---|---|---|---|"
    )
    for way, values in found.items():
        ratios = {what: format_mean(values[what] / known[what]) for what in MEASURED}
        share = f"{100 * values['regret'].mean() / values['uniform_regret'].mean():.1f}"
        cells = (
            format_mean(values["regret"]),
            share,
            ratios["regret"],
            format_mean(values["communication"]),
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
