"""The command `fedsuplin`: options in, a problem and an algorithm made of them, a run, and what `report.py` tells."""

from __future__ import annotations

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
EXIT_CODES = {
    0: "Done.",
    1: "Something outside went wrong, and the same command may work another time: disk, memory, network.",
    2: "Wrong usage or input: an option, a name, a file, a plugin that fails, an extra that is not installed.",
    130: "Stopped by Ctrl-C; what was done until then is kept, and shown.",
}
