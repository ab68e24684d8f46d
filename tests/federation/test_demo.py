"""`fedsuplin demo federation`: processes are killed and restarted, and the sums are right."""

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


def started_by(pid):
    """The processes that a demo has started, of whatever state but gone."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"FEDSUPLIN_DEMO={pid}\0".encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:  # ended in the meantime, or not ours
            continue
    return found


def wait_until(true, seconds=30.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


# --- the whole ------------------------------------------------------------------------------------


@pytest.mark.linux
def test_clients_that_are_killed_come_back_and_nothing_is_lost():
    given = ["--clients", "3", "--pulls", "150", "--seconds", "4", "--kill-every", "0.7"]
    with subprocess.Popen(
        COMMAND + given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "450 rewards were observed, 450 are in the server's sums" in out
    assert "nothing was lost, nothing counted twice" in out
    assert " killed\n" in out and "nothing lost\n" in out
    assert started_by(process.pid) == []


@pytest.mark.linux
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_whoever_stops_it_leaves_no_process_behind(how):
    with subprocess.Popen(
        [*COMMAND, "--clients", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert "server is at grpc://127.0.0.1:" in process.stdout.readline()
        assert started_by(process.pid)
        process.send_signal(how)
        out, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED and err == "stopped\n", out + err
    assert started_by(process.pid) == []


@pytest.mark.linux
def test_processes_end_when_the_demo_itself_is_killed():
    with subprocess.Popen(
        [*COMMAND, "--clients", "1"], stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        process.kill()
        process.wait()
    wait_until(lambda: not started_by(process.pid))


def test_somebody_who_watches_sees_who_is_killed_and_who_comes_back():
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


# --- what can go wrong ----------------------------------------------------------------------------


def test_sums_that_are_wrong_are_told_and_fail_the_command(monkeypatch):
    monkeypatch.setattr(
        Demo, "play", lambda self: Reconciliation(noted=5, merged=4, worst=0.0, communication=1)
    )
    called = CliRunner().invoke(root_command, ["demo", "federation"])
    assert called.exit_code == 1
    assert (
        "5 rewards were observed, 4 are in the server's sums" in called.output
        and "THIS IS WRONG" in called.output
    )


def test_a_note_too_many_or_another_reward_would_be_noticed(tmp_path):
    world = World("async", n_clients=1, n_pulls=30, seed=3)
    with a_server(world, tmp_path) as options:
        Player(options).play()
    assert reconcile(world, tmp_path).is_right
    notes = options.path("notes")
    text = notes.read_text()
    lines = text.splitlines()
    notes.write_text("\n".join([*lines, lines[-1], ""]))
    assert reconcile(world, tmp_path).noted == 31 and not reconcile(world, tmp_path).is_right
    notes.write_text(text.replace('"reward": ', '"reward": 1', 1))
    assert reconcile(world, tmp_path).worst > 1e-3 and not reconcile(world, tmp_path).is_right


def test_a_client_or_a_server_that_fails_by_itself_ends_the_demo(monkeypatch):
    with pytest.raises(
        FederationError, match="client . has ended with exit code 1: .*JSONDecodeError"
    ):
        monkeypatch.setattr(Demo, "_make_player_options", lambda self, number: Broken())
        quietly()
    monkeypatch.setattr(Demo, "_server_arguments", lambda self: ["serve", "async"])
    with pytest.raises(
        FederationError, match="the server has ended by itself, with exit code 2: .*--store"
    ):
        quietly()


class Broken:
    def to_json(self):
        return "no JSON"


def quietly(variant="async", **given):
    return run_demo(variant, **SHORT | given, console=Console(file=io.StringIO()))


@pytest.mark.parametrize("variant", ["variance", "robust"])
def test_a_variant_that_weighs_is_refused(variant):
    with pytest.raises(InvalidInput, match="weighs observations"):
        quietly(variant)


def test_a_variant_that_cant_be_live_is_refused():
    with pytest.raises(InvalidInput, match="live"):
        quietly("async-linucb")
    with pytest.raises(UnknownName, match="asink"):
        quietly("asink")


def test_what_a_process_says_that_is_no_json_is_no_news():
    assert parse_line("not JSON") == {} == parse_line("[1]")
    assert [format_times(n) for n in range(4)] == ["never", "once", "twice", "3 times"]


# --- a client of the demo -------------------------------------------------------------------------


class a_server:  # noqa: N801 - reads as a sentence
    """A server process, and the options of its only client."""

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


def test_a_client_that_was_killed_between_its_note_and_its_observation_observes_it_first(
    tmp_path, capsys
):
    world = World("async", n_clients=1, n_pulls=20, seed=0)
    with a_server(world, tmp_path) as options:
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
            file.write(f"{note}\n".replace("'", '"') + '{"pull": 2, "id"')  # and one that was cut
        client.select(contexts)  # without a reward
        client.close(flush=False)
        Player(options).play()
    assert '{"event": "back", "pulls": 2, "known": 2}' in capsys.readouterr().out
    found = reconcile(world, tmp_path)
    assert found.is_right and found.noted == 20
