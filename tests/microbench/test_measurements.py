"""`fedsuplin bench`: its numbers, its tables, and the NumPy LinUCB that it compares with."""

import io
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

import fedsuplin as fsl
from fedsuplin.algorithm.making import make_for
from fedsuplin.cli import bench
from fedsuplin.cli.main import root_command
from fedsuplin.errors import InvalidInput
from fedsuplin.microbench import measurements
from fedsuplin.microbench.measurements import measure_all, measure_peer
from fedsuplin.microbench.numpy_layered import NumpyLayered, check_layered_arms
from fedsuplin.microbench.numpy_linucb import FixedRadius, NumpyLinUCB, play_rows, take_first_rows
from fedsuplin.microbench.opponents import OpponentFailed, Opponents
from fedsuplin.microbench.page import write_benchmark_page
from fedsuplin.microbench.peers import HOW_TO_INSTALL, PEERS, check_peer, find_version
from fedsuplin.microbench.settings import QUICK, SIZES, VARIANTS, WIDTHS
from fedsuplin.microbench.tables import make_rounds_table, make_tables
from fedsuplin.microbench.timing import make_peak_timing, measure_peak, take_best
from fedsuplin.view.benchmark_figure import draw_rounds
from fedsuplin_ext import measure, norms


@pytest.fixture(scope="module")
def numbers():
    """What --quick --json prints, which must be all of standard output."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(root_command, ["bench", "--quick", "--json"])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return json.loads(result.stdout)


def leaves(data):
    if isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from leaves(value)
    else:
        yield data


def test_every_number_is_positive_and_finite(numbers):
    values = [value for value in leaves(numbers) if isinstance(value, int | float)]
    assert len(values) > 50
    assert all(math.isfinite(value) and value > 0 for value in values)


def test_it_names_the_code_path_and_covers_what_it_promises(numbers):
    assert numbers["kernels"] == norms.default()
    assert [(row["dim"], row["n_arms"]) for row in numbers["widths"]] == list(WIDTHS)
    assert all(
        row["share_of_peak"] < 2 for row in numbers["widths"]
    )  # noise may slow the peak down, not by so much
    assert [row["variant"] for row in numbers["rounds"]][:5] == list(VARIANTS)
    assert len(numbers["rounds"]) == len(VARIANTS) + len(SIZES)
    assert 0.5 < numbers["communication"]["many_syncs_a_pull"] <= 1
    assert numbers["memory"]["idle_client"] < 1024


def test_its_keys_are_those_of_the_page_on_commands(numbers):
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `bench` |"))
    assert set(re.findall(r"`(\w+)`", row)) == {"bench", *numbers}


def test_a_round_is_its_layers(numbers):
    for row in numbers["rounds"]:
        assert row["microseconds"] == pytest.approx(row["layers"] * row["microseconds_a_layer"])
        assert row["times_numpy"] == pytest.approx(row["numpy_microseconds"] / row["microseconds"])
        assert row["layers"] == 1 if row["variant"] == "oful" else row["layers"] > 1


def test_the_table_fits_80_columns(numbers):
    console = Console(width=80, record=True, markup=False, file=io.StringIO())
    console.print(make_tables(numbers))
    text = console.export_text()
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    for words in (
        numbers["kernels"],
        "FMA peak",
        "a sync",
        "bytes for a client",
        "drawing",
        "NumPy",
        *VARIANTS,
    ):
        assert words in text


def test_progress_is_reported_before_each_part_and_at_the_end(monkeypatch):
    for name in ("widths", "rounds", "peers", "communication", "sync", "memory"):
        monkeypatch.setattr(measurements, f"measure_{name}", lambda effort: {})
    seen = []
    measure_all(QUICK, lambda *now: seen.append(now))
    assert [done for _, done, _ in seen] == list(range(7))
    assert seen[-1] == ("done", 6, 6)


@pytest.mark.parametrize("kernels", norms.available())
def test_the_peak_is_that_of_the_best_set_whatever_set_is_in_use(kernels, monkeypatch):
    monkeypatch.setenv("FEDSUPLIN_KERNELS", kernels)
    asked = []
    monkeypatch.setattr(measure, "fma_peak", lambda seconds, name: asked.append(name) or 1e9)
    assert measure_peak(0.1) == 1e9 and make_peak_timing()() == 1e-9
    assert asked == [norms.available()[0]] * 2


def test_every_peer_has_a_row_and_those_without_numbers_say_why(numbers):
    assert [row["peer"] for row in numbers["peers"]] == list(PEERS)
    for row in numbers["peers"]:
        if find_version(row["peer"]) is None:
            assert row["trouble"] == HOW_TO_INSTALL and row["microseconds"] is None
        else:
            assert row["trouble"] is None
            assert row["times"] == pytest.approx(row["microseconds"] / row["ours"])


def test_a_peer_that_is_missing_or_fails_is_named_in_table_page_and_chart(
    numbers, monkeypatch, tmp_path
):
    class Failing:
        def check(self, *words):
            raise OpponentFailed("coba: it chose other arms")

    monkeypatch.setattr(measurements, "find_version", {"coba": "8.1"}.get)
    rows = [measure_peer(peer, Failing(), QUICK) for peer in PEERS]
    page = tmp_path / "page.md"
    files, notices = write_benchmark_page(page, numbers | {"peers": rows}, quick=True, busy=None)
    assert files == [page, tmp_path / "page.png"] and notices == []
    text = page.read_text(encoding="utf-8")
    assert "| coba 8.1 | 25 | 20 | – | – | – | failed: coba: it chose other arms |" in text
    assert text.count(HOW_TO_INSTALL) == 2
    axes = draw_rounds(numbers["rounds"], rows).axes[1]
    assert axes.get_xlabel() == "not measured: contextualbandits, coba, mabwiser"


def test_a_page_without_matplotlib_has_no_chart_and_says_so(numbers, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(bench, "measure_all", lambda *_: numbers)
    done = CliRunner().invoke(root_command, ["bench", "--markdown", str(tmp_path / "page.md")])
    assert done.exit_code == 0 and "no chart: a figure needs matplotlib" in done.output
    assert not (tmp_path / "page.png").exists()
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "There is no chart" in text and "page.png" not in text


def test_the_answers_of_a_peer_are_compared(monkeypatch):
    monkeypatch.setitem(PEERS, "coba", lambda dim, n_arms: NumpyLinUCB(dim, n_arms, 1.0, 0.5))
    check_peer("coba", 6, 7, 200)
    monkeypatch.setitem(PEERS, "coba", lambda dim, n_arms: NumpyLinUCB(dim, n_arms, 1.0, 0.2))
    with pytest.raises(AssertionError, match="oful and coba differ within 200 pulls"):
        check_peer("coba", 6, 7, 200)


class OnePerArm:
    """A LinUCB for each arm, as mabwiser has; `radius` may be wrong."""

    def __init__(self, dim, n_arms, radius):
        self.arms = [NumpyLinUCB(dim, 1, 1.0, radius) for _ in range(n_arms)]
        self.bandit, self.radius = self, radius

    def predict_expectations(self, row):
        (x,) = row
        return {
            i: x @ arm.theta_hat + self.radius * math.sqrt(x @ arm.inverse @ x)
            for i, arm in enumerate(self.arms)
        }

    def select(self, rows):
        self.context, bounds = rows[0], self.predict_expectations(rows[:1])
        self.arm = max(bounds, key=bounds.get)
        return self.arm

    def update(self, x, reward):
        self.arms[self.arm].update(self.context, reward)


def test_the_bounds_of_a_peer_with_a_theta_for_each_arm_are_compared(monkeypatch):
    monkeypatch.setitem(PEERS, "mabwiser", lambda dim, n_arms: OnePerArm(dim, n_arms, 0.5))
    check_peer("mabwiser", 5, 4, 60)
    monkeypatch.setitem(PEERS, "mabwiser", lambda dim, n_arms: OnePerArm(dim, n_arms, 0.6))
    with pytest.raises(AssertionError, match="mabwiser's bound of arm 0 is"):
        check_peer("mabwiser", 5, 4, 60)


def test_an_error_in_the_process_of_the_opponents_is_passed_on():
    with Opponents() as opponents:
        with pytest.raises(OpponentFailed, match="numpy-linucb: InvalidInput: dim must be"):
            opponents.check("numpy-linucb", 0, 5, 1, 10)
        opponents.check("numpy-linucb", 4, 5, 1, 10)
        assert opponents.request_timing("numpy-layered", 4, 5, 2, 40)() > 0


def test_timings_take_turns_and_the_best_counts():
    times = {"a": iter([3.0, 1.0, 2.0]), "b": iter([5.0, 6.0, 4.0])}
    order = []
    timings = [lambda name=name: (order.append(name), next(times[name]))[1] for name in "ab"]
    assert take_best(3, *timings) == [1.0, 4.0]
    assert "".join(order) == "ababab"


def test_the_numpy_linucb_chooses_the_engines_arms():
    """One client, the same radius, no trigger, contexts in the ball, where none tie."""
    problem = fsl.SyntheticProblem(6, 7, 3, noise_scale=0.1, contexts="ball", seed=0)
    rows, noise = take_first_rows(problem, 500)
    alone = fsl.ArrayProblem(rows, np.zeros(500, int), theta=problem.theta, noise=noise)
    result = fsl.run("oful", alone, noise=FixedRadius(0.3), ridge=2.0, record="all")
    player = NumpyLinUCB(6, 7, ridge=2.0, radius=0.3)
    assert play_rows(player, rows, problem.theta, noise) == result.arms.tolist()


@pytest.mark.parametrize("width", [60, 80])
def test_no_number_of_a_table_is_cut_in_a_narrow_terminal(width):
    row = {
        "variant": "variance",
        "dim": 128,
        "n_arms": 1000,
        "microseconds": 1368.81,
        "layers": 11.3,
        "times_numpy": 118.1,
    }
    row |= {
        "microseconds_a_layer": 58.47,
        "microseconds_drawing": 77.33,
        "numpy_microseconds": 191.9,
        "layered_microseconds": 2345.6,
        "times_layered": 67.8,
    }
    to = Console(width=width, file=io.StringIO())
    to.print(make_rounds_table([row]))
    printed = to.file.getvalue().split()
    assert all(
        number in printed
        for number in ("128", "1000", "1368.81", "11.3", "58.47", "77.33", "191.9", "118.1")
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_the_layered_numpy_chooses_the_engines_arms_layers_and_syncs(seed):
    problem = fsl.SyntheticProblem(6, 7, 3, noise_scale=0.1, seed=seed)
    algorithm = make_for("async", problem, 4000, {})
    check_layered_arms(algorithm, problem, 2000)
    assert len(set(fsl.run(algorithm, problem, horizon=2000, record="all").layers.tolist())) > 2


def test_the_layered_numpy_plays_async_alone():
    problem = fsl.SyntheticProblem(6, 7, 3, seed=0)
    with pytest.raises(InvalidInput, match="async alone, not syncs all"):
        NumpyLayered(make_for("sync", problem, 999, {}))


def test_other_arms_of_the_layered_numpy_are_an_error(monkeypatch):
    problem = fsl.SyntheticProblem(6, 7, 3, seed=0)
    monkeypatch.setattr(NumpyLayered, "select", lambda self, client, contexts: (0, 0))
    with pytest.raises(AssertionError, match="nothing is timed"):
        check_layered_arms(make_for("async", problem, 999, {}), problem, 99)
