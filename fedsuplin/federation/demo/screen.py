"""What the demo shows while it runs."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .standing import add_up_clients
from .world import ARMS, DIM, NOISE

if TYPE_CHECKING:
    from .demo import Demo

MOST_EVENTS_SHOWN = 12  # on the screen
LINE_SECONDS = 2.0  # between lines, where the output is not a terminal
STATE_STYLES = {
    "playing": "green",
    "done": "cyan",
    "offline": "yellow",
    "killed": "bold red",
    "starting": "dim",
    "failed": "bold red",
}


class Screen:
    """Prints events as they happen, and the totals every few seconds, as plain lines."""

    def __init__(self, console: Console) -> None:
        self.console, self._next = console, time.monotonic() + LINE_SECONDS

    def event(self, text: str, style: str = "") -> None:
        """Show an event of the demo as a line."""
        self._print(f"{time.strftime('%H:%M:%S')} {text}")

    def show(self, demo: Demo) -> None:
        """Show the state of the demo as a line, every few seconds."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_SECONDS
            self._print(f"{time.strftime('%H:%M:%S')} {join_totals(describe_totals(demo))}")

    def _print(self, text: str) -> None:
        """Print a line at once."""
        self.console.print(text, soft_wrap=True)
        self.console.file.flush()


class LiveScreen(Screen):
    """Shows a table that is redrawn in a terminal."""

    def __init__(self, console: Console, live: Live) -> None:
        super().__init__(console)
        self._live = live
        self._events: deque[Text] = deque(maxlen=MOST_EVENTS_SHOWN)

    def event(self, text: str, style: str = "") -> None:
        """Show an event of the demo below the tables."""
        self._events.append(Text.assemble((time.strftime("%H:%M:%S"), "dim"), " ", (text, style)))

    def show(self, demo: Demo) -> None:
        """Show the state of the demo in tables."""
        above = Group(
            make_headline(demo), "", make_clients_table(demo), "", make_totals_table(demo), ""
        )
        room = max(3, self.console.height - len(demo.clients) - 10)
        self._live.update(Group(above, *list(self._events)[-room:]))


@contextlib.contextmanager
def open_screen(console: Console) -> Iterator[Screen]:
    """Yield the demo's screen: tables in a terminal, else plain lines."""
    if not console.is_terminal:
        yield Screen(console)
        return
    with Live(console=console, refresh_per_second=8) as live:
        yield LiveScreen(console, live)


def make_headline(demo: Demo) -> Text:
    """Return the line above the tables on the demo's screen."""
    world = demo.world
    what = (
        f"{world.variant}: {world.n_clients} clients, {world.n_pulls:,} pulls each, "
        f"d={DIM}, K={ARMS}, noise {NOISE:g}"
    )
    return Text.assemble(
        ("a live federation on this machine  ", "bold"), what, f"  {demo.elapsed:.0f} s"
    )


def make_clients_table(demo: Demo) -> Table:
    """Return the table on the demo's screen that has one row per client."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("client", "state"):
        table.add_column(name, min_width=8)
    for name in ("pulls", "regret", "per recent pull", "syncs", "not uploaded", "killed"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, client in enumerate(demo.clients):
        numbers = client.numbers
        cells = [
            f"{client.pulls:,}",
            f"{numbers.get('regret', 0):.1f}",
            f"{numbers.get('lately', 0):.3f}",
        ]
        cells += [
            f"{client.count('syncs'):,.0f}",
            f"{numbers.get('gathered', 0):.0f}",
            str(client.kills or ""),
        ]
        table.add_row(str(number), Text(client.state, STATE_STYLES[client.state]), *cells)
    return table


def make_totals_table(demo: Demo) -> Table:
    """Return the table on the demo's screen that has the totals of all clients."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    for name, text in describe_totals(demo):
        table.add_row(name, text)
    return table


def describe_totals(demo: Demo) -> list[tuple[str, str]]:
    """Return the totals of all clients as the demo's screen shows them: names and texts."""
    pulls, regret, uniform, alone, syncs, up, down = add_up_clients(demo).values()
    every = f", one in {pulls / syncs:.0f} pulls" if syncs else ""
    return [
        ("pulls", f"{pulls:,.0f} of {demo.world.n_clients * demo.world.n_pulls:,}"),
        ("regret", f"{regret:,.1f}; each client alone {alone:,.1f}, uniform play {uniform:,.1f}"),
        (
            "communication",
            f"{syncs:,.0f} syncs{every}, {up / 1e6:.2f} MB up, {down / 1e6:.2f} MB down",
        ),
        (
            "server",
            demo.server
            + (f", killed {format_times(demo.server_kills)}" if demo.server_kills else ""),
        ),
    ]


def join_totals(named: list[tuple[str, str]]) -> str:
    """Return the totals as one line for a screen without tables."""
    return "; ".join(f"{name} {text}" for name, text in named)


def format_times(n: int) -> str:
    """Return how often something was killed, in words for the demo's screen."""
    return {0: "never", 1: "once", 2: "twice"}.get(n, f"{n} times")
