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
from .calls import FIRST_CONTACT_SECONDS, Calls, ConnectionStatus, prepare_calls_and_link

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
    """The same for asyncio, in the event loop that is running: no thread is needed.

    >>> asyncio.run(connect_async("grpcs://federation.example.org:50051", client_id=3))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedsuplin.errors.InvalidInput: the server needs to know who calls: give a token, ...
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
        begun = await self._wait(
            self._is_begun, wait if self._link.client is None else min(wait, FIRST_CONTACT_SECONDS)
        )
        if self._link.error is not None:
            raise self._link.error
        if not begun and self._link.client is None:
            raise self._unheard(wait)

    async def select(self, contexts: Any, mask: Any = None) -> Decision:
        """As Connection.select."""
        if self._link.busy:
            await self._wait(lambda: self._link.patience() <= 0, self._link.patience())
        return self._link.select(contexts, mask)

    async def observe(
        self, decision: Decision | int, reward: float, sigma: float | None = None
    ) -> None:
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
            await self.close(
                flush=self.is_online and kind is not asyncio.CancelledError,
                timeout=self._calls.timeout,
            )


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
            async with self._calls.channel(
                import_extra("grpc.aio", "federation", "fsl.connect_async")
            ) as channel:
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
        grpc, link = import_extra("grpc", "federation", "fsl.connect_async"), self._link
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
