"""The keys that --json prints, as docs/commands.md lists them."""

import json
import re
import signal
import subprocess
import sys
import types
from pathlib import Path

from fedsuplin.cli import bench, reproduce
from fedsuplin.federation.credentials import Tokens

START = "from fedsuplin.__main__ import main; main()"
SMALL = ("--dim", "4", "--arms", "5", "--clients", "2", "--horizon", "400")
RUN_KEYS = {
    "variant", "preset", "complete", "played", "horizon", "pulls", "regret", "uniform_regret",
    "reward", "communication", "messages_up", "messages_down", "bytes_up", "bytes_down",
    "percent_of_uniform", "layer_pulls", "microseconds", "loop_time", "wall_time", "cpu_time",
    "guarantee", "theorem", "departures", "too_short", "seed", "spec", "versions", "notices",
    "files",
}  # fmt: skip
POLICY_KEYS = {
    "policy", "preset", "seeds", "regret", "regret_error", "communication", "communication_error",
    "bytes_up", "bytes_up_error", "bytes_down", "bytes_down_error", "percent_of_uniform",
    "microseconds", "system", "actions", "regret_bound", "communication_bound",
}  # fmt: skip


def documented(command):
    """Return the keys that docs/commands.md lists for a command."""
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text(encoding="utf-8")
    section = page.partition("## JSON")[2]
    row = re.search(rf"^\| `{command}` \| (.*) \|$", section, re.MULTILINE)
    assert row, command
    return set(re.findall(r"`(\w+)`", row[1]))


def test_run_prints_the_documented_keys(numbers, tmp_path):
    printed = numbers("run", *SMALL, "--out", tmp_path)
    assert set(printed) == RUN_KEYS == documented("run")
    assert all(Path(file).exists() for file in printed["files"])


def test_compare_prints_the_documented_keys_and_null_for_the_error_of_one_seed(numbers):
    printed = numbers("compare", "async", "uniform", *SMALL, "--seeds", "1")
    assert set(printed) == {"policies", "seeds", "complete", "notices", "files"}
    assert printed["policies"][0]["regret_error"] is None
    assert all(
        set(row) - {"regret_bound_value", "communication_bound_value"} == POLICY_KEYS
        for row in printed["policies"]
    )
    assert set(printed) | set(printed["policies"][0]) <= documented("compare")


def test_sweep_prints_the_documented_keys(call, numbers, folder):
    printed = numbers("sweep", "grid.toml")
    assert set(printed) == {"complete", "summary", "failed", "files", "notices"}
    known = documented("sweep") | set(printed["summary"][0])
    assert set(printed) | {"policy", "regret", "regret_error", "seeds"} <= known
    assert "the example is TOML" in call("sweep", "--example", "--json", code=2).stderr


def test_reproduce_prints_the_documented_keys(numbers, tmp_path, monkeypatch):
    experiment = types.SimpleNamespace(name="arrivals")
    verdict = types.SimpleNamespace(to_row=lambda: {"claim": "…", "outcome": "holds"})
    sweep = types.SimpleNamespace(complete=True, failed=[])
    outcome = types.SimpleNamespace(
        experiment=experiment,
        measured={},
        verdicts=[verdict],
        files=[tmp_path / "a.csv"],
        seconds=1.5,
        sweep=sweep,
    )
    monkeypatch.setattr(reproduce, "reproduce", lambda *_, **__: [outcome])
    printed = numbers("reproduce", "arrivals", "--out", tmp_path)
    assert set(printed) | set(printed["experiments"]["arrivals"]) == documented("reproduce")
    assert printed["experiments"]["arrivals"]["files"] == [str(tmp_path / "a.csv")]


def test_bench_prints_null_for_infinity(numbers, monkeypatch):
    """tests/microbench/test_measurements.py compares its keys with the page."""
    monkeypatch.setattr(
        bench, "measure_all", lambda *_: {"kernels": "avx2", "fma_gigaflops": float("inf")}
    )
    assert numbers("bench") == {"kernels": "avx2", "fma_gigaflops": None}


def test_variants_and_plugins_print_the_documented_keys(numbers, tmp_path):
    rows = numbers("variants")
    assert set(rows[0]) == documented("variants") - {"error"}
    assert set(numbers("variants", "async", *SMALL)) == {"practical", "theory"}
    printed = numbers("plugins")
    keys = set(printed) | set(printed["plugins"][0]) | set(printed["sources"][0])
    assert keys == documented("plugins")
    printed = numbers("plugins", "new", "my-gossip", "--folder", tmp_path)
    assert set(printed) == documented("plugins new")
    assert printed["folder"] == str(tmp_path / "my-gossip")
    assert all((tmp_path / "my-gossip" / file).exists() for file in printed["files"])


def test_tokens_prints_the_documented_keys(numbers, tmp_path):
    printed = numbers("tokens", tmp_path / "t.json", "--clients", "2")
    assert set(printed) == documented("tokens") == {"file", "tokens", "files"}
    known = Tokens.read(tmp_path / "t.json")
    assert [known.find_client(printed["tokens"][name]) for name in ("0", "1")] == [0, 1]
    assert printed["files"] == {}
    printed = numbers(
        "tokens", tmp_path / "t.json", "--clients", "2", "--out", tmp_path / "secrets", "--replace"
    )
    assert printed["tokens"] is None and all(
        Path(file).exists() for file in printed["files"].values()
    )


def test_demo_and_serve_print_the_documented_keys(call, started, tmp_path):
    """The events of the demo go to standard error; serve prints where it listens."""
    short = ("--clients", "1", "--pulls", "20", "--seconds", "1", "--kill-every", "0")
    done = started(START, "demo", "federation", *short, "--json")
    printed = json.loads(done.stdout)
    assert done.returncode == 0 and set(printed) == documented("demo federation"), done.stderr
    assert (
        printed["right"]
        and printed["noted"] == printed["merged"] == printed["pulls"] == 20
        and "server is at" in done.stderr
    )
    call("tokens", tmp_path / "t.json", "--clients", "1", "--out", tmp_path / "secrets")
    options = (
        f"--dim 2 --arms 2 --clients 1 --store {tmp_path}/s.db --tokens {tmp_path}/t.json "
        "--address 127.0.0.1:0 --json"
    )
    command = [sys.executable, "-c", START, "serve", "async", *options.split()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        shown = "".join(iter(server.stdout.readline, "}\n")) + "}"
        server.send_signal(signal.SIGTERM)
        rest, _ = server.communicate(timeout=60)
    assert (server.returncode, rest) == (0, "") and set(json.loads(shown)) == documented("serve")


def test_an_error_leaves_standard_output_empty(call):
    result = call("run", "asinc", "--json", code=2)
    assert result.stdout == "" and result.stderr.startswith("Error: ")
