"""How the practical preset was chosen: regret against uniform play over several problems, for each variant and radius.

python bench/presets.py             the table of docs/presets.md, a few minutes on two cores
python bench/presets.py async sync  some variants only
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import fedsuplin as fsl

SEEDS = 3
BUDGET = 50.0
ALPHA_SCALES = (1.0, 0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02)
RIDGES = (1.0, 0.1)
PROBLEMS = (  # d, K, M, noise scale, T
    (25, 20, 20, 0.1, 40_000),
    (16, 16, 4, 0.1, 100_000),
    (16, 16, 4, 1.0, 100_000),
    (8, 50, 10, 0.3, 40_000),
    (5, 5, 10, 0.1, 20_000),
)
HEADS = [f"d={d} K={k} M={m} sd={s:g} T={t // 1000}k" for d, k, m, s, t in PROBLEMS]


def problem_for(variant: str, sizes: tuple, seed: int) -> fsl.SyntheticProblem:
    """The noise that the variant is made for: for `variance` σ_t uniform up to the noise scale within |ε| ≤ 1."""
    d, n_arms, n_clients, scale, _ = sizes
    noise = {
        "variance": {"noise": "bounded", "R": 1.0, "sigma_high": scale},
        "robust": {"noise": "corrupted", "noise_scale": scale, "corruption": BUDGET},
    }
    return fsl.SyntheticProblem(d, n_arms, n_clients, **noise.get(variant, {"noise_scale": scale}), seed=seed)


def share_of_uniform(variant: str, sizes: tuple, **parameters: float) -> tuple[float, float]:
    """Mean regret as a percentage of uniform play's, and mean communication, over the seeds."""
    runs = [fsl.run(variant, problem_for(variant, sizes, seed), horizon=sizes[-1], **parameters) for seed in range(SEEDS)]
    return (
        100 * np.mean([run.regret[-1] / run.uniform_regret[-1] for run in runs]),
        np.mean([run.communication[-1] for run in runs]),
    )


def print_against_silence() -> None:
    """The chosen preset as it is, and the same learners when they never talk (eager, since they wait for nobody)."""
    print("| variant | " + " | ".join(HEADS) + " |")
    print("|---|" + "---|" * len(HEADS))
    for label, variant, parameters in (
        ("async", "async", {}),
        ("sync", "sync", {}),
        ("async, never talking", "async", {"trigger": "never", "lazy": False}),
    ):
        cells = [f"{share_of_uniform(variant, sizes, **parameters)[0]:.2f} %" for sizes in PROBLEMS]
        print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


def main(variants: list[str]) -> None:
    print("| variant | ridge | alpha_scale | " + " | ".join(HEADS) + " |")
    print("|---|---|---|" + "---|" * len(HEADS))
    with ThreadPoolExecutor(2) as pool:
        for variant in variants:
            for ridge in RIDGES:
                for alpha_scale in ALPHA_SCALES:
                    measured = pool.map(
                        lambda sizes, v=variant, r=ridge, a=alpha_scale: share_of_uniform(v, sizes, ridge=r, alpha_scale=a),
                        PROBLEMS,
                    )
                    cells = [f"{share:.2f} % / {communication:.0f}" for share, communication in measured]
                    print(f"| {variant} | {ridge:g} | {alpha_scale:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["silence"]:
        print_against_silence()
    else:
        main(sys.argv[1:] or ["async", "sync", "variance", "robust"])
