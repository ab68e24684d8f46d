"""Checkpoints of a run: when one is written, what it holds, and how a run resumes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsuplin_ext.state import restore, state_of

from .._shared.archives import read_archive, write_archive
from .._shared.array_types import AnyArray
from .._shared.checks import check_positive_integer
from .._shared.differences import find_differences, keep_shortest_names
from .._shared.plain_data import convert_to_plain_data
from .._shared.version import __version__
from ..contracts.problem import Problem
from ..contracts.stream import Stream
from ..errors import InvalidInput
from .phases import PhaseRunner
from .recorder import Recorder

SECONDS_BETWEEN = 60.0  # between checkpoints, unless the number of pulls is given


class CheckpointKeeper:
    """Decide when a run is written to its checkpoint file, and write and read that file."""

    def __init__(
        self, path: str | os.PathLike[str], every: int | None, identity: Mapping[str, Any]
    ) -> None:
        self.path = Path(path)
        self._every = None if every is None else check_positive_integer("checkpoint_every", every)
        self._identity = convert_to_plain_data({"fedsuplin": __version__, **identity})
        self._last, self._written_at = time.monotonic(), 0
        if not self.path.parent.is_dir():
            raise InvalidInput(f"checkpoint={str(path)!r}: there is no folder {self.path.parent}")

    def load(self) -> tuple[dict[str, AnyArray], dict[str, Any]] | None:
        """Read the file, after checking that it belongs to this run; None if there is no file."""
        if not self.path.exists():
            return None
        arrays, rest = read_archive(self.path)
        differences = keep_shortest_names(find_differences(rest["identity"], self._identity))
        if differences:
            raise InvalidInput(
                f"{self.path} is the checkpoint of another run: {'; '.join(differences[:3])}. "
                "The file was not changed: choose another name, or remove it"
            )
        return arrays, rest

    def mark_resumed(self, played: int) -> None:
        """Note that the file already holds the run up to this pull."""
        self._written_at = played

    def count_pulls_left(self, played: int) -> int | None:
        """Return how many pulls remain until the next checkpoint; None if the clock decides."""
        return None if self._every is None else self._every - played % self._every

    def is_due(self, played: int) -> bool:
        """Return whether a checkpoint should be written after this many pulls."""
        if self._every is not None:
            return played % self._every == 0
        return time.monotonic() - self._last >= SECONDS_BETWEEN

    def write(self, played: int, arrays: Mapping[str, AnyArray], rest: Mapping[str, Any]) -> None:
        """Write the file, unless it already holds the run up to this pull."""
        if played == self._written_at:
            return
        write_archive(self.path, arrays, {"identity": self._identity, **rest})
        self._last, self._written_at = time.monotonic(), played


def identify_run(recorder: Recorder, problem: Problem, record: str | int) -> dict[str, Any]:
    """Collect what a checkpoint must share with a run; one that differs in any of it is refused."""
    return {
        "algorithm": recorder.algorithm.spec,
        "problem": problem.spec,
        "data": problem.fingerprint() if hasattr(problem, "fingerprint") else None,
        "horizon": recorder.length,
        "record": record,
        "kernels": recorder.engine.kernels,  # others round differently
    }


def save_checkpoint(
    keeper: CheckpointKeeper,
    recorder: Recorder,
    position: dict[str, Any] | None,
    phases: PhaseRunner | None,
) -> None:
    """Write a checkpoint: all that the rest of the run depends on, and the rows so far.

    The position is the stream's after the last pull played; it may have drawn further since.
    """
    arrays = {**state_of(recorder.engine), **recorder.collect_rows()}
    rest = {
        "position": position,
        "phases": None if phases is None else phases.ended,
        "loop_time": recorder.loop_time,
        "wall_time": recorder.wall_time,
        "cpu_time": recorder.cpu_time,
    }
    keeper.write(recorder.played, arrays, rest)


def resume_run(
    keeper: CheckpointKeeper,
    recorder: Recorder,
    stream: Stream,
    phases: PhaseRunner | None,
    size: int,
) -> None:
    """Bring a run that has not begun to the state of its checkpoint, if there is one."""
    found = keeper.load()
    if found is None:
        return
    arrays, rest = found
    try:
        if phases is not None:
            phases.replay(rest["phases"])
        restore(recorder.engine, arrays)
        recorder.resume(arrays)
        keeper.mark_resumed(recorder.played)
        recorder.loop_time, recorder.earlier = float(rest["loop_time"]), float(rest["wall_time"])
        recorder.earlier_cpu = float(rest.get("cpu_time", 0.0))  # older checkpoints have none
        if rest["position"] is not None:
            stream.resume(rest["position"])
            return
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidInput(
            f"{keeper.path} does not fit this run: {error}; the file was not changed"
        ) from error
    # A stream that can't jump is read again from its beginning, without playing it.
    for start in range(0, recorder.played, size):
        stream.take(min(size, recorder.played - start))
