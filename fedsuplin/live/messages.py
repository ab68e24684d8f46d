"""The uploads and downloads of a live federation, and their binary form."""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .._shared.array_types import AnyArray, Counts, Floats
from ..errors import InvalidInput

MAGIC, VERSION = b"FSLM", 1
HEAD = struct.Struct("<4sHH")
# Limits of a message: bytes from outside must not decide how much memory we allocate.
LARGEST_DIM, LARGEST_LAYERS = 1 << 15, 1 << 10


class Message(ABC):
    """Base class of everything with a binary form: a head with the message's kind, and a body."""

    kind: int

    def to_bytes(self) -> bytes:
        """Return the message as bytes.

        Returns
        -------
        bytes
            What :meth:`from_bytes` reads.
        """
        out = Writer()
        self.write_body(out)
        return HEAD.pack(MAGIC, VERSION, self.kind) + out.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a message from bytes.

        Parameters
        ----------
        data : bytes
            What :meth:`to_bytes` returned.

        Returns
        -------
        Message
            A message of this class.

        Raises
        ------
        InvalidInput
            If the bytes are anything else.
        """
        what = cls.__name__
        if len(data) < HEAD.size or data[:4] != MAGIC:
            raise InvalidInput(f"these bytes are not a message of fedsuplin: {what} was expected")
        _, version, kind = HEAD.unpack_from(data)
        if version != VERSION:
            raise InvalidInput(
                f"{what} has version {version} of the messages, this fedsuplin reads version "
                f"{VERSION}: upgrade the older side"
            )
        if kind != cls.kind:
            raise InvalidInput(f"a message of kind {kind}: {what} ({cls.kind}) was expected")
        source = Reader(data, HEAD.size, what)
        found = cls.read_body(source)
        source.check_end()
        return found

    @abstractmethod
    def write_body(self, out: Writer) -> None:
        """Write everything after the head of the message."""

    @classmethod
    @abstractmethod
    def read_body(cls, source: Reader) -> Self:
        """Read everything after the head of the message."""


class Writer:
    """Collects numbers and arrays as little-endian bytes, one after the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def put(self, form: str, *values: Any) -> None:
        """Append numbers to a message, in a format of `struct`."""
        self._parts.append(struct.pack("<" + form, *values))

    def put_array(self, values: Any, dtype: str) -> None:
        """Append the numbers of an array to a message, without its shape."""
        self._parts.append(np.ascontiguousarray(values, dtype).tobytes())

    def put_bytes(self, data: bytes) -> None:
        """Append bytes to a message as they are."""
        self._parts.append(data)

    def to_bytes(self) -> bytes:
        """Return the bytes of a message so far."""
        return b"".join(self._parts)


class Reader:
    """Takes apart what a Writer wrote. Errors name the message that is too short or too long."""

    def __init__(self, data: bytes, at: int, what: str) -> None:
        self._data, self._at, self._what = data, at, what

    def take(self, form: str) -> tuple[Any, ...]:
        """Return the next numbers of a message, in a format of `struct`."""
        return struct.unpack("<" + form, self.take_bytes(struct.calcsize("<" + form)))

    def take_array(self, dtype: str, *shape: int) -> AnyArray:
        """Return the next numbers of a message as an array of this shape."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        return np.frombuffer(self.take_bytes(size), dtype).reshape(shape)

    def take_bytes(self, size: int) -> bytes:
        """Return the next bytes of a message."""
        if len(self._data) - self._at < size:
            raise InvalidInput(
                f"{self._what} is cut short: {size} bytes at {self._at} of {len(self._data)}"
            )
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def check_end(self) -> None:
        """Raise an error if bytes of a message are left."""
        if self._at != len(self._data):
            raise InvalidInput(f"{self._what} has {len(self._data) - self._at} bytes too many")

    def check_sizes(self, dim: int, n_layers: int) -> None:
        """Raise an error if a message claims to be larger than any that is accepted."""
        if not 1 <= dim <= LARGEST_DIM or n_layers > LARGEST_LAYERS:
            raise InvalidInput(
                f"{self._what} for dimension {dim} and {n_layers} layers: at most {LARGEST_DIM} "
                f"and {LARGEST_LAYERS} are accepted"
            )


@dataclass(frozen=True, eq=False)
class Upload(Message):
    """What a client has gathered since its last download.

    Attributes
    ----------
    client_id : int
        The client that sends it.
    layers : array of int
        The layers with new observations.
    grams : array of float, shape (layers, d(d+1)/2)
        The packed upper triangle of ΔA, one row per layer.
    moments : array of float, shape (layers, d)
        Δb, one row per layer.
    pulls : array of int
        The number of observations in each of the layers.
    asking : tuple of int
        The layers whose trigger has fired.
    """

    kind = 1

    client_id: int
    layers: Counts
    grams: Floats
    moments: Floats
    pulls: Counts
    asking: tuple[int, ...] = ()

    def write_body(self, out: Writer) -> None:
        """Write the upload as the body of a message."""
        out.put("IIHH", self.client_id, self.moments.shape[1], len(self.layers), len(self.asking))
        out.put_array(self.layers, "<u2")
        out.put_array(self.pulls, "<i8")
        out.put_array(self.asking, "<u2")
        out.put_array(self.grams, "<f8")
        out.put_array(self.moments, "<f8")

    @classmethod
    def read_body(cls, source: Reader) -> Self:
        """Read an upload from the body of a message."""
        client_id, dim, n, n_asking = source.take("IIHH")
        source.check_sizes(dim, max(n, n_asking))
        layers, pulls = source.take_array("<u2", n).astype(np.int64), source.take_array("<i8", n)
        asking = tuple(source.take_array("<u2", n_asking).tolist())
        grams = source.take_array("<f8", n, dim * (dim + 1) // 2)
        moments = source.take_array("<f8", n, dim)
        return cls(client_id, layers, grams, moments, pulls, asking)


@dataclass(frozen=True, eq=False)
class Download(Message):
    """The server's sums of some layers.

    Attributes
    ----------
    layers : array of int
        Which layers.
    grams : array of float, shape (layers, d(d+1)/2)
        The packed upper triangle of A, one row per layer.
    moments : array of float, shape (layers, d)
        b, one row per layer.
    """

    kind = 2

    layers: Counts
    grams: Floats
    moments: Floats

    def write_body(self, out: Writer) -> None:
        """Write the download as the body of a message."""
        out.put("IH", self.moments.shape[1], len(self.layers))
        out.put_array(self.layers, "<u2")
        out.put_array(self.grams, "<f8")
        out.put_array(self.moments, "<f8")

    @classmethod
    def read_body(cls, source: Reader) -> Self:
        """Read a download from the body of a message."""
        dim, n = source.take("IH")
        source.check_sizes(dim, n)
        layers = source.take_array("<u2", n).astype(np.int64)
        return cls(
            layers,
            source.take_array("<f8", n, dim * (dim + 1) // 2),
            source.take_array("<f8", n, dim),
        )
