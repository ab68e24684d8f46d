"""Start, read and stop the demo's processes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

PLAYER_COMMAND = [sys.executable, "-m", "fedsuplin.federation.demo.player"]
SERVER_COMMAND = [sys.executable, "-m", "fedsuplin"]
Lines: TypeAlias = "queue.Queue[tuple[Process, str, str | None]]"


class Process:
    """A process whose lines go to a queue as (process, stream, line); None is the end of output."""

    def __init__(self, name: str, arguments: list[str], lines: Lines) -> None:
        self.name, self.last_error = name, "it printed no error"
        self._popen = subprocess.Popen(
            [*(SERVER_COMMAND if arguments[0] == "serve" else PLAYER_COMMAND), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=os.environ | {"FEDSUPLIN_DEMO": str(os.getpid()), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C reaches the demo only, which ends them
        )
        streams = {"out": self._popen.stdout, "err": self._popen.stderr}
        self._readers = [
            threading.Thread(target=self._read, args=(*each, lines), daemon=True)
            for each in streams.items()
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: str, file: Any, lines: Lines) -> None:
        """Put the lines that a process of the demo prints into the queue."""
        with file:
            for line in file:
                if stream == "err" and line.strip():
                    self.last_error = line.strip()
                lines.put((self, stream, line.rstrip("\n")))
        if stream == "out":
            lines.put((self, stream, None))

    def kill(self) -> None:
        """Kill a process of the demo, and wait for its end."""
        self._popen.kill()
        self.wait()

    def terminate(self) -> None:
        """Ask a process of the demo to end."""
        self._popen.terminate()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of a process of the demo, and return its exit code."""
        code = self._popen.wait(timeout)
        for reader in self._readers:
            reader.join()
        return code


def parse_line(line: str) -> dict[str, Any]:
    """Return the JSON object in a line that a process of the demo printed; empty if none."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


@contextlib.contextmanager
def catch_stop_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set, so that the demo leaves no process behind."""
    stopped = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopped.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
