"""Where the command `fedsuplin` starts. Ctrl-C while Python is still importing the library ends it quietly."""

from __future__ import annotations

import os
import signal
from typing import Any

from .cli.exit_codes import INTERRUPTED


def main() -> None:
    """Import the command line, and hand over to it."""
    before = signal.getsignal(signal.SIGINT)
    if (
        before is signal.default_int_handler
    ):  # a shell's background job ignores Ctrl-C, and so do we
        signal.signal(signal.SIGINT, stop_at_once)
    from .cli.main import root_command

    root_command(prog_name="fedsuplin", obj=lambda: signal.signal(signal.SIGINT, before))


def stop_at_once(*_: Any) -> None:
    """End the process: there is nothing to clean up yet, and an exception could be lost in the import of a C library."""
    os.write(2, b"stopped\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
