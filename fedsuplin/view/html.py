"""Escaped text and tables in HTML.

There are no scripts, and no styles beyond the element. Every piece of HTML is well-formed XML too.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def escape_html(text: Any) -> str:
    """Return anything as text that is safe in HTML and XML.

    >>> escape_html("<a & 'b'>\\x00")
    '&lt;a &amp; &#x27;b&#x27;&gt;\\ufffd'
    """
    return html.escape(NOT_XML.sub("\ufffd", str(text)))


def format_pairs(pairs: Mapping[str, str]) -> str:
    """Return an HTML table with one row per name and text."""
    left = 'style="text-align: left"'  # notebooks align to the right
    rows = "".join(
        f"<tr><th {left}>{escape_html(name)}</th><td {left}>{escape_html(text)}</td></tr>"
        for name, text in pairs.items()
    )
    return f"<table>{rows}</table>"


def format_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table. Cells are markup, heads are text, numbers are aligned to the right."""
    head = "".join(f"<th>{escape_html(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(map(format_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def format_cell(markup: str) -> str:
    """Return a cell of an HTML table, aligned to the right if it begins with a digit or a sign."""
    number = markup[:1].isdigit() or markup[:1] in "-+"
    style = (
        ' style="text-align: right; white-space: nowrap"'
        if markup and number
        else ' style="text-align: left"'
    )
    return f"<td{style}>{markup}</td>"
