"""Parse and format network addresses."""

from __future__ import annotations

import ipaddress
import re

from ..errors import InvalidInput

ADDRESS_PATTERN = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s\[\]:/]+)):([0-9]{1,5})")
LOCAL_NAMES = ("localhost", "ip6-localhost")


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of an address HOST:PORT. An IPv6 address is in brackets.

    >>> parse_address("[::1]:50051")
    ('::1', 50051)
    """
    found = ADDRESS_PATTERN.fullmatch(address) if isinstance(address, str) else None
    if found is None or int(found[3]) > 65535:
        raise InvalidInput(
            f"an address must be HOST:PORT, such as 127.0.0.1:50051 or [::1]:50051, not {address!r}"
        )
    return found[1] or found[2], int(found[3])


def parse_server_url(address: str, *, plaintext: bool = False) -> tuple[str, bool]:
    """Return HOST:PORT of a server's address, and whether it uses TLS.

    >>> parse_server_url("grpcs://federation.example.org:50051")
    ('federation.example.org:50051', True)
    """
    scheme, _, rest = address.partition("://") if isinstance(address, str) else ("", "", "")
    if scheme not in ("grpc", "grpcs"):
        raise InvalidInput(
            "the server's address must be grpcs://HOST:PORT, or grpc://HOST:PORT without TLS, "
            f"not {address!r}"
        )
    host, _ = parse_address(rest)
    if scheme == "grpc" and not plaintext and not is_loopback(host):
        raise InvalidInput(
            f"{host} is not a loopback address: without TLS others can read all messages and the "
            "token. Use grpcs://, or pass plaintext=True"
        )
    return rest, scheme == "grpcs"


def is_loopback(host: str) -> bool:
    """Return whether the host of an address is this machine, so that no message leaves it.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def format_url(scheme: str, host: str, port: int) -> str:
    """Return an address as a URL, with an IPv6 address in brackets."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
