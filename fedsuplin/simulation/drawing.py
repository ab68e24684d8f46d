"""Take the chunks of a run from its stream, the next one in a second thread if a core is free."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .._shared.cores import count_cores
from ..contracts.stream import Chunk, Stream, check_chunk
from ..errors import FedsuplinError, PluginError
from .recorder import Recorder

SMALLEST_PREFETCH = 1 << 16  # bytes of contexts; to draw fewer is quicker than to wake a thread


class ChunkSource:
    """Take the chunks of a run one after another, each of `choose_size(played)` pulls.

    While one is played, a thread draws the next, if the stream allows it. What is drawn does not
    depend on it: the calls of `take` are the same, and an error is raised when its chunk is due.
    """

    _next: Future[Chunk] | None
    _pool: ThreadPoolExecutor | None

    def __init__(
        self,
        stream: Stream,
        recorder: Recorder,
        choose_size: Callable[[int], int],
        prefetch: bool | None,
        keeps_position: bool,
    ) -> None:
        """`keeps_position` is for runs with checkpoints, which ask for the stream's position."""
        self._position: dict[str, Any] | None = None
        self._stream, self._choose_size, self._recorder = stream, choose_size, recorder
        self._keeps_position = keeps_position and hasattr(stream, "position")
        self._at, self._next, self._pool = recorder.played, None, None
        if self._at < recorder.length and decide_prefetch(
            prefetch, stream, recorder, choose_size(self._at)
        ):
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="fedsuplin-drawing")

    def __enter__(self) -> ChunkSource:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def take(self) -> Chunk:
        """Return the next chunk, and begin to draw the one after it."""
        n = self._choose_size(self._at)
        chunk = self._draw(self._at, n) if self._next is None else self._next.result()
        self._at, self._next = self._at + n, None
        if self._keeps_position and self._pool is not None:  # before the thread draws on
            self._position = self._stream.position()
        if self._pool is not None and self._at < self._recorder.length:
            # The context holds NumPy's errstate, which is then that of the caller.
            call = contextvars.copy_context().run
            self._next = self._pool.submit(
                call, self._draw, self._at, self._choose_size(self._at), True
            )
        return chunk

    @property
    def position(self) -> dict[str, Any] | None:
        """The stream's position after the last chunk that was taken; None if it has none."""
        if self._pool is None and self._keeps_position:
            return self._stream.position()
        return self._position

    def _draw(self, played: int, n: int, is_ahead: bool = False) -> Chunk:
        """Take n pulls from the stream and check them; is_ahead: in the thread.

        The recorder gets the CPU time of it, which is part of the run's in either thread.
        """
        before = time.thread_time()
        chunk = take_chunk(self._stream, n, self._recorder, self._recorder.first + played)
        self._recorder.add_drawing(time.thread_time() - before, is_ahead=is_ahead)
        return chunk


def decide_prefetch(prefetch: bool | None, stream: Stream, recorder: Recorder, n: int) -> bool:
    """Return whether a run draws in a second thread; n is the size of its first chunk.

    None: if a core is free for it and chunks are not tiny. A run of one chunk has nothing to draw
    ahead.
    """
    if prefetch is False or not getattr(stream, "may_prefetch", False):
        return False
    if recorder.played + n >= recorder.length:
        return False
    algorithm = recorder.algorithm
    large = 8 * algorithm.dim * algorithm.n_arms * n >= SMALLEST_PREFETCH
    return prefetch is True or (large and count_cores() > 1)


def take_chunk(stream: Stream, n: int, recorder: Recorder, start: int) -> Chunk:
    """Take n pulls from `start` on; what a plugin's stream raises becomes a PluginError."""
    try:
        chunk = stream.take(n)
    except FedsuplinError:
        raise
    except Exception as error:
        where = f"pulls {start} to {start + n - 1}"
        raise PluginError(
            f"{type(stream).__qualname__} raised {type(error).__name__}: {error}, for {where}"
        ) from error
    if not stream.checked:
        check_chunk(chunk, n, start, recorder.algorithm.n_arms, recorder.algorithm.dim)
    return chunk
