"""Many runs: grids of policies and of problems × seeds, in threads, processes or on a cluster, to one tidy table.

A grid is a dict whose lists are axes: {"name": ["async", "sync"], "alpha_scale": [0.1, 0.3]} is four policies. What was run is
kept in a journal, so a sweep that was stopped or killed goes on where it was, and one with more seeds runs only those.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, unknown

if TYPE_CHECKING:
    import os


SECTIONS = ("policy", "problem", "seeds", "record")  # of a sweep's file


def read_sweep_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A sweep's TOML file as keywords of `sweep`: [policy] or several [[policy]], [problem] or [[problem]], seeds, record."""
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None
    for section in found:
        if section not in SECTIONS:
            raise unknown(f"section of {path}", section, SECTIONS)
    for section in ("policy", "problem"):
        if section not in found:
            raise InvalidInput(
                f"{path} has no [{section}]: `fedsuplin sweep --example` prints a file that has all there can be"
            )
    rest: dict[str, Any] = {key: found[key] for key in ("seeds", "record") if key in found}
    return {"policies": found["policy"], "problems": found["problem"], **rest}
