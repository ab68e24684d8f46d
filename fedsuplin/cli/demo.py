"""`fedsuplin demo`: watch a federation on this machine."""

from __future__ import annotations

import click

from .._shared.terminal import make_console
from .completers import complete_variants
from .manuals import DEMO, DEMO_FEDERATION
from .options import JSON_OPTION
from .sections import SectionedCommand, SectionedGroup, add_options, make_option_factory

_demo_option = make_option_factory("What is played")


@click.group("demo", cls=SectionedGroup, manual=DEMO)
def demo_command() -> None:
    """Demonstrations: so far one, a live federation."""


@demo_command.command(
    "federation",
    cls=SectionedCommand,
    manual=DEMO_FEDERATION,
)
@add_options(
    [
        _demo_option(
            "--clients",
            type=click.IntRange(1, 100),
            default=5,
            metavar="M",
            help="Client processes. [default: 5]",
        ),
        _demo_option(
            "--pulls",
            type=click.IntRange(1),
            default=1000,
            metavar="N",
            help="Pulls of each client. [default: 1000]",
        ),
        _demo_option(
            "--seconds",
            type=click.FloatRange(0),
            default=30.0,
            metavar="S",
            help="Seconds that the pulls are spread over. [default: 30]",
        ),
        _demo_option(
            "--kill-every",
            type=click.FloatRange(0),
            default=4.0,
            metavar="S",
            help="Average seconds between kills; 0 for no kills. [default: 4]",
        ),
        _demo_option(
            "--variant",
            default="async",
            metavar="NAME",
            shell_complete=complete_variants,
            help="What to play: async, sync, fedlinucb, … [default: async]",
        ),
        _demo_option(
            "--seed",
            type=click.IntRange(0),
            default=0,
            metavar="N",
            help="Seed of all random numbers. [default: 0]",
        ),
        *JSON_OPTION,
    ]
)
@click.pass_context
def demo_federation_command(
    context: click.Context,
    clients: int,
    pulls: int,
    seconds: float,
    kill_every: float,
    variant: str,
    seed: int,
    as_json: bool,
) -> None:
    """Start a server and several clients on this machine, each in its own process, and show
    regret and communication as they play.

    Now and then one of them is killed (SIGKILL) and started again from its store. At the end the
    server's sums are compared with what the clients observed. With --json the events are printed
    to standard error.
    """
    from ..federation.demo.demo import run_demo  # needs an extra, which --help does not

    was_right = run_demo(
        variant,
        clients=clients,
        pulls=pulls,
        seconds=seconds,
        kill_every=kill_every,
        seed=seed,
        console=make_console(stderr=as_json),
        as_json=as_json,
    )
    if not was_right:
        context.exit(1)
