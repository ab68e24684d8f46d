"""`fedsuplin bench`: its numbers, its tables, and the NumPy LinUCB that it compares with."""

import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.microbench import measurements
from fedsuplin.microbench.measurements import measure_all
from fedsuplin.microbench.numpy_linucb import FixedRadius, NumpyLinUCB, play_rows, take_first_rows
from fedsuplin.microbench.settings import QUICK, SIZES, VARIANTS, WIDTHS
from fedsuplin.microbench.tables import make_rounds_table, make_tables
from fedsuplin.microbench.timing import take_best
from fedsuplin_ext import norms


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
    for name in ("widths", "rounds", "communication", "sync", "memory"):
        monkeypatch.setattr(measurements, f"measure_{name}", lambda effort: {})
    seen = []
    measure_all(QUICK, lambda *now: seen.append(now))
    assert [done for _, done, _ in seen] == list(range(6))
    assert seen[-1] == ("done", 5, 5)


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
    }
    to = Console(width=width, file=io.StringIO())
    to.print(make_rounds_table([row]))
    printed = to.file.getvalue().split()
    assert all(
        number in printed
        for number in ("128", "1000", "1368.81", "11.3", "58.47", "77.33", "191.9", "118.1")
    )
