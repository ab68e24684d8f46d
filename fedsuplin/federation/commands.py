"""The commands of a live federation: `fedsuplin serve`, `fedsuplin tokens` and `fedsuplin demo federation`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from pathlib import Path
from typing import Any

import click

from .. import completion, manuals, options, report
from ..algorithm import AXES, composed, keywords_of, make
from ..doubling import FIRST, Doubling
from ..errors import InvalidInput
from . import credentials
from .ledger import Ledger
from .plan import Plan

_file = click.Path(dir_okay=False, path_type=Path)
_size = options.in_section("Sizes (needed for a store that is new; one that is there knows them)")
_store = options.in_section("The store")
_network = options.in_section("Where it listens, and to whom")
_output = options.in_section("Output")

SIZES = [
    _size("--dim", type=float, callback=options.whole_if_given, metavar="d", help="Dimension of contexts."),
    _size("--arms", type=float, callback=options.whole_if_given, metavar="K", help="Arms a round, at most."),
    _size("--clients", type=float, callback=options.whole_if_given, metavar="M", help="Clients, with the ids 0 to M - 1."),
    _size(
        "--horizon",
        type=float,
        callback=options.whole_if_given,
        metavar="T",
        help="Pulls of all clients together. [default: unknown; it begins anew with twice the horizon whenever one is over]",
    ),
    _size(
        "--first-horizon",
        type=float,
        callback=options.whole_if_given,
        metavar="T",
        help="Where the horizon is unknown, what the first epoch is made for: the nearer to the truth, the less is begun anew. "
        f"[default: {FIRST}]",
    ),
]
STORE = [_store("--store", type=_file, required=True, metavar="FILE", help="Where the sums are kept; made if it is not there.")]
NETWORK = [
    _network("--address", default="127.0.0.1:50051", metavar="HOST:PORT", help="Port 0 takes any. [default: 127.0.0.1:50051]"),
    _network("--tokens", type=_file, metavar="FILE", help="Hashes of tokens, which `fedsuplin tokens` makes."),
    _network("--tls-cert", type=_file, metavar="FILE", help="The server's certificate (PEM)."),
    _network("--tls-key", type=_file, metavar="FILE", help="Its key (PEM)."),
    _network(
        "--client-ca",
        type=_file,
        metavar="FILE",
        help="Clients need a certificate of this authority (PEM), for client-ID; with --tokens too, a client needs both.",
    ),
    _network("--plaintext", is_flag=True, help="No TLS, also where others can read along, tokens too."),
    _network(
        "--deadline",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="How long clients that sync together wait for one that does not come. [default: 10]",
    ),
    _network(
        "--metrics", metavar="HOST:PORT", help="Numbers for Prometheus, on HTTP, open to all who get there. [default: none]"
    ),
]

JSON = [_output("--json", "as_json", is_flag=True, help="The address that it listens on as JSON.")]


# --- fedsuplin serve --------------------------------------------------------------------------------------------------------


@click.command("serve", short_help="The server of a live federation.", cls=options.SectionedCommand, manual=manuals.SERVE)
@click.argument("variant", required=False, shell_complete=completion.variants)
@options.add(SIZES, STORE, NETWORK, options.LIVE_CONSTANTS, options.PARTS, JSON)
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
    from .service import serve  # needs the extra, which --help does not

    listening = credentials.Listening(address, tls_cert, tls_key, client_ca, tokens, plaintext, deadline, metrics)
    plan = plan_of(variant, given, typed(context, given), store)
    with logging_json(), contextlib.closing(Ledger(store, plan)) as ledger:
        asyncio.run(serve(ledger, listening, started=lambda where: tell_address(where, as_json)))


def tell_address(where: str, as_json: bool) -> None:
    if as_json:
        report.print_json({"address": where})
    else:
        click.echo(f"listening on {where}")


def typed(context: click.Context, given: dict[str, Any]) -> list[str]:
    """Which of the options that describe the algorithm are there, as they are typed."""
    options_of = {parameter.name: parameter for parameter in context.command.params}
    is_default = click.core.ParameterSource.DEFAULT
    return [options_of[name].opts[0] for name in given if context.get_parameter_source(name) is not is_default]


def plan_of(variant: str | None, given: dict[str, Any], there: list[str], store: Path) -> Plan | None:
    """What the options describe; None leaves it to the store."""
    if variant is None and not there:
        if not store.exists():
            raise InvalidInput(f"{store} is new: say which variant it is for, and --dim, --arms and --clients")
        return None
    missing = [flag for flag, name in (("--dim", "dim"), ("--arms", "arms"), ("--clients", "clients")) if given[name] is None]
    if variant is None or missing:
        lacking = ", ".join((["a variant"] if variant is None else []) + missing)
        raise InvalidInput(f"{' and '.join(there) or variant} alone does not describe an algorithm: {lacking} must be given too")
    return Plan.of(algorithm_of(variant, given))


def algorithm_of(variant: str, given: dict[str, Any]) -> Any:
    """As `fedsuplin run` has it, but that no problem is there to tell about its noise."""
    from ..cli import OF_ALGORITHM, OF_SYNTHETIC, used  # which has these commands

    parts = {axis: given["assume" if axis == "noise" else axis] for axis in AXES}
    told = used(given, OF_ALGORITHM, keywords_of(composed(variant, parts)[1]), variant)
    sizes = {"dim": given["dim"], "n_arms": given["arms"], "n_clients": given["clients"], "horizon": given["horizon"]}
    rest = {"preset": given["preset"], "syncs": given["syncs"], "lazy": given["lazy"]}
    with options.as_typed(OF_SYNTHETIC | OF_ALGORITHM):
        made = make(variant, **sizes, **rest, **parts, **(told | given["extra"]))
    if given["first_horizon"] is None:
        return made
    if not isinstance(made, Doubling):
        raise InvalidInput("--first-horizon is for a horizon that is unknown: leave --horizon out")
    return Doubling(made.variant, made.keywords, given["first_horizon"])


@contextlib.contextmanager
def logging_json() -> Any:
    """What the service logs, on standard error."""
    from .telemetry import LOG, JsonLines

    handler, before = logging.StreamHandler(sys.stderr), (LOG.level, LOG.propagate)
    handler.setFormatter(JsonLines())
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.level, LOG.propagate = before


# --- fedsuplin tokens -------------------------------------------------------------------------------------------------------


@click.command(
    "tokens", short_help="Make the tokens of a federation's clients.", cls=options.SectionedCommand, manual=manuals.TOKENS
)
@click.argument("file", type=_file)
@options.add(
    [
        options.in_section("For whom")(
            "--clients", type=click.IntRange(1, 1_000_000), required=True, metavar="M", help="Clients, with the ids 0 to M - 1."
        ),
        _output(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="FOLDER",
            help="Write them there, a file for each client that only you can read. [default: they are printed]",
        ),
        _output("--replace", is_flag=True, help="Put new ones in the place of those in FILE, which are void then."),
        *options.JSON,
    ]
)
def tokens_command(file: Path, clients: int, out: Path | None, replace: bool, as_json: bool) -> None:
    """Make a token for each client. FILE gets their hashes, which is what a server needs; the tokens themselves are printed,
    one line a client, or written to --out. They are nowhere else: keep them.
    """
    if file.exists() and not replace:
        raise InvalidInput(f"{file} is there: with new tokens the old ones are void. Give another name, or --replace")
    tokens = credentials.new_tokens(range(clients))
    paths = {} if out is None else write_secrets(out, tokens, replace)
    credentials.write_hashes(file, tokens)
    if as_json:
        report.print_json({"file": file, "tokens": None if paths else tokens, "files": paths})
        return
    if out is not None:
        click.echo(f"wrote {file} and {clients} tokens to {out}")
        return
    for client_id, token in tokens.items():
        click.echo(f"{client_id} {token}")


def write_secrets(out: Path, tokens: dict[int, str], replace: bool) -> dict[int, Path]:
    """A file for each client."""
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = {client_id: out / f"client-{client_id}.token" for client_id in tokens}
    for path in paths.values():
        if replace:
            path.unlink(missing_ok=True)
        elif path.exists():
            raise InvalidInput(f"{path} is there: give another folder, or --replace")
    for client_id, token in tokens.items():
        credentials.write_secret(paths[client_id], token)
    return paths


# --- fedsuplin demo ---------------------------------------------------------------------------------------------------------

_demo = options.in_section("What is played")


@click.group("demo", short_help="Something to watch.", cls=options.SectionedGroup, manual=manuals.DEMO)
def demo_command() -> None:
    """Something to watch: for now a live federation."""


@demo_command.command(
    "federation",
    short_help="A server and clients on this machine, killed now and then.",
    cls=options.SectionedCommand,
    manual=manuals.DEMO_FEDERATION,
)
@options.add(
    [
        _demo("--clients", type=click.IntRange(1, 100), default=5, metavar="M", help="Client processes. [default: 5]"),
        _demo("--pulls", type=click.IntRange(1), default=1000, metavar="N", help="Of each client. [default: 1000]"),
        _demo("--seconds", type=click.FloatRange(0), default=30.0, metavar="S", help="In which they are played. [default: 30]"),
        _demo(
            "--kill-every",
            type=click.FloatRange(0),
            default=4.0,
            metavar="S",
            help="Seconds between kills, about; 0 kills nobody. [default: 4]",
        ),
        _demo(
            "--variant",
            default="async",
            metavar="NAME",
            shell_complete=completion.variants,
            help="async, sync, fedlinucb, … [default: async]",
        ),
        _demo("--seed", type=click.IntRange(0), default=0, metavar="N", help="Of everything that is drawn. [default: 0]"),
        *options.JSON,
    ]
)
@click.pass_context
def federation_command(
    context: click.Context, clients: int, pulls: int, seconds: float, kill_every: float, variant: str, seed: int, as_json: bool
) -> None:
    """Start a server and several clients on this machine, each a process, and show regret and communication as they play.

    Now and then one of them is killed (SIGKILL) and started again from its store. At the end the server's sums are compared
    with all that was observed. With --json what happens is told on standard error.
    """
    from .demo import run  # needs what --help does not

    was_right = run(
        variant,
        clients=clients,
        pulls=pulls,
        seconds=seconds,
        kill_every=kill_every,
        seed=seed,
        console=report.console(stderr=as_json),
        as_json=as_json,
    )
    if not was_right:
        context.exit(1)
