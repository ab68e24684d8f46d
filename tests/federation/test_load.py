"""Short runs of bench/load.py and bench/checks/fuzz_server.py against a live server."""

import asyncio
import importlib.util
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench"


def load_bench_module(name):
    """Import a file of bench/ as a module."""
    spec = importlib.util.spec_from_file_location(Path(name).name, BENCH / f"{name}.py")
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


load, fuzz_server = load_bench_module("load"), load_bench_module("checks/fuzz_server")


# --- load -----------------------------------------------------------------------------------------


def test_uploads_of_twenty_clients_at_full_speed_are_merged_once_in_shared_commits():
    wrong = []

    async def play():
        async with load.loaded(wrong, n_clients=20, dim=5, pin=False) as (served, sessions):
            await load.at_full_speed(sessions, 600)
            return sum(sum(session.merged) for session in sessions), served.metrics()

    n_merged, metrics = asyncio.run(play())
    assert wrong == [] and n_merged == metrics["fedsuplin_syncs_total"] == 600
    assert metrics["fedsuplin_commits_total"] < 600 and metrics["fedsuplin_duplicates_total"] == 0


def test_syncs_at_a_fixed_rate_are_merged_once_each():
    wrong = []

    async def play():
        async with load.loaded(wrong, tls=True, n_clients=20, dim=5, pin=False) as (
            served,
            sessions,
        ):
            return await load.paced(served, sessions, rate=60, seconds=2)

    measured = asyncio.run(play())
    assert wrong == [] and len(measured.took) == len(measured.late) > 60
    assert max(measured.took) > max(measured.late) and measured.per_commit >= 1


def test_the_check_of_the_store_detects_a_missing_upload():
    wrong = []

    async def play():
        async with load.loaded(wrong, n_clients=2, dim=3, pin=False) as (_, sessions):
            await load.at_full_speed(sessions, 4)
            sessions[0].merged[0] += 1

    asyncio.run(play())
    assert wrong == ["syncs: 4, not 5"]


# --- malformed requests ---------------------------------------------------------------------------


def test_1500_malformed_requests_are_refused_and_change_nothing(capsys):
    """`python bench/checks/fuzz_server.py` sends 100,000 of them."""
    assert fuzz_server.main(requests=1500, seed=0) == 0
    printed = capsys.readouterr().out
    assert "1500 requests" in printed and all(
        code in printed for code in ("INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED")
    )


@pytest.fixture
def expected():
    made = fuzz_server.Expected(bytes(range(32)), n_layers=2, together=False)
    made.sessions, made.sequences = {0: bytes(16)}, {0: 0}
    return made


@pytest.fixture
def genuine(expected):
    made = fuzz_server.Genuine(expected, seed=0)
    made.sessions[0] = bytes(16)
    return made


def test_the_fuzzer_predicts_the_status_code_of_every_request(expected, genuine):
    upload = genuine.sync(0)
    assert expected.codes(0, "Sync", upload) is None and expected.codes(
        0, "Join", genuine.join(0)
    ) == {"OK"}
    assert expected.codes(1, "Sync", upload) == {"PERMISSION_DENIED"} and expected.codes(
        None, "Sync", upload
    ) == {"UNAUTHENTICATED"}
    assert (
        expected.codes(0, "Sync", upload[:-1])
        == expected.codes(0, "Round", upload)
        == {"INVALID_ARGUMENT"}
    )
    genuine.was_merged(0, [0, 1])
    assert expected.codes(0, "Sync", upload) == {"OK"}  # sent again
    assert expected.codes(0, "Sync", upload[:-1] + b"\0") == {
        "FAILED_PRECONDITION"
    }  # the same number, another upload


def test_the_fuzzer_reads_requests_as_the_library_does(expected, genuine):
    from fedsuplin.federation.wire import JoinRequest, RoundRequest, SyncRequest

    upload, fields = (
        SyncRequest.from_bytes(genuine.sync(0)),
        fuzz_server.read("Sync", genuine.sync(0)),
    )
    assert (
        (upload.sequence, upload.upload.client_id)
        == (fields["sequence"], fields["client_id"])
        == (1, 0)
    )
    assert (
        np.array_equal(upload.upload.grams.ravel(), fields["grams"])
        and upload.upload.pulls.tolist() == fields["pulls"].tolist()
    )
    assert (
        JoinRequest.from_bytes(genuine.join(0)).session
        == fuzz_server.read("Join", genuine.join(0))["session"]
    )
    assert RoundRequest.from_bytes(genuine.round(0, (1,))).asking == tuple(
        fuzz_server.read("Round", genuine.round(0, (1,)))["asking"]
    )


def test_a_server_that_accepts_a_malformed_request_is_detected(tmp_path):
    """The fuzzer detects a merged upload it did not expect, live and in the store."""
    fuzz = fuzz_server.Fuzz("async", 0, tmp_path)

    async def play():
        async with fuzz.served.channel() as fuzz.channel:
            await fuzz.begin()
            fuzz.before = await fuzz.state()
            await fuzz.check(0)
            assert fuzz.findings == []
            await fuzz.call(1, "Sync", fuzz.genuine.sync(1))
            await fuzz.check(0)

    try:
        asyncio.run(play())
    finally:
        assert fuzz.served.stop() == 0
    found = Counter(line.partition(" has CHANGED")[0] for line in fuzz.findings)
    assert {"facts", "layers", "clients", "join of client 0", "join of client 1"} <= set(found)
