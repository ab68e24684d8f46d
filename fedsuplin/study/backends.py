"""Where the runs of a sweep take place: threads and processes through joblib, or the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from .._shared.child_processes import end_with_parent, ignore_interrupts
from .._shared.extras import import_extra
from ..errors import InvalidInput, unknown
from ..simulation.result import RunResult

LOCAL_BACKENDS = {"threads": "threading", "processes": "loky"}
DASK = "dask://"
ADDRESS = re.compile(
    r"(\w+://)?[^\s/]+:\d+/?"
)  # HOST:PORT, or with a protocol as a scheduler prints it
CHOICES = (*LOCAL_BACKENDS, DASK + "HOST:PORT")
CONNECT_TIMEOUT = "5s"
RunJob = Callable[[Any], Any]


def check_backend(backend: str) -> str:
    if backend in LOCAL_BACKENDS:
        return backend
    if not str(backend).startswith(DASK):
        raise unknown("backend", backend, CHOICES)
    if not ADDRESS.fullmatch(backend.removeprefix(DASK)):
        raise InvalidInput(
            f"{backend!r} is no address of a Dask scheduler: it must be {DASK}HOST:PORT, as in {DASK}10.0.0.5:8786"
        )
    return backend


def run_jobs(
    backend: str, workers: int | None, one: RunJob, jobs: Sequence[Any]
) -> Generator[Any, None, None]:
    """`one(job)` for every job, in the order in which they end; `Died` for a job that its worker did not survive."""
    if backend.startswith(DASK):
        return run_on_dask(backend.removeprefix(DASK), workers, one, jobs)
    return run_in_processes(LOCAL_BACKENDS[backend], workers, one, jobs)


class Died:
    """The outcome of a job that there is no outcome of, and why."""

    def __init__(self, job: Any, error: BaseException) -> None:
        self.job, self.reason = job, f"{type(error).__name__}: {error}".partition("\n")[0]


ComparisonJob = tuple[str, int]  # which policy, and which of the seeds


class RunStopped(Exception):
    """Ends a run of a comparison that was stopped."""


def raise_if_stopped(stop: threading.Event) -> None:
    if stop.is_set():
        raise RunStopped


def run_in_threads(
    jobs: list[ComparisonJob],
    one: Callable[[str, int], RunResult],
    stop: threading.Event,
    threads: int | None,
    progress: Callable[[int, int, str], None] | None,
) -> tuple[dict[ComparisonJob, RunResult], bool]:
    """Every job's result. Ctrl-C ends the runs under way and keeps those that were finished."""
    done: dict[ComparisonJob, RunResult] = {}
    with ThreadPoolExecutor(threads) as pool:
        waiting: dict[Future[RunResult], ComparisonJob] = {
            pool.submit(one, *job): job for job in jobs
        }
        try:
            while waiting:
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    job = waiting.pop(future)
                    done[job] = future.result()
                    if progress is not None:
                        progress(len(done), len(jobs), job[0])
        except KeyboardInterrupt:
            return done, False
        finally:
            stop.set()  # of no effect where all are done
            pool.shutdown(cancel_futures=True)
    return done, True


def run_in_processes(
    backend: str, workers: int | None, one: RunJob, jobs: Sequence[Any]
) -> Generator[Any, None, None]:
    """A worker process that dies takes all others with it, and nobody says which job it died of: those that may have been
    under way are then done again, each alone."""
    joblib = import_extra("joblib", "sweep", "a sweep")
    at_a_time = workers or joblib.cpu_count()
    left = dict(enumerate(jobs))
    suspects = 0
    while left:
        batch = list(itertools.islice(left.items(), 1 if suspects else None))
        try:
            with contextlib.closing(
                stream_outcomes(joblib, backend, at_a_time, one, batch)
            ) as results:
                for number, outcome in results:
                    del left[number]
                    yield outcome
        except BackendBroke as broke:
            if suspects:
                yield Died(left.pop(batch[0][0]), broke.__cause__ or broke)
            else:
                suspects = 1 + 2 * at_a_time  # joblib sends out twice as many as are done at a time
        suspects = max(0, suspects - 1)


class BackendBroke(Exception):
    """Jobs do not raise: this came from what runs them."""


def stream_outcomes(
    joblib: Any, backend: str, at_a_time: int, one: RunJob, batch: list[tuple[int, Any]]
) -> Generator[tuple[int, Any], None, None]:
    """Outcomes as they come, each by itself, so that a kill loses no more than what is under way.

    With one job at a time joblib would do it here, where Ctrl-C ends a job instead of the sweep and a job can end the
    program: so there are two workers then, of which one waits.
    """
    call = joblib.delayed(
        functools.partial(run_in_child, os.getpid()) if backend == "loky" else run_numbered
    )
    ahead = 1 if at_a_time == 1 else "2*n_jobs"
    pool = joblib.Parallel(
        n_jobs=max(2, at_a_time),
        backend=backend,
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=ahead,
    )
    try:
        with ignore_interrupts() if backend == "loky" else contextlib.nullcontext():
            results = pool(call(one, number, job) for number, job in batch)
        with close_quietly(results):
            for result in results:  # noqa: UP028 (`yield from` would close them before, and not quietly)
                yield result
    except Exception as error:
        raise BackendBroke from error


def run_numbered(one: RunJob, number: int, job: Any) -> tuple[int, Any]:
    return number, one(job)


def run_in_child(parent: int, one: RunJob, number: int, job: Any) -> tuple[int, Any]:
    end_with_parent(parent)
    return run_numbered(one, number, job)


@contextlib.contextmanager
def close_quietly(results: Any) -> Iterator[None]:
    """Ends the workers, without joblib's remarks on results that nobody took."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.close()


def run_on_dask(
    address: str, workers: int | None, one: RunJob, jobs: Sequence[Any]
) -> Generator[Any, None, None]:
    """Without joblib, whose Dask backend waits for ever for a job that its worker died of.

    Dask gives up jobs that happened to be on workers that died; they are done again at the end, each alone.
    """
    distributed = import_extra("distributed", "dask", "the Dask backend")
    suspects = []
    with connect_to_dask(distributed, address) as client:
        for job, future in submit_to_dask(distributed, client, workers, one, jobs):
            if was_killed(distributed, future):
                suspects.append(job)
            else:
                yield get_dask_outcome(future, address)
        for job in suspects:
            ((_, future),) = submit_to_dask(distributed, client, workers, one, [job])
            yield (
                Died(job, future.exception())
                if was_killed(distributed, future)
                else get_dask_outcome(future, address)
            )


def submit_to_dask(
    distributed: Any, client: Any, workers: int | None, one: RunJob, jobs: Sequence[Any]
) -> Iterator[tuple[Any, Any]]:
    """Each job with its future, as they end; no more than `workers` at a time."""
    todo = iter(jobs)
    under_way = {
        client.submit(run_on_dask_worker, one, job, pure=False): job
        for job in itertools.islice(todo, workers)
    }
    ended = distributed.as_completed(under_way, loop=client.loop)
    for future in ended:
        yield under_way.pop(future), future
        for job in itertools.islice(todo, 1):
            further = client.submit(run_on_dask_worker, one, job, pure=False)
            under_way[further] = job
            ended.add(further)


def run_on_dask_worker(one: Callable[..., Any], job: Any) -> Any:
    """A job on a worker of a cluster, which ends it when nobody waits for it any more."""
    from distributed import get_worker

    worker = get_worker()
    return one(job, stop=DaskCancellation(worker.state.tasks, worker.get_current_task()))


class DaskCancellation:
    """Looks like a threading.Event that is set when Dask takes a task back that it can't stop."""

    def __init__(self, tasks: Any, key: Any) -> None:
        self._tasks, self._key = tasks, key

    def is_set(self) -> bool:
        task = self._tasks.get(self._key)
        return task is None or task.state == "cancelled"


def was_killed(distributed: Any, future: Any) -> bool:
    return future.status == "error" and isinstance(
        future.exception(), distributed.scheduler.KilledWorker
    )


def get_dask_outcome(future: Any, address: str) -> Any:
    if future.status == "finished":
        return future.result()
    if future.status == "error":
        why = f"{type(future.exception()).__name__}: {future.exception()}"
        raise InvalidInput(
            f"the Dask workers at {address} can't do it; they need the same fedsuplin and plugins. {why}"
        )
    raise InvalidInput(f"the Dask scheduler at {address} is gone; the runs that ended are kept")


@contextlib.contextmanager
def connect_to_dask(distributed: Any, address: str) -> Iterator[Any]:
    try:
        client = distributed.Client(
            address if "://" in address else f"tcp://{address}",
            timeout=CONNECT_TIMEOUT,
            set_as_default=False,
        )
    except Exception as error:  # whatever is behind the address may send anything
        raise InvalidInput(
            f"no Dask scheduler answers at {address}: {error}. `dask scheduler` prints the address to give"
        ) from None
    with client:
        if not client.scheduler_info()["workers"]:
            raise InvalidInput(
                f"the Dask cluster at {address} has no workers: start some with `dask worker {address}`"
            )
        yield client
