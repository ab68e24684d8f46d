"""Check how many times as long as a round of `async` the two NumPy opponents take.

    python bench/ratios.py                # all eight sizes, a few minutes
    python bench/ratios.py --only 25,20   # one of them

The arms of the engine and of the layered NumPy are compared before anything is timed. Times are CPU
times, the best of interleaved turns. There are bounds for CPUs with AVX-512 and for AVX2.
The exit code is 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import fedsuplin as fsl
from fedsuplin.algorithm.making import make_for
from fedsuplin.microbench.opponents import Opponents
from fedsuplin.microbench.settings import HORIZON, choose_pulls
from fedsuplin.microbench.timing import make_loop_timing, take_best
from fedsuplin_ext import norms

# d, K, M; the bounds against NumPy LinUCB with AVX-512, and with AVX2 where there is one.
SIZES = (
    ((5, 5, 10), 60, None),
    ((8, 8, 4), 50, None),
    ((25, 20, 20), 16, 12),
    ((25, 100, 20), 8, None),
    ((64, 20, 20), 6, None),
    ((64, 50, 20), 5, None),
    ((128, 100, 20), 3.5, 2),
    ((256, 100, 20), 3, None),
)
LAYERED = {"avx512": 25, "avx2": 12}
KERNELS = "avx512" if norms.default() == "avx512" else "avx2"  # whose bounds hold
TURNS = 3
NUMPY_ROUNDS = 4000  # of the LinUCB at the paper's setting
CHECKED = 500  # pulls whose arms are compared


@dataclass
class Ratios:
    """How many times as long as a round of `async` both opponents take, and the bounds."""

    microseconds: tuple[float, float, float]  # of async, NumPy LinUCB, the layered NumPy
    linucb_bound: float  # 0 where there is none
    layered_bound: float

    @property
    def linucb(self):
        """The ratio of the NumPy LinUCB."""
        return self.microseconds[1] / self.microseconds[0]

    @property
    def layered(self):
        """The ratio of the NumPy that does the same job."""
        return self.microseconds[2] / self.microseconds[0]


def measure_ratios(case, turns, numpy):
    """Compare the answers at one of SIZES, then time all three in turns."""
    sizes, wide, narrow = case
    problem = fsl.SyntheticProblem(*sizes, seed=0)
    algorithm = make_for("async", problem, HORIZON, {})
    named = dict(zip(("dim", "n_arms", "n_clients"), sizes, strict=True))
    for opponent in ("numpy-linucb", "numpy-layered"):
        numpy.check(opponent, *sizes, choose_pulls(CHECKED, named))
    pulls, rounds = choose_pulls(HORIZON, named), choose_pulls(NUMPY_ROUNDS, named)
    best = take_best(
        turns,
        make_loop_timing(algorithm, problem, pulls),
        numpy.request_timing("numpy-linucb", *sizes, rounds),
        numpy.request_timing("numpy-layered", *sizes, pulls),
    )
    micros = [1e6 * t / n for t, n in zip(best, (pulls, rounds, pulls), strict=True)]
    bound = wide if KERNELS == "avx512" else narrow
    return Ratios(tuple(micros), bound or 0, LAYERED[KERNELS])


def format_ratios(case, found):
    """Return a line of the table."""
    ours, linucb, layered = found.microseconds
    is_missed = found.linucb < found.linucb_bound or found.layered < found.layered_bound
    return (
        "{:4} {:4} {:4}".format(*case[0])
        + f"{ours:12.2f} {linucb:11.1f} {found.linucb:6.1f} {found.linucb_bound or '-':>6}"
        + f"{layered:13.1f} {found.layered:6.1f} {found.layered_bound:>6}"
        + (" missed" if is_missed else "")
    )


def main():
    """Measure the sizes that are asked for, print ratios and bounds, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="D,K", help="one of the sizes, such as 25,20")
    parser.add_argument("--turns", type=int, default=TURNS)
    asked = parser.parse_args()
    known = {f"{d},{k}": case for case in SIZES for d, k, _ in [case[0]]}
    if asked.only and asked.only not in known:
        parser.error(f"--only must be one of {' '.join(known)}, not {asked.only}")
    print(f"kernels {norms.default()}, bounds of {KERNELS}")
    print("   d    K    M   engine µs   LinUCB µs  ratio  bound   layered µs  ratio  bound")
    missed = 0
    with Opponents() as numpy:
        for case in [known[asked.only]] if asked.only else SIZES:
            line = format_ratios(case, measure_ratios(case, asked.turns, numpy))
            missed += line.endswith("missed")
            print(line, flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
