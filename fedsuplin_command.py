"""Where the command `fedsuplin` starts: small, and outside the package, so that Ctrl-C while Python is still importing the
library ends like any other Ctrl-C. Before this module is reached nothing can be done about it."""

from __future__ import annotations

import os
import signal
from typing import Any

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main() -> None:
    """Import the command line, and hand over to it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # a shell's background job ignores it, and so do we
        signal.signal(signal.SIGINT, stop)
    from fedsuplin.cli import main as command

    signal.signal(signal.SIGINT, before)
    command(prog_name="fedsuplin")


def stop(*_: Any) -> None:
    """At once: there is nothing to clean up yet, and an exception might be lost in somebody's import of a C library."""
    os.write(2, b"stopped\n")
    os._exit(INTERRUPTED)
