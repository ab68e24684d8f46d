"""Checks for noise models."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from ..problems.synthetic import draw_noise
from .applying import applies_to
from .subject import Subject, bind_plugin, call_plugin, fail

SAMPLE = 20_000
STANDARD_ERRORS = 6  # a correct model fails for one seed in 500 million, and ours is fixed
BY_PULL = "draw pull by pull, from rng alone"


@applies_to("noise_models")
def check_numbers_fit_the_layers(subject: Subject) -> None:
    """Check that a noise model has a layer, and a radius and a target width for each.

    `n_layers` is a whole number; radii and target widths are finite and not negative.
    """
    for setting in subject.settings:
        model = bind_plugin(subject.make(), setting)
        n_layers = call_plugin(f"n_layers({setting})", model.n_layers, setting)
        if not isinstance(n_layers, numbers.Integral) or isinstance(n_layers, bool) or n_layers < 1:
            fail(f"n_layers({setting}) is {n_layers!r}; it must be a whole number of at least 1")
        lengths = {"radii": n_layers, "target_widths": n_layers, "radius_growth": 2}
        for method, length in lengths.items():
            if not hasattr(model, method):  # only radius_growth may be missing
                continue
            what = f"{method}({setting})"
            values = np.asarray(call_plugin(what, getattr(model, method), setting), dtype=float)
            if values.shape != (length,) or not np.isfinite(values).all() or (values < 0).any():
                fail(f"{what} is {values}; it must be {length} finite numbers of at least 0")


@applies_to("noise_models")
def check_numbers_are_the_same_again(subject: Subject) -> None:
    """Check that a noise model's numbers depend on the setting and its parameters only.

    These are layers, radii and target widths.
    """
    for setting in subject.settings:
        model = bind_plugin(subject.make(), setting)
        for method in ("n_layers", "radii", "target_widths", "radius_growth"):
            if not hasattr(model, method):
                continue
            what = f"{method}({setting})"
            first, *others = (
                np.asarray(call_plugin(what, getattr(each, method), setting))
                for each in (model, model, bind_plugin(subject.make(), setting))
            )
            for other in others:
                if not np.array_equal(first, other):
                    fail(f"{what} is {first}, and asked again {other}")


@applies_to("noise_models")
def check_draws_are_legal(subject: Subject) -> None:
    """Check that `draw(rng, n)` of a noise model gives n finite numbers and n levels ≥ 0.

    A problem draws from a model that is not bound.
    """
    for n in (1, 2, 1000):
        call_plugin(f"draw(rng, {n})", draw_noise, subject.make(), np.random.default_rng(n), n)


@applies_to("noise_models")
def check_draws_do_not_depend_on_the_split(subject: Subject) -> None:
    """Check that a noise model draws ten pulls as it draws three and then seven.

    Both start from the same seed: a run may be cut into chunks anywhere.
    """
    whole = draw_noise(subject.make(), np.random.default_rng(1), 10)
    model, rng = subject.make(), np.random.default_rng(1)
    parts = [
        np.concatenate(values)
        for values in zip(*(draw_noise(model, rng, n) for n in (3, 7)), strict=True)
    ]
    for what, one, other in zip(("noise", "sigma"), whole, parts, strict=True):
        if (one != other).any():
            split = f"of draw(rng, 3) and draw(rng, 7) {other}"
            fail(f"the {what} of draw(rng, 10) is {one}, {split}: {BY_PULL}")


@applies_to("noise_models")
def check_noise_has_mean_zero(subject: Subject) -> None:
    """Check that a noise model's draws have the mean zero, within six standard errors."""
    noise, _ = draw_noise(subject.make(), np.random.default_rng(2), SAMPLE)
    mean, error = noise.mean(), noise.std() / math.sqrt(SAMPLE)
    if abs(mean) > STANDARD_ERRORS * error:
        found = f"{mean:.4g}, with a standard error of {error:.2g}"
        fail(f"the mean of draw(default_rng(2), {SAMPLE}) is {found}; it must be 0")


@applies_to("noise_models", when=lambda model: hasattr(model, "corrupt"))
def check_corruption_is_legal(subject: Subject) -> None:
    """Check that a noise model's `corrupt(rng, means, best)` gives every arm a finite number.

    They must not depend on how pulls are split into chunks, and a `budget` is at least 0.
    """
    model, n, n_arms = subject.make(), 10, subject.game.n_arms
    if not getattr(model, "budget", math.inf) >= 0:
        fail(f"its budget is {model.budget!r}; it must be a number of at least 0")
    means = np.random.default_rng(3).uniform(-1, 1, (n, n_arms))
    whole = corrupt_in_chunks(model, means, [n])
    parts = corrupt_in_chunks(subject.make(), means, [3, n - 3])
    if (whole != parts).any():
        split = f"of the first 3 and then the others {parts}"
        fail(f"corrupt of {n} pulls is {whole}, {split}: {BY_PULL}")


def corrupt_in_chunks(model: Any, means: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Return what a noise model's adversary adds when asked in chunks of these sizes."""
    rng, found = np.random.default_rng(4), []
    for part in np.split(means, np.cumsum(sizes)[:-1]):
        what = f"corrupt(rng, means, best) for means of shape {part.shape}"
        given = call_plugin(what, model.corrupt, rng, part.copy(), part.argmax(axis=1))
        added = np.asarray(given, dtype=float)
        if added.shape != part.shape or not np.isfinite(added).all():
            fail(f"{what} is {added}; it must be finite numbers of the same shape")
        found.append(added)
    return np.concatenate(found)
