"""Run many jobs in threads, in worker processes or on a Dask cluster."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any, Protocol

from .._shared.child_processes import end_with_parent, ignore_interrupts
from .._shared.cores import count_cores
from .._shared.extras import import_extra
from ..errors import InvalidInput, unknown

LOCAL_BACKENDS = ("threads", "processes")
DASK = "dask://"
ADDRESS = re.compile(r"(\w+://)?[^\s/]+:\d+/?")  # HOST:PORT, or with the scheduler's protocol
CHOICES = (*LOCAL_BACKENDS, DASK + "HOST:PORT")
CONNECT_TIMEOUT = "5s"


class StopFlag(Protocol):
    """What a job asks whether it should stop: a threading.Event, or something like it."""

    def is_set(self) -> bool:
        """Return True once the backend should stop the job."""
        ...


RunJob = Callable[[Any, StopFlag | None], Any]
"""Runs one job. The flag is None where the backend ends jobs by ending their process."""


class RunStopped(Exception):
    """Raised inside a run to end it, because the study that it belongs to was stopped."""


def raise_if_stopped(stop: StopFlag) -> None:
    """Raise `RunStopped` once the backend's flag is set. Called between the chunks of a run."""
    if stop.is_set():
        raise RunStopped


class Died:
    """The outcome recorded for a job whose worker died."""

    def __init__(self, job: Any, error: BaseException) -> None:
        self.job, self.reason = job, f"{type(error).__name__}: {error}".partition("\n")[0]


def check_backend(backend: str) -> str:
    """Check that a backend exists, or that its Dask address is well formed."""
    if backend in LOCAL_BACKENDS:
        return backend
    if not str(backend).startswith(DASK):
        raise unknown("backend", backend, CHOICES)
    if not ADDRESS.fullmatch(backend.removeprefix(DASK)):
        raise InvalidInput(
            f"{backend!r} is not the address of a Dask scheduler: "
            f"it must be {DASK}HOST:PORT, as in {DASK}10.0.0.5:8786"
        )
    return backend


def run_jobs(
    backend: str, workers: int | None, run_job: RunJob, jobs: Sequence[Any]
) -> Generator[Any, None, None]:
    """Run every job on a backend; yield `run_job(job, stop)` in the order in which they end.

    A job whose worker died yields `Died`. Close the generator to stop the jobs under way.
    """
    if backend.startswith(DASK):
        return run_on_dask(backend.removeprefix(DASK), workers, run_job, jobs)
    run_here = run_in_threads if backend == "threads" else run_in_processes
    return run_here(workers, run_job, jobs)


def is_core_left(backend: str, workers: int | None, n_jobs: int) -> bool:
    """Return whether a backend leaves cores free, so that each run may draw in a second thread.

    A cluster's workers may share their machines with others, so none is counted on there.
    """
    if backend.startswith(DASK):
        return False
    return min(workers or count_cores(), n_jobs) < count_cores()


# --- threads ----------------------------------------------------------------------------------


def run_in_threads(
    workers: int | None, run_job: RunJob, jobs: Sequence[Any]
) -> Generator[Any, None, None]:
    """Run jobs on the backend "threads". An error of a job is raised here and stops the rest."""
    at_a_time, stop, todo = workers or count_cores(), threading.Event(), iter(jobs)
    with ThreadPoolExecutor(at_a_time) as pool:
        try:
            # Not all at once: to wait for one of many thousand futures takes long.
            first = itertools.islice(todo, 2 * at_a_time)
            under_way = [pool.submit(run_job, job, stop) for job in first]
            while under_way:
                ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                in_order = [future for future in under_way if future in ended]
                under_way = [future for future in under_way if future not in ended]
                further = itertools.islice(todo, len(ended))
                under_way += [pool.submit(run_job, job, stop) for job in further]
                for future in in_order:
                    yield future.result()
        finally:
            stop.set()  # without effect where all jobs have ended
            pool.shutdown(cancel_futures=True)


# --- processes --------------------------------------------------------------------------------


class BackendBroke(Exception):
    """Raised when the worker processes failed. The jobs themselves do not raise."""


def run_in_processes(
    workers: int | None, run_job: RunJob, jobs: Sequence[Any]
) -> Generator[Any, None, None]:
    """Run jobs on the backend "processes", in joblib's worker processes.

    A worker that dies takes all others with it, and joblib does not say which job was the cause.
    The jobs that may have been under way are then run again, each alone.
    """
    joblib = import_extra("joblib", "sweep", "the processes backend")
    at_a_time = workers or joblib.cpu_count()
    left = dict(enumerate(jobs))
    suspects = 0
    while left:
        batch = list(itertools.islice(left.items(), 1 if suspects else None))
        try:
            with contextlib.closing(stream_outcomes(joblib, at_a_time, run_job, batch)) as results:
                for number, outcome in results:
                    del left[number]
                    yield outcome
        except BackendBroke as broke:
            if suspects:
                yield Died(left.pop(batch[0][0]), broke.__cause__ or broke)
            else:
                suspects = 1 + 2 * at_a_time  # joblib sends out twice as many as run at a time
        suspects = max(0, suspects - 1)


def stream_outcomes(
    joblib: Any, at_a_time: int, run_job: RunJob, batch: list[tuple[int, Any]]
) -> Generator[tuple[int, Any], None, None]:
    """Yield the outcomes of a backend's jobs one by one: a kill loses only what is under way.

    With one worker joblib would run the jobs in this process, where Ctrl-C ends a job instead of
    the sweep, and a job can end the program. So there are always two workers; with one job at a
    time, one of them waits.
    """
    call = joblib.delayed(functools.partial(run_in_child, os.getpid()))
    pool = joblib.Parallel(
        n_jobs=max(2, at_a_time),
        backend="loky",
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=1 if at_a_time == 1 else "2*n_jobs",
    )
    try:
        with ignore_interrupts():
            results = pool(call(run_job, number, job) for number, job in batch)
        with close_quietly(results):
            for result in results:  # noqa: UP028 (`yield from` would close them before, with noise)
                yield result
    except Exception as error:
        raise BackendBroke from error


def run_in_child(parent: int, run_job: RunJob, number: int, job: Any) -> tuple[int, Any]:
    """Run a numbered job in a worker process of a backend, which ends with its parent."""
    end_with_parent(parent)
    return number, run_job(job, None)


@contextlib.contextmanager
def close_quietly(results: Any) -> Iterator[None]:
    """Close joblib's results when a backend ends, without its warnings about unused ones."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.close()


# --- Dask -------------------------------------------------------------------------------------


def run_on_dask(
    address: str, workers: int | None, run_job: RunJob, jobs: Sequence[Any]
) -> Generator[Any, None, None]:
    """Run jobs on the Dask backend, by the workers of a cluster.

    Not through joblib, whose Dask backend waits for ever for a job whose worker died. Dask gives up
    jobs that happened to be on workers that died; they are run again at the end, each alone.
    """
    distributed = import_extra("distributed", "dask", "the Dask backend")
    suspects = []
    with connect_to_dask(distributed, address) as client:
        for job, future in submit_to_dask(distributed, client, workers, run_job, jobs):
            if was_killed(distributed, future):
                suspects.append(job)
            else:
                yield get_dask_outcome(future, address)
        for job in suspects:
            ((_, future),) = submit_to_dask(distributed, client, workers, run_job, [job])
            yield (
                Died(job, future.exception())
                if was_killed(distributed, future)
                else get_dask_outcome(future, address)
            )


def submit_to_dask(
    distributed: Any, client: Any, workers: int | None, run_job: RunJob, jobs: Sequence[Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield each job of the Dask backend with its future as they end, `workers` at a time."""
    todo = iter(jobs)
    under_way = {
        client.submit(run_on_dask_worker, run_job, job, pure=False): job
        for job in itertools.islice(todo, workers)
    }
    ended = distributed.as_completed(under_way, loop=client.loop)
    for future in ended:
        yield under_way.pop(future), future
        for job in itertools.islice(todo, 1):
            further = client.submit(run_on_dask_worker, run_job, job, pure=False)
            under_way[further] = job
            ended.add(further)


def run_on_dask_worker(run_job: RunJob, job: Any) -> Any:
    """Run a job of the Dask backend on a worker, and stop it when its task was cancelled."""
    from distributed import get_worker

    worker = get_worker()
    return run_job(job, DaskCancellation(worker.state.tasks, worker.get_current_task()))


class DaskCancellation:
    """A stop flag that is set once Dask has cancelled a task, which it can't stop itself."""

    def __init__(self, tasks: Any, key: Any) -> None:
        self._tasks, self._key = tasks, key

    def is_set(self) -> bool:
        """Return True once the task was cancelled on the Dask backend."""
        task = self._tasks.get(self._key)
        return task is None or task.state == "cancelled"


def was_killed(distributed: Any, future: Any) -> bool:
    """Return True if the Dask backend gave up a job because workers died while running it."""
    return future.status == "error" and isinstance(
        future.exception(), distributed.scheduler.KilledWorker
    )


def get_dask_outcome(future: Any, address: str) -> Any:
    """Return what a job on the Dask backend returned, or raise why there is nothing."""
    if future.status == "finished":
        return future.result()
    if future.status == "error":
        why = f"{type(future.exception()).__name__}: {future.exception()}"
        raise InvalidInput(
            f"the Dask workers at {address} could not run a job. "
            f"They need the same fedsuplin and the same plugins. {why}"
        )
    raise InvalidInput(f"the Dask scheduler at {address} is gone. The runs that ended are kept")


@contextlib.contextmanager
def connect_to_dask(distributed: Any, address: str) -> Iterator[Any]:
    """Connect to a Dask scheduler that has workers, and disconnect at the end of the block."""
    try:
        client = distributed.Client(
            address if "://" in address else f"tcp://{address}",
            timeout=CONNECT_TIMEOUT,
            set_as_default=False,
        )
    except Exception as error:  # a server of another kind may send anything
        raise InvalidInput(
            f"no Dask scheduler answers at {address}: {error}. "
            "`dask scheduler` prints the address to give"
        ) from None
    with client:
        if not client.scheduler_info()["workers"]:
            raise InvalidInput(
                f"the Dask cluster at {address} has no workers: "
                f"start some with `dask worker {address}`"
            )
        yield client
