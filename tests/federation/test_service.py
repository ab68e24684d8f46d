"""The server over the network: credentials, commits of many uploads, and rounds."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import random
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import urllib.request
from collections import Counter

import grpc
import numpy as np
import pytest
import trustme
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from grpc_health.v1 import health_pb2, health_pb2_grpc

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.errors import InvalidInput
from fedsuplin.federation.addresses import parse_server_url
from fedsuplin.federation.agreement import Agreement
from fedsuplin.federation.barrier import Barrier
from fedsuplin.federation.credentials import (
    Listening,
    Tokens,
    hash_token,
    make_channel_credentials,
    make_metadata,
    write_token_hashes,
)
from fedsuplin.federation.ledger import Ledger
from fedsuplin.federation.refusals import Refused
from fedsuplin.federation.service import (
    MOST_CALLS_PER_CLIENT,
    AnswerEncoder,
    Service,
    compute_largest_request,
    serve,
)
from fedsuplin.federation.telemetry import JsonLinesFormatter
from fedsuplin.federation.wire import (
    METHODS,
    PATHS,
    JoinAnswer,
    JoinRequest,
    RoundAnswer,
    RoundRequest,
    SyncAnswer,
    SyncRequest,
)
from fedsuplin.live.messages import Upload

DIM, ARMS, CLIENTS = 3, 4, 3
ANSWERS = {"Join": JoinAnswer, "Sync": SyncAnswer, "Round": RoundAnswer}
TOKENS = {number: f"token-of-{number}" for number in range(CLIENTS)}
FULL = sqlite3.OperationalError("database or disk is full")
COMMAND = [sys.executable, "-m", "fedsuplin"]


def in_loop(test):
    """A test that is a coroutine; it may take half a minute, never for ever."""

    @functools.wraps(test)
    def run(*arguments, **keywords):
        asyncio.run(asyncio.wait_for(test(*arguments, **keywords), 30))

    return run


# --- clients, as plain as can be ------------------------------------------------------------------


class Someone:
    """A client that sends exactly what a test asks for."""

    def __init__(self, agreement, number, session=None, seed=0):
        self.agreement, self.number, self.session, self.sequence = (
            agreement,
            number,
            session or os.urandom(16),
            0,
        )
        self.client = fsl.Client(agreement.algorithm(0), client_id=number)
        self.random = np.random.default_rng((number, seed))

    def pull(self, times=1):
        for _ in range(times):
            contexts = self.random.normal(size=(ARMS, DIM))
            contexts /= np.linalg.norm(contexts, axis=1)[:, None]
            self.client.observe(self.client.select(contexts), self.random.normal())
        return self

    def join(self, generation=1):
        return JoinRequest(self.number, self.session, generation=generation)

    def report(self, round_=0, asking=(), epoch=0):
        return RoundRequest(
            self.agreement.fingerprint, self.session, self.number, epoch, round_, tuple(asking)
        )

    def upload(self, round_=0, leaving=False, epoch=0):
        self.sequence += 1
        sent = self.client.upload()
        return SyncRequest(
            self.agreement.fingerprint, self.session, self.sequence, epoch, round_, leaving, sent
        )


@functools.cache
def agreement_of(variant="async", horizon=3000):
    return Agreement.of(fsl.make(variant, dim=DIM, n_arms=ARMS, n_clients=CLIENTS, horizon=horizon))


def everyone(agreement):
    return [Someone(agreement, number) for number in range(CLIENTS)]


def state(ledger):
    """All that a request could change."""
    known = ledger.download()
    counts = (ledger.epoch, ledger.round, ledger.n_syncs, ledger.communication, ledger.total_pulls)
    return counts, json.dumps(ledger.clients()), known.grams.tobytes(), known.moments.tobytes()


# --- a server, and calls --------------------------------------------------------------------------


class Running:
    """A service in this loop, with what tests look at."""

    def __init__(self, made, ledger, address):
        self.service, self.ledger, self.address = made, ledger, address
        self.target, self.metrics = (
            address.partition("://")[2],
            made.metrics.registry.get_sample_value,
        )
        self._channels = []

    def channel(self, credentials_=None):
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        made = grpc.aio.secure_channel(self.target, credentials_, options) if credentials_ else None
        self._channels.append(made or grpc.aio.insecure_channel(self.target, options))
        return self._channels[-1]

    @functools.cached_property
    def usual(self):
        return self.channel()

    async def call(self, method, message, token=None, *, channel=None, metadata=None):
        """The answer to a message, or to bytes."""
        data = message if isinstance(message, bytes) else message.to_bytes()
        metadata = (
            (("authorization", f"Bearer {token}"),)
            if metadata is None and token is not None
            else metadata
        )
        data = await (channel or self.usual).unary_unary(PATHS[method])(
            data, metadata=metadata, timeout=20
        )
        return ANSWERS[method].from_bytes(data)

    async def refusal(self, method, message, token=None, **options):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(method, message, token, **options)
        return caught.value.code().name, caught.value.details()

    async def join(self, *people):
        for someone in people:
            await self.call("Join", someone.join(), TOKENS[someone.number])

    async def close(self):
        for channel in self._channels:
            await channel.close()


@contextlib.asynccontextmanager
async def serving(folder, variant="async", *, ledger=None, **listening):
    """A server on loopback; three tokens unless something else is said."""
    if "tokens" not in listening:
        listening["tokens"] = folder / "tokens.json"
        write_token_hashes(listening["tokens"], TOKENS)
    listening = {name: value for name, value in listening.items() if value is not None}
    with contextlib.closing(
        ledger or Ledger(folder / "server.db", agreement_of(variant))
    ) as ledger:
        made = Service(ledger, Listening(**listening))
        try:
            running = Running(made, ledger, await made.start())
            try:
                yield running
            finally:
                await running.close()
        finally:
            await made.stop()


# --- tokens ------------------------------------------------------------------------

BAD = {
    "nothing": (),
    "a wrong token": (("authorization", "Bearer token-of-no-client"),),
    "no token after the word": (("authorization", "Bearer "),),
    "a token without the word": (("authorization", TOKENS[0]),),
    "another scheme": (("authorization", f"Basic {TOKENS[0]}"),),
    "two tokens": (
        ("authorization", f"Bearer {TOKENS[0]}"),
        ("authorization", f"Bearer {TOKENS[1]}"),
    ),
    "a hash instead of its token": (("authorization", f"Bearer {hash_token(TOKENS[0])}"),),
    "a token in another header": (("token", TOKENS[0]),),
    "a token with a blank": (("authorization", f"Bearer  {TOKENS[0]}"),),
    "a long token": (("authorization", "Bearer " + "x" * 5000),),
}


@pytest.mark.parametrize("why", BAD)
@in_loop
async def test_without_a_valid_token_nothing_can_be_read_or_written(tmp_path, why):
    someone = Someone(agreement_of(), 0).pull()
    questions = {"Join": someone.join(), "Sync": someone.upload(), "Round": someone.report()}
    async with serving(tmp_path) as running:
        await running.join(someone)
        before = state(running.ledger)
        for method in METHODS:
            code, text = await running.refusal(method, questions[method], metadata=BAD[why])
            assert (code, text) == (
                "UNAUTHENTICATED",
                "no valid credentials: a call needs the token or the certificate of a client",
            )
            assert (await running.refusal(method, b"nonsense", metadata=BAD[why]))[
                0
            ] == "UNAUTHENTICATED"
        assert state(running.ledger) == before


@in_loop
async def test_who_is_not_let_in_is_sent_away_before_a_byte_of_the_request_is_read(tmp_path):
    async with serving(tmp_path) as running:
        call = running.usual.stream_unary(PATHS["Sync"])()  # a request that never comes
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert running.metrics("fedsuplin_received_bytes_total") == 0


@in_loop
async def test_a_token_of_one_client_cannot_act_as_another(tmp_path):
    mine, other = Someone(agreement_of(), 0).pull(), Someone(agreement_of(), 1).pull()
    questions = {
        "Join": Someone(agreement_of(), 1).join(),
        "Sync": other.upload(),
        "Round": other.report(),
    }
    async with serving(tmp_path) as running:
        await running.join(mine, other)
        before = state(running.ledger)
        for method, question in questions.items():
            refusal = await running.refusal(method, question, TOKENS[0])
            assert refusal == ("PERMISSION_DENIED", "client 0 can't act for client 1")
        assert state(running.ledger) == before
        assert (await running.call("Sync", questions["Sync"], TOKENS[1])).merged


@in_loop
async def test_tokens_are_in_no_log_line_and_in_no_error_message(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "fedsuplin.federation")
    someone = Someone(agreement_of(), 0)
    async with serving(tmp_path) as running:
        texts = [
            (await running.refusal("Join", someone.join(), token))[1]
            for token in ("a-wrong-secret", "Bearer a-wrong-secret")
        ]
        texts += [
            (await running.refusal("Join", b"", TOKENS[0]))[1],
            (await running.refusal("Round", b"x", TOKENS[0]))[1],
        ]
        await running.join(someone)
    lines = [service_line(record) for record in caplog.records]
    assert {line["event"] for line in lines} == {"listening", "refused", "joined", "stopped"}
    logged = json.dumps(lines) + " ".join(texts)
    assert not [
        secret
        for secret in ("a-wrong-secret", *TOKENS.values(), *map(hash_token, TOKENS.values()))
        if secret in logged
    ]


def service_line(record):
    return json.loads(JsonLinesFormatter().format(record))


@in_loop
async def test_refusals_are_logged_once_a_second_for_each_client_and_counted_every_time(
    tmp_path, caplog
):
    caplog.set_level(logging.INFO, "fedsuplin.federation")
    async with serving(tmp_path) as running:
        for _ in range(20):
            await running.refusal("Join", b"nonsense", TOKENS[1])
        assert running.metrics("fedsuplin_refused_total", {"reason": "malformed"}) == 20
    refused = [
        line for record in caplog.records if (line := service_line(record))["event"] == "refused"
    ]
    assert 1 <= len(refused) < 10
    assert {(line["client"], line["reason"], line["method"]) for line in refused} == {
        (1, "malformed", "Join")
    }


@in_loop
async def test_a_stranger_can_not_make_the_server_hold_much(tmp_path):
    """Health is open to all; what is longer than any upload is not read."""
    async with serving(tmp_path) as running:
        asks = running.usual.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asks(b"\n" + bytes(compute_largest_request(agreement_of())))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        upload = Someone(agreement_of(), 0).pull(200).upload()
        assert len(upload.to_bytes()) <= compute_largest_request(agreement_of())


@in_loop
async def test_health_is_open_to_all_and_says_no_more_than_that_it_serves(tmp_path):
    async with serving(tmp_path) as running:
        health = health_pb2_grpc.HealthStub(running.usual)
        for name in ("", "fedsuplin.v1.Federation"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer == health_pb2.HealthCheckResponse(
                status=health_pb2.HealthCheckResponse.SERVING
            )


# --- certificates ------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority, tmp_path_factory):
    """The server's files, and `client(name, ca)`, which makes what a client calls with."""
    folder = tmp_path_factory.mktemp("tls")
    files = {"tls_cert": folder / "server.pem", "tls_key": folder / "server.key"}
    made = authority.issue_cert("127.0.0.1", "localhost")
    made.cert_chain_pems[0].write_to_path(files["tls_cert"])
    made.private_key_pem.write_to_path(files["tls_key"])
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return files, folder / "ca.pem"


def client_credentials(tls, folder, name=None, ca=None):
    """Of a client that believes the server, and has a certificate for `name`."""
    if name is None:
        return make_channel_credentials(tls[1])
    made = ca.issue_cert("client.example.org", common_name=name)
    made.cert_chain_pems[0].write_to_path(folder / "client.pem")
    made.private_key_pem.write_to_path(folder / "client.key")
    return make_channel_credentials(tls[1], folder / "client.pem", folder / "client.key")


@in_loop
async def test_a_client_with_a_certificate_of_the_authority_is_who_its_common_name_says(
    tmp_path, tls, authority
):
    someone = Someone(agreement_of(), 1).pull()
    async with serving(tmp_path, tokens=None, client_ca=tls[1], **tls[0]) as running:
        assert running.address.startswith("grpcs://127.0.0.1:")
        channel = running.channel(client_credentials(tls, tmp_path, "client-1", authority))
        await running.call("Join", someone.join(), channel=channel)
        assert (await running.call("Sync", someone.upload(), channel=channel)).merged
        before = state(running.ledger)
        other = Someone(agreement_of(), 0)
        for method, question in {
            "Join": other.join(),
            "Sync": other.pull().upload(),
            "Round": other.report(),
        }.items():
            refusal = await running.refusal(method, question, channel=channel)
            assert refusal == ("PERMISSION_DENIED", "client 1 can't act for client 0")
        assert state(running.ledger) == before


@pytest.mark.parametrize(
    "name",
    ["client-", "client-01", "client--1", "client-1 ", "xclient-1", "client-1x", "1", "client-٣"],
)
@in_loop
async def test_a_certificate_for_another_name_lets_nobody_in(tmp_path, tls, authority, name):
    async with serving(tmp_path, tokens=None, client_ca=tls[1], **tls[0]) as running:
        channel = running.channel(client_credentials(tls, tmp_path, name, authority))
        assert (await running.refusal("Join", Someone(agreement_of(), 1).join(), channel=channel))[
            0
        ] == "UNAUTHENTICATED"


@in_loop
async def test_without_a_certificate_of_the_authority_there_is_no_connection(tmp_path, tls):
    someone = Someone(agreement_of(), 1)
    async with serving(tmp_path, tokens=None, client_ca=tls[1], **tls[0]) as running:
        before = state(running.ledger)
        another = client_credentials(tls, tmp_path, "client-1", trustme.CA())
        for calls_with in (another, client_credentials(tls, tmp_path), None):
            channel = running.channel(calls_with)
            assert (await running.refusal("Join", someone.join(), TOKENS[1], channel=channel))[
                0
            ] == "UNAVAILABLE"
        assert state(running.ledger) == before


@in_loop
async def test_a_client_that_does_not_know_the_servers_authority_does_not_tell_it_its_token(
    tmp_path, tls
):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    async with serving(tmp_path, **tls[0]) as running:
        channel = running.channel(make_channel_credentials(tmp_path / "other.pem"))
        assert (
            await running.refusal(
                "Join", Someone(agreement_of(), 1).join(), TOKENS[1], channel=channel
            )
        )[0] == "UNAVAILABLE"


@in_loop
async def test_a_tls_port_takes_tokens_and_nothing_in_plain_text(tmp_path, tls):
    someone = Someone(agreement_of(), 1)
    async with serving(tmp_path, **tls[0]) as running:
        encrypted = running.channel(client_credentials(tls, tmp_path))
        await running.call("Join", someone.join(), TOKENS[1], channel=encrypted)
        assert (await running.refusal("Join", someone.join(), channel=encrypted))[
            0
        ] == "UNAUTHENTICATED"
        assert (await running.refusal("Join", someone.join(), TOKENS[1]))[0] == "UNAVAILABLE"


@in_loop
async def test_with_tokens_and_an_authority_a_client_needs_both_and_of_the_same_client(
    tmp_path, tls, authority
):
    someone = Someone(agreement_of(), 1)
    async with serving(tmp_path, client_ca=tls[1], **tls[0]) as running:
        channel = running.channel(client_credentials(tls, tmp_path, "client-1", authority))
        await running.call("Join", someone.join(), TOKENS[1], channel=channel)
        for token in (None, "wrong", TOKENS[0]):
            assert (await running.refusal("Join", someone.join(), token, channel=channel))[
                0
            ] == "UNAUTHENTICATED"


# --- where it listens -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"address": "0.0.0.0:0", "tokens": "t"}, "0.0.0.0 is not a loopback address"),
        ({"address": "[::]:0", "tokens": "t"}, ":: is not a loopback address"),
        ({"address": "192.168.1.5:0", "tokens": "t"}, "--plaintext"),
        ({"address": "example.org:0", "tokens": "t"}, "example.org is not a loopback address"),
        ({"address": "localhost.example.org:0", "tokens": "t"}, "is not a loopback address"),
        ({"address": "127.0.0.1", "tokens": "t"}, "HOST:PORT"),
        ({"address": "127.0.0.1:99999", "tokens": "t"}, "HOST:PORT"),
        ({"address": "unix:/tmp/socket", "tokens": "t"}, "HOST:PORT"),
        ({"address": None, "tokens": "t"}, "HOST:PORT"),
        ({}, "no client could connect"),
        ({"tls_cert": "a", "tls_key": "b"}, "no client could connect"),
        ({"plaintext": True}, "no client could connect"),
        ({"tls_cert": "a", "tokens": "t"}, "TLS needs both"),
        ({"tls_key": "a", "tokens": "t"}, "TLS needs both"),
        ({"client_ca": "a"}, "need TLS"),
        (
            {"tls_cert": "a", "tls_key": "b", "tokens": "t", "plaintext": True},
            "either a certificate",
        ),
        ({"tokens": "t", "deadline": 0}, "deadline must be"),
        ({"tokens": "t", "deadline": float("nan")}, "deadline must be"),
        ({"tokens": "t", "metrics_address": "here"}, "HOST:PORT"),
    ],
)
def test_a_server_that_would_be_open_or_makes_no_sense_is_refused(given, words):
    with pytest.raises(InvalidInput, match=re.escape(words)):
        Listening(**given)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.8.9.10:1", "localhost:5", "[::1]:0"])
def test_on_loopback_tokens_are_enough(address):
    assert not Listening(address, tokens="t").tls


@in_loop
async def test_off_loopback_there_is_plain_text_if_somebody_asks_for_it_by_name(tmp_path):
    async with serving(tmp_path, address="0.0.0.0:0", plaintext=True) as running:
        assert running.address.startswith("grpc://0.0.0.0:")
        await running.join(Someone(agreement_of(), 0))


@in_loop
async def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_behind(tmp_path):
    async with serving(tmp_path) as running:
        (tmp_path / "second").mkdir()
        with pytest.raises(InvalidInput, match="can't listen on .*in use"):
            async with serving(tmp_path / "second", address=running.target):
                pass
        with pytest.raises(InvalidInput, match="can't serve metrics"):
            async with serving(tmp_path / "second", metrics_address=running.target):
                pass


@pytest.mark.parametrize(("file", "content", "words"), [
    ("tls_key", b"nonsense", "are not a certificate and its key"),
    ("tls_key", None, "can't read"),
    ("tls_cert", b"", "are not a certificate and its key"),
    ("client_ca", b"nonsense", "holds no certificates"),
])  # fmt: skip
@in_loop
async def test_files_of_certificates_that_are_wrong_are_named(tmp_path, tls, file, content, words):
    wrong = tmp_path / "wrong.pem"
    if content is not None:
        wrong.write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        async with serving(tmp_path, **(tls[0] | {file: wrong})):
            pass


@pytest.mark.parametrize("content", [
    "", "nonsense", "[]", "{}", '{"0": 5}', '{"a": "' + "0" * 64 + '"}',
    '{"-1": "' + "0" * 64 + '"}', '{"0": "abc"}',
    '{"0": "secret-token-that-is-no-hash"}', '{"0": "' + "0" * 64 + '", "1": "' + "0" * 64 + '"}',
    '{"00": "' + "0" * 64 + '"}',
])  # fmt: skip
def test_a_file_of_tokens_that_is_none_is_refused_without_telling_what_is_in_it(tmp_path, content):
    file = tmp_path / "tokens.json"
    file.write_text(content)
    with pytest.raises(InvalidInput) as caught:
        Tokens.read(file)
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidInput, match="can't read the tokens"):
        Tokens.read(tmp_path / "nowhere.json")


@pytest.mark.parametrize(("address", "words"), [
    ("http://localhost:1", "must be grpcs://"), ("localhost:1", "must be grpcs://"),
    (5, "must be grpcs://"),
    ("grpc://example.org:1", "not a loopback"),
    ("grpcs://example.org", "HOST:PORT"), ("grpcs://a b:1", "HOST:PORT"),
])  # fmt: skip
def test_a_client_does_not_send_its_token_in_plain_text_off_loopback(address, words):
    with pytest.raises(InvalidInput, match=words):
        parse_server_url(address)
    assert parse_server_url("grpc://example.org:1", plaintext=True) == ("example.org:1", False)
    assert parse_server_url("grpc://[::1]:1") == ("[::1]:1", False)


def test_a_clients_certificate_needs_its_key_and_one_without_a_password(tmp_path, tls):
    with pytest.raises(InvalidInput, match="pass both cert and key"):
        make_channel_credentials(tls[1], cert=tls[0]["tls_cert"])
    key = serialization.load_pem_private_key(tls[0]["tls_key"].read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    forms = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "locked.key").write_bytes(key.private_bytes(*forms, locked))
    with pytest.raises(InvalidInput, match="the key has a password"):
        make_channel_credentials(tls[1], tls[0]["tls_cert"], tmp_path / "locked.key")
    assert make_metadata(None) == ()


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ünicode", b"bytes", "x" * 600])
def test_a_token_that_could_not_be_sent_is_refused_without_being_repeated(token):
    with pytest.raises(InvalidInput, match="^a token is a word of ASCII"):
        make_metadata(token)


# --- what is no request ---------------------------------------------------------------------------


@in_loop
async def test_bytes_that_are_no_request_are_invalid_and_change_nothing(tmp_path):
    someone = Someone(agreement_of(), 0).pull()
    good = {
        "Join": someone.join().to_bytes(),
        "Sync": someone.upload().to_bytes(),
        "Round": someone.report().to_bytes(),
    }
    draws = random.Random(0)
    async with serving(tmp_path) as running:
        await running.join(someone)
        before = state(running.ledger)
        for method in METHODS:
            other_kinds = [good[other] for other in METHODS if other != method]
            unknown_kind = good[method][:6] + b"\xff\xff" + good[method][8:]
            newer = good[method][:4] + b"\x63\x00" + good[method][6:]
            cut = [good[method][: draws.randrange(len(good[method]))] for _ in range(10)]
            noise = [draws.randbytes(draws.randrange(200)) for _ in range(10)]
            for data in (
                b"",
                *other_kinds,
                unknown_kind,
                newer,
                *cut,
                *noise,
                good[method] + b"\0",
            ):
                code, text = await running.refusal(method, data, TOKENS[0])
                assert code == "INVALID_ARGUMENT", (method, data, text)
        at = (
            len(good["Sync"]) - len(someone.client.upload().to_bytes()) + 8 + 4
        )  # of the dimension and the number of layers
        for sizes in (b"\xff" * 8, b"\xff\x7f\0\0\xff\x03\0\0", b"\0" * 8):
            huge = good["Sync"][:at] + sizes + good["Sync"][at + 8 :]
            assert (await running.refusal("Sync", huge, TOKENS[0]))[0] == "INVALID_ARGUMENT"
        assert (
            await running.refusal(
                "Sync", bytes(compute_largest_request(agreement_of()) + 1), TOKENS[0]
            )
        )[0] == "RESOURCE_EXHAUSTED"
        assert state(running.ledger) == before
        assert (await running.call("Sync", good["Sync"], TOKENS[0])).merged


@in_loop
async def test_each_reason_to_refuse_has_its_code(tmp_path):
    someone, other = (
        Someone(agreement_of(), 0).pull(),
        Someone(agreement_of(horizon=4000), 0).pull(),
    )
    async with serving(tmp_path) as running:
        upload = someone.upload()
        assert (await running.refusal("Sync", upload, TOKENS[0]))[
            0
        ] == "FAILED_PRECONDITION"  # before it has joined
        await running.join(someone)
        other.session = someone.session
        assert (await running.refusal("Sync", other.upload(), TOKENS[0]))[
            0
        ] == "FAILED_PRECONDITION"  # another algorithm
        upload.upload.grams[...] = -1
        code, text = await running.refusal("Sync", upload, TOKENS[0])
        assert code == "INVALID_ARGUMENT" and "trace" in text
        assert (await running.refusal("Round", someone.report(), TOKENS[0]))[
            0
        ] == "INVALID_ARGUMENT"  # there are no rounds
        assert running.metrics("fedsuplin_refused_total", {"reason": "implausible"}) == 1


@in_loop
async def test_a_call_without_a_message_is_invalid(tmp_path):
    async def nothing():
        return
        yield

    async with serving(tmp_path) as running:
        call = running.usual.stream_unary(PATHS["Join"])(
            nothing(), metadata=(("authorization", f"Bearer {TOKENS[0]}"),)
        )
        with pytest.raises(grpc.aio.AioRpcError, match="a call without a message"):
            await call


@in_loop
async def test_there_are_no_rounds_in_an_epoch_that_is_over_either(tmp_path):
    agreement = Agreement.of(
        fsl.make("async", dim=DIM, n_arms=ARMS, n_clients=CLIENTS, horizon=None)
    )
    someone = Someone(agreement, 0).pull(agreement.algorithm(0).horizon)
    async with serving(tmp_path, ledger=Ledger(tmp_path / "server.db", agreement)) as running:
        await running.join(someone)
        assert (await running.call("Sync", someone.upload(), TOKENS[0])).epoch == 1
        code, text = await running.refusal("Round", someone.report(), TOKENS[0])
        assert code == "INVALID_ARGUMENT" and "there are no rounds" in text
        assert running.metrics("fedsuplin_epoch") == 1


@in_loop
async def test_serve_tells_its_address_and_stops_gracefully_when_it_is_cancelled(tmp_path):
    write_token_hashes(tmp_path / "tokens.json", TOKENS)
    addresses = asyncio.Queue()
    with contextlib.closing(Ledger(tmp_path / "server.db", agreement_of())) as ledger:
        listening = Listening(tokens=tmp_path / "tokens.json")
        running = asyncio.create_task(serve(ledger, listening, started=addresses.put_nowait))
        address = await addresses.get()
        async with grpc.aio.insecure_channel(parse_server_url(address)[0]) as channel:
            metadata = make_metadata(TOKENS[0])
            data = Someone(agreement_of(), 0).join().to_bytes()
            assert (
                JoinAnswer.from_bytes(
                    await channel.unary_unary(PATHS["Join"])(data, metadata=metadata)
                ).sequence
                == 0
            )
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert set(ledger.clients()) == {0}  # the ledger is still open: it is the caller's


@in_loop
async def test_an_unexpected_failure_is_reported_without_details_and_logged_with_them(
    tmp_path, caplog
):
    async with serving(tmp_path) as running:
        running.ledger.join = None
        refusal = await running.refusal("Join", Someone(agreement_of(), 0).join(), TOKENS[0])
        assert refusal == ("INTERNAL", "the server failed; its log has the reason")
    (line,) = [
        line for record in caplog.records if (line := service_line(record))["event"] == "failed"
    ]
    assert "TypeError" in line["traceback"]


@in_loop
async def test_a_token_or_certificate_of_a_client_that_the_federation_has_not_lets_nobody_in(
    tmp_path,
):
    write_token_hashes(tmp_path / "more.json", TOKENS | {3: "token-of-3"})
    async with serving(tmp_path, tokens=tmp_path / "more.json") as running:
        refusal = await running.refusal("Join", JoinRequest(3, bytes(16)), "token-of-3")
        assert refusal == ("PERMISSION_DENIED", "there is no client 3: this federation has 0 to 2")
        assert running.ledger.clients() == {}


# --- uploads go together --------------------------------------------------------------------------


class Held(Ledger):
    """A ledger that can be stopped in the middle of a commit, and whose disk can be full."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.inside, self.go, self.full, self.batches, self.poison = (
            threading.Event(),
            threading.Event(),
            False,
            [],
            None,
        )
        self.go.set()

    def sync(self, requests):
        self.inside.set()
        self.go.wait(20)
        self.batches.append([client_id for client_id, _ in requests])
        if self.full:
            raise FULL
        if self.poison in self.batches[-1]:
            raise OverflowError("an unexpected number")
        return super().sync(requests)

    def hold(self):
        self.inside.clear()
        self.go.clear()

    async def held(self):
        await asyncio.get_running_loop().run_in_executor(None, self.inside.wait, 20)


async def queued(running, n):
    """Wait until so many uploads wait for the next commit."""
    while len(running.service._commits._queue) < n:
        await asyncio.sleep(0.001)


@in_loop
async def test_uploads_that_come_during_a_commit_go_into_the_next_one_together(tmp_path):
    ledger = Held(tmp_path / "server.db", agreement_of())
    people = everyone(agreement_of())
    async with serving(tmp_path, ledger=ledger) as running, asyncio.TaskGroup() as group:
        await running.join(*people)
        ledger.hold()
        first = group.create_task(running.call("Sync", people[0].pull().upload(), TOKENS[0]))
        await ledger.held()
        rest = [
            group.create_task(running.call("Sync", each.pull().upload(), TOKENS[each.number]))
            for each in people[1:]
        ]
        await queued(running, 2)
        ledger.go.set()
        answers = [await each for each in (first, *rest)]
        assert [sorted(batch) for batch in ledger.batches] == [[0], [1, 2]]
        assert all(answer.merged for answer in answers)
        assert (
            answers[1].download.grams.tobytes()
            == answers[2].download.grams.tobytes()
            == ledger.download().grams.tobytes()
        )
        assert running.metrics("fedsuplin_commits_total") == 2
        assert running.metrics("fedsuplin_syncs_total") == ledger.n_syncs == 3


@in_loop
async def test_a_call_that_is_given_up_is_merged_all_the_same_and_once(tmp_path):
    ledger = Held(tmp_path / "server.db", agreement_of())
    people = everyone(agreement_of())
    async with serving(tmp_path, ledger=ledger) as running:
        await running.join(*people)
        ledger.hold()
        uploads = [each.pull().upload() for each in people]
        calls = [asyncio.create_task(running.call("Sync", uploads[0], TOKENS[0]))]
        await ledger.held()
        calls += [asyncio.create_task(running.call("Sync", uploads[i], TOKENS[i])) for i in (1, 2)]
        await queued(running, 2)
        calls[0].cancel()  # while it is being committed
        calls[1].cancel()  # while it waits for its turn
        again = asyncio.create_task(running.call("Sync", uploads[1], TOKENS[1]))
        await queued(running, 3)
        ledger.go.set()
        assert (await calls[2]).merged and (await again).merged
        assert (await running.call("Sync", uploads[0], TOKENS[0])).merged
        assert ledger.n_syncs == 3 and ledger.total_pulls == 3
        assert running.metrics("fedsuplin_duplicates_total") == 2
        assert ledger.batches == [[0], [1, 2], [1], [0]]


@in_loop
async def test_a_full_disk_is_told_logged_and_over_when_there_is_room(tmp_path, caplog):
    ledger = Held(tmp_path / "server.db", agreement_of())
    someone = Someone(agreement_of(), 0).pull()
    async with serving(tmp_path, ledger=ledger) as running:
        await running.join(someone)
        ledger.full, upload, before = True, someone.upload(), state(ledger)
        code, text = await running.refusal("Sync", upload, TOKENS[0])
        assert (code, "disk is full" in text, "nothing was merged" in text) == (
            "UNAVAILABLE",
            True,
            True,
        )
        assert state(ledger) == before
        ledger.full = False
        assert (await running.call("Sync", upload, TOKENS[0])).merged
    (line,) = [
        line for record in caplog.records if (line := service_line(record))["event"] == "refused"
    ]
    assert (line["reason"], line["level"]) == ("store", "error")


@in_loop
async def test_an_upload_on_which_the_server_fails_does_not_keep_others_from_being_merged(
    tmp_path, caplog
):
    ledger = Held(tmp_path / "server.db", agreement_of())
    people = everyone(agreement_of())
    async with serving(tmp_path, ledger=ledger) as running, asyncio.TaskGroup() as group:
        await running.join(*people)
        ledger.poison = 1
        ledger.hold()
        first = group.create_task(running.call("Sync", people[0].pull().upload(), TOKENS[0]))
        await ledger.held()
        good = group.create_task(running.call("Sync", people[2].pull().upload(), TOKENS[2]))
        bad = group.create_task(running.refusal("Sync", people[1].pull().upload(), TOKENS[1]))
        await queued(running, 2)
        ledger.go.set()
        assert (await first).merged and (await good).merged and (await bad)[0] == "INTERNAL"
        people[1].sequence, ledger.poison = 2**64 - 2, None
        assert (await running.refusal("Sync", people[1].upload(), TOKENS[1]))[
            0
        ] == "INVALID_ARGUMENT"
        assert (ledger.n_syncs, ledger.total_pulls) == (2, 2)


@in_loop
async def test_a_client_with_too_many_calls_under_way_has_to_wait_and_others_do_not(tmp_path):
    ledger = Held(tmp_path / "server.db", agreement_of())
    people = everyone(agreement_of())
    async with serving(tmp_path, ledger=ledger) as running, asyncio.TaskGroup() as group:
        await running.join(*people)
        ledger.hold()
        upload = people[0].pull().upload()
        calls = [
            group.create_task(running.call("Sync", upload, TOKENS[0]))
            for _ in range(MOST_CALLS_PER_CLIENT)
        ]
        await ledger.held()
        await queued(running, MOST_CALLS_PER_CLIENT - 1)
        assert (await running.refusal("Sync", upload, TOKENS[0]))[0] == "RESOURCE_EXHAUSTED"
        other = group.create_task(running.call("Sync", people[1].pull().upload(), TOKENS[1]))
        await queued(running, MOST_CALLS_PER_CLIENT)
        ledger.go.set()
        assert all([(await call).merged for call in (*calls, other)])
        assert ledger.n_syncs == 2


@in_loop
async def test_a_server_that_stops_finishes_the_commit_and_answers(tmp_path):
    ledger = Held(tmp_path / "server.db", agreement_of())
    someone = Someone(agreement_of(), 0).pull()
    async with serving(tmp_path, ledger=ledger) as running:
        await running.join(someone)
        ledger.hold()
        call = asyncio.create_task(running.call("Sync", someone.upload(), TOKENS[0]))
        await ledger.held()
        stopping = asyncio.create_task(running.service.stop())
        while not running.service._stopping:
            await asyncio.sleep(0)
        assert (await running.refusal("Join", someone.join(), TOKENS[0]))[0] == "UNAVAILABLE"
        ledger.go.set()
        assert (await call).merged
        await stopping


def test_the_answers_of_a_batch_are_written_once(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "server.db", agreement_of())) as ledger:
        ledger_answer = ledger.answer_over()
    encoded = AnswerEncoder()
    answers = [SyncAnswer(0, 0, True, ledger_answer.download) for _ in range(3)]
    assert encoded(answers[0]) is encoded(answers[1]) is encoded(answers[2])
    assert (
        encoded(answers[0])
        == answers[0].to_bytes()
        != encoded(ledger_answer)
        == ledger_answer.to_bytes()
    )
    late = RoundAnswer(0, 0, False, ledger_answer.download)
    assert (
        encoded(late) == late.to_bytes()
        and encoded(RoundAnswer(0, 1, True)) == RoundAnswer(0, 1, True).to_bytes()
    )


@in_loop
async def test_metrics_are_shown_on_http(tmp_path, caplog):
    caplog.set_level(logging.INFO, "fedsuplin.federation")
    someone = Someone(agreement_of(), 0).pull()
    async with serving(tmp_path, metrics_address="127.0.0.1:0") as running:
        await running.join(someone)
        await running.call("Sync", someone.upload(), TOKENS[0])
        (line,) = [
            line
            for record in caplog.records
            if (line := service_line(record))["event"] == "listening"
        ]

        def read():
            with urllib.request.urlopen(line["metrics"], timeout=10) as answer:
                return answer.read().decode()

        shown = await asyncio.get_running_loop().run_in_executor(None, read)
    assert "fedsuplin_syncs_total 1.0" in shown and "fedsuplin_clients_seen 1.0" in shown
    assert 'fedsuplin_call_seconds_count{method="Sync"} 1.0' in shown


# --- rounds: those who sync together, without a network -------------------------------------------


class Table:
    """A barrier over a ledger, and people who have joined."""

    def __init__(self, folder, agreement=None, deadline=20.0):
        self.agreement = agreement or agreement_of("sync")
        self.ledger = Ledger(folder / "server.db", self.agreement)
        self.people, self.deadline, self.trouble = everyone(self.agreement), deadline, None
        for each in self.people:
            self.ledger.join(each.number, each.join())
        self.begin()

    def begin(self):
        self.failing, self.may_close = False, asyncio.Event()
        self.may_close.set()
        self.barrier = Barrier(self.ledger, self.work, self.deadline)

    async def work(self, function, *arguments):
        await asyncio.sleep(0)  # others get their turn, as with a thread
        if function == self.barrier._close_round:
            await self.may_close.wait()
        if (
            self.failing
            and function == self.barrier._close_round
            or self.trouble
            and self.trouble.random() < 0.03
        ):
            raise FULL
        return function(*arguments)

    async def sent(self, number, request):
        """An upload, as the service takes it."""
        if not request.leaving:
            return await self.barrier.upload(number, request)
        (answer,) = await self.work(self.ledger.sync, [(number, request)])
        if isinstance(answer, Refused):
            raise answer
        self.barrier.remove_clients([number], (self.ledger.epoch, self.ledger.round))
        return answer

    def restart(self):
        self.ledger.close()
        self.ledger = Ledger(self.ledger.path)
        self.begin()

    def report(self, number, round_=0, asking=(), epoch=0):
        request = self.people[number].report(round_, asking, epoch)
        return asyncio.create_task(self.barrier.report(number, request))

    def upload(self, number, round_=0, request=None):
        request = request or self.people[number].upload(round_)
        return asyncio.create_task(self.barrier.upload(number, request))

    def leave(self, number, round_=0):
        (answer,) = self.ledger.sync([(number, self.people[number].upload(round_, leaving=True))])
        assert answer.merged
        self.barrier.remove_clients([number], (self.ledger.epoch, self.ledger.round))

    def rejoin(self, number):
        self.people[number] = Someone(self.agreement, number, seed=1)
        self.ledger.join(number, self.people[number].join(generation=2))
        self.barrier.add_client(number, self.people[number].session)


@contextlib.contextmanager
def table(*arguments, **options):
    made = Table(*arguments, **options)
    try:
        yield made
    finally:
        made.ledger.close()


async def settled():
    """Wait until only calls that wait for other clients are left."""
    for _ in range(20):
        await asyncio.sleep(0)


def of(answer):
    """The round of an answer, whether uploads are wanted, and whether it has a download."""
    return answer.round, answer.wanted, answer.download is not None


@in_loop
async def test_a_round_in_which_nobody_asks_ends_when_the_last_has_reported(tmp_path):
    with table(tmp_path) as at:
        first = [at.report(number) for number in (0, 1)]
        await settled()
        assert not any(each.done() for each in first)
        answers = [await each for each in (*first, at.report(2))]
        assert list(map(of, answers)) == [(1, False, False)] * 3
        assert (at.ledger.round, at.ledger.n_syncs) == (1, 0)


@in_loop
async def test_a_round_merges_the_layers_that_were_asked_for_as_the_simulation_does(
    tmp_path,
):
    with table(tmp_path) as at:
        for someone in at.people:
            someone.pull(20)
        uploads = [someone.upload() for someone in at.people]
        reports = [
            at.report(number, asking=[0] if number == 1 else []) for number in range(CLIENTS)
        ]
        assert [of(await each) for each in reports] == [(0, True, False)] * 3
        first = [at.upload(number, request=uploads[number]) for number in (0, 2)]
        await settled()
        assert not any(each.done() for each in first)
        answers = [await each for each in (*first, at.upload(1, request=uploads[1]))]
        assert answers[0] is answers[1] is answers[2]  # so that it is written once
        assert (answers[0].merged, answers[0].round, answers[0].download.layers.tolist()) == (
            True,
            1,
            [0],
        )
        server = fsl.Server(at.agreement.algorithm(0))
        meant = server.barrier([Upload(**vars(each.upload) | {"asking": (0,)}) for each in uploads])
        assert np.array_equal(answers[0].download.grams, meant.grams)
        assert np.array_equal(answers[0].download.moments, meant.moments)
        assert (at.ledger.round, at.ledger.n_syncs, at.ledger.communication) == (1, 1, 3)


@in_loop
async def test_who_does_not_report_is_absent_after_the_deadline_and_not_waited_for_until_he_is_back(
    tmp_path,
):
    with table(tmp_path, deadline=0.05) as at:
        assert [of(await each) for each in [at.report(0), at.report(1)]] == [(1, False, False)] * 2
        at.barrier._deadline = 20.0
        assert [of(await each) for each in [at.report(0, 1), at.report(1, 1)]] == [
            (2, False, False)
        ] * 2  # at once
        assert of(await at.report(2, 0)) == (
            2,
            False,
            True,
        )  # late: where everybody is, and what is known
        others = [at.report(0, 2), at.report(1, 2)]
        await settled()
        assert not any(each.done() for each in others)  # he is present again
        assert [of(await each) for each in (*others, at.report(2, 2))] == [(3, False, False)] * 3


@in_loop
async def test_who_does_not_upload_is_absent_after_the_deadline_and_keeps_what_he_has(tmp_path):
    with table(tmp_path) as at:
        for someone in at.people:
            someone.pull()
        assert all(
            [
                (await each).wanted
                for each in [at.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        at.barrier._deadline = 0.05
        at.barrier._set_timer(True)
        assert [(await each).merged for each in [at.upload(0), at.upload(1)]] == [True, True]
        late = await at.upload(2)
        assert (late.merged, late.round, len(late.download.layers)) == (
            False,
            1,
            at.ledger.algorithm.n_layers,
        )
        assert at.ledger.clients()[2]["sequence"] == 0


@in_loop
async def test_a_round_whose_uploads_all_stay_away_ends_without_a_sync(tmp_path):
    with table(tmp_path, deadline=0.05) as at:
        assert all(
            [
                (await each).wanted
                for each in [at.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        while at.ledger.round == 0:
            await asyncio.sleep(0.01)
        assert (at.ledger.round, at.ledger.n_syncs) == (1, 0)
        at.people[0].pull()
        assert not (await at.upload(0)).merged


@in_loop
async def test_a_report_that_comes_after_the_others_were_told_to_upload_takes_part(tmp_path):
    with table(tmp_path) as at:
        for someone in at.people:
            someone.pull()
        at.barrier._expected.discard(2)
        assert all([(await each).wanted for each in [at.report(0, asking=[0]), at.report(1)]])
        first = at.upload(0)
        await settled()
        assert of(await at.report(1)) == (0, True, False)  # whose answer was lost: the same again
        assert of(await at.report(2, asking=[1])) == (0, True, False)
        second = at.upload(1)
        await settled()
        assert not first.done() and not second.done()
        answers = [await each for each in (first, second, at.upload(2))]
        assert all(answer.merged for answer in answers) and answers[0].download.layers.tolist() == [
            0,
            1,
        ]


@in_loop
async def test_an_upload_before_it_is_known_whether_somebody_asks_has_to_be_reported_again(
    tmp_path,
):
    with table(tmp_path) as at:
        for someone in at.people:
            someone.pull()
        assert all(
            [
                (await each).wanted
                for each in [at.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        at.restart()
        upload = at.people[0].upload()
        with pytest.raises(Refused, match="report round 0 again") as caught:
            await at.upload(0, request=upload)
        assert caught.value.reason == "round"
        assert all(
            [
                (await each).wanted
                for each in [at.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        assert all(
            [
                (await each).merged
                for each in [at.upload(0, request=upload), at.upload(1), at.upload(2)]
            ]
        )


@in_loop
async def test_an_upload_whose_answer_was_lost_is_told_again_that_it_is_merged(tmp_path):
    with table(tmp_path) as at:
        uploads = [someone.pull().upload() for someone in at.people]
        assert all(
            [
                (await each).wanted
                for each in [at.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        assert all(
            [
                (await each).merged
                for each in [
                    at.upload(number, request=uploads[number]) for number in range(CLIENTS)
                ]
            ]
        )
        before = at.ledger.total_pulls
        for _ in range(2):
            assert (await at.upload(1, request=uploads[1])).merged
            at.restart()
        assert at.ledger.total_pulls == before


@in_loop
async def test_calls_that_are_given_up_still_count(tmp_path):
    with table(tmp_path) as at:
        for someone in at.people:
            someone.pull()
        gone = at.report(0, asking=[0])
        await settled()
        gone.cancel()
        assert all([(await each).wanted for each in [at.report(1), at.report(2)]])
        upload = at.people[0].upload()
        gone = at.upload(0, request=upload)
        await settled()
        gone.cancel()
        assert all([(await each).merged for each in [at.upload(1), at.upload(2)]])
        assert at.ledger.clients()[0]["sequence"] == 1
        assert (await at.upload(0, request=upload)).merged


@in_loop
async def test_a_second_call_of_a_client_takes_the_place_of_the_first(tmp_path):
    with table(tmp_path) as at:
        first = at.report(0)
        await settled()
        second = at.report(0)
        with pytest.raises(Refused, match="another call of client 0"):
            await first
        assert [of(await each) for each in (at.report(1), at.report(2), second)] == [
            (1, False, False)
        ] * 3


@in_loop
async def test_who_leaves_is_merged_at_once_and_nobody_waits_for_him(tmp_path):
    with table(tmp_path) as at:
        for someone in at.people:
            someone.pull()
        first = [at.report(0, asking=[0]), at.report(1)]
        await settled()
        at.leave(2)
        assert all([(await each).wanted for each in first])
        upload = at.upload(0)
        await settled()
        gone = at.report(1)
        await settled()
        at.leave(1)
        assert (await upload).merged and (await gone).wanted
        assert of(await at.report(0, 1)) == (2, False, False)
        assert at.ledger.total_pulls == 3


@in_loop
async def test_a_call_of_somebody_who_has_left_does_not_bring_him_back(tmp_path):
    with table(tmp_path) as at:
        calls = [at.report(number) for number in (0, 2)]
        await settled()
        at.leave(2)
        with pytest.raises(Refused, match="has left this round"):
            await calls[1]
        assert [of(await each) for each in (calls[0], at.report(1))] == [(1, False, False)] * 2


@in_loop
async def test_who_comes_late_is_waited_for_from_the_next_round_on(tmp_path):
    with table(tmp_path) as at:
        at.leave(2)
        first = at.report(0)
        await settled()
        at.rejoin(2)
        assert [of(await each) for each in (first, at.report(1))] == [(1, False, False)] * 2
        others = [at.report(0, 1), at.report(1, 1)]
        await settled()
        assert not any(each.done() for each in others)
        assert [of(await each) for each in (*others, at.report(2, 1))] == [(2, False, False)] * 3


@in_loop
async def test_a_new_session_voids_what_the_one_before_said_in_this_round(tmp_path):
    with table(tmp_path) as at:
        for someone in at.people:
            someone.pull()
        assert all(
            [
                (await each).wanted
                for each in [at.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        old = at.upload(2)
        await settled()
        at.rejoin(2)
        with pytest.raises(Refused, match="this session is over"):
            await old
        assert all([(await each).merged for each in [at.upload(0), at.upload(1)]])
        assert (at.ledger.clients()[2]["sequence"], at.ledger.total_pulls) == (0, 2)


@in_loop
async def test_who_comes_while_the_round_is_closed_without_him_is_told_where_everybody_is(tmp_path):
    with table(tmp_path) as at:
        at.barrier._expected.discard(2)
        at.may_close.clear()
        first = [at.report(0), at.report(1)]
        await settled()
        late = at.report(2)
        await settled()
        assert at.barrier._closing is not None and not late.done()
        at.may_close.set()
        assert [of(await each) for each in first] == [(1, False, False)] * 2
        await settled()
        assert of(late.result()) == (1, False, True)


@in_loop
async def test_a_session_that_ends_while_the_round_is_closed_is_refused_and_the_others_merged(
    tmp_path,
):
    with table(tmp_path) as at:
        for someone in at.people:
            someone.pull()
        assert all(
            [
                (await each).wanted
                for each in [at.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        uploads = [at.upload(number) for number in range(CLIENTS)]
        while at.barrier._closing is None:
            await asyncio.sleep(0)
        at.ledger.join(
            2, Someone(at.agreement, 2).join(generation=2)
        )  # before the ledger's turn to close it
        assert [(await each).merged for each in uploads[:2]] == [True, True]
        with pytest.raises(Refused, match="this session is over"):
            await uploads[2]
        assert (at.ledger.clients()[2]["sequence"], at.ledger.total_pulls) == (0, 2)


@pytest.mark.parametrize("asking", [[], [0]])
@in_loop
async def test_a_round_that_cannot_be_written_is_told_to_all_and_ends_when_they_come_again(
    tmp_path, asking
):
    with table(tmp_path) as at:
        uploads = [someone.pull().upload() for someone in at.people]
        at.failing, before = True, state(at.ledger)

        async def come():
            tasks = [at.report(number, asking=asking) for number in range(CLIENTS)]
            if asking:
                assert all([(await each).wanted for each in tasks])
                tasks = [at.upload(number, request=uploads[number]) for number in range(CLIENTS)]
            return await asyncio.gather(*tasks, return_exceptions=True)

        assert await come() == [FULL] * CLIENTS
        assert state(at.ledger) == before
        at.failing = False
        one = at.upload(0, request=uploads[0]) if asking else at.report(0)
        await settled()
        assert (
            not one.done() and at.ledger.round == 0
        )  # all have to come again, for each is to have an answer
        one.cancel()
        assert [answer.round for answer in await come()] == [1] * CLIENTS
        assert at.ledger.n_syncs == len(asking)


@in_loop
async def test_a_barrier_that_stops_tells_those_who_wait_and_finishes_what_is_being_merged(
    tmp_path,
):
    with table(tmp_path) as at:
        waiting = at.report(0)
        await settled()
        await at.barrier.stop()
        for each in (waiting, at.report(1)):
            with pytest.raises(Refused) as caught:
                await each
            assert caught.value.reason == "stopping"
        at.restart()
        reports = [at.report(number) for number in range(CLIENTS)]
        while at.barrier._closing is None:
            await asyncio.sleep(0)
        await at.barrier.stop()
        assert [of(await each) for each in reports] == [(1, False, False)] * 3


@pytest.mark.parametrize("those", [(0, 1), (0,)])
@in_loop
async def test_an_epoch_that_ends_because_somebody_leaves_is_told_to_those_who_wait(
    tmp_path, those
):
    doubling = fsl.make("sync", dim=DIM, n_arms=ARMS, n_clients=CLIENTS, horizon=None)
    with table(tmp_path, Agreement.of(doubling)) as at:
        at.people[2].pull(at.agreement.algorithm(0).horizon)
        waiting = [at.report(number) for number in those]
        await settled()
        at.leave(2)
        await settled()
        for answer in [each.result() for each in waiting]:
            assert (answer.epoch, *of(answer)) == (1, 0, False, True)
        assert [(await each).epoch for each in (at.report(0, epoch=1), at.report(1, epoch=1))] == [
            1,
            1,
        ]
        assert at.ledger.round == 1


class Walker(Someone):
    """A client that plays rounds while everything around it fails now and then.

    It has made `pulls` in all. The server does not have those in `left`, by layer.
    """

    def __init__(self, at, number, chance):
        super().__init__(at.agreement, number)
        self.at, self.chance, self.round, self.pulls, self.left = at, chance, 0, 0, Counter()

    async def plays(self, rounds):
        for _ in range(rounds):
            await asyncio.sleep(self.chance.choice([0, 0, 0, 0.003]))
            self.left[self.chance.randrange(2)] += 1
            self.pulls += 1
            if self.chance.random() < 0.1:
                await self.sends(leaving=True)
            answer = await self.asks(lambda: self.at.barrier.report(self.number, self.reports()))
            self.round = answer.round
            if answer.wanted:
                await self.sends(leaving=False)
        await self.sends(leaving=True)

    def reports(self):
        return self.report(
            self.round,
            [layer for layer in self.left if self.left[layer] and self.chance.random() < 0.3],
        )

    async def sends(self, *, leaving):
        frozen = self.gathered(leaving)
        while True:
            try:
                answer = await self.asks(lambda: self.at.sent(self.number, frozen))
            except Refused as error:
                assert error.reason == "round"
                await self.asks(lambda: self.at.barrier.report(self.number, self.reports()))
                continue
            self.round = answer.round
            if answer.merged:
                for layer, pulls in zip(
                    frozen.upload.layers.tolist(), frozen.upload.pulls.tolist(), strict=True
                ):
                    self.left[layer] -= pulls * (layer in answer.download.layers)
            return

    def gathered(self, leaving):
        self.sequence += 1
        layers = np.array(sorted(layer for layer in self.left if self.left[layer]), np.int64)
        pulls = np.array([self.left[layer] for layer in layers.tolist()], np.int64)
        grams = pulls[:, None] * np.eye(DIM)[np.triu_indices(DIM)] / DIM
        upload = Upload(self.number, layers, grams, np.zeros((len(layers), DIM)), pulls)
        return SyncRequest(
            self.agreement.fingerprint, self.session, self.sequence, 0, self.round, leaving, upload
        )

    async def asks(self, call):
        """Until there is an answer; some calls are given up, and made again."""
        while True:
            patience = self.chance.choice([0.0005, 0.002, 5, 5, 5])
            try:
                return await asyncio.wait_for(call(), patience)
            except (TimeoutError, sqlite3.Error):
                continue
            except Refused as error:
                if (
                    error.reason != "stopping"
                    and "another call" not in str(error)
                    and "has left" not in str(error)
                ):
                    raise


def traces(ledger):
    return sum(
        np.trace(ledger.server.layer(layer)["gram"]) for layer in range(ledger.algorithm.n_layers)
    )


@pytest.mark.parametrize("seed", range(12))
@in_loop
async def test_whatever_fails_in_which_order_every_pull_is_merged_once(tmp_path, seed):
    chance = random.Random(seed)
    with table(tmp_path, deadline=0.004) as at:
        people = [
            Walker(at, number, random.Random(f"{seed} {number}")) for number in range(CLIENTS)
        ]
        for someone in people:
            at.ledger.join(someone.number, someone.join(generation=2))
        at.trouble, before = chance, traces(at.ledger)
        playing = [asyncio.create_task(someone.plays(40)) for someone in people]
        while not all(each.done() for each in playing):
            await asyncio.sleep(chance.choice([0.001, 0.01, 0.05]))
            await at.barrier.stop()
            at.restart()
        await asyncio.gather(*playing)
        at.trouble = None
        assert [someone.pulls for someone in people] == [40] * CLIENTS
        assert not any(someone.left.total() for someone in people)
        assert at.ledger.total_pulls == 40 * CLIENTS
        assert traces(at.ledger) - before == pytest.approx(40 * CLIENTS, abs=1e-9)


# --- rounds over the network ----------------------------------------------------------------------


@in_loop
async def test_rounds_go_over_the_network_and_leaving_ends_the_waiting(tmp_path):
    people = everyone(agreement_of("sync"))
    async with serving(tmp_path, "sync") as running, asyncio.TaskGroup() as group:
        await running.join(*people)

        def each(method, messages):
            calls = [
                running.call(method, message, TOKENS[number])
                for number, message in messages.items()
            ]
            return [group.create_task(call) for call in calls]

        answers = [
            await call
            for call in each("Round", {one.number: one.pull().report(asking=[0]) for one in people})
        ]
        assert [of(answer) for answer in answers] == [(0, True, False)] * 3
        answers = [
            await call for call in each("Sync", {one.number: one.upload() for one in people})
        ]
        assert all(answer.merged for answer in answers) and answers[0].round == 1
        for one, answer in zip(people, answers, strict=True):
            one.client.apply(answer.download)
        waiting = each("Round", {one.number: one.pull().report(1) for one in people[:2]})
        assert (
            await running.call("Sync", people[2].pull().upload(1, leaving=True), TOKENS[2])
        ).merged
        assert [of(await call) for call in waiting] == [(2, False, False)] * 2
        assert running.metrics("fedsuplin_round") == 2
        early = await running.refusal("Sync", people[0].upload(2), TOKENS[0])
        assert early[0] == "ABORTED" and "report round 2 again" in early[1]
        assert running.metrics("fedsuplin_syncs_total") == 4


@in_loop
async def test_a_server_that_stops_does_not_wait_for_those_who_wait_for_others(tmp_path):
    someone = Someone(agreement_of("sync"), 0)
    async with serving(tmp_path, "sync") as running:
        await running.join(someone)
        call = asyncio.create_task(running.refusal("Round", someone.report(), TOKENS[0]))
        while not running.service._barrier._waiting:
            await asyncio.sleep(0.001)
        await running.service.stop()
        assert await call == ("UNAVAILABLE", "the server is stopping: try again")


# --- commands -------------------------------------------------------------------------------------


def run_command(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "100"}).invoke(
        root_command, [str(argument) for argument in arguments]
    )
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


def test_tokens_are_printed_and_only_their_hashes_are_in_the_file(tmp_path):
    file = tmp_path / "tokens.json"
    lines = [line.split() for line in run_command("tokens", file, "--clients", 5).splitlines()]
    assert [number for number, _ in lines] == ["0", "1", "2", "3", "4"]
    assert all(len(token) >= 43 for _, token in lines) and len({token for _, token in lines}) == 5
    known = Tokens.read(file)
    assert [known.find_client(token) for _, token in lines] == [0, 1, 2, 3, 4]
    assert not [token for _, token in lines if token in file.read_text()]
    assert "--replace" in run_command("tokens", file, "--clients", 5, code=2)
    assert [Tokens.read(file).find_client(token) for _, token in lines] == [0, 1, 2, 3, 4]
    run_command("tokens", file, "--clients", 5, "--replace")
    assert [Tokens.read(file).find_client(token) for _, token in lines] == [None] * 5


def test_tokens_in_files_can_be_read_by_their_owner_only(tmp_path):
    file, folder = tmp_path / "tokens.json", tmp_path / "secrets"
    shown = run_command("tokens", file, "--clients", 2, "--out", folder)
    tokens = [(folder / f"client-{number}.token").read_text().strip() for number in range(2)]
    assert [Tokens.read(file).find_client(token) for token in tokens] == [0, 1]
    assert not [token for token in tokens if token in shown]
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in os.listdir(folder)} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    other = tmp_path / "other.json"
    assert "already exists" in run_command("tokens", other, "--clients", 2, "--out", folder, code=2)
    assert not other.exists() and (folder / "client-0.token").read_text().strip() == tokens[0]
    run_command("tokens", file, "--clients", 2, "--out", folder, "--replace")
    assert [Tokens.read(file).find_client(token) for token in tokens] == [None, None]
    assert Tokens.read(file).find_client((folder / "client-1.token").read_text().strip()) == 1


SIZES = ("--dim", DIM, "--arms", ARMS, "--clients", CLIENTS)


@pytest.mark.parametrize(("arguments", "meant"), [
    ((), "give the variant that it is for"),
    (("async",), "--dim, --arms, --clients must be given too"),
    (("--dim", 3), "a variant, --arms, --clients must be given too"),
    (("--C", 3), "--C alone does not describe an algorithm"),
    (("asinc", *SIZES), "Did you mean 'async'?"),
    (("async", *SIZES, "--corruption", 3), "async does not take --corruption"),
    (("async", *SIZES, "--set", "nonsense=3"), "nonsense"),
    (("async", *SIZES, "--horizon", 0), "horizon"),
    (("async", *SIZES, "--horizon", 100, "--first-horizon", 9), "leave --horizon out"),
    (("async", *SIZES, "--address", "0.0.0.0:0"), "--plaintext"),
    (("async", *SIZES, "--tls-cert", "cert.pem"), "TLS needs both"),
    (("async", *SIZES, "--deadline", "-1"), "deadline"),
])  # fmt: skip
def test_serve_says_what_is_missing_or_wrong_and_leaves_no_store(tmp_path, arguments, meant):
    write_token_hashes(tmp_path / "tokens.json", TOKENS)
    shown = run_command(
        "serve",
        *arguments,
        "--store",
        tmp_path / "s.db",
        "--tokens",
        tmp_path / "tokens.json",
        code=2,
    )
    assert meant in " ".join(shown.split())
    assert not (tmp_path / "s.db").exists()


def test_without_grpc_help_is_there_and_serving_says_what_to_install(tmp_path):
    def without(*arguments):
        code = (
            "import sys; sys.modules['grpc'] = None; from fedsuplin.cli.main import root_command; "
            f"root_command({list(map(str, arguments))!r})"
        )
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )

    shown = without("serve", "--help")
    assert shown.returncode == 0 and "--client-ca" in shown.stdout
    assert without("tokens", tmp_path / "tokens.json", "--clients", 1).returncode == 0
    refused = without(
        "serve", "async", *SIZES, "--store", tmp_path / "s.db", "--tokens", tmp_path / "tokens.json"
    )
    assert refused.returncode == 2 and "pip install 'fedsuplin[federation]'" in refused.stderr
    assert not (tmp_path / "s.db").exists()


@contextlib.contextmanager
def process(folder, *arguments):
    """`fedsuplin serve`, and the address that it prints."""
    write_token_hashes(folder / "tokens.json", TOKENS)
    options = (
        "--store",
        folder / "server.db",
        "--tokens",
        folder / "tokens.json",
        "--address",
        "127.0.0.1:0",
    )
    command = [*COMMAND, "serve", *map(str, (*arguments, *options))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            line = running.stdout.readline()
            assert re.fullmatch(r"listening on grpc://127\.0\.0\.1:\d+\n", line), (
                line + running.stderr.read()
            )
            running.target = line.split("://")[1].strip()
            yield running
        finally:
            if running.poll() is None:
                running.kill()


def ask(channel, method, message, token):
    call = channel.unary_unary(PATHS[method])
    metadata = (("authorization", f"Bearer {token}"),)
    return ANSWERS[method].from_bytes(
        call(message.to_bytes(), metadata=metadata, timeout=20, wait_for_ready=True)
    )


def stopped(running, number):
    running.send_signal(number)
    rest, lines = running.communicate(timeout=20)
    assert (running.returncode, rest) == (0, "")
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.posix
def test_a_server_ends_gracefully_and_goes_on_where_it_stopped(tmp_path):
    someone = Someone(agreement_of(), 0).pull()
    with (
        process(tmp_path, "async", *SIZES, "--horizon", 3000) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        ask(channel, "Join", someone.join(), TOKENS[0])
        assert ask(channel, "Sync", someone.upload(), TOKENS[0]).merged
        events = [line["event"] for line in stopped(running, signal.SIGTERM)]
        assert events == ["listening", "joined", "stopped"]
    with process(tmp_path) as running, grpc.insecure_channel(running.target) as channel:
        assert ask(channel, "Join", someone.join(), TOKENS[0]).sequence == 1
        stopped(running, signal.SIGINT)
    with process(tmp_path, "async", *SIZES, "--horizon", 3000) as running:
        stopped(running, signal.SIGTERM)
    shown = run_command(
        "serve",
        "sync",
        *SIZES,
        "--store",
        tmp_path / "server.db",
        "--tokens",
        tmp_path / "tokens.json",
        code=2,
    )
    assert "another algorithm" in shown


@pytest.mark.posix
def test_without_a_horizon_the_server_doubles_it(tmp_path):
    someone = Someone(agreement_of(), 0)
    with (
        process(tmp_path, "sync", *SIZES, "--first-horizon", 300) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        agreement = Agreement.from_spec(ask(channel, "Join", someone.join(), TOKENS[0]).spec)
        assert agreement.doubles and [agreement.algorithm(epoch).horizon for epoch in (0, 1)] == [
            300,
            600,
        ]
        stopped(running, signal.SIGTERM)


@pytest.mark.linux
def test_when_the_disk_is_really_full_the_server_says_so_and_works_again_when_there_is_room(
    tmp_path,
):
    import resource  # not everywhere

    someone = Someone(agreement_of(), 0).pull()
    with (
        process(tmp_path, "async", *SIZES, "--horizon", 3000) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        ask(channel, "Join", someone.join(), TOKENS[0])
        upload = someone.upload()
        soft, hard = resource.prlimit(running.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (1, hard))
        for _ in range(3):
            with pytest.raises(grpc.RpcError) as caught:
                ask(channel, "Sync", upload, TOKENS[0])
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, caught.value
            assert "can't write its store" in caught.value.details()
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (soft, hard))
        assert ask(channel, "Sync", upload, TOKENS[0]).merged
        assert ask(channel, "Sync", upload, TOKENS[0]).merged
        refused = [line for line in stopped(running, signal.SIGTERM) if line["event"] == "refused"]
        assert {line["reason"] for line in refused} == {"store"}
    with contextlib.closing(Ledger(tmp_path / "server.db")) as ledger:
        assert (ledger.n_syncs, ledger.total_pulls) == (1, 1)
