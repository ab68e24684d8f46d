"""Where two pieces of plain data differ, in words."""

from __future__ import annotations

import json
from typing import Any


def find_differences(theirs: Any, ours: Any, name: str = "") -> list[str]:
    """Where two pieces of plain data differ, in words.

    >>> differences({"problem": {"seed": 1}, "horizon": 5}, {"problem": {"seed": 2}, "horizon": 5})
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


def keep_shortest_names(told: list[str]) -> list[str]:
    """A keyword that several parts have, and that is another in all of them, under its shortest name alone.

    >>> once(["its algorithm.horizon is 5, not 6", "its horizon is 5, not 6"])
    ['its horizon is 5, not 6']
    """
    shortest: dict[str, str] = {}
    for difference in told:
        same = difference.removeprefix("its ").partition(" ")
        key = same[0].rpartition(".")[2] + same[2]
        shortest[key] = min(difference, shortest.get(key, difference), key=len)
    return list(shortest.values())


def _shorten_json(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"
