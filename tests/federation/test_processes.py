"""A federation of real processes plays as the simulation does and survives faults."""

import contextlib
import importlib.util
import multiprocessing
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.making import make_for
from fedsuplin.federation.credentials import make_tokens, write_token_hashes
from fedsuplin.federation.ledger import Ledger
from fedsuplin.simulation.preparing import choose_arrival

FILE = Path(__file__).parents[2] / "bench/checks/faults.py"
faults = importlib.util.module_from_spec(importlib.util.spec_from_file_location("faults", FILE))
faults.__spec__.loader.exec_module(faults)

SIZES = {"dim": 5, "n_arms": 6, "n_clients": 20}


@contextlib.contextmanager
def run_server(folder, *arguments):
    """Run `fedsuplin serve` as a process; yield its address and the clients' tokens."""
    tokens = make_tokens(range(SIZES["n_clients"]))
    write_token_hashes(folder / "tokens.json", tokens)
    place = [
        "--store",
        str(folder / "server.db"),
        "--address",
        "127.0.0.1:0",
        "--tokens",
        str(folder / "tokens.json"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fedsuplin", "serve", *arguments, *place],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    line = process.stdout.readline()
    assert line.startswith("listening on "), (folder / "log").read_text()
    try:
        yield line.split()[-1], tokens
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(20)
        process.stdout.close()
    assert code == 0


# --- live play equals the simulation --------------------------------------------------------------


def play_client(address, client_id, token, problem, horizon, pipe):
    """Play the pulls received through the pipe and send back the choices."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with fsl.connect(address, client_id=client_id, token=token) as connection:
        stream = problem.stream(horizon, choose_arrival(connection.algorithm, problem, horizon))
        chunk = stream.take(horizon)
        pipe.send("ready")
        while (t := pipe.recv()) is not None:
            contexts = chunk.contexts[t][:, : problem.n_arms].T
            decision = connection.select(contexts)
            reward = float(contexts[decision.arm] @ chunk.theta) + chunk.noise[t]
            connection.observe(decision, reward, sigma=chunk.sigma[t])
            if connection.algorithm.syncs == "one":
                assert connection.wait_synced(30)
            pipe.send((decision.arm, decision.layer))
        connection.close(flush=False)


@pytest.mark.posix
@pytest.mark.parametrize(("name", "horizon"), [("async", 600), ("variance", 300), ("sync", 600)])
def test_twenty_client_processes_play_exactly_what_the_simulation_plays(
    name, horizon, tmp_path, monkeypatch
):
    # The processes import this module by name; its path is last, so that fedsuplin is found first.
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    noise = {"noise": "bounded"} if name == "variance" else {}
    problem = fsl.SyntheticProblem(**SIZES, seed=5, **noise)
    algorithm = make_for(name, problem, horizon, {})
    expected = fsl.run(algorithm, problem, horizon=horizon, record="all")
    spawning = multiprocessing.get_context("forkserver")
    spawning.set_forkserver_preload(["fedsuplin.federation.connection", "grpc"])
    numbers = ["--dim", "5", "--arms", "6", "--clients", "20", "--horizon", str(horizon)]
    with (
        run_server(tmp_path, name, *numbers, *list_noise_options(algorithm)) as (address, tokens),
        contextlib.ExitStack() as stack,
    ):
        pipes = []
        for i in range(SIZES["n_clients"]):
            ours, theirs = spawning.Pipe()
            given = (address, i, tokens[i], problem, horizon, theirs)
            process = spawning.Process(target=play_client, args=given, daemon=True)
            process.start()
            stack.callback(process.join)
            stack.callback(ours.send, None)
            pipes.append(ours)
        for pipe in pipes:
            assert pipe.poll(60) and pipe.recv() == "ready"
        played = list(play_pulls(pipes, expected.clients, together=algorithm.syncs == "all"))
    assert [arm for arm, _ in played] == expected.arms.tolist()
    assert [layer for _, layer in played] == expected.layers.tolist()
    ledger = Ledger(tmp_path / "server.db")
    assert ledger.communication == expected.communication[-1] > 0
    ledger.close()


def play_pulls(pipes, clients, together):
    """Play pull by pull, or round by round if all clients sync together; yield the choices."""
    size = len(pipes) if together else 1
    for first in range(0, len(clients), size):
        pulls = range(first, min(first + size, len(clients)))
        for t in pulls:
            pipes[clients[t]].send(t)
        for t in pulls:
            assert pipes[clients[t]].poll(60)
            yield pipes[clients[t]].recv()


def list_noise_options(algorithm):
    """Return the noise parameter that `make_for` took from the problem as an option."""
    noise = algorithm.noise
    return (
        ["--sigma", str(noise.noise_scale)]
        if hasattr(noise, "noise_scale")
        else ["--R", str(noise.R)]
    )


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.posix
@pytest.mark.parametrize("number", range(5))
def test_the_servers_sums_equal_all_observations_despite_faults(number):
    """`python bench/checks/faults.py` plays a hundred longer schedules."""
    command = [sys.executable, str(FILE), "--only", str(number), "--seed", "7", "--pulls", "60"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "1 schedules, 0 wrong" in done.stdout, done.stdout + done.stderr
    for fault in ("client killed", "server killed", "network cut", "disk full"):
        assert fault in done.stdout


def test_wrong_sums_are_detected(tmp_path):
    """bench/checks/faults.py detects an extra observation and a changed reward."""
    from fedsuplin.federation.agreement import Agreement

    sizes = {"dim": faults.DIM, "n_arms": faults.ARMS, "n_clients": faults.CLIENTS}
    algorithm = fsl.make("async", **sizes, horizon=4000)
    ledger, client = Ledger(tmp_path / "server.db", Agreement.of(algorithm)), fsl.Client(algorithm)
    given = faults.contexts(np.random.default_rng(0))
    decision = client.select(given)
    client.observe(decision, 0.5)
    with ledger._open_transaction():
        upload = client.upload()
        ledger.server.add_checked([upload])
        ledger._changed = {decision.layer}
        ledger._counts["total_pulls"] = 1
    ledger.close()
    note = {"id": 0, "layer": decision.layer, "x": given[decision.arm].tolist(), "reward": 0.5}
    for notes, words in (
        ([note], ""),
        ([], "0 observations were written down, 1 are"),
        ([note | {"reward": 0.6}], "the sums differ"),
    ):
        (tmp_path / "client-0.jsonl").write_text(
            "".join(faults.json.dumps(each) + "\n" for each in notes)
        )
        assert faults.wrong_sums(tmp_path).startswith(words) and bool(
            faults.wrong_sums(tmp_path)
        ) == bool(words)
