"""The state of plugins: doubles per client, zero at first, the same in the engine and in the twin.

Three plugins use it, each in Python, through ctypes and through numba: a trigger that counts, a
weighting that estimates the variance from residuals, and a policy that explores first and then
plays the layers in turn.
"""

import ctypes
import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import PluginError
from fedsuplin.reference import twin as twin_module
from fedsuplin.reference.state import Federation
from fedsuplin.reference.twin import run_reference
from fedsuplin_ext import norms
from fedsuplin_ext.rules import low_level

SIZES = {"dim": 5, "n_arms": 6, "n_clients": 3, "horizon": 360}
AXES = ("trigger", "weighting", "policy")
FORMS = ("Python", "ctypes", "numba")
COUNTED = (
    "arms",
    "layers",
    "clients",
    "communication",
    "messages_up",
    "messages_down",
    "bytes_up",
    "bytes_down",
)


# --- a trigger that counts ---


@dataclass(frozen=True)
class Patience:
    """Ask for a sync at the `times`-th pull with a gain above the threshold.

    The state is how often the gain was above it, and how often a sync was asked for.
    """

    times: int = 3
    threshold: float = 0.05
    form: str = "Python"
    state_size: ClassVar[int] = 2

    def fires(self, gain, elapsed, state):
        state[0] += gain > self.threshold
        if state[0] < self.times:
            return False
        state[0] = 0
        state[1] += 1
        return True

    def compiled(self):
        return (
            None
            if self.form == "Python"
            else low_level(patience(self.form), self.times, self.threshold)
        )


DOUBLES = ctypes.POINTER(ctypes.c_double)


@functools.cache
def patience(form):
    if form == "ctypes":
        types = (ctypes.c_int, ctypes.c_double, ctypes.c_double, DOUBLES, ctypes.c_void_p)
        return ctypes.CFUNCTYPE(*types)(
            lambda g, e, state, user: Patience(*ctypes.cast(user, DOUBLES)[:2]).fires(g, e, state)
        )
    import numba

    double, doubles = numba.types.float64, numba.types.CPointer(numba.types.float64)

    @numba.cfunc(numba.types.int32(double, double, doubles, doubles))
    def fires(gain, elapsed, state, user):
        state[0] += gain > user[1]
        if state[0] < user[0]:
            return 0
        state[0] = 0
        state[1] += 1
        return 1

    return fires


# --- a weighting that estimates the variance ---


@dataclass(frozen=True)
class EstimatedVariance:
    """Return ω = 1/max(ρ, variance estimated from earlier residuals).

    The state is the number of residuals and the sum of their squares.
    """

    floor: float = 0.2
    form: str = "Python"
    state_size: ClassVar[int] = 2

    def weight(self, norm, sigma, residual, state):
        variance = (1 + state[1]) / (1 + state[0])
        state[0] += 1
        state[1] += residual * residual
        return 1 / max(self.floor, variance)

    def compiled(self):
        return (
            None if self.form == "Python" else low_level(estimated_variance(self.form), self.floor)
        )


@functools.cache
def estimated_variance(form):
    if form == "ctypes":
        types = (ctypes.c_double, *[ctypes.c_double] * 3, DOUBLES, ctypes.c_void_p)
        return ctypes.CFUNCTYPE(*types)(
            lambda n, s, r, state, user: EstimatedVariance(ctypes.cast(user, DOUBLES)[0]).weight(
                n, s, r, state
            )
        )
    import numba

    double, doubles = numba.types.float64, numba.types.CPointer(numba.types.float64)

    @numba.cfunc(double(double, double, double, doubles, doubles))
    def weight(norm, sigma, residual, state, user):
        variance = (1 + state[1]) / (1 + state[0])
        state[0] += 1
        state[1] += residual * residual
        return 1 / max(user[0], variance)

    return weight


# --- a policy that explores first ---


@dataclass(frozen=True)
class ExploreFirst:
    """Explore with random arms in layer 0 first; then play the layers in turn, optimistically.

    The state is the number of pulls, and the layer of the last one.
    """

    first: int = 20
    form: str = "Python"
    state_size: ClassVar[int] = 2

    def choose(self, estimates, widths, targets, draw, state):
        n_layers, n_arms = np.shape(estimates)
        state[0] += 1
        if state[0] <= self.first:
            return int(draw * n_arms)
        state[1] = (state[1] + 1) % n_layers
        layer = int(state[1])
        return layer * n_arms + int(np.argmax(estimates[layer] + widths[layer]))

    def compiled(self):
        return None if self.form == "Python" else low_level(explore_first(self.form), self.first)


@functools.cache
def explore_first(form):
    if form == "ctypes":
        types = (
            ctypes.c_int,
            *[DOUBLES] * 3,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_double,
            DOUBLES,
            ctypes.c_void_p,
        )

        @ctypes.CFUNCTYPE(*types)
        def choose(estimates, widths, targets, n_layers, n_arms, draw, state, user):
            tables = (
                np.ctypeslib.as_array(table, (n_layers, n_arms)) for table in (estimates, widths)
            )
            return ExploreFirst(ctypes.cast(user, DOUBLES)[0]).choose(*tables, None, draw, state)

        return choose
    import numba

    integer, double, doubles = (
        numba.types.int32,
        numba.types.float64,
        numba.types.CPointer(numba.types.float64),
    )

    @numba.cfunc(integer(doubles, doubles, doubles, integer, integer, double, doubles, doubles))
    def choose(estimates, widths, targets, n_layers, n_arms, draw, state, user):
        state[0] += 1
        if state[0] <= user[0]:
            return int(draw * n_arms)
        state[1] = (state[1] + 1) % n_layers
        best = int(state[1]) * n_arms
        for i in range(best, int(state[1]) * n_arms + n_arms):
            if estimates[i] + widths[i] > estimates[best] + widths[best]:
                best = i
        return best

    return choose


PLUGINS = {"trigger": Patience, "weighting": EstimatedVariance, "policy": ExploreFirst}


def parts_of(axes, form):
    return {axis: PLUGINS[axis](form=form) for axis in axes}


def make(variant="async", **parts):
    return fsl.make(variant, **SIZES, noise_scale=0.3, **parts)


def problem(seed=0):
    """Return a problem with contexts of different lengths, so that no two arms tie."""
    return fsl.SyntheticProblem(**SIZES, noise_scale=0.3, contexts="ball", seed=seed)


def states(result):
    return {axis: getattr(result, f"{axis}_state") for axis in AXES}


def assert_same_bits(one, other):
    for name in (*COUNTED, "regret", "reward", "trigger_state", "weighting_state", "policy_state"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# --- the engine and its twin ---


@pytest.fixture
def twin(monkeypatch):
    """Return a function that runs the twin, and returns its result and its clients' final state."""
    made = []

    class Remembered(Federation):
        def __init__(self, algorithm):
            super().__init__(algorithm)
            made.append(self)

    monkeypatch.setattr(twin_module, "Federation", Remembered)

    def run(algorithm, problem):
        result = run_reference(algorithm, problem)
        clients = made[-1].clients
        return result, {
            axis: np.array([client.state[axis] for client in clients]) for axis in clients[0].state
        }

    return run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "eager"])
@pytest.mark.parametrize("variant", ["async", "sync"])
@pytest.mark.parametrize(
    "axes",
    [("trigger",), ("weighting",), ("policy",), AXES],
    ids=["trigger", "weighting", "policy", "all"],
)
def test_the_twins_agree_on_arms_communication_and_state(axes, variant, lazy, form, twin):
    algorithm = make(variant, lazy=lazy, **parts_of(axes, form))
    engine = fsl.run(algorithm, problem(), record="all")
    expected, expected_states = twin(algorithm, problem())
    for name in COUNTED:
        np.testing.assert_array_equal(getattr(engine, name), getattr(expected, name), err_msg=name)
    np.testing.assert_allclose(engine.regret, expected.regret, rtol=1e-9)
    assert expected_states.keys() == set(axes)
    for axis, state in states(engine).items():
        if axis not in axes:
            assert state is None
            continue
        np.testing.assert_allclose(state, expected_states[axis], rtol=1e-9, err_msg=axis)
        assert state.shape == (3, 2) and (state.max(axis=1) > 0).all()
    assert engine.communication[-1] > 0


@pytest.mark.parametrize("form", ["ctypes", "numba"])
@pytest.mark.parametrize("variant", ["async", "sync"])
def test_a_compiled_form_ends_with_the_state_of_the_python_form(variant, form):
    python = fsl.run(make(variant, **parts_of(AXES, "Python")), problem(), record="all")
    assert_same_bits(
        fsl.run(make(variant, **parts_of(AXES, form)), problem(), record="all"), python
    )


def test_the_plugins_of_this_file_do_something():
    """Counts delay syncs, weights change, the policy leaves layer 0."""
    plain = fsl.run(make(trigger="determinant", C=np.expm1(0.05)), problem(), record="all")
    patient = fsl.run(make(trigger=Patience()), problem(), record="all")
    assert 10 < patient.communication[-1] < plain.communication[-1]
    assert patient.trigger_state[:, 1].sum() == patient.communication[-1]
    weighted = fsl.run(make(weighting=EstimatedVariance()), problem(), record="all")
    assert (weighted.arms != fsl.run(make(), problem(), record="all").arms).any()
    explored = fsl.run(make(policy=ExploreFirst()), problem(), record="all")
    assert (explored.layer_pulls > 0).all()
    assert explored.policy_state[:, 0].tolist() == explored.client_pulls.tolist()


# --- whose it is ---


class Watching:
    """Count the pulls of each client in the state, and remember what was there before."""

    state_size = 3

    def __init__(self):
        self.found = []

    def _count(self, state):
        self.found.append(state.copy())
        state += [1, 10, 100]

    def fires(self, gain, elapsed, state):
        self._count(state)
        return elapsed >= 9

    def weight(self, norm, sigma, residual, state):
        self._count(state)
        return 1.0

    def choose(self, estimates, widths, targets, draw, state):
        self._count(state)
        return int(draw * len(estimates[0]))


@pytest.mark.parametrize("variant", ["async", "sync"])
@pytest.mark.parametrize("axis", AXES)
def test_state_is_zero_at_the_start_and_each_clients_own(axis, variant):
    watching = Watching()
    result = fsl.run(make(variant, **{axis: watching}), problem(), record="all")
    earlier = [
        np.count_nonzero(result.clients[:pull] == client)
        for pull, client in enumerate(result.clients)
    ]
    np.testing.assert_array_equal(watching.found, np.outer(earlier, [1, 10, 100]))
    np.testing.assert_array_equal(
        getattr(result, f"{axis}_state"), np.outer(result.client_pulls, [1, 10, 100])
    )


def test_every_run_starts_from_zero():
    algorithm = make(**parts_of(AXES, "Python"))
    assert_same_bits(
        fsl.run(algorithm, problem(), record="all"), fsl.run(algorithm, problem(), record="all")
    )


def test_the_state_of_a_result_stays_when_the_algorithm_plays_on():
    algorithm = make(**parts_of(AXES, "ctypes"))
    first = fsl.run(algorithm, problem())
    before = {axis: state.copy() for axis, state in states(first).items()}
    fsl.run(algorithm, problem(1))
    for axis, state in states(first).items():
        np.testing.assert_array_equal(state, before[axis])


def test_three_plugins_have_three_states():
    one = Watching()
    result = fsl.run(make(trigger=one, weighting=one, policy=one), problem())
    for state in states(result).values():
        np.testing.assert_array_equal(state, np.outer(result.client_pulls, [1, 10, 100]))


def test_a_client_that_never_plays_keeps_zeros():
    arrays = fsl.ArrayProblem(np.full((40, 2, 2), 0.3), [0, 2] * 20, theta=[0.1, 0.2], n_clients=4)
    result = fsl.run("async", arrays, trigger=Watching())
    assert result.trigger_state[:, 0].tolist() == [20, 0, 20, 0]


def test_a_plugin_with_many_slots_has_them_all():
    class Histogram:
        """A trigger with a state of a thousand doubles."""

        state_size = 1000

        def fires(self, gain, elapsed, state):
            assert state.shape == (1000,) and state.flags.writeable
            state[min(999, int(gain * 1000))] += 1
            return elapsed >= 9

    result = fsl.run(make(trigger=Histogram()), problem())
    assert result.trigger_state.shape == (3, 1000)
    assert result.trigger_state.sum(axis=1).tolist() == result.client_pulls.tolist()


# --- deterministic ---


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variant", ["async", "sync"])
def test_state_does_not_depend_on_how_the_run_is_cut(variant, form):
    algorithm = make(variant, **parts_of(AXES, form))
    whole = fsl.run(algorithm, problem(), record="all", chunk=360)
    for chunk in (1, 7, 250, None):
        assert_same_bits(whole, fsl.run(algorithm, problem(), record="all", chunk=chunk))


@pytest.mark.parametrize("variant", ["async", "sync"])
def test_state_does_not_depend_on_the_kernels(variant):
    """Counts are equal, and sums of residuals up to rounding."""
    algorithm = make(variant, **parts_of(AXES, "Python"))
    results = [
        fsl.run(algorithm, problem(), record="all", kernels=kernels)
        for kernels in norms.available()
    ]
    for result in results:
        for name in (*COUNTED, "trigger_state", "policy_state"):
            np.testing.assert_array_equal(
                getattr(result, name), getattr(results[0], name), err_msg=name
            )
        np.testing.assert_allclose(result.weighting_state, results[0].weighting_state, rtol=1e-9)


# --- in the result ---


def test_state_is_saved_and_loaded_with_the_result(tmp_path):
    result = fsl.run(make(**parts_of(AXES, "Python")), problem(), record="all")
    assert_same_bits(fsl.RunResult.load(result.save(tmp_path / "run.npz")), result)


def test_a_plugin_without_state_leaves_none(tmp_path):
    result = fsl.run("async", problem())
    assert all(state is None for state in states(result).values())
    assert all(
        state is None
        for state in states(fsl.RunResult.load(result.save(tmp_path / "run.npz"))).values()
    )


def test_a_run_that_fails_keeps_the_state_until_then():
    class Strict(Watching):
        def fires(self, gain, elapsed, state):
            if state[0] == 20:
                raise RuntimeError("twenty are enough")
            return super().fires(gain, elapsed, state)

    with pytest.raises(PluginError, match="twenty are enough") as caught:
        fsl.run(make(trigger=Strict()), problem(), record="all")
    result = caught.value.result
    np.testing.assert_array_equal(result.trigger_state[:, 0], result.client_pulls)
    assert result.trigger_state[:, 0].max() == 20
