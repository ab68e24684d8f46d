"""fsl.connect: a client that talks to its server in a background thread."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from .._shared.extras import import_extra
from ..algorithm.algorithm import Algorithm
from ..errors import FederationError
from ..live.client import Decision
from .calls import FIRST_CONTACT_SECONDS, Calls, ConnectionStatus, prepare_calls_and_link

if TYPE_CHECKING:
    from .link import Link, Request


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
    calls, link = prepare_calls_and_link(
        address, client_id, token, store, ca, cert, key, seed, algorithm, wait, timeout, plaintext
    )
    connection = Connection(link, calls)
    try:
        connection._begin(wait)
    except BaseException:
        connection.close(flush=False)
        raise
    return connection


class Connection(ConnectionStatus):
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
        self._finish = weakref.finalize(
            self, self._driver.stop
        )  # when nobody holds it any more, or the process ends

    def _begin(self, wait: float) -> None:
        self._driver.start()
        begun = self._wait(
            self._is_begun, wait if self._link.client is None else min(wait, FIRST_CONTACT_SECONDS)
        )
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
        self._thread = threading.Thread(
            target=self._run, name=f"fedsuplin-client-{link.client_id}", daemon=True
        )

    def start(self) -> None:
        self._channel = self._calls.channel(import_extra("grpc", "federation", "fsl.connect"))
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
        grpc, link = import_extra("grpc", "federation", "fsl.connect"), self._link
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
