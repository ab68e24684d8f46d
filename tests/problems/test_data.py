"""What problems from data share: streams, specs, and runs on MovieLens and on the digits."""

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.contracts.stream import check_chunk
from fedsuplin.problems.data import count_earlier
from fedsuplin.reference.twin import run_reference
from fedsuplin.study.comparison import reseed_problem

SMALL = {"dim": 6, "n_arms": 5}
FOUND = ("arms", "layers", "clients", "communication")


def problems(folder):
    return fsl.MovieLensProblem(folder, **SMALL, most_active=4), fsl.DigitsProblem(
        n_clients=4, n_features=2
    )


@settings(max_examples=40)
@given(
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    seed=st.integers(0, 5),
    arrival=st.sampled_from([None, "click-leave"]),
)
def test_a_stream_is_the_same_however_it_is_cut(folder, cuts, seed, arrival):
    for problem in (
        fsl.MovieLensProblem(folder, **SMALL, most_active=4, seed=seed, arrival=arrival),
        fsl.DigitsProblem(n_clients=3, n_features=2, seed=seed, arrival=arrival),
    ):
        whole, stream, start = (
            problem.stream(500, None).take(sum(cuts)),
            problem.stream(500, None),
            0,
        )
        for n in cuts:
            part = stream.take(n)
            for name in ("contexts", "clients", "rewards", "sigma", "noise"):
                np.testing.assert_array_equal(
                    getattr(part, name), getattr(whole, name)[start : start + n]
                )
            start += n


@given(st.lists(st.integers(0, 4), max_size=30))
def test_count_earlier_counts_equal_values_before_each(values):
    assert count_earlier(np.array(values, int)).tolist() == [
        values[:at].count(value) for at, value in enumerate(values)
    ]


@pytest.mark.parametrize("variant", ["async", "sync", "variance", "oful"])
@pytest.mark.parametrize("kind", [0, 1], ids=["movielens", "digits"])
def test_engine_and_reference_agree_on_data(folder, kind, variant):
    problem = problems(folder)[kind]
    engine = fsl.run(variant, problem, horizon=800, record="all")
    twin = run_reference(variant, problem, horizon=800)
    for name in FOUND:
        np.testing.assert_array_equal(getattr(engine, name), getattr(twin, name), err_msg=name)
    np.testing.assert_allclose(engine.regret, twin.regret, rtol=1e-9)


@pytest.mark.parametrize("kind", [0, 1], ids=["movielens", "digits"])
def test_the_expected_reward_of_random_play_is_in_every_result(folder, kind):
    """It is 1/K per pull."""
    problem = problems(folder)[kind]
    result = fsl.run("uniform", problem, horizon=8000)
    expected = result.pulls[-1] - result.uniform_regret[-1]
    assert expected == pytest.approx(8000 / problem.n_arms, rel=1e-9)  # a sum of 8000 rounded terms
    assert abs(result.reward[-1] - expected) < 4 * np.sqrt(expected)
    np.testing.assert_allclose(
        result.reward + result.regret, result.pulls
    )  # the best arm has 1 every round


def test_policies_get_the_noise_scale_of_rewards_of_zero_and_one(folder):
    for problem in problems(folder):
        assert (problem.noise_scale, problem.R, problem.theta) == (0.5, 1.0, None)
        assert (problem.stream(10, None).take(10).sigma == 0.5).all()
        assert (
            fsl.run("async", problem, horizon=100).spec["algorithm"]["noise"]["parameters"][
                "noise_scale"
            ]
            == 0.5
        )


def test_a_result_rebuilds_its_problem(folder, tmp_path):
    for problem in (
        fsl.MovieLensProblem(
            folder, **SMALL, most_active=4, n_clients=3, arrival="click-leave", horizon=300, seed=7
        ),
        fsl.DigitsProblem(n_clients=3, n_features=3, arrival="click-leave", horizon=300, seed=7),
    ):
        result = fsl.run("async", problem, record="all")
        algorithm, again = fsl.RunResult.load(result.save(tmp_path / "run.npz")).rebuild()
        assert repr(again) == repr(problem) and again.spec == problem.spec
        np.testing.assert_array_equal(fsl.run(algorithm, again, record="all").arms, result.arms)
        assert reseed_problem(problem, 8).seed == 8


def test_the_command_line_plays_data(folder):
    def play(*options):
        called = CliRunner().invoke(
            root_command, ["run", "async", "--horizon", "400", "--json", *options]
        )
        assert called.exit_code == 0, called.output
        return json.loads(called.output)["spec"]["problem"]

    assert (
        play("--problem", "digits", "--clients", "4", "--set", "n_features=3")["parameters"][
            "n_features"
        ]
        == 3
    )
    sizes = ("--dim", "6", "--arms", "5", "--clients", "3")
    found = play(
        "--problem", "movielens", "--set", f"folder={folder}", "--set", "most_active=4", *sizes
    )
    assert found["parameters"]["folder"] == str(folder) and found["parameters"]["n_clients"] == 3


def test_chunks_pass_the_checks_for_streams_of_plugins(folder):
    for problem in problems(folder):
        stream = problem.stream(50, None)
        chunk = stream.take(50)
        check_chunk(chunk, 50, 0, problem.n_arms, problem.dim)


def test_importing_fedsuplin_imports_neither_pandas_nor_scikit_learn():
    heavy = "{'pandas', 'sklearn', 'pyarrow', 'joblib'}"
    code = f"import sys, fedsuplin; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
