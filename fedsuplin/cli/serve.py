"""`fedsuplin serve`: serve a live federation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from .._shared.child_processes import end_with_parent
from .._shared.terminal import print_json
from ..algorithm.doubling import FIRST_EPOCH_PULLS
from ..errors import InvalidInput
from ..federation.agreement import Agreement
from ..federation.credentials import Listening
from ..federation.ledger import Ledger
from .build import build_live_algorithm
from .completers import complete_variants
from .manuals import SERVE
from .options import (
    FILE_PATH,
    LIVE_CONSTANT_OPTIONS,
    PART_OPTIONS,
    output_option,
    parse_whole_number_if_given,
)
from .sections import SectionedCommand, add_options, make_option_factory

_live_size_option = make_option_factory("Sizes (needed for a new store; an existing one has them)")
_store_option = make_option_factory("The store")
_network_option = make_option_factory("Network")
LIVE_SIZE_OPTIONS = [
    _live_size_option(
        "--dim",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="d",
        help="Dimension of the contexts.",
    ),
    _live_size_option(
        "--arms",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="K",
        help="Most arms per round.",
    ),
    _live_size_option(
        "--clients",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="M",
        help="Number of clients; their ids are 0 to M - 1.",
    ),
    _live_size_option(
        "--horizon",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="T",
        help="Pulls of all clients together. "
        "[default: unknown; learning restarts with twice the horizon whenever one is over]",
    ),
    _live_size_option(
        "--first-horizon",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="T",
        help="Pulls of the first epoch, where the horizon is unknown. The closer to the true "
        f"number of pulls, the fewer restarts. [default: {FIRST_EPOCH_PULLS}]",
    ),
]
STORE_OPTION = [
    _store_option(
        "--store",
        type=FILE_PATH,
        required=True,
        metavar="FILE",
        help="Where the sums are kept; created if it does not exist.",
    )
]
NETWORK_OPTIONS = [
    _network_option(
        "--address",
        default="127.0.0.1:50051",
        metavar="HOST:PORT",
        help="Where to listen; port 0 takes any free one. [default: 127.0.0.1:50051]",
    ),
    _network_option(
        "--tokens",
        type=FILE_PATH,
        metavar="FILE",
        help="Hashes of the clients' tokens, from `fedsuplin tokens`.",
    ),
    _network_option(
        "--tls-cert", type=FILE_PATH, metavar="FILE", help="Certificate of the server (PEM)."
    ),
    _network_option(
        "--tls-key", type=FILE_PATH, metavar="FILE", help="Key of that certificate (PEM)."
    ),
    _network_option(
        "--client-ca",
        type=FILE_PATH,
        metavar="FILE",
        help="Accept clients that have a certificate of this authority (PEM) for client-ID; "
        "with --tokens, they need both.",
    ),
    _network_option(
        "--plaintext",
        is_flag=True,
        help="Serve without TLS on any address; others can read tokens.",
    ),
    _network_option(
        "--deadline",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="How long clients that sync together wait for a missing one. [default: 10]",
    ),
    _network_option(
        "--metrics",
        metavar="HOST:PORT",
        help="Where to serve numbers for Prometheus, over HTTP without access control. "
        "[default: nowhere]",
    ),
]
ADDRESS_JSON_OPTION = [
    output_option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
]


@click.command("serve", cls=SectionedCommand, manual=SERVE)
@click.argument("variant", required=False, shell_complete=complete_variants)
@add_options(
    LIVE_SIZE_OPTIONS,
    STORE_OPTION,
    NETWORK_OPTIONS,
    LIVE_CONSTANT_OPTIONS,
    PART_OPTIONS,
    ADDRESS_JSON_OPTION,
)
@click.pass_context
def serve_command(
    context: click.Context,
    /,
    variant: str | None,
    store: Path,
    address: str,
    tokens: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    plaintext: bool,
    deadline: float,
    metrics: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Serve a live federation of VARIANT (async, sync, …): keep its sums in --store, and accept
    clients that have a token or a certificate. Clients are made in Python, with fsl.connect.

    An existing store continues where it stopped; VARIANT and sizes may then be left out. SIGTERM
    and Ctrl-C end the server gracefully. It prints its address to standard output once it
    listens, and its log to standard error, one JSON object per line.
    """
    if parent := os.environ.get("FEDSUPLIN_DEMO"):
        end_with_parent(int(parent))
    from ..federation.service import serve  # needs an extra, which --help does not

    listening = Listening(
        address, tls_cert, tls_key, client_ca, tokens, plaintext, deadline, metrics
    )
    agreement = build_agreement(variant, given, list_typed_options(context, given), store)
    with log_as_json(), contextlib.closing(Ledger(store, agreement)) as ledger:
        asyncio.run(serve(ledger, listening, started=lambda where: print_address(where, as_json)))


def build_agreement(
    variant: str | None, given: dict[str, Any], typed: list[str], store: Path
) -> Agreement | None:
    """Build the agreement from the options of `fedsuplin serve`; None takes the store's."""
    if variant is None and not typed:
        if not store.exists():
            raise InvalidInput(
                f"{store} is new: give the variant that it is for, --dim, --arms and --clients"
            )
        return None
    missing = [
        flag
        for flag, name in (("--dim", "dim"), ("--arms", "arms"), ("--clients", "clients"))
        if given[name] is None
    ]
    if variant is None or missing:
        lacking = ", ".join((["a variant"] if variant is None else []) + missing)
        given_alone = " and ".join(typed) or variant
        raise InvalidInput(
            f"{given_alone} alone does not describe an algorithm: {lacking} must be given too"
        )
    return Agreement.of(build_live_algorithm(variant, given))


def list_typed_options(context: click.Context, given: dict[str, Any]) -> list[str]:
    """Return the flags about the algorithm that were typed after `fedsuplin serve`."""
    options_of = {parameter.name: parameter for parameter in context.command.params}
    is_default = click.core.ParameterSource.DEFAULT
    return [
        options_of[name].opts[0]
        for name in given
        if context.get_parameter_source(name) is not is_default
    ]


def print_address(where: str, as_json: bool) -> None:
    """Print the address that `fedsuplin serve` listens on."""
    if as_json:
        print_json({"address": where})
    else:
        click.echo(f"listening on {where}")


@contextlib.contextmanager
def log_as_json() -> Iterator[None]:
    """Print the log of `fedsuplin serve` to standard error, one JSON object per line."""
    from ..federation.telemetry import LOGGER, JsonLinesFormatter

    handler, before = logging.StreamHandler(sys.stderr), (LOGGER.level, LOGGER.propagate)
    handler.setFormatter(JsonLinesFormatter())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.level, LOGGER.propagate = before
