"""Parse and format addresses, and tell loopback from the network."""

from __future__ import annotations

import ipaddress
import re

from ..errors import InvalidInput

ADDRESS_PATTERN = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s\[\]:/]+)):([0-9]{1,5})")
LOCAL_NAMES = ("localhost", "ip6-localhost")


def parse_address(address: str) -> tuple[str, int]:
    """What HOST:PORT says; an IPv6 address stands in brackets.

    >>> host_and_port("[::1]:50051")
    ('::1', 50051)
    """
    found = ADDRESS_PATTERN.fullmatch(address) if isinstance(address, str) else None
    if found is None or int(found[3]) > 65535:
        raise InvalidInput(
            f"an address must be HOST:PORT, such as 127.0.0.1:50051 or [::1]:50051, not {address!r}"
        )
    return found[1] or found[2], int(found[3])


def parse_server_url(address: str, *, plaintext: bool = False) -> tuple[str, bool]:
    """HOST:PORT of grpcs://HOST:PORT or grpc://HOST:PORT, and whether TLS is spoken there.

    >>> target_of("grpcs://federation.example.org:50051")
    ('federation.example.org:50051', True)
    """
    scheme, _, rest = address.partition("://") if isinstance(address, str) else ("", "", "")
    if scheme not in ("grpc", "grpcs"):
        raise InvalidInput(
            f"the server's address must be grpcs://HOST:PORT, or grpc://HOST:PORT without TLS, not {address!r}"
        )
    host, _ = parse_address(rest)
    if scheme == "grpc" and not plaintext and not is_loopback(host):
        raise InvalidInput(
            f"{host} is no loopback address: what is said there without TLS can be read by others, the token too. "
            "Use grpcs://, or ask for it with plaintext=True"
        )
    return rest, scheme == "grpcs"


def is_loopback(host: str) -> bool:
    """Does this name the machine itself, so that nobody else reads along?

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("example.org")
    (True, True, False, False)
    """
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def format_url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
