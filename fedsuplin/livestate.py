"""What live clients and servers share: which algorithms can be live, and how they are saved and loaded, as checkpoints are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsuplin_ext.live import Live
from fedsuplin_ext.state import restore, state_of

from .algorithm import Algorithm
from .checkpoint import differences, read, write
from .errors import InvalidInput
from .result import plain
from .version import __version__


def check_live(algorithm: Algorithm) -> None:
    if not isinstance(algorithm, Algorithm):
        raise InvalidInput(f"a live client or server needs an Algorithm, which fsl.make gives, not {algorithm!r}")
    if algorithm.kernel == "phased" or algorithm.syncs == "push":
        why = "plays in phases" if algorithm.kernel == "phased" else "has a server that sends on its own"
        raise InvalidInput(f"{algorithm.name} {why}, which live clients and servers do not do")


def save_live(path: str | os.PathLike, what: str, algorithm: Algorithm, engine: Live, rest: dict[str, Any]) -> Path:
    write(Path(path), state_of(engine), {"identity": identity(what, algorithm, engine), **rest})
    return Path(path)


def load_live(
    path: str | os.PathLike, what: str, algorithm: Algorithm, begin: Callable[[dict[str, Any]], Live]
) -> dict[str, Any]:
    """Put the engine that `begin` makes into the state of the file; returns the rest of it."""
    arrays, rest = read(Path(path))
    try:
        engine = begin(rest) if rest["identity"]["what"] == what else None
        ours = None if engine is None else identity(what, algorithm, engine)
        told = (
            [f"it is a {rest['identity']['what']}'s, not a {what}'s"] if engine is None else differences(rest["identity"], ours)
        )
        if told:
            raise InvalidInput(f"{path} is of another {what}: {'; '.join(told[:3])}")
        restore(engine, arrays)
    except InvalidInput:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise InvalidInput(f"{path} does not hold a {what}: {error!r}") from error
    return rest


def identity(what: str, algorithm: Algorithm, engine: Live) -> dict[str, Any]:
    parts = {"fedsuplin": __version__, "what": what, "algorithm": algorithm.spec, "kernels": engine.kernels}
    return json.loads(json.dumps(parts, default=plain))
