"""Run the demo: start processes, kill some, revive them."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console

from ..._shared.extras import import_extra
from ..._shared.terminal import print_json
from ...errors import FederationError
from ..credentials import make_tokens, write_token, write_token_hashes
from .outcome import Reconciliation, print_outcome, reconcile, summarize_outcome
from .player import PlayerOptions
from .processes import Lines, Process, catch_stop_signals, parse_line
from .screen import Screen, open_screen
from .standing import ClientStanding
from .world import ARMS, DIM, NOISE, World, check_world

DEADLINE_SECONDS = 1.0  # that clients that sync together wait for one that was killed
SERVER_KILL_EVERY = 3  # one kill in this many is the server's
DOWN_SECONDS = (0.5, 2.0)  # between a kill and the next start
CALM_SECONDS = 1.5  # at the end, without kills
STOP_SECONDS = 5.0


def run_demo(
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
    """Run the demo, print how it ended, and return whether the server's sums are right."""
    for module in ("grpc", "grpc_health", "prometheus_client"):
        import_extra(module, "federation", "fedsuplin demo federation")
    world = World(variant, clients, pulls, seed)
    check_world(world)
    with (
        catch_stop_signals() as stopped,
        tempfile.TemporaryDirectory(prefix="fedsuplin-demo-") as folder,
    ):
        with open_screen(console) as screen:
            where = Path(folder)
            demo = Demo(
                world,
                seconds=seconds,
                kill_every=kill_every,
                folder=where,
                screen=screen,
                stopped=stopped,
            )
            found = demo.play()
        if as_json:
            print_json(summarize_outcome(demo, found))
        else:
            print_outcome(demo, found, console)
    return found.is_right


class Demo:
    """A federation: its processes, which one is killed next, and which start again."""

    def __init__(
        self,
        world: World,
        *,
        seconds: float,
        kill_every: float,
        folder: Path,
        screen: Screen,
        stopped: threading.Event,
    ) -> None:
        self.world, self.seconds, self.screen, self._stopped = world, seconds, screen, stopped
        self._kill_every, self._folder, self._random = kill_every, folder, random.Random(world.seed)
        self._lines: Lines = queue.Queue()
        self._processes: dict[str, Process] = {}
        self.clients = [ClientStanding() for _ in range(world.n_clients)]
        self.server, self.server_kills, self.address = "starting", 0, "127.0.0.1:0"
        self._down: dict[str, float] = {}  # when a killed process starts again, by name
        self._began: float | None = None  # when the first client started
        self._next_kill = float("inf")

    @property
    def elapsed(self) -> float:
        """Seconds since the first client of the demo started."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    # --- the course of the demo -------------------------------------------------------------------

    def play(self) -> Reconciliation:
        """Run all processes to their end, and compare the server's sums with the clients' notes."""
        tokens = make_tokens(range(self.world.n_clients))
        write_token_hashes(self._folder / "tokens.json", tokens)
        for number, token in tokens.items():
            write_token(self._folder / f"client-{number}.token", token)
        try:
            self._start("server")
            while self.server != "listening":
                self._read_lines()
            for number in range(self.world.n_clients):
                self._start(f"client {number}")
            while any(client.state != "done" for client in self.clients):
                self._read_lines()
                self._revive()
                self._kill_if_due()
                self.screen.show(self)
            self._stop_server()
        finally:
            for process in self._processes.values():
                process.kill()
        self.screen.show(self)
        return reconcile(self.world, self._folder)

    def _start(self, name: str) -> None:
        """Start the process with this name."""
        if name == "server":
            arguments = self._server_arguments()
        else:
            arguments = [self._make_player_options(int(name.split()[1])).to_json()]
        self._processes[name] = Process(name, arguments, self._lines)

    def _server_arguments(self) -> list[str]:
        """Return the arguments of `fedsuplin serve`."""
        world = self.world
        sizes = {
            "dim": DIM,
            "arms": ARMS,
            "clients": world.n_clients,
            "horizon": world.n_clients * world.n_pulls,
        }
        place = {
            "store": self._folder / "server.db",
            "tokens": self._folder / "tokens.json",
            "address": self.address,
        }
        given = (
            sizes
            | place
            | {"deadline": DEADLINE_SECONDS}
            | ({"sigma": NOISE} if world.constants else {})
        )
        return [
            "serve",
            world.variant,
            *(word for name, value in given.items() for word in (f"--{name}", str(value))),
        ]

    def _make_player_options(self, number: int) -> PlayerOptions:
        """Return the options of a client's process."""
        left = max(0.0, self.seconds - self.elapsed)
        return PlayerOptions(
            self.world, number, f"grpc://{self.address}", str(self._folder), os.getpid(), left
        )

    def _stop_server(self) -> None:
        """Ask the server to stop, and wait for it."""
        process = self._processes["server"]
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        self.server = "stopped"

    # --- lines from processes ---------------------------------------------------------------------

    def _read_lines(self) -> None:
        """Handle all lines that have arrived; wait a tenth of a second if there are none."""
        if self._stopped.is_set():
            raise KeyboardInterrupt
        with contextlib.suppress(queue.Empty):
            line = self._lines.get(timeout=0.1)
            while True:
                self._handle_line(*line)
                line = self._lines.get_nowait()

    def _handle_line(self, process: Process, stream: str, line: str | None) -> None:
        """Handle a line of any process."""
        if process is not self._processes.get(process.name):
            return  # a line from before it was killed
        if process.name == "server":
            self._handle_server_line(process, stream, line)
        else:
            self._handle_client_line(process, int(process.name.split()[1]), stream, line)

    def _handle_server_line(self, process: Process, stream: str, line: str | None) -> None:
        """Handle a line of the server: its address, or an event of its log."""
        if line is None:
            raise FederationError(
                f"the server has ended by itself, with exit code {process.wait()}: "
                f"{process.last_error}"
            )
        if stream == "out" and line.startswith("listening on "):
            self.address, again = (
                line.rpartition("//")[2],
                self.server == "starting" and self.server_kills,
            )
            self.server = "listening"
            self.screen.event(
                f"server {'back' if again else 'is'} at {line.removeprefix('listening on ')}",
                "green",
            )
            return
        event = parse_line(line)
        if event.get("event") == "absent":
            who = ", ".join(map(str, event["clients"]))
            self.screen.event(f"round {event['round']} ends without client {who}", "yellow")
        elif event.get("event") == "refused":
            self.screen.event(
                f"server refuses client {event.get('client')}: {event.get('message')}", "red"
            )

    def _handle_client_line(
        self, process: Process, number: int, stream: str, line: str | None
    ) -> None:
        """Handle a line of a client: its status, or that it has started or ended."""
        standing = self.clients[number]
        if line is None:
            self._handle_end(process, number)
            return
        event = parse_line(line) if stream == "out" else {}
        if event.get("event") == "status":
            standing.update(event)
        elif event.get("event") in ("started", "back"):
            standing.state, standing.pulls = "playing", event["pulls"]
            if self._began is None:
                self._began, self._next_kill = (
                    time.monotonic(),
                    self._draw_next_kill(self._kill_every),
                )
            if event["event"] == "back":
                kept = (
                    "nothing lost"
                    if event["known"] == event["pulls"]
                    else f"but it has {event['known']}"
                )
                self.screen.event(
                    f"client {number} back, {event['pulls']:,} pulls, {kept}", "green"
                )

    def _handle_end(self, process: Process, number: int) -> None:
        """Handle the end of a client's process. An exit code other than 0 ends the demo."""
        code = process.wait()
        if code != 0:
            self.clients[number].state = "failed"
            raise FederationError(
                f"client {number} has ended with exit code {code}: {process.last_error}"
            )
        self.clients[number].state = "done"
        self.screen.event(f"client {number} done, {self.clients[number].pulls:,} pulls", "cyan")

    # --- kills ------------------------------------------------------------------------------------

    def _draw_next_kill(self, every: float) -> float:
        """Return the time of the next kill."""
        return time.monotonic() + every * self._random.uniform(0.7, 1.3) if every else float("inf")

    def _kill_if_due(self) -> None:
        """Kill a random process, if it is time."""
        if time.monotonic() < self._next_kill or self.elapsed > self.seconds - CALM_SECONDS:
            return
        self._next_kill = self._draw_next_kill(self._kill_every)
        kills = self.server_kills + sum(client.kills for client in self.clients)
        alive = [
            f"client {number}"
            for number, client in enumerate(self.clients)
            if client.state in ("playing", "offline")
        ]
        if kills % SERVER_KILL_EVERY == SERVER_KILL_EVERY - 1 and self.server == "listening":
            alive = ["server"]
        if alive:
            self._kill(self._random.choice(alive))

    def _kill(self, name: str) -> None:
        """Kill a process, and draw when it starts again."""
        self._processes.pop(name).kill()
        self._down[name] = time.monotonic() + self._random.uniform(*DOWN_SECONDS)
        if name == "server":
            self.server, self.server_kills = "killed", self.server_kills + 1
        else:
            self.clients[int(name.split()[1])].mark_killed()
        self.screen.event(f"{name} killed", "bold red")

    def _revive(self) -> None:
        """Start the killed processes whose time has come."""
        for name in [name for name, when in self._down.items() if when <= time.monotonic()]:
            del self._down[name]
            if name == "server":
                self.server = "starting"
            else:
                self.clients[int(name.split()[1])].state = "starting"
            self._start(name)
