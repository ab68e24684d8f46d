"""`fedsuplin compare`: tables, files, exit codes."""

import concurrent.futures
import json

import pytest
from click.testing import CliRunner

import fedsuplin as fsl
from fedsuplin.algorithm.suitable_variants import list_suitable_variants
from fedsuplin.cli.main import root_command
from fedsuplin.study import backends

PROBLEM = fsl.SyntheticProblem(4, 5, 4, noise_scale=0.1)
SMALL = ("--dim", "4", "--arms", "5", "--clients", "4", "--horizon", "400", "--seeds", "2")


def called(*arguments, code=0):
    result = CliRunner().invoke(root_command, ["compare", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_compares_all_that_suit_and_shows_table_1():
    output = called(*SMALL)
    for name in list_suitable_variants(PROBLEM):
        assert name in output
    assert "Table 1 of the paper" in output and "d M^(3/2)" in output and "fed-pe" not in output


def test_the_command_writes_files_and_json(tmp_path):
    data = json.loads(called("async", "oful", *SMALL, "--json", "--bounds", "--out", str(tmp_path)))
    assert [row["policy"] for row in data["policies"]] == ["async", "oful"] and data["seeds"] == [
        0,
        1,
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "comparison.csv",
        "comparison.png",
        "curves.csv",
    ]
    assert data["policies"][0]["regret_bound"] == "√(d T log³ T)"


@pytest.fixture
def pressed_after(monkeypatch):
    """Ctrl-C once so many runs are done."""

    def press(runs):
        done = 0

        def waiting(futures, return_when):
            nonlocal done
            if done == runs:
                done = 0
                raise KeyboardInterrupt
            done += 1
            first = next(iter(futures))
            return concurrent.futures.wait([first])

        monkeypatch.setattr(backends, "wait", waiting)

    return press


def test_ctrl_c_before_the_first_run_is_done_leaves_the_files_of_an_earlier_comparison(
    tmp_path, pressed_after
):
    called("async", "oful", *SMALL, "--out", str(tmp_path))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    pressed_after(0)
    output = called("async", "oful", *SMALL, "--threads", "1", "--out", str(tmp_path), code=130)
    assert output == "stopped before any run was finished: nothing was written\n"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    data = json.loads(called("async", "oful", *SMALL, "--json", "--out", str(tmp_path), code=130))
    assert (
        data["policies"] == data["seeds"] == data["files"] == []
        and "nothing was written" in data["notices"][0]
    )


def test_an_interrupted_comparison_says_how_many_seeds_were_played(pressed_after):
    pressed_after(2)
    output = called("async", "oful", *SMALL, "--threads", "1", code=130)
    assert (
        "1 of 2 seeds" in output
        and "standard error" not in output
        and "stopped early: 1 of 2 seeds played" in output
    )
    data = json.loads(called("async", "oful", *SMALL, "--threads", "1", "--json", code=130))
    assert data["seeds"] == [0] and data["notices"] == ["stopped early: 1 of 2 seeds played"]
    pressed_after(1)
    assert "stopped early: 1 of 2 seeds played, none of oful" in called(
        "async", "oful", *SMALL, "--threads", "1", code=130
    )


def test_the_table_of_one_seed_says_one_seed():
    output = called("oful", *SMALL[:-1], "1")
    assert "one seed" in output and "±" not in output


def test_the_command_compares_on_fixed_arms():
    assert "fed-pe" in called("pe", "fed-pe", "async", "--problem", "fixed-arms", *SMALL)


def test_set_reaches_the_problem_and_the_policies():
    own = json.loads(
        called("fed-pe", "--problem", "fixed-arms", "--set", "own_thetas=true", *SMALL, "--json")
    )
    one = json.loads(
        called("fed-pe", "--problem", "fixed-arms", "--set", "own_thetas=false", *SMALL, "--json")
    )
    assert (
        own["policies"][0]["bytes_up"] > one["policies"][0]["bytes_up"]
    )  # a sum for each arm, or one for all
    data = json.loads(
        called("async-linucb", "--set", "gamma_u=1", "--set", "gamma_d=1", *SMALL, "--json")
    )
    assert data["policies"][0]["communication"] == 400 * 4


def test_the_command_refuses_what_it_can_not_do():
    assert "pe needs fixed arms" in called("pe", *SMALL, code=2)
    assert "oful does not take --C" in called("oful", "-C", "1", *SMALL, code=2)
    assert "unknown variant 'asinc'. Did you mean 'async'" in called("asinc", *SMALL, code=2)
