"""Where the runs of a sweep take place: threads and processes through joblib, or the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from .errors import InvalidInput, unknown
from .extras import imported

BACKENDS = {"threads": "threading", "processes": "loky"}
DASK = "dask://"
ADDRESS = re.compile(r"(\w+://)?[^\s/]+:\d+/?")  # HOST:PORT, or with a protocol as a scheduler prints it
CHOICES = (*BACKENDS, DASK + "HOST:PORT")
CONNECT = "5s"
PARENT_SECONDS = 0.5  # how long a worker process may outlive a sweep that was killed

One = Callable[[Any], Any]


def check_engine(engine: str) -> str:
    if engine in BACKENDS:
        return engine
    if not str(engine).startswith(DASK):
        raise unknown("engine", engine, CHOICES)
    if not ADDRESS.fullmatch(engine.removeprefix(DASK)):
        raise InvalidInput(f"{engine!r} is no address of a Dask scheduler: it must be {DASK}HOST:PORT, as in {DASK}10.0.0.5:8786")
    return engine


def outcomes(engine: str, workers: int | None, one: One, jobs: Sequence[Any]) -> Generator[Any, None, None]:
    """`one(job)` for every job, in the order in which they end; `Died` for a job that its worker did not survive."""
    if engine.startswith(DASK):
        return on_dask(engine.removeprefix(DASK), workers, one, jobs)
    return on_this_machine(BACKENDS[engine], workers, one, jobs)


class Died:
    """The outcome of a job that there is no outcome of, and why."""

    def __init__(self, job: Any, error: BaseException) -> None:
        self.job, self.reason = job, f"{type(error).__name__}: {error}".partition("\n")[0]


# --- threads and processes ------------------------------------------------------------------------------------------------


def on_this_machine(backend: str, workers: int | None, one: One, jobs: Sequence[Any]) -> Generator[Any, None, None]:
    """A worker process that dies takes all others with it, and nobody says which job it died of: those that may have been
    under way are then done again, each alone."""
    joblib = imported("joblib", "sweep", "a sweep")
    at_a_time = workers or joblib.cpu_count()
    left = dict(enumerate(jobs))
    suspects = 0
    while left:
        batch = list(itertools.islice(left.items(), 1 if suspects else None))
        try:
            with contextlib.closing(streamed(joblib, backend, at_a_time, one, batch)) as results:
                for number, outcome in results:
                    del left[number]
                    yield outcome
        except EngineBroke as broke:
            if suspects:
                yield Died(left.pop(batch[0][0]), broke.__cause__ or broke)
            else:
                suspects = 1 + 2 * at_a_time  # joblib sends out twice as many as are done at a time
        suspects = max(0, suspects - 1)


class EngineBroke(Exception):
    """Jobs do not raise: this came from what runs them."""


def streamed(
    joblib: Any, backend: str, at_a_time: int, one: One, batch: list[tuple[int, Any]]
) -> Generator[tuple[int, Any], None, None]:
    """Outcomes as they come, each by itself, so that a kill loses no more than what is under way.

    With one job at a time joblib would do it here, where Ctrl-C ends a job instead of the sweep and a job can end the
    program: so there are two workers then, of which one waits.
    """
    call = joblib.delayed(functools.partial(in_process, os.getpid()) if backend == "loky" else numbered)
    ahead = 1 if at_a_time == 1 else "2*n_jobs"
    pool = joblib.Parallel(
        n_jobs=max(2, at_a_time), backend=backend, return_as="generator_unordered", batch_size=1, pre_dispatch=ahead
    )
    try:
        with deaf_to_interrupts() if backend == "loky" else contextlib.nullcontext():
            results = pool(call(one, number, job) for number, job in batch)
        with closed_quietly(results):
            for result in results:  # noqa: UP028 (`yield from` would close them before, and not quietly)
                yield result
    except Exception as error:
        raise EngineBroke from error


def numbered(one: One, number: int, job: Any) -> tuple[int, Any]:
    return number, one(job)


def in_process(parent: int, one: One, number: int, job: Any) -> tuple[int, Any]:
    settle(parent)
    return numbered(one, number, job)


@functools.cache
def settle(parent: int) -> None:
    """Makes a worker process one that leaves Ctrl-C to its sweep, and ends when that was killed: it would run for nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes started in here are deaf to Ctrl-C from the start, which a terminal sends to them too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def closed_quietly(results: Any) -> Iterator[None]:
    """Ends the workers, without joblib's remarks on results that nobody took."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.close()


# --- Dask -----------------------------------------------------------------------------------------------------------------


def on_dask(address: str, workers: int | None, one: One, jobs: Sequence[Any]) -> Generator[Any, None, None]:
    """Without joblib, whose Dask backend waits for ever for a job that its worker died of.

    Dask gives up jobs that happened to be on workers that died; they are done again at the end, each alone.
    """
    distributed = imported("distributed", "dask", f"--engine {DASK}…")
    suspects = []
    with connected(distributed, address) as client:
        for job, future in in_any_order(distributed, client, workers, one, jobs):
            if was_killed(distributed, future):
                suspects.append(job)
            else:
                yield outcome_of(future, address)
        for job in suspects:
            ((_, future),) = in_any_order(distributed, client, workers, one, [job])
            yield Died(job, future.exception()) if was_killed(distributed, future) else outcome_of(future, address)


def in_any_order(distributed: Any, client: Any, workers: int | None, one: One, jobs: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Each job with its future, as they end; no more than `workers` at a time."""
    todo = iter(jobs)
    under_way = {client.submit(on_worker, one, job, pure=False): job for job in itertools.islice(todo, workers)}
    ended = distributed.as_completed(under_way, loop=client.loop)
    for future in ended:
        yield under_way.pop(future), future
        for job in itertools.islice(todo, 1):
            further = client.submit(on_worker, one, job, pure=False)
            under_way[further] = job
            ended.add(further)


def on_worker(one: Callable[..., Any], job: Any) -> Any:
    """A job on a worker of a cluster, which ends it when nobody waits for it any more."""
    from distributed import get_worker

    worker = get_worker()
    return one(job, stop=NobodyWaits(worker.state.tasks, worker.get_current_task()))


class NobodyWaits:
    """Looks like a threading.Event that is set when Dask takes a task back that it can't stop."""

    def __init__(self, tasks: Any, key: Any) -> None:
        self._tasks, self._key = tasks, key

    def is_set(self) -> bool:
        task = self._tasks.get(self._key)
        return task is None or task.state == "cancelled"


def was_killed(distributed: Any, future: Any) -> bool:
    return future.status == "error" and isinstance(future.exception(), distributed.scheduler.KilledWorker)


def outcome_of(future: Any, address: str) -> Any:
    if future.status == "finished":
        return future.result()
    if future.status == "error":
        why = f"{type(future.exception()).__name__}: {future.exception()}"
        raise InvalidInput(f"the Dask workers at {address} can't do it; they need the same fedsuplin and plugins. {why}")
    raise InvalidInput(f"the Dask scheduler at {address} is gone; the runs that ended are kept")


@contextlib.contextmanager
def connected(distributed: Any, address: str) -> Iterator[Any]:
    try:
        client = distributed.Client(address if "://" in address else f"tcp://{address}", timeout=CONNECT, set_as_default=False)
    except Exception as error:  # whatever is behind the address may send anything
        raise InvalidInput(
            f"no Dask scheduler answers at {address}: {error}. `dask scheduler` prints the address to give"
        ) from None
    with client:
        if not client.scheduler_info()["workers"]:
            raise InvalidInput(f"the Dask cluster at {address} has no workers: start some with `dask worker {address}`")
        yield client
