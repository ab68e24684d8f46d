"""Pages in reStructuredText that a build generates: written if changed, removed if stale."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path


def refresh(folder: Path, pages: dict[str, str], others: Container[str] = ()) -> None:
    """Write pages, by path, into a folder, and remove all other pages but `others`."""
    for path in folder.rglob("*.rst"):
        name = path.relative_to(folder).as_posix()
        if name not in pages and name not in others:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def underline(title: str, line: str) -> str:
    """Return a title with a line below it."""
    return f"{title}\n{line * len(title)}\n"
