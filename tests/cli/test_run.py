"""`fedsuplin run`: what is played, shown and written, and what goes wrong."""

import contextlib
import csv
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.cli import run as run_module
from fedsuplin.errors import PluginError, UnknownName
from fedsuplin.registry import plugins
from fedsuplin_ext.loop import COUNTS, SUMS

COMMAND = [sys.executable, "-m", "fedsuplin"]
SMALL = ("--dim", "4", "--arms", "5", "--clients", "2", "--horizon", "400")


def test_a_run_without_options_has_the_papers_setting_and_beats_uniform_play(numbers):
    printed = numbers("run")
    setting = printed["spec"]["algorithm"]
    assert (setting["variant"], setting["preset"]) == ("async", "practical")
    assert [setting[key] for key in ("dim", "n_arms", "n_clients", "horizon")] == [
        25,
        20,
        20,
        40_000,
    ]
    assert printed["spec"]["problem"]["parameters"]["seed"] == 0
    assert printed["percent_of_uniform"] < 5
    assert printed["too_short"] is None


def test_theory_at_the_papers_setting_needs_a_longer_horizon_and_the_notice_has_it(
    numbers,
):
    printed = numbers("run", "--preset", "theory")
    (notice,) = printed["notices"]
    assert "horizon is too short" in notice
    assert "past layer 1" in notice
    assert "--preset practical" in notice
    needed = printed["too_short"]["needed_horizon"]
    assert 1e6 < needed < 1e8
    assert f"about {round(needed, -5):,} pulls" in notice
    assert printed["guarantee"]
    assert printed["departures"] == []


def test_the_notice_is_also_printed_and_only_for_layered_policies_with_theory(call):
    text = " ".join(call("run", "--preset", "theory", *SMALL).stdout.split())
    assert "The horizon is too short for these constants" in text
    assert "too short" not in call("run", *SMALL).stdout
    assert "too short" not in call("run", "oful", "--preset", "theory", *SMALL).stdout


@pytest.mark.parametrize("variant", plugins.names("variants"))
def test_every_variant_runs_by_its_name_alone_and_the_table_has_every_row(call, widest, variant):
    text = call("run", variant, *SMALL).stdout
    for row in (
        "problem",
        "algorithm",
        "regret",
        "uniform play",
        "communication",
        "messages",
        "bytes",
        "guarantee",
    ):
        assert re.search(rf"^{row}  ", text, re.MULTILINE), row
    assert "d=4, K=5, M=2, T=400" in text
    assert "µs per round" in text
    assert widest(text) <= 80


def test_variance_and_robust_get_the_noise_they_are_made_for_and_its_parameters(call, numbers):
    variance = numbers("run", "variance", "--bound", "0.5", *SMALL)["spec"]
    assert variance["problem"]["parameters"]["noise"] == "bounded"
    assert variance["algorithm"]["noise"]["parameters"]["R"] == 0.5
    assert variance["algorithm"]["weighting"]["parameters"]["R"] == 0.5
    robust = numbers("run", "robust", *SMALL)["spec"]
    assert robust["problem"]["parameters"]["noise"] == "corrupted"
    assert robust["problem"]["parameters"]["corruption"] == 50
    assert robust["algorithm"]["weighting"]["parameters"]["corruption"] == 50
    assert "corrupted noise (sd 0.1, adversary's budget 50)" in " ".join(
        call("run", "robust", *SMALL).stdout.split()
    )


def test_a_wrong_assumption_is_listed_as_a_departure(numbers):
    printed = numbers(
        "run", "robust", "--budget", "20", "--corruption", "5", "--preset", "theory", *SMALL
    )
    assert printed["spec"]["problem"]["parameters"]["corruption"] == 20
    assert any(
        "20" in departure and "assumes 5" in departure for departure in printed["departures"]
    )


@pytest.mark.parametrize(
    ("options", "sigma"),
    [
        ((), 0.1),
        (("--noise-scale", "0.3"), 0.3),
        (("--sigma", "0.7"), 0.7),
        (("--preset", "theory"), 1.0),
    ],
)
def test_sigma_is_the_problems_noise_with_practical_and_1_with_theory(numbers, options, sigma):
    assert (
        numbers("run", *SMALL, *options)["spec"]["algorithm"]["noise"]["parameters"]["noise_scale"]
        == sigma
    )


def test_every_option_of_the_algorithm_reaches_it(numbers):
    given = {"delta": 0.1, "alpha_scale": 0.3, "ridge": 0.5, "theta_bound": 2.0, "C": 0.25}
    flags = [word for key, value in given.items() for word in ("--" + key.replace("_", "-"), value)]
    algorithm = numbers("run", *SMALL, *flags)["spec"]["algorithm"]
    arrived = algorithm | algorithm["noise"]["parameters"] | algorithm["trigger"]["parameters"]
    assert {key: arrived[key] for key in given} == given
    assert numbers("run", "sync", *SMALL, "-D", 3)["spec"]["algorithm"]["trigger"][
        "parameters"
    ] == {"D": 3.0}
    assert (
        numbers("run", "variance", *SMALL, "-R", 2)["spec"]["algorithm"]["noise"]["parameters"]["R"]
        == 2.0
    )


def test_parts_can_be_replaced(numbers):
    flags = (
        "--trigger",
        "periodic",
        "--every",
        "10",
        "--weighting",
        "variance",
        "--assume",
        "bounded",
        "--eager",
    )
    printed = numbers("run", *SMALL, *flags)
    algorithm = printed["spec"]["algorithm"]
    assert [algorithm[axis]["name"] for axis in ("trigger", "weighting", "noise")] == [
        "periodic",
        "variance",
        "bounded",
    ]
    assert algorithm["trigger"]["parameters"] == {"every": 10}
    assert not algorithm["lazy"]
    assert not printed["guarantee"]
    assert numbers("run", "robust", *SMALL, "--syncs", "all")["spec"]["algorithm"]["syncs"] == "all"


def test_set_reaches_the_algorithm_or_the_problem_whichever_takes_it(numbers):
    flags = ("--set", "rho=0.25", "--set", "layer_zero=bernstein", "--set", "sigma_high=0.5")
    spec = numbers("run", "variance", *SMALL, *flags)["spec"]
    assert spec["algorithm"]["weighting"]["parameters"]["rho"] == 0.25
    assert spec["algorithm"]["noise"]["parameters"]["layer_zero"] == "bernstein"
    assert spec["problem"]["parameters"]["sigma_high"] == 0.5


def test_every_option_of_the_problem_reaches_it(numbers):
    flags = (
        "--contexts",
        "ball",
        "--arrival",
        "click-leave",
        "--seed",
        "7",
        "--noise-scale",
        "0.2",
    )
    problem = numbers("run", *SMALL, *flags)["spec"]["problem"]["parameters"]
    expected = {"contexts": "ball", "arrival": "click-leave", "seed": 7, "noise_scale": 0.2}
    assert expected.items() <= problem.items()


def test_the_same_seed_gives_the_same_table(numbers):
    one, two, other = (numbers("run", *SMALL, "--seed", seed) for seed in (3, 3, 4))
    keys = ("regret", "uniform_regret", "communication", "bytes_up", "layer_pulls")
    assert [one[key] for key in keys] == [two[key] for key in keys]
    assert one["regret"] != other["regret"]


def test_the_command_plays_what_the_library_plays(numbers):
    problem = fsl.SyntheticProblem(4, 5, 2, seed=3)
    result = fsl.run("async", problem, horizon=400, noise_scale=0.1)
    printed = numbers("run", *SMALL, "--seed", 3)
    assert (printed["regret"], printed["communication"]) == (
        result.regret[-1],
        result.communication[-1],
    )


def test_out_writes_data_table_and_figure_and_names_them(call, tmp_path):
    folder = tmp_path / "new" / "folder"
    text = call("run", "sync", *SMALL, "--out", folder).stdout
    for suffix in ("npz", "csv", "png"):
        assert f"wrote {folder / 'sync'}.{suffix}" in text
    result = fsl.RunResult.load(folder / "sync.npz")
    assert result.n_pulls == 400
    with (folder / "sync.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["regret"]) for row in rows] == result.regret.tolist()
    assert [int(row["communication"]) for row in rows] == result.communication.tolist()
    assert (folder / "sync.png").read_bytes().startswith(b"\x89PNG")


def test_record_all_puts_every_pull_into_the_table(call, tmp_path):
    call("run", *SMALL, "--out", tmp_path, "--record", "all", "--quiet")
    with (tmp_path / "async.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 400
    assert {int(row["client"]) for row in rows} == {0, 1}
    assert {"arm", "layer"} <= set(rows[0])


def test_record_n_records_every_nth_pull(call, tmp_path):
    call("run", *SMALL, "--out", tmp_path, "--record", "1e2", "-q")
    assert fsl.RunResult.load(tmp_path / "async.npz").pulls.tolist() == [100, 200, 300, 400]


def test_without_matplotlib_data_is_written_and_a_notice_has_what_to_install(
    numbers, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    printed = numbers("run", *SMALL, "--out", tmp_path)
    assert [os.path.basename(file) for file in printed["files"]] == ["async.npz", "async.csv"]
    assert any("pip install 'fedsuplin[plot]'" in notice for notice in printed["notices"])


def test_json_lists_the_files_and_quiet_prints_nothing(call, numbers, tmp_path):
    printed = numbers("run", *SMALL, "--out", tmp_path)
    assert all(os.path.exists(file) for file in printed["files"])
    assert call("run", *SMALL, "--quiet").output == ""


@dataclasses.dataclass(frozen=True)
class Shifts:
    """Each client plays `length` pulls in a row."""

    length: int = 100
    in_rounds = False

    def clients(self, start, stop, *, n_clients, horizon, seed):
        return np.arange(start, stop) // self.length % n_clients


@pytest.mark.parametrize("variant", ["async", "pe"])
def test_the_parameters_of_an_arrival_are_set_by_name_and_shown(call, monkeypatch, variant):
    plugins.names("arrivals")
    monkeypatch.setitem(
        plugins._factories["arrivals"], "shifts", (Shifts, plugins.find_owner("arrivals", "random"))
    )
    printed = call("run", variant, *SMALL, "--arrival", "shifts", "--set", "length=3").stdout
    assert "shifts arrival (length 3), seed 0" in printed and "gaussian noise (sd 0.1)\n" in re.sub(
        " +\n", "\n", printed
    )
    problem = fsl.SyntheticProblem(4, 5, 2, arrival="shifts", length=3)
    result = fsl.run("async", problem, horizon=100, record="all")
    assert result.clients[:7].tolist() == [0, 0, 0, 1, 1, 1, 0]
    assert result.rebuild()[1].arrival == problem.arrival == Shifts(3)
    with pytest.raises(UnknownName, match="unknown parameter of 'gaussian' noise 'width'"):
        fsl.SyntheticProblem(4, 5, 2, arrival="shifts", width=3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("fed-pe", *SMALL),
            ("fixed arms, one θ, gaussian noise (sd 0.1)", "round-robin arrival, seed 0"),
        ),
        (
            ("pe", *SMALL, "--set", "own_arms=true"),
            ("fixed arms, different for each client", "random arrival, seed 0"),
        ),
        (
            ("--problem", "digits", "--horizon", "100"),
            ("1797 examples of 10 classes", "random arrival, seed 0"),
        ),
    ],
)
def test_every_built_in_problem_is_described_in_words(call, arguments, words):
    printed = call("run", *arguments).stdout
    assert all(each in printed for each in words) and "Problem(" not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["asinc"], "Did you mean 'async'?"),
        (["--trigger", "determinate"], "Did you mean 'determinant'?"),
        (["--noise", "gausian"], "Did you mean 'gaussian'?"),
        (["--arrival", "ramdom"], "Did you mean 'random'?"),
        (["--dim", "0"], "--dim must be a whole number of at least 1"),
        (["--arms", "0"], "--arms must be a whole number of at least 1"),
        (["fed-pe", "--clients", "0"], "--clients must be a whole number of at least 1"),
        (["--horizon", "2.5"], "--horizon must be a whole number"),
        (["--horizon", "many"], "'many' is not a valid float"),
        (["--delta", "1"], "--delta must lie strictly between 0 and 1"),
        (["--sigma", "-1"], "--sigma must be at least 0"),
        (["--noise-scale", "nan"], "--noise-scale must be a finite number"),
        (
            ["--checkpoint", "c", "--checkpoint-every", "0"],
            "--checkpoint-every must be a whole number of at least 1",
        ),
        (["--checkpoint", "nowhere/c"], "--checkpoint='nowhere/c': there is no folder nowhere"),
        (["--trigger", "periodic", "--every", "0"], "--every must be a whole number of at least 1"),
        (["robust", "--corruption", "-3"], "--corruption must be at least 0"),
        (["variance", "--bound", "-3"], "--bound must be positive"),
        (["--problem", "movielens"], "movielens needs folder: give --set folder=…"),
        (
            ["--problem", "array"],
            "the problem 'array' needs NumPy arrays, so it can only be built in Python: "
            "fsl.ArrayProblem(contexts, clients, …)",
        ),
        (["robust", "--budget", "-3"], "--budget must be at least 0"),
        (["--preset", "magic"], "'practical', 'theory'"),
        (["--seed", "-1"], "--seed must be a whole number"),
        (["--record", "often"], 'record must be "log", "all"'),
        (["--record", "0"], "record must be a whole number"),
        (["-D", "3"], "async does not take --D; it takes"),
        (["variance", "--sigma", "0.1"], "variance does not take --sigma"),
        (["--bound", "2"], "gaussian noise does not take --bound; it takes --noise-scale"),
        (["--set", "rho"], "not of the form KEY=VALUE"),
        (["--set", "rho=1"], "unknown keyword for 'async' 'rho'"),
        (["--set", "noise_scale=1"], "use --noise-scale or --sigma"),
        (["--set", "dim=3"], "--set dim is not needed: use --dim"),
        (["--set", "noise=bounded"], "--set noise is not needed: use --noise or --assume"),
        (["--set", "preset=theory"], "--set preset is not needed: use --preset"),
        (["sync", "--horizon", "401"], "divisible by --clients"),
        (["sync", "--arrival", "random"], "must come in rounds"),
    ],
)
def test_bad_input_gives_one_clear_line_and_exit_code_2(call, arguments, message):
    horizon = () if "--horizon" in arguments else ("--horizon", "400")
    result = call("run", *horizon, *arguments, code=2)
    assert message in result.stderr
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize("place", ["", "below"])
def test_an_out_that_cant_be_written_fails_before_the_run(call, tmp_path, monkeypatch, place):
    monkeypatch.setattr(run_module, "run", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "file").write_text("in the way")
    result = call("run", *SMALL, "--out", tmp_path / "file" / place, code=2)
    assert result.stderr.startswith("Error: can't write to --out")
    assert result.stderr.count("\n") == 1


def test_a_full_disk_is_a_one_line_error(call, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", str(tmp_path / "async.npz"))

    monkeypatch.setattr(fsl.RunResult, "save", full)
    result = call("run", *SMALL, "--out", tmp_path, code=1)
    assert result.stderr == f"Error: {tmp_path / 'async.npz'}: No space left on device\n"


def test_too_little_memory_is_a_one_line_error(call):
    result = call("run", "--horizon", "1e14", "--record", "all", code=1)
    assert result.stderr.startswith("Error: not enough memory")


def test_what_was_recorded_before_a_plugin_failed_is_shown_and_written(call, tmp_path, monkeypatch):
    real = run_module.run

    def fails(*arguments, **keywords):
        error = PluginError("trigger 'x' raised ValueError")
        error.result = real(*arguments, **keywords)
        raise error

    monkeypatch.setattr(run_module, "run", fails)
    result = call("run", *SMALL, "--out", tmp_path, code=2)
    assert "regret" in result.stdout
    assert result.stderr == "Error: trigger 'x' raised ValueError\n"
    assert (tmp_path / "async.npz").exists()


LONG = ("run", "--dim", "8", "--arms", "8", "--clients", "4", "--horizon", "50e6")


def interrupted(*arguments):
    """Start a long run and press Ctrl-C a second after its progress bar appears.

    Return its output, what the terminal showed, its exit code and how long it took to end.
    """
    import pty

    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=end, text=True, encoding="utf-8"
    )
    os.close(end)
    try:
        shown = b""
        while b"pulls" not in shown:
            shown += os.read(terminal, 1024)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        pressed = time.monotonic()
        out, _ = process.communicate(timeout=30)
        took = time.monotonic() - pressed
        with contextlib.suppress(OSError):  # when there is nothing left to read
            shown += os.read(terminal, 1 << 20)
    finally:
        process.kill()
        os.close(terminal)
    return out, shown.decode(errors="replace"), process.returncode, took


@pytest.mark.posix
def test_ctrl_c_ends_within_a_second_with_the_table_of_what_was_recorded():
    out, shown, code, took = interrupted(*LONG)
    assert code == 130
    assert took < 1
    assert "Traceback" not in out + shown
    assert re.search(r"stopped early after [\d,]+ of 50,000,000 pulls", out)
    assert re.search(r"^regret  .* % of uniform", out, re.MULTILINE)


@pytest.mark.posix
def test_ctrl_c_still_writes_the_files(tmp_path):
    out, shown, code, _ = interrupted(*LONG, "--out", str(tmp_path), "--json")
    assert code == 130
    assert "Traceback" not in out + shown
    printed = json.loads(out)
    assert not printed["complete"]
    assert 0 < printed["played"] < 50_000_000
    result = fsl.RunResult.load(tmp_path / "async.npz")
    assert not result.complete
    assert result.n_pulls == printed["played"]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "async.csv",
        "async.npz",
        "async.png",
    ]


def test_a_run_stopped_before_its_first_pull_still_has_a_table(call, tmp_path, monkeypatch):
    real = run_module.run

    def stopped_at_once(*arguments, **keywords):
        result = real(*arguments, **keywords)
        nothing = {name: getattr(result, name)[:0] for name in ("pulls", *SUMS, *COUNTS)}
        return dataclasses.replace(result, complete=False, **nothing)

    monkeypatch.setattr(run_module, "run", stopped_at_once)
    text = call("run", *SMALL, "--out", tmp_path, code=130).stdout
    assert "stopped early after" in text and "regret" not in text
    assert (tmp_path / "async.png").exists()
    assert json.loads(call("run", *SMALL, "--json", code=130).stdout)["regret"] is None


def test_ctrl_c_outside_of_the_run_causes_no_traceback(call, monkeypatch):
    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "make_run_table", pressed)
    assert call("run", *SMALL, code=130).stderr == "stopped\n"


def test_no_progress_bar_unless_standard_error_is_a_terminal():
    done = subprocess.run(
        [*COMMAND, "run", *SMALL], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
