"""What both kinds of connection share: gRPC calls, checks of arguments, and the status."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._shared.checks import check_seconds, check_seed, is_whole_number
from .._shared.extras import import_extra
from ..algorithm.algorithm import Algorithm
from ..errors import FederationError, InvalidInput
from .addresses import parse_server_url

if TYPE_CHECKING:
    from .link import Link, Request

# The functions below import what they need, so that `import fedsuplin` stays cheap.
LARGEST_MESSAGE = 64 << 20  # bytes that a client or a server sends or reads
EXTRA_WAIT_SECONDS = 20.0  # for an answer that waits for all clients: the server's two deadlines
FIRST_CONTACT_SECONDS = 1.0  # in which a client with a store finds out whether it is refused
LARGEST_CLIENT_ID = (1 << 32) - 1
LARGEST_SEED = (1 << 63) - 1
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.initial_reconnect_backoff_ms", 100),  # the Link waits between attempts
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 20_000),  # notices a network that fails silently
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),  # clients of one process have a connection each
]


@dataclass(frozen=True)
class Calls:
    """Where and how a client calls its server."""

    target: str
    credentials: Any
    metadata: tuple[tuple[str, str], ...]
    timeout: float

    def open_channel(self, module: Any) -> Any:
        """Open a channel of `grpc` or `grpc.aio`."""
        if self.credentials is None:
            # The system's proxy could read the messages, even those to loopback.
            return module.insecure_channel(
                self.target, options=[*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)]
            )
        return module.secure_channel(self.target, self.credentials, options=CHANNEL_OPTIONS)

    def bind_methods(self, channel: Any) -> dict[str, Any]:
        """Return a function per method of the service."""
        from .wire import METHODS, PATHS

        return {method: channel.unary_unary(PATHS[method]) for method in METHODS}

    def make_call_keywords(self, request: Request) -> dict[str, Any]:
        """Return the keywords of a call: deadline, token, and that it fails at once if it must."""
        return {
            "timeout": self.timeout + EXTRA_WAIT_SECONDS * request.together,
            "metadata": self.metadata,
            "wait_for_ready": False,
        }


def prepare_calls_and_link(
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
    """Check the arguments of `connect`, and open the store, before anything is sent."""
    from .agreement import Agreement
    from .client_journal import ClientJournal
    from .credentials import make_channel_credentials, make_metadata
    from .link import Link

    target, encrypted = parse_server_url(address, plaintext=plaintext)
    if not is_whole_number(client_id) or not 0 <= client_id <= LARGEST_CLIENT_ID:
        raise InvalidInput(f"client_id must be a whole number of at least 0, not {client_id!r}")
    seed = check_seed(seed, most=LARGEST_SEED)
    check_seconds("wait", wait)
    check_seconds("timeout", timeout)
    if token is None and cert is None:
        raise InvalidInput(
            "the server identifies clients: pass a token, or a certificate (cert and key)"
        )
    if not encrypted and not (ca is cert is key is None):
        raise InvalidInput(
            "certificates (ca, cert, key) are for TLS: the address must begin with grpcs://"
        )
    import_extra("grpc", "federation", "fsl.connect")
    credentials = make_channel_credentials(ca, cert, key) if encrypted else None
    calls = Calls(target, credentials, make_metadata(token), float(timeout))
    agreement = None if algorithm is None else Agreement.of(algorithm)
    journal = None if store is None else ClientJournal(store)
    try:
        return calls, Link(
            int(client_id), agreement=agreement, seed=seed, journal=journal, timeout=float(timeout)
        )
    except BaseException:
        if journal is not None:
            journal.close()
        raise


class ConnectionStatus:
    """The properties of a connection that do not wait for anything."""

    _link: Link
    _calls: Calls

    @property
    def client_id(self) -> int:
        """Which client of the federation this is."""
        return self._link.client_id

    @property
    def algorithm(self) -> Algorithm:
        """The server's algorithm; that of the current epoch, if the horizon is unknown."""
        return self._link.started_client.algorithm

    @property
    def epoch(self) -> int:
        """The epoch that the client is in; 0 if the horizon is known."""
        return self._link.epoch

    @property
    def n_observed(self) -> int:
        """How many rewards this client observed, in all epochs and before restarts."""
        return self._link.n_observed

    @property
    def n_open(self) -> int:
        """How many decisions wait for their reward."""
        return self._link.started_client.n_open

    @property
    def open(self) -> tuple[int, ...]:
        """The ids of the decisions that wait for their reward."""
        with self._link.changed:
            return self._link.started_client.open_ids

    @property
    def wants_sync(self) -> bool:
        """Whether a call to the server is under way or due."""
        return self._link.busy

    @property
    def is_online(self) -> bool:
        """Whether the server answered the last call."""
        return self._link.is_online

    @property
    def error(self) -> FederationError | None:
        """Why this client no longer calls the server, or None."""
        return self._link.error

    def layer(self, layer: int) -> dict[str, Any]:
        """Return a copy of what the client knows about a layer.

        Parameters
        ----------
        layer : int
            Which layer, from 0.

        Returns
        -------
        dict of str to array
            The sums of the last download, and what was gathered since.
        """
        return self._link.started_client.layer(layer)

    def stats(self) -> dict[str, Any]:
        """Return counts of what was observed, synced, sent and received, and of failures.

        Returns
        -------
        dict
            Numbers by name; also ``online`` (bool) and ``last_failure`` (str).
        """
        return self._link.stats()

    def __repr__(self) -> str:
        name = "nothing yet" if self._link.client is None else self._link.client.algorithm.name
        state = (
            "closed"
            if self._link.stopped
            else "refused"
            if self.error
            else "online"
            if self.is_online
            else "offline"
        )
        return (
            f"{type(self).__name__}({name}, client_id={self.client_id}, "
            f"{self.n_observed} observed, {state})"
        )

    def _make_unreachable_error(self, wait: float) -> FederationError:
        """Return the error for a server that did not answer in time."""
        why = self._link.why or "no answer"
        return FederationError(
            f"the server at {self._calls.target} can't be reached within {wait:g} seconds ({why})"
        )

    def _make_unmerged_error(self, timeout: float | None) -> FederationError:
        """Return the error for observations that were not merged in time."""
        kept = (
            "they are kept in the store"
            if self._link.has_store
            else "they are lost with this process: pass a store to keep them"
        )
        why = f" ({self._link.why})" if self._link.why else ""
        when = (
            "before this connection was closed"
            if timeout is None
            else f"within {timeout:g} seconds"
        )
        return FederationError(f"some observations were not merged {when}{why}; {kept}")

    def _is_begun(self) -> bool:
        """Return whether the client can play, and the server was tried once."""
        link = self._link
        return link.error is not None or (
            link.client is not None and (link.is_online or link.away or not link.busy)
        )
