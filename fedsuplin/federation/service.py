"""The gRPC service over a ledger."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .._shared.extras import import_extra
from ..algorithm.doubling import LAST_EPOCH
from ..errors import InvalidInput
from .addresses import format_url, parse_address
from .agreement import Agreement
from .barrier import Barrier
from .calls import LARGEST_MESSAGE
from .commits import Commits
from .credentials import Gate, Listening, make_server_credentials
from .ledger import Ledger
from .pending_calls import Position
from .refusals import STOPPING, Refused
from .telemetry import Metrics, Throttle, log_event
from .wire import (
    ASKING_GENERATION,
    METHODS,
    SERVICE,
    JoinAnswer,
    JoinRequest,
    RoundAnswer,
    RoundRequest,
    SyncAnswer,
    SyncRequest,
)

grpc = import_extra("grpc", "federation", "fedsuplin serve")
aio = import_extra("grpc.aio", "federation", "fedsuplin serve")
MOST_CALLS_PER_CLIENT = 16  # at a time; a correct client has one or two
LONGEST_REFUSAL_TEXT = 1000  # characters: it travels in a header
STOP_GRACE_SECONDS = 2.0  # for the last answers when the server stops
SERVER_OPTIONS = [
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.max_concurrent_streams", 256),  # per connection
    ("grpc.so_reuseport", 0),  # a second server on the same port is an error
    ("grpc.keepalive_time_ms", 30_000),  # notices clients that vanished silently
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
STATUS_CODES = {
    "unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "identity": grpc.StatusCode.PERMISSION_DENIED,
    "malformed": grpc.StatusCode.INVALID_ARGUMENT,
    "implausible": grpc.StatusCode.INVALID_ARGUMENT,
    "algorithm": grpc.StatusCode.FAILED_PRECONDITION,
    "session": grpc.StatusCode.FAILED_PRECONDITION,
    "round": grpc.StatusCode.ABORTED,
    "busy": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "stopping": grpc.StatusCode.UNAVAILABLE,
    "store": grpc.StatusCode.UNAVAILABLE,
    "internal": grpc.StatusCode.INTERNAL,
}
UNLOGGED_REASONS = ("round", "stopping")  # part of normal operation
HEALTH_MODULES = ("health", "health_pb2", "health_pb2_grpc")


async def serve(
    ledger: Ledger, listening: Listening, *, started: Callable[[str], None] = lambda address: None
) -> None:
    """Run the gRPC service until this is cancelled, or the process gets SIGTERM or SIGINT.

    `started` is called with the address that `fsl.connect` takes, such as grpcs://127.0.0.1:50051.
    The caller closes the ledger.
    """
    service = Service(ledger, listening)
    with watch_stop_signals() as stopped:
        try:
            started(await service.start())
            await stopped.wait()
        finally:
            await service.stop()


@contextlib.contextmanager
def watch_stop_signals() -> Iterator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set, to stop the service.

    Outside the main thread, and on Windows, where asyncio has no signals, nothing sets it.
    """
    stopped, loop, handled = asyncio.Event(), asyncio.get_running_loop(), []
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
            handled.append(number)
    try:
        yield stopped
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


class Service:
    """A server: its port, its ledger's thread, and what each call does."""

    def __init__(self, ledger: Ledger, listening: Listening) -> None:
        self._ledger, self._listening = ledger, listening
        self._gate, self.metrics, self._throttle = Gate(listening), Metrics(), Throttle()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fedsuplin-ledger")
        together = ledger.algorithm.syncs == "all"
        self._barrier = (
            Barrier(ledger, self._work, listening.deadline, self._on_round_closed)
            if together
            else None
        )
        self._commits = Commits(ledger, self._work, self._on_commit)
        self._calls = {"Join": self._join, "Sync": self._sync, "Round": self._round}
        self._n_clients, self._seen = ledger.algorithm.n_clients, set(ledger.clients())
        self._of_client: Counter[int] = Counter()  # calls that are under way, by client
        self._bytes = AnswerEncoder()
        self._server: Any = None
        self._stopping = False

    # --- starting and stopping --------------------------------------------------------------------

    async def start(self) -> str:
        """Listen, and return the address."""
        self._server = server = aio.server(
            options=[
                *SERVER_OPTIONS,
                (
                    "grpc.max_receive_message_length",
                    compute_largest_request(self._ledger.agreement),
                ),
            ]
        )
        handlers = {
            method: grpc.stream_unary_rpc_method_handler(self._handler(method))
            for method in METHODS
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._health = await add_health_service(server)
        host, _ = parse_address(self._listening.address)
        port = self._bind(server)
        shown = self._listening.metrics_address and self.metrics.start_http(
            self._listening.metrics_address
        )
        self.metrics.clients.set(len(self._seen))
        self._show_position((self._ledger.epoch, self._ledger.round))
        await server.start()
        address = format_url("grpcs" if self._listening.tls else "grpc", host, port)
        log_event(
            "listening",
            address=address,
            metrics=shown,
            algorithm=self._ledger.algorithm.name,
            store=str(self._ledger.path),
        )
        return address

    def _bind(self, server: Any) -> int:
        """Take the port, and return its number."""
        address = self._listening.address
        credentials = make_server_credentials(self._listening) if self._listening.tls else None
        try:
            port: int = (
                server.add_insecure_port(address)
                if credentials is None
                else server.add_secure_port(address, credentials)
            )
        except RuntimeError:
            port = 0
        if port == 0:
            raise InvalidInput(
                f"can't listen on {address}: is it in use, or not an address of this machine?"
            )
        return port

    async def stop(self) -> None:
        """Finish and answer what is being committed, and ask waiting clients to try again."""
        self._stopping = True
        if self._server is not None:
            await self._health.enter_graceful_shutdown()
            if self._barrier is not None:
                await self._barrier.stop()
            await self._commits.drain()
            await self._server.stop(STOP_GRACE_SECONDS)
            log_event("stopped", syncs=self._ledger.n_syncs)
        self.metrics.close()
        self._thread.shutdown()

    async def _work(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the ledger's thread, which does one thing at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    # --- a call -----------------------------------------------------------------------------------

    def _handler(self, method: str) -> Callable[..., Any]:
        """Return the handler of a method.

        The request is a stream of one message, so that a caller is identified before it is read.
        """

        async def handle(_: Any, context: Any) -> bytes:
            began, client_id = time.perf_counter(), None
            try:
                client_id = self._identify_client(context)
                answer = await self._handle_call(method, client_id, context)
            except Exception as error:
                refused = self._make_refusal(error)
                self._record_refusal(method, client_id, refused, context)
            else:
                self.metrics.seconds.labels(method).observe(time.perf_counter() - began)
                self.metrics.sent.inc(len(answer))
                return answer
            nothing: bytes = await context.abort(
                STATUS_CODES[refused.reason], str(refused)[:LONGEST_REFUSAL_TEXT]
            )  # it raises
            return nothing

        return handle

    def _identify_client(self, context: Any) -> int:
        """Return the client that calls, or refuse the call."""
        client_id = self._gate.identify_client(context)
        if client_id is None:
            raise Refused(
                "unauthenticated",
                "no valid credentials: a call needs the token or the certificate of a client",
            )
        if client_id >= self._n_clients:
            raise Refused(
                "identity",
                f"there is no client {client_id}: this federation has 0 to {self._n_clients - 1}",
            )
        return client_id

    async def _handle_call(self, method: str, client_id: int, context: Any) -> bytes:
        """Read the message of a call, and return its answer."""
        if self._stopping:
            raise Refused("stopping", STOPPING)
        if self._of_client[client_id] >= MOST_CALLS_PER_CLIENT:
            raise Refused(
                "busy",
                f"client {client_id} has {MOST_CALLS_PER_CLIENT} calls under way: "
                "wait for their answers",
            )
        self._of_client[client_id] += 1
        try:
            data = await context.read()
            if data is aio.EOF:
                raise Refused("malformed", "a call without a message")
            self.metrics.received.inc(len(data))
            return await self._calls[method](client_id, data)
        finally:
            self._of_client[client_id] -= 1

    async def _join(self, client_id: int, data: bytes) -> bytes:
        """Answer a Join."""
        request = JoinRequest.from_bytes(data)
        answer: JoinAnswer = await self._work(self._ledger.join, client_id, request)
        if request.generation == ASKING_GENERATION:  # no session has begun
            return answer.to_bytes()
        self._seen.add(client_id)
        self.metrics.clients.set(len(self._seen))
        if self._barrier is not None:
            self._barrier.add_client(client_id, request.session)
        if (left_out := self._throttle.count_left_out((client_id, "joined"))) is not None:
            log_event(
                "joined",
                client=client_id,
                sequence=answer.sequence,
                epoch=answer.epoch,
                round=answer.round,
                left_out=left_out,
            )
        return answer.to_bytes()

    async def _sync(self, client_id: int, data: bytes) -> bytes:
        """Answer a Sync."""
        request = SyncRequest.from_bytes(data)
        if self._barrier is None or request.leaving:
            return self._bytes(await self._commits.sync(client_id, request))
        return self._bytes(await self._barrier.upload(client_id, request))

    async def _round(self, client_id: int, data: bytes) -> bytes:
        """Answer a Round."""
        request = RoundRequest.from_bytes(data)
        if self._barrier is None:
            await self._work(self._ledger.classify_request, client_id, request)  # may refuse it
            raise Refused(
                "malformed", "the clients of this federation sync one by one: there are no rounds"
            )
        return self._bytes(await self._barrier.report(client_id, request))

    # --- metrics and log --------------------------------------------------------------------------

    def _on_commit(self, n_merged: int, n_known: int, leaving: list[int], where: Position) -> None:
        """Count a commit, and remove the clients that left."""
        self.metrics.commits.inc()
        self.metrics.uploads.observe(n_merged)
        self.metrics.syncs.inc(n_merged)
        self.metrics.duplicates.inc(n_known)
        self._show_position(where)
        for client_id in leaving:
            log_event("left", client=client_id)
        if self._barrier is not None:
            self._barrier.remove_clients(leaving, where)

    def _on_round_closed(self, n_merged: int, where: Position) -> None:
        """Count a round that has ended."""
        if n_merged:
            self.metrics.commits.inc()
            self.metrics.uploads.observe(n_merged)
            self.metrics.syncs.inc(n_merged)
        self._show_position(where)

    def _show_position(self, where: Position) -> None:
        """Set the metrics of epoch and round."""
        self.metrics.epoch.set(where[0])
        self.metrics.round.set(where[1])

    def _make_refusal(self, error: Exception) -> Refused:
        """Return the refusal that a client gets for an error, and under which it is counted."""
        if isinstance(error, Refused):
            return error if error.reason in STATUS_CODES else Refused("internal", str(error))
        if isinstance(error, InvalidInput):
            return Refused("malformed", str(error))
        if isinstance(error, sqlite3.Error | OSError):
            return Refused(
                "store",
                f"the server can't write its store ({error}): nothing was merged, try again",
            )
        log_event("failed", level=logging.ERROR, error=error)
        return Refused("internal", "the server failed; its log has the reason")

    def _record_refusal(
        self, method: str, client_id: int | None, refused: Refused, context: Any
    ) -> None:
        """Count a refusal, and log it unless there were many."""
        self.metrics.refused.labels(refused.reason).inc()
        left_out = (
            None
            if refused.reason in UNLOGGED_REASONS
            else self._throttle.count_left_out((client_id, refused.reason))
        )
        if left_out is not None:
            level = logging.ERROR if refused.reason in ("store", "internal") else logging.WARNING
            fields: dict[str, Any] = {
                "client": client_id,
                "method": method,
                "reason": refused.reason,
                "message": str(refused)[:LONGEST_REFUSAL_TEXT],
            }
            log_event("refused", level=level, **fields, peer=context.peer(), left_out=left_out)


class AnswerEncoder:
    """Encodes answers. Those of a batch share a download, and are encoded once."""

    def __init__(self) -> None:
        self._download: Any = None
        self._made: dict[Any, bytes] = {}

    def __call__(self, answer: SyncAnswer | RoundAnswer) -> bytes:
        if answer.download is None:
            return answer.to_bytes()
        if answer.download is not self._download:
            self._download, self._made = answer.download, {}
        same = (
            type(answer),
            answer.epoch,
            answer.round,
            answer.merged if isinstance(answer, SyncAnswer) else answer.wanted,
        )
        if same not in self._made:
            self._made[same] = answer.to_bytes()
        return self._made[same]


def compute_largest_request(agreement: Agreement) -> int:
    """Return how many bytes a request to the service may have: the largest upload of any epoch."""
    algorithm = agreement.algorithm(LAST_EPOCH if agreement.doubles else 0)
    return 4096 + algorithm.n_layers * (16 + 4 * algorithm.dim * (algorithm.dim + 3))


async def add_health_service(server: Any) -> Any:
    """Add gRPC's health service beside ours. Anyone may call it; it only says that we run."""
    health, messages, stubs = (
        import_extra(f"grpc_health.v1.{name}", "federation", "fedsuplin serve")
        for name in HEALTH_MODULES
    )
    servicer = health.aio.HealthServicer()
    await servicer.set(SERVICE, messages.HealthCheckResponse.SERVING)
    stubs.add_HealthServicer_to_server(servicer, server)
    return servicer
