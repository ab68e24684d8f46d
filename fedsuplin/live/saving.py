"""Saving and loading clients and servers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsuplin_ext.live import Live
from fedsuplin_ext.state import restore, state_of

from .._shared.archives import decode_archive, read_archive, write_archive
from .._shared.differences import find_differences
from .._shared.plain_data import convert_to_plain_data
from .._shared.version import __version__
from ..algorithm.algorithm import Algorithm
from ..errors import InvalidInput


def save_live(
    path: str | os.PathLike[str],
    what: str,
    algorithm: Algorithm,
    engine: Live,
    rest: dict[str, Any],
) -> Path:
    write_archive(Path(path), *collect_live_parts(what, algorithm, engine, rest))
    return Path(path)


def load_live(
    path: str | os.PathLike[str],
    what: str,
    algorithm: Algorithm,
    begin: Callable[[dict[str, Any]], Live],
    content: bytes | None = None,
) -> dict[str, Any]:
    """Put the engine that `begin` makes into the state of the file; returns the rest of it. `content`, if it is given, is what
    was in a file once; that may have been another version or machine, which promise the same numbers, but not to the bit."""
    arrays, rest = read_archive(Path(path)) if content is None else decode_archive(content, path)
    try:
        if rest["identity"]["what"] != what:
            raise InvalidInput(
                f"{path} is of another {what}: it is a {rest['identity']['what']}'s, not a {what}'s"
            )
        engine = begin(rest)
        ours = identify_live(what, algorithm, engine)
        if content is not None:
            ours |= {name: rest["identity"].get(name) for name in ("fedsuplin", "kernels")}
        told = find_differences(rest["identity"], ours)
        if told:
            raise InvalidInput(f"{path} is of another {what}: {'; '.join(told[:3])}")
        restore(engine, arrays)
    except InvalidInput:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise InvalidInput(f"{path} does not hold a {what}: {error!r}") from error
    return rest


def collect_live_parts(
    what: str, algorithm: Algorithm, engine: Live, rest: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the rest of what is saved."""
    return state_of(engine), {"identity": identify_live(what, algorithm, engine), **rest}


def identify_live(what: str, algorithm: Algorithm, engine: Live) -> dict[str, Any]:
    parts = {
        "fedsuplin": __version__,
        "what": what,
        "algorithm": algorithm.spec,
        "kernels": engine.kernels,
    }
    plain: dict[str, Any] = convert_to_plain_data(parts)
    return plain
