"""The exit codes, and what each means."""

from __future__ import annotations

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
EXIT_CODES = {
    0: "Done.",
    1: "Something outside went wrong: disk, memory, network. Trying again may help.",
    2: "Wrong usage or input: an option, a name, a file, a failing plugin, a missing extra.",
    130: "Stopped by Ctrl-C; what was finished by then is kept and shown.",
}
