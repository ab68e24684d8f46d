"""Conformance checks: every built-in passes them, and for each check there is a plugin that breaks just what it claims."""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, MissingExtra, UnknownName
from fedsuplin.plugin import Chunk, Problem, Setting, Stream
from fedsuplin.testing.pull_inputs import make_trigger_inputs, make_weighting_inputs
from fedsuplin.testing.subject import GAME, NotApplicable
from fedsuplin.testing.suite import (
    CHECKS,
    check,
    conformance,
    make_registered_subject,
    name_claim,
    run_check,
    select_checks,
)
from fedsuplin_ext.rules import low_level
from fedsuplin_plugins.arrivals import ClickLeave, RoundRobin
from fedsuplin_plugins.noise import Corrupted, Gaussian

ARRAYS = {
    "contexts": np.random.default_rng(0).uniform(-0.5, 0.5, (40, 4, 3)),
    "clients": np.arange(40) % 2,
    "theta": [0.1, 0.2, 0.3],
    "mask": np.arange(160).reshape(40, 4) % 3 != 0,
}
MOVIES = tempfile.TemporaryDirectory()  # a made-up release: 30 movies, two users
atexit.register(MOVIES.cleanup)
WORDS = ["dark", "funny", "space", "ocean", "love", "war"]
for file, rows in {
    "movies.csv": [
        "movieId,title,genres",
        *(f"{i},Movie {i},{WORDS[i % 6]}|{WORDS[i % 5]}" for i in range(30)),
    ],
    "ratings.csv": [
        "userId,movieId,rating,timestamp",
        *(f"{u},{i},{2 + i % 4},0" for u in (7, 8) for i in range(12 + u)),
    ],
}.items():
    Path(MOVIES.name, file).write_text("\n".join(rows))

test_built_ins_conform = conformance(
    "fedsuplin",
    parameters={
        "movielens": {"folder": MOVIES.name, "dim": 3, "n_arms": 4, "most_active": 2},
        "digits": {"n_clients": 2},
        "synthetic": {"dim": 3, "n_arms": 4, "n_clients": 2},
        "array": ARRAYS,
        "fixed-arms": {"dim": 3, "n_arms": 4, "n_clients": 2, "own_arms": True},
        "weightings-corruption": {"corruption": 5.0},  # without, it is 1 whatever it is asked
        "corrupted": {"corruption": 5.0},
    },
)

# --- plugins, each broken in one way -----------------------------------------------------------------------------------------

REAL, POINTER = ctypes.c_double, ctypes.POINTER(ctypes.c_double)
TRIGGER = ctypes.CFUNCTYPE(ctypes.c_int, REAL, REAL, ctypes.c_void_p)
COUNTING_TRIGGER = ctypes.CFUNCTYPE(ctypes.c_int, REAL, REAL, POINTER, ctypes.c_void_p)
WEIGHT = ctypes.CFUNCTYPE(REAL, REAL, REAL, ctypes.c_void_p)
CHOICE = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, POINTER, POINTER, ctypes.c_int, ctypes.c_int, REAL, ctypes.c_void_p
)


def plugin(method: str, rule: Any, compiled: Any = None, **attributes: Any) -> Any:
    """An object with one rule, its compiled form and attributes beside it."""
    body = {method: staticmethod(rule), "__doc__": "Made for a test.", **attributes}
    if compiled is not None:
        body["compiled"] = lambda self: low_level(compiled)
    return type("Made", (), body)()


def trigger(rule: Any, compiled: Any = None, **attributes: Any) -> Any:
    signature = COUNTING_TRIGGER if "state_size" in attributes else TRIGGER
    return plugin("fires", rule, compiled and signature(compiled), **attributes)


def weighting(rule: Any, compiled: Any = None, **attributes: Any) -> Any:
    return plugin("weight", rule, compiled and WEIGHT(compiled), **attributes)


def policy(rule: Any, compiled: Any = None, **attributes: Any) -> Any:
    return plugin("choose", rule, compiled and CHOICE(compiled), **attributes)


def best(estimates: np.ndarray, widths: np.ndarray, targets: np.ndarray, draw: float) -> int:
    return int(np.argmax(estimates[0]))


def compiled_best(
    estimates: Any, widths: Any, targets: Any, n_layers: int, n_arms: int, draw: float, user: Any
) -> int:
    return max(range(n_arms), key=lambda arm: (estimates[arm], -arm))


@dataclass(frozen=True)
class Undocumented:
    def fires(self, gain: float, elapsed: float) -> bool:
        return gain > 1


@dataclass(frozen=True)
class ShownByAddress(Undocumented):
    """Shows as <… object at 0x7f…>."""

    __repr__ = object.__repr__


@dataclass(frozen=True)
class ShownAsAnother(Undocumented):
    """Does not say what it is."""

    def __repr__(self) -> str:
        return "trigger()"


@dataclass(frozen=True)
class HoldsAFunction(Undocumented):
    """Has a parameter that no file can hold."""

    rule: Any = max


@dataclass(frozen=True)
class Doubles(Undocumented):
    """Takes a parameter and keeps another: made again from what it keeps, it has yet another."""

    C: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "C", 2 * self.C)


@dataclass(frozen=True)
class ForgetsToReturn(Undocumented):
    """Binds to nothing."""

    def bind(self, setting: Setting) -> Any:
        Doubles()


@dataclass(frozen=True)
class BindsItself(Undocumented):
    """Changes in place."""

    C: float | None = None

    def bind(self, setting: Setting) -> Any:
        object.__setattr__(self, "C", 1 / setting.dim)
        return self


@dataclass(frozen=True)
class BindsOnAndOn(Undocumented):
    """Halves with every bind."""

    C: float = 1.0

    def bind(self, setting: Setting) -> Any:
        return BindsOnAndOn(self.C / 2)


def every_seventh() -> Any:
    """A rule that remembers, in itself and not in its state, how often it was asked."""
    calls = itertools.count()
    return lambda first, second: next(calls) % 7 == 0


def writes_behind_its_state(gain: float, elapsed: float, state: Any, user: Any) -> int:
    state[1] = 1.0
    return 0


def counts_twice(gain: float, elapsed: float, state: Any, user: Any = None) -> int:
    state[0] += 2
    return 0


def counts(gain: float, elapsed: float, state: np.ndarray) -> bool:
    state[0] += 1
    return False


def spoils_its_state(gain: float, elapsed: float, state: np.ndarray) -> bool:
    state[0] = np.nan
    return False


def sets_targets(estimates: Any, widths: Any, targets: Any, *rest: Any) -> int:
    targets[0] = 7.0
    return compiled_best(estimates, widths, targets, *rest)


# Inputs that no grid asks for: a rule that is wrong only there is wrong only in a run.
UNASKED_ELAPSED = min(set(range(1, 100)) - {elapsed for _, elapsed in make_trigger_inputs(GAME)})
ASKED_NORMS = {norm for norm, *_ in make_weighting_inputs(GAME)}
UNASKED_LAYERS = 3  # of the game, where d = 4


def wrong_at_some_elapsed(gain: float, elapsed: float, user: Any) -> int:
    return elapsed == UNASKED_ELAPSED


def wrong_at_other_norms(norm: float, sigma: float, user: Any) -> float:
    return 1.0 if norm in ASKED_NORMS else 9.0


def wrong_with_three_layers(
    estimates: Any, widths: Any, targets: Any, n_layers: int, n_arms: int, *rest: Any
) -> int:
    if n_layers == UNASKED_LAYERS:
        return min(range(n_arms), key=lambda arm: abs(estimates[arm]))
    return compiled_best(estimates, widths, targets, n_layers, n_arms, *rest)


class Guess:
    """Names a decision that the engine does not have."""

    kernel = "guess"


class Noise(Gaussian):
    """Gaussian, but for what a test gives it."""

    def __init__(self, **methods: Any) -> None:
        super().__init__()
        for name, method in methods.items():
            object.__setattr__(self, name, method)


def noise_then_sigma(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """All of the noise and then all of the levels, from one generator: two halves of a run would mix them."""
    return rng.normal(size=n), rng.uniform(size=n)


def unseeded_in_a_run(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    spread = next(GROWING) if n == GAME.horizon else 1.0
    return spread * rng.normal(size=n), np.ones(n)


GROWING = itertools.count(1.0)
UNSTEADY = itertools.count(1.0)


class SplitCorruption(Corrupted):
    """The adversary's numbers depend on how many pulls it is shown."""

    def corrupt(self, rng: np.random.Generator, means: np.ndarray, best: np.ndarray) -> np.ndarray:
        return means - means.mean()


class CorruptsTheBest(Corrupted):
    """One number a pull, not one for every arm."""

    def corrupt(self, rng: np.random.Generator, means: np.ndarray, best: np.ndarray) -> np.ndarray:
        return -means.max(axis=1)


class Indebted(Corrupted):
    """A budget below zero."""

    budget = -1.0


class CountsFromOne(RoundRobin):
    """1 to M."""

    def clients(self, start: int, stop: int, **sizes: Any) -> np.ndarray:
        return super().clients(start, stop, **sizes) + 1


class Fractional(RoundRobin):
    """Whole numbers, but as floats."""

    def clients(self, start: int, stop: int, **sizes: Any) -> np.ndarray:
        return super().clients(start, stop, **sizes).astype(float)


class DrawnAnew(ClickLeave):
    """Draws from the beginning of its generator whatever pulls it is asked for."""

    def clients(
        self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int
    ) -> np.ndarray:
        return np.random.default_rng(seed).integers(n_clients, size=stop - start)


class NotInRounds(ClickLeave):
    """Says that it comes in rounds."""

    in_rounds = True


@dataclass(frozen=True)
class Walk(Problem):
    """Contexts in the unit ball, no noise; what a test gives is put into every chunk."""

    seed: int = 0
    scale: float = 0.3
    dim: ClassVar[int] = 3
    n_arms: ClassVar[int] = 4
    n_clients: ClassVar[int] = 2

    def stream(self, horizon: int, arrival: Any) -> Any:
        return WalkStream(self)

    def pulls(self, rng: np.random.Generator, start: int, n: int) -> dict[str, Any]:
        contexts = self.scale * rng.uniform(-1, 1, (n, self.n_arms, self.dim))
        return {
            "contexts": contexts,
            "clients": np.arange(start, start + n) % 2,
            "theta": [0.5, 0.5, 0.5],
        }


class WalkStream(Stream):
    checked = True  # so that the check, and not the run, has to notice

    def __init__(self, problem: Walk) -> None:
        self.problem, self.rng, self.start = problem, np.random.default_rng(problem.seed), 0

    def take(self, n: int) -> Chunk:
        self.start += n
        return Chunk.of(**self.problem.pulls(self.rng, self.start - n, n))


class WithoutArms(Walk):
    """Does not say how many arms it has."""

    n_arms = None


class WithAnotherDimension(Walk):
    """Says that it has four dimensions, and gives three."""

    dim = 4

    def pulls(self, rng: np.random.Generator, start: int, n: int) -> dict[str, Any]:
        return super().pulls(rng, start, n) | {"contexts": np.zeros((n, self.n_arms, 3))}


class WithAThirdClient(Walk):
    """A client more than it says."""

    def pulls(self, rng: np.random.Generator, start: int, n: int) -> dict[str, Any]:
        return super().pulls(rng, start, n) | {"clients": np.arange(start, start + n) % 3}


class WithTwoTruths(Walk):
    """Both θ and rewards."""

    def pulls(self, rng: np.random.Generator, start: int, n: int) -> dict[str, Any]:
        return super().pulls(rng, start, n) | {"rewards": np.zeros((n, self.n_arms))}


class Unseeded(Walk):
    """Noise that nobody can draw again."""

    def pulls(self, rng: np.random.Generator, start: int, n: int) -> dict[str, Any]:
        return super().pulls(rng, start, n) | {"noise": np.random.default_rng().normal(size=n)}


@dataclass(frozen=True)
class Scaled(Walk):
    """Keeps half of the scale that it was given: made again from what it keeps, its contexts are shorter."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", self.scale / 2)


@dataclass(frozen=True)
class HoldsAGenerator(Walk):
    """A parameter that no file can hold."""

    rng: Any = field(default_factory=lambda: np.random.default_rng(0))


class WithItsOwnStream(Walk):
    """A stream that is not a Stream: a run asks it for a budget."""

    def stream(self, horizon: int, arrival: Any) -> Any:
        inner, outer = super().stream(horizon, arrival), type("Bare", (), {})()
        outer.take = inner.take
        return outer


def variant(**parts: Any) -> fsl.Variant:
    return fsl.Variant(**({"summary": "made for a test"} | parts))


EXAMPLES = [  # kind, the check that must be the first to fail, the plugin, and what the check must say
    ("triggers", "can_be_made", object(), "lacks fires"),
    ("triggers", "is_documented", Undocumented(), "Undocumented has no docstring"),
    ("variants", "is_documented", fsl.Variant(), "has no summary"),
    ("triggers", "repr_names_it", ShownByAddress(), "two with the same parameters show as"),
    (
        "triggers",
        "repr_names_it",
        ShownAsAnother(),
        r"its repr is trigger\(\), which does not name its type ShownAsAnother",
    ),
    (
        "triggers",
        "parameters_survive_saving",
        HoldsAFunction(),
        "can't be saved: <built-in function max> is neither",
    ),
    (
        "triggers",
        "parameters_survive_saving",
        Doubles(),
        r'made again from its parameters {"C": .*}, it has {"C": ',
    ),
    (
        "triggers",
        "binds_to_a_setting",
        ForgetsToReturn(),
        r"bind\(Setting\(dim=1.* None, given as a trigger, lacks fires",
    ),
    (
        "triggers",
        "binds_to_a_setting",
        BindsItself(),
        r"changed the plugin itself, from BindsItself\(C=None\)",
    ),
    ("triggers", "binds_to_a_setting", BindsOnAndOn(), "and bound once more BindsOnAndOn"),
    (
        "triggers",
        "takes_the_arguments_of_its_kind",
        trigger(lambda gain: True),
        r"fires must take \(gain, elapsed\)",
    ),
    (
        "triggers",
        "takes_the_arguments_of_its_kind",
        plugin("fires", lambda gain, elapsed: True, WEIGHT(lambda *_: 1.0)),
        r"compiled form has the signature 'double .*must be 'int \(double, double, void \*\)'",
    ),
    (
        "weightings",
        "takes_the_arguments_of_its_kind",
        weighting(lambda norm, sigma: 1.0, state_size=1),
        r"weight must take \(norm, sigma, residual, state\)",
    ),
    (
        "policies",
        "takes_the_arguments_of_its_kind",
        policy(lambda estimates: 0),
        "choose must take",
    ),
    (
        "triggers",
        "keeps_to_its_state",
        trigger(lambda gain, elapsed, state: False, writes_behind_its_state, state_size=1),
        r"the compiled form writes outside its 1 slots of state, at fires\(gain=0.0, elapsed=1.0\)",
    ),
    (
        "triggers",
        "answers_are_legal",
        trigger(lambda gain, elapsed: None),
        "is None .*; it must be True or False",
    ),
    (
        "triggers",
        "answers_are_legal",
        trigger(lambda gain, elapsed: gain > 700, lambda gain, elapsed, user: -1),
        r"fires\(.*\) .* is -1 in the compiled form; it must be True or False",
    ),
    (
        "triggers",
        "answers_are_legal",
        trigger(spoils_its_state, state_size=1),
        r"after fires\(gain=0.0, elapsed=1.0\) .* the state is \[nan\] in the Python form",
    ),
    (
        "weightings",
        "answers_are_legal",
        weighting(lambda norm, sigma: 1 / sigma**2),
        r"weight\(norm=0.0, sigma=0.0\) .* raised ZeroDivisionError",
    ),
    (
        "weightings",
        "answers_are_legal",
        weighting(lambda norm, sigma: 1 - norm),
        r"weight\(norm=3.0, .* is -2.0 in the Python form; it must be a finite number of at least 0",
    ),
    (
        "policies",
        "answers_are_legal",
        policy(lambda estimates, widths, targets, draw: int(np.argmax(widths))),
        r"choose\(estimates=.* is 0 in the Python form; it must be layer·K \+ arm of an arm that is there: 1, 2",
    ),
    (
        "triggers",
        "answers_are_the_same_again",
        trigger(every_seventh()),
        r"fires\(.*\(call \d from fresh state\) is .* in the Python form, and asked again .* belongs in `state`",
    ),
    (
        "weightings",
        "answers_are_the_same_again",
        weighting(every_seventh()),
        r"weight\(.* and asked again",
    ),
    (
        "policies",
        "answers_are_the_same_again",
        policy(
            lambda estimates, *_: int(
                np.random.default_rng().choice(np.flatnonzero(estimates > -np.inf))
            )
        ),
        "and asked again",
    ),
    (
        "triggers",
        "python_and_compiled_agree",
        trigger(lambda gain, elapsed: gain > 0.5, lambda gain, elapsed, user: gain >= 0.5),
        r"fires\(gain=0.5, elapsed=1.0\) .* is False in Python and 1 compiled",
    ),
    (
        "triggers",
        "python_and_compiled_agree",
        trigger(counts, counts_twice, state_size=1),
        r"is False with state \[1.0\] in Python and 0 with state \[2.0\] compiled",
    ),
    (
        "weightings",
        "python_and_compiled_agree",
        weighting(
            lambda norm, sigma: 1 / (1 + norm), lambda norm, sigma, user: (1 + 1e-11) / (1 + norm)
        ),
        r"weight\(norm=0.0, sigma=0.0\) .* is 1.0 in Python and 1.00000000001 compiled",
    ),
    (
        "policies",
        "python_and_compiled_agree",
        policy(
            lambda estimates, *_: int(estimates[-1].argmax()) + estimates.size - estimates.shape[1],
            compiled_best,
        ),
        r"choose\(estimates=\[\[0.0\], \[0.0\]\], .* is 1 in Python and 0 compiled",
    ),
    (
        "policies",
        "leaves_the_targets_alone",
        policy(best, sets_targets),
        "compiled form changes targets from .1.. to .7..",
    ),
    (
        "noise_models",
        "numbers_fit_the_layers",
        Noise(n_layers=lambda setting: 0),
        r"n_layers\(Setting\(dim=1.* is 0; it must be",
    ),
    (
        "noise_models",
        "numbers_fit_the_layers",
        Noise(n_layers=lambda setting: 2.0),
        "is 2.0; it must be a whole number",
    ),
    (
        "noise_models",
        "numbers_fit_the_layers",
        Noise(radii=lambda setting: [1.0]),
        r"radii\(Setting\(dim=2.* is \[1.\]; it must be 2 finite numbers of at least 0",
    ),
    (
        "noise_models",
        "numbers_fit_the_layers",
        Noise(radius_growth=lambda setting: (1.0, -1.0)),
        "radius_growth.* must be 2 finite numbers of at least 0",
    ),
    (
        "noise_models",
        "numbers_are_the_same_again",
        Noise(
            target_widths=lambda setting: np.full(
                1 + (setting.dim - 1).bit_length(), next(UNSTEADY)
            )
        ),
        r"target_widths\(Setting\(dim=1.* is \[.*\], and asked again \[",
    ),
    (
        "noise_models",
        "draws_are_legal",
        Noise(draw=lambda rng, n: (rng.normal(size=n), np.full(n, -1.0))),
        r"draw\(rng, 1\) raised PluginError.* noise levels of at least 0",
    ),
    (
        "noise_models",
        "draws_do_not_depend_on_the_split",
        Noise(draw=noise_then_sigma),
        r"the noise of draw\(rng, 10\) is",
    ),
    (
        "noise_models",
        "noise_has_mean_zero",
        Noise(draw=lambda rng, n: (rng.normal(0.1, 1, n), np.ones(n))),
        r"the mean of draw\(default_rng\(2\), 20000\) is 0.\d+, with a standard error of 0.0071, not 0",
    ),
    (
        "noise_models",
        "corruption_is_legal",
        Indebted(),
        "its budget is -1.0; it must be a number of at least 0",
    ),
    (
        "noise_models",
        "corruption_is_legal",
        CorruptsTheBest(),
        r"means of shape \(10, 5\) is .*of the same shape",
    ),
    (
        "noise_models",
        "corruption_is_legal",
        SplitCorruption(),
        "of the first 3 and then the others",
    ),
    (
        "arrivals",
        "clients_are_in_range",
        CountsFromOne(),
        r"clients\(0, 1, n_clients=1, .* holds 1 to 1; clients are 0 to 0",
    ),
    (
        "arrivals",
        "clients_are_in_range",
        Fractional(),
        r"is float64 of shape \(1,\); it must be 1 whole numbers",
    ),
    (
        "arrivals",
        "clients_do_not_depend_on_the_split",
        DrawnAnew(),
        r"pulls \d+ to \d+ of clients\(0, .* but asked for alone",
    ),
    (
        "arrivals",
        "rounds_hold_each_client_once",
        NotInRounds(),
        r"round 0 of .* is \[0 0 0 1\], but in_rounds is True",
    ),
    (
        "problems",
        "sizes_are_whole_numbers",
        WithoutArms(),
        "n_arms must be a whole number of at least 1, not None",
    ),
    (
        "problems",
        "pulls_are_legal",
        Walk(scale=3.0),
        r"the context of round \d+, arm \d has length .*; the theory needs at most 1",
    ),
    (
        "problems",
        "pulls_are_legal",
        WithAnotherDimension(),
        r"shape \(300, 3, 4\); pulls × dim × lanes is \(300, 4, 4\)",
    ),
    (
        "problems",
        "pulls_are_legal",
        WithAThirdClient(),
        "its clients are 0 to 2, but n_clients=2: count from 0",
    ),
    ("problems", "pulls_are_legal", WithTwoTruths(), "either theta or rewards, not both"),
    (
        "problems",
        "pulls_do_not_depend_on_the_split",
        Unseeded(),
        "second stream, taken in pieces, gives other noise",
    ),
    (
        "problems",
        "specification_makes_it_again",
        Scaled(),
        "made again from its specification {.*}, it gives other contexts",
    ),
    (
        "problems",
        "specification_makes_it_again",
        HoldsAGenerator(),
        r"can't be saved: Generator\(PCG64\)",
    ),
    (
        "variants",
        "makes_an_algorithm",
        variant(trigger="no-such"),
        r"make\(…, preset='practical'\).* unknown trigger 'no-such'",
    ),
    (
        "variants",
        "presets_are_used",
        variant(presets={"theory": {"alpha": 2}}),
        "'theory' gives alpha, which no part takes",
    ),
    (
        "variants",
        "plays_the_same_again",
        variant(trigger=trigger(every_seventh())),
        "with preset 'practical' it played again has other communication from pull",
    ),
    (
        "triggers",
        "plays_like_the_reference",
        trigger(lambda gain, elapsed: False, wrong_at_some_elapsed),
        "'async' with this trigger in the engine and in fedsuplin.reference, .* has other communication from pull .*: 1 and 0",
    ),
    (
        "weightings",
        "plays_like_the_reference",
        weighting(lambda norm, sigma: 1.0, wrong_at_other_norms),
        "'async' with this weighting in the engine and",
    ),
    (
        "policies",
        "plays_like_the_reference",
        policy(best, wrong_with_three_layers),
        "with this policy in the engine .* arms",
    ),
    ("policies", "plays_like_the_reference", Guess(), "unknown decision kernel 'guess'"),
    (
        "noise_models",
        "plays_like_the_reference",
        Noise(draw=unseeded_in_a_run),
        "with this noise model and policy 'optimism' in the engine",
    ),
    (
        "variants",
        "plays_like_the_reference",
        variant(
            trigger=trigger(lambda gain, elapsed: gain > 2, lambda gain, elapsed, user: gain > 1)
        ),
        "with preset 'practical' it in the engine and",
    ),
    (
        "problems",
        "plays_like_the_reference",
        WithItsOwnStream(),
        "'async' on this problem raised AttributeError: .*'budget'",
    ),
]


IDS = [f"{kind}-{claim}" for kind, claim, *_ in EXAMPLES]


@pytest.mark.parametrize(("kind", "claim", "broken", "message"), EXAMPLES, ids=IDS)
def test_a_plugin_that_breaks_a_claim_fails_that_check_first_and_is_told_why(
    kind, claim, broken, message
):
    with pytest.raises(AssertionError, match=f"(?s){message}") as caught:
        check(kind, broken)
    assert f"\n({claim}: " in str(caught.value)


def test_every_check_has_a_plugin_that_breaks_it_and_says_what_it_claims():
    claims = {name_claim(claim): claim for kind in CHECKS for claim in CHECKS[kind]}
    assert {claim for _, claim, *_ in EXAMPLES} == set(claims)
    for name, claim in claims.items():
        assert claim.__doc__.strip().endswith(".") and "\n" not in claim.__doc__, name


def test_every_check_of_how_a_kind_behaves_has_one_for_that_kind():
    of_every_kind = {
        "can_be_made",
        "is_documented",
        "repr_names_it",
        "parameters_survive_saving",
        "binds_to_a_setting",
    }
    shared = of_every_kind | {"keeps_to_its_state"}  # the same code whatever the kind
    wanted = {
        (kind, name_claim(claim))
        for kind in CHECKS
        for claim in CHECKS[kind]
        if name_claim(claim) not in shared
    }
    assert wanted - {(kind, claim) for kind, claim, *_ in EXAMPLES} == set()


def test_what_an_author_gets_wrong_in_the_call_is_said_at_once():
    with pytest.raises(
        UnknownName, match="unknown kind of plugin 'trigger'. Did you mean 'triggers'"
    ):
        check("trigger", trigger(lambda gain, elapsed: True))
    with pytest.raises(InvalidInput, match=r"not its class: check\('arrivals', NotInRounds\(…\)\)"):
        check("arrivals", NotInRounds)
    with pytest.raises(UnknownName, match="unknown size 'dims'. Did you mean 'dim'"):
        check("arrivals", RoundRobin(), dims=3)


def test_what_is_raised_around_a_plugin_names_it_and_the_claim():
    told = r"(?s)arrival RoundRobin\(\) raised InvalidInput: dim must be a whole number of at least 1, not 0\n\(\w+: "
    with pytest.raises(AssertionError, match=told) as caught:
        check("arrivals", RoundRobin(), dim=0)
    assert isinstance(caught.value.__cause__, InvalidInput)


def test_what_can_not_be_made_is_one_failure_and_not_many():
    absent = make_registered_subject("noise_models", "gaussian", {"noise_scale": -1.0}, {})
    failed, passed_by = [], []
    for claim in select_checks(absent):
        try:
            run_check(absent, claim)
        except AssertionError as error:
            failed.append((name_claim(claim), str(error)))
        except NotApplicable as reason:
            passed_by.append(str(reason))
    ((claim, told),) = failed
    assert claim == "can_be_made" and "noise_scale must be at least 0, not -1.0" in told
    assert len(passed_by) > 3 and set(passed_by) == {
        "noise model 'gaussian' can't be made: noise_scale must be at least 0, not -1.0"
    }


def test_sizes_that_are_given_are_the_only_ones_asked_for():
    def two_arms(estimates, widths, targets, draw):
        assert estimates.shape[1] == 2
        return best(estimates, widths, targets, draw)

    check("policies", policy(two_arms), n_arms=2)
    with pytest.raises(AssertionError, match="raised AssertionError"):
        check("policies", policy(two_arms))


def test_the_state_of_both_forms_may_differ_by_rounding_and_no_more():
    def sums(gain, elapsed, state):
        state[0] += gain
        return state[0] > 1e9

    def rounded(gain, elapsed, state, user):
        return sums(gain * (1 + 1e-15), elapsed, state)

    check("triggers", trigger(sums, rounded, state_size=1))


# --- packages ----------------------------------------------------------------------------------------------------------------

GOOD = """
from dataclasses import dataclass

from fedsuplin.plugin import hookimpl

@dataclass(frozen=True)
class Nightly:
    \"\"\"Every so many pulls.\"\"\"
    every: int
    def fires(self, gain, elapsed):
        return elapsed >= self.every

@hookimpl
def fedsuplin_register_triggers(register):
    register("nightly", Nightly)
"""
ODD = """
from fedsuplin.plugin import SyntheticProblem, hookimpl

class Renamed(SyntheticProblem):
    \"\"\"Its specification still says synthetic.\"\"\"
    def __init__(self, dim=2, n_arms=2, n_clients=1, **more):
        super().__init__(dim, n_arms, n_clients, **more)

@hookimpl
def fedsuplin_register_problems(register):
    register("renamed", Renamed)
"""
PACKAGES = {  # distribution, the modules that its entry points name
    "fedsuplin_good": {"good_plugin": GOOD},
    "fedsuplin_odd": {
        "odd_plugin": ODD,
        "broken_plugin": "raise ImportError('no module named numba')",
        "idle_plugin": "",
    },
    "fedsuplin_plain": {},
}
TESTS = """
from fedsuplin.testing import conformance

test_good = conformance("fedsuplin-good", parameters={"nightly": {"every": 20}})
test_default = conformance("Fedsuplin_Good")
test_misspelt = conformance("fedsuplin-good", parameters={"triggers-nightly": {"every": 3}, "nightli": {"every": 20}})
test_odd = conformance("fedsuplin-odd")
test_plain = conformance("fedsuplin-plain")
test_absent = conformance("fedsuplin-absent")
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What pytest says of those tests, with those packages on the path as an installer leaves them, and warnings as errors."""
    folder = tmp_path_factory.mktemp("packages")
    for package, modules in PACKAGES.items():
        (folder / f"{package}-1.2.dist-info").mkdir()
        (folder / f"{package}-1.2.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n"
        )
        lines = [f"{module} = {module}" for module in modules]
        (folder / f"{package}-1.2.dist-info" / "entry_points.txt").write_text(
            "\n".join(["[fedsuplin]", *lines]) if lines else ""
        )
        for module, text in modules.items():
            (folder / f"{module}.py").write_text(text)
    (folder / "test_them.py").write_text(TESTS)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-W",
        "error",
        "-rA",
        "-p",
        "no:cacheprovider",
        "test_them.py",
    ]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def ended(outcome: str, how: str, test: str) -> list[str]:
    """The ids of a test that passed, failed or were skipped."""
    return re.findall(rf"^{how} test_them.py::{test}\[(.*?)\]", outcome, re.M)


def test_each_check_of_each_plugin_is_a_test_of_its_own(outcome):
    passed = ended(outcome, "PASSED", "test_good")
    assert (
        "triggers-nightly-plays_like_the_reference" in passed
        and "entry_points-good_plugin-loads" in passed
    )
    assert ended(outcome, "FAILED", "test_good") == []
    assert "python_and_compiled_agree" not in " ".join(
        passed
    )  # it has no compiled form: there is nothing to test


def test_a_plugin_that_needs_parameters_says_how_to_give_them(outcome):
    assert ended(outcome, "FAILED", "test_default") == ["triggers-nightly-can_be_made"]
    assert (
        "trigger 'nightly' needs every: give every=…. Every parameter needs a default, or a value in"
        in outcome
    )
    assert "conformance(…, parameters={'nightly': {…}})" in outcome


def test_parameters_for_nobody_are_a_failure(outcome):
    assert ended(outcome, "FAILED", "test_misspelt") == ["parameters-nightli-are_used"]
    assert (
        "parameters were given for 'nightli', but fedsuplin-good registers no plugin of this name"
        in outcome
    )


def test_an_entry_point_that_fails_or_registers_nothing_is_a_failure_and_the_rest_is_tested(
    outcome,
):
    failed = [
        "entry_points-broken_plugin-loads",
        "entry_points-idle_plugin-loads",
        "problems-renamed-specification_makes_it_again",
    ]
    assert ended(outcome, "FAILED", "test_odd") == failed
    told = "plugin 'broken_plugin' of package fedsuplin_odd 1.2 failed to load: ImportError: no module named numba"
    assert (
        told in outcome
        and "plugin 'idle_plugin' of package fedsuplin_odd 1.2 registers nothing: mark its functions"
        in outcome
    )
    assert (
        "its specification names 'synthetic', where a saved run would look for it, and not 'renamed'"
        in outcome
    )
    assert "problems-renamed-plays_like_the_reference" in ended(outcome, "PASSED", "test_odd")


def test_a_package_without_plugins_or_not_installed_is_a_failure(outcome):
    assert ended(outcome, "FAILED", "test_plain") == ["fedsuplin-plain-is_installed"]
    assert (
        "package 'fedsuplin-plain' 1.2 is installed, but registers nothing: it has no entry point in the group"
        in outcome
    )
    assert ended(outcome, "FAILED", "test_absent") == ["fedsuplin-absent-is_installed"]
    assert "package 'fedsuplin-absent' is not installed for" in outcome


def test_without_pytest_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", None)
    with pytest.raises(MissingExtra, match="pip install pytest"):
        conformance("fedsuplin")
