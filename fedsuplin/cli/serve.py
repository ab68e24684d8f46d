"""The commands of a live federation: `fedsuplin serve`, `fedsuplin tokens` and `fedsuplin demo federation`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
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
from .completing import complete_variants
from .manuals import SERVE
from .options import (
    FILE_PATH,
    LIVE_CONSTANT_OPTIONS,
    PART_OPTIONS,
    federation_output_option,
    parse_whole_number_if_given,
)
from .sections import SectionedCommand, add_options, make_option_factory

_live_size_option = make_option_factory(
    "Sizes (needed for a store that is new; one that is there knows them)"
)
_store_option = make_option_factory("The store")
_network_option = make_option_factory("Where it listens, and to whom")
LIVE_SIZE_OPTIONS = [
    _live_size_option(
        "--dim",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="d",
        help="Dimension of contexts.",
    ),
    _live_size_option(
        "--arms",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="K",
        help="Arms a round, at most.",
    ),
    _live_size_option(
        "--clients",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="M",
        help="Clients, with the ids 0 to M - 1.",
    ),
    _live_size_option(
        "--horizon",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="T",
        help="Pulls of all clients together. [default: unknown; it begins anew with twice the horizon whenever one is over]",
    ),
    _live_size_option(
        "--first-horizon",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="T",
        help="Where the horizon is unknown, what the first epoch is made for: the nearer to the truth, the less is begun anew. "
        f"[default: {FIRST_EPOCH_PULLS}]",
    ),
]
STORE_OPTION = [
    _store_option(
        "--store",
        type=FILE_PATH,
        required=True,
        metavar="FILE",
        help="Where the sums are kept; made if it is not there.",
    )
]
NETWORK_OPTIONS = [
    _network_option(
        "--address",
        default="127.0.0.1:50051",
        metavar="HOST:PORT",
        help="Port 0 takes any. [default: 127.0.0.1:50051]",
    ),
    _network_option(
        "--tokens",
        type=FILE_PATH,
        metavar="FILE",
        help="Hashes of tokens, which `fedsuplin tokens` makes.",
    ),
    _network_option(
        "--tls-cert", type=FILE_PATH, metavar="FILE", help="The server's certificate (PEM)."
    ),
    _network_option("--tls-key", type=FILE_PATH, metavar="FILE", help="Its key (PEM)."),
    _network_option(
        "--client-ca",
        type=FILE_PATH,
        metavar="FILE",
        help="Clients need a certificate of this authority (PEM), for client-ID; with --tokens too, a client needs both.",
    ),
    _network_option(
        "--plaintext", is_flag=True, help="No TLS, also where others can read along, tokens too."
    ),
    _network_option(
        "--deadline",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="How long clients that sync together wait for one that does not come. [default: 10]",
    ),
    _network_option(
        "--metrics",
        metavar="HOST:PORT",
        help="Numbers for Prometheus, on HTTP, open to all who get there. [default: none]",
    ),
]
ADDRESS_JSON_OPTION = [
    federation_output_option(
        "--json", "as_json", is_flag=True, help="The address that it listens on as JSON."
    )
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
    """Keep the sums of a live federation of VARIANT (async, sync, …) in --store, and let clients in who have a token or a
    certificate. Clients are made with fsl.connect, in Python.

    A store that is there goes on where it stopped; VARIANT and sizes may be left out then. SIGTERM and Ctrl-C end it
    gracefully. The address goes to standard output when it listens, the log to standard error, a JSON object a line.
    """
    if parent := os.environ.get("FEDSUPLIN_DEMO"):
        end_with_parent(int(parent))
    from ..federation.service import serve  # needs the extra, which --help does not

    listening = Listening(
        address, tls_cert, tls_key, client_ca, tokens, plaintext, deadline, metrics
    )
    plan = build_agreement(variant, given, list_typed_options(context, given), store)
    with log_as_json(), contextlib.closing(Ledger(store, plan)) as ledger:
        asyncio.run(serve(ledger, listening, started=lambda where: print_address(where, as_json)))


def build_agreement(
    variant: str | None, given: dict[str, Any], there: list[str], store: Path
) -> Agreement | None:
    """What the options describe; None leaves it to the store."""
    if variant is None and not there:
        if not store.exists():
            raise InvalidInput(
                f"{store} is new: say which variant it is for, and --dim, --arms and --clients"
            )
        return None
    missing = [
        flag
        for flag, name in (("--dim", "dim"), ("--arms", "arms"), ("--clients", "clients"))
        if given[name] is None
    ]
    if variant is None or missing:
        lacking = ", ".join((["a variant"] if variant is None else []) + missing)
        raise InvalidInput(
            f"{' and '.join(there) or variant} alone does not describe an algorithm: {lacking} must be given too"
        )
    return Agreement.of(build_live_algorithm(variant, given))


def list_typed_options(context: click.Context, given: dict[str, Any]) -> list[str]:
    """Which of the options that describe the algorithm are there, as they are typed."""
    options_of = {parameter.name: parameter for parameter in context.command.params}
    is_default = click.core.ParameterSource.DEFAULT
    return [
        options_of[name].opts[0]
        for name in given
        if context.get_parameter_source(name) is not is_default
    ]


def print_address(where: str, as_json: bool) -> None:
    if as_json:
        print_json({"address": where})
    else:
        click.echo(f"listening on {where}")


@contextlib.contextmanager
def log_as_json() -> Any:
    """What the service logs, on standard error."""
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
