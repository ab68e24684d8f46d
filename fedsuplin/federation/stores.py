"""Open the SQLite file of a server or a client, for one process at a time."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidInput


@dataclass(frozen=True)
class StoreKind:
    """What all files of one kind have in common."""

    whose: str
    application_id: int
    """In the head of the file, by which its kind is recognised."""
    version: int
    tables: str
    """Statements, with a semicolon between them."""
    synchronous: str
    """FULL: on disk when a commit returns. NORMAL: survives the process, not a power loss."""


def open_store(path: str | os.PathLike[str], kind: StoreKind) -> sqlite3.Connection:
    """Open or make a store, locked for this process until it is closed or the process ends."""
    path = Path(path)
    try:
        if not path.parent.is_dir():
            raise InvalidInput(f"there is no folder {path.parent} for the store")
        if path.is_dir():
            raise InvalidInput(f"{path} is a folder: the store is a file")
        # Only the owner may read it. SQLite's other files get the same permissions.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        # The absolute path, because SQLite would take ":memory:" for no file at all.
        file = sqlite3.connect(
            path.absolute(), isolation_level=None, check_same_thread=False, timeout=0.0
        )
    except (sqlite3.OperationalError, OSError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidInput(f"the store {path} can't be opened: {why}") from None
    try:
        _prepare_store(file, path, kind)
    except sqlite3.OperationalError as error:
        file.close()
        if "locked" in str(error):
            raise InvalidInput(f"{path} is in use: another {kind.whose} has it open") from None
        raise InvalidInput(f"the store {path} can't be opened: {error}") from None
    except sqlite3.DatabaseError as error:
        file.close()
        raise InvalidInput(
            f"{path} is not the store of a fedsuplin {kind.whose} ({error}); it was left as it is"
        ) from None
    except BaseException:
        file.close()
        raise
    return file


def _prepare_store(file: sqlite3.Connection, path: Path, kind: StoreKind) -> None:
    """Lock a store, check its kind and version, and make the tables of a new one."""
    file.execute("PRAGMA locking_mode=EXCLUSIVE")
    (found,) = file.execute("PRAGMA application_id").fetchone()
    (version,) = file.execute("PRAGMA user_version").fetchone()
    is_new = not file.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if not is_new and found != kind.application_id:
        raise sqlite3.DatabaseError("it is the database of another program")
    if not is_new and version != kind.version:
        raise InvalidInput(f"{path} has format {version}; this fedsuplin reads {kind.version}")
    file.execute("PRAGMA journal_mode=WAL")
    file.execute(f"PRAGMA synchronous={kind.synchronous}")
    file.execute("BEGIN IMMEDIATE")  # takes the lock
    if is_new:
        for statement in kind.tables.split(";"):
            file.execute(statement)
        file.execute(f"PRAGMA application_id={kind.application_id}")
        file.execute(f"PRAGMA user_version={kind.version}")
    file.execute("COMMIT")
