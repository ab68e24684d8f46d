"""Where the command `fedsuplin` starts; Ctrl-C during imports ends it quietly."""

from __future__ import annotations

import os
import signal
from typing import Any

from .cli.exit_codes import INTERRUPTED


def main() -> None:
    """Import the command line and run it."""
    before = signal.getsignal(signal.SIGINT)
    # The shell starts background jobs with Ctrl-C ignored, and then so do we.
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop_at_once)
    # Idle threads of OpenBLAS sleep after 2^10 cycles. Unless the user says otherwise, they would
    # keep a core each busy for the first 0.1 s, which a short run could use.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "10")
    from .cli.main import root_command

    # A command's module is imported later, so the command line itself restores the handler.
    root_command(prog_name="fedsuplin", obj=lambda: signal.signal(signal.SIGINT, before))


def stop_at_once(*_: Any) -> None:
    """End the process without an exception, which the import of a C library could swallow."""
    os.write(2, b"stopped\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
