"""Where the runs of a sweep take place: threads and processes through joblib, or the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator

PARENT_SECONDS = 0.5  # how long a worker process may outlive a sweep that was killed


@functools.cache
def end_with_parent(parent: int) -> None:
    """Makes a worker process one that leaves Ctrl-C to its sweep, and ends when that was killed: it would run for nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Processes started in here are deaf to Ctrl-C from the start, which a terminal sends to them too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
