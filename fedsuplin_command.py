"""Where the command `fedsuplin` starts: small, and outside the package, so that Ctrl-C while Python is still importing the
library ends like any other Ctrl-C. Before this module is reached nothing can be done about it."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main() -> None:
    """Import the command line, and hand over to it."""
    try:
        from fedsuplin.cli import main as command
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
    command(prog_name="fedsuplin")
