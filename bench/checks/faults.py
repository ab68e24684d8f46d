"""Faults in a live federation: killed processes, lost answers, a cut network, a full disk.

python bench/checks/faults.py                          100 schedules, a quarter of an hour
python bench/checks/faults.py --schedules 5 --seed 3   fewer, others
python bench/checks/faults.py --only 17                one of them again

A schedule has a server (`fedsuplin serve`, a process), clients (processes, each with a store), and
between them a proxy that loses answers, doubles requests, repeats some much later, and cuts the
network. Clients and server are killed (SIGKILL) and started again, and the server's writes fail for
a while. Every client writes down what it is about to observe before it does. At the end, when all
have played and left, the server's sums of every layer must be those of all that was written down,
to 1e-9: nothing lost, nothing doubled. The script prints one line per schedule, and fails if one is
wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

VARIANTS = (
    ("async", "--C", "0.05"),
    ("sync", "--D", "0.05"),
    ("fedlinucb", "--C", "0.05"),
    ("async", "--C", "0.5"),
)  # they talk much
DIM, ARMS, CLIENTS = 4, 5, 4
TOLERANCE = 1e-9
PATIENCE = 90.0  # seconds that a schedule may take
ENOUGH = "enough"  # a file: all of the certain faults have happened
CERTAIN = {
    "client killed": 2,
    "server killed": 1,
    "network cut": 1,
    "disk full": 1,
}  # of each in every schedule; the rest by chance


# --- a client -------------------------------------------------------------------------------------


def contexts(rng: np.random.Generator) -> np.ndarray:
    found = rng.standard_normal((ARMS, DIM))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def play(address: str, client_id: int, token: str, folder: str, n_pulls: int, seed: int) -> None:
    """Play until enough rewards are written down and enough faults happened, then leave.

    Some rewards come late and out of order.
    """
    import fedsuplin as fsl

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    notes = Path(folder) / f"client-{client_id}.jsonl"
    written = {note["id"]: note for note in read_notes(notes)}
    rng = np.random.default_rng([seed, client_id, len(written)])
    connection = fsl.connect(
        address,
        client_id=client_id,
        token=token,
        store=Path(folder) / f"client-{client_id}.db",
        wait=PATIENCE,
        timeout=1.0,
    )
    for number in list(connection.open):  # what was under way when this client was killed
        if number in written:
            connection.observe(number, written[number]["reward"])
        else:
            connection.drop(number)
    waiting: list[tuple[int, int, np.ndarray]] = []
    with notes.open("a") as file:
        while waiting or len(written) < n_pulls or not (Path(folder) / ENOUGH).exists():
            if not waiting or len(waiting) < 3 and rng.random() < 0.6:
                given = contexts(rng)
                decision = connection.select(given)
                waiting.append((decision.id, decision.layer, given[decision.arm]))
            else:
                number, layer, x = waiting.pop(rng.integers(len(waiting)))
                note = {
                    "id": number,
                    "layer": layer,
                    "x": x.tolist(),
                    "reward": float(x.sum() + 0.1 * rng.standard_normal()),
                }
                file.write(json.dumps(note) + "\n")
                file.flush()
                written[number] = note
                connection.observe(number, note["reward"])
            time.sleep(
                rng.exponential(0.01 if connection.is_online else 0.1)
            )  # most of it shall be played together
    connection.close(timeout=PATIENCE)


def read_notes(path: Path) -> list[dict]:
    """Whole lines; a kill may have cut the last one, which then was not observed either."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


# --- the network ----------------------------------------------------------------------------------


class Proxy:
    """Every request passes here, once, twice, late or not at all."""

    def __init__(self, target: str, r: random.Random) -> None:
        self.target, self.r, self.is_cut, self.counts = target, r, False, Counter()
        self._late: set[asyncio.Task] = set()

    async def start(self) -> int:
        import grpc

        class Handler(grpc.GenericRpcHandler):
            def service(_, details):  # noqa: N805 - self is the proxy
                async def passed(request, context):
                    return await self._pass(
                        details.method, details.invocation_metadata, request, context
                    )

                return grpc.unary_unary_rpc_method_handler(passed)

        self._channel = grpc.aio.insecure_channel(
            self.target, options=[("grpc.max_reconnect_backoff_ms", 200)]
        )
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((Handler(),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return port

    async def stop(self) -> None:
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await self._server.stop(0)
        await self._channel.close()

    async def _pass(self, method: str, metadata, request: bytes, context) -> bytes:
        import grpc

        self._count("request")
        if self.is_cut:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the network is cut")
        kind = self.r.random()
        try:
            if kind < 0.1:
                self._count("request doubled")
                first, second = await asyncio.gather(
                    self._call(method, metadata, request),
                    self._call(method, metadata, request),
                    return_exceptions=True,
                )
                answer = first if isinstance(first, bytes) else second
                if isinstance(answer, BaseException):
                    raise answer
            else:
                answer = await self._call(method, metadata, request)
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details())
        if kind > 0.9 or self.is_cut:
            self._count("answer lost")
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")
        if 0.1 < kind < 0.2:
            self._again(method, metadata, request)
        return answer

    def _count(self, what: str) -> None:
        self.counts[what] += 1

    def _again(self, method: str, metadata, request: bytes) -> None:
        """The same request once more, much later; its answer is ignored."""

        async def later() -> None:
            await asyncio.sleep(self.r.uniform(0.05, 2.0))
            await asyncio.gather(self._call(method, metadata, request), return_exceptions=True)

        self._count("request came again later")
        task = asyncio.get_running_loop().create_task(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _call(self, method: str, metadata, request: bytes) -> bytes:
        kept = [(key, value) for key, value in metadata if key == "authorization"]
        return await self._channel.unary_unary(method)(request, metadata=kept, timeout=10)


# --- a schedule -----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Schedule:
    """One federation, from its first process to its last."""

    def __init__(self, number: int, seed: int, folder: Path, n_pulls: int) -> None:
        self.r, self.folder, self.n_pulls, self.seed = (
            random.Random(f"{seed} {number}"),
            folder,
            n_pulls,
            seed * 1000 + number,
        )
        (self.variant, *self.constants), self.port, self.counts = (
            VARIANTS[number % len(VARIANTS)],
            free_port(),
            Counter(),
        )
        self.tokens = make_tokens(folder)
        self.processes = multiprocessing.get_context("forkserver")
        self.processes.set_forkserver_preload(["fedsuplin.federation.connection", "grpc"])

    async def run(self) -> str:
        """What was wrong; nothing if nothing was."""
        self.proxy = Proxy(f"127.0.0.1:{self.port}", self.r)
        address = f"grpc://127.0.0.1:{await self.proxy.start()}"
        await self._start_server()
        self.clients = {i: self._client(address, i) for i in range(CLIENTS)}
        misfortune = asyncio.create_task(self._misfortune(address))
        try:
            problem = await asyncio.wait_for(self._until_all_have_left(address), PATIENCE)
        except TimeoutError:
            problem = "a client did not come to its end"
        finally:
            misfortune.cancel()
            await asyncio.gather(misfortune, return_exceptions=True)
            for client in self.clients.values():
                client.kill()
                client.join()
            await self._stop_server()
            await self.proxy.stop()
        self.counts += self.proxy.counts
        return problem or wrong_sums(self.folder)

    async def _start_server(self) -> None:
        numbers = [
            *self.constants,
            "--dim",
            str(DIM),
            "--arms",
            str(ARMS),
            "--clients",
            str(CLIENTS),
            "--horizon",
            "4000",
        ]
        place = [
            "--store",
            str(self.folder / "server.db"),
            "--address",
            f"127.0.0.1:{self.port}",
            "--deadline",
            "0.5",
        ]
        command = [
            sys.executable,
            "-m",
            "fedsuplin",
            "serve",
            self.variant,
            *numbers,
            *place,
            "--tokens",
            str(self.folder / "tokens.json"),
        ]
        log = (self.folder / "server.log").open("ab")
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        log.close()
        line = await asyncio.to_thread(self.server.stdout.readline)
        if b"listening" not in line:
            raise SystemExit(
                f"the server did not start: {(self.folder / 'server.log').read_text()[-2000:]}"
            )

    async def _stop_server(self, how: int = signal.SIGTERM) -> None:
        self.server.send_signal(how)
        await asyncio.to_thread(self.server.wait)
        self.server.stdout.close()

    def _client(self, address: str, client_id: int):
        given = (
            address,
            client_id,
            self.tokens[client_id],
            str(self.folder),
            self.n_pulls,
            self.seed,
        )
        client = self.processes.Process(target=play, args=given, daemon=True)
        client.start()
        return client

    async def _until_all_have_left(self, address: str) -> str:
        """A client that was killed is started again; one that failed is what was wrong."""
        left: set[int] = set()
        while len(left) < CLIENTS:
            for number, client in self.clients.items():
                if number in left or client.is_alive():
                    continue
                client.join()
                if client.exitcode == 0:
                    left.add(number)
                elif client.exitcode == -signal.SIGKILL:
                    await asyncio.sleep(self.r.uniform(0, 0.5))
                    self.clients[number] = self._client(address, number)
                else:
                    return f"client {number} ended with {client.exitcode}"
            await asyncio.sleep(0.02)
        return ""

    async def _misfortune(self, address: str) -> None:
        """Each of the certain faults, in some order, and then more of them by chance."""
        faults = [name for name, times in CERTAIN.items() for _ in range(times)]
        self.r.shuffle(faults)
        while True:
            await asyncio.sleep(self.r.uniform(0.3, 1.2))
            if not faults:
                (self.folder / ENOUGH).touch()
            name = faults.pop() if faults else self.r.choice([*CERTAIN, *["nothing"] * 6])
            if name != "nothing":
                self.counts[name] += 1
                await getattr(self, "_" + name.replace(" ", "_"))()

    async def _client_killed(self) -> None:
        self.r.choice(list(self.clients.values())).kill()

    async def _server_killed(self) -> None:
        await self._stop_server(signal.SIGKILL)
        await asyncio.sleep(self.r.uniform(0, 0.5))
        await self._start_server()

    async def _network_cut(self) -> None:
        self.proxy.is_cut = True
        try:
            await asyncio.sleep(self.r.uniform(0.2, 2.0))
        finally:
            self.proxy.is_cut = False

    async def _disk_full(self) -> None:
        """No file of the server's may grow beyond a few pages: the kernel refuses the write."""
        _, hard = resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(
            self.server.pid, resource.RLIMIT_FSIZE, (self.r.choice([0, 4096, 20_000]), hard)
        )
        try:
            await asyncio.sleep(self.r.uniform(0.2, 1.0))
        finally:
            resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (hard, hard))


def make_tokens(folder: Path) -> dict[int, str]:
    from fedsuplin.federation.credentials import make_tokens, write_token_hashes

    tokens = make_tokens(range(CLIENTS))
    write_token_hashes(folder / "tokens.json", tokens)
    return tokens


def wrong_sums(folder: Path) -> str:
    """How far the server's sums are from those of all that was written down, if they are."""
    from fedsuplin.federation.ledger import Ledger

    ledger = Ledger(folder / "server.db")
    algorithm, worst, n_notes = ledger.algorithm, 0.0, 0
    grams = [algorithm.setting.ridge * np.eye(DIM) for _ in range(algorithm.n_layers)]
    moments = [np.zeros(DIM) for _ in range(algorithm.n_layers)]
    for number in range(CLIENTS):
        for note in read_notes(folder / f"client-{number}.jsonl"):
            x, n_notes = np.array(note["x"]), n_notes + 1
            grams[note["layer"]] += np.outer(x, x)
            moments[note["layer"]] += note["reward"] * x
    for layer in range(algorithm.n_layers):
        known = ledger.server.layer(layer)
        for mine, theirs in ((grams[layer], known["gram"]), (moments[layer], known["moment"])):
            worst = max(worst, float(np.abs(mine - theirs).max() / max(1.0, np.abs(mine).max())))
    pulls = ledger.total_pulls
    ledger.close()
    if pulls != n_notes:
        return f"{n_notes} observations were written down, {pulls} are in the server's sums"
    return "" if worst <= TOLERANCE else f"the sums differ by {worst:.3g}"


def main(schedules: list[int], seed: int, n_pulls: int, keep: str | None) -> int:
    """How many were wrong."""
    wrong, all_counts, began = 0, Counter(), time.monotonic()
    for number in schedules:
        with tempfile.TemporaryDirectory() as folder:
            schedule, start = Schedule(number, seed, Path(folder), n_pulls), time.monotonic()
            problem = asyncio.run(schedule.run())
            wrong += bool(problem)
            all_counts += schedule.counts
            faults = ", ".join(f"{count} {name}" for name, count in sorted(schedule.counts.items()))
            print(
                f"{number:3} {schedule.variant:9} {problem or 'right'}  "
                f"({faults}; {time.monotonic() - start:.0f} s)",
                flush=True,
            )
            if problem and keep:
                shutil.copytree(folder, Path(keep) / str(number), dirs_exist_ok=True)
    faults = ", ".join(f"{count} × {name}" for name, count in sorted(all_counts.items()))
    print(
        f"{len(schedules)} schedules, {wrong} wrong, "
        f"{(time.monotonic() - began) / 60:.1f} minutes: {faults}"
    )
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="this schedule alone")
    parser.add_argument("--pulls", type=int, default=120, help="of each client")
    parser.add_argument("--keep", help="a folder for the files of schedules that went wrong")
    arguments = parser.parse_args()
    chosen = list(range(arguments.schedules)) if arguments.only is None else [arguments.only]
    sys.exit(bool(main(chosen, arguments.seed, arguments.pulls, arguments.keep)))
