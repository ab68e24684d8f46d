"""Tokens and certificates of servers and clients, and which client a call comes from."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._shared.checks import check_seconds
from .._shared.extras import import_extra
from .._shared.files import open_atomically
from ..errors import InvalidInput
from .addresses import is_loopback, parse_address

TOKEN_BYTES = 32
LONGEST_TOKEN = 512  # characters that a call may bring; those of make_tokens have 43
COMMON_NAME_PATTERN = re.compile(r"client-(0|[1-9][0-9]{0,9})")
TOKEN_PATTERN = re.compile(r"[!-~]+")


class Tokens:
    """Which client each token belongs to. Only hashes are kept, which reveal no token.

    >>> tokens = Tokens({7: hash_token("secret")})
    >>> tokens.find_client("secret"), tokens.find_client("other")
    (7, None)
    """

    def __init__(self, hashes: Mapping[int, str]) -> None:
        self._by_head: dict[bytes, list[tuple[bytes, int]]] = {}
        for client_id, text in hashes.items():
            digest = bytes.fromhex(text)
            self._by_head.setdefault(digest[:4], []).append((digest, client_id))
        self.clients = frozenset(hashes)

    def find_client(self, token: str) -> int | None:
        """Return the client that has this token among its credentials, or None.

        Hashes with the same first bytes are compared in constant time.
        """
        digest = bytes.fromhex(hash_token(token))
        found = None
        for known, client_id in self._by_head.get(digest[:4], ()):
            if hmac.compare_digest(known, digest):
                found = client_id
        return found

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tokens:
        """Read the server's part of the credentials: the file that `fedsuplin tokens` wrote."""
        try:
            hashes = json.loads(Path(path).read_text("utf-8"))
        except OSError as error:
            raise InvalidInput(f"can't read the tokens in {path}: {error.strerror}") from None
        except (ValueError, RecursionError):
            hashes = None
        if (
            not isinstance(hashes, dict)
            or not hashes
            or not all(map(_is_hash_entry, hashes, hashes.values()))
        ):
            raise InvalidInput(
                f"{path} does not hold hashes of tokens by client id; "
                "`fedsuplin tokens FILE --clients N` makes such a file"
            )
        if len(set(hashes.values())) < len(hashes):
            raise InvalidInput(f"{path} has the same token for two clients")
        return cls({int(client_id): text for client_id, text in hashes.items()})


def _is_hash_entry(client_id: str, text: Any) -> bool:
    """Return whether an entry of the credentials is a client id and a SHA-256 in hexadecimal."""
    return bool(
        re.fullmatch("0|[1-9][0-9]{0,9}", client_id)
        and isinstance(text, str)
        and re.fullmatch("[0-9a-f]{64}", text)
    )


def hash_token(token: str) -> str:
    """Return the SHA-256 of a token in hexadecimal, as a server keeps its credentials."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def make_tokens(client_ids: Iterable[int]) -> dict[int, str]:
    """Return new credentials: a random token per client."""
    return {client_id: secrets.token_urlsafe(TOKEN_BYTES) for client_id in client_ids}


def write_token_hashes(path: str | os.PathLike[str], tokens: Mapping[int, str]) -> None:
    """Write the file of hashes that a server reads to check credentials."""
    with open_atomically(path, encoding="utf-8") as file:
        json.dump(
            {str(client_id): hash_token(token) for client_id, token in tokens.items()},
            file,
            indent=1,
        )
        file.write("\n")


def write_token(path: str | os.PathLike[str], token: str) -> None:
    """Write a token, a client's credentials, to a new file that only its owner can read."""
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(token + "\n")


@dataclass(frozen=True)
class Listening:
    """Where a server listens, and how clients identify themselves.

    Files are PEM. Port 0 of `address` takes any free port.

    >>> Listening("0.0.0.0:50051", tokens="tokens.json")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedsuplin.errors.InvalidInput: 0.0.0.0 is not a loopback address: ...
    """

    address: str = "127.0.0.1:0"
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    client_ca: str | os.PathLike[str] | None = None
    """Clients need a certificate of this authority, with the common name client-<id>."""
    tokens: str | os.PathLike[str] | None = None
    """A file of hashes, which `fedsuplin tokens` makes. With client_ca too, a client needs both."""
    plaintext: bool = False
    """Listen without TLS on a network, where others can read all messages."""
    deadline: float = 10.0
    """Seconds that clients that sync together wait for each other."""
    metrics_address: str | None = None

    def __post_init__(self) -> None:
        host, _ = parse_address(self.address)
        if self.metrics_address is not None:
            parse_address(self.metrics_address)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInput("TLS needs both a certificate (--tls-cert) and its key (--tls-key)")
        if self.client_ca is not None and not self.tls:
            raise InvalidInput(
                "certificates of clients (--client-ca) need TLS: pass --tls-cert and --tls-key too"
            )
        if self.tls and self.plaintext:
            raise InvalidInput("pass either a certificate (--tls-cert, --tls-key) or --plaintext")
        if not (self.tls or self.plaintext or is_loopback(host)):
            raise InvalidInput(
                f"{host} is not a loopback address: without TLS others can read all messages and "
                "tokens. Pass a certificate (--tls-cert, --tls-key), or --plaintext"
            )
        if self.tokens is None and self.client_ca is None:
            raise InvalidInput(
                "no client could connect: pass --tokens (see `fedsuplin tokens`) or --client-ca"
            )
        check_seconds("deadline", self.deadline)

    @property
    def tls(self) -> bool:
        """Whether the server has the credentials of TLS: a certificate and its key."""
        return self.tls_cert is not None


def make_server_credentials(listening: Listening) -> Any:
    """Return what grpc needs for a TLS port; errors name files that do not fit together."""
    grpc = import_extra("grpc", "federation", "fedsuplin serve")
    cert, key, ca = _read_pem_files(listening.tls_cert, listening.tls_key, listening.client_ca)
    return grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=ca, require_client_auth=ca is not None
    )


class Gate:
    """Identifies the client of a call by its token and certificate, before its message is read."""

    def __init__(self, listening: Listening) -> None:
        self._tokens = None if listening.tokens is None else Tokens.read(listening.tokens)
        self._certificates = listening.client_ca is not None

    def identify_client(self, context: Any) -> int | None:
        """Return the client of a call, or None. `context` is grpc's of that call."""
        found = set()
        if self._tokens is not None:
            token = read_bearer_token(context.invocation_metadata() or ())
            found.add(None if token is None else self._tokens.find_client(token))
        if self._certificates:
            found.add(read_certificate_client(context.auth_context()))
        return found.pop() if len(found) == 1 else None


def read_bearer_token(metadata: Iterable[tuple[str, Any]]) -> str | None:
    """Return the token of a call, or None if it has none in the right form."""
    values = [value for key, value in metadata if key == "authorization"]
    if len(values) != 1 or not isinstance(values[0], str):
        return None
    scheme, _, token = values[0].partition(" ")
    return token if scheme.lower() == "bearer" and 0 < len(token) <= LONGEST_TOKEN else None


def read_certificate_client(auth_context: Mapping[str, Sequence[bytes]]) -> int | None:
    """Return the client that a verified certificate is for, or None."""
    names = list(auth_context.get("x509_common_name", ()))
    if len(names) != 1:
        return None
    found = COMMON_NAME_PATTERN.fullmatch(names[0].decode("utf-8", "replace"))
    return int(found[1]) if found else None


def make_channel_credentials(
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
) -> Any:
    """Return what grpc needs to call a TLS port. Without `ca` it trusts whom the system trusts."""
    grpc = import_extra("grpc", "federation", "fsl.connect")
    if (cert is None) != (key is None):
        raise InvalidInput(
            "a client's certificate and its key belong together: pass both cert and key"
        )
    cert_bytes, key_bytes, ca_bytes = _read_pem_files(cert, key, ca)
    return grpc.ssl_channel_credentials(ca_bytes, key_bytes, cert_bytes)


def make_metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call with the client's token, one of its credentials."""
    if token is None:
        return ()
    if (
        not isinstance(token, str)
        or len(token) > LONGEST_TOKEN
        or not TOKEN_PATTERN.fullmatch(token.strip())
    ):
        raise InvalidInput(
            "a token is a word of ASCII letters, digits and signs, as `fedsuplin tokens` prints it"
        )
    # Stripped: a token that is read from a file may end with a line break.
    return (("authorization", f"Bearer {token.strip()}"),)


def _read_pem_files(
    cert: Any, key: Any, ca: Any
) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Return the bytes of PEM files with credentials; grpc would only report "failed"."""
    chain, secret, authority = (
        None if path is None else _read_bytes(path) for path in (cert, key, ca)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if cert is not None:
            context.load_cert_chain(cert, key, password=_refuse_password)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput(
            f"{cert} and {key} are not a certificate and its key in PEM form: "
            f"{_explain_tls_error(error)}"
        ) from None
    try:
        if ca is not None:
            context.load_verify_locations(cafile=ca)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput(
            f"{ca} holds no certificates in PEM form: {_explain_tls_error(error)}"
        ) from None
    return chain, secret, authority


def _read_bytes(path: Any) -> bytes:
    """Return the content of a file with credentials."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"can't read {path}: {error.strerror}") from None


def _refuse_password() -> str:
    """Raise the error for a key with a password, instead of asking for it on the terminal."""
    raise ValueError("the key has a password: use one without")


def _explain_tls_error(error: Exception) -> str:
    """Return OpenSSL's reason why credentials do not fit, in lower-case words."""
    return str(getattr(error, "reason", None) or error).lower().replace("_", " ")
