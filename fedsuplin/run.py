"""One run: chunks in, RunResult out. The compiled loop takes the chunks; Python runs between them."""

from __future__ import annotations

import os
import platform
import reprlib
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from fedsuplin_ext import norms
from fedsuplin_ext.loop import Engine
from fedsuplin_ext.state import restore, state_of

from .algorithm import AXES, Algorithm, Variant, composed, keywords_of, make
from .arrays import AnyArray, Counts, Floats
from .checkpoint import Keeper
from .doubling import Doubling
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
        raise InvalidInput("every= is for checkpoint=, a file to keep the run in, or for a trigger that takes it")
    if isinstance(algorithm, Doubling):
        if checkpoint is not None:
            raise InvalidInput("a run of unknown horizon is not kept in a checkpoint: give run an algorithm with a horizon")
        from .epochs import run_epochs

        if parameters:
            raise InvalidInput(f"the algorithm is already made, so give {', '.join(parameters)} to make")
        length = length_of(algorithm, problem, horizon)
        return run_epochs(algorithm, problem, length, record=record, progress=progress, chunk=chunk, kernels=kernels)
    algorithm, length = prepared(algorithm, problem, horizon, parameters)
    stream = problem.stream(length, arrival_for(algorithm, problem, length))
    engine = Engine(algorithm, budget=stream.budget, kernels=kernels, key=decision_key(problem))
    phases = Phases(algorithm, problem, engine) if algorithm.kernel == "phased" else None
    recorder = Recorder(engine, algorithm, record, length)
    size = chunk_size(algorithm, chunk)
    keeper = None
    if checkpoint is not None:
        keeper = Keeper(checkpoint, every, identity(recorder, problem, record))
        resumed(keeper, recorder, stream, phases, size)
    recorder.began = time.perf_counter()
    complete = True
    try:
        play_all(recorder, stream, size, progress, phases, keeper)
    except KeyboardInterrupt:
        complete = False
        warnings.warn("interrupted: the result holds what was recorded until now", InterruptedRun, stacklevel=2)
    except FedsuplinError as error:
        error.result = recorder.result(problem, complete=False)
        raise
    return recorder.result(problem, complete)


def takes_every(algorithm: str | Variant | Algorithm | Doubling, parameters: dict[str, Any]) -> bool:
    """Has the algorithm, which is still to be made, a part with a parameter of that name?"""
    if isinstance(algorithm, Algorithm | Doubling):
        return False
    return "every" in keywords_of(composed(algorithm, {axis: parameters.get(axis) for axis in AXES})[1])


def prepared(
    algorithm: str | Variant | Algorithm, problem: Any, horizon: int | None, parameters: dict[str, Any]
) -> tuple[Algorithm, int]:
    """The algorithm and the number of pulls, checked against each other before anything runs."""
    length = length_of(algorithm, problem, horizon)
    if isinstance(algorithm, Doubling):
        raise InvalidInput("this needs one algorithm, and a Doubling has one for each epoch: give doubling.algorithm(epoch)")
    if isinstance(algorithm, Algorithm):
        if parameters:
            raise InvalidInput(
                f"the algorithm is already made, so {', '.join(parameters)} can't be given to run: give it to make"
            )
    else:
        algorithm = make_for(algorithm, problem, length, parameters)
    if algorithm.horizon < length:
        raise InvalidInput(f"the algorithm was made for a horizon of {algorithm.horizon} pulls, but the run has {length}")
    check_together(algorithm, problem)
    return algorithm, length


def check_together(algorithm: Algorithm, problem: Any) -> None:
    """Are they of the same sizes, and has the problem what the policy needs?"""
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


def length_of(algorithm: Any, problem: Any, horizon: int | None) -> int:
    """How many pulls to play: as was said, else as the problem has, else as the algorithm was made for."""
    check_problem(problem)
    given = None if horizon is None else positive_integer("horizon", horizon)
    length = given or problem.horizon or (algorithm.horizon if isinstance(algorithm, Algorithm) else None)
    if length is None:
        raise InvalidInput("neither the algorithm nor the problem says how many pulls to play: give horizon=")
    if problem.horizon is not None and length > problem.horizon:
        raise InvalidInput(f"horizon={length} is longer than the problem, which has {problem.horizon} pulls")
    return length


def check_problem(problem: Any, or_else: str = "") -> None:
    """The names of problems are for the command line: here it is an object, or what else the caller takes."""
    needed = ("dim", "n_arms", "n_clients", "horizon", "stream")
    if isinstance(problem, type) or not all(hasattr(problem, name) for name in needed):
        raise InvalidInput(
            f"the problem must be a Problem, such as fsl.SyntheticProblem(dim=25, n_arms=20, n_clients=20){or_else}, "
            f"not {reprlib.repr(problem)}"
        )


def make_for(variant: str | Variant, problem: Any, horizon: int, parameters: dict[str, Any]) -> Algorithm:
    """The algorithm for this problem. The practical preset believes what the problem says of its noise, theory does not."""
    sizes = {"dim": problem.dim, "n_arms": problem.n_arms, "n_clients": problem.n_clients}
    told = {}
    if parameters.get("preset", "practical") == "practical":
        parts = {axis: parameters.get(axis) for axis in AXES}
        takes = keywords_of(composed(variant, parts)[1])
        told = {name: getattr(problem, name, None) for name in ("noise_scale", "R", "corruption") if name in takes}
    given = {name: value for name, value in told.items() if value is not None}
    return make(variant, **(sizes | given | parameters), horizon=horizon)


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


def decision_key(problem: Any, epoch: int = 0) -> int:
    """Of the random number that a policy is given each pull: from the problem's seed, and independent of what that draws."""
    which = (DECISIONS, epoch) if epoch else (DECISIONS,)
    return int(np.random.SeedSequence(problem.seed or 0, spawn_key=which).generate_state(1, np.uint64)[0])


def chunk_size(algorithm: Algorithm, given: int | None = None) -> int:
    if given is not None:
        return positive_integer("chunk", given)
    lanes = norms.pad(algorithm.n_arms)
    by_memory = CHUNK_BYTES / (8 * algorithm.dim * lanes)
    by_time = CHUNK_FLOPS / (algorithm.dim**2 * (lanes + 20) * algorithm.n_layers)
    return max(1, int(min(by_memory, by_time, 1 << 16)))


def play_all(
    recorder: Recorder, stream: Any, size: int, progress: Progress | None, phases: Phases | None, keeper: Keeper | None
) -> None:
    with Interruptions(deferred=keeper is not None) as interruptions:
        while recorder.played < recorder.length:
            room = recorder.length - recorder.played if keeper is None else keeper.room(recorder.played)
            chunk = taken(stream, min(size, recorder.length - recorder.played, room or size), recorder)
            before = time.perf_counter()
            play_chunk(recorder, chunk, phases)
            recorder.loop_time += time.perf_counter() - before
            if keeper is not None and (interruptions.any or keeper.due(recorder.played) or recorder.played == recorder.length):
                keep(keeper, recorder, stream, phases)
            if interruptions.any:
                raise KeyboardInterrupt
            if progress is not None:
                progress(recorder.pull, recorder.total)


def play_chunk(recorder: Recorder, chunk: Any, phases: Phases | None) -> None:
    """A chunk to its end; between two phases of a policy that has them, the next one is worked out."""
    engine, start, n, status = recorder.engine, recorder.played, 0, ""
    while status != "done":
        try:
            status, n = engine.play(chunk, n)
        except ValueError as error:  # its arrays do not fit together
            raise InvalidInput(f"{error}, for the chunk from pull {recorder.first + start} on") from error
        recorder.played = start + n
        if status == "phase over" and phases is not None:
            phases.advance(recorder.pull)
        elif status != "done":
            raise failure(engine, status, recorder.pull, int(chunk.clients[n]))


class Phases:
    """The phases of a policy that has them. What each ended with is kept: played again, it brings the policy to where it is."""

    def __init__(self, algorithm: Algorithm, problem: Any, engine: Engine) -> None:
        self._engine, self._policy = engine, algorithm.policy.begin(algorithm, problem)
        self.ended: list[dict[str, AnyArray]] = []
        engine.begin_phase(self._policy.plan, self._policy.idle, self._policy.together)

    def advance(self, played: int) -> None:
        """What the policy makes of the phase that is over, for the clients for whom it is."""
        engine = self._engine
        left, counts, sums = self._tallies()
        over = np.flatnonzero(left == 0)
        self.ended.append({"clients": over, "counts": counts[over], "sums": sums[over]})
        try:
            traffic = self._policy.advance(over, counts, sums)
            engine.begin_phase(self._policy.plan, self._policy.idle, self._policy.together, clients=over, traffic=traffic)
        except FedsuplinError:
            raise
        except Exception as error:
            where = f"after pull {played - 1}"
            raise PluginError(f"{type(self._policy).__qualname__} raised {type(error).__name__}: {error}, {where}") from error

    def _tallies(self) -> tuple[Counts, Counts, Floats]:
        """Of this phase, by client: the pulls left, and by arm too, the pulls and their summed rewards."""
        left, counts, sums = self._engine.left, self._engine.counts, self._engine.reward_sums
        assert left is not None and counts is not None and sums is not None  # since the first phase began
        return left, counts, sums

    def again(self, ended: list[dict[str, AnyArray]]) -> None:
        """The phases of an earlier part of this run; a policy looks at the rows of those clients only for whom it is over."""
        shape = self._tallies()[1].shape
        for phase in ended:
            counts, sums = np.zeros(shape, np.int64), np.zeros(shape)
            counts[phase["clients"]], sums[phase["clients"]] = phase["counts"], phase["sums"]
            self._policy.advance(phase["clients"], counts, sums)
        self.ended = list(ended)


def taken(stream: Any, n: int, recorder: Recorder) -> Any:
    """The next n pulls. A problem, an arrival or a noise model may be anybody's: whatever it raises ends the run, not more."""
    try:
        chunk = stream.take(n)
    except FedsuplinError:
        raise
    except Exception as error:
        where = f"pulls {recorder.pull} to {recorder.pull + n - 1}"
        raise PluginError(f"{type(stream).__qualname__} raised {type(error).__name__}: {error}, for {where}") from error
    if not stream.checked:
        check_chunk(chunk, n, recorder.pull, recorder.algorithm.n_arms)
    return chunk


# --- checkpoints -------------------------------------------------------------------------------------------------------


def identity(recorder: Recorder, problem: Any, record: str | int) -> dict[str, Any]:
    """What makes this run this run, and another's checkpoint no use to it."""
    return {
        "algorithm": recorder.algorithm.spec,
        "problem": problem.spec,
        "data": problem.fingerprint() if hasattr(problem, "fingerprint") else None,
        "horizon": recorder.length,
        "record": record,
        "kernels": recorder.engine.kernels,  # others round differently
    }


def keep(keeper: Keeper, recorder: Recorder, stream: Any, phases: Phases | None) -> None:
    """Everything that the rest of the run depends on, and what has been recorded so far."""
    arrays = {**state_of(recorder.engine), **recorder.recorded()}
    rest = {
        "position": stream.position() if hasattr(stream, "position") else None,
        "phases": None if phases is None else phases.ended,
        "loop_time": recorder.loop_time,
        "wall_time": recorder.wall_time,
    }
    keeper.write(recorder.played, arrays, rest)


def resumed(keeper: Keeper, recorder: Recorder, stream: Any, phases: Phases | None, size: int) -> None:
    """Bring a run that has not begun to where its checkpoint is, if there is one."""
    found = keeper.load()
    if found is None:
        return
    arrays, rest = found
    try:
        if phases is not None:
            phases.again(rest["phases"])
        restore(recorder.engine, arrays)
        recorder.resume(arrays)
        keeper.resumed(recorder.played)
        recorder.loop_time, recorder.earlier = float(rest["loop_time"]), float(rest["wall_time"])
        if rest["position"] is not None:
            stream.resume(rest["position"])
            return
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidInput(f"{keeper.path} does not fit this run: {error}; it was left as it is") from error
    for start in range(0, recorder.played, size):  # a stream that can't jump is played again, without the players
        stream.take(min(size, recorder.played - start))


class Interruptions:
    """Ctrl-C during a run that is kept waits for the end of the chunk, so that what is kept is whole. A second one does not."""

    def __init__(self, deferred: bool) -> None:
        self.any = False
        self._deferred = deferred and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interruptions:
        if self._deferred:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._deferred:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: Any) -> None:
        if self.any:
            raise KeyboardInterrupt
        self.any = True


# --- what can go wrong ---------------------------------------------------------------------------------------------------


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
            f"a Gram matrix is no longer positive definite, or hardly, in double precision, {where}; "
            "a larger ridge or weights in a smaller range help"
        )
    if status == "not finite":
        return NumericalError(
            f"rewards, their sums or estimates are no longer finite, {where}: "
            "rewards or weights are too large for double precision"
        )
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


def noticed(algorithm: Algorithm, problem: Any) -> dict[str, Any]:
    """What somebody who reads the result should know, where there is such a thing."""
    overstated = algorithm.overstated(problem)
    return {} if overstated is None else {"notices": [overstated]}


class Recorder:
    """The arrays that the engine writes into, and from them the RunResult."""

    def __init__(
        self, engine: Engine, algorithm: Algorithm, record: str | int, length: int, *, first: int = 0, total: int | None = None
    ) -> None:
        """For `length` pulls, those from `first` on of a run that has `total` in all."""
        self.engine, self.algorithm, self.length, self.played = engine, algorithm, length, 0
        self.first, self.total = first, total or length
        self.loop_time, self.earlier, self.began = 0.0, 0.0, time.perf_counter()
        at = recorded_pulls(record, self.total)
        self.at = at[(at > first) & (at <= first + length)] - first
        self.sums = np.zeros((len(self.at), len(SUMS)))
        self.counts = np.zeros((len(self.at), len(COUNTS)), np.int64)
        self.by_pull = np.zeros((length, len(BY_PULL)), np.int32) if record == "all" else None
        engine.record_into(self.at, self.sums, self.counts, self.by_pull)

    @property
    def pull(self) -> int:
        """Where the whole run is."""
        return self.first + self.played

    @property
    def wall_time(self) -> float:
        return self.earlier + time.perf_counter() - self.began

    def result(self, problem: Any, complete: bool) -> RunResult:
        engine, algorithm = self.engine, self.algorithm
        pulls, sums, counts = self._rows()
        n = int(engine.client_pulls.sum())
        by_pull: dict[str, Any] = (
            {} if self.by_pull is None else {name: self.by_pull[:n, i].copy() for i, name in enumerate(BY_PULL)}
        )
        curves: dict[str, Any] = {name: sums[:, i].copy() for i, name in enumerate(SUMS)}
        curves |= {name: counts[:, i].copy() for i, name in enumerate(COUNTS)}
        states: dict[str, Any] = {f"{axis}_state": rule.state for axis, rule in engine.rules.items()}
        return RunResult(
            pulls=pulls,
            **curves,
            **by_pull,
            **states,
            client_regret=engine.client_regret,
            client_pulls=engine.client_pulls,
            layer_pulls=engine.layer_pulls,
            drift=engine.drift,
            loop_time=self.loop_time,
            wall_time=self.wall_time,
            complete=complete,
            departures=tuple(algorithm.departures(problem)),
            seed=problem.seed,
            spec={"algorithm": algorithm.spec, "problem": problem.spec, "horizon": self.length} | noticed(algorithm, problem),
            versions=software(engine.kernels),
        )

    def recorded(self) -> dict[str, AnyArray]:
        """For a checkpoint: the rows so far."""
        rows = self.engine.recorded
        by_pull = {} if self.by_pull is None else {"recorded_by_pull": self.by_pull[: self.played]}
        return {"recorded_sums": self.sums[:rows], "recorded_counts": self.counts[:rows], **by_pull}

    def resume(self, arrays: dict[str, AnyArray]) -> None:
        rows = self.engine.recorded
        self.played = int(arrays["totals"][0])
        if not 0 <= self.played <= self.length or rows > len(self.at):
            raise ValueError(f"it is at pull {self.played} of {self.length}, with {rows} rows of {len(self.at)}")
        self.sums[:rows], self.counts[:rows] = arrays["recorded_sums"], arrays["recorded_counts"]
        if not np.isfinite(self.sums).all():
            raise ValueError("its recorded_sums must be finite")
        if self.by_pull is not None:
            self.by_pull[: self.played] = arrays["recorded_by_pull"]

    def _rows(self) -> tuple[Counts, Floats, Counts]:
        """The rows recorded so far; a run that was stopped between two of them gets one more, for where it stopped."""
        rows, now = self.engine.recorded, self.engine.totals_now
        pulls, sums, counts = self.at[:rows], self.sums[:rows], self.counts[:rows]
        if now["pulls"] > (pulls[-1] if rows else 0):
            pulls = np.append(pulls, now["pulls"])
            sums = np.vstack([sums, [now[name] for name in SUMS]])
            counts = np.vstack([counts, [now[name] for name in COUNTS]])
        return pulls, sums, counts


def software(kernels: str) -> dict[str, str]:
    """What a result was computed with."""
    return {
        "fedsuplin": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "kernels": kernels,
    }


def recorded_pulls(record: str | int, length: int) -> Counts:
    """After which pulls a row is recorded; the last one always is."""
    if record == "all":
        return np.arange(1, length + 1)
    if record == "log":
        return np.unique(np.geomspace(1, length, LOG_POINTS).round().astype(np.int64))
    if isinstance(record, str):
        raise InvalidInput(f'record must be "log", "all" or a whole number n for every n-th pull, not {record!r}')
    every = positive_integer("record", record)
    return np.unique(np.append(np.arange(every, length + 1, every), length))
