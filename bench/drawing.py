"""Check that drawing with AVX-512 is at least twice as fast as with AVX2, with the same bits.

    python bench/drawing.py

CPU time in turns, the best of each; the bound is for the geometric mean over the sizes. Contexts
are compared before anything is timed. A CPU without AVX-512 prints what it has, and fails no bound.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from fedsuplin.microbench.timing import take_best
from fedsuplin_ext.draws import ContextSource, available

SIZES = ((25, 20), (25, 100), (64, 50), (128, 100))
BOUND, TURNS, NUMBERS = 2.0, 100, 400_000


def make_drawing(name: str, dim: int, n_arms: int):
    """Return a timing of many rounds of contexts, and the contexts of the first."""
    out = np.empty((max(1, NUMBERS // (dim * n_arms)), dim, n_arms))
    source = ContextSource(np.random.SeedSequence(1), dim, n_arms, name)

    def timing() -> float:
        before = time.thread_time()
        source.fill(out)
        return (time.thread_time() - before) / len(out)

    timing()
    return timing, out.copy()


def main() -> int:
    """Print µs per round of each set, and return 1 if the bound is missed."""
    names, ratios = available(), []
    print(f"{'d, K':10}" + "".join(f"{name:>12}" for name in names) + "   µs per round")
    for dim, n_arms in SIZES:
        timings, contexts = zip(*(make_drawing(name, dim, n_arms) for name in names), strict=True)
        for name, found in zip(names, contexts, strict=True):
            if found.tobytes() != contexts[0].tobytes():
                raise SystemExit(f"{name} draws other bits than {names[0]} at {(dim, n_arms)}")
        times = dict(zip(names, take_best(TURNS, *timings), strict=True))
        line = f"{f'{dim}, {n_arms}':10}" + "".join(f"{1e6 * t:12.3f}" for t in times.values())
        if "avx512" in times:
            ratios.append(times["avx2"] / times["avx512"])
            line += f"   {ratios[-1]:.2f} times avx2"
        print(line)
    if not ratios:
        print("this CPU has no AVX-512: there is nothing to compare")
        return 0
    mean = statistics.geometric_mean(ratios)
    print(
        f"{mean:.2f} times avx2 on average; at least {BOUND:g}{'' if mean >= BOUND else ' MISSED'}"
    )
    return int(mean < BOUND)


if __name__ == "__main__":
    sys.exit(main())
