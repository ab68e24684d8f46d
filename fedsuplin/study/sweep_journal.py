"""The file in which a sweep keeps its runs, so that a killed sweep can continue.

It has one line of JSON per finished run. Each line is handed to the system whole before the next
one, and half a line that a kill left is cut off when the file is opened again. The file is locked
while a sweep writes to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from .._shared.plain_data import encode_json
from ..errors import InvalidInput

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None
HEADING = b'{"format": "fedsuplin-sweep", "format_version": 1}\n'
SYNC_SECONDS = 1.0  # a power cut loses no more than this; a kill loses nothing


class SweepJournal:
    """The finished runs of a sweep by key, in memory and in a file. Use it as a context manager.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with SweepJournal(Path(folder) / "runs.jsonl") as journal:
    ...         journal.append({"key": "a", "regret": 1.5})
    ...     with SweepJournal(Path(folder) / "runs.jsonl") as journal:
    ...         print(journal.lines["a"]["regret"])
    1.5
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        self.lines: dict[str, dict[str, Any]] = {}
        self._file: IO[bytes] | None = None
        self._synced = 0.0

    def __enter__(self) -> SweepJournal:
        if self.path is None:
            return self
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab+")
        try:
            lock_journal(self._file, self.path)
            self._read(self._file, self.path)
        except BaseException:
            self._close(self._file)
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        if self._file is not None:
            self._close(self._file)

    def append(self, line: dict[str, Any]) -> None:
        """Add a run to the file, and then to `lines`."""
        self._write(encode_json(line).encode() + b"\n")
        self.lines[line["key"]] = line

    def _read(self, file: IO[bytes], path: Path) -> None:
        """Read the lines of the file, cut off half a line at its end, and head a new file."""
        file.seek(0)
        heading = file.readline()
        if heading != HEADING and not HEADING.startswith(heading):
            raise InvalidInput(
                f"{path} is not the journal of a sweep of this fedsuplin: choose another folder"
            )
        whole = len(heading) if heading == HEADING else 0
        for number, line in enumerate(file, start=2):
            if line.endswith(b"\n"):
                found = parse_line(line, number, path)
                self.lines[found["key"]] = found
                whole += len(line)
        file.truncate(whole)
        if not whole:
            self._write(HEADING)

    def _write(self, line: bytes) -> None:
        """Hand a line to the system, and wait for the disk once in a while."""
        if self._file is None:
            return
        try:
            self._file.write(line)
            self._file.flush()
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            kept = (
                f"{error.strerror}. The {len(self.lines)} runs in it are kept: "
                "start the sweep again and it continues"
            )
            raise OSError(error.errno, kept, str(self.path)) from error

    @staticmethod
    def _close(file: IO[bytes]) -> None:
        """Close the journal's file. A full disk was reported before."""
        with contextlib.suppress(OSError):
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):
            file.close()


def parse_line(line: bytes, number: int, path: Path) -> dict[str, Any]:
    """Return a line of the sweep journal as a dict; the error for another line names it."""
    try:
        found: dict[str, Any] = json.loads(line)
        found["key"]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"line {number} of {path} can't be read: delete that line, and its run is done again"
        ) from None
    return found


def lock_journal(file: Any, path: Path) -> None:
    """Lock the journal of a sweep against a second one. The lock of a dead process is freed."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidInput(
            f"another sweep is writing to {path}: wait for it, or choose another folder"
        ) from None
