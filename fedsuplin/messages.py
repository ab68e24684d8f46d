"""What clients and the server of a live federation say to each other: small frozen messages, symmetric matrices packed.

Their binary form is little-endian: a head (magic, version, kind), the numbers in the order of the class, the arrays one after
the other. It is read only if every count fits and not a byte is left over. docs/federation.md has the table.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from .algorithm import Algorithm
from .arrays import AnyArray, Counts, Floats
from .errors import InvalidInput
from .problem import NORM_TOLERANCE

MAGIC, VERSION = b"FSLM", 1
HEAD = struct.Struct("<4sHH")
LARGEST_DIM, LARGEST_LAYERS = 1 << 15, 1 << 10  # of a message: what comes from outside must not name the memory it takes
ROUNDING = 1e-12  # relative to the trace: what a sum of a few ω x xᵀ can be off
SUMMING = 1e-9  # and one of very many, at most
TINY, SHORT = 1e-280, 1e-30  # a trace whose entries lose digits and say nothing, and what Δb may be then
MOST_PULLS = 1 << 48  # no sum of them leaves 64 bits
LARGEST = 1e150  # of any number in an upload: their sums stay within doubles


class Message(ABC):
    """Something with a binary form. A kind of message has a number, and says how its body is written and read."""

    kind: int

    def to_bytes(self) -> bytes:
        out = Writer()
        self._write(out)
        return HEAD.pack(MAGIC, VERSION, self.kind) + out.bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; anything else is an InvalidInput."""
        what = cls.__name__
        if len(data) < HEAD.size or data[:4] != MAGIC:
            raise InvalidInput(f"these bytes are no message of fedsuplin, where {what} was expected")
        _, version, kind = HEAD.unpack_from(data)
        if version != VERSION:
            raise InvalidInput(
                f"{what} is of version {version} of the messages, this fedsuplin speaks {VERSION}: upgrade the older side"
            )
        if kind != cls.kind:
            raise InvalidInput(f"a message of kind {kind}, where {what} ({cls.kind}) was expected")
        source = Reader(data, HEAD.size, what)
        found = cls._read(source)
        source.end()
        return found

    @abstractmethod
    def _write(self, out: Writer) -> None: ...

    @classmethod
    @abstractmethod
    def _read(cls, source: Reader) -> Self: ...


class Writer:
    """Numbers and arrays, little-endian, one after the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def put(self, form: str, *values: Any) -> None:
        self._parts.append(struct.pack("<" + form, *values))

    def array(self, values: Any, dtype: str) -> None:
        self._parts.append(np.ascontiguousarray(values, dtype).tobytes())

    def raw(self, data: bytes) -> None:
        self._parts.append(data)

    def bytes(self) -> bytes:
        return b"".join(self._parts)


class Reader:
    """What a Writer wrote. Whatever is missing or too much is told with the name of the message."""

    def __init__(self, data: bytes, at: int, what: str) -> None:
        self._data, self._at, self._what = data, at, what

    def take(self, form: str) -> tuple[Any, ...]:
        return struct.unpack("<" + form, self.raw(struct.calcsize("<" + form)))

    def array(self, dtype: str, *shape: int) -> AnyArray:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return np.frombuffer(self.raw(size), dtype).reshape(shape)

    def raw(self, size: int) -> bytes:
        if len(self._data) - self._at < size:
            raise InvalidInput(f"{self._what} is cut short: {size} bytes at {self._at} of {len(self._data)}")
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def end(self) -> None:
        if self._at != len(self._data):
            raise InvalidInput(f"{self._what} has {len(self._data) - self._at} bytes too many")

    def sizes(self, dim: int, n_layers: int) -> None:
        if not 1 <= dim <= LARGEST_DIM or n_layers > LARGEST_LAYERS:
            raise InvalidInput(
                f"{self._what} for dimension {dim} and {n_layers} layers: at most {LARGEST_DIM} and {LARGEST_LAYERS}"
            )


@dataclass(frozen=True, eq=False)
class Upload(Message):
    """What a client has gathered since its downloads: ΔA (packed upper triangle) and Δb of each layer that has something new."""

    kind = 1

    client_id: int
    layers: Counts
    grams: Floats
    """Layers × d(d+1)/2."""
    moments: Floats
    """Layers × d."""
    pulls: Counts
    """How many observations each of the layers has."""
    asking: tuple[int, ...] = ()
    """The layers whose trigger has fired."""

    def _write(self, out: Writer) -> None:
        out.put("IIHH", self.client_id, self.moments.shape[1], len(self.layers), len(self.asking))
        out.array(self.layers, "<u2")
        out.array(self.pulls, "<i8")
        out.array(self.asking, "<u2")
        out.array(self.grams, "<f8")
        out.array(self.moments, "<f8")

    @classmethod
    def _read(cls, source: Reader) -> Self:
        client_id, dim, n, n_asking = source.take("IIHH")
        source.sizes(dim, max(n, n_asking))
        layers, pulls = source.array("<u2", n).astype(np.int64), source.array("<i8", n)
        asking = tuple(source.array("<u2", n_asking).tolist())
        grams, moments = source.array("<f8", n, dim * (dim + 1) // 2), source.array("<f8", n, dim)
        return cls(client_id, layers, grams, moments, pulls, asking)


@dataclass(frozen=True, eq=False)
class Download(Message):
    """What the server knows: A (packed upper triangle) and b of some layers."""

    kind = 2

    layers: Counts
    grams: Floats
    moments: Floats

    def _write(self, out: Writer) -> None:
        out.put("IH", self.moments.shape[1], len(self.layers))
        out.array(self.layers, "<u2")
        out.array(self.grams, "<f8")
        out.array(self.moments, "<f8")

    @classmethod
    def _read(cls, source: Reader) -> Self:
        dim, n = source.take("IH")
        source.sizes(dim, n)
        layers = source.array("<u2", n).astype(np.int64)
        return cls(layers, source.array("<f8", n, dim * (dim + 1) // 2), source.array("<f8", n, dim))


def only(upload: Upload, layers: Collection[int]) -> Upload:
    """What an upload has of some layers."""
    these = [layer in layers for layer in upload.layers.tolist()]
    if all(these):
        return upload
    parts = {name: getattr(upload, name)[these] for name in ("layers", "grams", "moments", "pulls")}
    return Upload(upload.client_id, **parts, asking=upload.asking)


# --- matrices ---------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=16)
def triangle(dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the upper triangle, row after row."""
    return np.triu_indices(dim)


def packed(matrix: Floats) -> Floats:
    """The upper triangle, row after row.

    >>> packed(np.array([[1.0, 2.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    return matrix[triangle(len(matrix))]


@functools.lru_cache(maxsize=16)
def diagonal(dim: int) -> NDArray[np.intp]:
    """Where the diagonal is in a packed upper triangle.

    >>> diagonal(3).tolist()
    [0, 3, 5]
    """
    return np.cumsum([0, *range(dim, 1, -1)])


def unpacked(upper: Floats, dim: int) -> Floats:
    """The matrix of which this is the upper triangle, below the diagonal 0; or several, one for each row."""
    matrix = np.zeros((*upper.shape[:-1], dim, dim))
    rows, columns = triangle(dim)
    matrix[..., rows, columns] = upper
    return matrix


def together(parts: list[tuple[int, Floats, Floats]], dim: int) -> dict[str, AnyArray]:
    """(layer, matrix, vector) of several layers as the fields of a message."""
    return {
        "layers": np.array([layer for layer, _, _ in parts], np.int64),
        "grams": np.array([packed(matrix) for _, matrix, _ in parts]).reshape(len(parts), dim * (dim + 1) // 2),
        "moments": np.array([vector for _, _, vector in parts]).reshape(len(parts), dim),
    }


# --- what arrives is looked at --------------------------------------------------------------------------------------------------


def check_message(message: Upload | Download, kind: type, dim: int, n_layers: int) -> None:
    """Layers that there are, each once, arrays that fit, and nothing but finite numbers."""
    if not isinstance(message, kind):
        raise InvalidInput(f"it must be an object of type {kind.__name__}, not {type(message).__name__}")
    what, n = kind.__name__.lower(), np.size(message.layers) if isinstance(message.layers, np.ndarray) else 0
    if n > n_layers:  # before any of it is looked at: an array may be large by its strides alone
        raise InvalidInput(f"the {what} has {n} layers, there are {n_layers}: is it for another algorithm?")
    shapes = {"layers": ((n,), "iu"), "grams": ((n, dim * (dim + 1) // 2), "f"), "moments": ((n, dim), "f")}
    if kind is Upload:
        shapes["pulls"] = ((n,), "iu")
    for name, (shape, kinds) in shapes.items():
        values = getattr(message, name)
        is_array = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)  # what is masked out is no number
        if not is_array or values.shape != shape or values.dtype.kind not in kinds:
            found = f"{values.dtype} of shape {values.shape}" if is_array else type(values).__name__
            raise InvalidInput(
                f"the {what}'s {name} must have the shape {shape}, of {'whole ' * (kinds == 'iu')}numbers, not {found}: "
                "is it for another algorithm?"
            )
        if kinds == "f" and not np.isfinite(values).all():
            raise InvalidInput(f"the {what}'s {name} hold NaN or infinity")
    layers = message.layers.tolist()
    if len(set(layers)) != n or n and not 0 <= min(layers) <= max(layers) < n_layers:
        raise InvalidInput(f"the {what}'s layers must be different ones of 0 to {n_layers - 1}, not {layers}")


def check_upload(upload: Upload, algorithm: Algorithm) -> None:
    """Could a client of this algorithm have gathered this? Refused is what no pulls could have given."""
    dim, n_layers, n_clients = algorithm.dim, algorithm.n_layers, algorithm.n_clients
    check_message(upload, Upload, dim, n_layers)
    if not is_whole(upload.client_id) or not 0 <= upload.client_id < n_clients:
        raise InvalidInput(f"the upload's client_id must be a whole number from 0 to {n_clients - 1}, not {upload.client_id!r}")
    asking = upload.asking
    if not isinstance(asking, tuple | list) or not all(is_whole(layer) and 0 <= layer < n_layers for layer in asking):
        raise InvalidInput(f"the upload's asking must be layers of 0 to {n_layers - 1}, not {asking!r}")
    with np.errstate(over="ignore"):  # what a double can't hold becomes infinity, and is too large
        upload = dataclasses.replace(
            upload,
            grams=np.asarray(upload.grams, np.float64),
            moments=np.asarray(upload.moments, np.float64),
            pulls=np.asarray(upload.pulls, np.int64),
        )
    if max(np.abs(values).max(initial=0) for values in (upload.grams, upload.moments)) > LARGEST:
        raise InvalidInput(f"the upload has numbers beyond {LARGEST:g}, which no sum of such uploads could hold")
    traces = upload.grams[:, diagonal(dim)].sum(axis=1)
    _check_trace(upload, traces, algorithm)
    _check_definite(upload, traces, dim)


def _check_trace(upload: Upload, traces: Floats, algorithm: Algorithm) -> None:
    """tr ΔA = Σ ω ‖x‖² ≤ pulls × the largest weight. A client may well have played beyond the horizon."""
    pulls = upload.pulls
    if len(pulls) and (pulls.min() < 1 or pulls.max() > MOST_PULLS):
        raise InvalidInput(f"the upload's pulls must be from 1 to {MOST_PULLS}, not {pulls.tolist()}")
    most = pulls * largest_weight(algorithm) * (1 + NORM_TOLERANCE) ** 2 * (1 + SUMMING)
    for layer, trace, bound in zip(upload.layers.tolist(), traces.tolist(), most.tolist(), strict=True):
        if not 0 <= trace <= bound:
            raise InvalidInput(f"layer {layer} of the upload has the trace {trace:.6g}; its pulls can give 0 to {bound:.6g}")


def _check_definite(upload: Upload, traces: Floats, dim: int) -> None:
    """ΔA + ε tr(ΔA) I is positive definite if ΔA is positive semi-definite up to rounding; and where ΔA is 0, so is Δb, but for
    contexts so short that their squares are no numbers any more."""
    slack = np.minimum(ROUNDING + (8 * dim + upload.pulls) * np.finfo(float).eps, SUMMING)  # one arm often rounds to one side
    shifted = np.array(upload.grams, np.float64, order="C")
    shifted[:, diagonal(dim)] += (slack * traces)[:, None]
    for row, (layer, trace) in enumerate(zip(upload.layers.tolist(), traces.tolist(), strict=True)):
        if trace < TINY:
            if np.abs(upload.grams[row]).max() > TINY:  # of a positive semi-definite matrix no entry is larger than the trace
                raise InvalidInput(NOT_DEFINITE)
            if np.abs(upload.moments[row]).max() > SHORT:
                raise InvalidInput(f"layer {layer} of the upload has a moment, and no matrix to go with it")
        elif lapack.dpptrf(dim, shifted[row], lower=1)[1]:  # LAPACK packs columns: their lower triangle is our upper one
            raise InvalidInput(NOT_DEFINITE)


NOT_DEFINITE = "the upload has a matrix that is not positive semi-definite, as sums of ω x xᵀ are"


def largest_weight(algorithm: Algorithm) -> float:
    """What one observation can count at most: the weighting says so, or nothing is known."""
    return float(getattr(algorithm.weighting, "largest_weight", np.inf))


def is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
