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
from ...algorithm.making import make
from ...errors import FederationError, InvalidInput
from ...live.algorithms import check_live_algorithm
from ..credentials import make_tokens, write_token, write_token_hashes
from .outcome import Reconciliation, print_outcome, reconcile, summarize_outcome
from .player import PlayerOptions
from .processes import Lines, Process, catch_stop_signals, parse_line
from .screen import Screen, open_screen
from .standing import ClientStanding
from .world import ARMS, DIM, NOISE, World

DEADLINE_SECONDS = 1.0  # seconds that clients who sync together wait for one that was killed
SERVER_KILL_EVERY = 3  # of so many kills one is the server's
DOWN_SECONDS = (0.5, 2.0)  # between a kill and the start that follows
CALM_SECONDS = 1.5  # in which nobody is killed any more
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
    """Play it, and say how it ended. Is what the server knows all that was observed, once?"""
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
    return found.right


def check_world(world: World) -> None:
    """Can this variant be live, and are its sums those of x xᵀ and r x?"""
    algorithm = make(
        world.variant,
        dim=DIM,
        n_arms=ARMS,
        n_clients=world.n_clients,
        horizon=world.n_pulls,
        **world.constants,
    )
    check_live_algorithm(algorithm)
    if algorithm.spec["weighting"]["name"] != "unit":
        raise InvalidInput(
            f"{world.variant} weighs what it observes, and the demo's own sums do not: take async, sync or fedlinucb"
        )


class Demo:
    """The federation: who is there, who is to be killed next, and who comes back."""

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
        self._down: dict[str, float] = {}  # who was killed, and when it comes back
        self._began: float | None = None  # with the first client
        self._next_kill = float("inf")

    @property
    def elapsed(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    # --- the story ---------------------------------------------------------------------------------------------------------

    def play(self) -> Reconciliation:
        """From the first process to the last."""
        tokens = make_tokens(range(self.world.n_clients))
        write_token_hashes(self._folder / "tokens.json", tokens)
        for number, token in tokens.items():
            write_token(self._folder / f"client-{number}.token", token)
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
        return reconcile(self.world, self._folder)

    def _start(self, name: str) -> None:
        number = None if name == "server" else int(name.split()[1])
        arguments = self._server_arguments() if number is None else [self._told(number).to_json()]
        self._processes[name] = Process(name, arguments, self._lines)

    def _server_arguments(self) -> list[str]:
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

    def _told(self, number: int) -> PlayerOptions:
        left = max(0.0, self.seconds - self.elapsed)
        return PlayerOptions(
            self.world, number, f"grpc://{self.address}", str(self._folder), os.getpid(), left
        )

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
            raise FederationError(
                f"the server has ended by itself, with exit code {process.wait()}: {process.last_words}"
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
        said = parse_line(line)
        if said.get("event") == "absent":
            who = ", ".join(map(str, said["clients"]))
            self.screen.event(f"round {said['round']} goes on without client {who}", "yellow")
        elif said.get("event") == "refused":
            self.screen.event(
                f"server refuses client {said.get('client')}: {said.get('message')}", "red"
            )

    def _client_said(self, process: Process, number: int, stream: str, line: str | None) -> None:
        standing = self.clients[number]
        if line is None:
            self._ended(process, number)
            return
        said = parse_line(line) if stream == "out" else {}
        if said.get("event") == "status":
            standing.update(said)
        elif said.get("event") in ("started", "back"):
            standing.state, standing.pulls = "playing", said["pulls"]
            if self._began is None:
                self._began, self._next_kill = time.monotonic(), self._soon(self._kill_every)
            if said["event"] == "back":
                kept = (
                    "nothing lost"
                    if said["known"] == said["pulls"]
                    else f"but knows of {said['known']}"
                )
                self.screen.event(f"client {number} back, {said['pulls']:,} pulls, {kept}", "green")

    def _ended(self, process: Process, number: int) -> None:
        code = process.wait()
        if code != 0:
            self.clients[number].state = "failed"
            raise FederationError(
                f"client {number} has ended with exit code {code}: {process.last_words}"
            )
        self.clients[number].state = "done"
        self.screen.event(f"client {number} done, {self.clients[number].pulls:,} pulls", "cyan")

    # --- misfortune --------------------------------------------------------------------------------------------------------

    def _soon(self, every: float) -> float:
        return time.monotonic() + every * self._random.uniform(0.7, 1.3) if every else float("inf")

    def _kill_somebody(self) -> None:
        if time.monotonic() < self._next_kill or self.elapsed > self.seconds - CALM_SECONDS:
            return
        self._next_kill = self._soon(self._kill_every)
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
