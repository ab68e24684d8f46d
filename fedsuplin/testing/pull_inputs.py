"""The inputs with which the rules of triggers, weightings and policies are called."""

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
BETWEEN = 200  # random inputs between those of the grids
DRAWS = (0.0, 0.5, 1 - 2**-53)
LAYERS = (1, 2, 5)


def make_trigger_inputs(setting: Setting) -> list[Arguments]:
    """Make the inputs of a trigger: pairs of gain and elapsed pulls, a grid, then random ones."""
    rng = np.random.default_rng(0)
    gains = draw_magnitudes(rng, 1e-12, 700)
    elapsed = np.floor(draw_magnitudes(rng, 1, 1e9)).tolist()
    return [*itertools.product(GAINS, ELAPSED), *zip(gains, elapsed, strict=True)]


def make_weighting_inputs(setting: Setting) -> list[Arguments]:
    """Make the inputs of a weighting: norm, noise level and residual, a grid, then random ones."""
    rng = np.random.default_rng(0)
    corners = zip(itertools.product(NORMS, SIGMAS), itertools.cycle(RESIDUALS), strict=False)
    residuals = rng.normal(size=BETWEEN).tolist()
    norms, sigmas = draw_magnitudes(rng, 1e-12, 1e3), draw_magnitudes(rng, 1e-6, 10)
    return [
        *((norm, sigma, residual) for (norm, sigma), residual in corners),
        *zip(norms, sigmas, residuals, strict=True),
    ]


def make_policy_inputs(setting: Setting) -> list[Arguments]:
    """Make the inputs of a policy: estimates, widths, targets and draws.

    All arms are present, half of them, or one.

    Estimates and widths are as at the start of a run, as later, very large, and without width.
    """
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
        absences = draw_absences(rng, setting.n_arms)
        for (estimates, widths), missing, draw in itertools.product(situations, absences, DRAWS):
            shown = np.where(missing, -np.inf, estimates), np.where(missing, 0.0, widths)
            inputs.append((*shown, targets, draw))
    return inputs


def draw_magnitudes(rng: np.random.Generator, low: float, high: float) -> list[float]:
    """Draw random inputs of a rule, whose logarithms are uniform between two bounds."""
    return [float(value) for value in np.exp(rng.uniform(math.log(low), math.log(high), BETWEEN))]


def draw_absences(rng: np.random.Generator, n_arms: int) -> list[np.ndarray]:
    """Draw which arms are missing in a policy's inputs: none, half, and all but the last."""
    half, all_but_one = rng.random(n_arms) < 0.5, np.full(n_arms, True)
    half[-1] = all_but_one[-1] = False
    return [np.full(n_arms, False), half, all_but_one]


INPUTS = {
    "trigger": make_trigger_inputs,
    "weighting": make_weighting_inputs,
    "policy": make_policy_inputs,
}
