"""Read the TOML file of a sweep."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, unknown

if TYPE_CHECKING:
    import os


SECTIONS = ("policy", "problem", "seeds", "record")  # of a sweep's file


def read_sweep_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the TOML file of a sweep, and return it as keywords of `sweep`.

    It has [policy] or several [[policy]], [problem] or several [[problem]], seeds and record.
    """
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
                f"{path} has no [{section}]: "
                "`fedsuplin sweep --example` prints a file with every section"
            )
    rest: dict[str, Any] = {key: found[key] for key in ("seeds", "record") if key in found}
    return {"policies": found["policy"], "problems": found["problem"], **rest}
