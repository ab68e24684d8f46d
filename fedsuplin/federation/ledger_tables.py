"""The tables of the server's store, and what it remembers of each client."""

from __future__ import annotations

from typing import NamedTuple

from .stores import StoreKind
from .wire import NO_SEQUENCE

LEDGER_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE layers (layer INTEGER PRIMARY KEY, gram BLOB NOT NULL, moment BLOB NOT NULL);
CREATE TABLE clients (
    client_id INTEGER PRIMARY KEY, session BLOB NOT NULL, generation INTEGER NOT NULL, sequence INTEGER NOT NULL,
    digest BLOB NOT NULL, layers TEXT NOT NULL, epoch INTEGER NOT NULL, pulls INTEGER NOT NULL, syncs INTEGER NOT NULL,
    seen REAL NOT NULL
);
"""
LEDGER_STORE = StoreKind("server", 0x4653_4C31, 1, LEDGER_TABLES, "FULL")  # "FSL1"
COUNT_NAMES = ("epoch", "round", "n_syncs", "communication", "pulls", "total_pulls")


class Member(NamedTuple):
    """What the server remembers of a client."""

    session: bytes
    generation: int
    """How many sessions this client has had."""
    sequence: int
    """Of the last upload in this session that was merged."""
    digest: bytes
    """Of that upload."""
    layers: str
    """Of that upload, those that were merged: where all sync together, the ones that somebody asked for. JSON."""
    epoch: int
    """In which that was, or in which the session began."""
    pulls: int
    syncs: int
    seen: float


NEW_MEMBER = Member(b"", 0, NO_SEQUENCE, b"", "[]", 0, 0, 0, 0.0)
