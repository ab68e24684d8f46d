"""fsl.benchmark and `fedsuplin bench NAMES`: rows, answers that are compared, plugins by name."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.errors import InvalidInput, MissingExtra, UnknownName
from fedsuplin.microbench import opponents, round_costs
from fedsuplin.reference.twin import run_reference
from fedsuplin_ext import norms
from fedsuplin_ext.stages import STAGES, StageEngine

SMALL = {"dim": 4, "n_arms": 5, "n_clients": 2, "pulls": 400, "turns": 2}


def test_the_stages_of_a_round_add_up_to_its_cost():
    (row,) = fsl.benchmark("async", **SMALL).rows
    assert set(row["stages"]) == set(STAGES)
    assert sum(row["stages"].values()) == pytest.approx(row["microseconds"])
    assert row["stages"]["kernels"] > 0 and row["stages"]["update"] > 0
    assert row["drawing"] > 0 and row["spread"] >= 0 and row["pulls"] == 400


@pytest.mark.parametrize("variant", ["async", "sync", "robust", "fed-pe", "uniform", "fedlinucb"])
def test_any_variant_is_measured(variant):
    (row,) = fsl.benchmark(variant, **SMALL).rows
    assert row["policy"] == variant and row["microseconds"] > 0


def test_a_trigger_by_name_is_a_part_of_async():
    rows = fsl.benchmark("periodic", against="async", **SMALL).rows
    assert [row["policy"] for row in rows] == ["async, trigger periodic", "async"]
    assert rows[1]["times"] == pytest.approx(rows[1]["microseconds"] / rows[0]["microseconds"])


@pytest.mark.parametrize("opponent", ["numpy-linucb", "numpy-layered"])
def test_numpy_is_many_times_slower(opponent):
    rows = fsl.benchmark(["async", "oful"], against=opponent, **SMALL).rows
    assert [row["policy"] for row in rows] == ["async", "oful", opponent]
    assert rows[2]["times"] > 3


def test_nothing_is_timed_if_the_twin_chooses_other_arms(monkeypatch):
    def choose_others(*arguments, **keywords):
        result = run_reference(*arguments, **keywords)
        result.arms[-1] += 1
        return result

    monkeypatch.setattr("fedsuplin.reference.twin.run_reference", choose_others)
    monkeypatch.setattr(round_costs, "play_timed", None)
    with pytest.raises(AssertionError, match="arms of async differ"):
        fsl.benchmark("async", **SMALL)


def test_an_engine_with_a_stop_watch_plays_the_same_pulls():
    problem = fsl.SyntheticProblem(4, 5, 2, seed=0)
    result = fsl.run("async", problem, horizon=400)
    algorithm, _ = result.rebuild()
    engine = StageEngine(algorithm)
    engine.start()
    engine.play(problem.stream(400, None).take(400))
    counts = engine.stop()
    assert engine.layer_pulls.tolist() == result.layer_pulls.tolist()
    assert engine.totals_now["regret"] == result.regret[-1]
    assert counts["rule"][1] == 2 * 400  # a weighting and a trigger


def test_the_stop_watch_counts_products_and_proofs_as_kernels():
    problem = fsl.SyntheticProblem(25, 20, 4, seed=0)
    result = fsl.run("async", problem, horizon=2000)
    algorithm, _ = result.rebuild()
    chunk = problem.stream(2000, None).take(2000)
    calls = {}
    for shortcuts in ((), ("proofs",), ("fresh", "spikes", "proofs", "fused")):
        engine = StageEngine(algorithm, shortcuts=shortcuts)
        engine.start()
        engine.play(chunk)
        calls[shortcuts] = engine.stop()["kernels"][1]
        assert engine.totals_now["regret"] == result.regret[-1]
        assert engine.layer_pulls.tolist() == result.layer_pulls.tolist()
    # A proof is two calls or three in place of one: contexts in fixed point, forms, the largest.
    assert calls[("proofs",)] > 1.2 * calls[()]


def test_the_same_policy_twice_has_two_rows():
    rows = fsl.benchmark(["async", "async"], against="async", **SMALL).rows
    assert [row["policy"] for row in rows] == ["async", "async (2)", "async (3)"]


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(opponents, "find_version", lambda peer: None)
    with pytest.raises(MissingExtra, match=r"coba is not installed: pip install"):
        fsl.benchmark("oful", against="coba", **SMALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": []}, "at least one policy"),
        ({"dim": 0}, "dim must be a whole number of at least 1, not 0"),
        ({"dim": []}, "dim must be a whole number or a list of some, not an empty list"),
        ({"n_arms": [5, -1]}, "n_arms must be a whole number of at least 1, not -1"),
        ({"n_clients": 0}, "n_clients must be a whole number of at least 1, not 0"),
        ({"turns": 0}, "turns must be a whole number of at least 1, not 0"),
        ({"pulls": 0}, "pulls must be a whole number of at least 1, not 0"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        fsl.benchmark(**{"policy": "async"} | SMALL | arguments)


def test_the_command_prints_the_documented_keys():
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `bench NAMES` |"))
    words = ("async", "--turns", "1", "--dim", "4", "--arms", "5", "--clients", "2", "--json")
    found = json.loads(invoke(*words))
    (first,) = found["rows"]
    assert set(re.findall(r"`(\w+)`", row)) == {*found, *first, *first["stages"]}
    assert first["turns"] == 1


def invoke(*words):
    done = CliRunner(env={"COLUMNS": "100"}).invoke(root_command, ["bench", *words])
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.stdout


def test_the_command_measures_names_and_writes_page_and_figure(tmp_path):
    page, figure = tmp_path / "cost.md", tmp_path / "cost.png"
    words = ["async", "--quick", "--dim", "4,6", "--arms", "5", "--clients", "2"]
    words += ["--markdown", str(page), "--figure", str(figure), "--json"]
    found = json.loads(invoke(*words, "--against", "numpy-linucb"))
    assert [(row["policy"], row["dim"]) for row in found["rows"]] == [
        ("async", 4), ("numpy-linucb", 4), ("async", 6), ("numpy-linucb", 6),
    ]  # fmt: skip
    assert found["files"] == [str(page), str(figure)]
    assert "| async | 6 | 5 |" in page.read_text(encoding="utf-8")
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_the_command_prints_a_table():
    text = invoke("periodic", "--against", "async", "--quick", "--dim", "4", "--set", "every=9")
    assert "async, trigger periodic" in " ".join(text.split()) and "screen%" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--against", "async"], "need NAMES"),
        (["--turns", "3"], "need NAMES"),
        (["async", "--dim", "x"], "'--dim': 'x' is not a whole number"),
        (["async", "--dim", "5,0"], "'--dim': 0 is not between 1 and 4096"),
        (["async", "--arms", "99999"], "'--arms': 99999 is not between 1 and 4096"),
        (["async", "--clients", "0"], "'--clients': 0 is not in the range"),
    ],
)
def test_wrong_options_are_named(words, message):
    done = CliRunner().invoke(root_command, ["bench", *words])
    assert done.exit_code == 2 and message in done.output


def test_a_misspelt_name_is_reported_before_anything_is_played():
    with pytest.raises(UnknownName, match="Did you mean 'numpy-linucb'?"):
        fsl.benchmark("async", against="numpi-linucb", **SMALL)
    with pytest.raises(UnknownName, match="to measure 'periodik'. Did you mean 'periodic'?"):
        fsl.benchmark("periodik", **SMALL)


def test_engines_with_other_kernels_are_timed_in_turns():
    """Each start takes the kernels of its own engine: their vectors differ in length."""
    problem = fsl.SyntheticProblem(5, 9, 2, seed=0)
    algorithm = fsl.make("async", dim=5, n_arms=9, n_clients=2, horizon=300, noise_scale=0.1)
    stream = problem.stream(300, None)
    engines = [StageEngine(algorithm, kernels=name) for name in norms.available()]
    for _ in range(3):
        chunk = stream.take(100)
        for engine in engines:
            engine.start()
            assert engine.play(chunk) == ("done", 100)
            assert engine.stop()["kernels"][1] > 0
    regrets = [engine.totals_now["regret"] for engine in engines]
    assert regrets == pytest.approx([regrets[0]] * len(engines))
