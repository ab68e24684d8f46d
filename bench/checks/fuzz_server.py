"""Malformed requests to a live server: it stays up, refuses each rightly, and does not change.

python bench/checks/fuzz_server.py                             100 000 requests, two minutes
python bench/checks/fuzz_server.py --requests 5000 --seed 3    fewer, others
python bench/checks/fuzz_server.py --seed 0 --only 4711        one request again, with its answer

The servers are `fedsuplin serve` in processes of their own: one whose clients sync one by one, one
whose clients sync together, and one with an unknown horizon in its second epoch. Clients have
joined and synced; of the first and the last server all but two. Then come requests that are random,
cut short, damaged bit by bit or field by field, for other methods, with the tokens of others or
none, too large, given up, or not gRPC at all. The right answer to each is worked out here, without
the server's code. A request that happens to be valid, and so would change something, is not sent
but damaged further. Now and then, and at the end, the answers to joins and the whole store must
be what they were, byte for byte, in the same process. After all that the clients continue: their
next uploads must be merged, to the right sums. The script prints counts by status, and fails if
anything was otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import random
import shutil
import sqlite3
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from load import Served

DIM, ARMS, CLIENTS, HORIZON = 3, 4, 5, 4000
NEVER_CAME = 4  # a client, that no round waits for; the one before only joined
FUZZED = {
    "async": HORIZON,
    "sync": HORIZON,
    "async, doubling": None,
}  # variants, with their horizons
AT_A_TIME = 12  # requests under way: fewer than one client may have
CHECK_EVERY = 5000
MAGIC, VERSION, KINDS = b"FSLM", 1, {"Join": 10, "Sync": 12, "Round": 14}
SERVICE = "/fedsuplin.v1.Federation/"
OK, WHO, DENIED, INVALID = "OK", "UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT"
FAILED, ABORTED = "FAILED_PRECONDITION", "ABORTED"


# --- the form of requests, written down a second time ---------------------------------------------

FIRST = [("magic", "4s"), ("version", "H"), ("kind", "H")]
JOIN = [*FIRST, ("client_id", "I"), ("generation", "Q"), ("session", "16s"), ("fingerprint", "32s")]
HEAD = [*FIRST, ("fingerprint", "32s"), ("session", "16s")]
SYNC = [*HEAD, ("sequence", "Q"), ("epoch", "Q"), ("round", "Q"), ("leaving", "B")]
SYNC += [("client_id", "I"), ("dim", "I"), ("n", "H"), ("n_asking", "H")]
ROUND = [*HEAD, ("client_id", "I"), ("epoch", "Q"), ("round", "Q"), ("n_asking", "H")]
FORMS = {"Join": JOIN, "Sync": SYNC, "Round": ROUND}


def size_of(form: list[tuple[str, str]]) -> int:
    return struct.calcsize("<" + "".join(code for _, code in form))


def place_of(form: list[tuple[str, str]], name: str) -> tuple[int, str]:
    """Where a field is, and its code."""
    at = [each for each, _ in form].index(name)
    return size_of(form[:at]), form[at][1]


def with_field(method: str, data: bytes, name: str, value: int | bytes) -> bytes:
    """The same request, with another value in one place."""
    at, code = place_of(FORMS[method], name)
    spoilt = bytearray(data)
    struct.pack_into("<" + code, spoilt, at, value)
    return bytes(spoilt)


def read(method: str, data: bytes) -> dict | None:
    """The fields and arrays of a request; None if it is none."""
    form = FORMS[method]
    if len(data) < size_of(form):
        return None
    values = struct.unpack_from("<" + "".join(code for _, code in form), data)
    fields, rest = dict(zip((name for name, _ in form), values, strict=True)), data[size_of(form) :]
    if (fields["magic"], fields["version"], fields["kind"]) != (MAGIC, VERSION, KINDS[method]):
        return None
    if method == "Join":
        return fields if not rest else None
    n, n_asking, dim = fields.get("n", 0), fields["n_asking"], fields.get("dim", 1)
    if not 1 <= dim <= 1 << 15 or max(n, n_asking) > 1 << 10 or fields.get("leaving", 0) > 1:
        return None
    parts = [("layers", "<u2", n), ("pulls", "<i8", n), ("asking", "<u2", n_asking)]
    parts += [("grams", "<f8", n * dim * (dim + 1) // 2), ("moments", "<f8", n * dim)]
    if len(rest) != sum(np.dtype(kind).itemsize * length for _, kind, length in parts):
        return None
    for name, kind, length in parts:
        size = np.dtype(kind).itemsize * length
        fields[name], rest = np.frombuffer(rest[:size], kind), rest[size:]
    return fields


def surely_bad(fields: dict, n_layers: int) -> bool:
    """Could no client have gathered this? What is near the border is not sure."""
    n, layers, pulls = fields["n"], fields["layers"], fields["pulls"]
    if fields["dim"] != DIM or n > n_layers or len(set(layers.tolist())) < n:
        return True
    if any(layer >= n_layers for layer in [*layers.tolist(), *fields["asking"].tolist()]):
        return True
    grams, moments = (
        fields["grams"].reshape(n, DIM * (DIM + 1) // 2),
        fields["moments"].reshape(n, DIM),
    )
    numbers = np.concatenate([grams.ravel(), moments.ravel()])
    if (
        not np.isfinite(numbers).all()
        or (np.abs(numbers) > 1e151).any()
        or (pulls < 1).any()
        or (pulls > 1 << 49).any()
    ):
        return True
    for triangle, moment, count in zip(grams, moments, pulls.tolist(), strict=True):
        matrix = np.zeros((DIM, DIM))
        matrix[np.triu_indices(DIM)] = triangle
        matrix += np.triu(matrix, 1).T
        trace = matrix.trace()
        if trace < 0 or trace > 1.01 * count or trace == 0 and moment.any():
            return True
        if not matrix.any():
            continue
        scale = np.abs(matrix).max()  # which keeps eigvalsh from overflow
        if np.linalg.eigvalsh(matrix / scale).min() < -1e-6 * trace / scale - 1e-12:
            return True
    return False


# --- what must be answered ------------------------------------------------------------------------


class Expected:
    """What a server in a known state must say to a request; and that state."""

    def __init__(self, fingerprint: bytes, n_layers: int, together: bool) -> None:
        self.fingerprint, self.n_layers, self.together = fingerprint, n_layers, together
        self.epoch = self.round = 0
        self.uploading = False  # the second phase of a round
        self.sessions: dict[int, bytes] = {}
        self.sequences: dict[int, int] = {}
        self.merged: dict[int, bytes] = {}  # by client, its last upload

    def codes(self, client_id: int | None, method: str, data: bytes) -> set[str] | None:
        """Return the right status codes; none if it is valid and would change something."""
        if client_id is None:
            return {WHO}
        fields = read(method, data)
        if fields is None:
            return {INVALID}
        no_number = (
            set() if 0 < fields.get("sequence", 1) < 1 << 62 else {INVALID}
        )  # may be reported before what else is wrong
        if fields["client_id"] != client_id:
            return {DENIED} | no_number
        if method == "Join":
            return self._join(client_id, fields)
        if fields["fingerprint"] != self.fingerprint or fields["session"] != self.sessions.get(
            client_id
        ):
            return {FAILED} | no_number
        if fields["epoch"] > self.epoch or no_number:
            return {INVALID}
        return self._sync(client_id, fields, data) if method == "Sync" else self._round(fields)

    def _join(self, client_id: int, fields: dict) -> set[str] | None:
        if fields["fingerprint"] not in (bytes(32), self.fingerprint):
            return {FAILED}
        if fields["generation"] == 0 or fields["session"] == self.sessions.get(client_id):
            return {OK}  # it only asks, or is there
        return (
            None if fields["generation"] == (client_id in self.sessions) + 1 else {ABORTED}
        )  # all have had one session at most

    def _sync(self, client_id: int, fields: dict, data: bytes) -> set[str] | None:
        last = self.sequences[client_id]
        if fields["sequence"] <= last:
            return {OK} if data == self.merged.get(client_id) else {FAILED}
        if fields["epoch"] < self.epoch:
            return {OK}  # and not merged
        bad, gap = (
            surely_bad(fields, self.n_layers),
            not self.together and fields["sequence"] != last + 1,
        )
        if gap and (bad or self.epoch == 0):  # in a later epoch a gap may be right
            return {FAILED, INVALID} if bad else {FAILED}
        if bad:
            return {INVALID}
        if not self.together or fields["leaving"]:
            return None
        if fields["round"] > self.round:
            return {INVALID}
        if fields["round"] < self.round:
            return {OK, INVALID}  # INVALID: nearly in order is not sure
        return None if self.uploading else {ABORTED, INVALID}

    def _round(self, fields: dict) -> set[str] | None:
        if (
            not self.together
            or (fields["asking"] >= self.n_layers).any()
            or fields["round"] > self.round
        ):
            return {INVALID}
        return {OK} if fields["round"] < self.round else None


# --- clients that are in order --------------------------------------------------------------------


def triangle_of(rng: np.random.Generator, n_pulls: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal((n_pulls, DIM))
    x /= np.linalg.norm(x, axis=1, keepdims=True) * (1 + 1e-12)
    return (x.T @ x)[np.triu_indices(DIM)], x.T @ rng.uniform(-1, 1, n_pulls)


class Genuine:
    """Requests that are right, and the sums of those that were merged."""

    def __init__(self, expected: Expected, seed: int) -> None:
        self.expected, self.rng = expected, np.random.default_rng(seed)
        self.sessions = {
            number: hashlib.sha256(f"{seed} {number}".encode()).digest()[:16]
            for number in range(CLIENTS)
        }
        self.pending: dict[int, tuple[bytes, np.ndarray, np.ndarray, np.ndarray]] = {}
        self.pulls = 0
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """From nothing."""
        n = self.expected.n_layers
        self.grams, self.moments = np.zeros((n, DIM * (DIM + 1) // 2)), np.zeros((n, DIM))

    def join(self, client_id: int) -> bytes:
        return (
            struct.pack("<4sHHIQ", MAGIC, VERSION, 10, client_id, 1)
            + self.sessions[client_id]
            + self.expected.fingerprint
        )

    def head(self, client_id: int, kind: int) -> bytes:
        return (
            struct.pack("<4sHH", MAGIC, VERSION, kind)
            + self.expected.fingerprint
            + self.sessions[client_id]
        )

    def round(self, client_id: int, asking: tuple[int, ...] = (0,)) -> bytes:
        where = client_id, self.expected.epoch, self.expected.round, len(asking)
        return self.head(client_id, 14) + struct.pack(f"<IQQH{len(asking)}H", *where, *asking)

    def sync(self, client_id: int, leaving: bool = False, more_pulls: int = 0) -> bytes:
        """The client's next upload, of all layers; the same one until it is merged."""
        if client_id in self.pending:
            return self.pending[client_id][0]
        n, expected = self.expected.n_layers, self.expected
        pulls = self.rng.integers(1, 5, n)
        parts = [triangle_of(self.rng, count) for count in pulls]
        grams, moments = (
            np.array([gram for gram, _ in parts]),
            np.array([moment for _, moment in parts]),
        )
        pulls[0] += more_pulls
        where = expected.sequences.get(client_id, 0) + 1, expected.epoch, expected.round, leaving
        data = self.head(client_id, 12) + struct.pack("<QQQBIIHH", *where, client_id, DIM, n, 1)
        arrays = (
            (np.arange(n), "<u2"),
            (pulls, "<i8"),
            (np.array([0]), "<u2"),
            (grams, "<f8"),
            (moments, "<f8"),
        )
        data += b"".join(values.astype(kind).tobytes() for values, kind in arrays)
        self.pending[client_id] = data, grams, moments, pulls
        return data

    def was_merged(self, client_id: int, layers: list[int]) -> None:
        """Return an upload for these layers.

        What a synchronous server did not ask for stays with the client, and is not used here.
        """
        data, grams, moments, pulls = self.pending.pop(client_id)
        self.grams[layers] += grams[layers]
        self.moments[layers] += moments[layers]
        self.pulls += int(pulls[layers].sum())
        self.expected.sequences[client_id] += 1
        self.expected.merged[client_id] = data


# --- spoilt requests ------------------------------------------------------------------------------

EXTREMES = [
    0,
    1,
    2,
    3,
    255,
    256,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
FLOATS = [
    0.0,
    -0.0,
    -1.0,
    1e-320,
    1e150,
    1.1e150,
    1e308,
    -1e308,
    -1e-9,
    5.0,
    np.nan,
    np.inf,
    -np.inf,
]
COUNTS = [0, -1, 1, 2**20, 2**48, 2**48 + 1, 2**63 - 1, -(2**63)]
UNKNOWN = [
    SERVICE,
    SERVICE + "Leave",
    SERVICE + "join",
    "/fedsuplin.v2.Federation/Sync",
    "/Sync",
    "/../../Sync",
    "/%00/%2f",
]
UNKNOWN += ["/" + "x" * 3000 + "/Sync", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"]


def noise(r: random.Random, data: bytes) -> bytes:
    return r.randbytes(r.choice([0, 1, 4, 8, 60, 78, 93, 300, 3000]))


def head_and_noise(r: random.Random, data: bytes) -> bytes:
    return data[: r.choice([8, 12, 20, 40, 56, 81, 93])] + r.randbytes(r.randrange(400))


def cut(r: random.Random, data: bytes) -> bytes:
    return data[: r.randrange(len(data))]


def longer(r: random.Random, data: bytes) -> bytes:
    return data + r.choice([b"\0", data, r.randbytes(r.randrange(1, 100))])


def flipped(r: random.Random, data: bytes) -> bytes:
    spoilt = bytearray(data)
    for _ in range(r.choice([1, 1, 1, 2, 5, 40])):
        spoilt[r.randrange(len(spoilt))] ^= 1 << r.randrange(8)
    return bytes(spoilt)


def overwritten(r: random.Random, data: bytes) -> bytes:
    at, size = r.randrange(len(data)), r.choice([1, 2, 4, 8, 16, 100])
    return (
        data[:at] + r.choice([bytes(size), b"\xff" * size, r.randbytes(size)]) + data[at + size :]
    )[: len(data)]


def field_spoilt(r: random.Random, data: bytes) -> bytes:
    """One or two of the fields, to the ends of what they hold."""
    spoilt = bytearray(data)
    form = next(
        form
        for method, form in FORMS.items()
        if KINDS[method] == struct.unpack_from("<H", data, 6)[0]
    )
    for _ in range(r.choice([1, 1, 1, 2])):
        name = r.choice([name for name, _ in form])
        at, code = place_of(form, name)
        size = struct.calcsize("<" + code)
        if code.endswith("s"):
            value = r.choice(
                [
                    bytes(size),
                    b"\xff" * size,
                    r.randbytes(size),
                    bytes(spoilt[at : at + size])[::-1],
                ]
            )
        else:
            value = (r.choice(EXTREMES) % (1 << 8 * size)).to_bytes(size, "little")
            if r.random() < 0.3:  # a little more, or less, than it was
                old = int.from_bytes(spoilt[at : at + size], "little")
                value = ((old + r.choice([-1, 1, 2])) % (1 << 8 * size)).to_bytes(size, "little")
        spoilt[at : at + size] = value
    return bytes(spoilt)


def numbers_spoilt(r: random.Random, data: bytes) -> bytes:
    """Damage layers, counts, matrices or vectors of an upload; other requests lose a field."""
    fields = read("Sync", data)
    if fields is None:
        return field_spoilt(r, data)
    spoilt, n, size = bytearray(data), fields["n"], DIM * (DIM + 1) // 2
    at = {"layers": size_of(SYNC)}
    for name, before, width in (
        ("pulls", "layers", 2 * n),
        ("asking", "pulls", 8 * n),
        ("grams", "asking", 2 * fields["n_asking"]),
    ):
        at[name] = at[before] + width
    for _ in range(r.choice([1, 1, 2, 4])):
        what = r.choice(
            [
                "layer",
                "asking",
                "count",
                "number",
                "number",
                "number",
                "diagonal",
                "not definite",
                "no trace",
                "all",
            ]
        )
        layer = r.randrange(n)
        gram = at["grams"] + 8 * size * layer
        if what in ("layer", "asking"):
            struct.pack_into(
                "<H",
                spoilt,
                at["layers"] + 2 * layer if what == "layer" else at["asking"],
                r.choice([0, 1, n, 255, 65535]),
            )
        elif what == "count":
            struct.pack_into("<q", spoilt, at["pulls"] + 8 * layer, r.choice(COUNTS))
        elif what == "number":
            struct.pack_into(
                "<d", spoilt, at["grams"] + 8 * r.randrange(n * (size + DIM)), r.choice(FLOATS)
            )
        elif what == "diagonal":
            struct.pack_into("<d", spoilt, gram, r.choice([-1.0, -1e-3, 0.0, 100.0, 1e100]))
        elif what == "not definite":
            struct.pack_into("<d", spoilt, gram + 8, r.choice([-1, 1]) * r.choice([4.0, 10.0, 1e6]))
        elif what == "no trace":
            triangle, large = [0.0] * size, r.choice([1e-3, 0.5, 1e6])
            triangle[0], triangle[1], triangle[DIM] = r.choice(
                [(-large, 0.0, large), (0.0, large, 0.0)]
            )
            struct.pack_into(f"<{size}d", spoilt, gram, *triangle)
            struct.pack_into(
                f"<{DIM}d", spoilt, at["grams"] + 8 * (size * n + DIM * layer), *[0.0] * DIM
            )
        else:
            struct.pack_into(
                f"<{size}d",
                spoilt,
                gram,
                *[r.choice([*FLOATS, r.gauss(0, 1)]) for _ in range(size)],
            )
    return bytes(spoilt)


def unspoilt(r: random.Random, data: bytes) -> bytes:
    return data


SPOILERS = [
    noise,
    head_and_noise,
    cut,
    longer,
    flipped,
    flipped,
    overwritten,
    field_spoilt,
    field_spoilt,
    field_spoilt,
]
SPOILERS += [numbers_spoilt, numbers_spoilt, numbers_spoilt, unspoilt]


def spoilt_metadata(
    r: random.Random, tokens: dict[int, str], client_id: int
) -> tuple[list[tuple[str, str | bytes]], int | None]:
    """What a call brings along, and whose it is then."""
    token, other = tokens[client_id], r.choice(sorted(tokens))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    kinds = [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", token)],
        [("authorization", f"Basic {token}")],
        [("authorization", f"Bearer {token[:-1]}")],
        [("authorization", f"Bearer {token}x")],
        [("authorization", f"Bearer {token} {token}")],
        [
            ("authorization", f"Bearer {hashlib.sha256(token.encode()).hexdigest()}")
        ],  # what the server's file has
        [("authorization", "Bearer " + "".join(r.choices(letters, k=43)))],
        [("authorization", "Bearer " + "x" * 5000)],
        [("authorization", f"Bearer {token}"), ("authorization", f"Bearer {tokens[other]}")],
        [("authorization-bin", token.encode())],
        [("token", token), ("x-client-id", str(client_id))],
        [("cookie", f"authorization=Bearer {token}")],
    ]
    if r.random() < 0.4:  # another client's valid token, and unknown headers
        return [
            ("x-junk-bin", r.randbytes(50)),
            ("authorization", f"Bearer {tokens[other]}"),
            ("x-forwarded-for", "::1"),
        ], other
    return r.choice(kinds), None


RAW = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    bytes(100),
    b"\xff" * 100,
]
SETTINGS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")


def raw_bytes(r: random.Random) -> bytes:
    """Not a call: something, or HTTP/2 that goes wrong after its beginning."""
    if r.random() < 0.3:
        return r.choice(RAW)
    frames = b"".join(
        struct.pack(">I", r.choice([0, 5, 100, 1 << 23]))[1:]
        + bytes([r.randrange(12), r.randrange(256)])
        + struct.pack(">I", r.choice([0, 1, 3, 1 << 31, r.randrange(1 << 32)]))
        + r.randbytes(r.choice([0, 5, 100]))
        for _ in range(r.randrange(1, 6))
    )
    return SETTINGS + frames


# --- a server under fire --------------------------------------------------------------------------


class Case:
    """One request: where it goes, what it brings, and which codes are right."""

    def __init__(self, seed: int, number: int, fuzz: Fuzz) -> None:
        self.r = r = random.Random(f"{seed} {fuzz.variant} {number}")
        self.client_id = r.randrange(CLIENTS)
        self.metadata, who = (
            [("authorization", f"Bearer {fuzz.served.tokens[self.client_id]}")],
            self.client_id,
        )
        self.messages, self.timeout, self.how = 1, 30.0, "request"
        chance = r.random()
        if chance < 0.1:
            self.how = "metadata"
            self.metadata, who = spoilt_metadata(r, fuzz.served.tokens, self.client_id)
        self.method, self.data = self._request(fuzz, who)
        self.path, self.codes = (
            SERVICE + self.method,
            fuzz.expected.codes(who, self.method, self.data),
        )
        if 0.1 <= chance < 0.12:
            self.how, self.path, self.codes = "unknown method", r.choice(UNKNOWN), {"UNIMPLEMENTED"}
        elif 0.12 <= chance < 0.13:
            self.how, self.messages, self.codes = "no message", 0, {INVALID}
        elif 0.13 <= chance < 0.14:
            self.how, self.messages, self.codes = "two messages", 2, self.codes | {"not sent"}
        elif 0.14 <= chance < 0.15:
            self.how, self.timeout = "given up", r.choice([0.0, 0.0005, 0.002])
            self.codes = self.codes | {"DEADLINE_EXCEEDED", "CANCELLED"}
        elif 0.15 <= chance < 0.16:
            self.how, self.data, self.codes = "no gRPC", raw_bytes(r), {"closed"}
        elif 0.16 <= chance < 0.1603:
            self.how, self.data, self.codes = "large", *self._large(fuzz)

    def _request(self, fuzz: Fuzz, who: int | None) -> tuple[str, bytes]:
        """Spoilt until it is not in order."""
        r, of = self.r, self.r.randrange(CLIENTS) if self.r.random() < 0.05 else self.client_id
        for attempt in itertools.count():
            method, data = r.choice(fuzz.templates[of])
            data = (r.choice(SPOILERS) if attempt < 20 else noise)(r, data)
            if r.random() < 0.05:
                method = r.choice(list(KINDS))
            if len(data) <= fuzz.largest and fuzz.expected.codes(who, method, data) is not None:
                return method, data

    def _large(self, fuzz: Fuzz) -> tuple[bytes, set[str]]:
        if self.r.random() < 0.5:
            return bytes(fuzz.largest + self.r.choice([1, 1000, 1 << 20, 60 << 20])), {
                "RESOURCE_EXHAUSTED"
            }
        data = fuzz.templates[self.client_id][-1][1]
        return data + bytes(fuzz.largest - len(data) - self.r.choice([0, 1, 100])), {INVALID}

    def __str__(self) -> str:
        shown = self.data[:100].hex() + "…" * (len(self.data) > 100)
        size = f"{len(self.data)} bytes {shown}"
        return (
            f"{self.how}: {self.path[:100]} of client {self.client_id}, {size}, to be {self.codes}"
        )


class Fuzz:
    """A server of one variant, what it must hold, and what was found."""

    def __init__(self, variant: str, seed: int, folder: Path) -> None:
        import fedsuplin as fsl
        from fedsuplin.federation.agreement import Agreement
        from fedsuplin.federation.service import compute_largest_request

        self.variant, self.seed, self.folder, name = (
            variant,
            seed,
            folder,
            variant.partition(",")[0],
        )
        sizes = {"dim": DIM, "n_arms": ARMS, "n_clients": CLIENTS}
        self.agreement = Agreement.of(fsl.make(name, **sizes, horizon=FUZZED[variant]))
        algorithm = self.agreement.algorithm(0)
        self.together, self.doubles, self.largest = (
            algorithm.syncs == "all",
            self.agreement.doubles,
            compute_largest_request(self.agreement),
        )
        self.expected = Expected(self.agreement.fingerprint, algorithm.n_layers, self.together)
        self.genuine = Genuine(self.expected, seed)
        self.comers = [number for number in range(CLIENTS) if self.together or number != NEVER_CAME]
        self.counts: Counter[tuple[str, str]] = Counter()
        self.findings: list[str] = []
        self.tells = False  # of every request
        numbers = {"--dim": DIM, "--arms": ARMS, "--clients": CLIENTS, "--deadline": 36000}
        numbers |= {} if self.doubles else {"--horizon": FUZZED[variant]}
        self.served = Served(
            folder,
            name,
            *(str(each) for pair in numbers.items() for each in pair),
            n_clients=CLIENTS,
        )

    # --- what is right ----------------------------------------------------------------------------

    async def call(self, client_id: int, method: str, data: bytes) -> bytes:
        metadata = (("authorization", f"Bearer {self.served.tokens[client_id]}"),)
        return await self.channel.unary_unary(SERVICE + method)(data, metadata=metadata, timeout=30)

    async def begin(self) -> None:
        """Let clients join and sync, one by one or in a round; one then sends its last upload."""
        for client_id in self.comers:
            await self.call(client_id, "Join", self.genuine.join(client_id))
            self.expected.sessions[client_id], self.expected.sequences[client_id] = (
                self.genuine.sessions[client_id],
                0,
            )
        if self.together:
            await self.report()
            await self.upload()
            await self.merge_one(0, leaving=True)
        elif self.doubles:
            await self.end_epoch()
        if not self.together:
            for client_id in (0, 1, 2, 0):
                await self.merge_one(client_id)
        self.make_templates()

    async def end_epoch(self) -> None:
        """The first epoch, by an upload of all its pulls."""
        self.genuine.sync(2, more_pulls=self.agreement.algorithm(0).horizon)
        await self.merge_one(2)
        self.expected.epoch, self.expected.n_layers = 1, self.agreement.algorithm(1).n_layers
        self.genuine.begin_epoch()

    async def go_on(self) -> None:
        """What would have come next, had nothing happened."""
        if self.together:
            await self.upload()
        else:
            for client_id in self.comers:
                await self.merge_one(client_id)

    async def merge_one(self, client_id: int, leaving: bool = False) -> None:
        answer = await self.call(client_id, "Sync", self.genuine.sync(client_id, leaving))
        if answer[24] != 1:
            self.findings.append(f"a genuine upload of client {client_id} was not merged")
        self.genuine.was_merged(client_id, list(range(self.expected.n_layers)))

    async def report(self) -> None:
        """The first phase of a round; all ask for layer 0."""
        await asyncio.gather(
            *(self.call(number, "Round", self.genuine.round(number)) for number in self.comers)
        )
        self.expected.uploading = True

    async def upload(self) -> None:
        answers = await asyncio.gather(
            *(self.call(number, "Sync", self.genuine.sync(number)) for number in self.comers)
        )
        for number, answer in zip(self.comers, answers, strict=True):
            if answer[24] != 1:
                self.findings.append(
                    f"the upload of client {number} in round {self.expected.round} was not merged"
                )
            self.genuine.was_merged(number, [0])
        self.expected.round, self.expected.uploading = self.expected.round + 1, False

    def make_templates(self) -> None:
        """Return by client what is damaged: its join, its next or last upload, its round.

        The next upload comes most often, as it has the most fields.
        """
        self.templates = {}
        for number in range(CLIENTS):
            join, new = self.genuine.join(number), self.genuine.sync(number)
            asks = with_field(
                "Join", with_field("Join", join, "generation", 0), "session", bytes(16)
            )
            joins = [("Join", join), ("Join", asks)]
            rounds = [
                ("Round", self.genuine.round(number)),
                ("Round", self.genuine.round(number, ())),
            ]
            known = (
                [("Sync", self.expected.merged[number])] if number in self.expected.merged else []
            )
            last = [("Sync", with_field("Sync", new, "leaving", 1))]
            self.templates[number] = joins + rounds + known + last + [("Sync", new)] * 4

    # --- what must not change ---------------------------------------------------------------------

    async def state(self) -> dict[str, bytes | list]:
        """All that the server tells those who join again, and all that is in its store."""
        joins = {
            f"join of client {number}": await self.call(number, "Join", self.genuine.join(number))
            for number in self.comers
        }
        return joins | tables(self.folder)

    async def check(self, sent: range) -> None:
        if self.served.process.poll() is not None:
            raise SystemExit(
                f"{self.variant}: THE SERVER HAS ENDED, with "
                f"{self.served.process.returncode}, in {sent}"
            )
        for name, value in (await self.state()).items():
            if value != self.before[name]:
                self.findings.append(f"{name} has CHANGED in {sent}")

    def check_sums(self, known: dict[str, bytes | list]) -> None:
        """The sums in the store are those of the genuine uploads."""
        facts = dict(known["facts"])
        if facts["total_pulls"] != self.genuine.pulls:
            self.findings.append(
                f"{facts['total_pulls']} pulls are in the sums, {self.genuine.pulls} were uploaded"
            )
        for layer, gram, moment in known["layers"]:
            ridge = (
                self.agreement.algorithm(self.expected.epoch).setting.ridge
                * np.eye(DIM)[np.triu_indices(DIM)]
            )
            off = np.abs(np.frombuffer(gram, "<f8") - ridge - self.genuine.grams[layer]).max()
            off = max(off, np.abs(np.frombuffer(moment, "<f8") - self.genuine.moments[layer]).max())
            if off > 1e-12:
                self.findings.append(f"the sums of layer {layer} are off by {off:.3g}")

    def check_log(self) -> None:
        """No unexpected event, and no token."""
        text = (self.folder / "log").read_text(errors="replace")
        for number, token in self.served.tokens.items():
            if token in text:
                self.findings.append(f"the log has the token of client {number}")
        for line in self.served.log():
            if line["level"] not in ("info", "warning") or "traceback" in line:
                self.findings.append(f"the log has {line}")

    # --- fire -------------------------------------------------------------------------------------

    async def run(self, first: range, second: range) -> None:
        """Send the requests in two parts.

        In the second, clients that sync together have reported their round, and the server waits
        for their uploads.
        """
        import grpc

        try:
            async with self.served.channel() as self.channel:
                await self.begin()
                self.before = await self.state()
                self.check_sums(self.before)
                await self.fire(first)
                if self.together:
                    await self.report()
                await self.fire(second)
                await self.go_on()
                self.check_sums(await self.state())
        except grpc.aio.AioRpcError as error:
            self.findings.append(
                f"a client that was in order was refused: {error.code().name} ({error.details()})"
            )
        if code := self.served.stop():
            self.findings.append(f"the server ended with {code}")
        self.check_log()

    async def fire(self, numbers: range) -> None:
        for start in range(numbers.start, numbers.stop, CHECK_EVERY):
            part = range(start, min(start + CHECK_EVERY, numbers.stop))
            left = iter(part)
            await asyncio.gather(*(self.throw_all(left) for _ in range(AT_A_TIME)))
            await self.check(part)

    async def throw_all(self, left: Iterator[int]) -> None:
        for number in left:
            await self.throw(number)

    async def throw(self, number: int) -> None:
        case = Case(self.seed, number, self)
        code, details, answer = await (
            self.knock(case) if case.how == "no gRPC" else self.send(case)
        )
        self.counts[case.how, code] += 1
        if code not in case.codes:
            self.findings.append(f"--only {number}: {code} ({details[:200]}) to {case}")
        elif code == OK and (wrong := self.wrong_answer(case, answer)):
            self.findings.append(f"--only {number}: {wrong} to {case}")
        if self.tells:
            print(f"{self.variant}: {code} ({details}) to {case}")

    def wrong_answer(self, case: Case, answer: bytes) -> str:
        """Send valid requests that change nothing: repeated joins, uploads and past rounds."""
        fields = read(case.method, case.data)
        is_there = case.method == "Join" and fields["session"] == self.expected.sessions.get(
            fields["client_id"]
        )
        if is_there and answer != self.before[f"join of client {fields['client_id']}"]:
            return "another answer than to the join before"
        if case.method == "Sync" and answer[24] != (case.data in self.expected.merged.values()):
            return "merged, which it was not, or the other way round"
        return ""

    async def send(self, case: Case) -> tuple[str, str, bytes]:
        import grpc

        given = {"metadata": case.metadata, "timeout": case.timeout}
        try:
            if case.messages == 1:
                answer = await self.channel.unary_unary(case.path)(case.data, **given)
            else:
                messages = [case.data, self.genuine.sync(case.client_id)][: case.messages]
                answer = await self.channel.stream_unary(case.path)(iter(messages), **given)
        except grpc.aio.AioRpcError as error:
            if case.messages == 2 and error.details() == "Internal error from Core":
                return (
                    "not sent",
                    "",
                    b"",
                )  # grpc's client says so when the call is over before its second message is out
            return error.code().name, error.details() or "", b""
        return OK, "", answer

    async def knock(self, case: Case) -> tuple[str, str, bytes]:
        """Bytes that are no call, to the same port; what comes back is not looked at."""
        host, _, port = self.served.target.rpartition(":")
        with contextlib.suppress(ConnectionError, TimeoutError):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(case.data)
                await asyncio.wait_for(reader.read(1000), 0.05)
            finally:
                writer.close()
                await writer.wait_closed()
        return "closed", "", b""


def tables(folder: Path) -> dict[str, list]:
    """What is in the store, of a copy, as the server has the file to itself."""
    with tempfile.TemporaryDirectory() as name:
        for file in folder.glob("server.db*"):
            shutil.copy(file, name)
        with contextlib.closing(sqlite3.connect(Path(name) / "server.db")) as store:
            return {
                table: store.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
                for table in ("facts", "layers", "clients")
            }


def main(requests: int, seed: int, only: int | None = None) -> int:
    """How many findings."""
    began, findings, counts = time.perf_counter(), [], Counter()
    for at, variant in enumerate(FUZZED):
        share = len(range(at, requests, len(FUZZED)))
        parts = (
            (range(share // 2), range(share // 2, share))
            if only is None
            else [range(only, only + 1)] * 2
        )
        with tempfile.TemporaryDirectory() as name:
            fuzz = Fuzz(variant, seed, Path(name))
            fuzz.tells = only is not None
            try:
                asyncio.run(fuzz.run(*parts))
            finally:
                fuzz.served.process.kill()
                fuzz.served.process.wait()
                fuzz.served.process.stdout.close()
        findings += [f"{variant}: {each}" for each in fuzz.findings]
        counts += fuzz.counts
        print(
            f"{variant}: "
            + ", ".join(f"{count} {code}" for code, count in by_code(fuzz.counts).most_common()),
            flush=True,
        )
    for how in sorted({how for how, _ in counts}):
        print(
            f"{how:>16}: "
            + ", ".join(
                f"{counts[each, code]} {code}" for each, code in sorted(counts) if each == how
            )
        )
    for line in findings[:20]:
        print(line)
    minutes = (time.perf_counter() - began) / 60
    print(
        f"{sum(counts.values())} requests of seed {seed} in {minutes:.1f} minutes: "
        f"{len(findings)} findings"
    )
    return len(findings)


def by_code(counts: Counter[tuple[str, str]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, code), count in counts.items():
        found[code] += count
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="send this request alone, to each of the servers")
    given = parser.parse_args()
    sys.exit(bool(main(given.requests, given.seed, given.only)))
