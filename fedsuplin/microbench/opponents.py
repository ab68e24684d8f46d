"""What rounds are compared with: NumPy and other libraries, checked and timed in their own process.

Their BLAS has one thread there: one core against one core. With two threads OpenBLAS takes several
times as long for matrices of this size when the other core is busy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ..algorithm.making import make_for
from ..errors import FedsuplinError, MissingExtra
from ..problems.synthetic import SyntheticProblem
from .numpy_layered import check_layered_arms, time_layered_rounds
from .numpy_linucb import check_linucb_arms, time_numpy_rounds
from .peers import HOW_TO_INSTALL, PEER_ROUNDS, PEERS, check_peer, find_version, time_peer_rounds
from .settings import HORIZON
from .timing import Timing

NUMPY = {"numpy-linucb": time_numpy_rounds, "numpy-layered": time_layered_rounds}
OPPONENTS = (*NUMPY, *PEERS)
THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def check_opponent(name: str, dim: int, n_arms: int, n_clients: int, n: int) -> None:
    """Check that an opponent chooses the arms of the engine that does the same job, n times."""
    if name == "numpy-layered":
        problem = SyntheticProblem(dim, n_arms, n_clients, seed=0)
        check_layered_arms(make_for("async", problem, HORIZON, {}), problem, n)
    elif name == "numpy-linucb":
        check_linucb_arms(dim, n_arms, n)
    else:
        check_peer(name, dim, n_arms, n)


def time_opponent(name: str, dim: int, n_arms: int, n_clients: int, n: int) -> float:
    """Return the CPU seconds of n rounds of an opponent."""
    if name in NUMPY:
        return NUMPY[name](dim, n_arms, n_clients, n)
    return time_peer_rounds(name, dim, n_arms, n)


def limit_rounds(name: str, n: int) -> int:
    """Return how many rounds of an opponent to time, at most n: peers are slow."""
    return min(n, PEER_ROUNDS) if name in PEERS else n


ACTIONS: dict[str, Callable[..., Any]] = {"check": check_opponent, "time": time_opponent}


def answer_requests() -> None:
    """Work in the process of the opponents: read an action, a name and sizes; print a JSON line."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a peer prints is no answer
    for line in sys.stdin:
        action, name, *sizes = line.split()
        answer: dict[str, Any] = {}
        try:
            answer["seconds"] = ACTIONS[action](name, *map(int, sizes))
        except Exception as error:
            answer["trouble"] = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=answers, flush=True)


class OpponentFailed(FedsuplinError):
    """An opponent raised an error, or its answers are wrong."""


class Opponents:
    """The process in which opponents are checked and timed."""

    def __enter__(self) -> Opponents:
        code = f"from {__name__} import {answer_requests.__name__} as answer; answer()"
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-c", code],
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, "1"),
            stdin=pipe,
            stdout=pipe,
            text=True,
            start_new_session=True,
        )
        return self

    def _request(self, *words: str | int) -> Any:
        """Send a request, and return the answer's seconds."""
        assert self._process.stdout is not None  # it is a pipe
        print(*words, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"trouble": "its process ended"}
        if "trouble" in answer:
            raise OpponentFailed(f"{words[1]}: {answer['trouble']}")
        return answer["seconds"]

    def check(self, name: str, *sizes: int) -> None:
        """Check an opponent's answers; sizes are d, K, M and the rounds."""
        if name in PEERS and find_version(name) is None:
            raise MissingExtra(f"{name} is {HOW_TO_INSTALL}")
        self._request("check", name, *sizes)

    def request_timing(self, name: str, *sizes: int) -> Timing:
        """Return a timing of an opponent; sizes are d, K, M and the rounds."""
        return lambda: float(self._request("time", name, *sizes))

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # the end of its input ends it
