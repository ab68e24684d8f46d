"""Rules in Python, numba, ctypes and Cython play alike, and are checked when an algorithm is made.

A fault of a rule in the loop ends the run with an error that names the plugin and the pull, and
keeps the results.
"""

import ctypes
import math
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import LowLevelCallable

import fedsuplin as fsl
from fedsuplin.errors import InterruptedRun, PluginError
from fedsuplin.reference.twin import run_reference
from fedsuplin_ext import formulas
from fedsuplin_ext.rules import Rule, from_cython, low_level

SIZES = {"dim": 4, "n_arms": 5, "n_clients": 2}
HORIZON = 300
COUNTED = ("arms", "layers", "clients", "communication", "messages_up", "bytes_up", "bytes_down")

# One rule for each axis: the built-in that has it, and its parameter.
BUILT_IN = {
    "trigger": ("determinant", {"C": 0.5}),
    "weighting": ("corruption", {"corruption": 10.0, "gamma": 0.2}),
    "policy": ("uniform", {}),
}
PARAMETER = {"trigger": (1 + 1e-9) * math.log1p(0.5), "weighting": 0.2, "policy": 0.0}


def problem(seed=0, **keywords):
    return fsl.SyntheticProblem(**SIZES, seed=seed, **keywords)


def make(**parts):
    return fsl.make("async", **SIZES, horizon=HORIZON, noise_scale=0.1, **parts)


def assert_same_run(one, other, names=COUNTED):
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# --- the same three rules in every form ---


def python_rule(axis):
    limit = PARAMETER[axis]

    def fires(gain, elapsed):
        return gain > limit

    def weight(norm, sigma):
        return 1.0 if norm <= limit else limit / norm

    def choose(estimates, widths, targets, draw):
        return int(draw * np.count_nonzero(estimates[0] > -np.inf))

    return {"trigger": fires, "weighting": weight, "policy": choose}[axis]


METHOD = {"trigger": "fires", "weighting": "weight", "policy": "choose"}


def python_object(axis):
    return type("Mine", (), {METHOD[axis]: staticmethod(python_rule(axis))})()


DOUBLES = ctypes.POINTER(ctypes.c_double)
C_TYPES = {
    "trigger": (ctypes.c_int, ctypes.c_double, ctypes.c_double, ctypes.c_void_p),
    "weighting": (ctypes.c_double, ctypes.c_double, ctypes.c_double, ctypes.c_void_p),
    "policy": (
        ctypes.c_int,
        *[DOUBLES] * 3,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_double,
        ctypes.c_void_p,
    ),
}


def ctypes_function(axis):
    def limit(user):
        return ctypes.cast(user, DOUBLES)[0]

    def fires(gain, elapsed, user):
        return gain > limit(user)

    def weight(norm, sigma, user):
        return 1.0 if norm <= limit(user) else limit(user) / norm

    def choose(estimates, widths, targets, n_layers, n_arms, draw, user):
        return int(draw * n_arms)

    return ctypes.CFUNCTYPE(*C_TYPES[axis])(
        {"trigger": fires, "weighting": weight, "policy": choose}[axis]
    )


def numba_function(axis, pointer):
    """Return a numba function that takes `user` as void *, or as a pointer to doubles."""
    import numba

    double, integer, doubles = (
        numba.types.float64,
        numba.types.int32,
        numba.types.CPointer(numba.types.float64),
    )
    user_type = {"void *": numba.types.voidptr, "double *": doubles}[pointer]
    signatures = {
        "trigger": integer(double, double, user_type),
        "weighting": double(double, double, user_type),
        "policy": integer(doubles, doubles, doubles, integer, integer, double, user_type),
    }
    if pointer == "void *":
        limit = numba.njit(lambda user: numba.carray(user, 1, numba.types.float64)[0])
    else:
        limit = numba.njit(lambda user: user[0])

    def fires(gain, elapsed, user):
        return gain > limit(user)

    def weight(norm, sigma, user):
        return 1.0 if norm <= limit(user) else limit(user) / norm

    def choose(estimates, widths, targets, n_layers, n_arms, draw, user):
        return int(draw * n_arms)

    return numba.cfunc(signatures[axis])(
        {"trigger": fires, "weighting": weight, "policy": choose}[axis]
    )


CYTHON = {"trigger": "gain_above", "weighting": "capped", "policy": "any_arm"}
FORMS = {
    "a Python object": python_object,
    "a Python function": python_rule,
    "numba, void *": lambda axis: low_level(numba_function(axis, "void *"), PARAMETER[axis]),
    "numba, double *": lambda axis: low_level(numba_function(axis, "double *"), PARAMETER[axis]),
    "ctypes": lambda axis: low_level(ctypes_function(axis), PARAMETER[axis]),
    "Cython": lambda axis: from_cython(formulas, CYTHON[axis], PARAMETER[axis]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("axis", BUILT_IN)
def test_every_form_of_a_rule_plays_like_the_built_in(axis, form):
    name, parameters = BUILT_IN[axis]
    expected = fsl.run(make(**{axis: name}, **parameters), problem(), record="all")
    mine = make(**{axis: FORMS[form](axis)})
    result = fsl.run(mine, problem(), record="all")
    assert_same_run(result, expected)
    assert_same_run(result, run_reference(mine, problem()))
    assert len(set(result.arms)) > 1 and 0 < result.communication[-1] < HORIZON


@pytest.mark.parametrize("form", FORMS)
def test_three_rules_of_one_form_play_together(form):
    names = {axis: name for axis, (name, _) in BUILT_IN.items()}
    parameters = {key: value for _, values in BUILT_IN.values() for key, value in values.items()}
    expected = fsl.run(make(**names, **parameters), problem(), record="all")
    result = fsl.run(
        make(**{axis: FORMS[form](axis) for axis in BUILT_IN}), problem(), record="all"
    )
    assert_same_run(result, expected)


@pytest.mark.parametrize("axis", BUILT_IN)
def test_a_function_that_needs_no_parameters_may_be_given_as_it_is(axis):
    """A bare ctypes function or numba @cfunc gets NULL as its `user`, which it must not read."""
    results = {"trigger": 1, "weighting": 0.5, "policy": 3}
    function = ctypes.CFUNCTYPE(*C_TYPES[axis])(lambda *arguments: results[axis])
    python = fsl.run(make(**{axis: lambda *arguments: results[axis]}), problem(), record="all")
    assert_same_run(fsl.run(make(**{axis: function}), problem(), record="all"), python)


def test_a_rule_can_be_called_from_python():
    assert (
        Rule("trigger", make(C=0.5).trigger)(0.5, 1.0) == 1
        and Rule("trigger", make(C=0.5).trigger)(0.4, 1.0) == 0
    )
    assert Rule("weighting", python_object("weighting"))(0.4, 1.0) == 0.5
    estimates, widths, targets = np.array([[0.1, -np.inf, 0.2]]), np.ones((1, 3)), np.zeros(1)
    assert Rule("policy", make(policy="uniform").policy)(estimates, widths, targets, 0.9) == 2
    with pytest.raises(ZeroDivisionError):
        Rule("trigger", type("Bad", (), {"fires": staticmethod(lambda gain, elapsed: 1 / 0)})())(
            0.5, 1.0
        )


def test_a_policy_sees_every_arm_of_every_layer_and_minus_infinity_for_one_that_is_not_there():
    seen = []

    def choose(estimates, widths, targets, draw):
        seen.append((estimates.copy(), widths.copy(), targets.copy(), draw))
        return int(estimates[0].argmax())

    mask = np.array([[True, False, True]] * 30)
    arrays = fsl.ArrayProblem(np.full((30, 3, 2), 0.3), [0, 1] * 15, theta=[0.5, 0.5], mask=mask)
    algorithm = fsl.make("async", dim=2, n_arms=3, n_clients=2, horizon=30, policy=choose)
    fsl.run(algorithm, arrays)
    estimates, widths, targets, draws = zip(*seen, strict=True)
    assert estimates[0].shape == widths[0].shape == (algorithm.n_layers, 3) and len(seen) == 30
    assert all((e[:, 1] == -np.inf).all() and np.isfinite(e[:, [0, 2]]).all() for e in estimates)
    assert all((w[:, 1] == 0).all() and (w[:, [0, 2]] > 0).all() for w in widths)
    np.testing.assert_array_equal(targets[0], algorithm.target_widths)
    assert len(set(draws)) == 30 and 0 <= min(draws) < max(draws) < 1


def test_the_random_number_of_a_policy_depends_on_seed_and_pull_alone():
    def draws(seed, **how):
        found = []
        fsl.run(make(policy=lambda e, w, t, draw: found.append(draw) or 0), problem(seed), **how)
        return found

    assert draws(0) == draws(0, chunk=7) != draws(1)
    assert np.mean(draws(0)) == pytest.approx(0.5, abs=0.05)


# --- checked when the algorithm is made ---


class Fires:
    """A trigger with a Python form and the given compiled form."""

    def __init__(self, compiled=None, state_size=0, fires=lambda gain, elapsed: True):
        self.compiled, self.state_size, self.fires = compiled, state_size, fires

    def __repr__(self):
        return "Fires()"


INT, DOUBLE, USER = ctypes.c_int, ctypes.c_double, ctypes.c_void_p


def c_function(*types):
    return ctypes.CFUNCTYPE(*types)(lambda *arguments: 0)


STATELESS = c_function(INT, DOUBLE, DOUBLE, USER)
STATEFUL = c_function(INT, DOUBLE, DOUBLE, DOUBLES, USER)


@pytest.mark.parametrize(
    ("types", "found"),
    [
        ((INT, DOUBLE, DOUBLE), "int (double, double)"),
        ((INT, DOUBLE, USER), "int (double, void *)"),
        ((DOUBLE, DOUBLE, DOUBLE, USER), "double (double, double, void *)"),
        ((ctypes.c_long, DOUBLE, DOUBLE, USER), "long (double, double, void *)"),
        ((ctypes.c_bool, DOUBLE, DOUBLE, USER), "bool (double, double, void *)"),
        ((INT, ctypes.c_float, DOUBLE, USER), "int (float, double, void *)"),
        ((INT, DOUBLE, DOUBLE, DOUBLE, USER), "int (double, double, double, void *)"),
        ((INT, DOUBLE, DOUBLE, ctypes.POINTER(INT)), "int (double, double, int *)"),
    ],
)
def test_a_compiled_trigger_of_another_signature_is_refused(types, found):
    message = (
        f"its compiled form has the signature '{found}', it must be 'int (double, double, void *)'"
    )
    for trigger in (
        c_function(*types),
        Fires(lambda: c_function(*types)),
        Fires(lambda: low_level(c_function(*types), 1.0)),
    ):
        with pytest.raises(PluginError) as caught:
            make(trigger=trigger)
        assert message in str(caught.value)
        assert str(caught.value).startswith(("Fires()", "Bare("))


@pytest.mark.parametrize("axis", BUILT_IN)
def test_a_compiled_rule_of_another_axis_is_refused(axis):
    for other in set(BUILT_IN) - {axis}:
        with pytest.raises(PluginError, match="its compiled form has the signature"):
            make(**{axis: from_cython(formulas, CYTHON[other], 1.0)})


def test_a_ctypes_function_without_argtypes_is_refused():
    nameless = ctypes.CDLL(None).abs  # any function of the C library: no argtypes are set
    with pytest.raises(
        PluginError,
        match="its ctypes function has no argtypes, so its signature can't be checked: set them",
    ):
        make(trigger=nameless)


def test_state_and_signature_must_go_together():
    with pytest.raises(
        PluginError,
        match=r"'int \(double, double, double \*, void \*\)', it must be .* state_size of 0",
    ):
        make(trigger=Fires(lambda: STATEFUL))
    with pytest.raises(
        PluginError,
        match=r"'int \(double, double, void \*\)', it must be .* state_size above 0",
    ):
        make(trigger=Fires(lambda: STATELESS, state_size=1))
    assert make(trigger=Fires(lambda: STATEFUL, state_size=1)).rules["trigger"].state_size == 1


WRONG_ARGUMENTS = [
    ("trigger", lambda gain: True, r"fires must take \(gain, elapsed\), not \(gain\)"),
    ("trigger", lambda gain, elapsed, state: True, r"fires must take \(gain, elapsed\), not"),
    ("trigger", lambda gain, *, elapsed: True, r"fires must take \(gain, elapsed\), not"),
    ("trigger", lambda: True, r"fires must take \(gain, elapsed\), not \(\)"),
    ("weighting", lambda norm: 1.0, r"weight must take \(norm, sigma\), not \(norm\)"),
    (
        "weighting",
        lambda norm, sigma, residual, state: 1.0,
        r"weight must take \(norm, sigma\), not",
    ),
    (
        "policy",
        lambda estimates, widths: 0,
        r"choose must take \(estimates, widths, targets, draw\), not",
    ),
]


@pytest.mark.parametrize(
    ("axis", "function", "message"),
    WRONG_ARGUMENTS,
    ids=lambda value: value if value in BUILT_IN else "",
)
def test_a_python_function_of_other_arguments_is_refused(axis, function, message):
    with pytest.raises(PluginError, match=message):
        make(**{axis: function})
    with pytest.raises(PluginError, match=message):
        make(**{axis: type("Mine", (), {METHOD[axis]: staticmethod(function)})()})


@pytest.mark.parametrize(
    ("axis", "arguments"),
    [
        ("trigger", "gain, elapsed, state"),
        ("weighting", "norm, sigma, residual, state"),
        ("policy", "estimates, widths, targets, draw, state"),
    ],
)
def test_a_python_rule_with_state_must_take_it(axis, arguments):
    without = type("Mine", (), {METHOD[axis]: staticmethod(python_rule(axis)), "state_size": 2})
    with pytest.raises(PluginError, match=rf"{METHOD[axis]} must take \({arguments}\), not"):
        make(**{axis: without()})


def test_a_class_in_place_of_an_object_is_refused():
    class Mine:
        def fires(self, gain, elapsed):
            return True

    with pytest.raises(
        PluginError, match=r"fires must take \(gain, elapsed\), not \(self, gain, elapsed\)"
    ):
        make(trigger=Mine)


def test_a_function_may_have_further_optional_arguments():
    expected = fsl.run(make(trigger=lambda gain, elapsed: elapsed >= 5), problem(), record="all")
    for function in (
        lambda gain, elapsed, every=5: elapsed >= every,
        lambda *arguments: arguments[1] >= 5,
    ):
        assert_same_run(fsl.run(make(trigger=function), problem(), record="all"), expected)


def test_a_callable_without_a_signature_is_accepted():
    result = fsl.run(make(weighting=max), problem(), record="all")
    assert_same_run(
        result,
        fsl.run(make(weighting=lambda norm, sigma: max(norm, sigma)), problem(), record="all"),
    )


@pytest.mark.parametrize(
    ("axis", "thing"),
    [("trigger", 3), ("weighting", 1.0), ("policy", object()), ("trigger", [1, 2])],
)
def test_objects_that_cannot_be_called_are_refused(axis, thing):
    with pytest.raises(PluginError, match=f"given as a {axis}, lacks .*{METHOD[axis]}"):
        make(**{axis: thing})
    with pytest.raises(
        PluginError,
        match=f"{METHOD[axis]} is .*, which is neither a function nor a scipy.LowLevelCallable",
    ):
        make(**{axis: type("Mine", (), {METHOD[axis]: thing})()})


def test_a_compiled_form_that_is_no_function_is_refused():
    with pytest.raises(
        PluginError, match=r"Fires\(\): fires is 3, which is neither a function nor"
    ):
        make(trigger=Fires(lambda: 3))


def test_user_data_that_is_null_is_refused():
    for null in (USER(0), USER(None)):
        with pytest.raises(
            PluginError,
            match=r"Fires\(\): the user data of its compiled form is a NULL pointer",
        ):
            make(trigger=Fires(lambda null=null: LowLevelCallable(STATELESS, null)))


def test_a_nan_parameter_is_refused_by_low_level_and_by_make():
    with pytest.raises(ValueError, match=r"a parameter of .* is NaN: \[1.0, nan\]"):
        low_level(STATELESS, 1.0, math.nan)
    with pytest.raises(PluginError, match=r"Fires\(\): a parameter of .* is NaN"):
        make(trigger=Fires(lambda: from_cython(formulas, "gain_above", math.nan)))


def test_a_parameter_that_is_no_number_is_refused():
    with pytest.raises(PluginError, match=r"Fires\(\): .*(float|number)"):
        make(trigger=Fires(lambda: from_cython(formulas, "gain_above", None)))


def test_an_unknown_cython_function_is_refused_and_the_others_are_listed():
    with pytest.raises(
        ValueError,
        match=r"fedsuplin_ext.formulas has no cdef function 'gain'; "
        "its .pxd declares any_arm, capped",
    ):
        from_cython(formulas, "gain")
    with pytest.raises(
        PluginError, match=r"Fires\(\): fedsuplin_ext.formulas has no cdef function 'gain'"
    ):
        make(trigger=Fires(lambda: from_cython(formulas, "gain")))
    with pytest.raises(ValueError, match="math has no cdef function 'sin'; its .pxd declares none"):
        from_cython(math, "sin")


def test_parameters_cannot_be_given_twice():
    with pytest.raises(
        PluginError, match="already has user data: give low_level the function without it"
    ):
        make(trigger=Fires(lambda: low_level(low_level(STATELESS, 1.0), 2.0)))


def test_the_error_of_a_failing_compiled_form_names_the_plugin():
    def no_compiler():
        raise OSError("no compiler here")

    with pytest.raises(PluginError, match=r"Fires\(\): no compiler here") as caught:
        make(trigger=Fires(no_compiler))
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("size", [-1, True, 1.0, "2", None])
@pytest.mark.parametrize("axis", BUILT_IN)
def test_the_size_of_state_is_a_whole_number_of_at_least_zero(axis, size):
    mine = type(
        "Mine", (), {METHOD[axis]: staticmethod(lambda *arguments: 0), "state_size": size}
    )()
    with pytest.raises(
        PluginError, match=f"state_size must be a whole number of at least 0, not {size!r}"
    ):
        make(**{axis: mine})


def test_without_a_compiled_form_the_python_form_is_used():
    """For example where numba is not installed."""
    calls = []
    mine = Fires(lambda: None, fires=lambda gain, elapsed: calls.append(gain) or elapsed >= 5)
    result = fsl.run(make(trigger=mine), problem(), record="all")
    assert len(calls) == HORIZON
    assert_same_run(result, fsl.run(make(trigger="periodic", every=5), problem(), record="all"))


def test_the_compiled_form_is_the_one_that_is_called_in_the_loop():
    def never_called(gain, elapsed):
        raise AssertionError

    mine = Fires(lambda: from_cython(formulas, "elapsed_at_least", 5.0), fires=never_called)
    assert fsl.run(make(trigger=mine), problem()).communication[-1] == HORIZON // 5


# --- what goes wrong in the loop ---

WHEN = 70  # the pull that goes wrong


def failing(axis, wrong):
    """Return a Python rule that returns or raises something wrong at pull 70."""
    rule, pulls = python_rule(axis), iter(range(10**9))

    def once(*arguments):
        if next(pulls) != WHEN:
            return rule(*arguments)
        if isinstance(wrong, BaseException):
            raise wrong
        return wrong

    return type(
        "Mine", (), {METHOD[axis]: staticmethod(once), "__repr__": lambda self: f"Mine({axis})"}
    )()


WRONG = [
    *((axis, RuntimeError("out of luck"), "raised RuntimeError: out of luck") for axis in BUILT_IN),
    *((axis, SystemExit(3), "raised SystemExit: 3") for axis in BUILT_IN),
    *(
        ("trigger", no, f"raised TypeError: fires returned {no}, it must return")
        for no in (None, math.nan, -1)
    ),
    ("trigger", np.array([True, False]), "raised ValueError: The truth value of an array"),
    ("trigger", "yes", "raised TypeError: '>=' not supported"),
    ("weighting", None, "raised TypeError: float.*NoneType"),
    ("weighting", math.nan, "returned a weight that is negative or not finite"),
    ("weighting", -1e-300, "returned a weight that is negative or not finite"),
    ("weighting", math.inf, "returned a weight that is negative or not finite"),
    ("weighting", "heavy", "raised ValueError: could not convert string to float: 'heavy'"),
    ("policy", None, "raised TypeError: 'NoneType' object cannot be interpreted as an integer"),
    ("policy", 2.0, "raised TypeError: 'float' object cannot be interpreted as an integer"),
    ("policy", -1, "chose -1, which is not layer·K \\+ arm for an available arm"),
    ("policy", 15, "chose 15, which is not"),  # 3 layers × 5 arms
    ("policy", 2**40, "raised OverflowError"),
]


@pytest.mark.parametrize(
    ("axis", "wrong", "message"),
    WRONG,
    ids=lambda value: None if isinstance(value, str) else repr(value),
)
def test_a_failing_rule_ends_the_run_with_plugin_pull_and_results(axis, wrong, message):
    whole = fsl.run(make(**{axis: python_rule(axis)}), problem(), record="all")
    for how in ({}, {"chunk": 1}, {"chunk": 70}):
        with pytest.raises(
            PluginError, match=rf"^Mine\({axis}\) {message}.*, at pull {WHEN} \(client [01]\)$"
        ) as caught:
            fsl.run(make(**{axis: failing(axis, wrong)}), problem(), record="all", **how)
        result = caught.value.result
        assert (
            not result.complete and result.n_pulls == len(result.arms) == len(result.regret) == WHEN
        )
        np.testing.assert_array_equal(result.arms, whole.arms[:WHEN])
        np.testing.assert_array_equal(result.regret, whole.regret[:WHEN])
        np.testing.assert_array_equal(result.communication, whole.communication[:WHEN])
        if isinstance(wrong, BaseException):
            assert caught.value.__cause__ is wrong


def test_the_error_of_one_run_does_not_affect_the_next():
    algorithm = make(trigger=failing("trigger", RuntimeError("once")))
    with pytest.raises(PluginError, match="once"):
        fsl.run(algorithm, problem())
    assert fsl.run(algorithm, problem()).complete


def compiled_returning(axis, wrong):
    pulls = iter(range(10**9))
    usual = {"trigger": 0, "weighting": 1.0, "policy": 0}[axis]
    return ctypes.CFUNCTYPE(*C_TYPES[axis])(
        lambda *arguments: wrong if next(pulls) == WHEN else usual
    )


@pytest.mark.parametrize(
    ("axis", "wrong", "message"),
    [
        ("trigger", -1, "returned a number below 0"),
        ("weighting", math.nan, "returned a weight that is negative or not finite"),
        ("weighting", -1.0, "returned a weight that is negative or not finite"),
        ("policy", -7, "chose -7, which is not"),
        ("policy", 15, "chose 15, which is not"),
    ],
)
def test_a_failing_compiled_rule_ends_the_run_too(axis, wrong, message):
    with pytest.raises(PluginError, match=f"{message}.* at pull {WHEN} ") as caught:
        fsl.run(make(**{axis: compiled_returning(axis, wrong)}), problem(), record="all")
    assert caught.value.result.n_pulls == WHEN


def test_a_missing_arm_cannot_be_chosen():
    mask = np.ones((100, 3), bool)
    mask[WHEN, 1] = False
    arrays = fsl.ArrayProblem(np.full((100, 3, 2), 0.3), [0, 1] * 50, theta=[0.5, 0.5], mask=mask)
    for choose in (lambda estimates, widths, targets, draw: 1, compiled_returning("policy", 1)):
        with pytest.raises(
            PluginError, match=f"chose 1, which is not layer·K .* at pull {WHEN} "
        ) as caught:
            fsl.run("async", arrays, policy=choose)
        assert caught.value.result.n_pulls == WHEN


@pytest.mark.parametrize("axis", BUILT_IN)
def test_ctrl_c_inside_a_rule_is_ctrl_c(axis):
    whole = fsl.run(make(**{axis: python_rule(axis)}), problem(), record="all")
    with pytest.warns(InterruptedRun, match="what was recorded until now"):
        result = fsl.run(
            make(**{axis: failing(axis, KeyboardInterrupt())}), problem(), record="all"
        )
    assert not result.complete and result.n_pulls == WHEN
    np.testing.assert_array_equal(result.arms, whole.arms[:WHEN])


# --- one algorithm, many runs ---


@dataclass(frozen=True)
class Counting:
    """Fire at every n-th pull of a client, counted in the state; optionally compiled by ctypes."""

    every: int = 7
    fast: bool = False
    state_size = 1

    def fires(self, gain, elapsed, state):
        state[0] += 1
        return state[0] % self.every == 0

    def compiled(self):
        return low_level(COUNT, self.every) if self.fast else None


@ctypes.CFUNCTYPE(INT, DOUBLE, DOUBLE, DOUBLES, USER)
def COUNT(gain, elapsed, state, user):
    state[0] += 1
    return state[0] % ctypes.cast(user, DOUBLES)[0] == 0


@dataclass(frozen=True)
class Learning:
    """A weighting that falls with the residuals that the client has seen."""

    state_size = 2

    def weight(self, norm, sigma, residual, state):
        weight = (1 + state[0]) / (1 + state[0] + state[1])
        state[0] += 1
        state[1] += residual**2
        return weight


@dataclass(frozen=True)
class Turns:
    """Play the layers in turn, and in each the largest estimate plus width."""

    state_size = 1

    def choose(self, estimates, widths, targets, draw, state):
        layer = int(state[0]) % len(targets)
        state[0] += 1
        return layer * estimates.shape[1] + int((estimates[layer] + widths[layer]).argmax())


EVERYTHING = (*COUNTED, "regret", "reward", "trigger_state", "weighting_state", "policy_state")


@pytest.mark.parametrize("fast", [False, True], ids=["Python", "compiled"])
def test_one_algorithm_in_many_threads_shares_no_state(fast):
    algorithm = make(trigger=Counting(fast=fast), weighting=Learning(), policy=Turns())
    alone = [fsl.run(algorithm, problem(seed), record="all") for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(
                lambda seed: fsl.run(algorithm, problem(seed), record="all", chunk=20), range(8)
            )
        )
    for one, other in zip(alone, together, strict=True):
        assert_same_run(one, other, EVERYTHING)
        assert (
            one.trigger_state.sum()
            == one.policy_state.sum()
            == one.weighting_state[:, 0].sum()
            == HORIZON
        )
    assert len({result.regret[-1] for result in alone}) == 8


def test_a_failure_in_one_thread_does_not_affect_another():
    good = make(trigger=Counting())

    def one(seed):
        if seed % 2:
            return fsl.run(good, problem(seed), record="all", chunk=20)
        with pytest.raises(PluginError, match=f"at pull {WHEN}"):
            fsl.run(
                make(trigger=failing("trigger", RuntimeError("mine alone"))),
                problem(seed),
                chunk=20,
            )
        return None

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(8)))
    assert all(result.complete for result in results if result is not None)


# --- pickling ---


def every_five_pulls(gain, elapsed):
    return elapsed >= 5


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"trigger": "periodic", "every": 5, "policy": "uniform"},
        {"trigger": every_five_pulls},
        {"trigger": Counting(fast=True), "weighting": Learning(), "policy": Turns()},
    ],
    ids=["built-ins", "by name", "a function", "objects with state"],
)
def test_a_pickled_algorithm_plays_the_same(parts):
    algorithm = make(**parts)
    expected = fsl.run(
        algorithm, problem(), record="all"
    )  # before it is pickled: its rules are in it
    again = pickle.loads(pickle.dumps(algorithm))
    assert str(again) == str(algorithm) and again.spec == algorithm.spec
    assert_same_run(fsl.run(again, problem(), record="all"), expected, EVERYTHING)


def test_a_pickled_algorithm_plays_the_same_in_another_process(tmp_path):
    algorithm = make(trigger="periodic", every=5)
    (tmp_path / "algorithm").write_bytes(pickle.dumps((algorithm, problem())))
    code = (
        "import pickle, sys, fedsuplin as fsl; "
        "print(fsl.run(*pickle.load(open(sys.argv[1], 'rb'))).regret[-1].hex())"
    )
    command = [sys.executable, "-c", code, tmp_path / "algorithm"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == fsl.run(algorithm, problem()).regret[-1].hex()


def test_a_bare_compiled_function_cannot_be_pickled_but_its_plugin_can():
    with pytest.raises((ValueError, TypeError, pickle.PicklingError)):
        pickle.dumps(make(trigger=c_function(INT, DOUBLE, DOUBLE, USER)))
    assert pickle.loads(pickle.dumps(make(trigger=Counting(fast=True)))).trigger == Counting(
        fast=True
    )


# --- the norm is computed where it is read ---


class Noted:
    """A third-party weighting: ω = 1, and it notes the norms."""

    def __init__(self):
        self.norms = []

    def weight(self, norm, sigma):
        self.norms.append(norm)
        return 1.0


class NormBlind(Noted):
    reads_norm = False


class Mistaken(NormBlind):
    """Declares that it does not read the norm, and reads it."""

    def weight(self, norm, sigma):
        return 0.1 / (0.1 + norm)


@pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "eager"])
@pytest.mark.parametrize("variant", ["async", "sync"])
def test_a_weighting_that_reads_the_norm_gets_it_at_every_pull(variant, lazy):
    problem = fsl.SyntheticProblem(5, 6, 4, seed=1)
    results = {}
    for weighting in (Noted(), NormBlind(), "unit"):
        result = fsl.run(
            variant, problem, horizon=600, weighting=weighting, lazy=lazy, record="all"
        )
        results[weighting] = result
        np.testing.assert_array_equal(result.arms, next(iter(results.values())).arms)
        np.testing.assert_array_equal(result.layers, next(iter(results.values())).layers)
    noted, blind, _ = results
    assert len(noted.norms) == len(blind.norms) == 600
    assert min(noted.norms) > 0 and np.isfinite(noted.norms).all()
    assert len(set(noted.norms)) > 500  # each pull has its own
    assert np.isnan(blind.norms).all()


def test_a_weighting_that_reads_the_norm_and_declares_that_it_does_not_ends_the_run():
    with pytest.raises(
        PluginError, match="Mistaken.*returned a weight that is negative or not finite"
    ):
        fsl.run("async", fsl.SyntheticProblem(5, 6, 4), horizon=600, weighting=Mistaken())
