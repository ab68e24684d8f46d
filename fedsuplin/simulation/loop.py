"""Feed chunks of a stream to the engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fedsuplin_ext import norms

from .._shared.checks import check_positive_integer
from ..algorithm.algorithm import Algorithm
from ..algorithm.failures import build_failure
from ..contracts.stream import check_chunk
from ..errors import FedsuplinError, InvalidInput, PluginError
from .checkpoint import CheckpointKeeper, Interruptions, save_checkpoint
from .phases import PhaseRunner
from .recorder import Recorder

CHUNK_BYTES = (
    4 << 20
)  # of contexts: small enough to stay in the cache, large enough that Python between chunks is not seen
CHUNK_FLOPS = 2e8  # a chunk takes well under a second on any CPU, so that Ctrl-C is answered
Progress = Callable[[int, int], None]


def choose_chunk_size(algorithm: Algorithm, given: int | None = None) -> int:
    if given is not None:
        return check_positive_integer("chunk", given)
    lanes = norms.pad(algorithm.n_arms)
    by_memory = CHUNK_BYTES / (8 * algorithm.dim * lanes)
    by_time = CHUNK_FLOPS / (algorithm.dim**2 * (lanes + 20) * algorithm.n_layers)
    return max(1, int(min(by_memory, by_time, 1 << 16)))


def play_stream(
    recorder: Recorder,
    stream: Any,
    size: int,
    progress: Progress | None,
    phases: PhaseRunner | None,
    keeper: CheckpointKeeper | None,
) -> None:
    with Interruptions(deferred=keeper is not None) as interruptions:
        while recorder.played < recorder.length:
            room = (
                recorder.length - recorder.played
                if keeper is None
                else keeper.room(recorder.played)
            )
            chunk = take_chunk(
                stream, min(size, recorder.length - recorder.played, room or size), recorder
            )
            before = time.perf_counter()
            play_chunk(recorder, chunk, phases)
            recorder.loop_time += time.perf_counter() - before
            if keeper is not None and (
                interruptions.any
                or keeper.due(recorder.played)
                or recorder.played == recorder.length
            ):
                save_checkpoint(keeper, recorder, stream, phases)
            if interruptions.any:
                raise KeyboardInterrupt
            if progress is not None:
                progress(recorder.pull, recorder.total)


def play_chunk(recorder: Recorder, chunk: Any, phases: PhaseRunner | None) -> None:
    """A chunk to its end; between two phases of a policy that has them, the next one is worked out."""
    engine, start, n, status = recorder.engine, recorder.played, 0, ""
    while status != "done":
        try:
            status, n = engine.play(chunk, n)
        except ValueError as error:  # its arrays do not fit together
            raise InvalidInput(
                f"{error}, for the chunk from pull {recorder.first + start} on"
            ) from error
        recorder.played = start + n
        if status == "phase over" and phases is not None:
            phases.advance(recorder.pull)
        elif status != "done":
            raise build_failure(engine, status, recorder.pull, int(chunk.clients[n]))


def take_chunk(stream: Any, n: int, recorder: Recorder) -> Any:
    """The next n pulls. A problem, an arrival or a noise model may be anybody's: whatever it raises ends the run, not more."""
    try:
        chunk = stream.take(n)
    except FedsuplinError:
        raise
    except Exception as error:
        where = f"pulls {recorder.pull} to {recorder.pull + n - 1}"
        raise PluginError(
            f"{type(stream).__qualname__} raised {type(error).__name__}: {error}, for {where}"
        ) from error
    if not stream.checked:
        check_chunk(chunk, n, recorder.pull, recorder.algorithm.n_arms)
    return chunk
