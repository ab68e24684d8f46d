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


def run_in_event_loop(test):
    """Run a coroutine test in an event loop of its own, for at most 30 seconds."""

    @functools.wraps(test)
    def run(*arguments, **keywords):
        asyncio.run(asyncio.wait_for(test(*arguments, **keywords), 30))

    return run


# --- scripted clients -----------------------------------------------------------------------------


class ScriptedClient:
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
def make_agreement(variant="async", horizon=3000):
    return Agreement.of(fsl.make(variant, dim=DIM, n_arms=ARMS, n_clients=CLIENTS, horizon=horizon))


def make_clients(agreement):
    return [ScriptedClient(agreement, number) for number in range(CLIENTS)]


def read_state(ledger):
    """Return everything that a request could change."""
    known = ledger.download()
    counts = (ledger.epoch, ledger.round, ledger.n_syncs, ledger.communication, ledger.total_pulls)
    return counts, json.dumps(ledger.clients()), known.grams.tobytes(), known.moments.tobytes()


# --- a server and calls to it ---------------------------------------------------------------------


class Running:
    """A service running in this event loop, with its ledger, metrics and client channels."""

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
    def default_channel(self):
        return self.channel()

    async def call(self, method, message, token=None, *, channel=None, metadata=None):
        """Send a message or raw bytes and return the parsed answer."""
        data = message if isinstance(message, bytes) else message.to_bytes()
        metadata = (
            (("authorization", f"Bearer {token}"),)
            if metadata is None and token is not None
            else metadata
        )
        data = await (channel or self.default_channel).unary_unary(PATHS[method])(
            data, metadata=metadata, timeout=20
        )
        return ANSWERS[method].from_bytes(data)

    async def expect_refusal(self, method, message, token=None, **options):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(method, message, token, **options)
        return caught.value.code().name, caught.value.details()

    async def join(self, *clients):
        for client in clients:
            await self.call("Join", client.join(), TOKENS[client.number])

    async def close(self):
        for channel in self._channels:
            await channel.close()


@contextlib.asynccontextmanager
async def run_service(folder, variant="async", *, ledger=None, **listening):
    """Run a server on loopback, with one token per client unless `tokens` is given."""
    if "tokens" not in listening:
        listening["tokens"] = folder / "tokens.json"
        write_token_hashes(listening["tokens"], TOKENS)
    listening = {name: value for name, value in listening.items() if value is not None}
    with contextlib.closing(
        ledger or Ledger(folder / "server.db", make_agreement(variant))
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

BAD_CREDENTIALS = {
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


@pytest.mark.parametrize("why", BAD_CREDENTIALS)
@run_in_event_loop
async def test_calls_without_a_valid_token_read_and_write_nothing(tmp_path, why):
    client = ScriptedClient(make_agreement(), 0).pull()
    questions = {"Join": client.join(), "Sync": client.upload(), "Round": client.report()}
    async with run_service(tmp_path) as running:
        await running.join(client)
        before = read_state(running.ledger)
        for method in METHODS:
            code, text = await running.expect_refusal(
                method, questions[method], metadata=BAD_CREDENTIALS[why]
            )
            assert (code, text) == (
                "UNAUTHENTICATED",
                "no valid credentials: a call needs the token or the certificate of a client",
            )
            assert (
                await running.expect_refusal(method, b"nonsense", metadata=BAD_CREDENTIALS[why])
            )[0] == "UNAUTHENTICATED"
        assert read_state(running.ledger) == before


@run_in_event_loop
async def test_unauthenticated_calls_are_refused_before_the_request_is_read(tmp_path):
    async with run_service(tmp_path) as running:
        call = running.default_channel.stream_unary(PATHS["Sync"])()  # a request that is never sent
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert running.metrics("fedsuplin_received_bytes_total") == 0


@run_in_event_loop
async def test_a_clients_token_cannot_be_used_for_another_client(tmp_path):
    mine, other = (
        ScriptedClient(make_agreement(), 0).pull(),
        ScriptedClient(make_agreement(), 1).pull(),
    )
    questions = {
        "Join": ScriptedClient(make_agreement(), 1).join(),
        "Sync": other.upload(),
        "Round": other.report(),
    }
    async with run_service(tmp_path) as running:
        await running.join(mine, other)
        before = read_state(running.ledger)
        for method, question in questions.items():
            refusal = await running.expect_refusal(method, question, TOKENS[0])
            assert refusal == ("PERMISSION_DENIED", "client 0 can't act for client 1")
        assert read_state(running.ledger) == before
        assert (await running.call("Sync", questions["Sync"], TOKENS[1])).merged


@run_in_event_loop
async def test_tokens_appear_in_no_log_line_or_error_message(tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "fedsuplin.federation")
    client = ScriptedClient(make_agreement(), 0)
    async with run_service(tmp_path) as running:
        texts = [
            (await running.expect_refusal("Join", client.join(), token))[1]
            for token in ("a-wrong-secret", "Bearer a-wrong-secret")
        ]
        texts += [
            (await running.expect_refusal("Join", b"", TOKENS[0]))[1],
            (await running.expect_refusal("Round", b"x", TOKENS[0]))[1],
        ]
        await running.join(client)
    lines = [parse_log_record(record) for record in caplog.records]
    assert {line["event"] for line in lines} == {"listening", "refused", "joined", "stopped"}
    logged = json.dumps(lines) + " ".join(texts)
    assert not [
        secret
        for secret in ("a-wrong-secret", *TOKENS.values(), *map(hash_token, TOKENS.values()))
        if secret in logged
    ]


def parse_log_record(record):
    return json.loads(JsonLinesFormatter().format(record))


@run_in_event_loop
async def test_refusals_are_logged_once_per_second_and_client_but_always_counted(tmp_path, caplog):
    caplog.set_level(logging.INFO, "fedsuplin.federation")
    async with run_service(tmp_path) as running:
        for _ in range(20):
            await running.expect_refusal("Join", b"nonsense", TOKENS[1])
        assert running.metrics("fedsuplin_refused_total", {"reason": "malformed"}) == 20
    refused = [
        line
        for record in caplog.records
        if (line := parse_log_record(record))["event"] == "refused"
    ]
    assert 1 <= len(refused) < 10
    assert {(line["client"], line["reason"], line["method"]) for line in refused} == {
        (1, "malformed", "Join")
    }


@run_in_event_loop
async def test_unauthenticated_calls_cannot_make_the_server_buffer_much(tmp_path):
    """Health checks need no credentials, but requests longer than any upload are not read."""
    async with run_service(tmp_path) as running:
        check_health = running.default_channel.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await check_health(b"\n" + bytes(compute_largest_request(make_agreement())))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        upload = ScriptedClient(make_agreement(), 0).pull(200).upload()
        assert len(upload.to_bytes()) <= compute_largest_request(make_agreement())


@run_in_event_loop
async def test_health_needs_no_credentials_and_only_reports_that_the_server_is_serving(tmp_path):
    async with run_service(tmp_path) as running:
        health = health_pb2_grpc.HealthStub(running.default_channel)
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
    """Write the server's certificate and key; return their paths and the authority's."""
    folder = tmp_path_factory.mktemp("tls")
    files = {"tls_cert": folder / "server.pem", "tls_key": folder / "server.key"}
    made = authority.issue_cert("127.0.0.1", "localhost")
    made.cert_chain_pems[0].write_to_path(files["tls_cert"])
    made.private_key_pem.write_to_path(files["tls_key"])
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return files, folder / "ca.pem"


def make_client_credentials(tls, folder, name=None, ca=None):
    """Make credentials that trust the server, with a certificate for `name` if it is given."""
    if name is None:
        return make_channel_credentials(tls[1])
    made = ca.issue_cert("client.example.org", common_name=name)
    made.cert_chain_pems[0].write_to_path(folder / "client.pem")
    made.private_key_pem.write_to_path(folder / "client.key")
    return make_channel_credentials(tls[1], folder / "client.pem", folder / "client.key")


@run_in_event_loop
async def test_the_common_name_of_a_certificate_identifies_the_client(tmp_path, tls, authority):
    client = ScriptedClient(make_agreement(), 1).pull()
    async with run_service(tmp_path, tokens=None, client_ca=tls[1], **tls[0]) as running:
        assert running.address.startswith("grpcs://127.0.0.1:")
        channel = running.channel(make_client_credentials(tls, tmp_path, "client-1", authority))
        await running.call("Join", client.join(), channel=channel)
        assert (await running.call("Sync", client.upload(), channel=channel)).merged
        before = read_state(running.ledger)
        other = ScriptedClient(make_agreement(), 0)
        for method, question in {
            "Join": other.join(),
            "Sync": other.pull().upload(),
            "Round": other.report(),
        }.items():
            refusal = await running.expect_refusal(method, question, channel=channel)
            assert refusal == ("PERMISSION_DENIED", "client 1 can't act for client 0")
        assert read_state(running.ledger) == before


@pytest.mark.parametrize(
    "name",
    ["client-", "client-01", "client--1", "client-1 ", "xclient-1", "client-1x", "1", "client-٣"],
)
@run_in_event_loop
async def test_certificates_with_any_other_common_name_are_refused(tmp_path, tls, authority, name):
    async with run_service(tmp_path, tokens=None, client_ca=tls[1], **tls[0]) as running:
        channel = running.channel(make_client_credentials(tls, tmp_path, name, authority))
        assert (
            await running.expect_refusal(
                "Join", ScriptedClient(make_agreement(), 1).join(), channel=channel
            )
        )[0] == "UNAUTHENTICATED"


@run_in_event_loop
async def test_clients_without_a_certificate_of_the_authority_cannot_connect(tmp_path, tls):
    client = ScriptedClient(make_agreement(), 1)
    async with run_service(tmp_path, tokens=None, client_ca=tls[1], **tls[0]) as running:
        before = read_state(running.ledger)
        another = make_client_credentials(tls, tmp_path, "client-1", trustme.CA())
        for calls_with in (another, make_client_credentials(tls, tmp_path), None):
            channel = running.channel(calls_with)
            assert (
                await running.expect_refusal("Join", client.join(), TOKENS[1], channel=channel)
            )[0] == "UNAVAILABLE"
        assert read_state(running.ledger) == before


@run_in_event_loop
async def test_a_client_sends_no_token_to_a_server_of_an_unknown_authority(tmp_path, tls):
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    async with run_service(tmp_path, **tls[0]) as running:
        channel = running.channel(make_channel_credentials(tmp_path / "other.pem"))
        assert (
            await running.expect_refusal(
                "Join", ScriptedClient(make_agreement(), 1).join(), TOKENS[1], channel=channel
            )
        )[0] == "UNAVAILABLE"


@run_in_event_loop
async def test_a_tls_port_accepts_tokens_and_refuses_plain_text(tmp_path, tls):
    client = ScriptedClient(make_agreement(), 1)
    async with run_service(tmp_path, **tls[0]) as running:
        encrypted = running.channel(make_client_credentials(tls, tmp_path))
        await running.call("Join", client.join(), TOKENS[1], channel=encrypted)
        assert (await running.expect_refusal("Join", client.join(), channel=encrypted))[
            0
        ] == "UNAUTHENTICATED"
        assert (await running.expect_refusal("Join", client.join(), TOKENS[1]))[0] == "UNAVAILABLE"


@run_in_event_loop
async def test_with_tokens_and_an_authority_a_client_needs_a_matching_pair(
    tmp_path, tls, authority
):
    client = ScriptedClient(make_agreement(), 1)
    async with run_service(tmp_path, client_ca=tls[1], **tls[0]) as running:
        channel = running.channel(make_client_credentials(tls, tmp_path, "client-1", authority))
        await running.call("Join", client.join(), TOKENS[1], channel=channel)
        for token in (None, "wrong", TOKENS[0]):
            assert (await running.expect_refusal("Join", client.join(), token, channel=channel))[
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
def test_insecure_or_inconsistent_listening_options_are_refused(given, words):
    with pytest.raises(InvalidInput, match=re.escape(words)):
        Listening(**given)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.8.9.10:1", "localhost:5", "[::1]:0"])
def test_on_loopback_tokens_are_enough(address):
    assert not Listening(address, tokens="t").tls


@run_in_event_loop
async def test_plain_text_off_loopback_works_with_the_explicit_option(tmp_path):
    async with run_service(tmp_path, address="0.0.0.0:0", plaintext=True) as running:
        assert running.address.startswith("grpc://0.0.0.0:")
        await running.join(ScriptedClient(make_agreement(), 0))


@run_in_event_loop
async def test_a_port_in_use_is_an_error_and_leaves_nothing_running(tmp_path):
    async with run_service(tmp_path) as running:
        (tmp_path / "second").mkdir()
        with pytest.raises(InvalidInput, match="can't listen on .*in use"):
            async with run_service(tmp_path / "second", address=running.target):
                pass
        with pytest.raises(InvalidInput, match="can't serve metrics"):
            async with run_service(tmp_path / "second", metrics_address=running.target):
                pass


@pytest.mark.parametrize(("file", "content", "words"), [
    ("tls_key", b"nonsense", "are not a certificate and its key"),
    ("tls_key", None, "can't read"),
    ("tls_cert", b"", "are not a certificate and its key"),
    ("client_ca", b"nonsense", "holds no certificates"),
])  # fmt: skip
@run_in_event_loop
async def test_invalid_certificate_files_are_reported(tmp_path, tls, file, content, words):
    wrong = tmp_path / "wrong.pem"
    if content is not None:
        wrong.write_bytes(content)
    with pytest.raises(InvalidInput, match=words):
        async with run_service(tmp_path, **(tls[0] | {file: wrong})):
            pass


@pytest.mark.parametrize("content", [
    "", "nonsense", "[]", "{}", '{"0": 5}', '{"a": "' + "0" * 64 + '"}',
    '{"-1": "' + "0" * 64 + '"}', '{"0": "abc"}',
    '{"0": "secret-token-that-is-no-hash"}', '{"0": "' + "0" * 64 + '", "1": "' + "0" * 64 + '"}',
    '{"00": "' + "0" * 64 + '"}',
])  # fmt: skip
def test_an_invalid_token_file_is_refused_without_showing_its_content(tmp_path, content):
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


def test_a_client_certificate_needs_a_key_without_a_password(tmp_path, tls):
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
def test_an_invalid_token_is_refused_without_being_shown(token):
    with pytest.raises(InvalidInput, match="^a token is a word of ASCII"):
        make_metadata(token)


# --- malformed requests ---------------------------------------------------------------------------


@run_in_event_loop
async def test_malformed_requests_are_refused_and_change_nothing(tmp_path):
    client = ScriptedClient(make_agreement(), 0).pull()
    good = {
        "Join": client.join().to_bytes(),
        "Sync": client.upload().to_bytes(),
        "Round": client.report().to_bytes(),
    }
    draws = random.Random(0)
    async with run_service(tmp_path) as running:
        await running.join(client)
        before = read_state(running.ledger)
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
                code, text = await running.expect_refusal(method, data, TOKENS[0])
                assert code == "INVALID_ARGUMENT", (method, data, text)
        at = (
            len(good["Sync"]) - len(client.client.upload().to_bytes()) + 8 + 4
        )  # offset of the dimension and the number of layers
        for sizes in (b"\xff" * 8, b"\xff\x7f\0\0\xff\x03\0\0", b"\0" * 8):
            huge = good["Sync"][:at] + sizes + good["Sync"][at + 8 :]
            assert (await running.expect_refusal("Sync", huge, TOKENS[0]))[0] == "INVALID_ARGUMENT"
        assert (
            await running.expect_refusal(
                "Sync", bytes(compute_largest_request(make_agreement()) + 1), TOKENS[0]
            )
        )[0] == "RESOURCE_EXHAUSTED"
        assert read_state(running.ledger) == before
        assert (await running.call("Sync", good["Sync"], TOKENS[0])).merged


@run_in_event_loop
async def test_each_reason_for_refusal_has_its_status_code(tmp_path):
    client, other = (
        ScriptedClient(make_agreement(), 0).pull(),
        ScriptedClient(make_agreement(horizon=4000), 0).pull(),
    )
    async with run_service(tmp_path) as running:
        upload = client.upload()
        assert (await running.expect_refusal("Sync", upload, TOKENS[0]))[
            0
        ] == "FAILED_PRECONDITION"  # before it has joined
        await running.join(client)
        other.session = client.session
        assert (await running.expect_refusal("Sync", other.upload(), TOKENS[0]))[
            0
        ] == "FAILED_PRECONDITION"  # another algorithm
        upload.upload.grams[...] = -1
        code, text = await running.expect_refusal("Sync", upload, TOKENS[0])
        assert code == "INVALID_ARGUMENT" and "trace" in text
        assert (await running.expect_refusal("Round", client.report(), TOKENS[0]))[
            0
        ] == "INVALID_ARGUMENT"  # there are no rounds
        assert running.metrics("fedsuplin_refused_total", {"reason": "implausible"}) == 1


@run_in_event_loop
async def test_a_call_without_a_message_is_invalid(tmp_path):
    async def send_nothing():
        return
        yield

    async with run_service(tmp_path) as running:
        call = running.default_channel.stream_unary(PATHS["Join"])(
            send_nothing(), metadata=(("authorization", f"Bearer {TOKENS[0]}"),)
        )
        with pytest.raises(grpc.aio.AioRpcError, match="a call without a message"):
            await call


@run_in_event_loop
async def test_async_algorithms_have_no_rounds_in_a_finished_epoch_either(tmp_path):
    agreement = Agreement.of(
        fsl.make("async", dim=DIM, n_arms=ARMS, n_clients=CLIENTS, horizon=None)
    )
    client = ScriptedClient(agreement, 0).pull(agreement.algorithm(0).horizon)
    async with run_service(tmp_path, ledger=Ledger(tmp_path / "server.db", agreement)) as running:
        await running.join(client)
        assert (await running.call("Sync", client.upload(), TOKENS[0])).epoch == 1
        code, text = await running.expect_refusal("Round", client.report(), TOKENS[0])
        assert code == "INVALID_ARGUMENT" and "there are no rounds" in text
        assert running.metrics("fedsuplin_epoch") == 1


@run_in_event_loop
async def test_serve_reports_its_address_and_stops_gracefully_when_cancelled(tmp_path):
    write_token_hashes(tmp_path / "tokens.json", TOKENS)
    addresses = asyncio.Queue()
    with contextlib.closing(Ledger(tmp_path / "server.db", make_agreement())) as ledger:
        listening = Listening(tokens=tmp_path / "tokens.json")
        running = asyncio.create_task(serve(ledger, listening, started=addresses.put_nowait))
        address = await addresses.get()
        async with grpc.aio.insecure_channel(parse_server_url(address)[0]) as channel:
            metadata = make_metadata(TOKENS[0])
            data = ScriptedClient(make_agreement(), 0).join().to_bytes()
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


@run_in_event_loop
async def test_an_unexpected_failure_is_reported_without_details_and_logged_with_them(
    tmp_path, caplog
):
    async with run_service(tmp_path) as running:
        running.ledger.join = None
        refusal = await running.expect_refusal(
            "Join", ScriptedClient(make_agreement(), 0).join(), TOKENS[0]
        )
        assert refusal == ("INTERNAL", "the server failed; its log has the reason")
    (line,) = [
        line for record in caplog.records if (line := parse_log_record(record))["event"] == "failed"
    ]
    assert "TypeError" in line["traceback"]


@run_in_event_loop
async def test_credentials_of_a_client_outside_the_federation_are_refused(
    tmp_path,
):
    write_token_hashes(tmp_path / "more.json", TOKENS | {3: "token-of-3"})
    async with run_service(tmp_path, tokens=tmp_path / "more.json") as running:
        refusal = await running.expect_refusal("Join", JoinRequest(3, bytes(16)), "token-of-3")
        assert refusal == ("PERMISSION_DENIED", "there is no client 3: this federation has 0 to 2")
        assert running.ledger.clients() == {}


# --- several uploads per commit -------------------------------------------------------------------


class HeldLedger(Ledger):
    """A ledger that can be held in the middle of a commit, and whose disk can be full."""

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

    async def wait_until_held(self):
        await asyncio.get_running_loop().run_in_executor(None, self.inside.wait, 20)


async def wait_until_queued(running, n):
    """Wait until `n` uploads are queued for the next commit."""
    while len(running.service._commits._queue) < n:
        await asyncio.sleep(0.001)


@run_in_event_loop
async def test_uploads_received_during_a_commit_share_the_next_commit(tmp_path):
    ledger = HeldLedger(tmp_path / "server.db", make_agreement())
    clients = make_clients(make_agreement())
    async with run_service(tmp_path, ledger=ledger) as running, asyncio.TaskGroup() as group:
        await running.join(*clients)
        ledger.hold()
        first = group.create_task(running.call("Sync", clients[0].pull().upload(), TOKENS[0]))
        await ledger.wait_until_held()
        rest = [
            group.create_task(running.call("Sync", each.pull().upload(), TOKENS[each.number]))
            for each in clients[1:]
        ]
        await wait_until_queued(running, 2)
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


@run_in_event_loop
async def test_the_upload_of_a_cancelled_call_is_merged_exactly_once(tmp_path):
    ledger = HeldLedger(tmp_path / "server.db", make_agreement())
    clients = make_clients(make_agreement())
    async with run_service(tmp_path, ledger=ledger) as running:
        await running.join(*clients)
        ledger.hold()
        uploads = [each.pull().upload() for each in clients]
        calls = [asyncio.create_task(running.call("Sync", uploads[0], TOKENS[0]))]
        await ledger.wait_until_held()
        calls += [asyncio.create_task(running.call("Sync", uploads[i], TOKENS[i])) for i in (1, 2)]
        await wait_until_queued(running, 2)
        calls[0].cancel()  # while it is being committed
        calls[1].cancel()  # while it is queued
        again = asyncio.create_task(running.call("Sync", uploads[1], TOKENS[1]))
        await wait_until_queued(running, 3)
        ledger.go.set()
        assert (await calls[2]).merged and (await again).merged
        assert (await running.call("Sync", uploads[0], TOKENS[0])).merged
        assert ledger.n_syncs == 3 and ledger.total_pulls == 3
        assert running.metrics("fedsuplin_duplicates_total") == 2
        assert ledger.batches == [[0], [1, 2], [1], [0]]


@run_in_event_loop
async def test_a_full_disk_is_reported_and_logged_and_syncs_resume_when_there_is_room(
    tmp_path, caplog
):
    ledger = HeldLedger(tmp_path / "server.db", make_agreement())
    client = ScriptedClient(make_agreement(), 0).pull()
    async with run_service(tmp_path, ledger=ledger) as running:
        await running.join(client)
        ledger.full, upload, before = True, client.upload(), read_state(ledger)
        code, text = await running.expect_refusal("Sync", upload, TOKENS[0])
        assert (code, "disk is full" in text, "nothing was merged" in text) == (
            "UNAVAILABLE",
            True,
            True,
        )
        assert read_state(ledger) == before
        ledger.full = False
        assert (await running.call("Sync", upload, TOKENS[0])).merged
    (line,) = [
        line
        for record in caplog.records
        if (line := parse_log_record(record))["event"] == "refused"
    ]
    assert (line["reason"], line["level"]) == ("store", "error")


@run_in_event_loop
async def test_an_upload_that_makes_the_server_fail_does_not_block_other_uploads(tmp_path, caplog):
    ledger = HeldLedger(tmp_path / "server.db", make_agreement())
    clients = make_clients(make_agreement())
    async with run_service(tmp_path, ledger=ledger) as running, asyncio.TaskGroup() as group:
        await running.join(*clients)
        ledger.poison = 1
        ledger.hold()
        first = group.create_task(running.call("Sync", clients[0].pull().upload(), TOKENS[0]))
        await ledger.wait_until_held()
        good = group.create_task(running.call("Sync", clients[2].pull().upload(), TOKENS[2]))
        bad = group.create_task(
            running.expect_refusal("Sync", clients[1].pull().upload(), TOKENS[1])
        )
        await wait_until_queued(running, 2)
        ledger.go.set()
        assert (await first).merged and (await good).merged and (await bad)[0] == "INTERNAL"
        clients[1].sequence, ledger.poison = 2**64 - 2, None
        assert (await running.expect_refusal("Sync", clients[1].upload(), TOKENS[1]))[
            0
        ] == "INVALID_ARGUMENT"
        assert (ledger.n_syncs, ledger.total_pulls) == (2, 2)


@run_in_event_loop
async def test_a_client_with_too_many_pending_calls_is_refused_and_others_are_not(tmp_path):
    ledger = HeldLedger(tmp_path / "server.db", make_agreement())
    clients = make_clients(make_agreement())
    async with run_service(tmp_path, ledger=ledger) as running, asyncio.TaskGroup() as group:
        await running.join(*clients)
        ledger.hold()
        upload = clients[0].pull().upload()
        calls = [
            group.create_task(running.call("Sync", upload, TOKENS[0]))
            for _ in range(MOST_CALLS_PER_CLIENT)
        ]
        await ledger.wait_until_held()
        await wait_until_queued(running, MOST_CALLS_PER_CLIENT - 1)
        assert (await running.expect_refusal("Sync", upload, TOKENS[0]))[0] == "RESOURCE_EXHAUSTED"
        other = group.create_task(running.call("Sync", clients[1].pull().upload(), TOKENS[1]))
        await wait_until_queued(running, MOST_CALLS_PER_CLIENT)
        ledger.go.set()
        assert all([(await call).merged for call in (*calls, other)])
        assert ledger.n_syncs == 2


@run_in_event_loop
async def test_a_stopping_server_finishes_the_commit_and_answers(tmp_path):
    ledger = HeldLedger(tmp_path / "server.db", make_agreement())
    client = ScriptedClient(make_agreement(), 0).pull()
    async with run_service(tmp_path, ledger=ledger) as running:
        await running.join(client)
        ledger.hold()
        call = asyncio.create_task(running.call("Sync", client.upload(), TOKENS[0]))
        await ledger.wait_until_held()
        stopping = asyncio.create_task(running.service.stop())
        while not running.service._stopping:
            await asyncio.sleep(0)
        assert (await running.expect_refusal("Join", client.join(), TOKENS[0]))[0] == "UNAVAILABLE"
        ledger.go.set()
        assert (await call).merged
        await stopping


def test_the_answers_of_a_batch_are_encoded_once(tmp_path):
    with contextlib.closing(Ledger(tmp_path / "server.db", make_agreement())) as ledger:
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


@run_in_event_loop
async def test_metrics_are_served_over_http(tmp_path, caplog):
    caplog.set_level(logging.INFO, "fedsuplin.federation")
    client = ScriptedClient(make_agreement(), 0).pull()
    async with run_service(tmp_path, metrics_address="127.0.0.1:0") as running:
        await running.join(client)
        await running.call("Sync", client.upload(), TOKENS[0])
        (line,) = [
            line
            for record in caplog.records
            if (line := parse_log_record(record))["event"] == "listening"
        ]

        def read():
            with urllib.request.urlopen(line["metrics"], timeout=10) as answer:
                return answer.read().decode()

        shown = await asyncio.get_running_loop().run_in_executor(None, read)
    assert "fedsuplin_syncs_total 1.0" in shown and "fedsuplin_clients_seen 1.0" in shown
    assert 'fedsuplin_call_seconds_count{method="Sync"} 1.0' in shown


# --- rounds of synchronous algorithms, without a network ------------------------------------------


class BarrierHarness:
    """A barrier over a ledger, with clients that have joined."""

    def __init__(self, folder, agreement=None, deadline=20.0):
        self.agreement = agreement or make_agreement("sync")
        self.ledger = Ledger(folder / "server.db", self.agreement)
        self.clients, self.deadline, self.trouble = make_clients(self.agreement), deadline, None
        for each in self.clients:
            self.ledger.join(each.number, each.join())
        self.begin()

    def begin(self):
        self.failing, self.may_close = False, asyncio.Event()
        self.may_close.set()
        self.barrier = Barrier(self.ledger, self.work, self.deadline)

    async def work(self, function, *arguments):
        await asyncio.sleep(0)  # let other tasks run, as with a thread
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

    async def send_upload(self, number, request):
        """Handle an upload as the service does."""
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
        request = self.clients[number].report(round_, asking, epoch)
        return asyncio.create_task(self.barrier.report(number, request))

    def upload(self, number, round_=0, request=None):
        request = request or self.clients[number].upload(round_)
        return asyncio.create_task(self.barrier.upload(number, request))

    def leave(self, number, round_=0):
        (answer,) = self.ledger.sync([(number, self.clients[number].upload(round_, leaving=True))])
        assert answer.merged
        self.barrier.remove_clients([number], (self.ledger.epoch, self.ledger.round))

    def rejoin(self, number):
        self.clients[number] = ScriptedClient(self.agreement, number, seed=1)
        self.ledger.join(number, self.clients[number].join(generation=2))
        self.barrier.add_client(number, self.clients[number].session)


@contextlib.contextmanager
def open_harness(*arguments, **options):
    made = BarrierHarness(*arguments, **options)
    try:
        yield made
    finally:
        made.ledger.close()


async def let_tasks_settle():
    """Let tasks run until only calls that wait for other clients are left."""
    for _ in range(20):
        await asyncio.sleep(0)


def summarize(answer):
    """Return an answer's round, whether it wants uploads, and whether it has a download."""
    return answer.round, answer.wanted, answer.download is not None


@run_in_event_loop
async def test_a_round_in_which_no_client_asks_for_a_sync_ends_with_the_last_report(tmp_path):
    with open_harness(tmp_path) as harness:
        first = [harness.report(number) for number in (0, 1)]
        await let_tasks_settle()
        assert not any(each.done() for each in first)
        answers = [await each for each in (*first, harness.report(2))]
        assert list(map(summarize, answers)) == [(1, False, False)] * 3
        assert (harness.ledger.round, harness.ledger.n_syncs) == (1, 0)


@run_in_event_loop
async def test_a_round_merges_the_requested_layers_as_the_simulation_does(
    tmp_path,
):
    with open_harness(tmp_path) as harness:
        for client in harness.clients:
            client.pull(20)
        uploads = [client.upload() for client in harness.clients]
        reports = [
            harness.report(number, asking=[0] if number == 1 else []) for number in range(CLIENTS)
        ]
        assert [summarize(await each) for each in reports] == [(0, True, False)] * 3
        first = [harness.upload(number, request=uploads[number]) for number in (0, 2)]
        await let_tasks_settle()
        assert not any(each.done() for each in first)
        answers = [await each for each in (*first, harness.upload(1, request=uploads[1]))]
        assert answers[0] is answers[1] is answers[2]  # so that it is encoded once
        assert (answers[0].merged, answers[0].round, answers[0].download.layers.tolist()) == (
            True,
            1,
            [0],
        )
        server = fsl.Server(harness.agreement.algorithm(0))
        meant = server.barrier([Upload(**vars(each.upload) | {"asking": (0,)}) for each in uploads])
        assert np.array_equal(answers[0].download.grams, meant.grams)
        assert np.array_equal(answers[0].download.moments, meant.moments)
        assert (harness.ledger.round, harness.ledger.n_syncs, harness.ledger.communication) == (
            1,
            1,
            3,
        )


@run_in_event_loop
async def test_a_client_that_misses_the_report_deadline_is_absent_until_it_returns(
    tmp_path,
):
    with open_harness(tmp_path, deadline=0.05) as harness:
        assert [summarize(await each) for each in [harness.report(0), harness.report(1)]] == [
            (1, False, False)
        ] * 2
        harness.barrier._deadline = 20.0
        assert [summarize(await each) for each in [harness.report(0, 1), harness.report(1, 1)]] == [
            (2, False, False)
        ] * 2  # at once
        assert summarize(await harness.report(2, 0)) == (
            2,
            False,
            True,
        )  # late: the current round and the server's sums
        others = [harness.report(0, 2), harness.report(1, 2)]
        await let_tasks_settle()
        assert not any(each.done() for each in others)  # client 2 is present again
        assert [summarize(await each) for each in (*others, harness.report(2, 2))] == [
            (3, False, False)
        ] * 3


@run_in_event_loop
async def test_a_client_that_misses_the_upload_deadline_is_absent_and_keeps_its_data(tmp_path):
    with open_harness(tmp_path) as harness:
        for client in harness.clients:
            client.pull()
        assert all(
            [
                (await each).wanted
                for each in [harness.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        harness.barrier._deadline = 0.05
        harness.barrier._set_timer(True)
        assert [(await each).merged for each in [harness.upload(0), harness.upload(1)]] == [
            True,
            True,
        ]
        late = await harness.upload(2)
        assert (late.merged, late.round, len(late.download.layers)) == (
            False,
            1,
            harness.ledger.algorithm.n_layers,
        )
        assert harness.ledger.clients()[2]["sequence"] == 0


@run_in_event_loop
async def test_a_round_that_receives_no_uploads_ends_without_a_sync(tmp_path):
    with open_harness(tmp_path, deadline=0.05) as harness:
        assert all(
            [
                (await each).wanted
                for each in [harness.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        while harness.ledger.round == 0:
            await asyncio.sleep(0.01)
        assert (harness.ledger.round, harness.ledger.n_syncs) == (1, 0)
        harness.clients[0].pull()
        assert not (await harness.upload(0)).merged


@run_in_event_loop
async def test_a_report_after_uploads_were_requested_still_joins_the_round(tmp_path):
    with open_harness(tmp_path) as harness:
        for client in harness.clients:
            client.pull()
        harness.barrier._expected.discard(2)
        assert all(
            [(await each).wanted for each in [harness.report(0, asking=[0]), harness.report(1)]]
        )
        first = harness.upload(0)
        await let_tasks_settle()
        assert summarize(await harness.report(1)) == (
            0,
            True,
            False,
        )  # its answer was lost: it gets the same one
        assert summarize(await harness.report(2, asking=[1])) == (0, True, False)
        second = harness.upload(1)
        await let_tasks_settle()
        assert not first.done() and not second.done()
        answers = [await each for each in (first, second, harness.upload(2))]
        assert all(answer.merged for answer in answers) and answers[0].download.layers.tolist() == [
            0,
            1,
        ]


@run_in_event_loop
async def test_after_a_server_restart_an_upload_needs_a_new_report_first(
    tmp_path,
):
    with open_harness(tmp_path) as harness:
        for client in harness.clients:
            client.pull()
        assert all(
            [
                (await each).wanted
                for each in [harness.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        harness.restart()
        upload = harness.clients[0].upload()
        with pytest.raises(Refused, match="report round 0 again") as caught:
            await harness.upload(0, request=upload)
        assert caught.value.reason == "round"
        assert all(
            [
                (await each).wanted
                for each in [harness.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        assert all(
            [
                (await each).merged
                for each in [
                    harness.upload(0, request=upload),
                    harness.upload(1),
                    harness.upload(2),
                ]
            ]
        )


@run_in_event_loop
async def test_a_repeated_upload_is_acknowledged_again_but_merged_once(tmp_path):
    with open_harness(tmp_path) as harness:
        uploads = [client.pull().upload() for client in harness.clients]
        assert all(
            [
                (await each).wanted
                for each in [harness.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        assert all(
            [
                (await each).merged
                for each in [
                    harness.upload(number, request=uploads[number]) for number in range(CLIENTS)
                ]
            ]
        )
        before = harness.ledger.total_pulls
        for _ in range(2):
            assert (await harness.upload(1, request=uploads[1])).merged
            harness.restart()
        assert harness.ledger.total_pulls == before


@run_in_event_loop
async def test_cancelled_calls_still_count(tmp_path):
    with open_harness(tmp_path) as harness:
        for client in harness.clients:
            client.pull()
        gone = harness.report(0, asking=[0])
        await let_tasks_settle()
        gone.cancel()
        assert all([(await each).wanted for each in [harness.report(1), harness.report(2)]])
        upload = harness.clients[0].upload()
        gone = harness.upload(0, request=upload)
        await let_tasks_settle()
        gone.cancel()
        assert all([(await each).merged for each in [harness.upload(1), harness.upload(2)]])
        assert harness.ledger.clients()[0]["sequence"] == 1
        assert (await harness.upload(0, request=upload)).merged


@run_in_event_loop
async def test_a_second_call_of_a_client_replaces_the_first(tmp_path):
    with open_harness(tmp_path) as harness:
        first = harness.report(0)
        await let_tasks_settle()
        second = harness.report(0)
        with pytest.raises(Refused, match="another call of client 0"):
            await first
        assert [
            summarize(await each) for each in (harness.report(1), harness.report(2), second)
        ] == [(1, False, False)] * 3


@run_in_event_loop
async def test_a_leaving_client_is_merged_at_once_and_not_waited_for(tmp_path):
    with open_harness(tmp_path) as harness:
        for client in harness.clients:
            client.pull()
        first = [harness.report(0, asking=[0]), harness.report(1)]
        await let_tasks_settle()
        harness.leave(2)
        assert all([(await each).wanted for each in first])
        upload = harness.upload(0)
        await let_tasks_settle()
        gone = harness.report(1)
        await let_tasks_settle()
        harness.leave(1)
        assert (await upload).merged and (await gone).wanted
        assert summarize(await harness.report(0, 1)) == (2, False, False)
        assert harness.ledger.total_pulls == 3


@run_in_event_loop
async def test_a_pending_call_of_a_client_that_left_does_not_bring_it_back(tmp_path):
    with open_harness(tmp_path) as harness:
        calls = [harness.report(number) for number in (0, 2)]
        await let_tasks_settle()
        harness.leave(2)
        with pytest.raises(Refused, match="has left this round"):
            await calls[1]
        assert [summarize(await each) for each in (calls[0], harness.report(1))] == [
            (1, False, False)
        ] * 2


@run_in_event_loop
async def test_a_client_that_rejoins_is_waited_for_from_the_next_round_on(tmp_path):
    with open_harness(tmp_path) as harness:
        harness.leave(2)
        first = harness.report(0)
        await let_tasks_settle()
        harness.rejoin(2)
        assert [summarize(await each) for each in (first, harness.report(1))] == [
            (1, False, False)
        ] * 2
        others = [harness.report(0, 1), harness.report(1, 1)]
        await let_tasks_settle()
        assert not any(each.done() for each in others)
        assert [summarize(await each) for each in (*others, harness.report(2, 1))] == [
            (2, False, False)
        ] * 3


@run_in_event_loop
async def test_a_new_session_discards_the_calls_of_the_old_one_in_this_round(tmp_path):
    with open_harness(tmp_path) as harness:
        for client in harness.clients:
            client.pull()
        assert all(
            [
                (await each).wanted
                for each in [harness.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        old = harness.upload(2)
        await let_tasks_settle()
        harness.rejoin(2)
        with pytest.raises(Refused, match="this session is over"):
            await old
        assert all([(await each).merged for each in [harness.upload(0), harness.upload(1)]])
        assert (harness.ledger.clients()[2]["sequence"], harness.ledger.total_pulls) == (0, 2)


@run_in_event_loop
async def test_a_report_while_the_round_is_closing_is_answered_with_the_next_round(tmp_path):
    with open_harness(tmp_path) as harness:
        harness.barrier._expected.discard(2)
        harness.may_close.clear()
        first = [harness.report(0), harness.report(1)]
        await let_tasks_settle()
        late = harness.report(2)
        await let_tasks_settle()
        assert harness.barrier._closing is not None and not late.done()
        harness.may_close.set()
        assert [summarize(await each) for each in first] == [(1, False, False)] * 2
        await let_tasks_settle()
        assert summarize(late.result()) == (1, False, True)


@run_in_event_loop
async def test_a_session_that_ends_while_the_round_closes_is_refused_and_others_are_merged(
    tmp_path,
):
    with open_harness(tmp_path) as harness:
        for client in harness.clients:
            client.pull()
        assert all(
            [
                (await each).wanted
                for each in [harness.report(number, asking=[0]) for number in range(CLIENTS)]
            ]
        )
        uploads = [harness.upload(number) for number in range(CLIENTS)]
        while harness.barrier._closing is None:
            await asyncio.sleep(0)
        harness.ledger.join(
            2, ScriptedClient(harness.agreement, 2).join(generation=2)
        )  # before the ledger closes the round
        assert [(await each).merged for each in uploads[:2]] == [True, True]
        with pytest.raises(Refused, match="this session is over"):
            await uploads[2]
        assert (harness.ledger.clients()[2]["sequence"], harness.ledger.total_pulls) == (0, 2)


@pytest.mark.parametrize("asking", [[], [0]])
@run_in_event_loop
async def test_a_round_that_cannot_be_stored_fails_for_all_and_succeeds_when_repeated(
    tmp_path, asking
):
    with open_harness(tmp_path) as harness:
        uploads = [client.pull().upload() for client in harness.clients]
        harness.failing, before = True, read_state(harness.ledger)

        async def call_all():
            tasks = [harness.report(number, asking=asking) for number in range(CLIENTS)]
            if asking:
                assert all([(await each).wanted for each in tasks])
                tasks = [
                    harness.upload(number, request=uploads[number]) for number in range(CLIENTS)
                ]
            return await asyncio.gather(*tasks, return_exceptions=True)

        assert await call_all() == [FULL] * CLIENTS
        assert read_state(harness.ledger) == before
        harness.failing = False
        one = harness.upload(0, request=uploads[0]) if asking else harness.report(0)
        await let_tasks_settle()
        assert (
            not one.done() and harness.ledger.round == 0
        )  # all must repeat their call, so that each gets an answer
        one.cancel()
        assert [answer.round for answer in await call_all()] == [1] * CLIENTS
        assert harness.ledger.n_syncs == len(asking)


@run_in_event_loop
async def test_a_stopping_barrier_refuses_waiting_calls_and_finishes_the_merge(
    tmp_path,
):
    with open_harness(tmp_path) as harness:
        waiting = harness.report(0)
        await let_tasks_settle()
        await harness.barrier.stop()
        for each in (waiting, harness.report(1)):
            with pytest.raises(Refused) as caught:
                await each
            assert caught.value.reason == "stopping"
        harness.restart()
        reports = [harness.report(number) for number in range(CLIENTS)]
        while harness.barrier._closing is None:
            await asyncio.sleep(0)
        await harness.barrier.stop()
        assert [summarize(await each) for each in reports] == [(1, False, False)] * 3


@pytest.mark.parametrize("waiting_numbers", [(0, 1), (0,)])
@run_in_event_loop
async def test_waiting_clients_get_the_new_epoch_when_a_leaving_client_ends_the_old_one(
    tmp_path, waiting_numbers
):
    doubling = fsl.make("sync", dim=DIM, n_arms=ARMS, n_clients=CLIENTS, horizon=None)
    with open_harness(tmp_path, Agreement.of(doubling)) as harness:
        harness.clients[2].pull(harness.agreement.algorithm(0).horizon)
        waiting = [harness.report(number) for number in waiting_numbers]
        await let_tasks_settle()
        harness.leave(2)
        await let_tasks_settle()
        for answer in [each.result() for each in waiting]:
            assert (answer.epoch, *summarize(answer)) == (1, 0, False, True)
        assert [
            (await each).epoch for each in (harness.report(0, epoch=1), harness.report(1, epoch=1))
        ] == [
            1,
            1,
        ]
        assert harness.ledger.round == 1


class UnreliableClient(ScriptedClient):
    """A client that plays rounds while calls, commits and the server fail at random.

    `pulls` counts all of its pulls; `left` counts, by layer, those not yet merged.
    """

    def __init__(self, harness, number, chance):
        super().__init__(harness.agreement, number)
        self.harness, self.chance, self.round, self.pulls, self.left = (
            harness,
            chance,
            0,
            0,
            Counter(),
        )

    async def play(self, rounds):
        for _ in range(rounds):
            await asyncio.sleep(self.chance.choice([0, 0, 0, 0.003]))
            self.left[self.chance.randrange(2)] += 1
            self.pulls += 1
            if self.chance.random() < 0.1:
                await self.send_until_answered(leaving=True)
            answer = await self.call_until_answered(
                lambda: self.harness.barrier.report(self.number, self.make_report())
            )
            self.round = answer.round
            if answer.wanted:
                await self.send_until_answered(leaving=False)
        await self.send_until_answered(leaving=True)

    def make_report(self):
        return self.report(
            self.round,
            [layer for layer in self.left if self.left[layer] and self.chance.random() < 0.3],
        )

    async def send_until_answered(self, *, leaving):
        frozen = self.freeze_upload(leaving)
        while True:
            try:
                answer = await self.call_until_answered(
                    lambda: self.harness.send_upload(self.number, frozen)
                )
            except Refused as error:
                assert error.reason == "round"
                await self.call_until_answered(
                    lambda: self.harness.barrier.report(self.number, self.make_report())
                )
                continue
            self.round = answer.round
            if answer.merged:
                for layer, pulls in zip(
                    frozen.upload.layers.tolist(), frozen.upload.pulls.tolist(), strict=True
                ):
                    self.left[layer] -= pulls * (layer in answer.download.layers)
            return

    def freeze_upload(self, leaving):
        self.sequence += 1
        layers = np.array(sorted(layer for layer in self.left if self.left[layer]), np.int64)
        pulls = np.array([self.left[layer] for layer in layers.tolist()], np.int64)
        grams = pulls[:, None] * np.eye(DIM)[np.triu_indices(DIM)] / DIM
        upload = Upload(self.number, layers, grams, np.zeros((len(layers), DIM)), pulls)
        return SyncRequest(
            self.agreement.fingerprint, self.session, self.sequence, 0, self.round, leaving, upload
        )

    async def call_until_answered(self, call):
        """Repeat a call until it is answered; some attempts are cancelled at random."""
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


def sum_traces(ledger):
    return sum(
        np.trace(ledger.server.layer(layer)["gram"]) for layer in range(ledger.algorithm.n_layers)
    )


@pytest.mark.parametrize("seed", range(12))
@run_in_event_loop
async def test_every_pull_is_merged_once_under_random_failures(tmp_path, seed):
    chance = random.Random(seed)
    with open_harness(tmp_path, deadline=0.004) as harness:
        clients = [
            UnreliableClient(harness, number, random.Random(f"{seed} {number}"))
            for number in range(CLIENTS)
        ]
        for client in clients:
            harness.ledger.join(client.number, client.join(generation=2))
        harness.trouble, before = chance, sum_traces(harness.ledger)
        playing = [asyncio.create_task(client.play(40)) for client in clients]
        while not all(each.done() for each in playing):
            await asyncio.sleep(chance.choice([0.001, 0.01, 0.05]))
            await harness.barrier.stop()
            harness.restart()
        await asyncio.gather(*playing)
        harness.trouble = None
        assert [client.pulls for client in clients] == [40] * CLIENTS
        assert not any(client.left.total() for client in clients)
        assert harness.ledger.total_pulls == 40 * CLIENTS
        assert sum_traces(harness.ledger) - before == pytest.approx(40 * CLIENTS, abs=1e-9)


# --- rounds over the network ----------------------------------------------------------------------


@run_in_event_loop
async def test_rounds_work_over_the_network_and_a_leaving_client_ends_the_wait(tmp_path):
    clients = make_clients(make_agreement("sync"))
    async with run_service(tmp_path, "sync") as running, asyncio.TaskGroup() as group:
        await running.join(*clients)

        def each(method, messages):
            calls = [
                running.call(method, message, TOKENS[number])
                for number, message in messages.items()
            ]
            return [group.create_task(call) for call in calls]

        answers = [
            await call
            for call in each(
                "Round", {one.number: one.pull().report(asking=[0]) for one in clients}
            )
        ]
        assert [summarize(answer) for answer in answers] == [(0, True, False)] * 3
        answers = [
            await call for call in each("Sync", {one.number: one.upload() for one in clients})
        ]
        assert all(answer.merged for answer in answers) and answers[0].round == 1
        for one, answer in zip(clients, answers, strict=True):
            one.client.apply(answer.download)
        waiting = each("Round", {one.number: one.pull().report(1) for one in clients[:2]})
        assert (
            await running.call("Sync", clients[2].pull().upload(1, leaving=True), TOKENS[2])
        ).merged
        assert [summarize(await call) for call in waiting] == [(2, False, False)] * 2
        assert running.metrics("fedsuplin_round") == 2
        early = await running.expect_refusal("Sync", clients[0].upload(2), TOKENS[0])
        assert early[0] == "ABORTED" and "report round 2 again" in early[1]
        assert running.metrics("fedsuplin_syncs_total") == 4


@run_in_event_loop
async def test_a_stopping_server_refuses_calls_that_wait_for_other_clients(tmp_path):
    client = ScriptedClient(make_agreement("sync"), 0)
    async with run_service(tmp_path, "sync") as running:
        await running.join(client)
        call = asyncio.create_task(running.expect_refusal("Round", client.report(), TOKENS[0]))
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


def test_tokens_are_printed_and_only_their_hashes_are_stored(tmp_path):
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


def test_token_files_are_readable_by_their_owner_only(tmp_path):
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
def test_serve_reports_missing_or_wrong_options_and_creates_no_store(tmp_path, arguments, meant):
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


def test_without_grpc_help_works_and_serve_says_what_to_install(tmp_path):
    def run_without_grpc(*arguments):
        code = (
            "import sys; sys.modules['grpc'] = None; from fedsuplin.cli.main import root_command; "
            f"root_command({list(map(str, arguments))!r})"
        )
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        )

    shown = run_without_grpc("serve", "--help")
    assert shown.returncode == 0 and "--client-ca" in shown.stdout
    assert run_without_grpc("tokens", tmp_path / "tokens.json", "--clients", 1).returncode == 0
    refused = run_without_grpc(
        "serve", "async", *SIZES, "--store", tmp_path / "s.db", "--tokens", tmp_path / "tokens.json"
    )
    assert refused.returncode == 2 and "pip install 'fedsuplin[federation]'" in refused.stderr
    assert not (tmp_path / "s.db").exists()


@contextlib.contextmanager
def run_server_process(folder, *arguments):
    """Run `fedsuplin serve` and read its address from what it prints."""
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


def call_server(channel, method, message, token):
    call = channel.unary_unary(PATHS[method])
    metadata = (("authorization", f"Bearer {token}"),)
    return ANSWERS[method].from_bytes(
        call(message.to_bytes(), metadata=metadata, timeout=20, wait_for_ready=True)
    )


def stop_process(running, number):
    running.send_signal(number)
    rest, lines = running.communicate(timeout=20)
    assert (running.returncode, rest) == (0, "")
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.posix
def test_a_restarted_server_resumes_after_a_graceful_stop(tmp_path):
    client = ScriptedClient(make_agreement(), 0).pull()
    with (
        run_server_process(tmp_path, "async", *SIZES, "--horizon", 3000) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        call_server(channel, "Join", client.join(), TOKENS[0])
        assert call_server(channel, "Sync", client.upload(), TOKENS[0]).merged
        events = [line["event"] for line in stop_process(running, signal.SIGTERM)]
        assert events == ["listening", "joined", "stopped"]
    with run_server_process(tmp_path) as running, grpc.insecure_channel(running.target) as channel:
        assert call_server(channel, "Join", client.join(), TOKENS[0]).sequence == 1
        stop_process(running, signal.SIGINT)
    with run_server_process(tmp_path, "async", *SIZES, "--horizon", 3000) as running:
        stop_process(running, signal.SIGTERM)
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
    client = ScriptedClient(make_agreement(), 0)
    with (
        run_server_process(tmp_path, "sync", *SIZES, "--first-horizon", 300) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        agreement = Agreement.from_spec(call_server(channel, "Join", client.join(), TOKENS[0]).spec)
        assert agreement.doubles and [agreement.algorithm(epoch).horizon for epoch in (0, 1)] == [
            300,
            600,
        ]
        stop_process(running, signal.SIGTERM)


@pytest.mark.linux
def test_a_server_on_a_full_disk_reports_it_and_recovers_when_there_is_room(
    tmp_path,
):
    import resource  # does not exist on Windows

    client = ScriptedClient(make_agreement(), 0).pull()
    with (
        run_server_process(tmp_path, "async", *SIZES, "--horizon", 3000) as running,
        grpc.insecure_channel(running.target) as channel,
    ):
        call_server(channel, "Join", client.join(), TOKENS[0])
        upload = client.upload()
        soft, hard = resource.prlimit(running.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (1, hard))
        for _ in range(3):
            with pytest.raises(grpc.RpcError) as caught:
                call_server(channel, "Sync", upload, TOKENS[0])
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, caught.value
            assert "can't write its store" in caught.value.details()
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (soft, hard))
        assert call_server(channel, "Sync", upload, TOKENS[0]).merged
        assert call_server(channel, "Sync", upload, TOKENS[0]).merged
        refused = [
            line for line in stop_process(running, signal.SIGTERM) if line["event"] == "refused"
        ]
        assert {line["reason"] for line in refused} == {"store"}
    with contextlib.closing(Ledger(tmp_path / "server.db")) as ledger:
        assert (ledger.n_syncs, ledger.total_pulls) == (1, 1)
