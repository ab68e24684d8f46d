"""The paper's experiments: verdicts follow the numbers, files and page hold what ran, and what was stopped goes on."""

import base64
import csv
import html
import json
import math
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
from fedsuplin.reproduce.arrivals import PRACTICAL, Arrivals, judge_setting
from fedsuplin.reproduce.clients import Clients
from fedsuplin.reproduce.experiment import Measured, Options
from fedsuplin.reproduce.formatting import format_mean_error
from fedsuplin.reproduce.movielens import MovieLens
from fedsuplin.reproduce.reproduction import EXPERIMENTS, reproduce
from fedsuplin.reproduce.tradeoff import Tradeoff
from fedsuplin.reproduce.verdicts import FAILS, HOLDS, OPEN, combine_outcomes, compute_difference
from fedsuplin.study import sweeps

SMALL = {"dim": 4, "n_arms": 5, "n_clients": 4, "noise_scale": 0.1, "horizon": 400}


@pytest.fixture
def small(monkeypatch):
    """The paper's problem at a size that takes milliseconds, for every experiment that is built on it."""
    for module in {sys.modules[each.__module__] for each in EXPERIMENTS.values()} | {experiment}:
        if hasattr(module, "PAPER"):
            monkeypatch.setattr(module, "PAPER", SMALL)
    monkeypatch.setattr(Clients, "counts", (2, 4))
    monkeypatch.setattr(Clients, "pulls_each", 100)
    monkeypatch.setattr(MovieLens, "counts", (2, 3))
    monkeypatch.setattr(MovieLens, "pulls_each", {"quick": 40})


@pytest.fixture(scope="module")
def movies(tmp_path_factory):
    """A made-up release in the format of ml-latest: 40 users, 120 movies."""
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


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_a_difference_that_the_seeds_show_decides_and_one_within_their_spread_does_not():
    rng = np.random.default_rng(1)
    low, high = 100 + rng.standard_normal(20), 110 + rng.standard_normal(20)
    assert (
        compute_difference(low, high).less == HOLDS and compute_difference(high, low).less == FAILS
    )
    assert compute_difference(low, low + rng.standard_normal(20)).less == OPEN
    for paired in (True, False):
        found = compute_difference(low, high, paired=paired)
        assert found.low < found.mean < found.high < 0 and math.isclose(
            found.mean, low.mean() - high.mean()
        )


def test_pairs_tell_apart_what_the_spread_between_problems_hides():
    rng = np.random.default_rng(2)
    problems = 1000 * rng.random(10)
    better, worse = problems, problems + 1 + 0.1 * rng.standard_normal(10)
    assert (
        compute_difference(better, worse).less == HOLDS
        and compute_difference(better, worse, paired=False).less == OPEN
    )


def test_differences_that_are_all_the_same_need_no_spread():
    assert compute_difference(np.array([3.0, 4.0]), np.array([1.0, 2.0])).less == FAILS
    assert compute_difference(np.array([1.0, 2.0]), np.array([1.0, 2.0])).less == OPEN


def test_a_claim_of_several_parts_falls_with_one_of_them():
    assert (
        combine_outcomes([HOLDS, HOLDS]) == HOLDS
        and combine_outcomes([HOLDS, OPEN]) == OPEN
        and combine_outcomes([HOLDS, OPEN, FAILS]) == FAILS
    )


def test_numbers_are_told_to_the_first_digit_of_their_error():
    assert format_mean_error(np.array([1230.0, 1250.0])) == "1,240 ± 10"
    assert format_mean_error(np.array([0.51, 0.53])) == "0.52 ± 0.01"
    assert format_mean_error(np.array([7.0, 7.0])) == "7"


def arrivals_with(**by_pattern):
    """Made-up results: regret and communication of each pattern, with a spread of 1 over five seeds."""
    spread = np.linspace(-1, 1, 5)
    rows = [
        {
            "setting": PRACTICAL,
            "pattern": name,
            "seed": seed,
            "regret": regret + shift,
            "communication": talk + shift,
        }
        for name, (regret, talk) in by_pattern.items()
        for seed, shift in enumerate(
            spread * (1 + 0.1 * len(name))
        )  # not the same for all: else they would be pairs
    ]
    return Measured(rows, [None] * len(rows), ["setting", "pattern"])


def test_verdicts_on_arrivals_follow_what_was_measured():
    as_claimed = arrivals_with(
        **{
            "random": (100, 50),
            "round-robin": (101, 51),
            "click-leave": (80, 70),
            "sync": (60, 200),
        },
    )
    assert [verdict.outcome for verdict in judge_setting(as_claimed, PRACTICAL)] == [HOLDS] * 6
    opposite = arrivals_with(
        **{
            "random": (100, 250),
            "round-robin": (90, 150),
            "click-leave": (120, 70),
            "sync": (160, 20),
        },
    )
    assert [verdict.outcome for verdict in judge_setting(opposite, PRACTICAL)] == [FAILS] * 6
    assert "click-leave 120.0 ± 0.7" in judge_setting(opposite, PRACTICAL)[0].measured


def test_verdicts_on_clients_follow_what_was_measured(monkeypatch):
    monkeypatch.setattr(Clients, "counts", (2, 4))
    clients = Clients(Options(seeds=5))

    def measured(by_case):
        rows = [
            {"policy": policy, "M": m, "seed": seed, "regret": regret + 0.1 * seed}
            for (policy, m), regret in by_case.items()
            for seed in range(5)
        ]
        return Measured(rows, [None] * len(rows), ["policy", "M"])

    # per client: async 10, 5; sync 4, 8; alone 200 / 20 = 10
    verdicts = clients.verdicts(
        measured(
            {
                ("async", 2): 20,
                ("async", 4): 20,
                ("sync", 2): 8,
                ("sync", 4): 32,
                ("suplinucb", 1): 200,
            }
        )
    )
    assert [verdict.outcome for verdict in verdicts] == [OPEN, HOLDS, HOLDS, FAILS]


def test_the_better_tradeoff_is_judged_at_equal_communication():
    tradeoff = Tradeoff(Options(seeds=4))

    def measured(sync_factor):
        rows = []
        for policy, factor in (("async", 1.0), ("sync", sync_factor)):
            for threshold in (1.0, 10.0, 100.0):
                for seed in range(4):
                    spent = 10_000 / threshold * (1 + 0.01 * seed)
                    lost = (
                        factor * 1000 * spent**-0.3 * (1 + 0.01 * seed)
                    )  # the same line for both, but for the factor
                    row = {
                        "policy": policy,
                        "threshold": threshold,
                        "seed": seed,
                        "communication": spent,
                        "regret": lost,
                    }
                    rows.append(row)
        return Measured(rows, [None] * len(rows), ["policy", "threshold"])

    *trades, better = tradeoff.verdicts(measured(0.8))
    assert [verdict.outcome for verdict in trades] == [HOLDS, HOLDS] and better.outcome == HOLDS
    assert "-20 %" in better.measured
    assert tradeoff.verdicts(measured(1.25))[-1].outcome == FAILS


# --- running ---------------------------------------------------------------------------------------------------------


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
    runs = table(folder / "runs.csv")
    assert len(runs) == 2 * len(Arrivals(Options(size="quick")).cases())
    problem = fsl.SyntheticProblem(4, 5, 4, noise_scale=0.1, arrival="click-leave", seed=1)
    expected = fsl.run("async", problem, horizon=400).regret[-1]
    assert [
        float(row["regret"])
        for row in runs
        if row["pattern"] == "click-leave" and row["seed"] == "1"
    ][0] == expected
    assert table(folder / "verdicts.csv") == [verdict.row() for verdict in outcome.verdicts]
    curves = [
        row
        for row in table(folder / "curves.csv")
        if row["setting"] == PRACTICAL and row["pattern"] == "sync"
    ]
    assert curves[-1]["pulls"] == "400" and {row["seed"] for row in curves} == {"0", "1"}
    assert (folder / "arrivals.png").read_bytes()[:4] == b"\x89PNG" and b"<svg" in (
        folder / "arrivals.svg"
    ).read_bytes()


@pytest.mark.parametrize("name", ["arrivals", "clients", "tradeoff"])
def test_every_panel_has_a_title_and_axes_with_words_and_a_legend_is_there(name, small, tmp_path):
    (outcome,) = reproduce(name, tmp_path, size="quick", seeds=2)
    figure = outcome.experiment.draw(outcome.measured)
    assert all(axes.get_title() and axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
    assert any(axes.get_legend() for axes in figure.axes)
    for axes in figure.axes:  # no two curves share colour and style, so they differ in grey too
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
    settings = outcome.experiment.settings()
    assert (
        "37 users (the users with the most ratings above 3)" in settings["data"]
        and movies.name in settings["data"]
    )
    rounds = {verdict.setting for verdict in outcome.verdicts}
    positives = fsl.MovieLensProblem(movies, dim=9, most_active=37).n_positives // 37
    assert (
        rounds == {f"practical, after {n} rounds a client" for n in (positives, 40)}
        and len(outcome.verdicts) == 8
    )


def test_movielens_among_others_without_a_folder_is_not_run_and_says_what_it_needs(small, tmp_path):
    _, outcome = reproduce(["movielens", "arrivals"], tmp_path, size="quick", seeds=2)
    assert "--movielens" in outcome.missing and outcome.measured is None
    assert "not run: it needs a MovieLens release" in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )


def test_the_page_is_one_file_with_every_figure_table_setting_and_version(small, tmp_path):
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


def sections(folder):
    return re.findall(r'<h2 id="(\w+)">', (folder / "report.html").read_text(encoding="utf-8"))


def test_the_page_shows_what_earlier_starts_left_in_the_folder(small, movies, tmp_path):
    (first,) = reproduce("movielens", tmp_path, size="quick", seeds=3, movielens=movies)
    reproduce(
        ["clients", "movielens"], tmp_path, size="quick", seeds=2
    )  # movielens can't be run again, but it was
    reproduce("arrivals", tmp_path, size="quick", seeds=2)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (
        sections(tmp_path) == ["arrivals", "clients", "movielens"]
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
    assert sections(tmp_path) == ["arrivals", "movielens"]


def test_an_experiment_that_can_not_be_run_is_an_error_and_leaves_the_page(small, tmp_path):
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


def test_a_reproduction_that_is_started_again_runs_nothing_twice(small, tmp_path, monkeypatch):
    first = reproduce("tradeoff", tmp_path, size="quick", seeds=2)
    runs = (tmp_path / "tradeoff" / "runs.csv").read_bytes()
    monkeypatch.setattr(sweeps, "run", None)  # nothing left that could run
    again = reproduce("tradeoff", tmp_path, size="quick", seeds=2)
    assert (tmp_path / "tradeoff" / "runs.csv").read_bytes() == runs
    assert again[0].verdicts == first[0].verdicts


def test_runs_that_fail_are_told_and_give_no_verdict(small, tmp_path, monkeypatch):
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
def test_what_can_not_be_reproduced_is_told_at_once(call, words, small, tmp_path):
    with pytest.raises(fsl.FedsuplinError, match=re.escape(words)):
        reproduce(**({"names": "arrivals", "folder": tmp_path} | call))
    assert not any(tmp_path.rglob("*.csv"))


def test_a_package_that_is_missing_is_told_before_anything_runs(small, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"joblib and matplotlib: pip install 'fedsuplin\[reproduce\]'"
    ):
        reproduce("arrivals", tmp_path)


# --- the command -------------------------------------------------------------------------------------------------------


def test_the_command_tells_each_verdict_and_where_everything_is(small, tmp_path):
    done = CliRunner().invoke(
        root_command, ["reproduce", "arrivals", "--quick", "--seeds", "2", "--out", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert "click-leave has the lowest regret of the async runs" in words and "report.html" in words
    assert (tmp_path / "report.html").exists()


def test_the_command_as_json(small, tmp_path):
    done = CliRunner().invoke(
        root_command,
        ["reproduce", "tradeoff", "--quick", "--seeds", "2", "--json", "--out", str(tmp_path)],
    )
    told = json.loads(done.output)
    assert (
        len(told["experiments"]["tradeoff"]["verdicts"]) == 3
        and told["experiments"]["tradeoff"]["trouble"] is None
    )


def test_the_help_names_every_experiment():
    words = CliRunner().invoke(root_command, ["reproduce", "--help"]).output
    assert all(re.search(rf"^  {name} ", words, re.MULTILINE) for name in EXPERIMENTS)


@pytest.mark.posix
def test_ctrl_c_keeps_what_was_done_and_says_so(tmp_path):
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
