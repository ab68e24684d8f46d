"""Load on a live server: 200 clients sync 300 times per second, then more, then 100 000 times.

python bench/load.py                              all of it, some ten minutes
python bench/load.py --rate 300 --seconds 10      one rate alone, without and with TLS
python bench/load.py --syncs 20000                memory alone, over so many syncs

The server is `fedsuplin serve` in a process of its own, on one core, with tokens and a store on
disk. The clients are 200 connections of one process on another core; their uploads hold all layers
and are made beforehand. The times at which they sync are also drawn beforehand, as a Poisson
process. A sync takes from its planned time to its answer, so waiting anywhere counts. When a server
ends, its store must hold every upload exactly once, in its sums, pulls and counts. The script
prints what it measured. It fails if one sync in a hundred takes 100 ms or more at 300 per second,
if memory grows by more than 5 %, or if a sum is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import platform
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

DIM, ARMS, CLIENTS, HORIZON = 25, 20, 200, 400_000
LATEST, SECONDS = 0.100, 15.0  # the 99th percentile, and for how long it is looked at
STOLEN, TRIES = (
    0.05,
    3,
)  # of the cores, by others on the host; and how often a rate is tried if that happens
RATES = (
    300,
    450,
    600,
    750,
    900,
    1050,
    1200,
    1500,
    1800,
    2100,
    2400,
    3000,
    4000,
    5000,
)  # the first must hold
SYNCS, FIRST_SYNCS, GROWTH = 100_000, 10_000, 1.05
KINDS = 8  # different uploads of a client
SEQUENCE = (
    struct.Struct("<Q"),
    56,
)  # where an upload's number is: after head, fingerprint and session
MERGED = 24  # the byte of an answer that says so
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


# --- the server -----------------------------------------------------------------------------------


class Served:
    """`fedsuplin serve` as a process on one core, with its log and its store in a folder."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        n_clients: int,
        tls: bool = False,
        core: int | None = None,
    ) -> None:
        self.folder, self.tls = folder, tls
        self.tokens = make_tokens(folder, n_clients)
        place = ["--store", str(folder / "server.db"), "--tokens", str(folder / "tokens.json")]
        place += [
            "--address",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
            *(certificate(folder) if tls else ()),
        ]
        command = [sys.executable, "-m", "fedsuplin", "serve", *arguments, *place]
        with (folder / "log").open("wb") as log, on_core(core):  # which all of its threads inherit
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening on "):
            self.process.wait()
            raise SystemExit(f"the server did not start: {(folder / 'log').read_text()[-2000:]}")
        self.target = line.split("://")[1].strip()

    def log(self) -> list[dict]:
        """What the service says; gRPC itself may say more, which is no JSON."""
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def channel(self):
        import grpc

        if not self.tls:
            return grpc.aio.insecure_channel(self.target, OPTIONS)
        known = grpc.ssl_channel_credentials((self.folder / "ca.pem").read_bytes())
        return grpc.aio.secure_channel(self.target, known, OPTIONS)

    def metrics(self) -> dict[str, float]:
        """What the server counts, by name; those with labels are left out."""
        address = next(line["metrics"] for line in self.log() if line["event"] == "listening")
        with urllib.request.urlopen(address, timeout=10) as page:
            lines = page.read().decode().splitlines()
        pairs = [line.split() for line in lines if not line.startswith("#") and "{" not in line]
        return {name: float(value) for name, value in pairs}

    def cpu_seconds(self) -> float:
        numbers = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident, in MB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def stop(self) -> int:
        """The exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(30)
        finally:
            self.process.kill()
            self.process.stdout.close()
        return code


@contextlib.contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """This thread, and what it starts, on one core."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def make_tokens(folder: Path, n_clients: int) -> dict[int, str]:
    from fedsuplin.federation.credentials import make_tokens, write_token_hashes

    tokens = make_tokens(range(n_clients))
    write_token_hashes(folder / "tokens.json", tokens)
    return tokens


def certificate(folder: Path) -> list[str]:
    import trustme

    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    made.private_key_pem.write_to_path(folder / "key.pem")
    made.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]


# --- clients --------------------------------------------------------------------------------------


class Session:
    """One client: its connection, and uploads that it sends repeatedly with new numbers."""

    def __init__(self, served: Served, client_id: int, algorithm) -> None:
        self.client_id, self.sequence, self.merged = client_id, 0, [0] * KINDS
        self.id = hashlib.sha256(f"session {client_id}".encode()).digest()[:16]
        self.uploads = [upload_of(algorithm, client_id, kind) for kind in range(KINDS)]
        self._algorithm, self._metadata = (
            algorithm,
            (("authorization", f"Bearer {served.tokens[client_id]}"),),
        )
        self._channel = served.channel()
        self._taken = asyncio.Lock()

    async def join(self) -> None:
        from fedsuplin.federation.agreement import Agreement
        from fedsuplin.federation.wire import PATHS, JoinRequest, SyncRequest

        fingerprint = Agreement.of(self._algorithm).fingerprint
        joins = self._channel.unary_unary(PATHS["Join"])
        await joins(
            JoinRequest(self.client_id, self.id, fingerprint).to_bytes(),
            metadata=self._metadata,
            timeout=60,
        )
        self._syncs = self._channel.unary_unary(PATHS["Sync"])
        self._bytes = [
            bytearray(SyncRequest(fingerprint, self.id, 0, 0, 0, False, each).to_bytes())
            for each in self.uploads
        ]

    async def sync(self) -> None:
        """One upload; a client has one under way, as real ones do."""
        async with self._taken:
            self.sequence += 1
            kind = self.sequence % KINDS
            form, at = SEQUENCE
            form.pack_into(self._bytes[kind], at, self.sequence)
            answer = await self._syncs(
                bytes(self._bytes[kind]), metadata=self._metadata, timeout=60
            )
            if answer[MERGED] != 1:
                raise SystemExit(
                    f"upload {self.sequence} of client {self.client_id} was not merged"
                )
            self.merged[kind] += 1

    async def close(self) -> None:
        await self._channel.close()


def upload_of(algorithm, client_id: int, kind: int):
    """What a few pulls of unit length give, in every layer."""
    from fedsuplin.live.messages import Upload
    from fedsuplin.live.triangles import pack_upper

    rng, n, dim = np.random.default_rng([client_id, kind]), algorithm.n_layers, algorithm.dim
    pulls = rng.integers(1, 6, n)
    grams, moments = np.zeros((n, dim, dim)), np.zeros((n, dim))
    for layer in range(n):
        x = rng.standard_normal((pulls[layer], dim))
        x /= np.linalg.norm(x, axis=1, keepdims=True) * (1 + 1e-12)
        grams[layer], moments[layer] = x.T @ x, x.T @ rng.uniform(-1, 1, len(x))
    return Upload(
        client_id,
        np.arange(n),
        np.array([pack_upper(gram) for gram in grams]),
        moments,
        pulls,
        asking=(0,),
    )


@contextlib.asynccontextmanager
async def all_joined(served: Served, n_clients: int, algorithm):
    sessions = [Session(served, client_id, algorithm) for client_id in range(n_clients)]
    try:
        await asyncio.gather(*(session.join() for session in sessions))
        yield sessions
    finally:
        await asyncio.gather(*(session.close() for session in sessions))


# --- syncs at times that were chosen before -------------------------------------------------------


@dataclass
class Measured:
    """Seconds of each sync, and what they took from the machine."""

    asked: float
    """Syncs a second, as many as were to be sent."""
    achieved: float
    took: list[float]
    late: list[float] = field(repr=False)
    """Return how late each request of an idle client was sent: delays of the clients' process."""
    server: float
    """Share of a core."""
    clients: float
    stolen: float
    """Share of the cores that others on the host took from this virtual machine."""
    per_commit: float

    def p(self, share: float) -> float:
        return float(np.percentile(self.took, 100 * share, method="higher"))

    def disturbed(self) -> bool:
        """Whether the host took cores away, or idle clients were late.

        Then something other than the server was measured.
        """
        return (
            self.stolen > STOLEN
            or self.clients < 0.8
            and np.percentile(self.late, 99) > 0.2 * LATEST
        )

    def holds(self) -> bool:
        return self.p(0.99) < LATEST and self.achieved >= 0.95 * self.asked

    def __str__(self) -> str:
        times = " ".join(
            f"{name} {1000 * self.p(share):6.1f}"
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
        )
        return (
            f"{self.asked:6.0f}/s asked {self.achieved:7.1f}/s done | "
            f"{times} max {1000 * max(self.took):6.1f} ms | "
            f"{self.per_commit:5.1f} uploads per commit | "
            f"CPU: server {self.server:4.0%}, clients {self.clients:4.0%}, "
            f"stolen {self.stolen:4.1%} "
            f"(sent late: p99 {1000 * np.percentile(self.late, 99):.1f} ms)"
        )


async def paced(
    served: Served, sessions: list[Session], rate: float, seconds: float, seed: int = 0
) -> Measured:
    """Syncs at random times, of the clients in turn, whatever became of those before."""
    r, at, times = random.Random(seed), 0.0, []
    while (at := at + r.expovariate(rate)) < seconds:
        times.append(at)
    order = [
        number
        for _ in range(len(times) // len(sessions) + 1)
        for number in r.sample(range(len(sessions)), len(sessions))
    ]
    before, took, late, calls = served.metrics(), [], [], []
    cpu, own, stolen, start = (
        served.cpu_seconds(),
        time.process_time(),
        stolen_seconds(),
        time.perf_counter() + 0.05,
    )

    async def one(session: Session, due: float) -> None:
        late.append(time.perf_counter() - due)
        await session.sync()
        took.append(time.perf_counter() - due)

    for due, number in zip(times, order, strict=False):
        wait = start + due - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        calls.append(asyncio.create_task(one(sessions[number], start + due)))
        if wait <= 0 and len(calls) % 16 == 0:
            await asyncio.sleep(0)  # behind: let answers in
    await asyncio.gather(*calls)
    wall = time.perf_counter() - start
    cpu, own, after = served.cpu_seconds() - cpu, time.process_time() - own, served.metrics()
    per_commit = count(before, after, "syncs") / max(1.0, count(before, after, "commits"))
    shares = cpu / wall, own / wall, (stolen_seconds() - stolen) / wall / os.cpu_count()
    return Measured(
        len(times) / seconds, len(took) / max(wall, seconds), took, late, *shares, per_commit
    )


def stolen_seconds() -> float:
    """Return the time that the host took from all cores so far: the eighth number of /proc/stat."""
    return int(Path("/proc/stat").read_text().split(None, 9)[8]) / os.sysconf("SC_CLK_TCK")


async def at_full_speed(sessions: list[Session], n_syncs: int) -> None:
    """So many syncs, each client's next one as soon as the one before is answered."""
    left = iter(range(n_syncs))

    async def one(session: Session) -> None:
        for _ in left:
            await session.sync()

    await asyncio.gather(*map(one, sessions))


def count(before: dict[str, float], after: dict[str, float], name: str) -> float:
    return after[f"fedsuplin_{name}_total"] - before[f"fedsuplin_{name}_total"]


# --- is it all there? -----------------------------------------------------------------------------


def wrong_store(folder: Path, sessions: list[Session]) -> str:
    """Describe where the store differs from the sum of all uploads; empty if it does not."""
    from fedsuplin.federation.ledger import Ledger
    from fedsuplin.live.triangles import pack_upper

    sent = [
        (times, upload)
        for session in sessions
        for times, upload in zip(session.merged, session.uploads, strict=True)
    ]
    with contextlib.closing(Ledger(folder / "server.db")) as ledger:
        n, dim = ledger.algorithm.n_layers, ledger.algorithm.dim
        grams = np.tile(pack_upper(ledger.algorithm.setting.ridge * np.eye(dim)), (n, 1)) + sum(
            k * each.grams for k, each in sent
        )
        moments, known = sum(k * each.moments for k, each in sent), ledger.download()
        worst = max(
            np.abs(known.grams / grams.max() - grams / grams.max()).max(),
            np.abs(known.moments - moments).max() / grams.max(),
        )
        found = {
            "syncs": ledger.n_syncs,
            "communication": ledger.communication,
            "pulls": ledger.total_pulls,
        }
        found |= {
            f"sequence of client {number}": each["sequence"]
            for number, each in ledger.clients().items()
        }
    n_syncs = sum(times for times, _ in sent)
    right = {
        "syncs": n_syncs,
        "communication": n_syncs,
        "pulls": sum(times * int(each.pulls.sum()) for times, each in sent),
    }
    right |= {f"sequence of client {session.client_id}": session.sequence for session in sessions}
    if found != right:
        return next(
            f"{name}: {found.get(name)}, not {right.get(name)}"
            for name in right | found
            if found.get(name) != right.get(name)
        )
    return "" if worst <= 1e-9 else f"the sums differ by {worst:.3g}"


@contextlib.asynccontextmanager
async def loaded(
    found: list[str],
    *,
    tls: bool = False,
    n_clients: int = CLIENTS,
    dim: int = DIM,
    pin: bool = True,
):
    """Start a server and its clients, and check the store when they are done."""
    import fedsuplin as fsl

    algorithm = fsl.make("async", dim=dim, n_arms=ARMS, n_clients=n_clients, horizon=HORIZON)
    cores = sorted(os.sched_getaffinity(0))
    numbers = {"--dim": dim, "--arms": ARMS, "--clients": n_clients, "--horizon": HORIZON}
    arguments = [str(each) for pair in numbers.items() for each in pair]
    with tempfile.TemporaryDirectory() as name, on_core(cores[-1] if pin else None):
        served = Served(
            Path(name),
            "async",
            *arguments,
            n_clients=n_clients,
            tls=tls,
            core=cores[0] if pin else None,
        )
        try:
            async with all_joined(served, n_clients, algorithm) as sessions:
                yield served, sessions
        finally:
            code = served.stop()
        wrong = f"the server ended with {code}" if code else wrong_store(Path(name), sessions)
        if wrong:
            found.append(wrong)
        n_merged = sum(sum(each.merged) for each in sessions)
        print(
            f"  the store: {wrong or f'each of {n_merged} uploads once, sums to 1e-9'}", flush=True
        )


# --- the measurements -----------------------------------------------------------------------------


async def until_too_slow(
    found: list[str], tls: bool, rates: tuple[float, ...], seconds: float
) -> None:
    """Raise the rate until syncs take too long. The first rate is the one that must hold."""
    print("TLS:" if tls else "plaintext:", flush=True)
    async with loaded(found, tls=tls) as (served, sessions):
        await at_full_speed(sessions, 5 * CLIENTS)  # warm
        best = None
        for rate in rates:
            measured = await undisturbed(served, sessions, rate, seconds)
            if not measured.holds():
                if measured.clients > 0.9:
                    print("  the clients' process has no time left: the server could do more")
                break
            best = measured
    if best is None:
        found.append(
            f"{rates[0]:.0f} syncs a second {'with' if tls else 'without'} TLS do not hold"
        )
    elif len(rates) > 1:
        print(f"  saturates beyond {best.achieved:.0f} syncs a second", flush=True)


async def undisturbed(
    served: Served, sessions: list[Session], rate: float, seconds: float
) -> Measured:
    """Measure a rate, a few times if others took the cores while it was too slow."""
    for seed in range(TRIES):
        measured = await paced(served, sessions, rate, seconds, seed)
        print(f"  {measured}", flush=True)
        if measured.holds() or not measured.disturbed():
            break
        print("  others took the cores meanwhile", flush=True)
    return measured


async def memory(found: list[str], n_syncs: int) -> None:
    """As fast as it goes, with TLS."""
    first = min(FIRST_SYNCS, n_syncs // 2)
    print(f"memory, over {n_syncs} syncs as fast as they go, with TLS:", flush=True)
    async with loaded(found, tls=True) as (served, sessions):
        sizes, done, began = {}, 0, time.perf_counter()
        for until in sorted({first, *range(2 * first, n_syncs, 2 * first), n_syncs}):
            await at_full_speed(sessions, until - done)
            done, sizes[until] = until, served.memory()
            rate = done / (time.perf_counter() - began)
            print(
                f"  {until:7} syncs: {sizes[until]:6.1f} MB resident, "
                f"{rate:5.0f} syncs per second so far",
                flush=True,
            )
        growth = sizes[n_syncs] / sizes[first]
        files = ", ".join(
            f"{each.name} {each.stat().st_size / 1024:.0f} KB"
            for each in sorted(served.folder.glob("server.db*"))
        )
        print(
            f"  from {first} to {n_syncs} syncs it changed by {growth - 1:+.1%}; files: {files}",
            flush=True,
        )
    if growth > GROWTH:
        found.append(f"memory grew by {growth - 1:.1%}")


def machine() -> None:
    import grpc

    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    with tempfile.NamedTemporaryFile() as file:
        began = time.perf_counter()
        for _ in range(50):
            file.write(bytes(20_000))
            file.flush()
            os.fsync(file.fileno())
        synced = (time.perf_counter() - began) / 50
    print(
        f"Python {platform.python_version()}, grpc {grpc.__version__}, {cores} cores, "
        f"load average {load:.2f} before it began; "
        f"20 KB are on the disk in {1000 * synced:.2f} ms"
    )
    if load > 0.5:
        print("BUSY: others use this machine, the numbers are worse than they would be")


async def main(rate: float | None, seconds: float, n_syncs: int | None) -> int:
    """How many things were not as they must be."""
    machine()
    found: list[str] = []
    if rate is not None or n_syncs is None:
        for tls in (False, True):
            await until_too_slow(found, tls, RATES if rate is None else (rate,), seconds)
    if n_syncs is not None or rate is None:
        await memory(found, n_syncs or SYNCS)
    print(f"load average {os.getloadavg()[0]:.2f} at the end (two of it are this)")
    print("\n".join(found) or "all as it must be")
    return len(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, help="syncs a second: this rate alone")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="at each rate")
    parser.add_argument("--syncs", type=int, help="memory alone, over so many syncs")
    given = parser.parse_args()
    sys.exit(bool(asyncio.run(main(given.rate, given.seconds, given.syncs))))
