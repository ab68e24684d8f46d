"""The messages of a live federation and their binary form."""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._shared.arrays import AnyArray, Counts, Floats
from ..errors import InvalidInput

MAGIC, VERSION = b"FSLM", 1
HEAD = struct.Struct("<4sHH")
LARGEST_DIM, LARGEST_LAYERS = (
    1 << 15,
    1 << 10,
)  # of a message: what comes from outside must not name the memory it takes


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
            raise InvalidInput(
                f"these bytes are no message of fedsuplin, where {what} was expected"
            )
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
            raise InvalidInput(
                f"{self._what} is cut short: {size} bytes at {self._at} of {len(self._data)}"
            )
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
        return cls(
            layers, source.array("<f8", n, dim * (dim + 1) // 2), source.array("<f8", n, dim)
        )
