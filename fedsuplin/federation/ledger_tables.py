"""The tables of the server's store, and what it remembers about each client."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from .stores import StoreKind
from .wire import NO_SEQUENCE

LEDGER_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE layers (layer INTEGER PRIMARY KEY, gram BLOB NOT NULL, moment BLOB NOT NULL);
CREATE TABLE clients (
    client_id INTEGER PRIMARY KEY, session BLOB NOT NULL, generation INTEGER NOT NULL, \
sequence INTEGER NOT NULL,
    digest BLOB NOT NULL, layers TEXT NOT NULL, epoch INTEGER NOT NULL, pulls INTEGER NOT NULL, \
syncs INTEGER NOT NULL,
    seen REAL NOT NULL
);
"""
LEDGER_STORE = StoreKind("server", 0x4653_4C31, 1, LEDGER_TABLES, "FULL")  # "FSL1"
COUNT_NAMES = ("epoch", "round", "n_syncs", "communication", "pulls", "total_pulls")
MOST_STATEMENT_VALUES = 999  # in one statement of SQLite before 3.32


class Member(NamedTuple):
    """What the server remembers about a client. The fields are the columns, in this order."""

    session: bytes
    generation: int
    """How many sessions this client has had."""
    sequence: int
    """The number of the last upload in this session that was merged."""
    digest: bytes
    """The hash of that upload."""
    layers: str
    """Its layers that were merged, as JSON: those asked for, where all sync together."""
    epoch: int
    """The epoch of that upload, or of the beginning of the session."""
    pulls: int
    syncs: int
    seen: float


NEW_MEMBER = Member(b"", 0, NO_SEQUENCE, b"", "[]", 0, 0, 0, 0.0)


def read_members(file: sqlite3.Connection) -> dict[int, Member]:
    """Read the ledger's table of clients: what is remembered about each, by its id."""
    rows = file.execute(f"SELECT client_id, {', '.join(Member._fields)} FROM clients")
    return {number: Member(*rest) for number, *rest in rows}


def insert_rows(file: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert or replace rows of the ledger's tables with as few statements as possible.

    Each statement lets other threads run; if they are busy, it takes milliseconds to return.
    """
    while rows:
        n = MOST_STATEMENT_VALUES // len(rows[0])
        these, rows = rows[:n], rows[n:]
        marks = f"({', '.join('?' * len(these[0]))})"
        values = [value for row in these for value in row]
        file.execute(
            f"INSERT OR REPLACE INTO {table} VALUES {', '.join([marks] * len(these))}", values
        )
