"""The inputs that rules are asked with. ·"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ..contracts.setting import Setting

Arguments = tuple[Any, ...]
GAINS = (0.0, 1e-12, 1e-6, 0.01, 0.5, math.log(2), 1.0, 30.0, 700.0)
ELAPSED = (1.0, 2.0, 3.0, 10.0, 99.0, 100.0, 101.0, 1e4, 1e9)
NORMS = (0.0, 1e-12, 1e-6, 0.01, 0.5, 1.0, 3.0, 100.0, 1e3)
SIGMAS = (0.0, 1e-6, 0.01, 0.5, 1.0, 10.0)
RESIDUALS = (0.0, 0.1, -1.0, 1e3, -1e-6)
BETWEEN = 200
DRAWS = (0.0, 0.5, 1 - 2**-53)
LAYERS = (1, 2, 5)


def make_trigger_inputs(setting: Setting) -> list[Arguments]:
    rng = np.random.default_rng(0)
    between = zip(
        draw_magnitudes(rng, 1e-12, 700),
        np.floor(draw_magnitudes(rng, 1, 1e9)).tolist(),
        strict=True,
    )
    return [*itertools.product(GAINS, ELAPSED), *between]


def make_weighting_inputs(setting: Setting) -> list[Arguments]:
    rng = np.random.default_rng(0)
    corners = zip(itertools.product(NORMS, SIGMAS), itertools.cycle(RESIDUALS), strict=False)
    residuals = rng.normal(size=BETWEEN).tolist()
    between = zip(
        draw_magnitudes(rng, 1e-12, 1e3), draw_magnitudes(rng, 1e-6, 10), residuals, strict=True
    )
    return [*((norm, sigma, residual) for (norm, sigma), residual in corners), *between]


def make_policy_inputs(setting: Setting) -> list[Arguments]:
    """Estimates and widths as they are at the start, later, far out and without any width; all arms there, half, and one."""
    rng, inputs = np.random.default_rng(0), []
    for n_layers in LAYERS:
        shape = (n_layers, setting.n_arms)
        targets = 0.5 ** np.arange(n_layers)
        situations = [
            (np.zeros(shape), np.ones(shape)),
            (rng.normal(size=shape), rng.uniform(0, 2, shape)),
            (1e3 * rng.normal(size=shape), 1e-3 * rng.uniform(size=shape)),
            (rng.normal(size=shape), np.zeros(shape)),
        ]
        for (estimates, widths), missing, draw in itertools.product(
            situations, draw_absences(rng, setting.n_arms), DRAWS
        ):
            inputs.append(
                (
                    np.where(missing, -np.inf, estimates),
                    np.where(missing, 0.0, widths),
                    targets,
                    draw,
                )
            )
    return inputs


def draw_magnitudes(rng: np.random.Generator, low: float, high: float) -> list[float]:
    return [float(value) for value in np.exp(rng.uniform(math.log(low), math.log(high), BETWEEN))]


def draw_absences(rng: np.random.Generator, n_arms: int) -> list[np.ndarray]:
    """Which arms are not there; the last one always is."""
    half, all_but_one = rng.random(n_arms) < 0.5, np.full(n_arms, True)
    half[-1] = all_but_one[-1] = False
    return [np.full(n_arms, False), half, all_but_one]


INPUTS = {
    "trigger": make_trigger_inputs,
    "weighting": make_weighting_inputs,
    "policy": make_policy_inputs,
}
