"""Arrays and JSON in one file that is checked before it is used.

Two formats. An .npz holds the JSON among its arrays, under the name "json". A checkpoint is an
.npz after two lines: the name of the format and the SHA-256 of what follows.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import InvalidInput
from .array_types import AnyArray
from .files import open_atomically
from .plain_data import encode_json

MAGIC = b"fedsuplin checkpoint, format 2\n"
ARRAY_PREFIX = "array:"  # a value in the JSON that is kept among the arrays
ZIP_MAGIC = b"PK"  # what an .npz begins with


def write_npz(
    file: IO[bytes],
    arrays: Mapping[str, AnyArray],
    rest: Mapping[str, Any],
    *,
    compress: bool = False,
) -> None:
    """Write arrays, and the rest as JSON, to an open .npz archive."""
    save: Any = np.savez_compressed if compress else np.savez
    save(file, **{"json": np.frombuffer(encode_json(rest).encode(), np.uint8), **arrays})


def decode_npz(content: bytes) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Return the arrays and the JSON of an .npz archive, given all of its bytes.

    A damaged zip can point outside a file, so the bytes are all read first. Nothing in them is
    executed. Bytes of another kind raise whatever zipfile, NumPy or json raise for them.
    """
    if not content.startswith(ZIP_MAGIC):  # NumPy would take it for a pickle, and suggest trust
        raise ValueError("it is no .npz file")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if name != "json"}
        return arrays, dict(json.loads(file["json"].tobytes()))


def write_archive(path: Path, arrays: Mapping[str, AnyArray], rest: Mapping[str, Any]) -> None:
    """Write an archive in one step. If that fails, an older file stays as it was."""
    content = encode_archive(arrays, rest)
    with open_atomically(path, "wb", sync=True) as file:
        file.write(content)


def encode_archive(arrays: Mapping[str, AnyArray], rest: Mapping[str, Any]) -> bytes:
    """Return the bytes of an archive. Arrays inside `rest` are kept among the arrays."""
    body = io.BytesIO()
    rest, arrays = _move_arrays_out(rest, dict(arrays))
    write_npz(body, arrays, rest)
    content = body.getbuffer()
    return b"".join((MAGIC, hashlib.sha256(content).hexdigest().encode(), b"\n", content))


def read_archive(path: Path) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Read an archive: return its arrays and the rest. A file that is not one is refused."""
    return decode_archive(path.read_bytes(), path)


def decode_archive(
    content: bytes, path: str | os.PathLike[str]
) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Return the arrays and the rest of an archive, given its bytes and, for errors, its path."""
    if not content.startswith(MAGIC):
        any_format = MAGIC.partition(b"format")[0]
        what = (
            "is of another format"
            if content.startswith(any_format)
            else "is not a checkpoint of fedsuplin"
        )
        raise InvalidInput(f"{path} {what}; it was left as it is: give another name, or remove it")
    digest, _, body = content[len(MAGIC) :].partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise InvalidInput(
            f"{path} is damaged or cut short; it was left as it is: remove it to begin anew"
        )
    try:
        arrays, rest = decode_npz(body)
        return arrays, _put_arrays_back(rest, arrays)
    except Exception as error:  # zipfile, NumPy and json each raise their own
        raise InvalidInput(
            f"{path} does not hold what a checkpoint does ({error}); it was left as it is"
        ) from None


def _move_arrays_out(value: Any, arrays: dict[str, AnyArray]) -> tuple[Any, dict[str, AnyArray]]:
    """Replace the arrays in an archive's plain data by names, and add them to `arrays`."""
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
    """Replace the names that `_move_arrays_out` gave by the arrays of the archive."""
    if isinstance(value, dict):
        return {key: _put_arrays_back(each, arrays) for key, each in value.items()}
    if isinstance(value, list):
        return [_put_arrays_back(each, arrays) for each in value]
    return arrays[value] if isinstance(value, str) and value.startswith(ARRAY_PREFIX) else value
