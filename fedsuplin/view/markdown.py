"""Pieces of HTML: escaped text, tables, and small line charts as inline SVG; and tables in Markdown.

No scripts, no styles beyond the element, nothing from elsewhere; what is drawn takes the colour of the text around it, so that
it is seen on light and dark pages. Every piece of HTML is well-formed XML too. `notebook.py`, the pages of `reproduce` and that
of `bench` are made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def format_markdown_table(
    heads: Sequence[str], rows: Iterable[Iterable[Any]], *, numbers_from: int | None = None
) -> str:
    """The same in Markdown. Cells from a column on are numbers, and stand on the right.

    >>> print(markdown_table(("arm", "pulls"), [("a|b", 3)], numbers_from=1))
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
