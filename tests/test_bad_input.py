"""Bad input gets an error that says what was wrong, where, and what is right, before a run."""

import re

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, NumericalError, UnknownName

SIZES = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 100}


def arrays(**changes):
    rng = np.random.default_rng(0)
    given = {
        "contexts": rng.standard_normal((10, 4, 3)) / 10,
        "clients": np.arange(10) % 2,
        "theta": [0.1, 0.2, 0.3],
    }
    return fsl.ArrayProblem(**(given | changes))


def with_entry(shape, at, value):
    array = np.full(shape, 0.1)
    array[at] = value
    return array


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"contexts": np.zeros((10, 4))},
            r"contexts must have the shape \(rounds, arms, dim\), none of them 0, not \(10, 4\)",
        ),
        (
            {"contexts": np.zeros((0, 4, 3)), "clients": np.zeros(0, int)},
            r"none of them 0, not \(0, 4, 3\)",
        ),
        ({"contexts": [["a"]]}, "contexts can't be read as an array of numbers"),
        (
            {"contexts": with_entry((10, 4, 3), (7, 2, 1), np.nan)},
            "contexts of round 7, arm 2 hold NaN or infinity",
        ),
        (
            {"contexts": with_entry((10, 4, 3), (7, 2, 1), np.inf)},
            "contexts of round 7, arm 2 hold NaN or infinity",
        ),
        (
            {"contexts": with_entry((10, 4, 3), (5, 1, 0), 2.0)},
            "round 5, arm 1 has length 2.00.*scale_contexts=True",
        ),
        ({"clients": np.zeros(9, int)}, r"clients must be 10 integers, not int64 of shape \(9,\)"),
        ({"clients": np.zeros(10)}, "clients must be 10 integers, not float64"),
        ({"clients": np.full(10, -1)}, r"clients\[0\] is -1, out of range"),
        (
            {"clients": np.arange(10), "n_clients": 5},
            r"clients\[5\] is 5, out of range for n_clients=5: it must be 0 to 4",
        ),
        ({"theta": [0.1, 0.2]}, r"theta must have the shape \(3,\), not \(2,\)"),
        ({"theta": [0.1, np.nan, 0.2]}, r"theta\[1\] is nan: every entry must be finite"),
        ({"theta": None}, "give either theta .* or rewards .*: one of them is needed"),
        ({"rewards": np.zeros((10, 4))}, "give either theta .* or rewards .*: not both"),
        (
            {"theta": None, "rewards": np.zeros((10, 3))},
            r"rewards must have the shape \(10, 4\), not \(10, 3\)",
        ),
        (
            {"theta": None, "rewards": with_entry((10, 4), (3, 1), np.nan)},
            r"rewards\[3, 1\] is nan",
        ),
        ({"noise": np.zeros(3)}, r"noise must have the shape \(10,\), not \(3,\)"),
        ({"noise": with_entry(10, 4, np.inf)}, r"noise\[4\] is inf"),
        ({"sigma": -0.5}, "sigma must be at least 0, not -0.5"),
        (
            {"sigma": with_entry(10, 6, -0.1)},
            r"sigma\[6\] is -0.1: a noise level can't be negative",
        ),
        ({"noise_scale": -1}, "noise_scale must be at least 0, not -1"),
        (
            {"corruption": np.zeros((10, 2))},
            r"corruption must have the shape \(10, 4\), not \(10, 2\)",
        ),
        ({"mask": np.ones((10, 4))}, "mask must be boolean"),
        ({"mask": np.ones((9, 4), bool)}, r"mask must be boolean of shape \(10, 4\)"),
        ({"mask": np.arange(10)[:, None] != np.full(4, 6)}, "round 6 has no arm"),
    ],
)
def test_arrays_that_can_not_be_played_are_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        arrays(**changes)


def test_a_context_barely_longer_than_one_is_rounding_and_accepted():
    unit = np.full((10, 4, 3), 1 / np.sqrt(3)) * (1 + 1e-9)
    assert fsl.run("async", arrays(contexts=unit)).complete


def test_contexts_are_scaled_when_asked():
    problem = arrays(contexts=with_entry((10, 4, 3), (5, 1, 0), 2.0), scale_contexts=True)
    packed = problem.stream(10, None).take(10).contexts
    assert np.linalg.norm(packed, axis=1).max() == pytest.approx(1.0)


def test_masked_arms_may_hold_anything_and_are_never_played():
    rng = np.random.default_rng(0)
    mask = rng.random((300, 4)) < 0.5
    mask[:, 2] |= ~mask.any(axis=1)
    contexts = rng.standard_normal((300, 4, 3)) / 10
    contexts[~mask] = np.nan
    rewards = np.where(mask, 0.5, np.nan)
    result = fsl.run(
        "async",
        fsl.ArrayProblem(contexts, np.zeros(300, int), rewards=rewards, mask=mask),
        record="all",
    )
    assert mask[np.arange(300), result.arms].all() and np.isfinite(result.regret).all()


@pytest.mark.parametrize("layout", ["fortran", "strided", "float32", "list", "read-only"])
def test_the_layout_of_an_array_does_not_matter(layout):
    contexts = (
        np.random.default_rng(0).standard_normal((50, 4, 3)).astype(np.float32).astype(float) / 16
    )
    forms = {
        "fortran": np.asfortranarray(contexts),
        "strided": np.repeat(contexts, 2, axis=1)[:, ::2],
        "float32": contexts.astype(np.float32),
        "list": contexts.tolist(),
        "read-only": contexts.copy(),
    }
    forms["read-only"].setflags(write=False)
    clients = np.arange(50) % 2
    expected = fsl.run(
        "async", fsl.ArrayProblem(contexts, clients, theta=[0.1, 0.2, 0.3]), record="all"
    )
    found = fsl.run(
        "async", fsl.ArrayProblem(forms[layout], clients, theta=[0.1, 0.2, 0.3]), record="all"
    )
    np.testing.assert_array_equal(found.arms, expected.arms)
    np.testing.assert_array_equal(found.regret, expected.regret)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 0}, "dim must be a whole number of at least 1, not 0"),
        ({"n_arms": 2.5}, "n_arms must be a whole number of at least 1, not 2.5"),
        ({"n_clients": True}, "n_clients must be a whole number of at least 1, not True"),
        ({"horizon": -4}, "horizon must be a whole number of at least 1, not -4"),
        ({"horizon": "many"}, "horizon must be a whole number of at least 1, not 'many'"),
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1, not 0.0"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1, not 1.0"),
        ({"delta": np.nan}, "delta must be a finite number, not nan"),
        ({"noise_scale": -0.1}, "noise_scale must be at least 0, not -0.1"),
        ({"alpha_scale": -1}, "alpha_scale must be at least 0, not -1"),
        ({"theta_bound": np.inf}, "theta_bound must be a finite number, not inf"),
        ({"ridge": 0}, "ridge must be positive, not 0"),
        ({"C": -1}, "C must be at least 0, not -1"),
        ({"trigger": "periodic", "every": 0}, "every must be a whole number of at least 1, not 0"),
    ],
)
def test_parameters_out_of_range_are_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        fsl.make("async", **(SIZES | changes))


def test_an_unknown_way_to_sync_is_refused():
    with pytest.raises(UnknownName, match="unknown way to sync 'some'.*Available: all, one, push"):
        fsl.make("async", **SIZES, syncs="some")


@pytest.mark.parametrize(
    ("variant", "changes", "message"),
    [
        ("sync", {"D": -1}, "D must be at least 0, not -1"),
        ("variance", {"R": 0}, "R must be positive, not 0"),
        (
            "variance",
            {"layer_zero": "other"},
            "layer_zero must be 'bernstein' or 'square-root', not 'other'",
        ),
        ("robust", {"corruption": -3}, "corruption must be at least 0, not -3"),
    ],
)
def test_parameters_of_the_other_variants_out_of_range_are_refused(variant, changes, message):
    with pytest.raises(InvalidInput, match=message):
        fsl.make(variant, **SIZES, **changes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: fsl.make("asinc", **SIZES),
            "unknown variant 'asinc'. Did you mean 'async'.*"
            "Available: async, async-linucb, dislinucb.*sync, uniform, variance",
        ),
        (
            lambda: fsl.make("async", **SIZES, preset="practicle"),
            "unknown preset 'practicle'. Did you mean 'practical'",
        ),
        (
            lambda: fsl.make("async", **SIZES, trigger="perodic"),
            "unknown trigger 'perodic'. Did you mean 'periodic'",
        ),
        (
            lambda: fsl.make("async", **SIZES, noise="gausian"),
            "unknown noise model 'gausian'. Did you mean 'gaussian'",
        ),
        (
            lambda: fsl.make("async", **SIZES, weighting="units"),
            "unknown weighting 'units'. Did you mean 'unit'",
        ),
        (
            lambda: fsl.make("async", **SIZES, policy="layer"),
            "unknown policy 'layer'. Did you mean 'layered'",
        ),
        (lambda: fsl.make("async", **SIZES, D=3), "unknown keyword for 'async' 'D'"),
        (lambda: fsl.make("async", **SIZES, R=3), "unknown keyword for 'async' 'R'"),
        (
            lambda: fsl.make("variance", **SIZES, noise_scale=0.1),
            "unknown keyword for 'variance' 'noise_scale'",
        ),
        (
            lambda: fsl.make("variance", **SIZES, sigma_low=0.1),
            "unknown keyword for 'variance' 'sigma_low'",
        ),
        (
            lambda: fsl.make("async", **SIZES, alpha_scle=0.1),
            "'alpha_scle'. Did you mean 'alpha_scale'",
        ),
        (
            lambda: fsl.SyntheticProblem(2, 2, 2, arrival="randm"),
            "unknown arrival 'randm'. Did you mean 'random'",
        ),
        (
            lambda: fsl.SyntheticProblem(2, 2, 2, contexts="cube"),
            "unknown law of contexts 'cube'.*ball, sphere",
        ),
        (
            lambda: fsl.SyntheticProblem(2, 2, 2, noise="bounded", noise_scale=1),
            "unknown parameter of 'bounded' noise 'noise_scale'",
        ),
    ],
)
def test_unknown_names_list_the_choices_and_the_nearest(call, message):
    with pytest.raises(UnknownName, match=message):
        call()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"theta": [1.0]}, r"theta must have the shape \(3,\)"),
        ({"noise_scale": -1}, "noise_scale must be at least 0"),
        ({"noise": "bounded", "sigma_high": 2.0}, "0 ≤ sigma_low ≤ sigma_high ≤ R must hold"),
        ({"noise": "corrupted", "corruption": -1.0}, "corruption must be at least 0, not -1"),
        ({"noise": "gaussian", "horizon": 0}, "horizon must be a whole number"),
    ],
)
def test_synthetic_problems_check_what_they_are_given(changes, message):
    with pytest.raises(InvalidInput, match=message):
        fsl.SyntheticProblem(3, 4, 2, **changes)


def test_parameters_of_a_noise_object_belong_in_the_object():
    from fedsuplin_plugins.noise import Gaussian

    with pytest.raises(InvalidInput, match="belong in it"):
        fsl.SyntheticProblem(3, 4, 2, noise=Gaussian(0.2), noise_scale=0.3)
    assert fsl.SyntheticProblem(3, 4, 2, noise=Gaussian(0.2)).noise_scale == 0.2


def test_a_run_needs_a_length():
    with pytest.raises(InvalidInput, match="give horizon="):
        fsl.run("async", fsl.SyntheticProblem(3, 4, 2))


@pytest.mark.parametrize("given", ["synthetic", None, fsl.SyntheticProblem, np.zeros((3, 2))])
def test_a_run_needs_a_problem_and_says_how_one_is_made(given):
    with pytest.raises(
        InvalidInput, match=r"must be a Problem, such as fsl.SyntheticProblem\(.*, not "
    ):
        fsl.run("async", given, horizon=100)


def test_the_horizon_may_not_be_shorter_than_the_run():
    algorithm = fsl.make("async", **(SIZES | {"horizon": 5}))
    with pytest.raises(InvalidInput, match="made for a horizon of 5 pulls, but the run has 10"):
        fsl.run(algorithm, arrays())
    assert fsl.run(algorithm, arrays(), horizon=5).n_pulls == 5  # a prefix, by explicit wish


def test_a_run_may_not_be_longer_than_its_problem():
    with pytest.raises(
        InvalidInput, match="horizon=11 is longer than the problem, which has 10 pulls"
    ):
        fsl.run("async", arrays(), horizon=11)


def test_algorithm_and_problem_must_have_the_same_sizes():
    algorithm = fsl.make("async", **(SIZES | {"n_arms": 5}))
    with pytest.raises(InvalidInput, match="n_arms is 5 in the algorithm and 4 in the problem"):
        fsl.run(algorithm, arrays())


def test_keywords_for_an_algorithm_that_is_already_made_are_refused():
    with pytest.raises(InvalidInput, match="already made, so C can't be given"):
        fsl.run(fsl.make("async", **SIZES), arrays(), C=1.0)


def test_sync_needs_clients_in_rounds():
    clients = np.arange(10) % 2
    clients[[6, 7]] = 1
    with pytest.raises(
        InvalidInput,
        match=r"every 2 pulls must hold each client once; pulls 6 to 7 have clients \[1, 1\]",
    ):
        fsl.run("sync", arrays(clients=clients))
    reversed_round = np.arange(10) % 2
    reversed_round[[6, 7]] = 1, 0  # any order within a round will do
    assert fsl.run("sync", arrays(clients=reversed_round)).complete


def test_sync_refuses_an_arrival_without_rounds():
    for arrival in ("random", "click-leave"):
        with pytest.raises(InvalidInput, match="arrival must be 'round-robin'"):
            fsl.run("sync", fsl.SyntheticProblem(3, 4, 2, arrival=arrival), horizon=100)


def test_sync_needs_whole_rounds():
    with pytest.raises(InvalidInput, match="divisible by n_clients: 101 is not by 2"):
        fsl.run("sync", fsl.SyntheticProblem(3, 4, 2), horizon=101)


@pytest.mark.parametrize("record", ["some", "", 0, -3, 2.5])
def test_record_is_checked(record):
    with pytest.raises(InvalidInput, match="record must be"):
        fsl.run("async", arrays(), record=record)


def test_chunk_is_checked():
    with pytest.raises(InvalidInput, match="chunk must be a whole number"):
        fsl.run("async", arrays(), chunk=0)


class Streams:
    """A third party's problem whose chunks can be spoilt; `problem` serves the rest."""

    def __init__(self, problem, spoil):
        self._problem, self._spoil = problem, spoil

    def __getattr__(self, name):
        return getattr(self._problem, name)

    def stream(self, horizon, arrival):
        stream = self._problem.stream(horizon, arrival)
        take = stream.take
        stream.take = lambda n: self._spoil(take(n))
        stream.checked = False
        return stream


def replaced(**changes):
    import dataclasses

    return lambda chunk: dataclasses.replace(chunk, **changes)


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "hold NaN or infinity"), (3.0, "has length 3.*at most 1")]
)
def test_a_third_partys_contexts_are_looked_at(value, message):
    def spoil(chunk):
        chunk.contexts[2, :, 1] = 0.0
        chunk.contexts[2, 0, 1] = value
        return chunk

    with pytest.raises(InvalidInput, match=f"round 2, arm 1 {message}"):
        fsl.run("async", Streams(fsl.SyntheticProblem(3, 4, 2), spoil), horizon=4)


def test_the_engine_itself_refuses_a_client_out_of_range():
    problem = Streams(
        fsl.SyntheticProblem(3, 4, 2), replaced(clients=np.array([0, 1, 7, 0], np.int32))
    )
    with pytest.raises(InvalidInput, match=r"the client is out of range, at pull 2 \(client 7\)"):
        fsl.run("async", problem, horizon=4)


def test_the_engine_itself_refuses_a_client_that_comes_twice_in_a_round():
    problem = Streams(
        fsl.SyntheticProblem(3, 4, 2), replaced(clients=np.array([0, 1, 1, 1], np.int32))
    )
    with pytest.raises(InvalidInput, match=r"the client came twice, at pull 3 \(client 1\)"):
        fsl.run("sync", problem, horizon=4)


@pytest.mark.parametrize(
    "changes",
    [
        {"contexts": np.zeros((4, 2, 4))},
        {"clients": np.zeros(3, np.int32)},
        {"noise": np.zeros(5)},
        {"sigma": np.zeros(0)},
        {"theta": np.zeros(2)},
        {"rewards": np.zeros((4, 4))},
        {"mask": np.ones((4, 3), np.uint8)},
        {"corruption": np.zeros((3, 4))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_chunks_that_do_not_fit_are_refused(changes):
    problem = Streams(fsl.SyntheticProblem(3, 4, 2), replaced(**changes))
    with pytest.raises(ValueError, match="do not fit 4 rounds of 4 arms in dimension 3"):
        fsl.run("async", problem, horizon=4)


@pytest.mark.parametrize(("arms", "more"), [(8, "more"), (2, "fewer")])
def test_contexts_of_another_number_of_arms_are_refused(arms, more):
    contexts = np.zeros((4, 3, arms))
    problem = Streams(fsl.SyntheticProblem(3, 4, 2), replaced(contexts=contexts))
    with pytest.raises(InvalidInput, match=f"have {more} arms than the problem's n_arms=4"):
        fsl.run("async", problem, horizon=4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"clients": np.zeros(4, np.int64)},
            "clients must be int32 with 1 axes, not int64 of shape (4,)",
        ),
        ({"noise": [0.0] * 4}, "noise must be float64 with 1 axes, not list"),
        ({"sigma": None}, "sigma must be float64 with 1 axes, not NoneType"),
        (
            {"theta": np.zeros((1, 3))},
            "theta must be float64 with 1 axes, not float64 of shape (1, 3)",
        ),
        (
            {"mask": np.ones((4, 4), bool)},
            "mask must be uint8 with 2 axes, not bool of shape (4, 4)",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_chunk_made_by_hand_must_have_the_engines_types(changes, message):
    problem = Streams(fsl.SyntheticProblem(3, 4, 2), replaced(**changes))
    with pytest.raises(InvalidInput, match=re.escape(f"the chunk's {message}")):
        fsl.run("async", problem, horizon=4)


def test_a_gram_matrix_that_overflows_ends_the_run_with_what_was_recorded():
    class Growing:
        def __init__(self):
            self.calls = 0

        def weight(self, norm, sigma):
            self.calls += 1
            return 1.0 if self.calls <= 50 else 1e308

    problem = fsl.SyntheticProblem(3, 4, 1, seed=0)
    for trigger in ("always", "never"):
        for lazy in (True, False):
            with pytest.raises(
                NumericalError, match="no longer positive definite.*at pull"
            ) as caught:
                fsl.run(
                    "async",
                    problem,
                    horizon=5000,
                    weighting=Growing(),
                    trigger=trigger,
                    lazy=lazy,
                    record="all",
                )
            result = caught.value.result
            assert result.complete is False and result.n_pulls == len(result.arms) >= 50
            assert np.isfinite(result.regret).all()


@pytest.mark.parametrize("variant", ["async", "sync", "oful"])
def test_rewards_that_overflow_end_the_run_with_an_error(variant):
    problem = fsl.ArrayProblem(
        np.full((400, 2, 3), 0.3), np.zeros(400, int), rewards=np.full((400, 2), 1e306)
    )
    with pytest.raises(NumericalError, match="no longer finite, at pull") as caught:
        fsl.run(variant, problem)
    assert 0 < caught.value.result.n_pulls < 400
