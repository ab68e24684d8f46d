"""The function run: play one algorithm on one problem."""

from __future__ import annotations

import os
from typing import Any

from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import Doubling
from ..contracts.problem import Problem
from ..contracts.variant import Variant
from ..errors import FedsuplinError, InvalidInput
from .checkpoint import CheckpointKeeper, identify_run, resume_run
from .epochs import run_epochs
from .interruptions import warn_of_interruption
from .loop import Progress, choose_chunk_size, play_stream
from .phases import begin_phases
from .preparing import (
    check_no_parameters,
    choose_arrival,
    choose_length,
    make_engine,
    prepare_algorithm,
)
from .recorder import Recorder
from .result import RunResult


def run(
    algorithm: str | Variant | Algorithm | Doubling,
    problem: Problem,
    *,
    horizon: int | None = None,
    record: str | int = "log",
    progress: Progress | None = None,
    chunk: int | None = None,
    kernels: str | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    prefetch: bool | None = None,
    **parameters: Any,
) -> RunResult:
    """Play an algorithm on a problem.

    Ctrl-C ends the run with a warning and a result of what was recorded so far; its ``complete``
    is False.

    Parameters
    ----------
    algorithm : str, Variant, Algorithm or Doubling
        What to play: the name of a variant (``"async"``), names joined by ``+``, a
        :class:`Variant`, or what :func:`make` returns. A :class:`Doubling`, which is for unknown
        horizons, starts afresh in each of its epochs; what is recorded continues across them.
    problem : Problem
        What to play it on.
    horizon : int, optional
        The number of pulls. Defaults to the problem's, or else the algorithm's.
    record : {"log", "all"} or int, default "log"
        Which pulls to record: about 400 that are log-spaced, all of them, or every n-th.
    progress : callable, optional
        Called between chunks as ``progress(done, total)``, in pulls.
    chunk : int, optional
        The number of pulls that are drawn and played at once. Results do not depend on it.
    kernels : str, optional
        The instruction set of the compiled kernels, such as ``"generic"``. Defaults to the best
        that this machine has.
    checkpoint : str or os.PathLike, optional
        A file to keep the run in. It is written every minute, at the end and on Ctrl-C. If it
        exists, the run resumes from it, and its result is bit for bit that of a run which never
        stopped.
    checkpoint_every : int, optional
        Write the checkpoint whenever this many pulls were played, instead of every minute.
    prefetch : bool, optional
        Whether a second thread draws the next chunk while this one is played. By default it does
        if this process may use more than one core. Results are the same. A stream of a plugin
        is drawn ahead only if it allows it with ``may_prefetch``.
    **parameters : object
        Further keywords of :func:`make`, if the algorithm is a name or a variant. With the
        practical preset ``noise_scale``, ``R`` and ``corruption`` default to the problem's.

    Returns
    -------
    RunResult
        Regret, rewards and communication at the recorded pulls, and what is needed to rebuild
        the run.

    Raises
    ------
    InvalidInput
        If algorithm and problem do not fit together, or an argument can't be used.
    PluginError
        If a plugin fails. Like every error during a run, it has a ``result`` with what was
        recorded until then.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0)
    >>> fsl.run("async", problem, horizon=2000).complete
    True
    """
    if checkpoint is None and checkpoint_every is not None:
        raise InvalidInput("checkpoint_every= needs checkpoint=, the file to keep the run in")
    if prefetch is not None and not isinstance(prefetch, bool):
        raise InvalidInput(f"prefetch must be True, False or None, not {prefetch!r}")
    if isinstance(algorithm, Doubling):
        if checkpoint is not None:
            raise InvalidInput(
                "a run of unknown horizon is not kept in a checkpoint: "
                "give run an algorithm with a horizon"
            )
        check_no_parameters(parameters)
        length = choose_length(algorithm, problem, horizon)
        return run_epochs(
            algorithm,
            problem,
            length,
            record=record,
            progress=progress,
            chunk=chunk,
            kernels=kernels,
            prefetch=prefetch,
        )
    algorithm, length = prepare_algorithm(algorithm, problem, horizon, parameters)
    stream = problem.stream(length, choose_arrival(algorithm, problem, length))
    engine = make_engine(algorithm, problem, stream.budget, kernels)
    phases = begin_phases(algorithm, problem, engine)
    recorder = Recorder(engine, algorithm, record, length)
    size = choose_chunk_size(algorithm, chunk)
    keeper = None
    if checkpoint is not None:
        identity = identify_run(recorder, problem, record)
        keeper = CheckpointKeeper(checkpoint, checkpoint_every, identity)
        resume_run(keeper, recorder, stream, phases, size)
    recorder.start_clocks()
    complete = True
    try:
        play_stream(recorder, stream, size, progress, phases, keeper, prefetch)
    except KeyboardInterrupt:
        complete = False
        warn_of_interruption(stacklevel=2)
    except FedsuplinError as error:
        error.result = recorder.build_result(problem, complete=False)
        raise
    return recorder.build_result(problem, complete)
