"""What both kinds of connection share: gRPC calls, argument checks, status."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._shared.checks import check_seed, is_whole_number
from .._shared.extras import import_extra
from ..algorithm.algorithm import Algorithm
from ..errors import FederationError, InvalidInput
from .addresses import parse_server_url

if TYPE_CHECKING:
    from .link import Link, Request

LARGEST_MESSAGE = 64 << 20
EXTRA_WAIT_SECONDS = 20.0  # seconds more for an answer that comes when all clients have come: the server's two deadlines
FIRST_CONTACT_SECONDS = (
    1.0  # seconds: so long a client that goes on from its store looks whether it is refused
)
CHANNEL_OPTIONS = [
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
            return module.insecure_channel(
                self.target, options=[*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)]
            )
        return module.secure_channel(self.target, self.credentials, options=CHANNEL_OPTIONS)

    def methods(self, channel: Any) -> dict[str, Any]:
        from .wire import METHODS, PATHS

        return {method: channel.unary_unary(PATHS[method]) for method in METHODS}

    def keywords(self, request: Request) -> dict[str, Any]:
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
    """What can be wrong is told here, before anything is sent."""
    target, encrypted = parse_server_url(address, plaintext=plaintext)
    if not is_whole_number(client_id) or not 0 <= client_id < 1 << 32:
        raise InvalidInput(f"client_id must be a whole number of at least 0, not {client_id!r}")
    seed = check_seed(seed, most=(1 << 63) - 1)
    for name, seconds in (("wait", wait), ("timeout", timeout)):
        if (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 0 < seconds < float("inf")
        ):
            raise InvalidInput(f"{name} must be a positive number of seconds, not {seconds!r}")
    if token is None and cert is None:
        raise InvalidInput(
            "the server needs to know who calls: give a token, or a certificate (cert and key)"
        )
    if not encrypted and not (ca is cert is key is None):
        raise InvalidInput(
            "certificates (ca, cert, key) are for TLS: the address must begin with grpcs://"
        )
    import_extra("grpc", "federation", "fsl.connect")
    # Here and not above: `import fedsuplin` should cost little to those who never connect.
    from .agreement import Agreement
    from .client_journal import ClientJournal
    from .credentials import make_channel_credentials, make_metadata
    from .link import Link

    credentials = make_channel_credentials(ca, cert, key) if encrypted else None
    calls = Calls(target, credentials, make_metadata(token), float(timeout))
    plan = None if algorithm is None else Agreement.of(algorithm)
    journal = None if store is None else ClientJournal(store)
    try:
        return calls, Link(
            int(client_id), plan=plan, seed=seed, journal=journal, timeout=float(timeout)
        )
    except BaseException:
        if journal is not None:
            journal.close()
        raise


class ConnectionStatus:
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
        state = (
            "closed"
            if self._link.stopped
            else "refused"
            if self.error
            else "online"
            if self.is_online
            else "offline"
        )
        return f"{type(self).__name__}({name}, client_id={self.client_id}, {self.n_observed} observed, {state})"

    def _unheard(self, wait: float) -> FederationError:
        why = self._link.why or "no answer"
        return FederationError(
            f"the server at {self._calls.target} can't be reached within {wait:g} seconds ({why})"
        )

    def _unmerged(self, timeout: float | None) -> FederationError:
        kept = (
            "it is kept in the store"
            if self._link.is_kept
            else "it is lost with this process: give a store"
        )
        why = f" ({self._link.why})" if self._link.why else ""
        when = (
            "before this connection was closed"
            if timeout is None
            else f"within {timeout:g} seconds"
        )
        return FederationError(f"what was gathered was not merged {when}{why}; {kept}")

    def _is_begun(self) -> bool:
        """Has the server told the algorithm, or is it known from the store, and one attempt made?"""
        link = self._link
        return link.error is not None or (
            link.client is not None and (link.is_online or link.away or not link.busy)
        )
