"""The requests and answers that cross the network, and their bytes."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Self

from .._shared.plain_data import encode_json
from ..errors import InvalidInput
from ..live.messages import Download, Message, Reader, Upload, Writer

SERVICE = "fedsuplin.v1.Federation"
METHODS = ("Join", "Sync", "Round")
PATHS = {method: f"/{SERVICE}/{method}" for method in METHODS}
SESSION_BYTES, FINGERPRINT_BYTES = 16, 32
ANY_ALGORITHM = bytes(
    FINGERPRINT_BYTES
)  # a client that takes the server's algorithm, whichever it is
ASKING_GENERATION = 0  # for a generation
NO_SEQUENCE = 0  # before the first upload of a session; its uploads are 1, 2, …
LARGEST_SPEC = 1 << 20


@dataclass(frozen=True)
class JoinRequest(Message):
    kind = 10

    client_id: int
    session: bytes
    """Random bytes made with a client and kept with its state: a client that was lost and made anew has others."""
    fingerprint: bytes = ANY_ALGORITHM
    generation: int = 1
    """Which session of this client it is, one more than there were; so the join of an older session that comes late changes
    nothing. ASKING: none begins, it is only asked how many there were."""

    def _write(self, out: Writer) -> None:
        out.put("IQ", self.client_id, self.generation)
        out.raw(self.session)
        out.raw(self.fingerprint)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        client_id, generation = source.take("IQ")
        return cls(client_id, source.raw(SESSION_BYTES), source.raw(FINGERPRINT_BYTES), generation)


@dataclass(frozen=True)
class JoinAnswer(Message):
    kind = 11

    spec: dict[str, Any]
    """What the algorithm is made of, as `Plan.from_spec` takes it."""
    epoch: int
    round: int
    sequence: int
    """The last upload of this session that was merged."""
    generation: int
    """How many sessions this client has had."""
    download: Download

    def _write(self, out: Writer) -> None:
        spec = encode_spec(self.spec)
        out.put("QQQQI", self.epoch, self.round, self.sequence, self.generation, len(spec))
        out.raw(spec)
        self.download._write(out)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        epoch, round_, sequence, generation, size = source.take("QQQQI")
        if size > LARGEST_SPEC:
            raise InvalidInput(
                f"JoinAnswer has a specification of {size} bytes, at most {LARGEST_SPEC} are read"
            )
        try:
            spec = json.loads(source.raw(size))
        except (ValueError, RecursionError):
            raise InvalidInput("JoinAnswer has a specification that is not JSON") from None
        if not isinstance(spec, dict):
            raise InvalidInput("JoinAnswer has a specification that is no object")
        return cls(spec, epoch, round_, sequence, generation, Download._read(source))


@dataclass(frozen=True)
class SyncRequest(Message):
    kind = 12

    fingerprint: bytes
    session: bytes
    sequence: int
    epoch: int
    round: int
    """Where all sync together, the round of which this is the upload; else 0."""
    leaving: bool
    """The client's last upload: it is merged at once, whatever round it is, and nobody waits for this client any more."""
    upload: Upload

    @functools.cached_property
    def digest(self) -> bytes:
        """Of its bytes: a second request of the same number must have the same."""
        return hashlib.sha256(vars(self).get("received") or self.to_bytes()).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        found = super().from_bytes(data)
        vars(found)["received"] = (
            data  # there is one way to write a request: for its digest it need not be written again
        )
        return found

    def _write(self, out: Writer) -> None:
        out.raw(self.fingerprint)
        out.raw(self.session)
        out.put("QQQB", self.sequence, self.epoch, self.round, self.leaving)
        self.upload._write(out)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        fingerprint, session = source.raw(FINGERPRINT_BYTES), source.raw(SESSION_BYTES)
        sequence, epoch, round_, leaving = source.take("QQQB")
        if leaving > 1:
            raise InvalidInput(f"SyncRequest must say 0 or 1 for leaving, not {leaving}")
        return cls(
            fingerprint, session, sequence, epoch, round_, bool(leaving), Upload._read(source)
        )


@dataclass(frozen=True)
class SyncAnswer(Message):
    kind = 13

    epoch: int
    round: int
    merged: bool
    """Is the upload in the server's sums, for good? If not, the round or the epoch is over, and the client still has it all."""
    download: Download
    """Where all sync together and it was merged, the layers that were asked for; else all layers."""

    def _write(self, out: Writer) -> None:
        out.put("QQB", self.epoch, self.round, self.merged)
        self.download._write(out)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        epoch, round_, merged = source.take("QQB")
        return cls(epoch, round_, bool(merged), Download._read(source))


@dataclass(frozen=True)
class RoundRequest(Message):
    kind = 14

    fingerprint: bytes
    session: bytes
    client_id: int
    epoch: int
    round: int
    asking: tuple[int, ...]
    """The layers whose trigger has fired."""

    def _write(self, out: Writer) -> None:
        out.raw(self.fingerprint)
        out.raw(self.session)
        out.put("IQQH", self.client_id, self.epoch, self.round, len(self.asking))
        out.array(self.asking, "<u2")

    @classmethod
    def _read(cls, source: Reader) -> Self:
        fingerprint, session = source.raw(FINGERPRINT_BYTES), source.raw(SESSION_BYTES)
        client_id, epoch, round_, n = source.take("IQQH")
        source.sizes(1, n)
        return cls(
            fingerprint, session, client_id, epoch, round_, tuple(source.array("<u2", n).tolist())
        )


@dataclass(frozen=True)
class RoundAnswer(Message):
    kind = 15

    epoch: int
    round: int
    """The round that the client is in now: the next one, or the same if it has to upload first."""
    wanted: bool
    """Somebody asks: send the upload of this round with Sync."""
    download: Download | None = None
    """The round that was told is over, and this is what the server knows now; the client keeps what it has gathered on top."""

    def _write(self, out: Writer) -> None:
        out.put("QQBB", self.epoch, self.round, self.wanted, self.download is not None)
        if self.download is not None:
            self.download._write(out)

    @classmethod
    def _read(cls, source: Reader) -> Self:
        epoch, round_, wanted, late = source.take("QQBB")
        return cls(epoch, round_, bool(wanted), Download._read(source) if late else None)


def encode_spec(spec: dict[str, Any]) -> bytes:
    return encode_json(spec, sort_keys=True, separators=(",", ":")).encode()


def compute_fingerprint(spec: dict[str, Any]) -> bytes:
    return hashlib.sha256(encode_spec(spec)).digest()
