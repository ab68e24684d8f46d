"""The command line, as somebody with nothing but --help uses it."""

import contextlib
import csv
import dataclasses
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest
import scipy
from click.testing import CliRunner
from rich.cells import cell_len

import fedsuplin as fsl
from fedsuplin.cli import plugins as plugins_module
from fedsuplin.cli import run as run_module
from fedsuplin.cli import scaffold
from fedsuplin.cli.main import root_command
from fedsuplin.cli.scaffold import fill_templates
from fedsuplin.errors import PluginError, UnknownName
from fedsuplin.registry import Registry, plugins
from fedsuplin_ext import norms
from fedsuplin_ext.loop import COUNTS, SUMS

SMALL = ("--dim", "4", "--arms", "5", "--clients", "2", "--horizon", "400")
COMMAND = [sys.executable, "-m", "fedsuplin"]


def call(*arguments, code=0):
    """Run a command in this process; it must end with `code`, and never with a traceback."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(
        root_command, [str(argument) for argument in arguments]
    )
    assert result.exit_code == code, result.output + repr(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def widest(text):
    """In columns of a terminal, where a combining mark takes none."""
    return max(cell_len(line) for line in text.splitlines())


def numbers(*arguments):
    """What --json prints, which must be all of standard output."""
    return json.loads(call(*arguments, "--json").stdout)


# --- run: what is played --------------------------------------------------------------------------------------------


def test_the_bare_run_is_the_papers_setting_and_beats_uniform_play_by_far():
    told = numbers("run")
    setting = told["spec"]["algorithm"]
    assert (setting["variant"], setting["preset"]) == ("async", "practical")
    assert [setting[key] for key in ("dim", "n_arms", "n_clients", "horizon")] == [
        25,
        20,
        20,
        40_000,
    ]
    assert told["spec"]["problem"]["parameters"]["seed"] == 0
    assert told["percent_of_uniform"] < 5
    assert told["too_short"] is None


def test_theory_at_the_papers_setting_says_that_the_horizon_is_too_short_and_how_long_it_must_be():
    told = numbers("run", "--preset", "theory")
    (notice,) = told["notices"]
    assert "horizon is too short" in notice
    assert "past layer 1" in notice
    assert "--preset practical" in notice
    needed = told["too_short"]["needed_horizon"]
    assert 1e6 < needed < 1e8
    assert f"about {round(needed, -5):,} pulls" in notice
    assert told["guarantee"]
    assert told["departures"] == []


def test_the_notice_is_for_people_too_and_only_for_layered_policies_with_theory():
    text = " ".join(call("run", "--preset", "theory", *SMALL).stdout.split())
    assert "The horizon is too short for these constants" in text
    assert "too short" not in call("run", *SMALL).stdout
    assert "too short" not in call("run", "oful", "--preset", "theory", *SMALL).stdout


@pytest.mark.parametrize("variant", plugins.names("variants"))
def test_every_variant_runs_with_nothing_but_its_name_and_says_what_was_played(variant):
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


def test_variance_and_robust_get_the_noise_they_are_made_for_and_know_it():
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


def test_what_the_algorithm_assumes_may_be_wrong_and_the_result_says_so():
    told = numbers(
        "run", "robust", "--budget", "20", "--corruption", "5", "--preset", "theory", *SMALL
    )
    assert told["spec"]["problem"]["parameters"]["corruption"] == 20
    assert any("20" in departure and "assumes 5" in departure for departure in told["departures"])


@pytest.mark.parametrize(
    ("options", "sigma"),
    [
        ((), 0.1),
        (("--noise-scale", "0.3"), 0.3),
        (("--sigma", "0.7"), 0.7),
        (("--preset", "theory"), 1.0),
    ],
)
def test_sigma_is_the_problems_noise_in_practice_and_one_in_theory(options, sigma):
    assert (
        numbers("run", *SMALL, *options)["spec"]["algorithm"]["noise"]["parameters"]["noise_scale"]
        == sigma
    )


def test_every_option_of_the_algorithm_arrives():
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


def test_parts_can_be_replaced():
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
    told = numbers("run", *SMALL, *flags)
    algorithm = told["spec"]["algorithm"]
    assert [algorithm[axis]["name"] for axis in ("trigger", "weighting", "noise")] == [
        "periodic",
        "variance",
        "bounded",
    ]
    assert algorithm["trigger"]["parameters"] == {"every": 10}
    assert not algorithm["lazy"]
    assert not told["guarantee"]
    assert numbers("run", "robust", *SMALL, "--syncs", "all")["spec"]["algorithm"]["syncs"] == "all"


def test_set_reaches_the_algorithm_or_the_problem_whichever_has_a_use_for_it():
    flags = ("--set", "rho=0.25", "--set", "layer_zero=bernstein", "--set", "sigma_high=0.5")
    spec = numbers("run", "variance", *SMALL, *flags)["spec"]
    assert spec["algorithm"]["weighting"]["parameters"]["rho"] == 0.25
    assert spec["algorithm"]["noise"]["parameters"]["layer_zero"] == "bernstein"
    assert spec["problem"]["parameters"]["sigma_high"] == 0.5


def test_the_problem_options_arrive():
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


def test_the_same_seed_gives_the_same_table():
    one, two, other = (numbers("run", *SMALL, "--seed", seed) for seed in (3, 3, 4))
    keys = ("regret", "uniform_regret", "communication", "bytes_up", "layer_pulls")
    assert [one[key] for key in keys] == [two[key] for key in keys]
    assert one["regret"] != other["regret"]


def test_the_command_plays_what_the_library_plays():
    problem = fsl.SyntheticProblem(4, 5, 2, seed=3)
    result = fsl.run("async", problem, horizon=400, noise_scale=0.1)
    told = numbers("run", *SMALL, "--seed", 3)
    assert (told["regret"], told["communication"]) == (result.regret[-1], result.communication[-1])


# --- run: what is written -------------------------------------------------------------------------------------------


def test_out_writes_data_table_and_figure_and_says_where(tmp_path):
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


def test_record_all_puts_every_pull_into_the_table(tmp_path):
    call("run", *SMALL, "--out", tmp_path, "--record", "all", "--quiet")
    with (tmp_path / "async.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 400
    assert {int(row["client"]) for row in rows} == {0, 1}
    assert {"arm", "layer"} <= set(rows[0])


def test_record_every_nth(tmp_path):
    call("run", *SMALL, "--out", tmp_path, "--record", "1e2", "-q")
    assert fsl.RunResult.load(tmp_path / "async.npz").pulls.tolist() == [100, 200, 300, 400]


def test_without_matplotlib_data_is_written_and_the_remedy_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    told = numbers("run", *SMALL, "--out", tmp_path)
    assert [os.path.basename(file) for file in told["files"]] == ["async.npz", "async.csv"]
    assert any("pip install 'fedsuplin[plot]'" in notice for notice in told["notices"])


def test_json_lists_the_files_and_quiet_prints_nothing(tmp_path):
    told = numbers("run", *SMALL, "--out", tmp_path)
    assert all(os.path.exists(file) for file in told["files"])
    assert call("run", *SMALL, "--quiet").output == ""


@dataclasses.dataclass(frozen=True)
class Shifts:
    """Each client plays `length` pulls in a row."""

    length: int = 100
    in_rounds = False

    def clients(self, start, stop, *, n_clients, horizon, seed):
        return np.arange(start, stop) // self.length % n_clients


@pytest.mark.parametrize("variant", ["async", "pe"])
def test_the_parameters_of_an_arrival_are_set_by_name_and_told(monkeypatch, variant):
    plugins.names("arrivals")
    monkeypatch.setitem(
        plugins._factories["arrivals"], "shifts", (Shifts, plugins.find_owner("arrivals", "random"))
    )
    told = call("run", variant, *SMALL, "--arrival", "shifts", "--set", "length=3").stdout
    assert "shifts arrival (length 3), seed 0" in told and "gaussian noise (sd 0.1)\n" in re.sub(
        " +\n", "\n", told
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
def test_every_problem_is_told_in_words(arguments, words):
    told = call("run", *arguments).stdout
    assert all(each in told for each in words) and "Problem(" not in told


def test_the_text_of_every_built_in_plugin_is_a_whole_sentence():
    assert [
        row["name"]
        for row in numbers("plugins")["plugins"]
        if row["kind"] == "problem" and row["what"][-1] not in ".:"
    ] == []


def test_the_server_has_defaults_of_its_own_and_one_meaning_of_ctrl_c():
    told = " ".join(call("serve", "--help").stdout.split())
    assert "the problem's" not in told.partition("--set")[0]
    assert (
        "Assumed noise level. [default: 1]" in told and "Assumed corruption. [default: 0]" in told
    )
    assert (
        "0 Ended gracefully, by Ctrl-C or SIGTERM." in told
        and "130 Stopped by Ctrl-C before it listened." in told
    )


@pytest.mark.parametrize("columns", [60, 100])
def test_the_numbers_of_a_variant_fit_the_terminal(columns):
    told = (
        CliRunner(env={"COLUMNS": str(columns)}).invoke(root_command, ["variants", "async"]).stdout
    )
    assert widest(told) <= columns and "guarantee does not hold: alpha_scale is" in " ".join(
        told.split()
    )


# --- what goes wrong ------------------------------------------------------------------------------------------------


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
            "the problem 'array' needs NumPy arrays, so it can only be built in Python: fsl.ArrayProblem(",
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
def test_bad_input_gets_a_clear_line_and_exit_code_2(arguments, message):
    horizon = () if "--horizon" in arguments else ("--horizon", "400")
    result = call("run", *horizon, *arguments, code=2)
    assert message in result.stderr
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.linux
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_standard_output_that_is_full_is_named(more):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "run", *SMALL, *more], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (
        1,
        "Error: standard output: No space left on device\n",
    )


@pytest.mark.parametrize("place", ["", "below"])
def test_an_out_that_can_not_be_written_fails_before_the_run(tmp_path, monkeypatch, place):
    monkeypatch.setattr(run_module, "run", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "file").write_text("in the way")
    result = call("run", *SMALL, "--out", tmp_path / "file" / place, code=2)
    assert result.stderr.startswith("Error: can't write to --out")
    assert result.stderr.count("\n") == 1


def test_a_disk_that_fills_up_is_one_line_too(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", str(tmp_path / "async.npz"))

    monkeypatch.setattr(fsl.RunResult, "save", full)
    result = call("run", *SMALL, "--out", tmp_path, code=1)
    assert result.stderr == f"Error: {tmp_path / 'async.npz'}: No space left on device\n"


def test_too_much_to_hold_in_memory_is_one_line_too():
    result = call("run", "--horizon", "1e14", "--record", "all", code=1)
    assert result.stderr.startswith("Error: not enough memory")


def test_what_was_recorded_before_a_plugin_failed_is_shown_and_written(tmp_path, monkeypatch):
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


# --- Ctrl-C, in a real process --------------------------------------------------------------------------------------

LONG = ("run", "--dim", "8", "--arms", "8", "--clients", "4", "--horizon", "50e6")


def interrupted(*arguments):
    """Start a long run, press Ctrl-C a second after its progress bar came; what it printed, how it ended, how fast."""
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
    told = json.loads(out)
    assert not told["complete"]
    assert 0 < told["played"] < 50_000_000
    result = fsl.RunResult.load(tmp_path / "async.npz")
    assert not result.complete
    assert result.n_pulls == told["played"]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "async.csv",
        "async.npz",
        "async.png",
    ]


def test_a_run_stopped_before_its_first_pull_has_a_table_nevertheless(tmp_path, monkeypatch):
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


def test_ctrl_c_elsewhere_is_no_traceback_either(monkeypatch):
    def pressed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "make_run_table", pressed)
    assert call("run", *SMALL, code=130).stderr == "stopped\n"


# --- variants, plugins, help ----------------------------------------------------------------------------------------


def test_variants_lists_every_variant_with_its_parts():
    text = call("variants").stdout
    rows = json.loads(call("variants", "--json").stdout)
    assert [row["name"] for row in rows] == plugins.names("variants")
    assert widest(text) <= 80
    for row in rows:
        assert {
            "summary",
            "policy",
            "trigger",
            "noise",
            "weighting",
            "syncs",
            "lazy",
            "theorem",
        } <= set(row)
        assert row["name"] in text
    assert "Theorem 2" in text


def test_variants_with_a_name_shows_the_numbers_that_run_would_use():
    text = call("variants", "async").stdout
    assert "preset practical" in text
    assert "preset theory" in text
    assert "d=25 K=20 M=20 T=40000" in text
    made = json.loads(call("variants", "async", *SMALL, "--json").stdout)
    assert made["practical"]["noise"] == numbers("run", *SMALL)["spec"]["algorithm"]["noise"]
    theory = fsl.make("async", dim=4, n_arms=5, n_clients=2, horizon=400, preset="theory")
    np.testing.assert_array_equal(made["theory"]["radii"], theory.radii)
    assert "Did you mean 'sync'?" in call("variants", "synk", code=2).stderr


def test_plugins_lists_everything_that_is_registered():
    text = call("plugins").stdout
    rows = json.loads(call("plugins", "--json").stdout)["plugins"]
    listed = {(row["kind"], row["name"]) for row in rows}
    assert {
        ("trigger", "determinant"),
        ("policy", "layered"),
        ("noise model", "bounded"),
        ("variant", "robust"),
    } <= listed
    assert all(row["package"] == "fedsuplin" and row["version"] and row["what"] for row in rows)
    assert all(name in text for _, name in listed)
    assert widest(text) <= 80


def test_plugins_says_which_package_and_entry_point_each_comes_from_and_by_which_hook():
    text = " ".join(call("plugins").stdout.split())
    sources = {source["entry_point"]: source for source in numbers("plugins")["sources"]}
    ours = {"package": "fedsuplin", "version": fsl.__version__, "error": None}
    assert sources["arrivals"] == ours | {
        "entry_point": "arrivals",
        "hooks": ["fedsuplin_register_arrivals"],
        "registered": [["arrivals", name] for name in ("round-robin", "click-leave", "random")],
    }
    assert f"fedsuplin {fsl.__version__}" in text
    assert "arrivals arrivals: round-robin, click-leave, random" in text
    registered = {tuple(pair) for source in sources.values() for pair in source["registered"]}
    assert {("triggers", "determinant"), ("problems", "synthetic")} <= registered


def test_plugins_says_what_failed_to_load_and_why(monkeypatch):
    class Broken:
        name = "broken"
        dist = types.SimpleNamespace(name="somebodys", version="3.1")

        def load(self):
            raise ImportError("no module named numba")

    monkeypatch.setattr(plugins_module, "plugins", Registry(entry_points=lambda: [Broken()]))
    result = call("plugins")
    told = " ".join(result.stdout.split())
    assert (
        "plugin 'broken' of package somebodys 3.1 failed to load: ImportError: no module named numba"
        in told
    )
    assert result.stderr == ""
    (source,) = numbers("plugins")["sources"]
    assert source == {
        "entry_point": "broken",
        "package": "somebodys",
        "version": "3.1",
        "hooks": [],
        "registered": [],
        "error": "ImportError: no module named numba",
    }


# --- plugins new (tests/test_examples.py installs and runs what it writes) --------------------------------------------


def test_new_writes_a_package_and_says_what_to_do_next(tmp_path):
    result = call("plugins", "new", "Fedsuplin_My.Gossip", "--folder", tmp_path)
    made = tmp_path / "Fedsuplin_My.Gossip"
    written = {str(file.relative_to(made)) for file in made.rglob("*") if file.is_file()}
    module = "src/fedsuplin_my_gossip/__init__.py"
    assert written == {"pyproject.toml", "README.md", module, "tests/test_conformance.py"}
    assert all(file in result.stdout for file in written)
    assert [made] == list(tmp_path.iterdir())
    project = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    assert project["name"] == "Fedsuplin_My.Gossip"
    assert project["entry-points"] == {"fedsuplin": {"my-gossip": "fedsuplin_my_gossip"}}
    assert 'register("my-gossip", ' in (made / module).read_text(encoding="utf-8")
    readme = (made / "README.md").read_text(encoding="utf-8")
    commands = re.search(r"```bash\n(.*?)```", readme, re.DOTALL)[1].splitlines()
    assert len(commands) == 3 and commands[-1] == "fedsuplin run my-gossip"
    steps = [line.strip() for line in result.stdout.splitlines()[-4:]]
    assert steps == [f"cd {made}", *commands]


def test_what_new_writes_keeps_to_the_line_length_and_has_no_placeholder_left():
    for text in fill_templates("my-gossip").values():
        assert text.endswith("\n") and widest(text) <= 130 and "$" not in text


@pytest.mark.parametrize(
    ("name", "reason", "suggestion"),
    [
        ("my gossip", "must be letters and digits", "my-gossip"),
        ("-gossip", "must be letters and digits", "gossip"),
        ("gossip\n", "must be letters and digits", "gossip"),
        ("θ", "must be letters and digits", "my-plugin"),
        ("", "must be letters and digits", "my-plugin"),
        ("../gossip", "must be letters and digits", "gossip"),
        ("3bandits", "module would be '3bandits', which Python can't import", "fedsuplin-3bandits"),
        ("lambda", "module would be 'lambda', which Python can't import", "fedsuplin-lambda"),
        ("random", "hide Python's own 'random'", "fedsuplin-random"),
        ("numpy", "a module 'numpy' is already installed", "fedsuplin-numpy"),
        ("fedsuplin-ext", "a module 'fedsuplin_ext' is already installed", "my-ext"),
        (
            "fedsuplin-sync",
            "the variant 'sync' is already registered by plugin 'variants' of package fedsuplin",
            "my-sync",
        ),
        (
            "periodic",
            "the trigger 'periodic' is already registered by plugin 'triggers'",
            "my-periodic",
        ),
    ],
)
def test_new_refuses_a_name_that_does_not_fit_and_says_one_that_does(
    tmp_path, name, reason, suggestion
):
    told = call("plugins", "new", "--folder", tmp_path, "--", name, code=2).stderr
    assert told.startswith("Error: ") and told.count("\n") == 1
    assert reason in told and told.endswith(f". {suggestion!r} would be right\n")
    assert not list(tmp_path.iterdir())
    call("plugins", "new", "--folder", tmp_path, suggestion)


def test_new_leaves_a_folder_that_is_there_alone(tmp_path):
    (tmp_path / "my-gossip").mkdir()
    told = call("plugins", "new", "my-gossip", "--folder", tmp_path, code=2).stderr
    assert (
        told
        == f"Error: {tmp_path / 'my-gossip'} already exists: choose another name, or another --folder\n"
    )
    assert not list((tmp_path / "my-gossip").iterdir())
    assert (
        "does not exist"
        in call("plugins", "new", "my-gossip", "--folder", tmp_path / "nowhere", code=2).stderr
    )
    assert (
        "put --json after new: before it, it is for the list"
        in call("plugins", "--json", "new", "my-gossip", code=2).stderr
    )


def test_new_writes_all_or_nothing(tmp_path, monkeypatch):
    def full(path, *_, **__):
        if path.name == "README.md":
            raise OSError(28, "No space left on device", str(path))
        return real(path, *_, **__)

    real = Path.write_text
    monkeypatch.setattr(Path, "write_text", full)
    assert (
        "No space left on device"
        in call("plugins", "new", "my-gossip", "--folder", tmp_path, code=1).stderr
    )
    assert not list(tmp_path.iterdir())


def test_new_says_of_the_folder_that_was_asked_for_that_it_can_not_be_made(tmp_path, monkeypatch):
    def refused(*_, prefix, **__):
        raise PermissionError(13, "Permission denied", str(tmp_path / f"{prefix}x1"))

    monkeypatch.setattr(scaffold.tempfile, "TemporaryDirectory", refused)
    told = call("plugins", "new", "my-gossip", "--folder", tmp_path, code=1).stderr
    assert told == f"Error: {tmp_path / 'my-gossip'}: Permission denied\n"
    assert not list(tmp_path.iterdir())


def test_help_and_version_of_the_installed_command():
    assert call("-h").stdout == call("--help").stdout
    for command in ("run", "variants", "plugins"):
        assert command in call("-h").stdout
        assert call(command, "-h").stdout.startswith("Usage:")
    assert "fedsuplin run sync" in call("run", "-h").stdout
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    first, second, third, _ = done.stdout.splitlines()
    assert first == f"fedsuplin, version {fsl.__version__}"
    assert (
        second
        == f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    )
    assert third == f"kernels {norms.default()} (this CPU runs {', '.join(norms.available())})"


def test_no_progress_bar_where_nobody_watches():
    done = subprocess.run(
        [*COMMAND, "run", *SMALL], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_a_terminal_without_greek_letters_gets_question_marks():
    done = subprocess.run(
        [*COMMAND, "run", *SMALL],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0
    assert b"?s per round" in done.stdout
