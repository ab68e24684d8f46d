"""Describe where two pieces of plain data differ."""

from __future__ import annotations

import json
from typing import Any


def find_differences(theirs: Any, ours: Any, name: str = "") -> list[str]:
    """Describe each place where two pieces of plain data differ.

    >>> find_differences({"problem": {"seed": 1}, "n": 5}, {"problem": {"seed": 2}, "n": 5})
    ['its problem.seed is 1, not 2']
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = dict.fromkeys([*ours, *theirs])
        return [
            each
            for key in keys
            for each in find_differences(
                theirs.get(key), ours.get(key), f"{name}.{key}".lstrip(".")
            )
        ]
    return (
        []
        if theirs == ours
        else [f"its {name} is {_shorten_json(theirs)}, not {_shorten_json(ours)}"]
    )


def keep_shortest_names(differences: list[str]) -> list[str]:
    """Of differences in one keyword that several parts have, keep the one with the shortest name.

    >>> keep_shortest_names(["its algorithm.horizon is 5, not 6", "its horizon is 5, not 6"])
    ['its horizon is 5, not 6']
    """
    shortest: dict[str, str] = {}
    for difference in differences:
        same = difference.removeprefix("its ").partition(" ")
        key = same[0].rpartition(".")[2] + same[2]
        shortest[key] = min(difference, shortest.get(key, difference), key=len)
    return list(shortest.values())


def _shorten_json(value: Any) -> str:
    """Return one side of a difference as JSON, cut after 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"
