"""fsl.connect and fsl.connect_async: a client that talks to its server by itself, in a thread of its own or in an event loop.

    with fsl.connect("grpcs://federation.example.org:50051", client_id=3, token=token, store="client-3.db") as client:
        decision = client.select(contexts)
        client.observe(decision, reward)

What is said and what it means is in link.py; here it is only carried. A connection that is forgotten ends its thread, and one
that is left open when the process ends does not keep it from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

from ..algorithm import Algorithm
from ..client import Decision
from ..errors import FederationError, InvalidInput
from ..extras import imported
from ..messages import is_whole
from .credentials import channel_credentials, metadata_of, target_of
from .journal import Journal
from .link import Link, Request
from .plan import Plan
from .wire import METHODS, PATHS

LARGEST_MESSAGE = 64 << 20
WAITS_FOR_OTHERS = 20.0  # seconds more for an answer that comes when all clients have come: the server's two deadlines
A_MOMENT = 1.0  # seconds: so long a client that goes on from its store looks whether it is refused
OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.initial_reconnect_backoff_ms", 100),  # we wait between attempts ourselves
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 20_000),  # a network that is cut without a word is noticed
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),  # clients of one process have a connection each
]


@dataclass(frozen=True)
class Calls:
    """Whom to call, and how: all that both forms share."""

    target: str
    credentials: Any
    metadata: tuple[tuple[str, str], ...]
    timeout: float

    def channel(self, module: Any) -> Any:
        if self.credentials is None:
            # A proxy of the system's would read along, also on the way to loopback.
            return module.insecure_channel(self.target, options=[*OPTIONS, ("grpc.enable_http_proxy", 0)])
        return module.secure_channel(self.target, self.credentials, options=OPTIONS)

    def methods(self, channel: Any) -> dict[str, Any]:
        return {method: channel.unary_unary(PATHS[method]) for method in METHODS}

    def keywords(self, request: Request) -> dict[str, Any]:
        return {"timeout": self.timeout + WAITS_FOR_OTHERS * request.together, "metadata": self.metadata, "wait_for_ready": False}


def connect(
    address: str,
    *,
    client_id: int,
    token: str | None = None,
    store: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    seed: int = 0,
    algorithm: Algorithm | Any = None,
    wait: float = 30.0,
    timeout: float = 10.0,
    plaintext: bool = False,
) -> Connection:
    """A client of the federation at `address`, grpcs://HOST:PORT (grpc:// without TLS, which others can read).

    It says who it is with a `token`, or with a certificate (`cert` and `key`, PEM files); `ca` is the authority that the server's
    certificate is of, if it is none that the system knows. Everything is kept in the file `store`, and a process that is started
    again goes on from there; without it, what was not uploaded yet is lost with the process. `algorithm` is the server's; one
    that is given must be the same. `wait` is for how many seconds the server may be away now, `timeout` for how many it may take
    to answer, and a decision to wait for an answer that is under way.

    >>> connect("federation.example.org:50051", client_id=3, token="secret")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedsuplin.errors.InvalidInput: the server's address must be grpcs://HOST:PORT, ...
    """
    calls, link = _prepared(address, client_id, token, store, ca, cert, key, seed, algorithm, wait, timeout, plaintext)
    connection = Connection(link, calls)
    try:
        connection._begin(wait)
    except BaseException:
        connection.close(flush=False)
        raise
    return connection


async def connect_async(
    address: str,
    *,
    client_id: int,
    token: str | None = None,
    store: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    seed: int = 0,
    algorithm: Algorithm | Any = None,
    wait: float = 30.0,
    timeout: float = 10.0,
    plaintext: bool = False,
) -> AsyncConnection:
    """The same for asyncio, in the event loop that is running: no thread is needed.

    >>> asyncio.run(connect_async("grpcs://federation.example.org:50051", client_id=3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedsuplin.errors.InvalidInput: the server needs to know who calls: give a token, ...
    """
    calls, link = _prepared(address, client_id, token, store, ca, cert, key, seed, algorithm, wait, timeout, plaintext)
    connection = AsyncConnection(link, calls)
    try:
        await connection._begin(wait)
    except BaseException:
        await connection.close(flush=False)
        raise
    return connection


def _prepared(
    address: str,
    client_id: int,
    token: str | None,
    store: str | os.PathLike[str] | None,
    ca: Any,
    cert: Any,
    key: Any,
    seed: int,
    algorithm: Any,
    wait: float,
    timeout: float,
    plaintext: bool,
) -> tuple[Calls, Link]:
    """What can be wrong is told here, before anything is sent."""
    target, encrypted = target_of(address, plaintext=plaintext)
    if not is_whole(client_id) or not 0 <= client_id < 1 << 32:
        raise InvalidInput(f"client_id must be a whole number of at least 0, not {client_id!r}")
    if not is_whole(seed) or not 0 <= seed < 1 << 63:
        raise InvalidInput(f"seed must be a whole number of at least 0, not {seed!r}")
    for name, seconds in (("wait", wait), ("timeout", timeout)):
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise InvalidInput(f"{name} must be a positive number of seconds, not {seconds!r}")
    if token is None and cert is None:
        raise InvalidInput("the server needs to know who calls: give a token, or a certificate (cert and key)")
    if not encrypted and not (ca is cert is key is None):
        raise InvalidInput("certificates (ca, cert, key) are for TLS: the address must begin with grpcs://")
    imported("grpc", "federation", "fsl.connect")
    credentials = channel_credentials(ca, cert, key) if encrypted else None
    calls = Calls(target, credentials, metadata_of(token), float(timeout))
    plan = None if algorithm is None else Plan.of(algorithm)
    journal = None if store is None else Journal(store)
    try:
        return calls, Link(int(client_id), plan=plan, seed=int(seed), journal=journal, timeout=float(timeout))
    except BaseException:
        if journal is not None:
            journal.close()
        raise


# --- what both forms tell ----------------------------------------------------------------------------------------------


class Told:
    """What a connection says of itself. Nothing here waits."""

    _link: Link
    _calls: Calls

    @property
    def client_id(self) -> int:
        return self._link.client_id

    @property
    def algorithm(self) -> Algorithm:
        """The server's; of this epoch, where nobody knows the horizon."""
        return self._link.player.algorithm

    @property
    def epoch(self) -> int:
        return self._link.epoch

    @property
    def n_observed(self) -> int:
        """In all epochs, by this client, with those before a restart."""
        return self._link.n_observed

    @property
    def n_open(self) -> int:
        return self._link.player.n_open

    @property
    def open(self) -> tuple[int, ...]:
        """The ids of the decisions that wait for their reward."""
        with self._link.changed:
            return tuple(self._link.player._open)

    @property
    def wants_sync(self) -> bool:
        """Is something under way to the server, or due?"""
        return self._link.busy

    @property
    def is_online(self) -> bool:
        """Did the server answer last time?"""
        return self._link.is_online

    @property
    def error(self) -> FederationError | None:
        """Why this client does not talk to the server any more, if so."""
        return self._link.error

    def layer(self, layer: int) -> dict[str, Any]:
        """A copy of what the client knows of a layer."""
        return self._link.player.layer(layer)

    def stats(self) -> dict[str, Any]:
        """Counts: what was observed, synced, sent and received, and what failed."""
        return self._link.stats()

    def __repr__(self) -> str:
        name = "nothing yet" if self._link.client is None else self._link.client.algorithm.name
        state = "closed" if self._link.stopped else "refused" if self.error else "online" if self.is_online else "offline"
        return f"{type(self).__name__}({name}, client_id={self.client_id}, {self.n_observed} observed, {state})"

    def _unheard(self, wait: float) -> FederationError:
        why = self._link.why or "no answer"
        return FederationError(f"the server at {self._calls.target} can't be reached within {wait:g} seconds ({why})")

    def _unmerged(self, timeout: float | None) -> FederationError:
        kept = "it is kept in the store" if self._link.is_kept else "it is lost with this process: give a store"
        why = f" ({self._link.why})" if self._link.why else ""
        when = "before this connection was closed" if timeout is None else f"within {timeout:g} seconds"
        return FederationError(f"what was gathered was not merged {when}{why}; {kept}")

    def _is_begun(self) -> bool:
        """Has the server told the algorithm, or is it known from the store, and one attempt made?"""
        link = self._link
        return link.error is not None or (link.client is not None and (link.is_online or link.away or not link.busy))


# --- with a thread ---------------------------------------------------------------------------------------------------


class Connection(Told):
    """A client that is connected to its server. Methods may be called from any thread. `fsl.connect` makes it.

    >>> with connect("grpc://127.0.0.1:1", client_id=0, token="secret", wait=0.1) as client:  # doctest: +ELLIPSIS
    ...     client.observe(client.select([[1, 0], [0, 1]]), reward=0.5)
    Traceback (most recent call last):
    ...
    fedsuplin.errors.FederationError: the server at 127.0.0.1:1 can't be reached within 0.1 seconds ...
    """

    def __init__(self, link: Link, calls: Calls) -> None:
        self._link, self._calls = link, calls
        self._driver = Driver(link, calls)
        self._finish = weakref.finalize(self, self._driver.stop)  # when nobody holds it any more, or the process ends

    def _begin(self, wait: float) -> None:
        self._driver.start()
        begun = self._wait(self._is_begun, wait if self._link.client is None else min(wait, A_MOMENT))
        if self._link.error is not None:
            raise self._link.error
        if not begun and self._link.client is None:
            raise self._unheard(wait)

    def select(self, contexts: Any, mask: Any = None) -> Decision:
        """Choose one of the arms (contexts of shape arms × dim), or of those whose `mask` is True. It waits for an answer that
        is under way, unless the server is away."""
        if self._link.busy:
            self._wait(lambda: self._link.patience() <= 0, self._link.patience())
        return self._link.select(contexts, mask)

    def observe(self, decision: Decision | int, reward: float, sigma: float | None = None) -> None:
        """The reward of a decision, now or later, in any order. `sigma` is its noise level, where the client is told."""
        self._link.observe(decision, reward, sigma)

    def drop(self, decision: Decision | int) -> None:
        """Forget a decision whose reward will never be known."""
        self._link.drop(decision)

    def wait_synced(self, timeout: float | None = None) -> bool:
        """Wait until nothing is under way or due; where clients sync together, until the round is answered. False if the
        timeout came first."""
        synced = self._wait(lambda: not self._link.busy, timeout)
        self._raise_error()
        return synced

    def flush(self, timeout: float | None = None) -> None:
        """Upload what was gathered, and wait until it is merged."""
        until = self._link.flush()
        self._until_flushed(until, timeout)

    def close(self, flush: bool = True, timeout: float = 30.0) -> None:
        """Upload what was gathered, tell the server that nobody needs to wait for this client, and stop. What is not merged by
        the timeout is a FederationError; with a store it is kept, and sent by the next connection."""
        try:
            if flush and not self._link.stopped:
                self._link.leave()
                self._until_flushed(0, timeout)
        finally:
            self._finish()
            self._driver.join()

    def _until_flushed(self, until: int, timeout: float | None) -> None:
        self._driver.retract()
        flushed = self._wait(lambda: self._link.is_flushed(until), timeout)
        self._raise_error()
        if not flushed:
            raise self._unmerged(timeout)

    def _wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Until it is done, or there is no more hope, or the time is over; says whether it is done."""
        link, end = self._link, None if timeout is None else time.monotonic() + timeout
        with link.changed:
            while not done():
                left = None if end is None else end - time.monotonic()
                if link.error is not None or link.stopped or (left is not None and left <= 0):
                    return False
                link.changed.wait(left)
            return True

    def _raise_error(self) -> None:
        if self._link.error is not None:
            raise self._link.told()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(FederationError):  # what was raised in the block matters more
            self.close(flush=self.is_online, timeout=self._calls.timeout)


class Driver:
    """The thread that carries what the link has to say. It knows nothing of the Connection, which may be forgotten."""

    def __init__(self, link: Link, calls: Calls) -> None:
        self._link, self._calls = link, calls
        self._channel: Any = None
        self._call: Any = None  # that is under way
        self._thread = threading.Thread(target=self._run, name=f"fedsuplin-client-{link.client_id}", daemon=True)

    def start(self) -> None:
        self._channel = self._calls.channel(imported("grpc", "federation", "fsl.connect"))
        self._thread.start()

    def _run(self) -> None:
        methods, link = self._calls.methods(self._channel), self._link
        while not link.stopped:
            try:
                request = self._next()
                if request is not None:
                    self._carry(methods[request.method], request)
            except Exception as error:  # nobody else would hear of it
                link.broken(error)
        self._channel.close()

    def _next(self) -> Request | None:
        """Sleeps until something is due; None when it is over."""
        link = self._link
        with link.changed:
            while not link.stopped:
                request = link.request()
                if request is not None:
                    return request
                link.changed.wait(link.delay() or None)
            return None

    def _carry(self, method: Any, request: Request) -> None:
        grpc, link = imported("grpc", "federation", "fsl.connect"), self._link
        with link.changed:
            if link.stopped or link.should_retract:
                link.retracted(request.number)
                return
            self._call = call = method.future(request.data, **self._calls.keywords(request))
        try:
            data = call.result()
        except grpc.FutureCancelledError:
            link.retracted(request.number)
        except grpc.RpcError as error:
            link.failed(request.number, error.code().name, error.details() or "")
        else:
            link.answered(request.number, data)
        finally:
            self._call = None

    def retract(self) -> None:
        """Give up a call that waits for others, if there is something more urgent to say."""
        with self._link.changed:
            if self._call is not None and self._link.should_retract:
                self._call.cancel()

    def stop(self) -> None:
        """No more calls; the one that is under way is given up."""
        with self._link.changed:
            self._link.stop()
            call = self._call
        if call is not None:
            call.cancel()

    def join(self) -> None:
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()


# --- with asyncio ------------------------------------------------------------------------------------------------------


class AsyncConnection(Told):
    """A client that is connected to its server, for one event loop. `fsl.connect_async` makes it.

    >>> async def play():
    ...     async with await connect_async("grpc://127.0.0.1:1", client_id=0, token="secret", wait=0.1) as client:
    ...         await client.observe(await client.select([[1, 0], [0, 1]]), reward=0.5)
    >>> asyncio.run(play())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedsuplin.errors.FederationError: the server at 127.0.0.1:1 can't be reached within 0.1 seconds ...
    """

    def __init__(self, link: Link, calls: Calls) -> None:
        self._link, self._calls = link, calls
        self._driver = AsyncDriver(link, calls)
        self._finish = weakref.finalize(self, self._driver.forget)

    async def _begin(self, wait: float) -> None:
        self._driver.start()
        begun = await self._wait(self._is_begun, wait if self._link.client is None else min(wait, A_MOMENT))
        if self._link.error is not None:
            raise self._link.error
        if not begun and self._link.client is None:
            raise self._unheard(wait)

    async def select(self, contexts: Any, mask: Any = None) -> Decision:
        """As Connection.select."""
        if self._link.busy:
            await self._wait(lambda: self._link.patience() <= 0, self._link.patience())
        return self._link.select(contexts, mask)

    async def observe(self, decision: Decision | int, reward: float, sigma: float | None = None) -> None:
        """As Connection.observe."""
        self._link.observe(decision, reward, sigma)

    async def drop(self, decision: Decision | int) -> None:
        """As Connection.drop."""
        self._link.drop(decision)

    async def wait_synced(self, timeout: float | None = None) -> bool:
        """As Connection.wait_synced."""
        synced = await self._wait(lambda: not self._link.busy, timeout)
        self._raise_error()
        return synced

    async def flush(self, timeout: float | None = None) -> None:
        """As Connection.flush."""
        await self._until_flushed(self._link.flush(), timeout)

    async def close(self, flush: bool = True, timeout: float = 30.0) -> None:
        """As Connection.close."""
        try:
            if flush and not self._link.stopped:
                self._link.leave()
                await self._until_flushed(0, timeout)
        finally:
            self._finish.detach()
            await self._driver.stop()

    async def _until_flushed(self, until: int, timeout: float | None) -> None:
        self._driver.retract()
        flushed = await self._wait(lambda: self._link.is_flushed(until), timeout)
        self._raise_error()
        if not flushed:
            raise self._unmerged(timeout)

    async def _wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        link, end = self._link, None if timeout is None else time.monotonic() + timeout
        while not done():
            left = None if end is None else end - time.monotonic()
            if link.error is not None or link.stopped or (left is not None and left <= 0):
                return False
            await self._driver.news(left)
        return True

    def _raise_error(self) -> None:
        if self._link.error is not None:
            raise self._link.told()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            await self.close()
            return
        with contextlib.suppress(FederationError):
            await self.close(flush=self.is_online and kind is not asyncio.CancelledError, timeout=self._calls.timeout)


class AsyncDriver:
    """The task that carries what the link has to say."""

    def __init__(self, link: Link, calls: Calls) -> None:
        self._link, self._calls = link, calls
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._call: Any = None
        self._task: asyncio.Task[None] | None = None
        link.on_change = self._changed

    def start(self) -> None:
        self._task = self._loop.create_task(self._run())

    def _changed(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def news(self, timeout: float | None) -> None:
        """Until something has changed, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()

    async def _run(self) -> None:
        try:
            async with self._calls.channel(imported("grpc.aio", "federation", "fsl.connect_async")) as channel:
                await self._carry_all(self._calls.methods(channel))
        finally:
            self._link.stop()  # also when the loop ends, and this with it

    async def _carry_all(self, methods: dict[str, Any]) -> None:
        link = self._link
        while not link.stopped:
            request = link.request()
            if request is None:
                await self.news(link.delay() or None)
                continue
            try:
                await self._carry(methods[request.method], request)
            except Exception as error:  # nobody else would hear of it
                link.broken(error)

    async def _carry(self, method: Callable[..., Awaitable[bytes]], request: Request) -> None:
        grpc, link = imported("grpc", "federation", "fsl.connect_async"), self._link
        self._call = call = method(request.data, **self._calls.keywords(request))
        try:
            data = await call
        except grpc.RpcError as error:
            link.failed(request.number, error.code().name, error.details() or "")
        except asyncio.CancelledError:
            link.retracted(request.number)
            us = asyncio.current_task()
            if us is not None and us.cancelling():  # not the call, but we
                raise
        else:
            link.answered(request.number, data)
        finally:
            self._call = None

    def retract(self) -> None:
        if self._call is not None and self._link.should_retract:
            self._call.cancel()

    async def stop(self) -> None:
        self._link.stop()
        if self._call is not None:
            self._call.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])

    def forget(self) -> None:
        """The connection was dropped without a close, maybe in another thread, or with the loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)
            return
        self._link.on_change = lambda: None
        self._link.stop()

    def _end(self) -> None:
        self._link.stop()
        if self._call is not None:
            self._call.cancel()
