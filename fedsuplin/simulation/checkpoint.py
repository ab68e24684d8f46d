"""When and what a run writes so that it can resume, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsuplin_ext.state import restore, state_of

from .._shared.archives import read_archive, write_archive
from .._shared.arrays import AnyArray
from .._shared.checks import check_positive_integer
from .._shared.differences import find_differences, keep_shortest_names
from .._shared.plain_data import encode_for_json
from .._shared.version import __version__
from ..errors import InvalidInput
from .phases import PhaseRunner
from .recorder import Recorder

SECONDS_BETWEEN = 60.0  # between checkpoints, where nobody says how many pulls


class CheckpointKeeper:
    """Decides when a run is written to its file, and does it."""

    def __init__(
        self, path: str | os.PathLike[str], every: int | None, identity: Mapping[str, Any]
    ) -> None:
        self.path, self._every = (
            Path(path),
            None if every is None else check_positive_integer("every", every),
        )
        self._identity = json.loads(
            json.dumps({"fedsuplin": __version__, **identity}, default=encode_for_json)
        )
        self._last, self._written_at = time.monotonic(), 0
        if not self.path.parent.is_dir():
            raise InvalidInput(f"checkpoint={str(path)!r}: there is no folder {self.path.parent}")

    def load(self) -> tuple[dict[str, AnyArray], dict[str, Any]] | None:
        """What is in the file, if it is there, and of this very run."""
        if not self.path.exists():
            return None
        arrays, rest = read_archive(self.path)
        told = keep_shortest_names(find_differences(rest["identity"], self._identity))
        if told:
            raise InvalidInput(
                f"{self.path} is of another run: {'; '.join(told[:3])}. It was left as it is: give another name, or remove it"
            )
        return arrays, rest

    def resumed(self, played: int) -> None:
        """The file holds the run up to there."""
        self._written_at = played

    def room(self, played: int) -> int | None:
        """How many pulls until the next checkpoint; None if the clock decides."""
        return None if self._every is None else self._every - played % self._every

    def due(self, played: int) -> bool:
        if self._every is not None:
            return played % self._every == 0
        return time.monotonic() - self._last >= SECONDS_BETWEEN

    def write(self, played: int, arrays: Mapping[str, AnyArray], rest: Mapping[str, Any]) -> None:
        if played == self._written_at:
            return
        write_archive(self.path, arrays, {"identity": self._identity, **rest})
        self._last, self._written_at = time.monotonic(), played


def identify_run(recorder: Recorder, problem: Any, record: str | int) -> dict[str, Any]:
    """What makes this run this run, and another's checkpoint no use to it."""
    return {
        "algorithm": recorder.algorithm.spec,
        "problem": problem.spec,
        "data": problem.fingerprint() if hasattr(problem, "fingerprint") else None,
        "horizon": recorder.length,
        "record": record,
        "kernels": recorder.engine.kernels,  # others round differently
    }


def save_checkpoint(
    keeper: CheckpointKeeper, recorder: Recorder, stream: Any, phases: PhaseRunner | None
) -> None:
    """Everything that the rest of the run depends on, and what has been recorded so far."""
    arrays = {**state_of(recorder.engine), **recorder.recorded()}
    rest = {
        "position": stream.position() if hasattr(stream, "position") else None,
        "phases": None if phases is None else phases.ended,
        "loop_time": recorder.loop_time,
        "wall_time": recorder.wall_time,
    }
    keeper.write(recorder.played, arrays, rest)


def resume_run(
    keeper: CheckpointKeeper, recorder: Recorder, stream: Any, phases: PhaseRunner | None, size: int
) -> None:
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
        raise InvalidInput(
            f"{keeper.path} does not fit this run: {error}; it was left as it is"
        ) from error
    for start in range(
        0, recorder.played, size
    ):  # a stream that can't jump is played again, without the players
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
