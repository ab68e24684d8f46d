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
from .calls import FIRST_CONTACT_SECONDS, Calls, prepare_calls_and_link
from .connection_status import ConnectionStatus

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
    """Connect a client to the server of a federation.

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
    Connection
        The connected client.

    Raises
    ------
    InvalidInput
        If an argument is wrong, or the store belongs to another client or algorithm.
    FederationError
        If the server refuses the client or cannot be reached.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> fsl.connect("example.org:50051", client_id=3, token="secret")  # doctest: +ELLIPSIS
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
    """A client that is connected to its server, as :func:`fedsuplin.connect` returns it.

    A thread in the background talks to the server. Methods may be called from any thread. Leaving a
    ``with`` block closes the connection.

    Parameters
    ----------
    link : Link
        The client and its part in the protocol.
    calls : Calls
        Where and how to call the server.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> server = "grpc://127.0.0.1:1"  # no server listens here
    >>> with fsl.connect(server, client_id=0, token="secret", wait=0.1) as client:
    ...     client.observe(client.select([[1, 0], [0, 1]]), reward=0.5)
    ... # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedsuplin.errors.FederationError: the server at 127.0.0.1:1 can't be reached within 0.1 ...
    """

    def __init__(self, link: Link, calls: Calls) -> None:
        self._link, self._calls = link, calls
        self._driver = Driver(link, calls)
        # Runs when the connection is garbage, or the process ends.
        self._finish = weakref.finalize(self, self._driver.stop)

    def _begin(self, wait: float) -> None:
        """Start to call the server, and wait for its first answer or for `wait` seconds."""
        self._driver.start()
        begun = self._wait(
            self._is_begun, wait if self._link.client is None else min(wait, FIRST_CONTACT_SECONDS)
        )
        if self._link.error is not None:
            raise self._link.error
        if not begun and self._link.client is None:
            raise self._make_unreachable_error(wait)

    def select(self, contexts: Any, mask: Any = None) -> Decision:
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
            self._wait(lambda: self._link.compute_patience() <= 0, patience)
        return self._link.select(contexts, mask)

    def observe(self, decision: Decision | int, reward: float, sigma: float | None = None) -> None:
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

    def drop(self, decision: Decision | int) -> None:
        """Forget a decision whose reward will never be known.

        Parameters
        ----------
        decision : Decision or int
            The decision, or its id.
        """
        self._link.drop(decision)

    def wait_synced(self, timeout: float | None = None) -> bool:
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
        synced = self._wait(lambda: not self._link.busy, timeout)
        self._raise_error()
        return synced

    def flush(self, timeout: float | None = None) -> None:
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
        until = self._link.flush()
        self._wait_until_flushed(until, timeout)

    def close(self, flush: bool = True, timeout: float = 30.0) -> None:
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
                self._wait_until_flushed(0, timeout)
        finally:
            self._finish()
            self._driver.join()

    def _wait_until_flushed(self, until: int, timeout: float | None) -> None:
        """Wait until this many observations are merged, or raise an error."""
        self._driver.retract()
        flushed = self._wait(lambda: self._link.is_flushed(until), timeout)
        self._raise_error()
        if not flushed:
            raise self._make_unmerged_error(timeout)

    def _wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is done; return False if it cannot be, or the time is over."""
        link, end = self._link, None if timeout is None else time.monotonic() + timeout
        with link.changed:
            while not done():
                left = None if end is None else end - time.monotonic()
                if link.error is not None or link.stopped or (left is not None and left <= 0):
                    return False
                link.changed.wait(left)
            return True

    def _raise_error(self) -> None:
        """Raise the error that ended the connection, if there is one."""
        if self._link.error is not None:
            raise self._link.take_error()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(FederationError):  # what was raised in the block matters more
            self.close(flush=self.is_online, timeout=self._calls.timeout)


class Driver:
    """The thread that sends a link's requests.

    It holds no reference to the Connection, which ends when its owner forgets it.
    """

    def __init__(self, link: Link, calls: Calls) -> None:
        self._link, self._calls = link, calls
        self._channel: Any = None
        self._call: Any = None  # the call that is under way
        self._thread = threading.Thread(
            target=self._run, name=f"fedsuplin-client-{link.client_id}", daemon=True
        )

    def start(self) -> None:
        """Open the channel of a connection, and start its thread."""
        self._channel = self._calls.open_channel(import_extra("grpc", "federation", "fsl.connect"))
        self._thread.start()

    def _run(self) -> None:
        """Send the requests of a connection until its link is stopped."""
        methods, link = self._calls.bind_methods(self._channel), self._link
        while not link.stopped:
            try:
                request = self._wait_for_request()
                if request is not None:
                    self._send(methods[request.method], request)
            except Exception as error:  # it would be lost with this thread
                link.fail_unexpectedly(error)
        self._channel.close()

    def _wait_for_request(self) -> Request | None:
        """Wait in the connection's thread until something is due; None when the link is stopped."""
        link = self._link
        with link.changed:
            while not link.stopped:
                request = link.request()
                if request is not None:
                    return request
                link.changed.wait(link.compute_delay() or None)
            return None

    def _send(self, method: Any, request: Request) -> None:
        """Make a call in the connection's thread, and give its answer or failure to the link."""
        grpc, link = import_extra("grpc", "federation", "fsl.connect"), self._link
        with link.changed:
            if link.stopped or link.should_retract:
                link.take_back_call(request.number)
                return
            keywords = self._calls.make_call_keywords(request)
            self._call = call = method.future(request.data, **keywords)
        try:
            data = call.result()
        except grpc.FutureCancelledError:
            link.take_back_call(request.number)
        except grpc.RpcError as error:
            link.take_failure(request.number, error.code().name, error.details() or "")
        else:
            link.take_answer(request.number, data)
        finally:
            self._call = None

    def retract(self) -> None:
        """Cancel a connection's call that waits for other clients, if this client has to flush."""
        with self._link.changed:
            if self._call is not None and self._link.should_retract:
                self._call.cancel()

    def stop(self) -> None:
        """Make no more calls for the connection, and cancel the one that is under way."""
        with self._link.changed:
            self._link.stop()
            call = self._call
        if call is not None:
            call.cancel()

    def join(self) -> None:
        """Wait for the connection's thread to end."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()
