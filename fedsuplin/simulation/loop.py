"""The loop of a run: take chunks from a stream and give them to the engine."""

from __future__ import annotations

from collections.abc import Callable

from .._shared.checks import check_positive_integer
from ..algorithm.algorithm import Algorithm
from ..algorithm.failures import build_failure
from ..contracts.stream import Chunk, Stream
from ..errors import InvalidInput
from .checkpoint import CheckpointKeeper, save_checkpoint
from .drawing import ChunkSource
from .interruptions import Interruptions
from .phases import PhaseRunner
from .recorder import Recorder

# Bytes of contexts: few enough to stay in the cache, enough to hide the Python between two chunks.
CHUNK_BYTES = 2 << 20
CHUNK_FLOPS = 2e8  # a chunk takes well under a second on any CPU, so that Ctrl-C is answered
Progress = Callable[[int, int], None]


def choose_chunk_size(algorithm: Algorithm, given: int | None = None) -> int:
    """Return the pulls per chunk of the loop: the given number, or one for cache and Ctrl-C."""
    if given is not None:
        return check_positive_integer("chunk", given)
    by_memory = CHUNK_BYTES / (8 * algorithm.dim * algorithm.n_arms)
    by_time = CHUNK_FLOPS / (algorithm.dim**2 * (algorithm.n_arms + 20) * algorithm.n_layers)
    return max(1, int(min(by_memory, by_time, 1 << 16)))


def play_stream(
    recorder: Recorder,
    stream: Stream,
    size: int,
    progress: Progress | None,
    phases: PhaseRunner | None,
    keeper: CheckpointKeeper | None,
    prefetch: bool | None = False,
) -> None:
    """Run the loop: play a stream in chunks to the recorder's end, with checkpoints if asked."""

    def choose_size(played: int) -> int:
        n = min(size, recorder.length - played)
        return n if keeper is None else min(n, keeper.count_pulls_left(played) or n)

    with (
        Interruptions(deferred=keeper is not None) as interruptions,
        ChunkSource(stream, recorder, choose_size, prefetch, keeper is not None) as source,
    ):
        while recorder.played < recorder.length:
            chunk = source.take()
            recorder.start_loop()
            play_chunk(recorder, chunk, phases)
            recorder.stop_loop()
            if keeper is not None and (
                interruptions.any
                or keeper.is_due(recorder.played)
                or recorder.played == recorder.length
            ):
                save_checkpoint(keeper, recorder, source.position, phases)
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
