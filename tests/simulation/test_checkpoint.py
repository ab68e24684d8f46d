"""A run that was stopped or killed resumes bit for bit, and damaged checkpoints are refused."""

import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsuplin as fsl
from fedsuplin._shared import files
from fedsuplin._shared.archives import MAGIC, read_archive
from fedsuplin.cli import run as cli_run
from fedsuplin.cli.main import root_command
from fedsuplin.errors import InvalidInput, UnknownName
from fedsuplin.plugin import Chunk, Problem, Stream
from fedsuplin.simulation import checkpoint
from fedsuplin.simulation.interruptions import Interruptions
from fedsuplin_ext.loop import BY_PULL, COUNTS, SUMS

KILL_POINTS = runpy.run_path(str(Path(__file__).parents[2] / "bench/checks/kill_points.py"))
COMPARED = ("pulls", *SUMS, *COUNTS, *BY_PULL, "client_regret", "client_pulls", "layer_pulls")
STATES = ("policy_state", "trigger_state", "weighting_state")
NOISE = {"variance": {"noise": "bounded"}, "robust": {"noise": "corrupted", "corruption": 20.0}}
NAMES = [
    "async",
    "sync",
    "variance",
    "robust",
    "sync+robust",
    "oful",
    "suplinucb",
    "fedlinucb",
    "async-linucb",
    "dislinucb",
    "uniform",
]


class Stopped(Exception):
    """Raised to end a run from within, as a crash would."""


def after(chunks):
    """Return a `progress` that ends the run after so many chunks."""
    count = iter(range(chunks))

    def progress(done, total):
        if next(count, None) is None:
            raise Stopped

    return progress


def stopped_and_resumed(name, problem, file, every=333, **options):
    """Return the result of a run stopped after every second chunk, and the number of stops."""
    for times in range(1000):
        with contextlib.suppress(Stopped):
            return fsl.run(
                name,
                problem,
                record="all",
                checkpoint=file,
                checkpoint_every=every,
                progress=after(2),
                **options,
            ), times
    raise AssertionError("it does not get on")


def assert_same(ours, theirs):
    for name in COMPARED:
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    for name in STATES:
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert (mine is None) == (other is None) and (
            mine is None or np.array_equal(mine, other)
        ), name


def synthetic(name="async", **sizes):
    return fsl.SyntheticProblem(
        **({"dim": 5, "n_arms": 6, "n_clients": 4, "seed": 2} | sizes), **NOISE.get(name, {})
    )


# --- to the bit ---


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_stopped_many_times_equals_one_that_was_not(name, tmp_path):
    problem = synthetic(name)
    resumed, times = stopped_and_resumed(name, problem, tmp_path / "run.ckpt", horizon=3000)
    assert times >= 2
    assert_same(resumed, fsl.run(name, problem, horizon=3000, record="all"))


@pytest.mark.parametrize("name", ["pe", "fed-pe"])
def test_phases_are_resumed_too(name, tmp_path):
    problem = fsl.FixedArmsProblem(3, 6, 4, seed=3)
    resumed, times = stopped_and_resumed(name, problem, tmp_path / "run.ckpt", horizon=4000)
    assert times >= 2
    assert_same(resumed, fsl.run(name, problem, horizon=4000, record="all"))


@pytest.mark.parametrize(
    "sizes",
    [
        {"dim": 1, "n_arms": 1, "n_clients": 1},
        {"dim": 9, "n_arms": 3, "n_clients": 1},
        {"n_clients": 30},
    ],
)
def test_awkward_sizes_are_resumed_too(sizes, tmp_path):
    for name in ("async", "sync"):
        problem = synthetic(name, contexts="ball", **sizes)
        resumed, _ = stopped_and_resumed(name, problem, tmp_path / f"{name}.ckpt", horizon=1500)
        assert_same(resumed, fsl.run(name, problem, horizon=1500, record="all"))


@settings(max_examples=15, deadline=None)
@given(
    every=st.integers(40, 700),
    stops=st.integers(1, 5),
    seed=st.integers(0, 50),
    name=st.sampled_from(NAMES),
)
def test_a_run_is_the_same_wherever_it_is_stopped(every, stops, seed, name, tmp_path_factory):
    problem, file = synthetic(name, seed=seed), tmp_path_factory.mktemp("cut") / "run.ckpt"
    for _ in range(stops):
        with contextlib.suppress(Stopped):
            fsl.run(
                name,
                problem,
                horizon=800,
                record="all",
                checkpoint=file,
                checkpoint_every=every,
                progress=after(1),
            )
    assert_same(
        fsl.run(name, problem, horizon=800, record="all", checkpoint=file, checkpoint_every=every),
        fsl.run(name, problem, horizon=800, record="all"),
    )


def test_arrays_are_resumed_and_only_with_the_same_arrays(tmp_path):
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((1500, 4, 3))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
    clients, rewards = rng.integers(0, 3, 1500), rng.random((1500, 4))
    problem, file = fsl.ArrayProblem(contexts, clients, rewards=rewards), tmp_path / "run.ckpt"
    resumed, times = stopped_and_resumed("async", problem, file)
    assert times >= 1
    assert_same(resumed, fsl.run("async", problem, record="all"))
    rewards[700, 1] += 1e-9
    with pytest.raises(InvalidInput, match="is the checkpoint of another run: its data is"):
        fsl.run(
            "async",
            fsl.ArrayProblem(contexts, clients, rewards=rewards),
            record="all",
            checkpoint=file,
        )


class Coins(Stream):
    """A stream without a position: a resumed run reads it again from the beginning."""

    def __init__(self):
        self.rng = np.random.default_rng(5)

    def take(self, n):
        contexts = self.rng.random((n, 3, 2)) / 2
        return Chunk.of(contexts, np.zeros(n), theta=[0.5, -0.5])


class CoinProblem(Problem):
    dim, n_arms, n_clients = 2, 3, 1

    def stream(self, horizon, arrival):
        return Coins()


def test_a_stream_without_a_position_is_read_again(tmp_path):
    resumed, times = stopped_and_resumed(
        "async", CoinProblem(), tmp_path / "run.ckpt", horizon=1200
    )
    assert times >= 1
    assert_same(resumed, fsl.run("async", CoinProblem(), horizon=1200, record="all"))


def test_a_problem_from_data_is_resumed_too(tmp_path):
    problem = fsl.DigitsProblem(n_clients=3, seed=1)
    resumed, times = stopped_and_resumed("async", problem, tmp_path / "run.ckpt", horizon=900)
    assert times >= 1
    assert_same(resumed, fsl.run("async", problem, horizon=900, record="all"))


def test_the_state_of_a_plugin_is_resumed(tmp_path):
    class Moody:
        state_size = 2

        def fires(self, gain, elapsed, state):
            state[0] += 1
            state[1] += gain
            return state[0] % 7 == 0

        def __repr__(self):
            return "Moody()"

    algorithm = fsl.make("async", dim=5, n_arms=6, n_clients=4, horizon=2000, trigger=Moody())
    resumed, times = stopped_and_resumed(algorithm, synthetic(), tmp_path / "run.ckpt")
    assert times >= 1 and resumed.trigger_state.any()
    assert_same(resumed, fsl.run(algorithm, synthetic(), record="all"))


def test_a_finished_run_is_not_played_again(tmp_path):
    file = tmp_path / "run.ckpt"
    first = fsl.run("async", synthetic(), horizon=1000, checkpoint=file)
    content = file.read_bytes()
    again = fsl.run("async", synthetic(), horizon=1000, checkpoint=file)
    assert np.array_equal(first.regret, again.regret) and file.read_bytes() == content
    assert again.loop_time == first.loop_time  # of which none was now
    assert again.cpu_time >= read_archive(file)[1]["cpu_time"] > 0


# --- killed, interrupted ---


@pytest.mark.posix
def test_runs_killed_at_random_moments_end_with_the_same_result(capsys):
    assert KILL_POINTS["main"](points=12, seed=1) == 0
    assert "12 results identical, 0 different" in capsys.readouterr().out


@pytest.mark.posix
def test_ctrl_c_writes_a_checkpoint(tmp_path):
    command = [
        sys.executable,
        "-m",
        "fedsuplin",
        "run",
        "async",
        "--horizon",
        "2e6",
        "--dim",
        "6",
        "--json",
    ]
    kept = [
        *command,
        "--checkpoint",
        str(tmp_path / "run.ckpt"),
        "--checkpoint-every",
        "1e4",
        "--out",
        str(tmp_path),
    ]
    heeding = {
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    }  # even if these tests ignore it
    process = subprocess.Popen(
        kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **heeding
    )
    while (
        not (tmp_path / "run.ckpt").exists() and process.poll() is None
    ):  # it has begun, however slow the machine is
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in error, error
    assert '"complete": false' in out and (tmp_path / "run.ckpt").exists()
    played = int(read_archive(tmp_path / "run.ckpt")[0]["totals"][0])
    assert 0 < played < 2_000_000


def test_a_second_ctrl_c_acts_at_once():
    with pytest.raises(KeyboardInterrupt), Interruptions(deferred=True) as interruptions:
        signal.raise_signal(signal.SIGINT)
        assert interruptions.any  # and it goes on
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_run_in_a_thread_writes_checkpoints_too(tmp_path):
    results = []
    problem = synthetic()
    thread = threading.Thread(
        target=lambda: results.append(
            fsl.run("async", problem, horizon=900, checkpoint=tmp_path / "c", checkpoint_every=200)
        )
    )
    thread.start()
    thread.join()
    assert np.array_equal(results[0].regret, fsl.run("async", problem, horizon=900).regret)


def test_without_checkpoint_every_the_clock_decides(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setattr(
        checkpoint,
        "write_archive",
        lambda path, arrays, rest: written.append(int(arrays["totals"][0])),
    )
    fsl.run("async", synthetic(), horizon=1000, checkpoint=tmp_path / "run.ckpt", chunk=300)
    assert written == [300, 600, 900, 1000]


# --- files that are no checkpoint of this run ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the bytes of a good checkpoint at pull 500 of 1000."""
    file = tmp_path_factory.mktemp("whole") / "run.ckpt"
    with contextlib.suppress(Stopped):
        options = {"checkpoint": file, "checkpoint_every": 500, "progress": after(0)}
        fsl.run("async", synthetic(), horizon=1000, **options)
    assert read_archive(file)[0]["totals"][0] == 500
    return file.read_bytes()


def refused(content, file, words, name="async", **options):
    """Check that the file is refused with these words, and not changed."""
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        fsl.run(
            name,
            options.pop("problem", synthetic()),
            **({"horizon": 1000} | options),
            checkpoint=file,
        )
    assert file.read_bytes() == content


@pytest.mark.parametrize("at", [3, 35, 60, 200, 5000, -1])
def test_a_checkpoint_with_one_wrong_byte_is_refused(at, whole, tmp_path):
    damaged = bytearray(whole)
    damaged[at] ^= 0x10
    refused(
        bytes(damaged),
        tmp_path / "run.ckpt",
        "is damaged or cut short|is not a checkpoint|of another format",
    )


@pytest.mark.parametrize("length", [0, 10, 40, 120, 3000, -1])
def test_a_checkpoint_that_was_cut_short_is_refused(length, whole, tmp_path):
    refused(whole[:length], tmp_path / "run.ckpt", "is damaged or cut short|is not a checkpoint")


def test_other_files_are_refused(whole, tmp_path):
    result = fsl.run("async", synthetic(), horizon=100).save(tmp_path / "result.npz").read_bytes()
    refused(result, tmp_path / "run.ckpt", "is not a checkpoint of fedsuplin; it was left as it is")
    refused(
        whole.replace(b"format 2", b"format 9", 1), tmp_path / "run.ckpt", "is of another format"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "sync"}, 'its algorithm.variant is "async", not "sync"'),
        ({"alpha_scale": 0.7}, "its algorithm.noise.parameters.alpha_scale is 0.15, not 0.7"),
        (
            {"horizon": 1200},
            "of another run: its horizon is 1000, not 1200. The file was not changed",
        ),
        ({"problem": synthetic(seed=9)}, "its problem.parameters.seed is 2, not 9"),
        ({"record": 10}, 'its record is "log", not 10'),
    ],
)
def test_the_checkpoint_of_another_run_is_refused_with_the_differences(
    options, words, whole, tmp_path
):
    refused(whole, tmp_path / "run.ckpt", words, **options)


def test_the_checkpoint_of_a_machine_that_rounds_differently_is_refused(whole, tmp_path):
    known = json.loads(array_of(whole, "json").tobytes())
    known["identity"]["kernels"] = "abacus"
    content = forged(whole, json=np.frombuffer(json.dumps(known).encode(), np.uint8))
    refused(content, tmp_path / "run.ckpt", 'its kernels is "abacus", not')


def test_the_checkpoint_of_another_version_is_refused(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "__version__", "99.0")
    refused(whole, tmp_path / "run.ckpt", 'its fedsuplin is ".*", not "99.0"')


def forged(whole, **arrays):
    """Return a checkpoint with a right digest and forged arrays."""
    body = whole.split(b"\n", 2)[2]
    with np.load(io.BytesIO(body)) as file:
        found = {name: file[name] for name in file.files} | arrays
    out = io.BytesIO()
    np.savez(out, **{name: value for name, value in found.items() if value is not None})
    return MAGIC + hashlib.sha256(out.getvalue()).hexdigest().encode() + b"\n" + out.getvalue()


def array_of(whole, name):
    with np.load(io.BytesIO(whole.split(b"\n", 2)[2])) as file:
        return file[name]


@pytest.mark.parametrize("name", ["held", "server", "pending"])
@pytest.mark.parametrize("value", [-2, 10**6, 2**62])
def test_indices_out_of_range_are_refused(name, value, whole, tmp_path):
    values = array_of(whole, name)
    values[-1] = value
    refused(
        forged(whole, **{name: values}),
        tmp_path / "run.ckpt",
        f"does not fit this run: its {name} must be from",
    )


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("snapshot_marks", 0, 10**6),
        ("snapshot_marks", 1, 2),
        ("snapshot_marks", 2, 7),
        ("pending_marks", 0, 99),
        ("pending_marks", 1, -1),
    ],
)
def test_flags_that_no_engine_sets_are_refused(name, column, value, whole, tmp_path):
    values = array_of(whole, name)
    values[0, column] = value
    refused(
        forged(whole, **{name: values}),
        tmp_path / "run.ckpt",
        "does not fit this run: its .* must be from",
    )


def test_two_clients_cannot_share_their_sums(whole, tmp_path):
    values = array_of(whole, "pending")
    values[values >= 0] = 0
    refused(
        forged(whole, pending=values),
        tmp_path / "run.ckpt",
        "its pending must belong to one client each",
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_recorded_sums_must_be_finite(value, whole, tmp_path):
    values = array_of(whole, "recorded_sums")
    values[-1, 0] = value
    refused(
        forged(whole, recorded_sums=values),
        tmp_path / "run.ckpt",
        "does not fit this run: its recorded_sums must be finite",
    )


@pytest.mark.parametrize(
    "name", ["totals", "held", "snapshot_numbers", "client_pulls", "recorded_sums", "json"]
)
def test_a_missing_array_or_another_shape_is_refused(name, whole, tmp_path):
    refused(
        forged(whole, **{name: None}),
        tmp_path / "run.ckpt",
        "does not (fit this run|hold what a checkpoint does)",
    )
    refused(
        forged(whole, **{name: np.zeros((2, 2, 2), np.float32)}),
        tmp_path / "run.ckpt",
        "does not (fit this run|hold what a checkpoint does)",
    )


def test_nothing_in_a_checkpoint_is_executed(whole, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "pwned"),)

    content = forged(whole, extra=np.array([Evil()], object))
    refused(content, tmp_path / "run.ckpt", "does not hold what a checkpoint does")
    assert not (tmp_path / "pwned").exists()


# --- disks and folders ---


def test_a_full_disk_leaves_the_earlier_checkpoint_and_no_partial_file(
    whole, tmp_path, monkeypatch
):
    file = tmp_path / "run.ckpt"
    file.write_bytes(whole)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        fsl.run("async", synthetic(), horizon=1000, checkpoint=file, checkpoint_every=250)
    assert file.read_bytes() == whole and os.listdir(tmp_path) == ["run.ckpt"]
    monkeypatch.undo()
    assert_regret = fsl.run("async", synthetic(), horizon=1000, checkpoint=file).regret
    assert np.array_equal(assert_regret, fsl.run("async", synthetic(), horizon=1000).regret)


def test_a_missing_folder_is_reported_before_anything_runs(tmp_path):
    with pytest.raises(InvalidInput, match="there is no folder"):
        fsl.run(
            "async",
            synthetic(),
            horizon=1000,
            checkpoint=tmp_path / "nowhere" / "run.ckpt",
            progress=after(0),
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"checkpoint_every": 100}, "checkpoint_every= needs checkpoint="),
        (
            {"checkpoint_every": 0, "checkpoint": "c"},
            "checkpoint_every must be a whole number of at least 1",
        ),
    ],
)
def test_a_checkpoint_every_that_cant_be_used_is_refused(options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=words):
        fsl.run("async", synthetic(), horizon=1000, **options)


def test_every_always_belongs_to_the_trigger(tmp_path):
    options = {"checkpoint": tmp_path / "c", "checkpoint_every": 30}
    for kept in ({}, options):
        result = fsl.run("async", synthetic(), horizon=100, trigger="periodic", every=10, **kept)
        assert result.communication[-1] == 100 // 40 * 4 + 0
    with pytest.raises(UnknownName, match="unknown keyword for 'async' 'every'"):
        fsl.run("async", synthetic(), horizon=100, every=10, **options)


# --- the command ---


def test_the_command_writes_a_checkpoint_and_resumes_from_it(tmp_path):
    arguments = [
        "run",
        "robust",
        "--dim",
        "4",
        "--arms",
        "5",
        "--clients",
        "3",
        "--horizon",
        "2000",
    ]
    arguments += ["--checkpoint", str(tmp_path / "run.ckpt"), "--checkpoint-every", "1e3"]
    first, second = (CliRunner().invoke(root_command, arguments) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    assert "saved to" in first.output and "continued from" in second.output
    refused = CliRunner().invoke(root_command, [*arguments, "--seed", "5"])
    assert refused.exit_code == 2 and "its problem.parameters.seed is 0, not 5" in " ".join(
        refused.output.split()
    )
    longer = " ".join(
        CliRunner().invoke(root_command, [*arguments, "--horizon", "3000"]).output.split()
    )
    assert longer.count("horizon") == 1 and "its horizon is 2000, not 3000" in longer


def test_the_command_explains_how_to_resume_a_stopped_run(tmp_path, monkeypatch):
    def stopped(algorithm, problem, **options):
        return dataclasses.replace(fsl.run(algorithm, problem), complete=False)

    monkeypatch.setattr(cli_run, "run", stopped)
    arguments = [
        "run",
        "--dim",
        "4",
        "--arms",
        "5",
        "--clients",
        "2",
        "--horizon",
        "200",
        "--checkpoint",
        str(tmp_path / "c"),
    ]
    done = CliRunner(env={"COLUMNS": "300"}).invoke(root_command, arguments)
    assert (
        done.exit_code == 130
        and f"saved to {tmp_path / 'c'}: start the same command again to continue" in done.output
    )


def test_checkpoint_every_needs_a_checkpoint_on_the_command_line():
    done = CliRunner().invoke(root_command, ["run", "--checkpoint-every", "100"])
    assert done.exit_code == 2 and "--checkpoint-every needs --checkpoint" in done.output
