"""The loop of a run: take chunks from a stream and give them to the engine."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedsuplin_ext import norms

from .._shared.checks import check_positive_integer
from ..algorithm.algorithm import Algorithm
from ..algorithm.failures import build_failure
from ..contracts.stream import Chunk, Stream, check_chunk
from ..errors import FedsuplinError, InvalidInput, PluginError
from .checkpoint import CheckpointKeeper, save_checkpoint
from .interruptions import Interruptions
from .phases import PhaseRunner
from .recorder import Recorder

# Bytes of contexts: few enough to stay in the cache, enough to hide the Python between two chunks.
CHUNK_BYTES = 4 << 20
CHUNK_FLOPS = 2e8  # a chunk takes well under a second on any CPU, so that Ctrl-C is answered
Progress = Callable[[int, int], None]


def choose_chunk_size(algorithm: Algorithm, given: int | None = None) -> int:
    """Return the pulls per chunk of the loop: the given number, or one for cache and Ctrl-C."""
    if given is not None:
        return check_positive_integer("chunk", given)
    lanes = norms.pad(algorithm.n_arms)
    by_memory = CHUNK_BYTES / (8 * algorithm.dim * lanes)
    by_time = CHUNK_FLOPS / (algorithm.dim**2 * (lanes + 20) * algorithm.n_layers)
    return max(1, int(min(by_memory, by_time, 1 << 16)))


def play_stream(
    recorder: Recorder,
    stream: Stream,
    size: int,
    progress: Progress | None,
    phases: PhaseRunner | None,
    keeper: CheckpointKeeper | None,
) -> None:
    """Run the loop: play a stream in chunks to the recorder's end, with checkpoints if asked."""
    with Interruptions(deferred=keeper is not None) as interruptions:
        while recorder.played < recorder.length:
            n = min(size, recorder.length - recorder.played)
            if keeper is not None:
                n = min(n, keeper.count_pulls_left(recorder.played) or n)
            chunk = take_chunk(stream, n, recorder)
            before = time.perf_counter()
            play_chunk(recorder, chunk, phases)
            recorder.loop_time += time.perf_counter() - before
            if keeper is not None and (
                interruptions.any
                or keeper.is_due(recorder.played)
                or recorder.played == recorder.length
            ):
                save_checkpoint(keeper, recorder, stream, phases)
            if interruptions.any:
                raise KeyboardInterrupt
            if progress is not None:
                progress(recorder.pull, recorder.total)


def play_chunk(recorder: Recorder, chunk: Chunk, phases: PhaseRunner | None) -> None:
    """Play one chunk of the loop; whenever a phase of a phased policy is over, begin the next."""
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
            where = f"at pull {recorder.pull} (client {int(chunk.clients[n])})"
            raise build_failure(engine, status, where)


def take_chunk(stream: Stream, n: int, recorder: Recorder) -> Chunk:
    """Take the loop's next n pulls; what a plugin's stream raises becomes a PluginError."""
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
