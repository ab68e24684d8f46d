"""What this machine does, in a minute: the numbers and tables of `fedsuplin bench`.

Whatever is compared is measured side by side, the timings taking turns, and the best of each counts: a noisy neighbour slows a
core down for seconds, nothing speeds it up. The NumPy LinUCB that everything is compared with is here too; `bench/` uses it.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Group
from rich.table import Table

from fedsuplin_ext import measure, norms
from fedsuplin_ext.loop import Engine

from .algorithm import Algorithm
from .files import whole
from .markup import markdown_table
from .problem import SyntheticProblem
from .result import RunResult
from .run import arrival_for, chunk_size, make_for, run
from .version import __version__

PAPER: dict[str, Any] = {"dim": 25, "n_arms": 20, "n_clients": 20}
HORIZON = 40_000
VARIANTS = ("async", "sync", "variance", "robust", "oful")
SIZES = ((5, 5), (25, 100), (64, 20), (128, 100))  # d, K of `async`, besides the paper's setting
WIDTHS = ((5, 5), (25, 20), (64, 50), (128, 100), (256, 1000))
IDLE = (1000, 3000)  # clients, whose difference in memory is that of idle ones
NOISE: dict[str, dict[str, Any]] = {
    "variance": {"noise": "bounded"},
    "robust": {"noise": "corrupted", "corruption": 50.0},
}  # as each is made for

LEGEND = """\
All times in µs. layers: looked at, on average; drawing: its contexts, besides
the loop; NumPy: a one-layer LinUCB round, and how many times ours it takes."""

Timing = Callable[[], float]
Kernel = Callable[[measure.Data, int, str | None], float]
"""Does its work and returns the seconds that count."""


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    turns: int  # of timings side by side, of which the best counts
    kernel_turns: int
    pulls: int  # of a run at the paper's setting; fewer where a round costs more
    numpy_rounds: int


FULL = Effort(turns=4, kernel_turns=600, pulls=HORIZON, numpy_rounds=1000)
QUICK = Effort(turns=2, kernel_turns=150, pulls=HORIZON // 4, numpy_rounds=300)


# --- timing ---------------------------------------------------------------------------------------------------------


def best_of(turns: int, *timings: Timing) -> list[float]:
    """The best time of each, the timings taking turns, so that a noisy moment hits them alike."""
    taken = [[timing() for timing in timings] for _ in range(turns)]
    return [min(of_one) for of_one in zip(*taken, strict=True)]


def timed(call: Callable[[], Any]) -> Timing:
    def timing() -> float:
        before = time.perf_counter()
        call()
        return time.perf_counter() - before

    return timing


def loop_timing(algorithm: Algorithm, problem: Any, pulls: int) -> Timing:
    """The compiled loop of a run, drawing and start-up excluded."""
    return lambda: run(algorithm, problem, horizon=pulls).loop_time


def kernel_timing(kernel: Kernel, data: measure.Data, flops: float, kernels: str | None = None) -> Timing:
    """A kernel from measure.py, repeated inside for about a tenth of a millisecond at the speed of a good core."""
    repeats = max(1, int(4e6 / flops))
    return lambda: kernel(data, repeats, kernels)


def peak_timing(kernels: str | None = None) -> Timing:
    """Seconds for one flop at the FMA peak."""
    return lambda: 1 / measure.fma_peak(5e-4, kernels)


def widths_flops(dim: int, n_arms: int) -> int:
    """What a symmetric matrix needs: d(d+1)/2 multiply-adds for each arm."""
    return dim * (dim + 1) * n_arms


# --- the NumPy LinUCB -----------------------------------------------------------------------------------------------


class NumpyLinUCB:
    """One layer, one player, Sherman–Morrison, no copies: the LinUCB that a careful NumPy user writes."""

    def __init__(self, dim: int, n_arms: int, ridge: float, radius: float) -> None:
        self.inverse, self.moment, self.theta_hat = np.eye(dim) / ridge, np.zeros(dim), np.zeros(dim)
        self.radius = radius
        self._projected, self._outer = np.empty((n_arms, dim)), np.empty((dim, dim))
        self._scores, self._widths = np.empty(n_arms), np.empty(n_arms)

    def select(self, contexts: np.ndarray) -> int:
        np.dot(contexts, self.inverse, out=self._projected)
        np.einsum("kd,kd->k", self._projected, contexts, out=self._widths)
        np.sqrt(self._widths, out=self._widths)
        np.dot(contexts, self.theta_hat, out=self._scores)
        self._widths *= self.radius
        self._scores += self._widths
        return int(self._scores.argmax())

    def update(self, x: np.ndarray, reward: float) -> None:
        y = self.inverse @ x
        np.multiply(y[:, None], y, out=self._outer)
        self._outer /= 1 + x @ y
        self.inverse -= self._outer
        self.moment += reward * x
        np.dot(self.inverse, self.moment, out=self.theta_hat)


def play_rows(player: Any, contexts: np.ndarray, theta: np.ndarray, noise: np.ndarray) -> list[int]:
    """The loop around a player, with what a simulation must compute: the reward, and the regret against the best arm."""
    arms, regret = [], 0.0
    for t in range(len(contexts)):
        rows = contexts[t]
        arm = player.select(rows)
        means = rows @ theta
        player.update(rows[arm], means[arm] + noise[t])
        regret += means.max() - means[arm]
        arms.append(arm)
    return arms


def first_rows(problem: SyntheticProblem, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The first contexts of a problem as NumPy wants them, rounds × arms × dim, and their noise."""
    chunk = problem.stream(HORIZON, None).take(n)
    return np.ascontiguousarray(chunk.contexts[:, :, : problem.n_arms].transpose(0, 2, 1)), chunk.noise.copy()


class SingleThreaded:
    """The NumPy LinUCB in a process of its own whose BLAS has one thread, as the comparison is of one core with one core.

    With two threads OpenBLAS takes several times as long for matrices of this size when the other core is busy.
    """

    def __enter__(self) -> SingleThreaded:
        one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1")
        command = [sys.executable, "-P", "-c", "from fedsuplin.benchmark import answer; answer()"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, env=os.environ | one, stdin=pipe, stdout=pipe, text=True, start_new_session=True
        )
        return self

    def timing(self, dim: int, n_arms: int, n: int) -> Timing:
        def seconds() -> float:
            assert self._process.stdout is not None  # it is a pipe
            print(dim, n_arms, n, file=self._process.stdin, flush=True)
            return float(self._process.stdout.readline())

        return seconds

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # the end of its input ends it


def answer() -> None:
    """In that process: for each line of sizes, the seconds that so many rounds take."""
    for line in sys.stdin:
        dim, n_arms, n = map(int, line.split())
        print(numpy_seconds(dim, n_arms, n), flush=True)


def numpy_seconds(dim: int, n_arms: int, n: int) -> float:
    problem = SyntheticProblem(dim, n_arms, 1)
    theta, (rows, noise) = problem.theta, first_rows(problem, n)
    assert theta is not None  # it has one for all arms
    return timed(lambda: play_rows(NumpyLinUCB(dim, n_arms, 1.0, 0.5), rows, theta, noise))()


@dataclass(frozen=True)
class FixedRadius:
    """A noise model with one layer and one radius, which makes `oful` for one client the very LinUCB above."""

    radius: float = 0.5

    def n_layers(self, setting: Any) -> int:
        return 1

    def radii(self, setting: Any) -> list[float]:
        return [self.radius]

    def target_widths(self, setting: Any) -> list[float]:
        return [0.0]

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(n), np.zeros(n)


# --- what is measured -----------------------------------------------------------------------------------------------


def measured(effort: Effort = FULL, progress: Callable[[str, int, int], None] = lambda what, done, total: None) -> dict[str, Any]:
    """All of it as plain data. `progress(what, done, total)` is called before each part, and at the end."""
    parts = (
        ("widths", widths),
        ("rounds", rounds),
        ("communication", communication),
        ("sync", sync),
        ("memory", memory),
    )
    numbers: dict[str, Any] = {"kernels": norms.default(), "available": norms.available()}
    numbers["fma_gigaflops"] = measure.fma_peak(0.2) / 1e9
    for done, (name, part) in enumerate(parts):
        progress(name, done, len(parts))
        numbers[name] = part(effort)
    progress("done", len(parts), len(parts))
    return numbers


def widths(effort: Effort) -> list[dict[str, Any]]:
    """Widths and estimates of all arms in one layer, beside the FMA peak."""
    rows = []
    for dim, n_arms in WIDTHS:
        flops = widths_flops(dim, n_arms)
        turns = max(5, min(effort.kernel_turns, int(effort.kernel_turns * 4e6 / flops)))
        seconds, flop = best_of(turns, kernel_timing(measure.widths, measure.Data(dim, n_arms), flops), peak_timing())
        rows.append({"dim": dim, "n_arms": n_arms, "microseconds": 1e6 * seconds, "share_of_peak": flops * flop / seconds})
    return rows


def rounds(effort: Effort) -> list[dict[str, Any]]:
    """Whole rounds: each variant at the paper's setting, then `async` at other sizes."""
    others = [PAPER | {"dim": dim, "n_arms": n_arms} for dim, n_arms in SIZES]
    cases = [(variant, PAPER) for variant in VARIANTS] + [("async", sizes) for sizes in others]
    with SingleThreaded() as numpy:
        return [round_row(variant, sizes, numpy, effort) for variant, sizes in cases]


def round_row(variant: str, sizes: dict[str, Any], numpy: SingleThreaded, effort: Effort) -> dict[str, Any]:
    """The loop alone, the drawing of contexts alone, and rounds of the NumPy LinUCB, in turns."""
    problem = SyntheticProblem(**sizes, **NOISE.get(variant, {}), seed=0)
    algorithm = make_for(variant, problem, HORIZON, {})
    pulls, draws, numpy_rounds = (affordable(n, sizes) for n in (effort.pulls, effort.pulls // 4, effort.numpy_rounds))
    loop, draw, other = best_of(
        effort.turns,
        loop_timing(algorithm, problem, pulls),
        timed(lambda: draw_all(algorithm, problem, draws)),
        numpy.timing(problem.dim, problem.n_arms, numpy_rounds),
    )
    layers = layers_looked_at(run(algorithm, problem, horizon=pulls))
    return {
        "variant": variant,
        **sizes,
        "pulls": pulls,
        "microseconds": 1e6 * loop / pulls,
        "layers": layers,
        "microseconds_a_layer": 1e6 * loop / pulls / layers,
        "microseconds_drawing": 1e6 * draw / draws,
        "numpy_microseconds": 1e6 * other / numpy_rounds,
        "times_numpy": (other / numpy_rounds) / (loop / pulls),
    }


def affordable(n: int, sizes: dict[str, int]) -> int:
    """Fewer pulls where a context set has more numbers than the paper's, in whole rounds of all clients."""
    share = min(1.0, PAPER["dim"] * PAPER["n_arms"] / (sizes["dim"] * sizes["n_arms"]))
    return max(1, int(n * share) // sizes["n_clients"]) * sizes["n_clients"]


def layers_looked_at(result: RunResult) -> float:
    """On average a pull: a pull that ends in layer s has looked at layers 0 to s."""
    played = result.layer_pulls
    return float(played @ np.arange(1, len(played) + 1) / played.sum())


def draw_all(algorithm: Algorithm, problem: SyntheticProblem, pulls: int) -> None:
    """What `run` does, without the loop."""
    stream, size = problem.stream(pulls, arrival_for(algorithm, problem, pulls)), chunk_size(algorithm)
    for start in range(0, pulls, size):
        stream.take(min(size, pulls - start))


def communication(effort: Effort) -> dict[str, float]:
    """A round of `async` with the theorem's C = 1/M², where most pulls communicate, beside one with C = 1."""
    problem = SyntheticProblem(**PAPER, seed=0)
    few, many = (make_for("async", problem, HORIZON, {"C": C}) for C in (1.0, PAPER["n_clients"] ** -2))
    seconds = best_of(effort.turns, *(loop_timing(algorithm, problem, effort.pulls) for algorithm in (few, many)))
    asked = run(many, problem, horizon=effort.pulls).messages_up[-1].item() / effort.pulls
    few_us, many_us = (1e6 * s / effort.pulls for s in seconds)
    return {"few_microseconds": few_us, "many_microseconds": many_us, "many_syncs_a_pull": asked, "ratio": many_us / few_us}


def sync(effort: Effort) -> dict[str, float]:
    """What the server does with one layer of an upload: a rank-one step for each of few observations, or a factorisation."""
    data = measure.Data(PAPER["dim"], PAPER["n_arms"])
    cube = PAPER["dim"] ** 3
    step, whole = best_of(
        effort.kernel_turns, kernel_timing(measure.rank_one, data, cube / 4), kernel_timing(measure.factorise, data, cube)
    )
    return {"rank_one_microseconds": 1e6 * step, "factorise_microseconds": 1e6 * whole}


def memory(effort: Effort) -> dict[str, float]:
    """Bytes of the engine's state at the paper's setting, and what one more client adds that has not played yet."""
    paper, few, many = (
        Engine(make_for("async", SyntheticProblem(**PAPER | {"n_clients": m}), HORIZON, {})).memory_used
        for m in (PAPER["n_clients"], *IDLE)
    )
    return {"idle_client": (many - few) / (IDLE[1] - IDLE[0]), "start": paper}


# --- for people -----------------------------------------------------------------------------------------------------


def tables(numbers: dict[str, Any]) -> Group:
    return Group(machine_table(numbers), widths_table(numbers["widths"]), rounds_table(numbers["rounds"]), LEGEND)


def machine_table(numbers: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in facts(numbers):
        table.add_row(*row)
    return table


def facts(numbers: dict[str, Any]) -> Iterator[tuple[str, str]]:
    d, k, m = PAPER.values()
    talk = numbers["communication"]
    step, whole = numbers["sync"].values()
    yield "code path", f"{numbers['kernels']} (this CPU can run {', '.join(numbers['available'])})"
    yield "FMA peak", f"{numbers['fma_gigaflops']:.1f} Gflop/s in double precision, one core, measured"
    yield "a sync", f"{step:.2f} µs an observation, or {whole:.2f} µs for many at once, in each layer uploaded"
    yield (
        "many syncs",
        f"a round of async with C=1/M², where {talk['many_syncs_a_pull']:.0%} of pulls sync, takes "
        f"{talk['many_microseconds']:.2f} µs, {talk['ratio']:.2f} times one with C=1",
    )
    yield "memory", f"{numbers['memory']['idle_client']:,.0f} bytes for a client that has not played, d={d}"
    yield "paper's setting", f"d={d}, K={k}, M={m}, T={HORIZON:,}; practical preset; best of several"


def widths_table(rows: list[dict[str, Any]]) -> Table:
    table = plain_table("kernel", "d", "K", "µs", "Gflop/s", "% of peak")
    for row in rows:
        rate = widths_flops(row["dim"], row["n_arms"]) / row["microseconds"] / 1e3
        cells = (f"{row['microseconds']:,.2f}", f"{rate:.1f}", f"{100 * row['share_of_peak']:.0f}")
        table.add_row("widths", str(row["dim"]), str(row["n_arms"]), *cells)
    return uncut(table)


def rounds_table(rows: list[dict[str, Any]]) -> Table:
    """µs a round of the loop; beside it what drawing the contexts takes, and a round of the NumPy LinUCB."""
    table = plain_table("a round of", "d", "K", "µs", "layers", "a layer", "drawing", "NumPy", "times")
    for row in rows:
        table.add_row(
            row["variant"],
            str(row["dim"]),
            str(row["n_arms"]),
            f"{row['microseconds']:.2f}",
            f"{row['layers']:.1f}",
            f"{row['microseconds_a_layer']:.2f}",
            f"{row['microseconds_drawing']:.2f}",
            f"{row['numpy_microseconds']:.1f}",
            f"{row['times_numpy']:.1f}",
        )
    return uncut(table)


def plain_table(what: str, *numbers: str) -> Table:
    """Words on the left, numbers on the right; `uncut` when its rows are there."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column(what, style="bold", overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def uncut(table: Table) -> Table:
    """Where it is narrow, headings and words are folded: a number that is cut is another number."""
    for column in table.columns[1:]:
        column.min_width = max((len(str(cell)) for cell in column.cells), default=0)
    return table


# --- as a page ------------------------------------------------------------------------------------------------------


def load() -> float | None:
    """How many processes want a core, on average over the last minute; None where nobody counts."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def processor() -> str:
    """The model of the CPU, where the system says it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_page(path: Path, numbers: dict[str, Any], *, quick: bool, busy: float | None) -> Path:
    """The tables in Markdown, with what made them."""
    told = {
        "command": f"`fedsuplin bench{' --quick' if quick else ''} --markdown {path.name if path.is_absolute() else path}`",
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": f"fedsuplin {__version__}, Python {platform.python_version()}, NumPy {np.__version__}",
        "machine": f"{processor()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, of which one is measured",
        "load before": "not known" if busy is None else f"{busy:.1f}{crowded(busy)}",
    }
    page = f"""\
# Benchmarks

What `fedsuplin bench` measured, on one core; the best of several, and what is compared is timed side by side. How the engine gets
there is in [The engine and what it costs](speed.md). This page is made by the command below.

{markdown_table(("", ""), told.items())}

## The machine

{markdown_table(("", ""), facts(numbers))}

## Widths and estimates of one layer

{page_table(widths_table(numbers["widths"]))}

## A whole round

{page_table(rounds_table(numbers["rounds"]))}

{LEGEND}
"""
    with whole(path, encoding="utf-8") as file:
        file.write(page)
    return path


def crowded(busy: float) -> str:
    """A warning for the reader, where others were at work."""
    if busy < 0.5 * (os.cpu_count() or 1):
        return ""
    return (
        ". Other processes wanted the cores while this was measured: read ratios, not times, and measure again on a quiet machine"
    )


def page_table(table: Table) -> str:
    heads = [str(column.header) for column in table.columns]
    return markdown_table(heads, zip(*(column.cells for column in table.columns), strict=True), numbers_from=1)
