"""Play one algorithm on one problem."""

from __future__ import annotations

import os
import time
import warnings
from typing import Any

from fedsuplin_ext.loop import Engine

from ..algorithm.algorithm import Algorithm
from ..algorithm.composing import compose_recipe, list_keywords
from ..algorithm.doubling import Doubling
from ..contracts.variant import AXES, Variant
from ..errors import FedsuplinError, InterruptedRun, InvalidInput
from .checkpoint import CheckpointKeeper, identify_run, resume_run
from .loop import Progress, choose_chunk_size, play_stream
from .phases import PhaseRunner
from .preparing import choose_arrival, choose_length, derive_decision_key, prepare_algorithm
from .recorder import Recorder
from .result import RunResult


def run(
    algorithm: str | Variant | Algorithm | Doubling,
    problem: Any,
    *,
    horizon: int | None = None,
    record: str | int = "log",
    progress: Progress | None = None,
    chunk: int | None = None,
    kernels: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int | None = None,
    **parameters: Any,
) -> RunResult:
    """Play an algorithm, or a variant by name, on a problem.

    `record` is "log" (about 400 log-spaced pulls, the default), "all", or a number n for every n-th pull. `progress(done,
    total)` is called between chunks. Further keywords go to `make` when the algorithm is a name; with the practical preset
    what the problem says of its noise (noise_scale, R, corruption) is the default there. Ctrl-C ends the run with what was
    recorded so far (`complete` is False). With `checkpoint`, a file, the run is kept in it after `every` so many pulls (or,
    unless given, every minute), at its end and on Ctrl-C; where the file is there, the run goes on from it, and its result is
    to the bit that of a run which never stopped. A Doubling, which `make` gives where the horizon is unknown, begins anew in
    each of its epochs, and what is recorded goes on across them.

    >>> import fedsuplin as fsl
    >>> problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0)
    >>> fsl.run("async", problem, horizon=2000).complete
    True
    """
    if every is not None and takes_every(algorithm, parameters):
        if checkpoint is not None:
            raise InvalidInput(
                f"every={every} could be the checkpoint's or the {parameters.get('trigger') or algorithm} trigger's: "
                "give the trigger's to make, and run what it made"
            )
        parameters["every"] = every
    elif every is not None and checkpoint is None:
        raise InvalidInput(
            "every= is for checkpoint=, a file to keep the run in, or for a trigger that takes it"
        )
    if isinstance(algorithm, Doubling):
        if checkpoint is not None:
            raise InvalidInput(
                "a run of unknown horizon is not kept in a checkpoint: give run an algorithm with a horizon"
            )
        from .epochs import run_epochs

        if parameters:
            raise InvalidInput(
                f"the algorithm is already made, so give {', '.join(parameters)} to make"
            )
        length = choose_length(algorithm, problem, horizon)
        return run_epochs(
            algorithm,
            problem,
            length,
            record=record,
            progress=progress,
            chunk=chunk,
            kernels=kernels,
        )
    algorithm, length = prepare_algorithm(algorithm, problem, horizon, parameters)
    stream = problem.stream(length, choose_arrival(algorithm, problem, length))
    engine = Engine(
        algorithm, budget=stream.budget, kernels=kernels, key=derive_decision_key(problem)
    )
    phases = PhaseRunner(algorithm, problem, engine) if algorithm.kernel == "phased" else None
    recorder = Recorder(engine, algorithm, record, length)
    size = choose_chunk_size(algorithm, chunk)
    keeper = None
    if checkpoint is not None:
        keeper = CheckpointKeeper(checkpoint, every, identify_run(recorder, problem, record))
        resume_run(keeper, recorder, stream, phases, size)
    recorder.began = time.perf_counter()
    complete = True
    try:
        play_stream(recorder, stream, size, progress, phases, keeper)
    except KeyboardInterrupt:
        complete = False
        warnings.warn(
            "interrupted: the result holds what was recorded until now",
            InterruptedRun,
            stacklevel=2,
        )
    except FedsuplinError as error:
        error.result = recorder.result(problem, complete=False)
        raise
    return recorder.result(problem, complete)


def takes_every(
    algorithm: str | Variant | Algorithm | Doubling, parameters: dict[str, Any]
) -> bool:
    """Has the algorithm, which is still to be made, a part with a parameter of that name?"""
    if isinstance(algorithm, Algorithm | Doubling):
        return False
    return "every" in list_keywords(
        compose_recipe(algorithm, {axis: parameters.get(axis) for axis in AXES})[1]
    )
