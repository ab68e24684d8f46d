"""The gRPC calls of both kinds of connection, and the checks of their arguments."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._shared.checks import check_seconds, check_seed, is_whole_number
from .._shared.extras import import_extra
from ..errors import InvalidInput
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
        """Open a channel of `grpc` or `grpc.aio` for the calls."""
        if self.credentials is None:
            # The system's proxy could read the messages, even those to loopback.
            return module.insecure_channel(
                self.target, options=[*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)]
            )
        return module.secure_channel(self.target, self.credentials, options=CHANNEL_OPTIONS)

    def bind_methods(self, channel: Any) -> dict[str, Any]:
        """Return a function that makes the call, per method of the service."""
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
    """Check the arguments of both kinds of `connect`, and open the store, before the first call."""
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
