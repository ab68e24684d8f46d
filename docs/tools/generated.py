"""Pages in reStructuredText that a build generates: written if changed, removed if stale."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path


def refresh(folder: Path, pages: dict[str, str], others: Container[str] = ()) -> None:
    """Make a folder hold these pages, by path, and of all others at most `others`."""
    for path in folder.rglob("*.rst"):
        name = path.relative_to(folder).as_posix()
        if name not in pages and name not in others:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def headed(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n"
