"""What live clients and servers share: which algorithms can be live, and how they are saved and loaded, as checkpoints are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsuplin_ext.live import Live
from fedsuplin_ext.state import restore, state_of

from . import checkpoint
from .algorithm import Algorithm
from .checkpoint import differences
from .doubling import Doubling
from .errors import InvalidInput
from .result import plain
from .version import __version__


def check_live(algorithm: Algorithm | Doubling) -> None:
    if isinstance(algorithm, Doubling):
        raise InvalidInput(
            "a live client or server plays one epoch of a Doubling: give it doubling.algorithm(epoch), "
            "or use fedsuplin serve and fsl.connect, which go from epoch to epoch"
        )
    if not isinstance(algorithm, Algorithm):
        raise InvalidInput(f"a live client or server needs an Algorithm, which fsl.make gives, not {algorithm!r}")
    if algorithm.kernel == "phased" or algorithm.syncs == "push":
        why = "plays in phases" if algorithm.kernel == "phased" else "has a server that sends on its own"
        raise InvalidInput(f"{algorithm.name} {why}, which live clients and servers do not do")


def save_live(path: str | os.PathLike[str], what: str, algorithm: Algorithm, engine: Live, rest: dict[str, Any]) -> Path:
    checkpoint.write(Path(path), *live_parts(what, algorithm, engine, rest))
    return Path(path)


def live_parts(what: str, algorithm: Algorithm, engine: Live, rest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the rest of what is saved."""
    return state_of(engine), {"identity": identity(what, algorithm, engine), **rest}


def load_live(
    path: str | os.PathLike[str],
    what: str,
    algorithm: Algorithm,
    begin: Callable[[dict[str, Any]], Live],
    content: bytes | None = None,
) -> dict[str, Any]:
    """Put the engine that `begin` makes into the state of the file; returns the rest of it. `content`, if it is given, is what
    was in a file once; that may have been another version or machine, which promise the same numbers, but not to the bit."""
    arrays, rest = checkpoint.read(Path(path)) if content is None else checkpoint.from_bytes(content, path)
    try:
        if rest["identity"]["what"] != what:
            raise InvalidInput(f"{path} is of another {what}: it is a {rest['identity']['what']}'s, not a {what}'s")
        engine = begin(rest)
        ours = identity(what, algorithm, engine)
        if content is not None:
            ours |= {name: rest["identity"].get(name) for name in ("fedsuplin", "kernels")}
        told = differences(rest["identity"], ours)
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
    told: dict[str, Any] = json.loads(json.dumps(parts, default=plain))
    return told
