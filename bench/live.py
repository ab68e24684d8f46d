"""Time a live client against NumPy: `select` against a LinUCB, `apply` against LAPACK.

python bench/live.py               both, about a minute; the exit status is 1 if a bound fails
python bench/live.py --turns 5     fewer turns
python bench/live.py --only apply  one of the two

CPU time in turns, BLAS with one thread, the best of all turns. `select` is that of `async`, with
its checks, its layers and the decision that it remembers. It is compared with one layer of LinUCB
in NumPy, which checks and remembers nothing. Both have learnt the same rounds before. `apply` takes
a download of all layers, with its checks. It is compared with potrf and potri of as many matrices,
whichever triangle is faster. What both return is compared before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its BLAS

import numpy as np  # noqa: E402
from scipy.linalg import lapack  # noqa: E402

import fedsuplin as fsl  # noqa: E402
from fedsuplin.live.messages import Download  # noqa: E402
from fedsuplin.microbench.numpy_linucb import FixedRadius, NumpyLinUCB  # noqa: E402
from fedsuplin.microbench.timing import take_best  # noqa: E402

SELECT_SIZES = ((5, 5), (8, 8), (25, 20), (25, 100), (64, 20))
SELECT_BOUNDS = {(25, 20): 1.0}  # `select` takes at most so many times as long as NumPy's
APPLY_SIZES = (25, 64, 128)
APPLY_BOUND = 1.4  # `apply` takes at most so many times as long as potrf and potri
ROUNDS, LEARNT = 200, 3000  # contexts that are decided in a turn; rounds that are learnt before


def make_cpu_timing(call: Callable[[], Any], repeats: int) -> Callable[[], float]:
    """Return a timing of a call in CPU seconds."""

    def timing() -> float:
        before = time.process_time()
        for _ in range(repeats):
            call()
        return (time.process_time() - before) / repeats

    return timing


def draw_contexts(rng: np.random.Generator, n: int, n_arms: int, dim: int) -> np.ndarray:
    """Return random contexts of length 1."""
    x = rng.standard_normal((n, n_arms, dim))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def learn(client: Any, server: Any, player: Any, rows: np.ndarray, theta: np.ndarray) -> None:
    """Let a live client and the NumPy LinUCB learn the same rounds, each from its own arms."""
    rng = np.random.default_rng(1)
    for t in range(LEARNT):
        x, noise = rows[t % len(rows)], 0.1 * rng.standard_normal()
        decision = client.select(x)
        client.observe(decision, float(x[decision.arm] @ theta) + noise)
        if client.wants_sync:
            client.apply(server.merge(client.upload()))
        arm = player.select(x)
        player.update(x[arm], float(x[arm] @ theta) + noise)


def check_select(dim: int, n_arms: int) -> None:
    """Check that a live `oful` with the same radius chooses the arms of the NumPy LinUCB."""
    rng = np.random.default_rng(2)
    rows, theta = draw_contexts(rng, 100, n_arms, dim), draw_contexts(rng, 1, 1, dim)[0, 0]
    rows *= rng.uniform(0.5, 1.0, (100, n_arms, 1))  # of one length, all arms would tie at first
    algorithm = fsl.make(
        "oful", dim=dim, n_arms=n_arms, n_clients=1, horizon=1000, ridge=1.0, noise=FixedRadius()
    )
    client, player = fsl.Client(algorithm), NumpyLinUCB(dim, n_arms, 1.0, FixedRadius().radius)
    for x in rows:
        decision, arm = client.select(x), player.select(x)
        if decision.arm != arm:
            raise SystemExit(f"at {(dim, n_arms)} the client chose {decision.arm}, NumPy {arm}")
        client.observe(decision, float(x[arm] @ theta))
        player.update(x[arm], float(x[arm] @ theta))


def time_select(dim: int, n_arms: int, turns: int) -> list[float]:
    """Return the CPU seconds of one live `select`, and of NumPy's."""
    rng = np.random.default_rng(0)
    rows, theta = draw_contexts(rng, ROUNDS, n_arms, dim), draw_contexts(rng, 1, 1, dim)[0, 0]
    algorithm = fsl.make("async", dim=dim, n_arms=n_arms, n_clients=2, horizon=100_000)
    client, server = fsl.Client(algorithm), fsl.Server(algorithm)
    player = NumpyLinUCB(dim, n_arms, 1.0, 0.5)
    learn(client, server, player, rows, theta)

    def select_live() -> None:
        for x in rows:
            client.drop(client.select(x))  # a decision that stays open would cost memory

    def select_numpy() -> None:
        for x in rows:
            player.select(x)

    timings = (make_cpu_timing(call, 2) for call in (select_live, select_numpy))
    return [seconds / ROUNDS for seconds in take_best(turns, *timings)]


def make_download(algorithm: Any) -> tuple[list[np.ndarray], Download]:
    """Return a positive definite matrix for each layer, and the download that holds them."""
    rng, dim = np.random.default_rng(0), algorithm.dim
    factors = rng.standard_normal((algorithm.n_layers, dim, dim)) / np.sqrt(dim)
    grams = np.eye(dim) + factors @ factors.transpose(0, 2, 1)
    rows, columns = np.triu_indices(dim)
    moments = rng.standard_normal((algorithm.n_layers, dim))
    packed = np.ascontiguousarray(grams[:, rows, columns])
    download = Download(np.arange(algorithm.n_layers), packed, moments)
    return [np.asfortranarray(gram) for gram in grams], download


def invert_by_lapack(gram: np.ndarray, lower: int) -> np.ndarray:
    """Return the inverse of a matrix, in one triangle."""
    factor, info = lapack.dpotrf(gram, lower=lower, clean=0)
    inverse, info_of_inverse = lapack.dpotri(factor, lower=lower, overwrite_c=1)
    assert info == info_of_inverse == 0
    return inverse


def time_apply(dim: int, turns: int) -> list[float]:
    """Return the CPU seconds of `apply` with all layers, and of LAPACK for as many matrices."""
    algorithm = fsl.make("async", dim=dim, n_arms=5, n_clients=2, horizon=100_000)
    client = fsl.Client(algorithm)
    grams, download = make_download(algorithm)
    client.apply(download)
    for layer, gram in enumerate(grams):
        expected = np.triu(invert_by_lapack(gram, 0))
        found = np.triu(client.layer(layer)["inverse"])
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)

    def invert_all(lower: int) -> None:
        for gram in grams:
            invert_by_lapack(gram, lower)

    calls = (lambda: client.apply(download), lambda: invert_all(0), lambda: invert_all(1))
    repeats = max(1, int(3e6 / dim**3))
    ours, *theirs = take_best(turns, *(make_cpu_timing(call, repeats) for call in calls))
    return [ours, min(theirs)]


def report(what: str, ours: float, theirs: float, bound: float | None) -> bool:
    """Print one row, and return whether its bound holds."""
    ratio = ours / theirs
    holds = bound is None or ratio <= bound
    verdict = "" if bound is None else f"at most {bound:g}: {'yes' if holds else 'NO'}"
    print(f"{what:24}{1e6 * ours:10.1f} µs{1e6 * theirs:10.1f} µs{ratio:8.2f}   {verdict}")
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--only", choices=("select", "apply"))
    options = parser.parse_args()
    held = []
    if options.only != "apply":
        print(f"{'select (d, K)':24}{'live':>13}{'NumPy':>13}{'ratio':>8}")
        for size in SELECT_SIZES:
            check_select(*size)
            bound = SELECT_BOUNDS.get(size)
            held.append(report(str(size), *time_select(*size, options.turns), bound))
    if options.only != "select":
        print(f"{'apply (d), all layers':24}{'live':>13}{'LAPACK':>13}{'ratio':>8}")
        for dim in APPLY_SIZES:
            held.append(report(str(dim), *time_apply(dim, options.turns), APPLY_BOUND))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
