"""Checkpoints: a run in a file, from which it goes on as if it had never stopped, to the bit.

The file is a line that says what it is, a line with the SHA-256 of all that follows, and a NumPy .npz: arrays, and under "json"
the rest. Nothing in it is ever executed. It is written beside itself first and put in place when it is whole, so there is
always a whole one; whatever else is found under its name is refused and left alone. docs/checkpoints.md describes it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import AnyArray
from .errors import InvalidInput
from .files import whole
from .result import plain
from .setting import positive_integer
from .version import __version__

MAGIC = b"fedsuplin checkpoint, format 1\n"
SECONDS = 60.0  # between checkpoints, where nobody says how many pulls
ARRAY = "array:"  # a value in the JSON that is kept among the arrays


def write(path: Path, arrays: Mapping[str, AnyArray], rest: Mapping[str, Any]) -> None:
    """Replace the file in one step. A failure on the way leaves the old one as it was."""
    content = to_bytes(arrays, rest)
    with whole(path, "wb", sync=True) as file:
        file.write(content)


def to_bytes(arrays: Mapping[str, AnyArray], rest: Mapping[str, Any]) -> bytes:
    """What is in the file."""
    body = io.BytesIO()
    rest, arrays = without_arrays(rest, dict(arrays))
    told: dict[str, Any] = {"json": np.frombuffer(json.dumps(rest, default=plain).encode(), np.uint8), **arrays}
    np.savez(body, **told)  # Any: one of the names could be its allow_pickle, for all that a type checker knows
    content = body.getbuffer()
    return b"".join((MAGIC, hashlib.sha256(content).hexdigest().encode(), b"\n", content))


def read(path: Path) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Arrays and the rest of a checkpoint that is whole; anything else is refused."""
    return from_bytes(path.read_bytes(), path)


def from_bytes(content: bytes, path: str | os.PathLike[str]) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """The same from the bytes; `path` says where they were found."""
    if not content.startswith(MAGIC):
        known = MAGIC.partition(b"format")[0]
        what = "is of another format" if content.startswith(known) else "is not a checkpoint of fedsuplin"
        raise InvalidInput(f"{path} {what}; it was left as it is: give another name, or remove it")
    digest, _, body = content[len(MAGIC) :].partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise InvalidInput(f"{path} is damaged or cut short; it was left as it is: remove it to begin anew")
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name != "json"}
            rest = json.loads(file["json"].tobytes())
        return arrays, with_arrays(rest, arrays)
    except Exception as error:  # zip, NumPy and JSON each have their own for bytes that are not theirs
        raise InvalidInput(f"{path} does not hold what a checkpoint does ({error}); it was left as it is") from None


def without_arrays(value: Any, arrays: dict[str, AnyArray]) -> tuple[Any, dict[str, AnyArray]]:
    """Arrays anywhere in plain data, moved to those that are kept as such."""
    if isinstance(value, Mapping):
        return {key: without_arrays(each, arrays)[0] for key, each in value.items()}, arrays
    if isinstance(value, (list, tuple)):
        return [without_arrays(each, arrays)[0] for each in value], arrays
    if isinstance(value, np.ndarray):
        name = f"{ARRAY}{len(arrays)}"
        arrays[name] = value
        return name, arrays
    return value, arrays


def with_arrays(value: Any, arrays: Mapping[str, AnyArray]) -> Any:
    if isinstance(value, dict):
        return {key: with_arrays(each, arrays) for key, each in value.items()}
    if isinstance(value, list):
        return [with_arrays(each, arrays) for each in value]
    return arrays[value] if isinstance(value, str) and value.startswith(ARRAY) else value


class Keeper:
    """Decides when a run is written to its file, and does it."""

    def __init__(self, path: str | os.PathLike[str], every: int | None, identity: Mapping[str, Any]) -> None:
        self.path, self._every = Path(path), None if every is None else positive_integer("every", every)
        self._identity = json.loads(json.dumps({"fedsuplin": __version__, **identity}, default=plain))
        self._last, self._written_at = time.monotonic(), 0
        if not self.path.parent.is_dir():
            raise InvalidInput(f"checkpoint={str(path)!r}: there is no folder {self.path.parent}")

    def load(self) -> tuple[dict[str, AnyArray], dict[str, Any]] | None:
        """What is in the file, if it is there, and of this very run."""
        if not self.path.exists():
            return None
        arrays, rest = read(self.path)
        told = once(differences(rest["identity"], self._identity))
        if told:
            raise InvalidInput(
                f"{self.path} is of another run: {'; '.join(told[:3])}. It was left as it is: give another name, or remove it"
            )
        return arrays, rest

    def resumed(self, played: int) -> None:
        """The file holds the run up to there."""
        self._written_at = played

    def room(self, played: int) -> int | None:
        """How many pulls until the next checkpoint; None if the clock decides."""
        return None if self._every is None else self._every - played % self._every

    def due(self, played: int) -> bool:
        if self._every is not None:
            return played % self._every == 0
        return time.monotonic() - self._last >= SECONDS

    def write(self, played: int, arrays: Mapping[str, AnyArray], rest: Mapping[str, Any]) -> None:
        if played == self._written_at:
            return
        write(self.path, arrays, {"identity": self._identity, **rest})
        self._last, self._written_at = time.monotonic(), played


def differences(theirs: Any, ours: Any, name: str = "") -> list[str]:
    """Where two pieces of plain data differ, in words.

    >>> differences({"problem": {"seed": 1}, "horizon": 5}, {"problem": {"seed": 2}, "horizon": 5})
    ['its problem.seed is 1, not 2']
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = dict.fromkeys([*ours, *theirs])
        return [each for key in keys for each in differences(theirs.get(key), ours.get(key), f"{name}.{key}".lstrip("."))]
    return [] if theirs == ours else [f"its {name} is {short(theirs)}, not {short(ours)}"]


def once(told: list[str]) -> list[str]:
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


def short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"
