"""`fedsuplin demo federation`: a server and several clients, each a process, of which one is killed now and then, to be watched.

At the end the server's sums are compared with those of all that clients have noted: nothing lost, nothing doubled.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .. import report
from ..algorithm import make
from ..errors import FederationError, InvalidInput
from ..extras import imported
from ..livestate import check_live
from . import credentials
from .ledger import Ledger
from .player import ARMS, DIM, NOISE, Told, World, read_notes

DEADLINE = 1.0  # seconds that clients who sync together wait for one that was killed
SERVER_EVERY = 3  # of so many kills one is the server's
DOWN_SECONDS = (0.5, 2.0)  # between a kill and the start that follows
LAST_SECONDS = 1.5  # in which nobody is killed any more
MOST_EVENTS = 12  # on the screen
LINE_SECONDS = 2.0  # between lines, where nobody watches a screen
STOP_SECONDS = 5.0
PLAYER = [sys.executable, "-m", "fedsuplin.federation.player"]
LOOKS = {"playing": "green", "done": "cyan", "offline": "yellow", "killed": "bold red", "starting": "dim", "failed": "bold red"}


class Verdict(NamedTuple):
    """What the server's sums are, against what clients have noted."""

    noted: int
    merged: int
    worst: float
    """The largest difference, relative to the largest entry of its matrix or vector."""
    communication: int

    @property
    def right(self) -> bool:
        return self.noted == self.merged and self.worst <= 1e-9


# --- processes -------------------------------------------------------------------------------------------------------------


Lines: TypeAlias = "queue.Queue[tuple[Process, str, str | None]]"


class Process:
    """A process whose lines come to a queue, as (process, stream, line); a line of None when it has said its last."""

    def __init__(self, name: str, arguments: list[str], lines: Lines) -> None:
        self.name, self.last_words = name, "it said nothing"
        self._popen = subprocess.Popen(
            [*PLAYER, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=os.environ | {"FEDSUPLIN_DEMO": str(os.getpid()), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C is for the demo, which ends them
        )
        streams = {"out": self._popen.stdout, "err": self._popen.stderr}
        self._readers = [threading.Thread(target=self._read, args=(*each, lines), daemon=True) for each in streams.items()]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: str, file: Any, lines: Lines) -> None:
        with file:
            for line in file:
                if stream == "err" and line.strip():
                    self.last_words = line.strip()
                lines.put((self, stream, line.rstrip("\n")))
        if stream == "out":
            lines.put((self, stream, None))

    def kill(self) -> None:
        self._popen.kill()
        self.wait()

    def terminate(self) -> None:
        self._popen.terminate()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code."""
        code = self._popen.wait(timeout)
        for reader in self._readers:
            reader.join()
        return code


# --- what is known of everybody --------------------------------------------------------------------------------------------


@dataclass
class Standing:
    """A client, as far as it has told."""

    state: str = "starting"
    pulls: int = 0
    kills: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    earlier: dict[str, float] = field(default_factory=dict)
    """Counts of the processes before this one."""

    COUNTS = ("syncs", "bytes_up", "bytes_down")

    def update(self, told: dict[str, Any]) -> None:
        self.pulls, self.numbers = told["pulls"], told
        self.state = "offline" if told["last_failure"] and not told["online"] else "playing"

    def killed(self) -> None:
        self.state, self.kills = "killed", self.kills + 1
        self.earlier = {name: self.count(name) for name in self.COUNTS}
        self.numbers = {name: value for name, value in self.numbers.items() if name not in self.COUNTS}

    def count(self, name: str) -> float:
        return self.earlier.get(name, 0) + self.numbers.get(name, 0)


class Demo:
    """The federation: who is there, who is to be killed next, and who comes back."""

    def __init__(
        self, world: World, *, seconds: float, kill_every: float, folder: Path, screen: Screen, stopped: threading.Event
    ) -> None:
        self.world, self.seconds, self.screen, self._stopped = world, seconds, screen, stopped
        self._kill_every, self._folder, self._random = kill_every, folder, random.Random(world.seed)
        self._lines: Lines = queue.Queue()
        self._processes: dict[str, Process] = {}
        self.clients = [Standing() for _ in range(world.n_clients)]
        self.server, self.server_kills, self.address = "starting", 0, "127.0.0.1:0"
        self._down: dict[str, float] = {}  # who was killed, and when it comes back
        self._began: float | None = None  # with the first client
        self._next_kill = float("inf")

    @property
    def elapsed(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    # --- the story ---------------------------------------------------------------------------------------------------------

    def play(self) -> Verdict:
        """From the first process to the last."""
        tokens = credentials.new_tokens(range(self.world.n_clients))
        credentials.write_hashes(self._folder / "tokens.json", tokens)
        for number, token in tokens.items():
            credentials.write_secret(self._folder / f"client-{number}.token", token)
        try:
            self._start("server")
            while self.server != "listening":
                self._hear()
            for number in range(self.world.n_clients):
                self._start(f"client {number}")
            while any(client.state != "done" for client in self.clients):
                self._hear()
                self._revive()
                self._kill_somebody()
                self.screen.show(self)
            self._stop_server()
        finally:
            for process in self._processes.values():
                process.kill()
        self.screen.show(self)
        return verdict(self.world, self._folder)

    def _start(self, name: str) -> None:
        number = None if name == "server" else int(name.split()[1])
        arguments = self._server_arguments() if number is None else [self._told(number).to_json()]
        self._processes[name] = Process(name, arguments, self._lines)

    def _server_arguments(self) -> list[str]:
        world = self.world
        sizes = {"dim": DIM, "arms": ARMS, "clients": world.n_clients, "horizon": world.n_clients * world.n_pulls}
        place = {"store": self._folder / "server.db", "tokens": self._folder / "tokens.json", "address": self.address}
        given = sizes | place | {"deadline": DEADLINE} | ({"sigma": NOISE} if world.constants else {})
        return ["serve", world.variant, *(word for name, value in given.items() for word in (f"--{name}", str(value)))]

    def _told(self, number: int) -> Told:
        left = max(0.0, self.seconds - self.elapsed)
        return Told(self.world, number, f"grpc://{self.address}", str(self._folder), os.getpid(), left)

    def _stop_server(self) -> None:
        process = self._processes["server"]
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        self.server = "stopped"

    # --- what processes say ------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        """All that was said in the meantime; a tenth of a second if it was nothing."""
        if self._stopped.is_set():
            raise KeyboardInterrupt
        with contextlib.suppress(queue.Empty):
            said = self._lines.get(timeout=0.1)
            while True:
                self._heard(*said)
                said = self._lines.get_nowait()

    def _heard(self, process: Process, stream: str, line: str | None) -> None:
        if process is not self._processes.get(process.name):
            return  # was killed, and has said this before
        if process.name == "server":
            self._server_said(process, stream, line)
        else:
            self._client_said(process, int(process.name.split()[1]), stream, line)

    def _server_said(self, process: Process, stream: str, line: str | None) -> None:
        if line is None:
            raise FederationError(f"the server has ended by itself, with exit code {process.wait()}: {process.last_words}")
        if stream == "out" and line.startswith("listening on "):
            self.address, again = line.rpartition("//")[2], self.server == "starting" and self.server_kills
            self.server = "listening"
            self.screen.event(f"server {'back' if again else 'is'} at {line.removeprefix('listening on ')}", "green")
            return
        said = as_json(line)
        if said.get("event") == "absent":
            who = ", ".join(map(str, said["clients"]))
            self.screen.event(f"round {said['round']} goes on without client {who}", "yellow")
        elif said.get("event") == "refused":
            self.screen.event(f"server refuses client {said.get('client')}: {said.get('message')}", "red")

    def _client_said(self, process: Process, number: int, stream: str, line: str | None) -> None:
        standing = self.clients[number]
        if line is None:
            self._ended(process, number)
            return
        said = as_json(line) if stream == "out" else {}
        if said.get("event") == "status":
            standing.update(said)
        elif said.get("event") in ("started", "back"):
            standing.state, standing.pulls = "playing", said["pulls"]
            if self._began is None:
                self._began, self._next_kill = time.monotonic(), self._soon(self._kill_every)
            if said["event"] == "back":
                kept = "nothing lost" if said["known"] == said["pulls"] else f"but knows of {said['known']}"
                self.screen.event(f"client {number} back, {said['pulls']:,} pulls, {kept}", "green")

    def _ended(self, process: Process, number: int) -> None:
        code = process.wait()
        if code != 0:
            self.clients[number].state = "failed"
            raise FederationError(f"client {number} has ended with exit code {code}: {process.last_words}")
        self.clients[number].state = "done"
        self.screen.event(f"client {number} done, {self.clients[number].pulls:,} pulls", "cyan")

    # --- misfortune --------------------------------------------------------------------------------------------------------

    def _soon(self, every: float) -> float:
        return time.monotonic() + every * self._random.uniform(0.7, 1.3) if every else float("inf")

    def _kill_somebody(self) -> None:
        if time.monotonic() < self._next_kill or self.elapsed > self.seconds - LAST_SECONDS:
            return
        self._next_kill = self._soon(self._kill_every)
        kills = self.server_kills + sum(client.kills for client in self.clients)
        alive = [f"client {number}" for number, client in enumerate(self.clients) if client.state in ("playing", "offline")]
        if kills % SERVER_EVERY == SERVER_EVERY - 1 and self.server == "listening":
            alive = ["server"]
        if alive:
            self._kill(self._random.choice(alive))

    def _kill(self, name: str) -> None:
        self._processes.pop(name).kill()
        self._down[name] = time.monotonic() + self._random.uniform(*DOWN_SECONDS)
        if name == "server":
            self.server, self.server_kills = "killed", self.server_kills + 1
        else:
            self.clients[int(name.split()[1])].killed()
        self.screen.event(f"{name} killed", "bold red")

    def _revive(self) -> None:
        for name in [name for name, when in self._down.items() if when <= time.monotonic()]:
            del self._down[name]
            if name == "server":
                self.server = "starting"
            else:
                self.clients[int(name.split()[1])].state = "starting"
            self._start(name)


def as_json(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


# --- is it right? ----------------------------------------------------------------------------------------------------------


def verdict(world: World, folder: Path) -> Verdict:
    """The server's sums against those of all notes, layer by layer."""
    with contextlib.closing(Ledger(folder / "server.db")) as ledger:
        algorithm, noted, worst = ledger.algorithm, 0, 0.0
        grams = np.tile(algorithm.setting.ridge * np.eye(DIM), (algorithm.n_layers, 1, 1))
        moments = np.zeros((algorithm.n_layers, DIM))
        for number in range(world.n_clients):
            for note in read_notes(folder / f"client-{number}.notes"):
                x = world.drawn(number, note["pull"])[0][note["arm"]]
                grams[note["layer"]] += np.outer(x, x)
                moments[note["layer"]] += note["reward"] * x
                noted += 1
        for layer in range(algorithm.n_layers):
            known = ledger.server.layer(layer)
            for mine, theirs in ((grams[layer], known["gram"]), (moments[layer], known["moment"])):
                worst = max(worst, float(np.abs(mine - theirs).max() / max(1.0, np.abs(mine).max())))
        return Verdict(noted, ledger.total_pulls, worst, ledger.communication)


# --- what is to be seen ----------------------------------------------------------------------------------------------------


class Screen:
    """Plain lines: events as they happen, and now and then how far it is."""

    def __init__(self, console: Console) -> None:
        self.console, self._next = console, time.monotonic() + LINE_SECONDS

    def event(self, text: str, style: str = "") -> None:
        self._say(f"{time.strftime('%H:%M:%S')} {text}")

    def show(self, demo: Demo) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_SECONDS
            self._say(f"{time.strftime('%H:%M:%S')} {in_a_line(totals(demo))}")

    def _say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)
        self.console.file.flush()


class LiveScreen(Screen):
    """A table that changes, for somebody who watches."""

    def __init__(self, console: Console, live: Live) -> None:
        super().__init__(console)
        self._live = live
        self._events: deque[Text] = deque(maxlen=MOST_EVENTS)

    def event(self, text: str, style: str = "") -> None:
        self._events.append(Text.assemble((time.strftime("%H:%M:%S"), "dim"), " ", (text, style)))

    def show(self, demo: Demo) -> None:
        above = Group(headline(demo), "", clients_table(demo), "", totals_table(demo), "")
        room = max(3, self.console.height - len(demo.clients) - 10)
        self._live.update(Group(above, *list(self._events)[-room:]))


@contextlib.contextmanager
def screen_for(console: Console) -> Iterator[Screen]:
    if not console.is_terminal:
        yield Screen(console)
        return
    with Live(console=console, refresh_per_second=8) as live:
        yield LiveScreen(console, live)


def headline(demo: Demo) -> Text:
    world = demo.world
    what = f"{world.variant}: {world.n_clients} clients, {world.n_pulls:,} pulls each, d={DIM}, K={ARMS}, noise {NOISE:g}"
    return Text.assemble(("a live federation on this machine  ", "bold"), what, f"  {demo.elapsed:.0f} s")


def clients_table(demo: Demo) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("client", "state"):
        table.add_column(name, min_width=8)
    for name in ("pulls", "regret", "a pull, lately", "syncs", "not uploaded", "killed"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, client in enumerate(demo.clients):
        told = client.numbers
        cells = [f"{client.pulls:,}", f"{told.get('regret', 0):.1f}", f"{told.get('lately', 0):.3f}"]
        cells += [f"{client.count('syncs'):,.0f}", f"{told.get('gathered', 0):.0f}", str(client.kills or "")]
        table.add_row(str(number), Text(client.state, LOOKS[client.state]), *cells)
    return table


def totals_table(demo: Demo) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    for name, text in totals(demo):
        table.add_row(name, text)
    return table


def sums(demo: Demo) -> dict[str, float]:
    """What all clients together have come to."""
    regrets = {name: sum(client.numbers.get(name, 0.0) for client in demo.clients) for name in ("regret", "uniform", "alone")}
    counts = {name: sum(client.count(name) for client in demo.clients) for name in Standing.COUNTS}
    return {"pulls": sum(client.pulls for client in demo.clients)} | regrets | counts


def totals(demo: Demo) -> list[tuple[str, str]]:
    """The same in words."""
    pulls, regret, uniform, alone, syncs, up, down = sums(demo).values()
    every = f", one in {pulls / syncs:.0f} pulls" if syncs else ""
    return [
        ("pulls", f"{pulls:,.0f} of {demo.world.n_clients * demo.world.n_pulls:,}"),
        ("regret", f"{regret:,.1f}; each client alone {alone:,.1f}, uniform play {uniform:,.1f}"),
        ("communication", f"{syncs:,.0f} syncs{every}, {up / 1e6:.2f} MB up, {down / 1e6:.2f} MB down"),
        ("server", demo.server + (f", killed {times(demo.server_kills)}" if demo.server_kills else "")),
    ]


def in_a_line(named: list[tuple[str, str]]) -> str:
    return "; ".join(f"{name} {text}" for name, text in named)


def times(n: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(n, f"{n} times")


# --- the command -----------------------------------------------------------------------------------------------------------


def run(
    variant: str,
    *,
    clients: int,
    pulls: int,
    seconds: float,
    kill_every: float,
    seed: int,
    console: Console,
    as_json: bool = False,
) -> bool:
    """Play it, and say how it ended. Is what the server knows all that was observed, once?"""
    for module in ("grpc", "grpc_health", "prometheus_client"):
        imported(module, "federation", "fedsuplin demo federation")
    world = World(variant, clients, pulls, seed)
    check(world)
    with stop_signals() as stopped, tempfile.TemporaryDirectory(prefix="fedsuplin-demo-") as folder:
        with screen_for(console) as screen:
            where = Path(folder)
            demo = Demo(world, seconds=seconds, kill_every=kill_every, folder=where, screen=screen, stopped=stopped)
            found = demo.play()
        if as_json:
            report.print_json(numbers(demo, found))
        else:
            tell(demo, found, console)
    return found.right


def check(world: World) -> None:
    """Can this variant be live, and are its sums those of x xᵀ and r x?"""
    algorithm = make(world.variant, dim=DIM, n_arms=ARMS, n_clients=world.n_clients, horizon=world.n_pulls, **world.constants)
    check_live(algorithm)
    if algorithm.spec["weighting"]["name"] != "unit":
        raise InvalidInput(
            f"{world.variant} weighs what it observes, and the demo's own sums do not: take async, sync or fedlinucb"
        )


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM wait for a moment in which all processes are known, so that none is left behind."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def numbers(demo: Demo, found: Verdict) -> dict[str, Any]:
    """How it ended, as plain data."""
    kills = {"client_kills": sum(client.kills for client in demo.clients), "server_kills": demo.server_kills}
    world = {"variant": demo.world.variant, "clients": demo.world.n_clients, "pulls_each": demo.world.n_pulls}
    return world | sums(demo) | kills | found._asdict() | {"right": found.right}


def tell(demo: Demo, found: Verdict, console: Console) -> None:
    kills = sum(client.kills for client in demo.clients)
    whole = not console.is_terminal  # in a file a line stays one; in a terminal it breaks between words
    console.print(f"\n{in_a_line(totals(demo)[:2])}; communication {found.communication:,} (the paper's count)", soft_wrap=whole)
    console.print(f"clients were killed {times(kills)}, the server {times(demo.server_kills)}")
    both = (
        f"{found.noted:,} rewards were observed, {found.merged:,} are in the server's sums, which are right to {found.worst:.0e}"
    )
    if found.right:
        console.print(f"{both}: nothing was lost, nothing counted twice", style="bold green", soft_wrap=whole)
    else:
        console.print(f"{both}: THIS IS WRONG", style="bold red", soft_wrap=whole)
