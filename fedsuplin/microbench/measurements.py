"""Measure widths, rounds, peers, communication, syncs and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedsuplin_ext import measure, norms
from fedsuplin_ext.loop import Engine

from ..algorithm.algorithm import Algorithm
from ..algorithm.making import make_for
from ..problems.synthetic import SyntheticProblem
from ..simulation.loop import choose_chunk_size
from ..simulation.preparing import choose_arrival
from ..simulation.result import RunResult
from ..simulation.runner import run
from .opponents import OpponentFailed, Opponents
from .peers import (
    HOW_TO_INSTALL,
    JOBS,
    PEER_ROUNDS,
    PEERS,
    find_version,
    make_peer_problem,
    make_same_job,
)
from .settings import (
    FULL,
    HORIZON,
    IDLE,
    NOISE,
    PAPER,
    SIZES,
    VARIANTS,
    WIDTHS,
    Effort,
    choose_pulls,
)
from .timing import (
    count_width_flops,
    make_kernel_timing,
    make_loop_timing,
    make_peak_timing,
    make_timing,
    measure_peak,
    take_best,
)


def measure_all(
    effort: Effort = FULL,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> dict[str, Any]:
    """Make all measurements of `fedsuplin bench`, and return them as plain data.

    `progress(what, done, total)` is called before each part, and at the end.
    """
    parts = (
        ("widths", measure_widths),
        ("rounds", measure_rounds),
        ("peers", measure_peers),
        ("communication", measure_communication),
        ("sync", measure_sync),
        ("memory", measure_memory),
    )
    numbers: dict[str, Any] = {"kernels": norms.default(), "available": norms.available()}
    numbers["fma_gigaflops"] = measure_peak(0.2) / 1e9
    for done, (name, part) in enumerate(parts):
        progress(name, done, len(parts))
        numbers[name] = part(effort)
    progress("done", len(parts), len(parts))
    return numbers


def measure_widths(effort: Effort) -> list[dict[str, Any]]:
    """Measure the widths and estimates of all arms in one layer, beside the FMA peak."""
    rows = []
    for dim, n_arms in WIDTHS:
        flops = count_width_flops(dim, n_arms)
        turns = max(5, min(effort.kernel_turns, int(effort.kernel_turns * 4e6 / flops)))
        seconds, flop = take_best(
            turns,
            make_kernel_timing(measure.widths, measure.Data(dim, n_arms), flops),
            make_peak_timing(),
        )
        rows.append(
            {
                "dim": dim,
                "n_arms": n_arms,
                "microseconds": 1e6 * seconds,
                "share_of_peak": flops * flop / seconds,
            }
        )
    return rows


def measure_rounds(effort: Effort) -> list[dict[str, Any]]:
    """Measure rounds: of each variant at the paper's setting, then of `async` at other sizes."""
    others = [PAPER | {"dim": dim, "n_arms": n_arms} for dim, n_arms in SIZES]
    cases = [(variant, PAPER) for variant in VARIANTS] + [("async", sizes) for sizes in others]
    with Opponents() as numpy:
        return [measure_round(variant, sizes, numpy, effort) for variant, sizes in cases]


def measure_round(
    variant: str, sizes: dict[str, Any], numpy: Opponents, effort: Effort
) -> dict[str, Any]:
    """Measure the loop, the drawing of contexts, and rounds of the NumPy LinUCB, in turns."""
    problem = SyntheticProblem(**sizes, **NOISE.get(variant, {}), seed=0)
    algorithm = make_for(variant, problem, HORIZON, {})
    pulls, draws, numpy_rounds = (
        choose_pulls(n, sizes) for n in (effort.pulls, effort.pulls // 4, effort.numpy_rounds)
    )
    named = (*sizes.values(), numpy_rounds)
    numpy.check("numpy-linucb", *named)
    timings = [
        make_loop_timing(algorithm, problem, pulls),
        make_timing(lambda: draw_contexts(algorithm, problem, draws)),
        numpy.request_timing("numpy-linucb", *named),
    ]
    if variant == "async":  # of which there is a NumPy twin that plays the same rounds
        numpy.check("numpy-layered", *named)
        timings.append(numpy.request_timing("numpy-layered", *named))
        timings.append(make_loop_timing(algorithm, problem, numpy_rounds))
    loop, draw, other, *same_job = take_best(effort.turns, *timings)
    layers = compute_layers_looked_at(run(algorithm, problem, horizon=pulls))
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
        "layered_microseconds": 1e6 * same_job[0] / numpy_rounds if same_job else None,
        "times_layered": same_job[0] / same_job[1] if same_job else None,
    }


def measure_peers(effort: Effort) -> list[dict[str, Any]]:
    """Measure rounds of a one-layer LinUCB: of `oful`, and of each other library installed."""
    with Opponents() as opponents:
        return [measure_peer(peer, opponents, effort) for peer in PEERS]


def measure_peer(peer: str, opponents: Opponents, effort: Effort) -> dict[str, Any]:
    """Measure a peer beside `oful`; its row has `trouble` in place of numbers if it can't be."""
    dim, n_arms, version = PAPER["dim"], PAPER["n_arms"], find_version(peer)
    row: dict[str, Any] = {"peer": peer, "version": version, "dim": dim, "n_arms": n_arms}
    row |= {"job": JOBS[peer], "microseconds": None, "ours": None, "times": None, "trouble": None}
    if version is None:
        return row | {"trouble": HOW_TO_INSTALL}
    problem, rounds = make_peer_problem(dim, n_arms), min(PEER_ROUNDS, effort.numpy_rounds)
    try:
        opponents.check(peer, dim, n_arms, 1, rounds)
        theirs, loop = take_best(
            effort.turns,
            opponents.request_timing(peer, dim, n_arms, 1, rounds),
            make_loop_timing(make_same_job(problem, HORIZON), problem, effort.pulls),
        )
    except OpponentFailed as error:
        return row | {"trouble": f"failed: {error}"}
    ours = 1e6 * loop / effort.pulls
    row |= {"microseconds": 1e6 * theirs / rounds, "ours": ours}
    return row | {"times": row["microseconds"] / ours}


def compute_layers_looked_at(result: RunResult) -> float:
    """Return the layers per pull that a measured run looked at: 0 to s if it ends in layer s."""
    played = result.layer_pulls
    return float(played @ np.arange(1, len(played) + 1) / played.sum())


def draw_contexts(algorithm: Algorithm, problem: SyntheticProblem, pulls: int) -> None:
    """Draw the contexts that a run would play, to measure how long that takes."""
    stream = problem.stream(pulls, choose_arrival(algorithm, problem, pulls))
    size = choose_chunk_size(algorithm)
    for start in range(0, pulls, size):
        stream.take(min(size, pulls - start))


def measure_communication(effort: Effort) -> dict[str, float]:
    """Measure a round of `async` with C = 1/M² beside one with C = 1.

    With the theorem's 1/M², most pulls communicate.
    """
    problem = SyntheticProblem(**PAPER, seed=0)
    few, many = (
        make_for("async", problem, HORIZON, {"C": C}) for C in (1.0, PAPER["n_clients"] ** -2)
    )
    seconds = take_best(
        effort.turns,
        *(make_loop_timing(algorithm, problem, effort.pulls) for algorithm in (few, many)),
    )
    asked = run(many, problem, horizon=effort.pulls).messages_up[-1].item() / effort.pulls
    few_us, many_us = (1e6 * s / effort.pulls for s in seconds)
    return {
        "few_microseconds": few_us,
        "many_microseconds": many_us,
        "many_syncs_a_pull": asked,
        "ratio": many_us / few_us,
    }


def measure_sync(effort: Effort) -> dict[str, float]:
    """Measure what the server does with one layer of an upload.

    That is a rank-one step for each of few observations, or one factorisation.
    """
    data = measure.Data(PAPER["dim"], PAPER["n_arms"])
    cube = PAPER["dim"] ** 3
    step, whole = take_best(
        effort.kernel_turns,
        make_kernel_timing(measure.rank_one, data, cube / 4),
        make_kernel_timing(measure.factorise, data, cube),
    )
    return {"rank_one_microseconds": 1e6 * step, "factorise_microseconds": 1e6 * whole}


def measure_memory(effort: Effort) -> dict[str, float]:
    """Measure the bytes of the engine's state, and of one more client that has not played yet."""
    paper, few, many = (
        Engine(
            make_for("async", SyntheticProblem(**PAPER | {"n_clients": m}), HORIZON, {})
        ).memory_used
        for m in (PAPER["n_clients"], *IDLE)
    )
    return {"idle_client": (many - few) / (IDLE[1] - IDLE[0]), "start": paper}
