"""Write files that appear complete or not at all, CSV files among them."""

from __future__ import annotations

import contextlib
import csv
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

PART_SUFFIX = ".part"  # how names end until the file is complete


@contextlib.contextmanager
def open_atomically(
    path: str | os.PathLike[str], mode: str = "w", *, sync: bool = False, **options: Any
) -> Iterator[IO[Any]]:
    """Open a file for writing that appears under its name only at the end of the block.

    It replaces an older one. A full disk, an error or Ctrl-C in the block leaves the older one as
    it was, and no other file. With `sync`, wait until the disk has it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with contextlib.suppress(ZeroDivisionError):
    ...         with open_atomically(Path(folder) / "a.txt") as file:
    ...             _ = file.write("half of it") and 1 / 0
    ...     os.listdir(folder)
    []
    """
    path = Path(path)
    with _blame_path(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=PART_SUFFIX)
        try:
            with os.fdopen(handle, mode, **options) as file:
                yield file
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _blame_path(path: Path) -> Iterator[None]:
    """Rewrite an OSError so that it names the user's file, not our temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not str(error.filename or PART_SUFFIX).endswith(PART_SUFFIX):
            raise
        missing = not path.parent.is_dir()
        raise OSError(
            error.errno,
            f"there is no folder {path.parent}" if missing else error.strerror,
            str(path),
        ) from error


def write_csv_rows(
    path: str | os.PathLike[str],
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
) -> Path:
    """Write rows to a CSV file and return its path. The default columns are those of the rows."""
    path = Path(path)
    if columns is None:
        rows = list(rows)
        columns = list(dict.fromkeys(key for row in rows for key in row))
    with open_atomically(path, newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return path
