"""The client's durable state: a snapshot and every event since."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._shared.arrays import Floats
from ..errors import FederationError
from .stores import StoreKind, open_store

JOURNAL_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE events (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, what INTEGER NOT NULL, data BLOB NOT NULL);
"""
JOURNAL_STORE = StoreKind("client", 0x4653_4C43, 1, JOURNAL_TABLES, "NORMAL")  # "FSLC"
MOST_EVENTS = 500  # between snapshots: so many are repeated after a restart, at most
DECIDED, OBSERVED, DROPPED, UPLOADED, ROUND = "decided", "observed", "dropped", "uploaded", "round"
INSERT_EVENT = "INSERT INTO events (kind, what, data) VALUES (?, ?, ?)"


class JournalEvent(NamedTuple):
    kind: str
    what: int
    """The decision's id, the round, or the number of the upload."""
    data: bytes


class NullJournal:
    """A journal that nobody keeps: for a client without a store."""

    n_events = 0

    def decided(self, number: int, layer: int, x: Floats, remembered: Floats) -> None: ...

    def observed(self, number: int, reward: float, sigma: float | None) -> None: ...

    def dropped(self, number: int) -> None: ...

    def uploaded(self, sequence: int, frozen: bytes, at_end: bool) -> None: ...

    def round(self, number: int, at_end: bool) -> None: ...

    def keep(self, facts: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class ClientJournal(NullJournal):
    """The file of a client."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = open_store(self.path, JOURNAL_STORE)
        self.n_events = self._file.execute("SELECT count(*) FROM events").fetchone()[0]

    # --- what is there -----------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """What was last kept; empty if the file is new."""
        return dict(self._file.execute("SELECT name, value FROM facts"))

    def events(self) -> Iterator[JournalEvent]:
        """Since then, in their order."""
        return map(
            JournalEvent._make,
            self._file.execute("SELECT kind, what, data FROM events ORDER BY number"),
        )

    # --- one event after the other -----------------------------------------------------------------------------------

    def decided(self, number: int, layer: int, x: Floats, remembered: Floats) -> None:
        self._add(DECIDED, number, struct.pack("<q", layer) + x.tobytes() + remembered.tobytes())

    def observed(self, number: int, reward: float, sigma: float | None) -> None:
        self._add(
            OBSERVED,
            number,
            struct.pack("<d", reward) if sigma is None else struct.pack("<dd", reward, sigma),
        )

    def dropped(self, number: int) -> None:
        self._add(DROPPED, number, b"")

    def round(self, number: int, at_end: bool) -> None:
        self._add(ROUND, number, bytes([at_end]))

    def _add(self, kind: str, what: int, data: bytes) -> None:
        """In the file when it returns, as far as this process goes: a loss of power may take it."""
        try:
            self._file.execute(INSERT_EVENT, (kind, what, data))
        except sqlite3.Error as error:
            raise self._unwritten(error) from error
        self.n_events += 1

    # --- what must outlast a loss of power ---------------------------------------------------------------------------

    def uploaded(self, sequence: int, frozen: bytes, at_end: bool) -> None:
        """An upload, as it will be sent until it is answered. All that is in it is on the disk before the server sees it."""
        with self._whole():
            self._file.execute(INSERT_EVENT, (UPLOADED, sequence, bytes([at_end])))
            self._file.execute("INSERT OR REPLACE INTO facts VALUES ('frozen', ?)", (frozen,))
        self.n_events += 1

    def keep(self, facts: dict[str, Any]) -> None:
        """All that is known now; it takes the place of the events."""
        with self._whole():
            self._file.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
            self._file.execute("DELETE FROM events")
        self.n_events = 0

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """One transaction, on the disk when the block has ended."""
        try:
            self._file.execute("PRAGMA synchronous=FULL")
            self._file.execute("BEGIN IMMEDIATE")
            yield
            self._file.execute("COMMIT")
            self._file.execute("PRAGMA synchronous=NORMAL")
        except sqlite3.Error as error:
            raise self._unwritten(error) from error
        finally:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")

    def _unwritten(self, error: sqlite3.Error) -> FederationError:
        return FederationError(f"the store {self.path} can't be written: {error}")

    def close(self) -> None:
        self._file.close()


def read_decision(event: JournalEvent, dim: int) -> tuple[int, Floats, Floats]:
    """The layer, the arm and what the rules remembered."""
    (layer,), numbers = (
        struct.unpack_from("<q", event.data),
        np.frombuffer(event.data, "<f8", offset=8).copy(),
    )
    return layer, numbers[:dim].copy(), numbers[dim:]


def read_observation(event: JournalEvent) -> tuple[float, float | None]:
    """Reward and sigma."""
    numbers = np.frombuffer(event.data, "<f8").tolist()
    return numbers[0], numbers[1] if len(numbers) > 1 else None
