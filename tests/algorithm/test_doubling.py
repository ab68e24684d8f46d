"""An unknown horizon: epochs one after the other on one stream, reported as one run."""

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.doubling import LAST_EPOCH
from fedsuplin.errors import InterruptedRun, InvalidInput, PluginError, UnknownName
from fedsuplin.reference.twin import run_reference
from fedsuplin_ext.loop import BY_PULL, COUNTS, SUMS

SIZES = {"dim": 4, "n_arms": 5, "n_clients": 3}
VARIANTS = ("async", "sync", "robust", "async-linucb", "uniform")


def a_problem(variant="async", seed=1, **given):
    noise = {"noise": "corrupted", "corruption": 9.0} if variant == "robust" else {}
    return fsl.SyntheticProblem(**{**SIZES, "arrival": "round-robin", **given}, seed=seed, **noise)


def a_doubling(variant="async", first=60, **given):
    return fsl.Doubling(variant, SIZES | given, first=first)


def same(one, other, names=(*SUMS, *COUNTS, *BY_PULL)):
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# --- what make gives ------------------------------------------------------------------------------
def test_without_a_horizon_make_gives_epochs_that_double():
    doubling = fsl.make("async", **SIZES, horizon=None, preset="theory", C=0.5)
    assert [doubling.algorithm(epoch).horizon for epoch in range(4)] == [1024, 2048, 4096, 8192]
    assert (
        doubling.algorithm(3).spec
        == fsl.make("async", **SIZES, horizon=8192, preset="theory", C=0.5).spec
    )


def test_an_unknown_horizon_must_be_given_as_none():
    with pytest.raises(TypeError, match="horizon"):
        fsl.make("async", **SIZES)


def test_a_wrong_keyword_is_refused_at_once():
    with pytest.raises(UnknownName, match="gamma"):
        fsl.make("async", **SIZES, horizon=None, gamma=3)
    with pytest.raises(InvalidInput, match="dim"):
        fsl.make("async", **SIZES | {"dim": 0}, horizon=None)
    with pytest.raises(UnknownName, match="preset"):
        fsl.make("async", **SIZES, horizon=None, preset="best")
    for first in (0, -1, 2.5, "many", None):
        with pytest.raises(InvalidInput, match="first"):
            a_doubling(first=first)
    with pytest.raises(InvalidInput, match="no horizon"):
        fsl.Doubling("async", SIZES | {"horizon": 9})


@pytest.mark.parametrize("epoch", [-1, LAST_EPOCH + 1, 1.5, None, True])
def test_an_epoch_that_there_is_not_is_refused(epoch):
    with pytest.raises(InvalidInput, match="epochs are 0 to"):
        a_doubling().algorithm(epoch)


def test_it_shows_what_it_is():
    shown = str(fsl.make("sync", **SIZES, horizon=None))
    assert (
        shown.startswith("unknown horizon: epoch e has 1026 · 2^e pulls")
        and "sync (preset practical)" in shown
    )
    assert repr(a_doubling()) == str(a_doubling())


def test_a_policy_that_syncs_all_has_epochs_of_whole_rounds():
    assert fsl.make("sync", **SIZES | {"n_clients": 20}, horizon=None).first == 1040
    assert a_doubling("sync", first=1).first == 3 and a_doubling("async", first=1).first == 1


def test_what_is_given_may_change_afterwards():
    keywords = dict(SIZES)
    doubling = fsl.Doubling("async", keywords)
    keywords["dim"] = 9
    assert doubling.algorithm(0).dim == 4


def test_it_is_made_again_from_plain_data():
    doubling = fsl.make("sync", **SIZES | {"dim": np.int64(4)}, horizon=None, D=np.float64(3.0))
    again = fsl.Doubling.from_spec(doubling.spec)
    assert again.spec == doubling.spec and again.algorithm(2).spec == doubling.algorithm(2).spec
    with pytest.raises(InvalidInput, match="register them"):
        _ = fsl.make("async", **SIZES, horizon=None, trigger=lambda gain, elapsed: elapsed > 3).spec


# --- runs -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_first_epoch_is_the_run_that_knows_its_horizon(variant):
    doubling, problem = a_doubling(variant), a_problem(variant)
    known = fsl.run(doubling.algorithm(0), problem, record="all")
    same(fsl.run(doubling, problem, horizon=60, record="all"), known)
    longer = fsl.run(doubling, problem, horizon=600, record="all")
    for name in (*SUMS, *COUNTS, *BY_PULL):
        np.testing.assert_array_equal(
            getattr(longer, name)[:60], getattr(known, name), err_msg=name
        )


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_epoch_plays_the_pulls_that_come_next_from_nothing(variant):
    """The pulls are those of a run that knows the horizon, split where an epoch ends."""
    doubling, problem = a_doubling(variant), a_problem(variant)
    stream, n = problem.stream(420, problem.arrival), 420
    chunk = stream.take(n)
    contexts = np.transpose(chunk.contexts[:, :, : problem.n_arms], (0, 2, 1))
    corruption = None if chunk.corruption is None else chunk.corruption[:, : problem.n_arms]
    whole = fsl.run(doubling, problem, horizon=n, record="all")
    assert [(epoch.begins, epoch.n_pulls) for epoch in doubling.epochs(n)] == [
        (0, 60),
        (60, 120),
        (180, 240),
    ]
    left = problem.corruption
    for epoch in doubling.epochs(n):
        part = slice(epoch.begins, epoch.begins + epoch.n_pulls)
        given = {
            "clients": chunk.clients[part],
            "noise": chunk.noise[part],
            "sigma": chunk.sigma[part],
        }
        if corruption is not None:
            given["corruption"] = cut_to(left, corruption[part], whole.arms[part])
            left -= np.abs(given["corruption"][np.arange(epoch.n_pulls), whole.arms[part]]).sum()
        cut = fsl.ArrayProblem(
            contexts[part], theta=problem.theta, n_clients=problem.n_clients, **given
        )
        alone = fsl.run(doubling.algorithm(epoch.number), cut, horizon=epoch.n_pulls, record="all")
        if variant != "uniform":  # whose random numbers are its epoch's
            np.testing.assert_array_equal(whole.arms[part], alone.arms)
            np.testing.assert_array_equal(whole.layers[part], alone.layers)
        for name in ("regret", "communication", "messages_up", "bytes_down"):
            curve = getattr(whole, name)
            before = curve[epoch.begins - 1] if epoch.begins else 0
            if variant != "uniform":
                np.testing.assert_allclose(
                    curve[part] - before, getattr(alone, name), atol=1e-9, err_msg=name
                )


def cut_to(budget, corruption, arms):
    """What an adversary with so much left adds, where these arms are played."""
    cut = corruption.copy()
    for pull, arm in enumerate(arms):
        cut[pull, arm] = np.clip(cut[pull, arm], -budget, budget)
        budget -= abs(cut[pull, arm])
    return cut


def test_clients_contexts_and_noise_are_those_of_a_run_that_knows_the_horizon():
    """A policy that does not look plays the same with both, whoever's turn it is."""
    problem, first_arm = (
        a_problem(arrival="random"),
        {"policy": lambda estimates, widths, targets, draw: 0, "trigger": "never"},
    )
    known = fsl.run("async", problem, horizon=900, record="all", **first_arm)
    unknown = fsl.run(a_doubling(**first_arm), problem, horizon=900, record="all")
    same(known, unknown, BY_PULL)
    for name in SUMS:
        np.testing.assert_allclose(
            getattr(known, name), getattr(unknown, name), rtol=1e-12, err_msg=name
        )


def test_policies_that_draw_do_not_repeat_their_numbers_in_every_epoch():
    played = fsl.run(a_doubling("uniform", first=200), a_problem(), horizon=600, record="all")
    assert (played.arms[:200] != played.arms[200:400]).any()


@pytest.mark.parametrize("variant", ["async", "sync"])
def test_how_the_stream_is_cut_changes_nothing(variant):
    doubling, problem = a_doubling(variant), a_problem()
    whole = fsl.run(doubling, problem, horizon=900, record="all")
    for chunk in (1, 7, 59, 60, 61, 10_000):
        same(whole, fsl.run(doubling, problem, horizon=900, record="all", chunk=chunk))
    shorter = fsl.run(doubling, problem, horizon=300, record="all")
    for name in (*SUMS, *COUNTS, *BY_PULL):
        np.testing.assert_array_equal(
            getattr(shorter, name), getattr(whole, name)[:300], err_msg=name
        )


@pytest.mark.parametrize("variant", VARIANTS)
def test_totals_are_those_of_all_epochs(variant):
    result = fsl.run(a_doubling(variant), a_problem(variant), horizon=900, record="all")
    assert result.complete and result.n_pulls == 900 == result.layer_pulls.sum() == len(
        result.regret
    )
    np.testing.assert_allclose(result.client_regret.sum(), result.regret[-1])
    np.testing.assert_array_equal(
        np.bincount(result.layers, minlength=len(result.layer_pulls)), result.layer_pulls
    )
    np.testing.assert_array_equal(np.bincount(result.clients, minlength=3), result.client_pulls)
    for name in COUNTS:
        assert (np.diff(getattr(result, name)) >= 0).all()
    assert (np.diff(result.uniform_regret) >= -1e-12).all()


@pytest.mark.parametrize("record", ["log", 1, 7, 60, 5000])
def test_rows_are_recorded_where_a_run_that_knows_the_horizon_has_them(record):
    doubling, problem = a_doubling(), a_problem()
    every = fsl.run(doubling, problem, horizon=900, record="all")
    rows = fsl.run(doubling, problem, horizon=900, record=record)
    np.testing.assert_array_equal(
        rows.pulls, fsl.run("async", problem, horizon=900, record=record).pulls
    )
    same(rows, fsl.run(doubling, problem, horizon=900, record=record))
    for name in (*SUMS, *COUNTS):
        np.testing.assert_array_equal(
            getattr(rows, name), getattr(every, name)[rows.pulls - 1], err_msg=name
        )
    assert rows.arms is None


@pytest.mark.parametrize("variant", ["async", "sync", "variance", "oful", "dislinucb"])
def test_the_smallest_sizes_work(variant):
    sizes = {"dim": 1, "n_arms": 1, "n_clients": 1}
    noise = {"noise": "bounded", "R": 0.5} if variant == "variance" else {}
    result = fsl.run(
        fsl.Doubling(variant, sizes, first=1),
        fsl.SyntheticProblem(**sizes, **noise),
        horizon=40,
        record="all",
    )
    assert result.n_pulls == 40 and result.regret[-1] == 0


@pytest.mark.parametrize("variant", ["pe", "fed-pe"])
def test_phased_policies_begin_their_phases_anew(variant):
    problem = fsl.FixedArmsProblem(**SIZES, seed=0, arrival="round-robin")
    doubling = fsl.make(variant, **SIZES, horizon=None)
    known = fsl.run(doubling.algorithm(0), problem, record="all")
    result = fsl.run(doubling, problem, horizon=3 * doubling.first, record="all")
    np.testing.assert_array_equal(result.arms[: doubling.first], known.arms)
    assert result.n_pulls == 3 * doubling.first


def test_a_problem_that_ends_says_how_long_the_run_is():
    problem = a_problem(horizon=200)
    assert fsl.run(a_doubling(), problem).n_pulls == 200
    with pytest.raises(InvalidInput, match="longer than the problem"):
        fsl.run(a_doubling(), problem, horizon=201)
    with pytest.raises(InvalidInput, match="a number of pulls: give horizon="):
        fsl.run(a_doubling(), a_problem())


def test_progress_is_that_of_the_whole_run():
    seen = []
    fsl.run(
        a_doubling(),
        a_problem(),
        horizon=200,
        progress=lambda done, total: seen.append((done, total)),
        chunk=50,
    )
    assert seen == [(50, 200), (60, 200), (110, 200), (160, 200), (180, 200), (200, 200)]


# --- results --------------------------------------------------------------------------------------
def test_a_result_is_saved_loaded_drawn_and_made_again(tmp_path):
    result = fsl.run(a_doubling("sync"), a_problem(), horizon=900, record="all")
    loaded = fsl.RunResult.load(result.save(tmp_path / "run.npz"))
    same(loaded, result)
    assert repr(loaded) == repr(result) and "RunResult(sync, 900 pulls" in repr(result)
    doubling, problem = loaded.rebuild()
    same(fsl.run(doubling, problem, horizon=loaded.spec["horizon"], record="all"), result)
    assert len(result.to_frame()) == 900
    assert result.plot(tmp_path / "run.png").axes and (tmp_path / "run.png").exists()


def test_a_result_of_objects_says_that_it_cant_be_made_again(tmp_path):
    doubling = fsl.make("async", **SIZES, horizon=None, trigger=lambda gain, elapsed: elapsed > 3)
    result = fsl.RunResult.load(
        fsl.run(doubling, a_problem(), horizon=1500).save(tmp_path / "run.npz")
    )
    with pytest.raises(InvalidInput, match="passed as an object"):
        result.rebuild()


# --- what is refused, and what goes wrong ---------------------------------------------------------
def test_what_a_doubling_cant_be_used_for_is_said(tmp_path):
    doubling, problem = a_doubling(), a_problem()
    with pytest.raises(InvalidInput, match="not kept in a checkpoint"):
        fsl.run(doubling, problem, horizon=100, checkpoint=tmp_path / "run.ckpt")
    with pytest.raises(InvalidInput, match="checkpoint_every= needs checkpoint="):
        fsl.run(doubling, problem, horizon=100, checkpoint_every=10)
    with pytest.raises(InvalidInput, match="already made"):
        fsl.run(doubling, problem, horizon=100, ridge=2.0)
    with pytest.raises(InvalidInput, match=r"doubling.algorithm\(epoch\)"):
        run_reference(doubling, problem, horizon=100)
    for live in (fsl.Client, fsl.Server):
        with pytest.raises(InvalidInput, match=r"doubling.algorithm\(epoch\).*fedsuplin serve"):
            live(doubling)


def test_a_problem_of_another_size_or_order_is_refused():
    with pytest.raises(InvalidInput, match="dim is 4 in the algorithm and 5 in the problem"):
        fsl.run(a_doubling(), a_problem(dim=5), horizon=100)
    with pytest.raises(InvalidInput, match="divisible by n_clients"):
        fsl.run(a_doubling("sync"), a_problem(), horizon=100)
    with pytest.raises(InvalidInput, match="fixed arms"):
        fsl.run(fsl.make("pe", **SIZES, horizon=None), a_problem(), horizon=100)


def test_a_failure_in_a_later_epoch_names_the_pull_of_the_run_and_keeps_what_was_recorded():
    class Fails:
        state_size = 1

        def fires(self, gain, elapsed, state):
            state[0] += 1
            return 1 / 0 if state[0] > 30 else False

    doubling = fsl.Doubling("async", SIZES | {"trigger": Fails()}, first=20)
    with pytest.raises(PluginError, match=r"ZeroDivisionError.*at pull (\d+)") as caught:
        fsl.run(doubling, a_problem(), horizon=1000, record="all")
    result = caught.value.result
    assert (
        f"at pull {result.n_pulls} " in str(caught.value)
        and result.n_pulls > 60
        and not result.complete
    )
    assert len(result.regret) == result.n_pulls == len(result.arms)


def test_a_run_that_is_interrupted_keeps_what_was_recorded():
    def stop(done, total):
        if done > 60:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedRun) as caught:
        result = fsl.run(a_doubling(), a_problem(), horizon=900, progress=stop, chunk=50)
    assert caught[0].filename == __file__
    assert not result.complete and result.n_pulls == 110 == result.pulls[-1]
