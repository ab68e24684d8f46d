"""Save and load live clients and servers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedsuplin_ext.live import Live
from fedsuplin_ext.state import restore, state_of

from .._shared.archives import decode_archive, read_archive, write_archive
from .._shared.array_checks import check_array
from .._shared.array_types import Floats
from .._shared.checks import check_finite, check_not_negative, is_whole_number
from .._shared.differences import find_differences
from .._shared.plain_data import convert_to_plain_data
from .._shared.version import __version__
from ..algorithm.algorithm import Algorithm
from ..contracts.stream import NORM_TOLERANCE
from ..errors import InvalidInput

MOST_DIFFERENCES_NAMED = 3


def save_live(
    path: str | os.PathLike[str],
    what: str,
    algorithm: Algorithm,
    engine: Live,
    rest: dict[str, Any],
) -> Path:
    """Save a live client or server (`what` is which) to a file."""
    write_archive(Path(path), *collect_live_parts(what, algorithm, engine, rest))
    return Path(path)


def load_live(
    path: str | os.PathLike[str],
    what: str,
    algorithm: Algorithm,
    begin: Callable[[dict[str, Any]], Live],
    content: bytes | None = None,
) -> dict[str, Any]:
    """Load a saved live client or server into the engine that `begin` makes; return the rest.

    `content`, if it is given, takes the place of the file. It may come from another version or
    machine, which promise the same numbers, but not to the bit.
    """
    arrays, rest = read_archive(Path(path)) if content is None else decode_archive(content, path)
    try:
        saved = rest["identity"]["what"]
        if saved != what:
            raise InvalidInput(f"{path} is of another {what}: it is a {saved}'s, not a {what}'s")
        engine = begin(rest)
        ours = identify_live(what, algorithm, engine)
        if content is not None:
            ours |= {name: rest["identity"].get(name) for name in ("fedsuplin", "kernels")}
        differences = find_differences(rest["identity"], ours)
        if differences:
            named = "; ".join(differences[:MOST_DIFFERENCES_NAMED])
            raise InvalidInput(f"{path} is of another {what}: {named}")
        restore(engine, arrays)
    except InvalidInput:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise InvalidInput(f"{path} does not hold a {what}: {error!r}") from error
    return rest


def collect_live_parts(
    what: str, algorithm: Algorithm, engine: Live, rest: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is saved of a live client or server: its arrays, and everything else."""
    return state_of(engine), {"identity": identify_live(what, algorithm, engine), **rest}


def identify_live(what: str, algorithm: Algorithm, engine: Live) -> dict[str, Any]:
    """Return what must be the same when a live client or server is saved and loaded."""
    parts = {
        "fedsuplin": __version__,
        "what": what,
        "algorithm": algorithm.spec,
        "kernels": engine.kernels,
    }
    identity: dict[str, Any] = convert_to_plain_data(parts)
    return identity


def check_saved_decision(saved: dict[str, Any], algorithm: Algorithm) -> tuple[int, Floats]:
    """Return layer and arm of a saved decision, or raise an error if no client could have it."""
    layer, x = saved["layer"], check_array("x", saved["x"], (algorithm.dim,))
    length, n_layers = np.linalg.norm(x), algorithm.n_layers
    if not is_whole_number(layer) or not 0 <= layer < n_layers or length > 1 + NORM_TOLERANCE:
        raise ValueError(f"layer {layer!r} of {n_layers}, an arm of length {length:.6g}")
    return layer, x


def check_saved_observation(saved: dict[str, Any]) -> tuple[float, float]:
    """Return weight and reward of a saved observation, or raise an error if they are not finite."""
    return check_not_negative("weight", saved["weight"]), check_finite("reward", saved["reward"])
