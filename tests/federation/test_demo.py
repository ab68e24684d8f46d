"""`fedsuplin demo federation` kills and restarts processes and checks the sums."""

import io
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import fedsuplin as fsl
from fedsuplin.cli.exit_codes import INTERRUPTED
from fedsuplin.cli.main import root_command
from fedsuplin.errors import FederationError, InvalidInput, UnknownName
from fedsuplin.federation.credentials import make_tokens, write_token, write_token_hashes
from fedsuplin.federation.demo.demo import Demo, run_demo
from fedsuplin.federation.demo.outcome import Reconciliation, reconcile
from fedsuplin.federation.demo.player import Player, PlayerOptions
from fedsuplin.federation.demo.processes import Process, parse_line
from fedsuplin.federation.demo.screen import Screen, format_times
from fedsuplin.federation.demo.world import World

COMMAND = [sys.executable, "-m", "fedsuplin", "demo", "federation"]
SHORT = {"clients": 2, "pulls": 40, "seconds": 1.0, "kill_every": 0.0, "seed": 0}


def find_processes_of(pid):
    """Return the ids of the processes that a demo has started and that still exist."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"FEDSUPLIN_DEMO={pid}\0".encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:  # ended in the meantime, or not ours
            continue
    return found


def wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


# --- the whole demo -------------------------------------------------------------------------------


@pytest.mark.linux
def test_killed_clients_are_restarted_and_nothing_is_lost():
    given = ["--clients", "3", "--pulls", "150", "--seconds", "4", "--kill-every", "0.7"]
    with subprocess.Popen(
        COMMAND + given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "450 rewards were observed, 450 are in the server's sums" in out
    assert "nothing was lost, nothing counted twice" in out
    assert " killed\n" in out and "nothing lost\n" in out
    assert find_processes_of(process.pid) == []


@pytest.mark.linux
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopping_the_demo_leaves_no_process_behind(how):
    with subprocess.Popen(
        [*COMMAND, "--clients", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert "server is at grpc://127.0.0.1:" in process.stdout.readline()
        assert find_processes_of(process.pid)
        process.send_signal(how)
        out, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED and err == "stopped\n", out + err
    assert find_processes_of(process.pid) == []


@pytest.mark.linux
def test_processes_end_when_the_demo_itself_is_killed():
    with subprocess.Popen(
        [*COMMAND, "--clients", "1"], stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        process.kill()
        process.wait()
    wait_until(lambda: not find_processes_of(process.pid))


def test_the_screen_shows_which_clients_are_killed_and_restarted():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=110, height=40)
    assert run_demo(
        "sync", clients=2, pulls=60, seconds=5.0, kill_every=0.6, seed=0, console=console
    )
    for words in (
        "a live federation on this machine",
        "not uploaded",
        "playing",
        "done",
        "uniform play",
        "listening",
    ):
        assert words in shown.getvalue()
    assert re.search(r"client \d killed", shown.getvalue()) and "nothing lost" in shown.getvalue()


# --- failures -------------------------------------------------------------------------------------


def test_wrong_sums_are_reported_and_fail_the_command(monkeypatch):
    monkeypatch.setattr(
        Demo, "play", lambda self: Reconciliation(noted=5, merged=4, worst=0.0, communication=1)
    )
    called = CliRunner().invoke(root_command, ["demo", "federation"])
    assert called.exit_code == 1
    assert (
        "5 rewards were observed, 4 are in the server's sums" in called.output
        and "THIS IS WRONG" in called.output
    )


def test_an_extra_note_or_a_changed_reward_is_detected(tmp_path):
    world = World("async", n_clients=1, n_pulls=30, seed=3)
    with run_server(world, tmp_path) as options:
        Player(options).play()
    assert reconcile(world, tmp_path).is_right
    notes = options.path("notes")
    text = notes.read_text()
    lines = text.splitlines()
    notes.write_text("\n".join([*lines, lines[-1], ""]))
    assert reconcile(world, tmp_path).noted == 31 and not reconcile(world, tmp_path).is_right
    notes.write_text(text.replace('"reward": ', '"reward": 1', 1))
    assert reconcile(world, tmp_path).worst > 1e-3 and not reconcile(world, tmp_path).is_right


def test_a_client_or_server_that_fails_on_its_own_ends_the_demo(monkeypatch):
    with pytest.raises(
        FederationError, match="client . has ended with exit code 1: .*JSONDecodeError"
    ):
        monkeypatch.setattr(Demo, "_make_player_options", lambda self, number: BrokenOptions())
        run_short_demo()
    monkeypatch.setattr(Demo, "_server_arguments", lambda self: ["serve", "async"])
    with pytest.raises(
        FederationError, match="the server has ended by itself, with exit code 2: .*--store"
    ):
        run_short_demo()


class BrokenOptions:
    def to_json(self):
        return "no JSON"


def run_short_demo(variant="async", **given):
    return run_demo(variant, **SHORT | given, console=Console(file=io.StringIO()))


@pytest.mark.parametrize("variant", ["variance", "robust"])
def test_variants_that_weigh_observations_are_refused(variant):
    with pytest.raises(InvalidInput, match="weighs observations"):
        run_short_demo(variant)


def test_variants_that_cannot_run_live_are_refused():
    with pytest.raises(InvalidInput, match="live"):
        run_short_demo("async-linucb")
    with pytest.raises(UnknownName, match="asink"):
        run_short_demo("asink")


def test_lines_that_are_not_json_objects_are_ignored():
    assert parse_line("not JSON") == {} == parse_line("[1]")
    assert [format_times(n) for n in range(4)] == ["never", "once", "twice", "3 times"]


# --- a client of the demo -------------------------------------------------------------------------


class run_server:  # noqa: N801 - used as a function
    """Run a server process; entering returns the options of its only client."""

    def __init__(self, world, folder):
        self.world, self.folder, self.lines = world, folder, queue.Queue()

    def __enter__(self):
        tokens = make_tokens([0])
        write_token_hashes(self.folder / "tokens.json", tokens)
        write_token(self.folder / "client-0.token", tokens[0])
        console = Console(file=io.StringIO())
        given = {"folder": self.folder, "screen": Screen(console), "stopped": threading.Event()}
        demo = Demo(self.world, seconds=0, kill_every=0, **given)
        self.process = Process("server", demo._server_arguments(), self.lines)
        while not (line := self.lines.get(timeout=60)[2]).startswith("listening on "):
            pass
        return PlayerOptions(self.world, 0, line.split()[-1], str(self.folder), os.getpid(), 0.0)

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(30) == 0


def test_a_client_killed_between_note_and_observation_observes_the_noted_reward_first(
    tmp_path, capsys
):
    world = World("async", n_clients=1, n_pulls=20, seed=0)
    with run_server(world, tmp_path) as options:
        token = options.path("token").read_text().strip()
        client = fsl.connect(options.address, client_id=0, token=token, store=options.path("db"))
        half = Player(options)
        with options.path("notes").open("a") as file:
            half._pull(client, file)
        contexts, _ = world.draw_pull(0, 1)
        decision = client.select(contexts)  # noted, and killed before it is observed
        note = {
            "pull": 1,
            "id": decision.id,
            "arm": decision.arm,
            "layer": decision.layer,
            "reward": 0.25,
        }
        with options.path("notes").open("a") as file:
            file.write(
                f"{note}\n".replace("'", '"') + '{"pull": 2, "id"'
            )  # and a note that was cut off
        client.select(contexts)  # a decision without a reward
        client.close(flush=False)
        Player(options).play()
    assert '{"event": "back", "pulls": 2, "known": 2}' in capsys.readouterr().out
    found = reconcile(world, tmp_path)
    assert found.is_right and found.noted == 20
