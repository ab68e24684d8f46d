"""Arrays, files and messages from outside are read correctly or refused; no memory is damaged.

bench/checks/fuzz.py gives random ones to all entry points. Here are a few thousand of its cases,
and a test for each fault that it has found.
"""

import ctypes
import dataclasses
import faulthandler
import importlib.util
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin._shared.archives import read_archive, write_archive
from fedsuplin.errors import InvalidInput, NumericalError
from fedsuplin.live.messages import Upload
from fedsuplin.plugin import Chunk
from fedsuplin_ext import norms
from fedsuplin_ext.draws import STATE_WORDS, ContextSource
from fedsuplin_ext.live import Live
from fedsuplin_ext.loop import Engine
from fedsuplin_ext.state import restore, state_of

FILE = Path(__file__).parents[2] / "bench/checks/fuzz.py"
fuzz = importlib.util.module_from_spec(importlib.util.spec_from_file_location("fuzz", FILE))
fuzz.__spec__.loader.exec_module(fuzz)

SIZES = {"dim": 3, "n_arms": 5, "n_clients": 2}


def make(variant="async", **parameters):
    return fsl.make(variant, **SIZES, horizon=1000, **parameters)


def contexts(n=12):
    return np.random.default_rng(0).uniform(-0.5, 0.5, (n, 5, 3))


def chunk(n=12, **changes):
    made = Chunk.of(contexts(n), np.arange(n) % 2, theta=[0.1, 0.2, 0.3])
    return dataclasses.replace(made, **changes)


def misaligned(array):
    return fuzz.misalign(np.asarray(array))


# --- random ---


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_random_arguments_are_read_correctly_or_refused(target):
    """They run in a process of their own, so that a crash fails only this test."""
    cases = (
        40
        if target in ("checkpoint_forged", "client_file", "own_stream", "server", "client")
        else 200
    )
    assert fuzz.main(cases, seed=7, only=target) == 0


def test_the_fuzzer_reports_crashes_hangs_and_findings(monkeypatch, capsys):
    def badly(r):
        kind = r.randrange(4)
        if kind == 0:
            faulthandler.disable()  # pytest's, which would tell of it on many lines
            ctypes.string_at(0)
        elif kind == 1:
            raise SystemError("worse than refused")
        elif kind == 2:
            time.sleep(60)
        fuzz.require_finite("an answer", np.array([np.nan]))

    fuzz.mark_public(badly)
    monkeypatch.setitem(fuzz.TARGETS, "badly", badly)
    monkeypatch.setattr(fuzz, "HANG", 0.5)
    assert fuzz.main(8, seed=0, only="badly") == 8
    printed = capsys.readouterr().out
    assert (
        "SystemError: worse than refused" in printed
        and "not finite" in printed
        and "CRASHED or hung" in printed
    )


# --- compiled functions, which plugins may call with unchecked arguments ---


@pytest.mark.parametrize(
    ("given", "mask", "out"),
    [
        ((4, 5, 3), None, (3, 3, 8)),
        ((4, 5, 3), None, (4, 2, 8)),
        ((4, 5, 3), None, (4, 3, 4)),
        ((4, 5, 3), (3, 5), (4, 3, 8)),
        ((4, 5, 3), (4, 4), (4, 3, 8)),
    ],
)
def test_packing_into_too_little_room_is_refused(given, mask, out):
    with pytest.raises(ValueError, match="need a mask of"):
        norms.pack(
            np.ones(given), None if mask is None else np.ones(mask, np.uint8), 1.0, np.zeros(out)
        )


def test_empty_arrays_are_aligned_too():
    with pytest.raises(ValueError, match="out must begin at a multiple"):
        norms.pack(np.ones((4, 0, 3)), None, 1.0, misaligned(np.zeros((4, 3, 4))))


def test_mean_rewards_need_as_long_a_theta_and_arms():
    with pytest.raises(ValueError, match="a theta of at least 3 numbers"):
        norms.mean_rewards(np.zeros((4, 3, 8)), np.zeros(2))
    with pytest.raises(ValueError, match="neither may be 0"):
        norms.mean_rewards(np.zeros((4, 3, 0)), np.zeros(3))


def test_misaligned_arrays_are_refused_by_compiled_code_and_copied_by_python():
    with pytest.raises(ValueError, match="must begin at a multiple"):
        norms.mean_rewards(misaligned(np.zeros((4, 3, 8))), np.zeros(3))
    with pytest.raises(ValueError, match="must begin at a multiple"):
        norms.pack(misaligned(contexts()), None, 1.0, np.zeros((12, 3, 8)))
    odd = np.zeros((12, 5, 3), [("odd", "u1"), ("value", "f8")])[
        "value"
    ]  # the addresses between are wrong, too
    with pytest.raises(ValueError, match="multiple"):
        norms.pack(odd, None, 1.0, np.zeros((12, 3, 8)))
    with pytest.raises(ValueError, match="sigma must begin at a multiple"):
        Engine(make()).play(chunk(sigma=misaligned(np.ones(12))))
    with pytest.raises(ValueError, match="must begin at a multiple"):
        Live(make()).select(misaligned(np.zeros((5, 3))))
    with pytest.raises(ValueError, match="ΔA must begin at a multiple"):
        Live(make()).add([(np.zeros(1, np.int64), misaligned(np.zeros((1, 6))), np.zeros((1, 3)))])
    expected = fsl.run(
        "async",
        fsl.ArrayProblem(contexts(), np.arange(12) % 2, theta=[0.1, 0.2, 0.3]),
        record="all",
    )
    given = misaligned(contexts()), misaligned(np.arange(12) % 2)
    found = fsl.run(
        "async", fsl.ArrayProblem(*given, theta=misaligned([0.1, 0.2, 0.3])), record="all"
    )
    np.testing.assert_array_equal(found.regret, expected.regret)


@pytest.mark.parametrize(
    ("layers", "grams", "moments", "why"),
    [
        ([0], (2, 6), (1, 3), "1 layers need as many rows of 6 numbers of ΔA"),
        ([0], (1, 9), (1, 3), "1 layers need as many rows of 6 numbers of ΔA"),
        ([0, 1], (2, 6), (1, 3), "2 layers need as many rows"),
        ([0], (1, 6), (1, 4), "and of 3 numbers of Δb"),
        ([0, 99], (2, 6), (2, 3), "layer 99 of"),
        ([-1], (1, 6), (1, 3), "layer -1 of"),
    ],
)
def test_uploads_that_do_not_fit_leave_the_server_unchanged(layers, grams, moments, why):
    engine = Live(make())
    good = np.zeros(1, np.int64), np.ones((1, 6)) * [1, 0, 0, 1, 0, 1], np.ones((1, 3))
    before = engine.sums()
    with pytest.raises(ValueError, match=why):
        engine.add([good, (np.array(layers), np.zeros(grams), np.zeros(moments))])
    np.testing.assert_array_equal(engine.sums()[0], before[0])
    assert engine.add([good, good]) == -1
    np.testing.assert_array_equal(engine.sums()[0][0], before[0][0] + 2 * good[1][0])
    np.testing.assert_array_equal(engine.sums()[1][0], [2, 2, 2])


def test_an_upload_with_one_impossible_layer_is_refused_completely_every_time():
    engine, before = Live(make()), Live(make()).sums()
    not_definite = np.array([1, 0, 0, 1, 0, 1.0]), np.array([-1e3, 0, 0, 1, 0, 1.0])
    used = set()
    for _ in range(1000):
        assert engine.add([(np.array([0, 2]), np.array(not_definite), np.ones((2, 3)))]) == 2
        used.add(engine.memory_used)
    assert len(used) == 1  # what is taken from the pool is given back
    for known, first in zip(engine.sums(), before, strict=True):
        np.testing.assert_array_equal(known, first)


@pytest.mark.parametrize("name", ["clients", "noise", "sigma"])
def test_an_incomplete_chunk_is_refused(name):
    with pytest.raises(ValueError, match=f"the chunk's {name} do not fit"):
        Engine(make()).play(chunk(**{name: None}))


def test_a_chunk_cannot_be_played_from_a_negative_start():
    with pytest.raises(ValueError, match="from round 0 on or later, not from -3"):
        Engine(make()).play(chunk(), -3)


def test_recording_takes_all_arrays_or_none():
    """Otherwise rows would be written past the end of the earlier arrays."""
    engine = Engine(make())
    sums, counts = np.zeros((2, 3)), np.zeros((2, 5), np.int64)
    engine.record_into(np.arange(1, 3), sums, counts)
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        engine.record_into(np.arange(1, 13), np.zeros((12, 3)), np.zeros((12, 5), np.float32))
    assert engine.play(chunk())[0] == "done" and engine.recorded == 2 and sums[1, 2] != 0


def test_a_source_of_contexts_has_arms_and_a_dimension():
    for sizes in ((0, 3), (3, 0), (-1, 3), (2**20, 2**20)):
        with pytest.raises(ValueError, match="both must be at least 1"):
            ContextSource(np.random.SeedSequence(0), *sizes)
    with pytest.raises(ValueError, match="n must be at least 1"):
        ContextSource(np.random.SeedSequence(0), 3, 3).normals(0)


def test_contexts_are_finite_wherever_their_source_is():
    """Numbers near the generators' zero give a normal of exactly 0, and an arm of length 0."""
    source, out = ContextSource(np.random.SeedSequence(0), 1, 2), np.zeros((3, 1, 2))
    source.position = np.ones(STATE_WORDS, np.uint64)
    source.fill(out)
    assert np.isfinite(out).all()
    words = np.ones(STATE_WORDS, np.uint64)
    words[3::8] = 0  # one of the eight generators would give zeros for ever
    with pytest.raises(ValueError, match="not all 0 for any of its generators"):
        source.position = words


# --- a state from a file ---


def played(variant="async", **parameters):
    algorithm = make(variant, **parameters)
    engine = Engine(algorithm)
    assert engine.play(fsl.SyntheticProblem(**SIZES, seed=2).stream(40, None).take(40))[0] == "done"
    return algorithm, state_of(engine)


@pytest.mark.parametrize(
    ("name", "at", "value", "words"),
    [
        (
            "pending_marks",
            (0, 0),
            3,
            "its n must be from 0 to 1",
        ),  # the next vector would go past the client's memory
        ("pending_marks", (0, 1), 1, "dense only where"),
        (
            "totals",
            0,
            -5,
            "its totals must be from 0",
        ),  # the row of the next pull would be before the first
        ("totals", 0, 41, "must add up to its pulls, 41"),
        ("since", 0, 2**63 - 1, "its since must be from 0"),
        ("snapshot_numbers", (0, 0), np.nan, "its snapshot_numbers must be finite"),
        ("pending_gain", 0, np.inf, "its pending_gain must be finite"),
        ("sums", 3, np.nan, "its budget must be a number"),
    ],
)
def test_values_that_no_engine_can_have_are_refused(name, at, value, words):
    algorithm, state = played(trigger="never")
    if words.startswith("dense"):
        state["pending_marks"][0, 0] = 0
    state[name][at] = value
    with pytest.raises(ValueError, match=words):
        restore(Engine(algorithm), state)


def test_an_eager_clients_state_has_its_own_inverse():
    algorithm, state = played(trigger="never", lazy=False)
    state["pending_marks"][0, 2] = 0
    with pytest.raises(ValueError, match="inverses of their own"):
        restore(Engine(algorithm), state)


def test_arrays_of_another_layout_are_refused_before_they_are_read():
    algorithm, state = played()
    for spoil in (misaligned, lambda array: np.repeat(array, 2, axis=0)[::2]):
        with pytest.raises(ValueError, match="contiguous and aligned"):
            restore(Engine(algorithm), state | {"held": spoil(state["held"])})


# --- numbers that NumPy would turn into others ---


@pytest.mark.parametrize(
    "wrong",
    [
        contexts() + 1j,
        contexts().astype("U"),
        np.zeros((12, 5, 3), "M8[s]"),
        np.zeros((12, 5, 3), "m8[s]"),
        [[[10**400]]],
    ],
    ids=["complex", "words", "dates", "durations", "too large"],
)
def test_values_that_are_not_real_numbers_are_refused(wrong):
    for call in (fsl.ArrayProblem, Chunk.of):
        with pytest.raises(InvalidInput, match="contexts can't be read as an array of numbers"):
            call(wrong, np.zeros(12, int), theta=[0.1, 0.2, 0.3])


def test_masked_arrays_are_refused():
    hidden = np.ma.masked_array(contexts(), np.zeros((12, 5, 3), bool))
    assert fsl.ArrayProblem(hidden, np.zeros(12, int), theta=[0.1, 0.2, 0.3]).horizon == 12
    hidden.mask[3, 2, 1] = True
    with pytest.raises(InvalidInput, match="contexts has entries that are masked out: pass mask="):
        fsl.ArrayProblem(hidden, np.zeros(12, int), theta=[0.1, 0.2, 0.3])


@pytest.mark.parametrize("value", [0.5, np.nan, 2.0**40, -(2.0**31)])
def test_the_clients_of_a_chunk_are_whole_numbers(value):
    clients = np.zeros(12)
    clients[7] = value
    with pytest.raises(InvalidInput, match=r"clients\[7\] is .*: it must be a whole number"):
        Chunk.of(contexts(), clients, theta=[0.1, 0.2, 0.3])


def test_the_mask_of_a_chunk_is_zero_or_one():
    with pytest.raises(InvalidInput, match=r"mask\[0, 0\] is 0.5"):
        Chunk.of(contexts(), np.zeros(12), theta=[0.1, 0.2, 0.3], mask=np.full((12, 5), 0.5))


@pytest.mark.parametrize("name", ["noise", "sigma"])
def test_the_noise_of_a_chunk_is_one_number_or_one_for_each_pull(name):
    for right in (0.5, [0.5], [0.5] * 12):
        made = Chunk.of(contexts(), np.zeros(12), theta=[0.1, 0.2, 0.3], **{name: right})
        assert getattr(made, name).tolist() == [0.5] * 12
    for wrong in ([0.5] * 11, [[0.5] * 12], []):
        shape = np.shape(wrong)
        with pytest.raises(
            InvalidInput,
            match=re.escape(f"{name} must be one number or 12, not of shape {shape}"),
        ):
            Chunk.of(contexts(), np.zeros(12), theta=[0.1, 0.2, 0.3], **{name: wrong})


def test_a_client_too_large_for_an_int_is_refused():
    with pytest.raises(InvalidInput, match=r"clients\[0\] is 1099511627776, out of range"):
        fsl.ArrayProblem(contexts(), np.full(12, 2**40), theta=[0.1, 0.2, 0.3])


@pytest.mark.parametrize("name", ["dim", "n_arms", "n_clients"])
def test_sizes_too_large_for_an_int_are_refused(name):
    for call in (fsl.SyntheticProblem, lambda **sizes: fsl.make("async", **sizes, horizon=10)):
        with pytest.raises(InvalidInput, match=f"{name} must be at most 2147483647"):
            call(**(SIZES | {name: 2**31}))
    with pytest.raises(InvalidInput, match="ridge must be a finite number"):
        fsl.make("async", **SIZES, horizon=10, ridge=10**400)


def test_an_array_that_is_large_by_its_strides_alone_is_refused_at_once():
    large = np.broadcast_to(0.1, (2**40, 5, 3))
    with pytest.raises(InvalidInput, match="there is no memory for that"):
        fsl.ArrayProblem(large, np.broadcast_to(0, (2**40,)), theta=[0.1, 0.2, 0.3])
    with pytest.raises(
        InvalidInput, match="clients of 1099511627776 pulls of 5 arms must have the shape"
    ):
        Chunk.of(large, np.zeros(12), theta=[0.1, 0.2, 0.3])
    with pytest.raises(
        InvalidInput, match="can't be read as an array of numbers: Unable to allocate"
    ):
        fsl.ArrayProblem(np.broadcast_to(np.float32(0.1), large.shape), np.zeros(12, int))


def test_tables_of_a_chunk_may_lie_column_by_column():
    """NumPy kept that order when it added padding, and the engine refused it."""
    rewards = np.asfortranarray(np.random.default_rng(1).random((12, 5)))
    made = Chunk.of(contexts(), np.zeros(12), rewards=rewards, corruption=rewards)
    assert made.rewards.flags.c_contiguous and made.corruption.flags.c_contiguous
    np.testing.assert_array_equal(made.rewards[:, :5], rewards)


def test_rewards_whose_sum_is_not_finite_end_the_run_with_an_error():
    rewards = np.zeros((12, 5))
    rewards[:, 0], rewards[:, 1] = 1e308, -1e308
    with pytest.raises(NumericalError, match="no longer finite"):
        fsl.run("uniform", fsl.ArrayProblem(contexts(), np.arange(12) % 2, rewards=rewards))


# --- messages and files ---


def test_a_refused_download_loses_nothing():
    """What was observed since the upload is still added to the right download."""
    algorithm, rng = make(), np.random.default_rng(0)

    def lived(*refused):
        client, server = fsl.Client(algorithm), fsl.Server(algorithm)
        for round_ in range(2):
            for x in contexts(3):
                client.observe(client.select(x), 0.2)
            if round_ == 0:
                download = server.merge(client.upload())
        for bad in refused:
            with pytest.raises(fsl.FedsuplinError):
                client.apply(bad(download))
        client.apply(download)
        return [client.layer(s) for s in range(algorithm.n_layers)]

    half = dataclasses.replace
    expected = lived()
    found = lived(
        lambda _: "no download",
        lambda good: half(good, moments=good.moments * np.nan),
        lambda good: half(
            good, grams=np.vstack([good.grams[:-1], -good.grams[-1:]])
        ),  # the last layer only: all or nothing
        lambda good: half(good, layers=good.layers + rng.integers(1, 9)),
    )
    for one, other in zip(found, expected, strict=True):
        for name in ("gram", "moment", "delta_gram", "delta_moment", "gain"):
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": np.array([0.5])},
        {"grams": np.eye(3)[np.triu_indices(3)][None].astype(complex)},
        {"asking": (99,)},
        {"asking": (-1,)},
        {"asking": 3},
        {"client_id": "0"},
        {"client_id": 2},
    ],
    ids=repr,
)
def test_an_upload_of_something_else_is_refused(changes):
    good = Upload(
        0, np.array([0]), np.eye(3)[np.triu_indices(3)][None], np.zeros((1, 3)), np.array([5]), (0,)
    )
    other = dataclasses.replace(good, client_id=1)
    with pytest.raises(InvalidInput, match="the upload's"):
        fsl.Server(make()).merge(dataclasses.replace(good, **changes))
    with pytest.raises(InvalidInput, match="the upload's"):
        fsl.Server(make("sync")).barrier([dataclasses.replace(good, **changes), other])


def test_a_message_of_more_layers_than_there_are_is_refused_before_they_are_read():
    large = np.broadcast_to(np.int64(0), (2**40,))
    with pytest.raises(InvalidInput, match="has 1099511627776 layers"):
        fsl.Server(make()).merge(
            Upload(0, large, np.zeros((1, 6)), np.zeros((1, 3)), np.array([1]))
        )


def test_objects_that_are_no_messages_are_refused():
    for call in (
        fsl.Server(make()).merge,
        fsl.Server(make("sync")).barrier,
        fsl.Client(make()).apply,
    ):
        for message in (7, object(), np.array(3), [None]):
            with pytest.raises(InvalidInput):
                call(message)


@pytest.mark.parametrize("decision", [[], {}, np.zeros(2), "0", 1.5, None])
def test_an_object_that_is_no_decision_is_refused(decision):
    client = fsl.Client(make())
    client.drop(decision)
    with pytest.raises(InvalidInput, match="is not open"):
        client.observe(decision, 0.5)


def test_open_decisions_in_a_clients_file_are_checked(tmp_path):
    client = fsl.Client(make())
    client.select(contexts()[0])
    arrays, rest = read_archive(client.save(tmp_path / "client"))
    for wrong in (
        {"layer": 99},
        {"layer": 0.5},
        {"x": np.zeros(2)},
        {"x": np.full(3, np.nan)},
        {"x": np.full(3, 9.0)},
    ):
        rest["open"][0] |= wrong
        write_archive(tmp_path / "forged", arrays, rest)
        with pytest.raises(InvalidInput, match="does not hold a client"):
            fsl.Client.load(tmp_path / "forged", make())


@pytest.mark.parametrize("wrong", [-1, 0.5, True, "3", None])
def test_the_pulls_in_a_clients_file_are_whole_numbers(tmp_path, wrong):
    client = fsl.Client(make())
    client.observe(client.select(contexts()[0]), 0.5)
    arrays, rest = read_archive(client.save(tmp_path / "client"))
    assert sum(rest["pulls"]) == 1
    rest["pulls"][-1] = wrong
    write_archive(tmp_path / "forged", arrays, rest)
    with pytest.raises(
        InvalidInput, match=rf"forged does not hold a client: ValueError\(.pulls of \[.*{wrong}"
    ):
        fsl.Client.load(tmp_path / "forged", make())


def test_a_result_whose_arrays_do_not_fit_together_is_refused(tmp_path):
    result = fsl.run("async", fsl.SyntheticProblem(**SIZES), horizon=50, record="all")
    for wrong in (
        {"regret": result.regret[1:]},
        {"arms": result.arms[1:]},
        {"pulls": np.array(3)},
        {"reward": np.array(["a"] * 50)},
    ):
        dataclasses.replace(result, **wrong).save(tmp_path / "forged.npz")
        with pytest.raises(InvalidInput, match="is not a complete fedsuplin result"):
            fsl.RunResult.load(tmp_path / "forged.npz")


def test_damaged_zip_files_are_refused(tmp_path):
    """For example an unknown compression method or version: zipfile raises different errors."""
    content = (
        fsl.run("async", fsl.SyntheticProblem(**SIZES), horizon=50)
        .save(tmp_path / "r.npz")
        .read_bytes()
    )
    r = random.Random(0)
    for _ in range(150):
        (tmp_path / "r.npz").write_bytes(fuzz.damage(r, content))
        try:
            fsl.RunResult.load(tmp_path / "r.npz")
        except InvalidInput:
            continue


def test_a_message_with_masked_arrays_is_refused():
    """Found by case 1074 of seed 0: NumPy raised TypeError."""
    algorithm = fsl.make("async", dim=2, n_arms=2, n_clients=2, horizon=100)
    client, server = fsl.Client(algorithm), fsl.Server(algorithm)
    client.observe(client.select([[1, 0], [0, 1]]), reward=0.5)
    upload = client.upload()
    for name in ("grams", "moments", "layers", "pulls"):
        masked = dataclasses.replace(upload, **{name: np.ma.array(getattr(upload, name))})
        with pytest.raises(InvalidInput, match=f"the upload's {name} .* not MaskedArray"):
            server.merge(masked)
