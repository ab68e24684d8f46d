"""What Ctrl-C does to a run: it waits for the end of a chunk, and a warning says so."""

from __future__ import annotations

import signal
import threading
import warnings
from typing import Any

from ..errors import InterruptedRun


class Interruptions:
    """Delay Ctrl-C until the end of a chunk, so that a checkpoint is whole.

    A second Ctrl-C acts at once.
    """

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
        """Remember the first Ctrl-C, and raise at the second."""
        if self.any:
            raise KeyboardInterrupt
        self.any = True


def warn_of_interruption(stacklevel: int) -> None:
    """Warn that Ctrl-C stopped the run; `stacklevel` counts the frames up to the user's call."""
    warnings.warn(
        "interrupted: the result holds what was recorded until now",
        InterruptedRun,
        stacklevel=stacklevel + 1,
    )
