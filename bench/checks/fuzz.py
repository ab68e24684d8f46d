"""Give random arguments, most of them wrong, to every function that takes outside data.

python bench/checks/fuzz.py                              a million cases, some minutes
python bench/checks/fuzz.py --cases 5000 --seed 3        fewer, others
python bench/checks/fuzz.py --seed 0 --case 4711         one case again, with its traceback
python bench/checks/fuzz.py --only NAME                  one target

A case may end with a right answer, or with an expected error: one of fedsuplin's own from a public
function, or one of a few built-in types from a compiled one. Anything else is a finding: another
exception, a warning of NumPy that numbers were lost, a number that is not finite, an object that a
refused call has damaged, a crash, a hang. The cases run in a process of their own, so that crashes
are reported and the others still run. Prints findings, and fails if there is one.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import io
import math
import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import fedsuplin as fsl
from fedsuplin._shared.archives import MAGIC, read_archive
from fedsuplin.live.messages import Upload
from fedsuplin.live.triangles import pack_upper
from fedsuplin.plugin import Chunk, Problem, Stream
from fedsuplin_ext import norms
from fedsuplin_ext.draws import STATE_WORDS, ContextSource, keyed_permutation
from fedsuplin_ext.live import Live
from fedsuplin_ext.loop import Engine
from fedsuplin_ext.rules import Rule, low_level
from fedsuplin_ext.state import restore, state_of

PLAIN = (
    ValueError,
    TypeError,
    BufferError,
    OverflowError,
    IndexError,
    AttributeError,
    KeyError,
    MemoryError,
)
HANG = 30.0  # seconds without a new case; the slowest take milliseconds
DIM, ARMS, CLIENTS, HORIZON = 3, 5, 2, 12
LANES = norms.pad(ARMS)
ARENA = np.random.default_rng(0).uniform(-0.5, 0.5, 4096)  # good numbers are slices of it


class Finding(Exception):
    """An answer that is wrong."""


# --- arguments ---


class Subclass(np.ndarray):
    pass


class Sized:
    """Looks like an array, and is none."""

    shape, dtype, ndim = (HORIZON, ARMS, DIM), np.dtype(float), 3

    def __len__(self):
        return HORIZON


DTYPES = ["f8"] * 12 + [
    "f4",
    "f2",
    "g",
    ">f8",
    "i4",
    "i8",
    ">i8",
    "u1",
    "u8",
    "?",
    "c16",
    "O",
    "U8",
    "S3",
    "M8[s]",
    "m8[s]",
    "V8",
]
NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    0.5,
    1e-300,
    1e300,
    -1e308,
    math.inf,
    -math.inf,
    math.nan,
    2**31,
    2**32,
    2**63,
    -(2**63),
    10**400,
]
NUMBERS += [
    True,
    False,
    None,
    "1",
    b"1",
    1j,
    2.5,
    np.float32(0.3),
    np.int8(3),
    np.float64(7.0),
    np.array(2),
    np.array([1]),
    (1,),
]
JUNK = [
    None,
    "contexts",
    b"",
    7,
    math.nan,
    [],
    {},
    [[1.0], [1.0, 2.0]],
    [[[]]],
    object(),
    Sized(),
    np.float64(1),
    range(3),
    [None, 1],
]
JUNK += [
    np.ma.masked_array([0.1, 0.2, 0.3], [0, 1, 0]),
    memoryview(bytearray(24)),
    bytearray(8),
    np.array("x"),
    np.zeros(0),
    [10**400],
]
SPECIAL = [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e-320, 3.0, -0.0]


def some_shape(r: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape, mostly the one that fits."""
    if r.random() < 0.75:
        return shape
    sizes, kind = list(shape), r.randrange(5)
    at = r.randrange(len(sizes)) if sizes else 0
    if kind == 0 and sizes:
        del sizes[at]
    elif kind == 1:
        sizes.insert(at, r.choice([0, 1, 2]))
    elif kind == 2 and sizes:
        sizes[at] = 0
    elif sizes:
        sizes[at] = max(0, sizes[at] + r.choice([-1, 1, 3, -sizes[at] + 1]))
    return tuple(sizes)


def good(r: random.Random, shape: tuple[int, ...], dtype: str = "f8") -> np.ndarray:
    """Return a contiguous, writeable array of finite numbers, small enough for contexts."""
    size = math.prod(shape)
    start = r.randrange(max(1, len(ARENA) - size))
    if size > len(ARENA):
        return np.resize(ARENA, shape).astype(dtype)
    return ARENA[start : start + size].reshape(shape).astype(dtype)


def whole(r: random.Random, shape: tuple[int, ...], dtype: str, below: int) -> np.ndarray:
    return np.array([r.randrange(below) for _ in range(math.prod(shape))], dtype).reshape(shape)


def misalign(array: np.ndarray) -> np.ndarray:
    """Return the same numbers, one byte further on in memory."""
    room = np.zeros(array.nbytes + 1, np.uint8)
    there = room[1:].view(array.dtype) if array.size else array
    if not array.size:
        return array
    there = there.reshape(array.shape)
    there[...] = array
    return there


def huge(array: np.ndarray) -> np.ndarray:
    """Return an array of one number whose shape is larger than any memory."""
    shape = (2**40, *array.shape[1:]) if array.ndim else (2**40,)
    return np.broadcast_to(
        array.reshape(-1)[:1].reshape((1,) * len(shape))
        if array.size
        else np.ones((1,) * len(shape)),
        shape,
    )


def read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def layout(r: random.Random, array: np.ndarray) -> np.ndarray:
    """Return the same numbers in another memory layout; rarely a huge array of one of them."""
    kind = r.randrange(24)
    if kind == 0:
        return np.asfortranarray(array)
    if kind == 1 and array.ndim:
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if kind == 2 and array.ndim:
        return np.ascontiguousarray(array[::-1])[::-1]
    if kind == 3 and array.ndim:
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    if kind == 4 and array.dtype != object:
        return misalign(array)
    if kind == 5:
        return read_only(array)
    if kind == 6 and array.ndim:
        return np.broadcast_to(array[:1], array.shape) if array.size else array
    if kind == 7:
        return array.view(Subclass)
    if kind == 8:
        return array.tolist()
    if kind == 9 and array.dtype != object:
        packed = np.zeros(array.shape, np.dtype([("odd", "u1"), ("value", array.dtype)]))
        packed["value"] = array
        return packed["value"]
    if kind == 10 and r.random() < 0.2:
        return huge(array)
    if kind == 11:
        return np.ma.masked_array(array, np.zeros(array.shape, bool))
    return array


def array(
    r: random.Random, shape: tuple[int, ...], dtype: str | None = None, below: int | None = None
):
    """Return an argument for an array of this shape: nearly right in two of three cases."""
    if r.random() < 0.04:
        return r.choice(JUNK)
    shape = some_shape(r, shape)
    made = good(r, shape) if below is None else whole(r, shape, dtype or "i8", below)
    if made.size and r.random() < 0.15 and made.dtype.kind == "f":
        made.reshape(-1)[r.randrange(made.size)] = r.choice(SPECIAL)
    elif made.size and r.random() < 0.1 and made.dtype.kind == "i":
        made.reshape(-1)[r.randrange(made.size)] = r.choice([-1, below, 2**31 - 1, -(2**31)])
    wanted = dtype or "f8"
    if r.random() < 0.25:
        wanted = r.choice(DTYPES)
    if made.dtype.str[1:] != wanted:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                made = made.astype(wanted)
            except (TypeError, ValueError):
                made = made.astype(object)
    return layout(r, made)


def maybe(r: random.Random, share: float, make):
    return make() if r.random() < share else None


def number(r: random.Random, usual):
    return usual if r.random() < 0.7 else r.choice(NUMBERS)


# --- what is allowed ---


def mark_public(function):
    """Mark a target whose errors must be fedsuplin's own."""
    function.allowed = (fsl.FedsuplinError,)
    return function


def mark_compiled(function):
    """Mark a target of the compiled core, which may raise built-in errors."""
    function.allowed = PLAIN
    return function


def require(truth, what: str) -> None:
    """Raise a Finding unless this is true."""
    if not truth:
        raise Finding(what)


def require_finite(what: str, *arrays) -> None:
    """Check that all numbers are finite."""
    for each in arrays:
        require(each is None or np.isfinite(each).all(), f"{what}: not finite")


@functools.cache
def algorithm(
    variant: str = "async", dim: int = DIM, n_arms: int = ARMS, n_clients: int = CLIENTS
) -> fsl.Algorithm:
    return fsl.make(variant, dim=dim, n_arms=n_arms, n_clients=n_clients, horizon=1000)


def check_result(result: fsl.RunResult) -> None:
    """Check that a result is finite, and that its counts add up."""
    require_finite(
        "a result", result.regret, result.reward, result.uniform_regret, result.client_regret
    )
    require(
        result.n_pulls == result.layer_pulls.sum() == result.pulls[-1],
        "a result's counts do not add up",
    )


# --- public targets ---


@mark_public
def array_problem(r):
    given = {
        "contexts": array(r, (HORIZON, ARMS, DIM)),
        "clients": array(r, (HORIZON,), "i8", CLIENTS),
    }
    by_theta = r.random() < 0.5
    given |= {"theta": maybe(r, 0.95 if by_theta else 0.05, lambda: array(r, (DIM,)))}
    given |= {"rewards": maybe(r, 0.05 if by_theta else 0.95, lambda: array(r, (HORIZON, ARMS)))}
    given |= {
        "noise": maybe(r, 0.2, lambda: array(r, (HORIZON,))),
        "mask": maybe(r, 0.2, lambda: array(r, (HORIZON, ARMS), "?", 2)),
    }
    given |= {"sigma": maybe(r, 0.2, lambda: r.choice([array(r, (HORIZON,)), number(r, 0.1)]))}
    given |= {
        "corruption": maybe(r, 0.1, lambda: array(r, r.choice([(HORIZON,), (HORIZON, ARMS)])))
    }
    given |= {
        "n_clients": maybe(r, 0.1, lambda: number(r, CLIENTS)),
        "noise_scale": maybe(r, 0.1, lambda: number(r, 0.1)),
    }
    problem = fsl.ArrayProblem(**given, scale_contexts=r.random() < 0.3)
    require(problem.horizon <= HORIZON + 3, "a horizon from nowhere")
    chunk = problem.stream(problem.horizon, None).take(problem.horizon)
    require_finite(
        "a chunk",
        chunk.contexts,
        chunk.noise,
        chunk.sigma,
        chunk.theta,
        chunk.rewards,
        chunk.corruption,
    )
    there = (
        np.ones((problem.horizon, problem.n_arms), bool)
        if given["mask"] is None
        else np.asarray(given["mask"])
    )
    expected = np.where(there[:, :, None], np.asarray(given["contexts"], float), 0).transpose(
        0, 2, 1
    )
    require(
        np.allclose(chunk.contexts[:, :, : problem.n_arms], expected * problem._scale),
        "contexts are not those given",
    )
    require(
        np.array_equal(chunk.clients, np.asarray(given["clients"])), "clients are not those given"
    )
    if r.random() < 0.05 and problem.n_clients < 1000:
        check_result(fsl.run("async", problem))


def some_chunk(r) -> dict:
    by_theta = r.random() < 0.5
    given = {
        "contexts": array(r, (HORIZON, ARMS, DIM)),
        "clients": array(r, (HORIZON,), "i4", CLIENTS),
    }
    given |= {"theta": maybe(r, 0.95 if by_theta else 0.05, lambda: array(r, (DIM,)))}
    given |= {"rewards": maybe(r, 0.05 if by_theta else 0.95, lambda: array(r, (HORIZON, ARMS)))}
    if r.random() < 0.2:
        given["noise"] = r.choice([array(r, (HORIZON,)), number(r, 0.1)])
    if r.random() < 0.2:
        given["sigma"] = r.choice([array(r, (HORIZON,)), number(r, 0.1)])
    given |= {"corruption": maybe(r, 0.1, lambda: array(r, (HORIZON, ARMS)))}
    return given | {"mask": maybe(r, 0.2, lambda: array(r, (HORIZON, ARMS), "?", 2))}


@mark_public
def chunk_of(r):
    given = some_chunk(r)
    chunk = Chunk.of(**given)
    n, n_arms, dim = np.shape(given["contexts"])
    require(chunk.contexts.shape == (n, dim, n_arms), "a chunk of another shape")
    for name, dtype in (
        ("contexts", "f8"),
        ("clients", "i4"),
        ("noise", "f8"),
        ("sigma", "f8"),
        ("mask", "u1"),
        ("rewards", "f8"),
    ):
        values = getattr(chunk, name)
        fits = values is None or (
            values.dtype == dtype and values.flags.c_contiguous and values.flags.aligned
        )
        require(fits, f"the chunk's {name} is not as the engine wants it")
    require(
        np.array_equal(chunk.clients, np.asarray(given["clients"])), "clients are not those given"
    )


class OwnStream(Stream):
    def __init__(self, chunks):
        self._chunks = chunks

    def take(self, n):
        return self._chunks.pop()


class OwnProblem(Problem):
    dim, n_arms, n_clients, horizon = DIM, ARMS, CLIENTS, HORIZON

    def __init__(self, chunk):
        self._chunk = chunk

    def stream(self, horizon, arrival):
        return OwnStream([self._chunk])


@mark_public
def own_stream(r):
    """Play a stream whose chunk comes from `Chunk.of`, or is made by hand."""
    chunk = Chunk.of(**some_chunk(r)) if r.random() < 0.5 else raw_chunk(r)
    variant = r.choice(["async", "async", "oful", "sync", "uniform"])
    check_result(fsl.run(variant, OwnProblem(chunk if r.random() < 0.97 else r.choice(JUNK))))


def raw_chunk(r) -> Chunk:
    """Return a chunk in the engine's layout, or nearly."""
    contexts = array(r, (HORIZON, DIM, ARMS))
    by_theta = r.random() < 0.5
    given = {"contexts": contexts, "clients": array(r, (HORIZON,), "i4", CLIENTS)}
    given |= {
        "noise": array(r, (HORIZON,)),
        "sigma": np.abs(good(r, (HORIZON,))) if r.random() < 0.8 else array(r, (HORIZON,)),
    }
    given |= {"theta": maybe(r, 0.95 if by_theta else 0.05, lambda: array(r, (DIM,)))}
    given |= {"rewards": maybe(r, 0.05 if by_theta else 0.95, lambda: array(r, (HORIZON, ARMS)))}
    given |= {"corruption": maybe(r, 0.1, lambda: array(r, (HORIZON, ARMS)))}
    return Chunk(**given, mask=maybe(r, 0.2, lambda: array(r, (HORIZON, ARMS), "u1", 2)))


@mark_public
def synthetic(r):
    given = (
        {"dim": number(r, DIM), "n_arms": number(r, ARMS), "n_clients": number(r, CLIENTS)}
        if r.random() < 0.5
        else {"dim": DIM, "n_arms": ARMS, "n_clients": CLIENTS}
    )
    if r.random() < 0.5:
        given["theta"] = array(r, (DIM,))
    if r.random() < 0.3:
        given["seed"] = number(r, 3)
    if r.random() < 0.3:
        given |= r.choice(
            [
                {"noise_scale": number(r, 0.1)},
                {"noise": "bounded", "R": number(r, 1.0)},
                {"noise": "corrupted", "corruption": number(r, 3.0)},
            ]
        )
    if r.random() < 0.2:
        given |= {
            "contexts": r.choice(["ball", "sphere", None, 3]),
            "arrival": r.choice(["random", "round-robin", "click-leave", None]),
        }
    if r.random() < 0.2:
        given["horizon"] = number(r, 10)
    problem = fsl.SyntheticProblem(**given)
    if problem.dim * problem.n_arms * problem.n_clients < 10_000:
        chunk = problem.stream(10, None).take(4)
        require_finite("a chunk", chunk.contexts, chunk.noise, chunk.sigma)


@mark_public
def fixed_arms(r):
    given = {"arms": maybe(r, 0.7, lambda: array(r, r.choice([(ARMS, DIM), (CLIENTS, ARMS, DIM)])))}
    given |= {"thetas": maybe(r, 0.4, lambda: array(r, (ARMS, DIM))), "own_arms": r.random() < 0.5}
    chunk = fsl.FixedArmsProblem(DIM, ARMS, CLIENTS, **given).stream(10, None).take(4)
    require_finite("a chunk", chunk.contexts, chunk.noise, chunk.sigma, chunk.rewards)


@mark_public
def makes(r):
    names = [
        "delta",
        "alpha_scale",
        "noise_scale",
        "ridge",
        "theta_bound",
        "C",
        "dim",
        "n_arms",
        "n_clients",
        "horizon",
    ]
    given = {"dim": DIM, "n_arms": ARMS, "n_clients": CLIENTS, "horizon": 100} | {
        r.choice(names): r.choice(NUMBERS) for _ in range(2)
    }
    made = fsl.make("async", **given)
    if isinstance(made, fsl.Doubling):  # a horizon of None
        made = made.algorithm(r.randrange(-1, 42))
    require_finite("radii and widths", np.asarray(made.radii), np.asarray(made.target_widths))


# --- live ---


def live_variant(r) -> fsl.Algorithm:
    return algorithm(r.choice(["async", "async", "sync", "variance", "robust", "oful"]))


def refused(call, *arguments) -> bool:
    """Return whether a call was refused with an error of fedsuplin."""
    try:
        call(*arguments)
    except fsl.FedsuplinError:
        return True
    return False


def check_client(client: fsl.Client) -> None:
    """Check that a client still chooses and learns after refused calls."""
    for s in range(client.algorithm.n_layers):
        require_finite(
            "a client", *(value for name, value in client.layer(s).items() if name != "quiet")
        )
    client.observe(client.select(good(CALM, (ARMS, DIM))), 0.1)


CALM = random.Random(0)


@mark_public
def client(r):
    """Make a few calls, most of them right; then the client must still work."""
    known, server = live_variant(r), None
    one = fsl.Client(
        known,
        number(r, 0) if r.random() < 0.05 else 0,
        seed=number(r, 0) if r.random() < 0.05 else 0,
    )
    decisions = []
    for _ in range(r.randrange(1, 6)):
        kind = r.randrange(6)
        if kind <= 1:
            with contextlib.suppress(fsl.FedsuplinError):
                decisions.append(
                    one.select(
                        array(r, (ARMS, DIM)), maybe(r, 0.3, lambda: array(r, (ARMS,), "?", 2))
                    )
                )
        elif kind <= 3:
            decision = (
                decisions.pop() if decisions and r.random() < 0.9 else r.choice(NUMBERS + JUNK)
            )
            refused(one.observe, decision, number(r, 0.3), maybe(r, 0.3, lambda: number(r, 0.2)))
        elif kind == 4:
            one.upload()
            server = server or fsl.Server(known)
            refused(one.apply, spoil(r, server.download(range(known.n_layers))))
        else:
            refused(one.apply, r.choice(JUNK))
    check_client(one)


def spoil(r, message):
    """Return a message with one wrong field, or as it was."""
    if r.random() < 0.3:
        return message
    n, packed = len(message.layers), DIM * (DIM + 1) // 2
    field = r.choice([each.name for each in dataclasses.fields(message)])
    made = {
        "layers": lambda: array(r, (n,), "i8", 3),
        "grams": lambda: array(r, (n, packed)),
        "moments": lambda: array(r, (n, DIM)),
        "pulls": lambda: array(r, (n,), "i8", 9),
        "client_id": lambda: number(r, 0),
        "asking": lambda: r.choice(
            [(0,), (-1,), (99,), (0.5,), 3, None, "a", ([],), (2**70,), (True,), (0, 0)]
        ),
    }[field]()
    return dataclasses.replace(message, **{field: made})


@mark_public
def server(r):
    known = live_variant(r)
    n_layers, packed = known.n_layers, DIM * (DIM + 1) // 2
    server = fsl.Server(known)

    def upload(client_id):
        layers = np.array(sorted(r.sample(range(n_layers), r.randrange(n_layers + 1))), np.int64)
        grams = np.tile(np.eye(DIM)[np.triu_indices(DIM)], (len(layers), 1)).reshape(
            len(layers), packed
        )
        sent = Upload(
            client_id,
            layers,
            grams,
            good(r, (len(layers), DIM)),
            np.full(len(layers), 9),
            tuple(int(s) for s in layers),
        )
        return spoil(r, sent) if r.random() < 0.7 else sent

    for _ in range(2):
        before = [server.layer(s)["gram"] for s in range(n_layers)]
        if known.syncs == "all":
            sent = [upload(i) for i in range(CLIENTS)] if r.random() < 0.95 else r.choice(JUNK)
            no = refused(server.barrier, sent)
        else:
            no = refused(server.merge, upload(0) if r.random() < 0.95 else r.choice(JUNK))
        after = [server.layer(s) for s in range(n_layers)]
        require(
            not no or all(np.array_equal(b, a["gram"]) for b, a in zip(before, after, strict=True)),
            "a refused upload changed something",
        )
        for layer in after:
            require_finite(
                "a server", layer["gram"], layer["inverse"], layer["moment"], layer["theta_hat"]
            )


# --- files ---


@functools.cache
def folder() -> Path:
    memory = Path("/dev/shm")
    kept = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
    atexit.register(kept.cleanup)
    return Path(kept.name)


def contents_of(body: bytes) -> dict:
    with np.load(io.BytesIO(body)) as file:
        return {name: file[name] for name in file.files}


@functools.cache
def kept_run(variant: str) -> tuple[bytes, dict]:
    """Return the bytes of a checkpoint in mid-run, and its arrays."""
    path = folder() / "kept"
    problem = file_problem(variant)

    class Enough(Exception):
        pass

    def stop(done, total):
        raise Enough

    with contextlib.suppress(Enough):
        options = {"checkpoint": path, "checkpoint_every": 100, "progress": stop}
        fsl.run(variant, problem, horizon=200, record="all", **options)
    content = path.read_bytes()
    path.unlink()
    return content, contents_of(content.split(b"\n", 2)[2])


def file_problem(variant: str):
    kind = fsl.FixedArmsProblem if variant in ("pe", "fed-pe") else fsl.SyntheticProblem
    return kind(DIM, ARMS, CLIENTS, seed=1)


def damage(r, content: bytes) -> bytes:
    """Return the bytes with some changed, cut, doubled or inserted."""
    kind, at = r.randrange(4), r.randrange(len(content))
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + r.randbytes(r.randrange(1, 9)) + content[at:]
    changed = bytearray(content)
    for _ in range(1 if kind == 2 else r.randrange(1, 9)):
        changed[r.randrange(len(changed))] ^= 1 << r.randrange(8)
    return bytes(changed)


def sign(body: bytes) -> bytes:
    """Return these bytes as a checkpoint with a right digest."""
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def forge(r, arrays: dict) -> bytes:
    """Return a checkpoint with a right digest and one forged array."""
    changed, name = dict(arrays), r.choice(list(arrays))
    values = changed[name]
    if r.random() < 0.6 and values.size and values.dtype.kind in "fiu":
        values = values.copy()
        values.reshape(-1)[r.randrange(values.size)] = (
            r.choice(SPECIAL) if values.dtype.kind == "f" else some_integer(r, values.dtype)
        )
        changed[name] = values
    elif r.random() < 0.5:
        del changed[name]
    else:
        changed[name] = np.zeros(
            some_shape(r, values.shape), r.choice(["f8", "f4", "i8", "u1", "U3"])
        )
    out = io.BytesIO()
    np.savez(out, **changed)
    return sign(out.getvalue())


def some_integer(r, dtype) -> int:
    limits = np.iinfo(dtype)
    value = r.choice([-1, 0, 1, 2, 3, 5, 9, 17, 255, 2**31 - 1, 2**62, 2**63 - 1, -(2**63)])
    return min(max(value, limits.min), limits.max)


@mark_public
def checkpoint_bytes(r):
    content, _ = kept_run("async")
    path = folder() / "c"
    if r.random() < 0.5:
        path.write_bytes(damage(r, content))
    else:
        path.write_bytes(sign(damage(r, content.split(b"\n", 2)[2])))
    read_archive(path)


@mark_public
def checkpoint_forged(r):
    """Resume from a forged file: the run refuses it, or ends with finite numbers."""
    variant = r.choice(["async", "sync", "oful", "pe", "fed-pe", "async-linucb"])
    path = folder() / "f"
    path.write_bytes(forge(r, kept_run(variant)[1]))
    result = fsl.run(variant, file_problem(variant), horizon=200, record="all", checkpoint=path)
    require_finite("a resumed result", result.regret, result.reward)


@functools.cache
def kept_result() -> bytes:
    path = folder() / "kept.npz"
    fsl.run("async", file_problem("async"), horizon=50, record="all").save(path)
    return path.read_bytes()


@mark_public
def result_bytes(r):
    path = folder() / "r.npz"
    if r.random() < 0.6:
        path.write_bytes(damage(r, kept_result()))
    else:
        arrays = contents_of(kept_result())
        path.write_bytes(forge(r, arrays).split(b"\n", 2)[2])
    repr(fsl.RunResult.load(path))


@functools.cache
def kept_client() -> dict:
    one = fsl.Client(algorithm())
    decisions = [one.select(good(CALM, (ARMS, DIM))) for _ in range(12)]
    for decision in decisions[:5]:
        one.observe(decision, 0.2)
    one.upload()
    for decision in decisions[5:8]:
        one.observe(decision, 0.2)
    content = one.save(folder() / "kept-client").read_bytes()
    return contents_of(content.split(b"\n", 2)[2])


@mark_public
def client_file(r):
    path = folder() / "l"
    path.write_bytes(forge(r, kept_client()))
    one = fsl.Client.load(path, algorithm())
    for number in list(one._open):
        refused(one.observe, number, 0.1)
    refused(one.apply, fsl.Server(algorithm()).download(range(algorithm().n_layers)))
    check_client(one)


# --- compiled ---


@mark_compiled
def pack(r):
    contexts, mask = array(r, (4, ARMS, DIM)), maybe(r, 0.5, lambda: array(r, (4, ARMS), "u1", 2))
    out = array(r, (4, DIM, r.choice([LANES, ARMS, LANES + 4])))
    scale = number(r, 0.5)
    norms.pack(contexts, mask, scale, out)
    if (
        isinstance(out, np.ndarray)
        and isinstance(scale, float)
        and math.isfinite(scale)
        and np.isfinite(contexts).all()
    ):
        there = np.ones(contexts.shape[:2], bool) if mask is None else np.asarray(mask) != 0
        expected = np.where(there[:, :, None], scale * np.asarray(contexts), 0).transpose(0, 2, 1)
        require(
            np.array_equal(out[:, :, : contexts.shape[1]], expected)
            and not out[:, :, contexts.shape[1] :].any(),
            "packed wrongly",
        )


@mark_compiled
def mean_rewards(r):
    contexts, theta = array(r, (4, DIM, ARMS)), array(r, (DIM,))
    kernels = (
        r.choice([None, "generic", *norms.available()]) if r.random() < 0.95 else r.choice(JUNK)
    )
    with np.errstate(all="ignore"):
        found = norms.mean_rewards(contexts, theta, kernels)
        expected = np.einsum("tdk,d->tk", contexts, np.asarray(theta)[: contexts.shape[1]])
        usual = np.isfinite(expected) & (np.abs(expected) < 1e300)
        require(np.allclose(found[usual], expected[usual]), "wrong means")


@mark_compiled
def norms_and_estimates(r):
    ld = norms.pad(DIM)
    inverse, theta, contexts = (
        array(r, (r.choice([DIM, ld]), ld)),
        array(r, (r.choice([DIM, ld]),)),
        array(r, (DIM, LANES)),
    )
    norm, estimate = norms.norms_and_estimates(
        inverse, theta, contexts, r.choice([None, "generic"])
    )
    require(len(norm) == len(estimate) == contexts.shape[1], "of another length")


@mark_compiled
def permutation(r):
    size = number(r, r.randrange(1, 40))
    start, stop = number(r, 0), number(r, r.randrange(1, 20))
    if isinstance(stop, int) and not isinstance(stop, bool) and abs(stop) > 10_000:
        start, stop, size = stop - 5, stop, r.choice([stop, stop + 3])
    found = keyed_permutation(start, stop, size, number(r, 3))
    require(
        len(set(found.tolist())) == len(found) and (not len(found) or found.min() >= 0),
        "no permutation",
    )


@mark_compiled
def source(r):
    d, n_arms = number(r, DIM), number(r, ARMS)
    made = ContextSource(np.random.SeedSequence(1), d, n_arms, r.choice([None, "generic", "mmx"]))
    for _ in range(2):
        kind = r.randrange(3)
        if kind == 0:
            out, lengths = array(r, (4, DIM, ARMS)), maybe(r, 0.5, lambda: array(r, (4, ARMS)))
            with contextlib.suppress(*PLAIN):
                made.fill(out, lengths)
                require(
                    lengths is not None or np.isfinite(np.asarray(out)).all(),
                    "contexts that are not finite",
                )
        elif kind == 1:
            with contextlib.suppress(*PLAIN):
                made.position = r.choice(
                    [
                        made.position,
                        array(r, (STATE_WORDS,), "u8", 99),
                        made.position * np.uint64(3),
                    ]
                )
        else:
            with contextlib.suppress(*PLAIN):
                require_finite(
                    "normals", made.normals(r.choice([20, 1, 0, -1, None, 2.5, 2**63, 2**62, "1"]))
                )


@mark_compiled
def play(r):
    """Give chunks of every kind to an engine."""
    engine = Engine(
        algorithm(r.choice(["async", "sync", "oful", "uniform", "robust"])),
        kernels=r.choice([None, "generic"]),
    )
    for _ in range(2):
        with contextlib.suppress(*PLAIN):
            status, _ = engine.play(raw_chunk(r), number(r, 0) if r.random() < 0.2 else 0)
            require(isinstance(status, str), "no word")
    if engine.totals_now["pulls"]:
        require(
            engine.totals_now["pulls"] == engine.layer_pulls.sum() == engine.client_pulls.sum(),
            "counts do not add up",
        )


@functools.cache
def good_chunk() -> Chunk:
    return fsl.SyntheticProblem(DIM, ARMS, CLIENTS, seed=2).stream(40, None).take(40)


@mark_compiled
def record_into(r):
    engine = Engine(algorithm())
    for _ in range(2):
        rows = r.choice([3, 40])
        with contextlib.suppress(*PLAIN):
            engine.record_into(
                maybe(
                    r,
                    0.9,
                    lambda rows=rows: (
                        np.arange(1, rows + 1) if r.random() < 0.7 else array(r, (rows,), "i8", 40)
                    ),
                ),
                array(r, (rows, 3)),
                array(r, (rows, 5), "i8", 5),
                maybe(r, 0.5, lambda: array(r, (40, 3), "i4", 3)),
            )
    require(engine.play(good_chunk())[0] == "done", "it does not play")


@functools.cache
def kept_state(variant: str) -> dict:
    return kept_run(variant)[1]


@mark_compiled
def restores(r):
    variant = r.choice(["async", "sync", "async-linucb", "variance"])
    known = algorithm_of_run(variant)
    engine, state = Engine(known), dict(kept_state(variant))
    for _ in range(r.randrange(1, 3)):
        name = r.choice([each for each in state if each != "json"])
        values = kept_state(variant)[
            name
        ]  # a second time, too: what was put there may be huge by its strides
        if r.random() < 0.5 and values.size and values.dtype.kind in "iu":
            values = values.copy()
            values.reshape(-1)[r.randrange(values.size)] = some_integer(r, values.dtype)
        else:
            values = layout(r, values.copy()) if r.random() < 0.5 else array(r, values.shape)
        state[name] = values
    restore(engine, state)
    engine.record_into(
        np.arange(1, 241),
        np.zeros((240, 3)),
        np.zeros((240, 5), np.int64),
        np.zeros((240, 3), np.int32),
    )
    engine.play(good_chunk())
    require(set(state_of(engine)) <= set(state), "another state")


@functools.cache
def algorithm_of_run(variant: str) -> fsl.Algorithm:
    from fedsuplin.simulation.preparing import prepare_algorithm

    return prepare_algorithm(variant, file_problem(variant), 200, {})[0]


@mark_compiled
def live(r):
    """Call the compiled client and server without the checks of the Python classes."""
    engine = Live(live_variant(r))
    n_layers = live_variant(r).n_layers
    eye = np.eye(DIM)
    for _ in range(r.randrange(1, 6)):
        layer = r.randrange(n_layers) if r.random() < 0.9 else number(r, -1)
        kind = r.randrange(7)
        with contextlib.suppress(*PLAIN):
            if kind == 0:
                engine.select(
                    array(r, (ARMS, DIM)), maybe(r, 0.3, lambda: array(r, (ARMS,), "u1", 2))
                )
                engine.context(layer)
            elif kind == 1:
                engine.learn_from(array(r, (DIM,)), layer, number(r, 0.3), number(r, 0.1))
            elif kind == 2:
                engine.select_plain(
                    array(r, (ARMS, DIM)), maybe(r, 0.3, lambda: array(r, (ARMS,), "?", 2))
                )
            elif kind == 3:
                engine.receive(
                    *update(r, layer),
                    [layer] if r.random() < 0.5 else (),
                    [(layer, array(r, (DIM,)), number(r, 1.0), number(r, 0.3))],
                )
            elif kind == 4:
                gram = array(r, (DIM, DIM)) if r.random() < 0.5 else eye
                engine.replace(layer, gram, array(r, (DIM,)))
            elif kind == 5:
                engine.add(
                    [update(r, layer) for _ in range(2)] if r.random() < 0.9 else r.choice(JUNK)
                )
            else:
                engine.gathered(layer), engine.sums()
                engine.server_layer(layer), engine.client_layer(0, layer)


def update(r, layer):
    """Return layers, ΔA and Δb; right in half of the cases."""
    if r.random() < 0.5:
        return np.array([layer], np.int64), pack_upper(np.eye(DIM))[None], np.full((1, DIM), 0.1)
    n = r.randrange(3)
    return array(r, (n,), "i8", 4), array(r, (n, DIM * (DIM + 1) // 2)), array(r, (n, DIM))


@functools.cache
def rules() -> tuple[Rule, ...]:
    parts = algorithm("uniform").rules, algorithm("robust").rules, algorithm("variance").rules
    return tuple(rule for each in parts for rule in each.values())


TWO = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_double, ctypes.c_double, ctypes.c_void_p)(
    lambda gain, elapsed, user: 1
)


@mark_compiled
def rule(r):
    kind = r.randrange(3)
    if kind == 0:
        asked = r.choice(rules())
        if asked.axis == "policy":
            n_layers = 2
            arm = asked(
                array(r, (n_layers, ARMS)),
                array(r, (n_layers, ARMS)),
                array(r, (n_layers,)),
                number(r, 0.5),
            )
            require(isinstance(arm, int), "no arm")
        else:
            asked(*(number(r, 0.5) for _ in range(2)))
    elif kind == 1:
        low_level(
            TWO if r.random() < 0.7 else r.choice(JUNK),
            *(number(r, 1.0) for _ in range(r.randrange(3))),
        )
    else:
        Rule(
            "trigger",
            r.choice([*JUNK, TWO, lambda gain, elapsed: True, *NUMBERS]),
            *((r.choice(JUNK),) if r.random() < 0.3 else ()),
        )


WEIGHTS = {
    array_problem: 8, chunk_of: 10, own_stream: 3, synthetic: 5, fixed_arms: 3, makes: 4, client: 3,
    server: 2, checkpoint_bytes: 3, checkpoint_forged: 0.7, result_bytes: 2, client_file: 0.7,
    pack: 12, mean_rewards: 12, norms_and_estimates: 8, permutation: 8, source: 6, play: 6,
    record_into: 4, restores: 3, live: 6, rule: 8,
}  # fmt: skip
TARGETS = {target.__name__: target for target in WEIGHTS}


# --- cases ---


def choose_target(seed: int, case: int, only: str) -> tuple:
    """Choose the target of a case, and make its generator."""
    r = random.Random(f"{seed} {case}")
    return (TARGETS[only] if only else r.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]), r


def play_case(seed: int, case: int, only: str = "") -> str:
    """Play a case and return "accepted" or "refused"; anything else is raised."""
    target, r = choose_target(seed, case, only)
    try:
        target(r)
    except Finding:
        raise
    except target.allowed:
        return "refused"
    return "accepted"


def turn_warnings_into_errors() -> None:
    """Turn warnings into errors: one of NumPy may mean that numbers were lost."""
    warnings.simplefilter("error")
    np.seterr(all="ignore")


class Progress:
    """The number of the current case, shared between the player and the process that watches it."""

    def __init__(self):
        self._shared = mmap.mmap(-1, 8)

    def set(self, case: int) -> None:
        self._shared[:] = struct.pack("q", case)

    def get(self) -> int:
        return struct.unpack("q", self._shared[:])[0]


def play_cases(seed: int, cases: range, only: str, progress: Progress, out) -> None:
    """Write a line per finding, and at the end the counts of each target."""
    turn_warnings_into_errors()
    counts: Counter = Counter()
    for case in cases:
        progress.set(case)
        name = choose_target(seed, case, only)[0].__name__
        try:
            counts[name, play_case(seed, case, only)] += 1
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            counts[name, "FOUND"] += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(
                f"{name} {type(error).__name__}: {str(error)[:200]} "
                f"({Path(place.filename).name}:{place.lineno}) --case {case}",
                file=out,
            )
    for (name, how), count in sorted(counts.items()):
        print(f"count {name} {how} {count}", file=out)
    out.flush()


def play_in_process(seed: int, cases: range, only: str, path: Path) -> int | None:
    """Play cases in a process of their own; return the case at which it crashed or hung, if any."""
    progress = Progress()
    progress.set(cases.start)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with path.open("a", buffering=1) as out:
                play_cases(seed, cases, only, progress, out)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    last, since = cases.start, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return None if status == 0 else progress.get()
        if progress.get() != last:
            last, since = progress.get(), time.monotonic()
        elif time.monotonic() - since > HANG:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return last
        time.sleep(0.05)


def main(cases: int, seed: int, only: str, batch: int = 20_000) -> int:
    """Play all cases, print the findings and return their number."""
    began, crashes = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "found"
        path.touch()
        for first in range(0, cases, batch):
            part = range(first, min(first + batch, cases))
            while part and (at := play_in_process(seed, part, only, path)) is not None:
                crashes.append(at)
                part = range(at + 1, part.stop)
        lines = path.read_text().splitlines()
    counts: Counter = Counter()
    for line in lines:
        if line.startswith("count "):
            _, target, how, count = line.split()
            counts[target, how] += int(count)
    found = [line for line in lines if not line.startswith("count ")]
    for target in TARGETS:
        print(
            f"{target:>20}: "
            + ", ".join(
                f"{counts[target, how]:>6} {how}" for how in ("accepted", "refused", "FOUND")
            )
        )
    for line in group_findings(found):
        print(line)
    for at in crashes:
        print(f"{choose_target(seed, at, only)[0].__name__} CRASHED or hung: --case {at}")
    minutes = (time.perf_counter() - began) / 60
    print(
        f"{cases} cases of seed {seed} in {minutes:.1f} minutes: "
        f"{len(found)} findings, {len(crashes)} crashes or hangs"
    )
    return len(found) + len(crashes)


def group_findings(found: list[str]) -> list[str]:
    """Return the first finding of each target, exception and place, with the number of such."""
    kinds: dict[tuple, list[str]] = {}
    for line in found:
        kinds.setdefault(
            (line.split(":")[0], line.rpartition("(")[2].partition(")")[0]), []
        ).append(line)
    return [f"{lines[0]}  ({len(lines)} such)" for lines in kinds.values()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", choices=["", *TARGETS], help="one target")
    parser.add_argument("--case", type=int, help="play this case alone, here")
    given = parser.parse_args()
    if given.case is None:
        sys.exit(bool(main(given.cases, given.seed, given.only)))
    turn_warnings_into_errors()
    print(
        choose_target(given.seed, given.case, given.only)[0].__name__,
        play_case(given.seed, given.case, given.only),
    )
