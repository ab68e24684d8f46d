"""Files that are whole or not there: written beside their name, and put in place when nothing more can go wrong."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

PART = ".part"  # how names end until the file is whole


@contextlib.contextmanager
def whole(path: str | os.PathLike[str], mode: str = "w", *, sync: bool = False, **options: Any) -> Iterator[IO[Any]]:
    """Open for writing. The file appears under its name, in place of an older one, at the end of the block; a full disk, an
    error or Ctrl-C in it leaves the older one as it was, and nothing else. `sync` waits until the disk has it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with contextlib.suppress(ZeroDivisionError), whole(Path(folder) / "a.txt") as file:
    ...         _ = file.write("half of it") and 1 / 0
    ...     os.listdir(folder)
    []
    """
    path = Path(path)
    with blaming(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=PART)
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
def blaming(path: Path) -> Iterator[None]:
    """What the system has against a name that nobody asked for, said of the one that was."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not str(error.filename or PART).endswith(PART):
            raise
        missing = not path.parent.is_dir()
        raise OSError(error.errno, f"there is no folder {path.parent}" if missing else error.strerror, str(path)) from error
