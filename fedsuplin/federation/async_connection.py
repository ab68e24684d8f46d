"""fsl.connect_async: a client that talks to its server in an event loop."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from .._shared.extras import import_extra
from .._shared.lazy_names import LazyModule
from ..algorithm.algorithm import Algorithm
from ..errors import FederationError
from ..live.client import Decision
from .calls import FIRST_CONTACT_SECONDS, Calls, prepare_calls_and_link
from .connection_status import ConnectionStatus

if TYPE_CHECKING:
    import asyncio

    from .link import Link, Request
else:
    asyncio = LazyModule("asyncio")  # brings ssl: a tenth of the time of `import fedsuplin`


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
    """Connect a client to the server of a federation, in the running event loop.

    Parameters
    ----------
    address : str
        ``grpcs://HOST:PORT``, or ``grpc://HOST:PORT`` without TLS, which others can read.
    client_id : int
        Which client of the federation this is, from 0.
    token : str, optional
        The token of this client. The server asks for a token, a certificate, or both.
    store : str or path, optional
        A file for the client's state. A process that starts again continues from it. Without it,
        what was not uploaded is lost when the process ends.
    ca : str or path, optional
        A PEM file with the authority of the server's certificate. By default those that the system
        trusts.
    cert : str or path, optional
        A PEM file with the certificate of this client.
    key : str or path, optional
        A PEM file with its key.
    seed : int, default 0
        The seed of random policies.
    algorithm : Algorithm or Doubling, optional
        The algorithm that the server must have. By default any will do.
    wait : float, default 30.0
        For how many seconds the server may be unreachable now.
    timeout : float, default 10.0
        For how many seconds a call may take, and a decision waits for a call that is under way.
    plaintext : bool, default False
        Allow ``grpc://`` to other machines.

    Returns
    -------
    AsyncConnection
        The connected client.

    Raises
    ------
    InvalidInput
        If an argument is wrong, or the store belongs to another client or algorithm.
    FederationError
        If the server refuses the client or cannot be reached.

    Examples
    --------
    >>> import asyncio
    >>> import fedsuplin as fsl
    >>> asyncio.run(fsl.connect_async("grpcs://example.org:50051", client_id=3))
    ... # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedsuplin.errors.InvalidInput: the server identifies clients: pass a token, ...
    """
    calls, link = prepare_calls_and_link(
        address, client_id, token, store, ca, cert, key, seed, algorithm, wait, timeout, plaintext
    )
    connection = AsyncConnection(link, calls)
    try:
        await connection._begin(wait)
    except BaseException:
        await connection.close(flush=False)
        raise
    return connection


class AsyncConnection(ConnectionStatus):
    """A client that is connected to its server, as :func:`fedsuplin.connect_async` returns it.

    A task in the event loop talks to the server. Leaving an ``async with`` block closes the
    connection.

    Parameters
    ----------
    link : Link
        The client and its part in the protocol.
    calls : Calls
        Where and how to call the server.

    Examples
    --------
    >>> import asyncio
    >>> import fedsuplin as fsl
    >>> async def play():
    ...     server = "grpc://127.0.0.1:1"  # no server listens here
    ...     connecting = fsl.connect_async(server, client_id=0, token="secret", wait=0.1)
    ...     async with await connecting as client:
    ...         await client.observe(await client.select([[1, 0], [0, 1]]), reward=0.5)
    >>> asyncio.run(play())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedsuplin.errors.FederationError: the server at 127.0.0.1:1 can't be reached within 0.1 ...
    """

    def __init__(self, link: Link, calls: Calls) -> None:
        self._link, self._calls = link, calls
        self._driver = AsyncDriver(link, calls)
        self._finish = weakref.finalize(self, self._driver.stop_forgotten)

    async def _begin(self, wait: float) -> None:
        """Start to call the server, and await its first answer or `wait` seconds."""
        self._driver.start()
        begun = await self._wait(
            self._is_begun, wait if self._link.client is None else min(wait, FIRST_CONTACT_SECONDS)
        )
        if self._link.error is not None:
            raise self._link.error
        if not begun and self._link.client is None:
            raise self._make_unreachable_error(wait)

    async def select(self, contexts: Any, mask: Any = None) -> Decision:
        """Choose one of the arms.

        Waits for an answer that is under way, unless the server is unreachable.

        Parameters
        ----------
        contexts : array_like of float, shape (n_arms, dim)
            One row per arm, none longer than 1.
        mask : array_like of bool, shape (n_arms,), optional
            Which arms are available. By default all are.

        Returns
        -------
        Decision
            The chosen arm, and the id under which its reward is observed.
        """
        if self._link.busy:
            patience = self._link.compute_patience()
            await self._wait(lambda: self._link.compute_patience() <= 0, patience)
        return self._link.select(contexts, mask)

    async def observe(
        self, decision: Decision | int, reward: float, sigma: float | None = None
    ) -> None:
        """Learn from the reward of a decision.

        Rewards may arrive late and in any order.

        Parameters
        ----------
        decision : Decision or int
            The decision, or its id. One of an earlier epoch is ignored.
        reward : float
            Its reward.
        sigma : float, optional
            The noise level of this reward, if it is known. By default that of the algorithm's
            noise model.
        """
        self._link.observe(decision, reward, sigma)

    async def drop(self, decision: Decision | int) -> None:
        """Forget a decision whose reward will never be known.

        Parameters
        ----------
        decision : Decision or int
            The decision, or its id.
        """
        self._link.drop(decision)

    async def wait_synced(self, timeout: float | None = None) -> bool:
        """Wait until no call is under way or due.

        Where clients sync together, that is when the round is answered.

        Parameters
        ----------
        timeout : float, optional
            For how many seconds at most. By default without a limit.

        Returns
        -------
        bool
            False if the timeout came first.

        Raises
        ------
        FederationError
            If the server refuses this client.
        """
        synced = await self._wait(lambda: not self._link.busy, timeout)
        self._raise_error()
        return synced

    async def flush(self, timeout: float | None = None) -> None:
        """Upload what was gathered, and wait until it is merged.

        Parameters
        ----------
        timeout : float, optional
            For how many seconds at most. By default without a limit.

        Raises
        ------
        FederationError
            If it was not merged in time, or the server refuses this client.
        """
        await self._wait_until_flushed(self._link.flush(), timeout)

    async def close(self, flush: bool = True, timeout: float = 30.0) -> None:
        """Upload what was gathered, leave the federation, and stop.

        Parameters
        ----------
        flush : bool, default True
            Whether to upload at all. With a store, the next connection uploads the rest.
        timeout : float, default 30.0
            For how many seconds to wait until everything is merged.

        Raises
        ------
        FederationError
            If something was not merged in time.
        """
        try:
            if flush and not self._link.stopped:
                self._link.leave()
                await self._wait_until_flushed(0, timeout)
        finally:
            self._finish.detach()
            await self._driver.stop()

    async def _wait_until_flushed(self, until: int, timeout: float | None) -> None:
        """Wait until this many observations are merged, or raise an error."""
        self._driver.retract()
        flushed = await self._wait(lambda: self._link.is_flushed(until), timeout)
        self._raise_error()
        if not flushed:
            raise self._make_unmerged_error(timeout)

    async def _wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is done; return False if it cannot be, or the time is over."""
        link, end = self._link, None if timeout is None else time.monotonic() + timeout
        while not done():
            left = None if end is None else end - time.monotonic()
            if link.error is not None or link.stopped or (left is not None and left <= 0):
                return False
            await self._driver.wait_for_change(left)
        return True

    def _raise_error(self) -> None:
        """Raise the error that ended the connection, if there is one."""
        if self._link.error is not None:
            raise self._link.take_error()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            await self.close()
            return
        with contextlib.suppress(FederationError):
            await self.close(
                flush=self.is_online and kind is not asyncio.CancelledError,
                timeout=self._calls.timeout,
            )


class AsyncDriver:
    """The task that sends a link's requests."""

    def __init__(self, link: Link, calls: Calls) -> None:
        self._link, self._calls = link, calls
        self._loop = asyncio.get_running_loop()
        self._change = asyncio.Event()
        self._call: Any = None
        self._task: asyncio.Task[None] | None = None
        link.on_change = self._notify

    def start(self) -> None:
        """Start the task."""
        self._task = self._loop.create_task(self._run())

    def _notify(self) -> None:
        """Wake everyone who waits for a change."""
        change, self._change = self._change, asyncio.Event()
        change.set()

    async def wait_for_change(self, timeout: float | None) -> None:
        """Wait until something has changed, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._change.wait()

    async def _run(self) -> None:
        """Send requests until the link is stopped, or the event loop ends."""
        aio = import_extra("grpc.aio", "federation", "fsl.connect_async")
        try:
            async with self._calls.open_channel(aio) as channel:
                await self._send_all(self._calls.bind_methods(channel))
        finally:
            self._link.stop()

    async def _send_all(self, methods: dict[str, Any]) -> None:
        """Send one request after the other."""
        link = self._link
        while not link.stopped:
            request = link.request()
            if request is None:
                await self.wait_for_change(link.compute_delay() or None)
                continue
            try:
                await self._send(methods[request.method], request)
            except Exception as error:  # it would be lost with this task
                link.fail_unexpectedly(error)

    async def _send(self, method: Callable[..., Awaitable[bytes]], request: Request) -> None:
        """Make a call, and give its answer or failure to the link."""
        grpc, link = import_extra("grpc", "federation", "fsl.connect_async"), self._link
        self._call = call = method(request.data, **self._calls.make_call_keywords(request))
        try:
            data = await call
        except grpc.RpcError as error:
            link.take_failure(request.number, error.code().name, error.details() or "")
        except asyncio.CancelledError:
            link.take_back_call(request.number)
            us = asyncio.current_task()
            if us is not None and us.cancelling():  # this task was cancelled, not the call
                raise
        else:
            link.take_answer(request.number, data)
        finally:
            self._call = None

    def retract(self) -> None:
        """Cancel a call that waits for other clients, if this client has to flush."""
        if self._call is not None and self._link.should_retract:
            self._call.cancel()

    async def stop(self) -> None:
        """Make no more calls, cancel the one that is under way, and wait for the task to end."""
        self._end()
        if self._task is not None:
            await asyncio.wait([self._task])

    def stop_forgotten(self) -> None:
        """Stop after the connection was forgotten, from any thread, with or without the loop."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)
            return
        self._link.on_change = lambda: None
        self._link.stop()

    def _end(self) -> None:
        """Make no more calls, and cancel the one that is under way."""
        self._link.stop()
        if self._call is not None:
            self._call.cancel()
