"""Pieces of HTML: escaped text, tables, and small line charts as inline SVG; and tables in Markdown.

No scripts, no styles beyond the element, nothing from elsewhere; what is drawn takes the colour of the text around it, so that
it is seen on light and dark pages. Every piece of HTML is well-formed XML too. `notebook.py`, the pages of `reproduce` and that
of `bench` are made of them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape_html(text: Any) -> str:
    """Whatever it is, as text.

    >>> escaped("<a & 'b'>\\x00")
    '&lt;a &amp; &#x27;b&#x27;&gt;\\ufffd'
    """
    return html.escape(NOT_XML.sub("\ufffd", str(text)))


def format_pairs(told: Mapping[str, str]) -> str:
    """A table of names and texts."""
    left = 'style="text-align: left"'  # whatever a notebook thinks of tables
    rows = "".join(
        f"<tr><th {left}>{escape_html(name)}</th><td {left}>{escape_html(text)}</td></tr>"
        for name, text in told.items()
    )
    return f"<table>{rows}</table>"


def format_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Words on the left, what begins with a digit on the right. Cells are markup, heads are text."""
    head = "".join(f"<th>{escape_html(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(map(format_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def format_cell(markup: str) -> str:
    number = markup[:1].isdigit() or markup[:1] in "-+"
    style = (
        ' style="text-align: right; white-space: nowrap"'
        if markup and number
        else ' style="text-align: left"'
    )
    return f"<td{style}>{markup}</td>"
