"""Docstrings as mkdocs shows them: the examples in them, which are doctests, become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)  # up to an empty line


def with_blocks(text: str) -> str:
    """
    >>> print(with_blocks("Doubles.\\n\\n>>> 2 * 2\\n4\\n\\nMore."))
    Doubles.
    <BLANKLINE>
    ```pycon
    >>> 2 * 2
    4
    ```
    <BLANKLINE>
    More.
    """
    return EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)


class Examples(griffe.Extension):
    """Before anything is rendered."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_blocks(obj.docstring.value)
