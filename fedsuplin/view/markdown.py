"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def format_markdown_table(
    heads: Sequence[str], rows: Iterable[Iterable[Any]], *, numbers_from: int | None = None
) -> str:
    """Return a table in Markdown. Columns from `numbers_from` on are aligned to the right.

    >>> print(format_markdown_table(("arm", "pulls"), [("a|b", 3)], numbers_from=1))
    | arm | pulls |
    |---|---:|
    | a\\|b | 3 |
    """
    words = len(heads) if numbers_from is None else numbers_from
    rule = "|".join(["---"] * words + ["---:"] * (len(heads) - words))
    lines = (
        " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows
    )
    return "\n".join([f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {line} |" for line in lines)])
