"""Kill runs with SIGKILL at random moments, and check that they resume to the same result.

python bench/checks/kill_points.py                200 kills over the four variants, about a minute
python bench/checks/kill_points.py --points 20    fewer; --seed for others

Each run is a process of its own that writes a checkpoint every few milliseconds, so that kills fall
before, between and within the writes. It is killed after a random time, started again, and so on,
until it has had its kills; then it may end. Prints the runs whose result differs in any bit from
that of a run that was not killed, and fails if there is one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fedsuplin as fsl
from fedsuplin_ext.loop import BY_PULL, COUNTS, SUMS

HORIZON = 20_000
EVERY = 700
KILLS_PER_RUN = 1
NOISE = {
    "async": {},
    "sync": {},
    "variance": {"noise": "bounded"},
    "robust": {"noise": "corrupted", "corruption": 50.0},
}
COMPARED = ("pulls", *SUMS, *COUNTS, *BY_PULL, "client_regret", "client_pulls", "layer_pulls")


def make_problem(variant: str, seed: int) -> fsl.SyntheticProblem:
    """Make the problem of a run."""
    return fsl.SyntheticProblem(6, 7, 5, **NOISE[variant], seed=seed)


def play(variant: str, seed: int, folder: Path | None = None) -> fsl.RunResult:
    """Play a run, with a checkpoint in the folder if there is one."""
    kept = {} if folder is None else {"checkpoint": folder / "run.ckpt", "checkpoint_every": EVERY}
    return fsl.run(variant, make_problem(variant, seed), horizon=HORIZON, record="all", **kept)


def start_process(variant: str, seed: int, folder: Path) -> int:
    """Start a run in a process that saves its result, and return the process id."""
    child = os.fork()
    if child == 0:
        try:
            play(variant, seed, folder).save(folder / "result.npz")
        finally:
            os._exit(0)
    return child


def play_with_kills(
    variant: str, seed: int, kills: int, rng: np.random.Generator, duration: float
) -> fsl.RunResult:
    """Return the result of a run that was killed so many times on the way."""
    with tempfile.TemporaryDirectory() as folder:
        done = 0
        while done < kills:
            child = start_process(variant, seed, Path(folder))
            time.sleep(rng.uniform(0, duration / 2))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                done += 1
            else:  # it ended before the kill: that does not count, and the run starts again
                for file in Path(folder).iterdir():
                    file.unlink()
        os.waitpid(start_process(variant, seed, Path(folder)), 0)
        return fsl.RunResult.load(Path(folder) / "result.npz")


def find_differing(ours: fsl.RunResult, theirs: fsl.RunResult) -> list[str]:
    """Return the names of the arrays that differ."""
    return [
        name for name in COMPARED if not np.array_equal(getattr(ours, name), getattr(theirs, name))
    ]


def main(points: int, seed: int) -> int:
    """Print and return how many of the runs differ."""
    rng, wrong, done = np.random.default_rng(seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:  # how long a run with checkpoints takes here
        began = time.perf_counter()
        play("async", seed, Path(folder))
        duration = time.perf_counter() - began
    number = 0
    while done < points:
        variant, kills = list(NOISE)[number % len(NOISE)], min(KILLS_PER_RUN, points - done)
        different = find_differing(
            play(variant, number), play_with_kills(variant, number, kills, rng, duration)
        )
        if different:
            print(f"{variant}, seed {number}, after {kills} kills: {', '.join(different)} differ")
        number, done, wrong = number + 1, done + kills, wrong + bool(different)
    print(
        f"{done} kills over {number} runs of {', '.join(NOISE)}: "
        f"{number - wrong} results identical, {wrong} different"
    )
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(bool(main(**vars(parser.parse_args()))))
