"""Child processes that leave Ctrl-C to their parent, and end when it is killed."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator

PARENT_SECONDS = 0.5  # how long a worker process may outlive a parent that was killed


@functools.cache
def end_with_parent(parent: int) -> None:
    """Make this child process ignore Ctrl-C, and end soon after its parent was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C in the block, so that child processes started there ignore it at once.

    A terminal sends Ctrl-C to child processes too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
