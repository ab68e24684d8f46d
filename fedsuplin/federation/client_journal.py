"""The file of a client: its last snapshot and every event since."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._shared.array_types import Floats
from ..errors import FederationError
from .stores import StoreKind, open_store

JOURNAL_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE events (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, what INTEGER NOT NULL, \
data BLOB NOT NULL);
"""
JOURNAL_STORE = StoreKind("client", 0x4653_4C43, 1, JOURNAL_TABLES, "NORMAL")  # "FSLC"
MOST_EVENTS = 500  # between snapshots: at most this many are replayed after a restart
DECIDED, OBSERVED, DROPPED, UPLOADED, ROUND = "decided", "observed", "dropped", "uploaded", "round"
INSERT_EVENT = "INSERT INTO events (kind, what, data) VALUES (?, ?, ?)"


class JournalEvent(NamedTuple):
    """Something that a client did."""

    kind: str
    what: int
    """The decision's id, the round, or the number of the upload."""
    data: bytes


class NullJournal:
    """The journal of a client without a store: it writes nothing."""

    n_events = 0

    def write_decision(self, number: int, layer: int, x: Floats, remembered: Floats) -> None:
        """Write a decision: its id, layer and arm, and the state of the rules after it."""

    def write_observation(self, number: int, reward: float, sigma: float | None) -> None:
        """Write the reward of a decision."""

    def write_drop(self, number: int) -> None:
        """Write that a decision was dropped."""

    def write_round(self, number: int, at_end: bool) -> None:
        """Write that a round has begun."""

    def write_upload(self, sequence: int, frozen: bytes, at_end: bool) -> None:
        """Write an upload as it will be sent until it is answered."""

    def write_snapshot(self, facts: dict[str, Any]) -> None:
        """Write everything that is known, in place of the events so far."""

    def close(self) -> None:
        """Close the file."""


class ClientJournal(NullJournal):
    """A journal in a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = open_store(self.path, JOURNAL_STORE)
        self.n_events = self._file.execute("SELECT count(*) FROM events").fetchone()[0]

    # --- reading ----------------------------------------------------------------------------------

    def read_facts(self) -> dict[str, Any]:
        """Return the last snapshot; empty if the file is new."""
        return dict(self._file.execute("SELECT name, value FROM facts"))

    def read_events(self) -> Iterator[JournalEvent]:
        """Return the events since the snapshot, in their order."""
        return map(
            JournalEvent._make,
            self._file.execute("SELECT kind, what, data FROM events ORDER BY number"),
        )

    # --- events -----------------------------------------------------------------------------------

    def write_decision(self, number: int, layer: int, x: Floats, remembered: Floats) -> None:
        """Write a decision: its id, layer and arm, and the state of the rules after it."""
        self._add(DECIDED, number, struct.pack("<q", layer) + x.tobytes() + remembered.tobytes())

    def write_observation(self, number: int, reward: float, sigma: float | None) -> None:
        """Write the reward of a decision."""
        self._add(
            OBSERVED,
            number,
            struct.pack("<d", reward) if sigma is None else struct.pack("<dd", reward, sigma),
        )

    def write_drop(self, number: int) -> None:
        """Write that a decision was dropped."""
        self._add(DROPPED, number, b"")

    def write_round(self, number: int, at_end: bool) -> None:
        """Write that a round has begun."""
        self._add(ROUND, number, bytes([at_end]))

    def _add(self, kind: str, what: int, data: bytes) -> None:
        """Write an event. It survives the end of the process, but not a loss of power."""
        try:
            self._file.execute(INSERT_EVENT, (kind, what, data))
        except sqlite3.Error as error:
            raise self._make_write_error(error) from error
        self.n_events += 1

    # --- what must survive a loss of power --------------------------------------------------------

    def write_upload(self, sequence: int, frozen: bytes, at_end: bool) -> None:
        """Write an upload as it will be sent until it is answered.

        The observations in it are on disk before the server sees it.
        """
        with self._open_transaction():
            self._file.execute(INSERT_EVENT, (UPLOADED, sequence, bytes([at_end])))
            self._file.execute("INSERT OR REPLACE INTO facts VALUES ('frozen', ?)", (frozen,))
        self.n_events += 1

    def write_snapshot(self, facts: dict[str, Any]) -> None:
        """Write everything that is known, in place of the events so far."""
        with self._open_transaction():
            self._file.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
            self._file.execute("DELETE FROM events")
        self.n_events = 0

    @contextmanager
    def _open_transaction(self) -> Iterator[None]:
        """Run a block in one transaction that is on disk when the block has ended."""
        try:
            self._file.execute("PRAGMA synchronous=FULL")
            self._file.execute("BEGIN IMMEDIATE")
            yield
            self._file.execute("COMMIT")
            self._file.execute("PRAGMA synchronous=NORMAL")
        except sqlite3.Error as error:
            raise self._make_write_error(error) from error
        finally:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")

    def _make_write_error(self, error: sqlite3.Error) -> FederationError:
        """Return the error for a file that cannot be written."""
        return FederationError(f"the store {self.path} can't be written: {error}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_decision(event: JournalEvent, dim: int) -> tuple[int, Floats, Floats]:
    """Return layer, arm and state of the rules of a decision in a client's journal."""
    (layer,) = struct.unpack_from("<q", event.data)
    numbers = np.frombuffer(event.data, "<f8", offset=8).copy()
    return layer, numbers[:dim].copy(), numbers[dim:]


def read_observation(event: JournalEvent) -> tuple[float, float | None]:
    """Return reward and sigma of an observation in a client's journal."""
    numbers = np.frombuffer(event.data, "<f8").tolist()
    return numbers[0], numbers[1] if len(numbers) > 1 else None
