"""Each conformance check fails, with the reason, for a plugin that breaks just what it claims."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, UnknownName
from fedsuplin.plugin import Chunk, Problem, Setting, Stream, low_level
from fedsuplin.testing.pull_inputs import make_trigger_inputs, make_weighting_inputs
from fedsuplin.testing.subject import GAME
from fedsuplin.testing.suite import CHECKS, check, describe_check, name_check
from fedsuplin_plugins.arrivals import ClickLeave, RoundRobin
from fedsuplin_plugins.noise import Corrupted, Gaussian

# --- plugins, each broken in one way ------------------------------------------------------

REAL, POINTER = ctypes.c_double, ctypes.POINTER(ctypes.c_double)
TRIGGER = ctypes.CFUNCTYPE(ctypes.c_int, REAL, REAL, ctypes.c_void_p)
COUNTING_TRIGGER = ctypes.CFUNCTYPE(ctypes.c_int, REAL, REAL, POINTER, ctypes.c_void_p)
WEIGHT = ctypes.CFUNCTYPE(REAL, REAL, REAL, ctypes.c_void_p)
CHOICE = ctypes.CFUNCTYPE(
    ctypes.c_int, POINTER, POINTER, POINTER, ctypes.c_int, ctypes.c_int, REAL, ctypes.c_void_p
)


def plugin(method: str, rule: Any, compiled: Any = None, **attributes: Any) -> Any:
    """Make a plugin with one rule, its compiled form and other attributes."""
    body = {method: staticmethod(rule), "__doc__": "Made for a test.", **attributes}
    if compiled is not None:
        body["compiled"] = lambda self: low_level(compiled)
    return type("Made", (), body)()


def trigger(rule: Any, compiled: Any = None, **attributes: Any) -> Any:
    """Make a trigger of a rule."""
    signature = COUNTING_TRIGGER if "state_size" in attributes else TRIGGER
    return plugin("fires", rule, compiled and signature(compiled), **attributes)


def weighting(rule: Any, compiled: Any = None, **attributes: Any) -> Any:
    """Make a weighting of a rule."""
    return plugin("weight", rule, compiled and WEIGHT(compiled), **attributes)


def policy(rule: Any, compiled: Any = None, **attributes: Any) -> Any:
    """Make a policy of a rule."""
    return plugin("choose", rule, compiled and CHOICE(compiled), **attributes)


def best(estimates: np.ndarray, widths: np.ndarray, targets: np.ndarray, draw: float) -> int:
    """Return the arm with the highest estimate."""
    return int(np.argmax(estimates[0]))


def compiled_best(
    estimates: Any, widths: Any, targets: Any, n_layers: int, n_arms: int, draw: float, user: Any
) -> int:
    """Return what `best` returns, as a C callback."""
    return max(range(n_arms), key=lambda arm: (estimates[arm], -arm))


@dataclass(frozen=True)
class Undocumented:
    def fires(self, gain: float, elapsed: float) -> bool:
        return gain > 1


@dataclass(frozen=True)
class ShownByAddress(Undocumented):
    """Has the repr <… object at 0x7f…>."""

    __repr__ = object.__repr__


@dataclass(frozen=True)
class ShownAsAnother(Undocumented):
    """Has a repr without its type."""

    def __repr__(self) -> str:
        return "trigger()"


@dataclass(frozen=True)
class HoldsAFunction(Undocumented):
    """Has a parameter that no file can hold."""

    rule: Any = max


@dataclass(frozen=True)
class Doubles(Undocumented):
    """Doubles its parameter: made again from what it keeps, it has another."""

    C: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "C", 2 * self.C)


@dataclass(frozen=True)
class ForgetsToReturn(Undocumented):
    """Returns None from bind."""

    def bind(self, setting: Setting) -> Any:
        Doubles()


@dataclass(frozen=True)
class BindsItself(Undocumented):
    """Changes itself in bind."""

    C: float | None = None

    def bind(self, setting: Setting) -> Any:
        object.__setattr__(self, "C", 1 / setting.dim)
        return self


@dataclass(frozen=True)
class BindsOnAndOn(Undocumented):
    """Halves its parameter with every bind."""

    C: float = 1.0

    def bind(self, setting: Setting) -> Any:
        return BindsOnAndOn(self.C / 2)


def every_seventh() -> Any:
    """Make a rule that counts its calls in itself, not in its state."""
    calls = itertools.count()
    return lambda first, second: next(calls) % 7 == 0


def writes_behind_its_state(gain: float, elapsed: float, state: Any, user: Any) -> int:
    """Write after the last slot of its state."""
    state[1] = 1.0
    return 0


def counts_twice(gain: float, elapsed: float, state: Any, user: Any = None) -> int:
    """Add two per call to its state."""
    state[0] += 2
    return 0


def counts(gain: float, elapsed: float, state: np.ndarray) -> bool:
    """Add one per call to its state."""
    state[0] += 1
    return False


def spoils_its_state(gain: float, elapsed: float, state: np.ndarray) -> bool:
    """Leave NaN in its state."""
    state[0] = np.nan
    return False


def sets_targets(estimates: Any, widths: Any, targets: Any, *rest: Any) -> int:
    """Write into the targets."""
    targets[0] = 7.0
    return compiled_best(estimates, widths, targets, *rest)


# Inputs that are in no grid: a rule that is wrong only there is wrong only in a run.
UNASKED_ELAPSED = min(set(range(1, 100)) - {elapsed for _, elapsed in make_trigger_inputs(GAME)})
ASKED_NORMS = {norm for norm, *_ in make_weighting_inputs(GAME)}
UNASKED_LAYERS = 3  # of the game, where d = 4


def wrong_at_some_elapsed(gain: float, elapsed: float, user: Any) -> int:
    """Fire at an elapsed time that is in no grid."""
    return elapsed == UNASKED_ELAPSED


def wrong_at_other_norms(norm: float, sigma: float, user: Any) -> float:
    """Weigh differently at norms that are in no grid."""
    return 1.0 if norm in ASKED_NORMS else 9.0


def wrong_with_three_layers(
    estimates: Any, widths: Any, targets: Any, n_layers: int, n_arms: int, *rest: Any
) -> int:
    """Choose another arm where there are three layers."""
    if n_layers == UNASKED_LAYERS:
        return min(range(n_arms), key=lambda arm: abs(estimates[arm]))
    return compiled_best(estimates, widths, targets, n_layers, n_arms, *rest)


class Guess:
    """Names a decision kernel that the engine does not have."""

    kernel = "guess"


class Noise(Gaussian):
    """Gaussian noise with methods replaced by a test."""

    def __init__(self, **methods: Any) -> None:
        super().__init__()
        for name, method in methods.items():
            object.__setattr__(self, name, method)


def noise_then_sigma(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw all of the noise, then all of the levels: two halves of a run would mix them."""
    return rng.normal(size=n), rng.uniform(size=n)


def unseeded_in_a_run(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw noise that grows with each call, only in a whole run."""
    spread = next(GROWING) if n == GAME.horizon else 1.0
    return spread * rng.normal(size=n), np.ones(n)


GROWING = itertools.count(1.0)
UNSTEADY = itertools.count(1.0)


class SplitCorruption(Corrupted):
    """Corrupts by numbers that depend on how many pulls there are in a chunk."""

    def corrupt(self, rng: np.random.Generator, means: np.ndarray, best: np.ndarray) -> np.ndarray:
        return means - means.mean()


class CorruptsTheBest(Corrupted):
    """Returns one number per pull, not one per arm."""

    def corrupt(self, rng: np.random.Generator, means: np.ndarray, best: np.ndarray) -> np.ndarray:
        return -means.max(axis=1)


class Indebted(Corrupted):
    """Has a budget below zero."""

    budget = -1.0


class CountsFromOne(RoundRobin):
    """Has clients 1 to M."""

    def clients(self, start: int, stop: int, **sizes: Any) -> np.ndarray:
        return super().clients(start, stop, **sizes) + 1


class Fractional(RoundRobin):
    """Returns whole numbers as floats."""

    def clients(self, start: int, stop: int, **sizes: Any) -> np.ndarray:
        return super().clients(start, stop, **sizes).astype(float)


class DrawnAnew(ClickLeave):
    """Draws from the start of its generator, whichever pulls are asked for."""

    def clients(
        self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int
    ) -> np.ndarray:
        return np.random.default_rng(seed).integers(n_clients, size=stop - start)


class NotInRounds(ClickLeave):
    """Claims to come in rounds."""

    in_rounds = True


@dataclass(frozen=True)
class Walk(Problem):
    """Contexts in the unit ball, no noise; subclasses change what is in a chunk."""

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
    """The pulls of a Walk."""

    checked = True  # so that the check, and not the run, has to notice

    def __init__(self, problem: Walk) -> None:
        self.problem, self.rng, self.start = problem, np.random.default_rng(problem.seed), 0

    def take(self, n: int) -> Chunk:
        self.start += n
        return Chunk.of(**self.problem.pulls(self.rng, self.start - n, n))


class WithoutArms(Walk):
    """Has no number of arms."""

    n_arms = None


class WithAnotherDimension(Walk):
    """Claims four dimensions and has three."""

    dim = 4

    def pulls(self, rng: np.random.Generator, start: int, n: int) -> dict[str, Any]:
        return super().pulls(rng, start, n) | {"contexts": np.zeros((n, self.n_arms, 3))}


class WithAThirdClient(Walk):
    """Has one client more than it claims."""

    def pulls(self, rng: np.random.Generator, start: int, n: int) -> dict[str, Any]:
        return super().pulls(rng, start, n) | {"clients": np.arange(start, start + n) % 3}


class WithTwoTruths(Walk):
    """Has both θ and rewards."""

    def pulls(self, rng: np.random.Generator, start: int, n: int) -> dict[str, Any]:
        return super().pulls(rng, start, n) | {"rewards": np.zeros((n, self.n_arms))}


class Unseeded(Walk):
    """Draws noise that can't be drawn again."""

    def pulls(self, rng: np.random.Generator, start: int, n: int) -> dict[str, Any]:
        return super().pulls(rng, start, n) | {"noise": np.random.default_rng().normal(size=n)}


@dataclass(frozen=True)
class Scaled(Walk):
    """Keeps half of its scale: made again from what it keeps, its contexts are shorter."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", self.scale / 2)


@dataclass(frozen=True)
class HoldsAGenerator(Walk):
    """A parameter that no file can hold."""

    rng: Any = field(default_factory=lambda: np.random.default_rng(0))


class Overwriting(Walk):
    """Allows that its stream is drawn ahead, but uses one array for all noise."""

    noise: ClassVar[Any] = np.zeros(1000)

    def stream(self, horizon: int, arrival: Any) -> Any:
        stream = super().stream(horizon, arrival)
        take = stream.take

        def take_into_the_same_array(n: int) -> Chunk:
            chunk = take(n)
            self.noise[:n] = chunk.contexts[:, 0, 0]
            return replace(chunk, noise=self.noise[:n])

        stream.take, stream.may_prefetch = take_into_the_same_array, True
        return stream


class WithItsOwnStream(Walk):
    """Has a stream that is not a Stream, so it lacks the budget that a run reads."""

    def stream(self, horizon: int, arrival: Any) -> Any:
        inner, outer = super().stream(horizon, arrival), type("Bare", (), {})()
        outer.take = inner.take
        return outer


def variant(**parts: Any) -> fsl.Variant:
    """Make a variant with a summary."""
    return fsl.Variant(**({"summary": "made for a test"} | parts))


EXAMPLES = [  # kind, the check that must fail first, the plugin, and the message of the check
    ("triggers", "can_be_made", object(), "lacks fires"),
    ("triggers", "is_documented", Undocumented(), "Undocumented has no docstring"),
    ("variants", "is_documented", fsl.Variant(), "has no summary"),
    ("triggers", "repr_names_it", ShownByAddress(), "two with the same parameters have the reprs"),
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
        "can't be saved because of <built-in function max>; it must be a number",
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
        r"weight\(norm=3.0, .* is -2.0 in the Python form; "
        "it must be a finite number of at least 0",
    ),
    (
        "policies",
        "answers_are_legal",
        policy(lambda estimates, widths, targets, draw: int(np.argmax(widths))),
        r"choose\(estimates=.* is 0 in the Python form; "
        r"it must be layer·K \+ arm of an arm that is present: 1, 2",
    ),
    (
        "triggers",
        "answers_are_the_same_again",
        trigger(every_seventh()),
        r"fires\(.*\(call \d from fresh state\) is .* in the Python form, "
        "and asked again .* belongs in `state`",
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
        r"the mean of draw\(default_rng\(2\), 20000\) is 0.\d+, "
        "with a standard error of 0.0071; it must be 0",
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
        r"contexts, of shape \(300, 3, 4\), do not fit 300 rounds of 4 arms in dimension 4",
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
        "chunks_stay_while_the_next_is_taken",
        Overwriting(),
        r"may_prefetch is True, but take\(150\) changed the noise of the chunk before",
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
        r"can't be saved because of Generator\(PCG64\)",
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
        "'theory' sets alpha, which no part has",
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
        "'async' with this trigger in the engine and in fedsuplin.reference, .* "
        "has other communication from pull .*: 1 and 0",
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
def test_a_plugin_that_breaks_a_claim_fails_that_check_first_with_the_reason(
    kind, claim, broken, message
):
    with pytest.raises(AssertionError, match=f"(?s){message}") as caught:
        check(kind, broken)
    assert f"\n({claim}: " in str(caught.value)


def test_every_check_has_a_plugin_that_breaks_it_and_a_docstring_with_its_claim():
    claims = {name_check(claim): claim for kind in CHECKS for claim in CHECKS[kind]}
    assert {claim for _, claim, *_ in EXAMPLES} == set(claims)
    for name, claim in claims.items():
        assert claim.__doc__.startswith("Check that ") and claim.__doc__.strip().endswith("."), name
        assert "\n" not in describe_check(claim) and len(describe_check(claim)) > len(name) + 20


def test_every_check_of_how_a_kind_behaves_has_a_broken_plugin_of_that_kind():
    of_every_kind = {
        "can_be_made",
        "is_documented",
        "repr_names_it",
        "parameters_survive_saving",
        "binds_to_a_setting",
    }
    shared = of_every_kind | {"keeps_to_its_state"}  # the same code whatever the kind
    wanted = {
        (kind, name_check(claim))
        for kind in CHECKS
        for claim in CHECKS[kind]
        if name_check(claim) not in shared
    }
    assert wanted - {(kind, claim) for kind, claim, *_ in EXAMPLES} == set()


def test_wrong_arguments_of_check_are_errors():
    with pytest.raises(
        UnknownName, match="unknown kind of plugin 'trigger'. Did you mean 'triggers'"
    ):
        check("trigger", trigger(lambda gain, elapsed: True))
    with pytest.raises(InvalidInput, match=r"not its class: check\('arrivals', NotInRounds\(…\)\)"):
        check("arrivals", NotInRounds)
    with pytest.raises(UnknownName, match="unknown size 'dims'. Did you mean 'dim'"):
        check("arrivals", RoundRobin(), dims=3)


def test_other_exceptions_become_failures_that_name_the_plugin_and_the_claim():
    message = (
        r"(?s)arrival RoundRobin\(\) raised InvalidInput: "
        r"dim must be a whole number of at least 1, not 0\n\(\w+: "
    )
    with pytest.raises(AssertionError, match=message) as caught:
        check("arrivals", RoundRobin(), dim=0)
    assert isinstance(caught.value.__cause__, InvalidInput)


def test_sizes_that_the_author_fixes_are_the_only_ones_used():
    def two_arms(estimates, widths, targets, draw):
        assert estimates.shape[1] == 2
        return best(estimates, widths, targets, draw)

    check("policies", policy(two_arms), n_arms=2)
    with pytest.raises(AssertionError, match="raised AssertionError"):
        check("policies", policy(two_arms))


def test_the_states_of_both_forms_may_differ_by_rounding_only():
    def sums(gain, elapsed, state):
        state[0] += gain
        return state[0] > 1e9

    def rounded(gain, elapsed, state, user):
        return sums(gain * (1 + 1e-15), elapsed, state)

    check("triggers", trigger(sums, rounded, state_size=1))
