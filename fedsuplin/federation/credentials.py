"""Tokens and certificates of both sides, and how a call is identified."""

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

from .._shared.extras import import_extra
from .._shared.files import open_atomically
from ..errors import InvalidInput
from .addresses import is_loopback, parse_address

TOKEN_BYTES = 32
LONGEST_TOKEN = 512  # of what a call may bring; ours have 43 characters
COMMON_NAME_PATTERN = re.compile(r"client-(0|[1-9][0-9]{0,9})")
TOKEN_PATTERN = re.compile(r"[!-~]+")


class Tokens:
    """Which client a token stands for. Only hashes are kept, so that the file opens nothing to those who read it.

    >>> Tokens({7: hash_of("secret")}).client("secret"), Tokens({}).client("secret")
    (7, None)
    """

    def __init__(self, hashes: Mapping[int, str]) -> None:
        self._by_head: dict[bytes, list[tuple[bytes, int]]] = {}
        for client_id, text in hashes.items():
            digest = bytes.fromhex(text)
            self._by_head.setdefault(digest[:4], []).append((digest, client_id))
        self.clients = frozenset(hashes)

    def client(self, token: str) -> int | None:
        """The few whose hash begins alike are compared in a time that does not depend on what they are."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = None
        for known, client_id in self._by_head.get(digest[:4], ()):
            if hmac.compare_digest(known, digest):
                found = client_id
        return found

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tokens:
        """From a file that `fedsuplin tokens` wrote."""
        try:
            told = json.loads(Path(path).read_text("utf-8"))
        except OSError as error:
            raise InvalidInput(f"can't read the tokens in {path}: {error.strerror}") from None
        except (ValueError, RecursionError):
            told = None
        if (
            not isinstance(told, dict)
            or not told
            or not all(map(_is_hash_entry, told, told.values()))
        ):
            raise InvalidInput(
                f"{path} does not hold hashes of tokens by client id; `fedsuplin tokens FILE --clients N` makes such a file"
            )
        if len(set(told.values())) < len(told):
            raise InvalidInput(
                f"{path} has the same token for two clients: nobody could tell them apart"
            )
        return cls({int(client_id): text for client_id, text in told.items()})


def _is_hash_entry(client_id: str, text: Any) -> bool:
    return bool(
        re.fullmatch("0|[1-9][0-9]{0,9}", client_id)
        and isinstance(text, str)
        and re.fullmatch("[0-9a-f]{64}", text)
    )


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def make_tokens(client_ids: Iterable[int]) -> dict[int, str]:
    return {client_id: secrets.token_urlsafe(TOKEN_BYTES) for client_id in client_ids}


def write_token_hashes(path: str | os.PathLike[str], tokens: Mapping[int, str]) -> None:
    """The file that a server reads."""
    with open_atomically(path, encoding="utf-8") as file:
        json.dump(
            {str(client_id): hash_token(token) for client_id, token in tokens.items()},
            file,
            indent=1,
        )
        file.write("\n")


def write_token(path: str | os.PathLike[str], token: str) -> None:
    """A new file that only its owner reads, from the first byte on."""
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(token + "\n")


@dataclass(frozen=True)
class Listening:
    """Where a server listens, and to whom. Files are PEM; `address` may have port 0, for any that is free.

    >>> Listening("0.0.0.0:50051", tokens="tokens.json")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    fedsuplin.errors.InvalidInput: 0.0.0.0 is no loopback address: ...
    """

    address: str = "127.0.0.1:0"
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    client_ca: str | os.PathLike[str] | None = None
    """Clients need a certificate of this authority, with the common name client-<id>."""
    tokens: str | os.PathLike[str] | None = None
    """A file of hashes, which `fedsuplin tokens` makes. With client_ca too, a client needs both."""
    plaintext: bool = False
    """Listen without TLS where others can read along."""
    deadline: float = 10.0
    """Seconds that clients who sync together wait for each other."""
    metrics_address: str | None = None

    def __post_init__(self) -> None:
        host, _ = parse_address(self.address)
        if self.metrics_address is not None:
            parse_address(self.metrics_address)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInput("TLS needs both, a certificate (--tls-cert) and its key (--tls-key)")
        if self.client_ca is not None and not self.tls:
            raise InvalidInput(
                "certificates of clients (--client-ca) come with TLS: give --tls-cert and --tls-key too"
            )
        if self.tls and self.plaintext:
            raise InvalidInput("it is either TLS (--tls-cert, --tls-key) or --plaintext")
        if not (self.tls or self.plaintext or is_loopback(host)):
            raise InvalidInput(
                f"{host} is no loopback address: what is said there can be read by others, tokens too. Give a certificate "
                "(--tls-cert, --tls-key), or ask for it with --plaintext"
            )
        if self.tokens is None and self.client_ca is None:
            raise InvalidInput(
                "nobody could be let in: give tokens (--tokens, see `fedsuplin tokens`) or a --client-ca"
            )
        if (
            isinstance(self.deadline, bool)
            or not isinstance(self.deadline, int | float)
            or not 0 < self.deadline < float("inf")
        ):
            raise InvalidInput(
                f"the deadline must be a positive number of seconds, not {self.deadline!r}"
            )

    @property
    def tls(self) -> bool:
        return self.tls_cert is not None


def make_server_credentials(listening: Listening) -> Any:
    """What grpc needs for a TLS port; files that do not go together are told of here, by name."""
    grpc = import_extra("grpc", "federation", "fedsuplin serve")
    cert, key, ca = _read_pem_files(listening.tls_cert, listening.tls_key, listening.client_ca)
    return grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=ca, require_client_auth=ca is not None
    )


class Gate:
    """Says which client a call is of, from what came before its first byte; None lets nobody in."""

    def __init__(self, listening: Listening) -> None:
        self._tokens = None if listening.tokens is None else Tokens.read(listening.tokens)
        self._certificates = listening.client_ca is not None

    def client(self, context: Any) -> int | None:
        """`context` is grpc's, of one call."""
        found = set()
        if self._tokens is not None:
            token = read_bearer_token(context.invocation_metadata() or ())
            found.add(None if token is None else self._tokens.client(token))
        if self._certificates:
            found.add(read_certificate_client(context.auth_context()))
        return found.pop() if len(found) == 1 else None


def read_bearer_token(metadata: Iterable[tuple[str, Any]]) -> str | None:
    """The token of a call, if it brings one, and in the right form."""
    values = [value for key, value in metadata if key == "authorization"]
    if len(values) != 1 or not isinstance(values[0], str):
        return None
    scheme, _, token = values[0].partition(" ")
    return token if scheme.lower() == "bearer" and 0 < len(token) <= LONGEST_TOKEN else None


def read_certificate_client(auth_context: Mapping[str, Sequence[bytes]]) -> int | None:
    """The client that a verified certificate is for."""
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
    """What grpc needs to call a TLS port; without `ca` it believes whom the system does."""
    grpc = import_extra("grpc", "federation", "fsl.connect")
    if (cert is None) != (key is None):
        raise InvalidInput(
            "a client's certificate needs its key, and the other way round: give both, cert and key"
        )
    cert_bytes, key_bytes, ca_bytes = _read_pem_files(cert, key, ca)
    return grpc.ssl_channel_credentials(ca_bytes, key_bytes, cert_bytes)


def make_metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """What a call brings along to say whose it is."""
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
    return (
        ("authorization", f"Bearer {token.strip()}"),
    )  # as it is read from a file, with the end of its line


def _read_pem_files(
    cert: Any, key: Any, ca: Any
) -> tuple[bytes | None, bytes | None, bytes | None]:
    """The bytes of the files, which grpc would only say "failed" of if they were wrong."""
    chain, secret, authority = (
        None if path is None else _read_bytes(path) for path in (cert, key, ca)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if cert is not None:
            context.load_cert_chain(cert, key, password=_refuse_password)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput(
            f"{cert} and {key} are not a certificate and its key in PEM form: {_explain_tls_error(error)}"
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
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"can't read {path}: {error.strerror}") from None


def _refuse_password() -> str:
    raise ValueError("the key has a password: give one without")


def _explain_tls_error(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).lower().replace("_", " ")
