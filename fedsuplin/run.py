"""One run: chunks in, RunResult out. The compiled loop takes the chunks; Python runs between them."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from fedsuplin_ext import norms
from fedsuplin_ext.loop import Engine

from .algorithm import AXES, Algorithm, Variant, composed, keywords_of, make
from .errors import FedsuplinError, InterruptedRun, InvalidInput, NumericalError, PluginError
from .problem import arrival_of, check_chunk
from .result import BY_PULL, COUNTS, SUMS, RunResult
from .setting import positive_integer
from .version import __version__

CHUNK_BYTES = 4 << 20  # of contexts: small enough to stay in the cache, large enough that Python between chunks is not seen
CHUNK_FLOPS = 2e8  # a chunk takes well under a second on any CPU, so that Ctrl-C is answered
LOG_POINTS = 400
DECISIONS = 1000  # which of a seed's streams decisions have; a problem counts its own from 0

BLAME = {"bad weight": "weighting", "bad trigger": "trigger", "bad choice": "policy"}

Progress = Callable[[int, int], None]


def run(
    algorithm: str | Variant | Algorithm,
    problem: Any,
    *,
    horizon: int | None = None,
    record: str | int = "log",
    progress: Progress | None = None,
    chunk: int | None = None,
    kernels: str | None = None,
    **parameters: Any,
) -> RunResult:
    """Play an algorithm, or a variant by name, on a problem.

    `record` is "log" (about 400 log-spaced pulls, the default), "all", or a number n for every n-th pull. `progress(done,
    total)` is called between chunks. Further keywords go to `make` when the algorithm is a name; with the practical preset
    what the problem says of its noise (noise_scale, R, corruption) is the default there. Ctrl-C ends the run with what was
    recorded so far (`complete` is False).

    >>> import fedsuplin as fsl
    >>> problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0)
    >>> fsl.run("async", problem, horizon=2000).complete
    True
    """
    algorithm, length = prepared(algorithm, problem, horizon, parameters)
    stream = problem.stream(length, arrival_for(algorithm, problem, length))
    engine = Engine(algorithm, budget=stream.budget, kernels=kernels, key=decision_key(problem))
    phases = begun(algorithm, problem, engine) if algorithm.kernel == "phased" else None
    recorder = Recorder(engine, algorithm, record, length)
    size = positive_integer("chunk", chunk) if chunk is not None else chunk_size(algorithm)
    began = time.perf_counter()
    complete = True
    try:
        play_all(recorder, stream, size, progress, phases)
    except KeyboardInterrupt:
        complete = False
        warnings.warn("interrupted: the result holds what was recorded until now", InterruptedRun, stacklevel=2)
    except FedsuplinError as error:
        error.result = recorder.result(problem, time.perf_counter() - began, complete=False)
        raise
    return recorder.result(problem, time.perf_counter() - began, complete)


def prepared(algorithm: str | Variant | Algorithm, problem: Any, horizon: int | None, parameters: dict) -> tuple[Algorithm, int]:
    """The algorithm and the number of pulls, checked against each other before anything runs."""
    given = None if horizon is None else positive_integer("horizon", horizon)
    length = given or problem.horizon or (algorithm.horizon if isinstance(algorithm, Algorithm) else None)
    if length is None:
        raise InvalidInput("neither the algorithm nor the problem says how many pulls to play: give horizon=")
    if problem.horizon is not None and length > problem.horizon:
        raise InvalidInput(f"horizon={length} is longer than the problem, which has {problem.horizon} pulls")
    if isinstance(algorithm, Algorithm):
        if parameters:
            raise InvalidInput(
                f"the algorithm is already made, so {', '.join(parameters)} can't be given to run: give it to make"
            )
    else:
        algorithm = make_for(algorithm, problem, length, parameters)
    if algorithm.horizon < length:
        raise InvalidInput(f"the algorithm was made for a horizon of {algorithm.horizon} pulls, but the run has {length}")
    for name in ("dim", "n_arms", "n_clients"):
        if getattr(algorithm, name) != getattr(problem, name):
            raise InvalidInput(
                f"{name} is {getattr(algorithm, name)} in the algorithm and {getattr(problem, name)} in the problem"
            )
    if algorithm.kernel == "phased" and getattr(problem, "fixed_arms", None) is None:
        raise InvalidInput(
            f"{algorithm.name} needs fixed arms: each client must have the same contexts in every round. "
            f"{type(problem).__name__} does not promise that; FixedArmsProblem (--problem fixed-arms) does"
        )
    return algorithm, length


def make_for(variant: str | Variant, problem: Any, horizon: int, parameters: dict) -> Algorithm:
    """The algorithm for this problem. The practical preset believes what the problem says of its noise, theory does not."""
    sizes = {"dim": problem.dim, "n_arms": problem.n_arms, "n_clients": problem.n_clients, "horizon": horizon}
    told = {}
    if parameters.get("preset", "practical") == "practical":
        parts = {axis: parameters.get(axis) for axis in AXES}
        takes = keywords_of(composed(variant, parts)[1])
        told = {name: getattr(problem, name, None) for name in ("noise_scale", "R", "corruption") if name in takes}
    return make(variant, **(sizes | {name: value for name, value in told.items() if value is not None} | parameters))


def arrival_for(algorithm: Algorithm, problem: Any, length: int) -> Any:
    """The arrival pattern of this run; policies that sync all clients need whole rounds."""
    if algorithm.syncs != "all":
        return problem.arrival
    if length % algorithm.n_clients:
        raise InvalidInput(
            f"this policy syncs all clients, so the horizon must be divisible by n_clients: "
            f"{length} is not by {algorithm.n_clients}"
        )
    if hasattr(problem, "check_rounds"):
        problem.check_rounds(length)
        return None
    arrival = problem.arrival or arrival_of("round-robin")
    if not getattr(arrival, "in_rounds", False):
        raise InvalidInput(
            f"this policy syncs all clients, so they must come in rounds: arrival must be 'round-robin', not {arrival}"
        )
    return arrival


def decision_key(problem: Any) -> int:
    """Of the random number that a policy is given each pull: from the problem's seed, and independent of what that draws."""
    return int(np.random.SeedSequence(problem.seed or 0, spawn_key=(DECISIONS,)).generate_state(1, np.uint64)[0])


def chunk_size(algorithm: Algorithm) -> int:
    lanes = norms.pad(algorithm.n_arms)
    by_memory = CHUNK_BYTES / (8 * algorithm.dim * lanes)
    by_time = CHUNK_FLOPS / (algorithm.dim**2 * (lanes + 20) * algorithm.n_layers)
    return max(1, int(min(by_memory, by_time, 1 << 16)))


def play_all(recorder: Recorder, stream: Any, size: int, progress: Progress | None, phases: Any) -> None:
    while recorder.played < recorder.length:
        chunk = taken(stream, min(size, recorder.length - recorder.played), recorder)
        before = time.perf_counter()
        play_chunk(recorder, chunk, phases)
        recorder.loop_time += time.perf_counter() - before
        if progress is not None:
            progress(recorder.played, recorder.length)


def play_chunk(recorder: Recorder, chunk: Any, phases: Any) -> None:
    """A chunk to its end; between two phases of a policy that has them, the next one is worked out."""
    engine, start, n, status = recorder.engine, recorder.played, 0, ""
    while status != "done":
        try:
            status, n = engine.play(chunk, n)
        except ValueError as error:  # its arrays do not fit together
            raise InvalidInput(f"{error}, for the chunk from pull {start} on") from error
        recorder.played = start + n
        if status == "phase over":
            next_phase(recorder, phases)
        elif status != "done":
            raise failure(engine, status, recorder.played, int(chunk.clients[n]))


def next_phase(recorder: Recorder, phases: Any) -> None:
    """What the policy makes of the phase that is over, for the clients for whom it is."""
    engine = recorder.engine
    over = np.flatnonzero(engine.left == 0)
    try:
        traffic = phases.advance(over, engine.counts, engine.reward_sums)
        engine.begin_phase(phases.plan, phases.idle, phases.together, clients=over, traffic=traffic)
    except FedsuplinError:
        raise
    except Exception as error:
        where = f"after pull {recorder.played - 1}"
        raise PluginError(f"{type(phases).__qualname__} raised {type(error).__name__}: {error}, {where}") from error


def begun(algorithm: Algorithm, problem: Any, engine: Engine) -> Any:
    """The phases of a policy that has them, and the first one set up in the engine."""
    phases = algorithm.policy.begin(algorithm, problem)
    engine.begin_phase(phases.plan, phases.idle, phases.together)
    return phases


def taken(stream: Any, n: int, recorder: Recorder) -> Any:
    """The next n pulls. A problem, an arrival or a noise model may be anybody's: whatever it raises ends the run, not more."""
    try:
        chunk = stream.take(n)
    except FedsuplinError:
        raise
    except Exception as error:
        where = f"pulls {recorder.played} to {recorder.played + n - 1}"
        raise PluginError(f"{type(stream).__qualname__} raised {type(error).__name__}: {error}, for {where}") from error
    if not stream.checked:
        check_chunk(chunk, n, recorder.played, recorder.algorithm.n_arms)
    return chunk


def failure(engine: Engine, status: str, pull: int, client: int) -> BaseException:
    """The exception for a loop that could not go on."""
    where = f"at pull {pull} (client {client})"
    if status in BLAME:
        rule = engine.rules[BLAME[status]]
        if isinstance(rule.error, KeyboardInterrupt):
            return rule.error
        error: FedsuplinError = PluginError(f"{rule.name} {fault(engine, rule)}, {where}")
        error.__cause__ = rule.error
        return error
    if status == "not positive definite":
        return NumericalError(
            f"a Gram matrix is no longer positive definite in double precision, {where}; "
            "a larger ridge or weights in a smaller range help"
        )
    if status == "not finite":
        return NumericalError(f"estimates are no longer finite, {where}: rewards or weights are too large for double precision")
    if status == "bad client":
        return InvalidInput(f"client {client} is out of range, {where}")
    return InvalidInput(f"this policy syncs all clients, so each must come once a round; client {client} came twice, {where}")


def fault(engine: Engine, rule: Any) -> str:
    """What a plugin's rule did that the loop can't go on with."""
    if rule.error is not None:
        return f"raised {type(rule.error).__name__}: {rule.error}"
    if rule.axis == "policy":
        return f"chose {engine.chosen}, which is not layer·K + arm for an arm that is there"
    return "returned a weight that is negative or not finite" if rule.axis == "weighting" else "returned a number below 0"


class Recorder:
    """The arrays that the engine writes into, and from them the RunResult."""

    def __init__(self, engine: Engine, algorithm: Algorithm, record: str | int, length: int) -> None:
        self.engine, self.algorithm, self.length, self.played, self.loop_time = engine, algorithm, length, 0, 0.0
        self.at = recorded_pulls(record, length)
        self.sums = np.zeros((len(self.at), len(SUMS)))
        self.counts = np.zeros((len(self.at), len(COUNTS)), np.int64)
        self.by_pull = np.zeros((length, len(BY_PULL)), np.int32) if record == "all" else None
        engine.record_into(self.at, self.sums, self.counts, self.by_pull)

    def result(self, problem: Any, wall_time: float, complete: bool) -> RunResult:
        engine, algorithm = self.engine, self.algorithm
        pulls, sums, counts = self._rows()
        n = int(engine.client_pulls.sum())
        by_pull = {} if self.by_pull is None else {name: self.by_pull[:n, i].copy() for i, name in enumerate(BY_PULL)}
        return RunResult(
            pulls=pulls,
            **{name: sums[:, i].copy() for i, name in enumerate(SUMS)},
            **{name: counts[:, i].copy() for i, name in enumerate(COUNTS)},
            **by_pull,
            **{f"{axis}_state": rule.state for axis, rule in engine.rules.items()},
            client_regret=engine.client_regret,
            client_pulls=engine.client_pulls,
            layer_pulls=engine.layer_pulls,
            loop_time=self.loop_time,
            wall_time=wall_time,
            complete=complete,
            departures=tuple(algorithm.departures(problem)),
            seed=problem.seed,
            spec={"algorithm": algorithm.spec, "problem": problem.spec, "horizon": self.length},
            versions={
                "fedsuplin": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                "scipy": scipy.__version__,
                "kernels": engine.kernels,
            },
        )

    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows recorded so far; a run that was stopped between two of them gets one more, for where it stopped."""
        rows, now = self.engine.recorded, self.engine.totals_now
        pulls, sums, counts = self.at[:rows], self.sums[:rows], self.counts[:rows]
        if now["pulls"] > (pulls[-1] if rows else 0):
            pulls = np.append(pulls, now["pulls"])
            sums = np.vstack([sums, [now[name] for name in SUMS]])
            counts = np.vstack([counts, [now[name] for name in COUNTS]])
        return pulls, sums, counts


def recorded_pulls(record: str | int, length: int) -> np.ndarray:
    """After which pulls a row is recorded; the last one always is."""
    if record == "all":
        return np.arange(1, length + 1)
    if record == "log":
        return np.unique(np.geomspace(1, length, LOG_POINTS).round().astype(np.int64))
    if isinstance(record, str):
        raise InvalidInput(f'record must be "log", "all" or a whole number n for every n-th pull, not {record!r}')
    every = positive_integer("record", record)
    return np.unique(np.append(np.arange(every, length + 1, every), length))
