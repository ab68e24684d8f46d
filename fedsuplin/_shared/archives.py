"""Arrays and JSON in one file that is checked before it is used."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput
from .arrays import AnyArray
from .files import open_atomically
from .plain_data import encode_for_json

MAGIC = b"fedsuplin checkpoint, format 1\n"
ARRAY_PREFIX = "array:"  # a value in the JSON that is kept among the arrays
ZIP_MAGIC = b"PK"  # what an .npz begins with


def write_archive(path: Path, arrays: Mapping[str, AnyArray], rest: Mapping[str, Any]) -> None:
    """Replace the file in one step. A failure on the way leaves the old one as it was."""
    content = encode_archive(arrays, rest)
    with open_atomically(path, "wb", sync=True) as file:
        file.write(content)


def encode_archive(arrays: Mapping[str, AnyArray], rest: Mapping[str, Any]) -> bytes:
    """What is in the file."""
    body = io.BytesIO()
    rest, arrays = _move_arrays_out(rest, dict(arrays))
    told: dict[str, Any] = {
        "json": np.frombuffer(json.dumps(rest, default=encode_for_json).encode(), np.uint8),
        **arrays,
    }
    np.savez(
        body, **told
    )  # Any: one of the names could be its allow_pickle, for all that a type checker knows
    content = body.getbuffer()
    return b"".join((MAGIC, hashlib.sha256(content).hexdigest().encode(), b"\n", content))


def read_archive(path: Path) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Arrays and the rest of a checkpoint that is whole; anything else is refused."""
    return decode_archive(path.read_bytes(), path)


def decode_archive(
    content: bytes, path: str | os.PathLike[str]
) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """The same from the bytes; `path` says where they were found."""
    if not content.startswith(MAGIC):
        known = MAGIC.partition(b"format")[0]
        what = (
            "is of another format"
            if content.startswith(known)
            else "is not a checkpoint of fedsuplin"
        )
        raise InvalidInput(f"{path} {what}; it was left as it is: give another name, or remove it")
    digest, _, body = content[len(MAGIC) :].partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise InvalidInput(
            f"{path} is damaged or cut short; it was left as it is: remove it to begin anew"
        )
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name != "json"}
            rest = json.loads(file["json"].tobytes())
        return arrays, _put_arrays_back(rest, arrays)
    except (
        Exception
    ) as error:  # zip, NumPy and JSON each have their own for bytes that are not theirs
        raise InvalidInput(
            f"{path} does not hold what a checkpoint does ({error}); it was left as it is"
        ) from None


def _move_arrays_out(value: Any, arrays: dict[str, AnyArray]) -> tuple[Any, dict[str, AnyArray]]:
    """Arrays anywhere in plain data, moved to those that are kept as such."""
    if isinstance(value, Mapping):
        return {key: _move_arrays_out(each, arrays)[0] for key, each in value.items()}, arrays
    if isinstance(value, (list, tuple)):
        return [_move_arrays_out(each, arrays)[0] for each in value], arrays
    if isinstance(value, np.ndarray):
        name = f"{ARRAY_PREFIX}{len(arrays)}"
        arrays[name] = value
        return name, arrays
    return value, arrays


def _put_arrays_back(value: Any, arrays: Mapping[str, AnyArray]) -> Any:
    if isinstance(value, dict):
        return {key: _put_arrays_back(each, arrays) for key, each in value.items()}
    if isinstance(value, list):
        return [_put_arrays_back(each, arrays) for each in value]
    return arrays[value] if isinstance(value, str) and value.startswith(ARRAY_PREFIX) else value
