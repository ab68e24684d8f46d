"""Running experiments: files and pages hold what ran, and what was stopped goes on."""

import base64
import csv
import html
import json
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.errors import MissingExtra
from fedsuplin.reproduce import experiment
from fedsuplin.reproduce.arrivals import PRACTICAL, Arrivals
from fedsuplin.reproduce.clients import Clients
from fedsuplin.reproduce.experiment import Options
from fedsuplin.reproduce.movielens import MovieLens
from fedsuplin.reproduce.reproduction import EXPERIMENTS, reproduce
from fedsuplin.reproduce.verdicts import FAILS, HOLDS, OPEN
from fedsuplin.study import sweeps

SMALL = {"dim": 4, "n_arms": 5, "n_clients": 4, "noise_scale": 0.1, "horizon": 400}


@pytest.fixture
def small(monkeypatch):
    """Make the paper's problem so small that it takes milliseconds, for every experiment."""
    for module in {sys.modules[each.__module__] for each in EXPERIMENTS.values()} | {experiment}:
        if hasattr(module, "PAPER"):
            monkeypatch.setattr(module, "PAPER", SMALL)
    monkeypatch.setattr(Clients, "counts", (2, 4))
    monkeypatch.setattr(Clients, "pulls_each", 100)
    monkeypatch.setattr(MovieLens, "counts", (2, 3))
    monkeypatch.setattr(MovieLens, "pulls_each", {"quick": 40})


@pytest.fixture(scope="module")
def movies(tmp_path_factory):
    """Write a made-up release in the format of ml-latest: 40 users, 120 movies."""
    folder, rng = tmp_path_factory.mktemp("ml-made-up"), np.random.default_rng(0)
    words = np.array(
        [
            "Action",
            "Comedy",
            "Drama",
            "Fantasy",
            "Horror",
            "Mystery",
            "Romance",
            "Thriller",
            "War",
            "Western",
        ]
    )
    rows = [(m, f"Movie {m}", "|".join(rng.choice(words, 3, replace=False))) for m in range(1, 121)]
    ratings = [
        (u, m, rng.integers(1, 11) / 2, 0)
        for u in range(1, 41)
        for m in rng.choice(120, 30, replace=False) + 1
    ]
    tags = [
        (u, m, f"{rng.choice(words)} topic{rng.integers(30)}", 0) for u, m, _, _ in ratings[::3]
    ]
    for name, head, body in (
        ("movies", ("movieId", "title", "genres"), rows),
        ("ratings", ("userId", "movieId", "rating", "timestamp"), ratings),
        ("tags", ("userId", "movieId", "tag", "timestamp"), tags),
    ):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([head, *body])
    return folder


def read_table(path):
    """Read the rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- running ------------------------------------------------------------------------------


def test_an_experiment_writes_its_data_its_figures_and_its_verdicts(small, tmp_path):
    (outcome,) = reproduce("arrivals", tmp_path, size="quick", seeds=2)
    folder = tmp_path / "arrivals"
    assert {file.name for file in outcome.files} == {
        "runs.csv",
        "means.csv",
        "verdicts.csv",
        "curves.csv",
        "arrivals.png",
        "arrivals.svg",
    }
    runs = read_table(folder / "runs.csv")
    assert len(runs) == 2 * len(Arrivals(Options(size="quick")).list_cases())
    problem = fsl.SyntheticProblem(4, 5, 4, noise_scale=0.1, arrival="click-leave", seed=1)
    expected = fsl.run("async", problem, horizon=400).regret[-1]
    assert [
        float(row["regret"])
        for row in runs
        if row["pattern"] == "click-leave" and row["seed"] == "1"
    ][0] == expected
    assert read_table(folder / "verdicts.csv") == [verdict.to_row() for verdict in outcome.verdicts]
    curves = [
        row
        for row in read_table(folder / "curves.csv")
        if row["setting"] == PRACTICAL and row["pattern"] == "sync"
    ]
    assert curves[-1]["pulls"] == "400" and {row["seed"] for row in curves} == {"0", "1"}
    assert (folder / "arrivals.png").read_bytes()[:4] == b"\x89PNG" and b"<svg" in (
        folder / "arrivals.svg"
    ).read_bytes()


@pytest.mark.parametrize("name", ["arrivals", "clients", "tradeoff"])
def test_every_panel_has_a_title_and_axis_labels_and_a_figure_a_legend(name, small, tmp_path):
    (outcome,) = reproduce(name, tmp_path, size="quick", seeds=2)
    figure = outcome.experiment.draw(outcome.measured)
    assert all(axes.get_title() and axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
    assert any(axes.get_legend() for axes in figure.axes)
    for axes in figure.axes:  # no two curves share colour and style: they differ in grey too
        looks = [
            (line.get_color(), line.get_linestyle())
            for line in axes.lines
            if not line.get_label().startswith("_")
        ]
        assert len(set(looks)) == len(looks)
    assert outcome.verdicts and all(
        verdict.outcome in (HOLDS, FAILS, OPEN) for verdict in outcome.verdicts
    )


def test_movielens_normalises_rewards_by_random_play(small, movies, tmp_path):
    (outcome,) = reproduce("movielens", tmp_path, size="quick", seeds=2, movielens=movies)
    row = next(row for row in outcome.measured.rows if row["policy"] == "sync" and row["M"] == 3)
    assert row["pulls"] == 120 and row["ratio"] == pytest.approx(row["reward"] / (120 / 20))
    settings = outcome.experiment.describe_settings()
    assert (
        "37 users (the users with the most ratings above 3)" in settings["data"]
        and movies.name in settings["data"]
    )
    rounds = {verdict.setting for verdict in outcome.verdicts}
    positives = fsl.MovieLensProblem(movies, dim=9, most_active=37).n_positives // 37
    assert (
        rounds == {f"practical, after {n} rounds per client" for n in (positives, 40)}
        and len(outcome.verdicts) == 8
    )


def test_without_a_folder_movielens_is_not_run_and_the_page_has_the_reason(small, tmp_path):
    _, outcome = reproduce(["movielens", "arrivals"], tmp_path, size="quick", seeds=2)
    assert "--movielens" in outcome.missing and outcome.measured is None
    assert "not run: it needs a MovieLens release" in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )


def test_the_page_is_one_file_with_every_figure_verdict_and_version(small, tmp_path):
    outcomes = reproduce(["clients", "arrivals"], tmp_path, size="quick", seeds=2)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert [outcome.experiment.name for outcome in outcomes] == [
        "arrivals",
        "clients",
    ]  # in the order of the paper
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert [base64.b64decode(picture) for picture in pictures] == [
        (tmp_path / name / f"{name}.svg").read_bytes() for name in ("arrivals", "clients")
    ]
    assert not re.search(r'(src|href)="(?!data:|#)', page)  # nothing from elsewhere
    for outcome in outcomes:
        assert all(verdict.measured in page for verdict in outcome.verdicts)
    assert fsl.__version__ in page and np.__version__ in page and "--quick --seeds 2" in page


def list_sections(folder):
    """Return the names of the experiments on the page."""
    return re.findall(r'<h2 id="(\w+)">', (folder / "report.html").read_text(encoding="utf-8"))


def test_the_page_also_has_what_earlier_starts_left_in_the_folder(small, movies, tmp_path):
    (first,) = reproduce("movielens", tmp_path, size="quick", seeds=3, movielens=movies)
    reproduce(
        ["clients", "movielens"], tmp_path, size="quick", seeds=2
    )  # movielens can't be run again, but it was
    reproduce("arrivals", tmp_path, size="quick", seeds=2)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (
        list_sections(tmp_path) == ["arrivals", "clients", "movielens"]
        and page.count("data:image/svg") == 3
    )
    assert "from earlier starts" in page and "clients, movielens" in page and "not run" not in page
    assert (
        all(html.escape(verdict.measured) in page for verdict in first.verdicts)
        and "--quick --seeds 3" in page
    )
    assert len(re.findall(r'<tr><td><a href="#', page)) == 3
    shutil.rmtree(tmp_path / "clients")
    reproduce("arrivals", tmp_path, size="quick", seeds=2)
    assert list_sections(tmp_path) == ["arrivals", "movielens"]


def test_an_experiment_that_can_not_run_is_an_error_and_keeps_the_page(small, tmp_path):
    reproduce("arrivals", tmp_path, size="quick", seeds=2)
    before = (tmp_path / "report.html").read_bytes()
    done = CliRunner().invoke(
        root_command, ["reproduce", "movielens", "--quick", "--out", str(tmp_path)]
    )
    assert (
        done.exit_code == 2
        and "movielens can't be run" in done.output
        and "--movielens" in done.output
    )
    assert (tmp_path / "report.html").read_bytes() == before


def test_a_reproduction_started_again_runs_nothing_twice(small, tmp_path, monkeypatch):
    first = reproduce("tradeoff", tmp_path, size="quick", seeds=2)
    runs = (tmp_path / "tradeoff" / "runs.csv").read_bytes()
    monkeypatch.setattr(sweeps, "run", None)  # nothing left that could run
    again = reproduce("tradeoff", tmp_path, size="quick", seeds=2)
    assert (tmp_path / "tradeoff" / "runs.csv").read_bytes() == runs
    assert again[0].verdicts == first[0].verdicts


def test_failed_runs_are_reported_and_give_no_verdict(small, tmp_path, monkeypatch):
    monkeypatch.setitem(SMALL, "noise_scale", -1.0)
    (outcome,) = reproduce("clients", tmp_path, size="quick", seeds=2)
    assert outcome.measured is None and not outcome.verdicts
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "runs failed, the first with InvalidInput: noise_scale must be at least 0" in page


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"names": "arrival"}, "unknown experiment 'arrival'. Did you mean 'arrivals'"),
        ({"names": []}, "name an experiment, or all"),
        ({"size": "tiny"}, "unknown size 'tiny'"),
        ({"seeds": 1}, "at least 2"),
        ({"backend": "thread"}, "unknown backend 'thread'. Did you mean 'threads'"),
    ],
)
def test_wrong_arguments_are_errors_before_anything_runs(call, words, small, tmp_path):
    with pytest.raises(fsl.FedsuplinError, match=re.escape(words)):
        reproduce(**({"names": "arrivals", "folder": tmp_path} | call))
    assert not any(tmp_path.rglob("*.csv"))


def test_a_missing_package_is_an_error_before_anything_runs(small, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"joblib and matplotlib: pip install 'fedsuplin\[reproduce\]'"
    ):
        reproduce("arrivals", tmp_path)


# --- the command --------------------------------------------------------------------------


def test_the_command_prints_each_verdict_and_where_the_files_are(small, tmp_path):
    done = CliRunner().invoke(
        root_command, ["reproduce", "arrivals", "--quick", "--seeds", "2", "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert "click-leave has the lowest regret of the async runs" in words and "report.html" in words
    assert (tmp_path / "report.html").exists()


def test_the_command_prints_json(small, tmp_path):
    done = CliRunner().invoke(
        root_command,
        ["reproduce", "tradeoff", "--quick", "--seeds", "2", "--json", "--out", str(tmp_path)],
    )
    printed = json.loads(done.output)
    assert (
        len(printed["experiments"]["tradeoff"]["verdicts"]) == 3
        and printed["experiments"]["tradeoff"]["trouble"] is None
    )


def test_the_help_lists_every_experiment():
    words = CliRunner().invoke(root_command, ["reproduce", "--help"]).output
    assert all(re.search(rf"^  {name} ", words, re.MULTILINE) for name in EXPERIMENTS)


@pytest.mark.posix
def test_ctrl_c_keeps_finished_runs_and_reports_the_stop(tmp_path):
    command = [
        sys.executable,
        "-m",
        "fedsuplin",
        "reproduce",
        "tradeoff",
        "--out",
        str(tmp_path),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal, limit = tmp_path / "tradeoff" / "runs.jsonl", time.monotonic() + 60
    while time.monotonic() < limit and (
        not journal.exists() or journal.read_bytes().count(b"\n") < 3
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    try:
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and "Traceback" not in error, error
    assert "stopped before its end" in out and journal.read_bytes().count(b"\n") >= 3
