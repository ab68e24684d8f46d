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
ANY_ALGORITHM = bytes(FINGERPRINT_BYTES)  # the fingerprint of a client that plays whatever it gets
ASKING_GENERATION = 0  # the generation of a join that only asks how many sessions there were
NO_SEQUENCE = 0  # before the first upload of a session, which has number 1
LARGEST_SPEC = 1 << 20


@dataclass(frozen=True)
class JoinRequest(Message):
    """A client begins a session, continues it, or asks which one comes next."""

    kind = 10

    client_id: int
    session: bytes
    """Random bytes, kept with the client's state. A client that lost its state gets new ones."""
    fingerprint: bytes = ANY_ALGORITHM
    generation: int = 1
    """Which session of this client it is: one more than there were, so that a late join of an older
    session changes nothing. ASKING_GENERATION: no session begins, the number is only asked for."""

    def write_body(self, out: Writer) -> None:
        """Write a join request as it crosses the wire, after the head of the message."""
        out.put("IQ", self.client_id, self.generation)
        out.put_bytes(self.session)
        out.put_bytes(self.fingerprint)

    @classmethod
    def read_body(cls, source: Reader) -> Self:
        """Read a join request from the wire, after the head of the message."""
        client_id, generation = source.take("IQ")
        return cls(
            client_id,
            source.take_bytes(SESSION_BYTES),
            source.take_bytes(FINGERPRINT_BYTES),
            generation,
        )


@dataclass(frozen=True)
class JoinAnswer(Message):
    """The algorithm, and where the server is."""

    kind = 11

    spec: dict[str, Any]
    """What the algorithm is made of, as `Agreement.from_spec` takes it."""
    epoch: int
    round: int
    sequence: int
    """The last upload of this session that was merged."""
    generation: int
    """How many sessions this client has had."""
    download: Download

    def write_body(self, out: Writer) -> None:
        """Write an answer to a join as it crosses the wire, after the head of the message."""
        spec = encode_spec(self.spec)
        out.put("QQQQI", self.epoch, self.round, self.sequence, self.generation, len(spec))
        out.put_bytes(spec)
        self.download.write_body(out)

    @classmethod
    def read_body(cls, source: Reader) -> Self:
        """Read an answer to a join from the wire, after the head of the message."""
        epoch, round_, sequence, generation, size = source.take("QQQQI")
        if size > LARGEST_SPEC:
            raise InvalidInput(
                f"JoinAnswer has a specification of {size} bytes, more than {LARGEST_SPEC}"
            )
        try:
            spec = json.loads(source.take_bytes(size))
        except (ValueError, RecursionError):
            raise InvalidInput("JoinAnswer has a specification that is not JSON") from None
        if not isinstance(spec, dict):
            raise InvalidInput("JoinAnswer has a specification that is not a JSON object")
        return cls(spec, epoch, round_, sequence, generation, Download.read_body(source))


@dataclass(frozen=True)
class SyncRequest(Message):
    """An upload of a session."""

    kind = 12

    fingerprint: bytes
    session: bytes
    sequence: int
    epoch: int
    round: int
    """Where all sync together, the round that the upload belongs to; else 0."""
    leaving: bool
    """The client's last upload: it is merged at once, in any round, and no round waits for this
    client any more."""
    upload: Upload

    @functools.cached_property
    def digest(self) -> bytes:
        """A hash of the bytes on the wire. A repeated request must have the same."""
        return hashlib.sha256(vars(self).get("received") or self.to_bytes()).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a sync request from the wire, and keep its bytes for the digest.

        There is only one way to write it.
        """
        found = super().from_bytes(data)
        vars(found)["received"] = data
        return found

    def write_body(self, out: Writer) -> None:
        """Write a sync request as it crosses the wire, after the head of the message."""
        out.put_bytes(self.fingerprint)
        out.put_bytes(self.session)
        out.put("QQQB", self.sequence, self.epoch, self.round, self.leaving)
        self.upload.write_body(out)

    @classmethod
    def read_body(cls, source: Reader) -> Self:
        """Read a sync request from the wire, after the head of the message."""
        fingerprint, session = (
            source.take_bytes(FINGERPRINT_BYTES),
            source.take_bytes(SESSION_BYTES),
        )
        sequence, epoch, round_, leaving = source.take("QQQB")
        if leaving > 1:
            raise InvalidInput(f"SyncRequest must have 0 or 1 for leaving, not {leaving}")
        return cls(
            fingerprint, session, sequence, epoch, round_, bool(leaving), Upload.read_body(source)
        )


@dataclass(frozen=True)
class SyncAnswer(Message):
    """Whether an upload was merged, and the sums after it."""

    kind = 13

    epoch: int
    round: int
    merged: bool
    """Whether the upload is in the server's sums for good. If not, its round or epoch is over, and
    the client still has all of it."""
    download: Download
    """All layers; or those asked for, where all sync together and it was merged."""

    def write_body(self, out: Writer) -> None:
        """Write an answer to a sync as it crosses the wire, after the head of the message."""
        out.put("QQB", self.epoch, self.round, self.merged)
        self.download.write_body(out)

    @classmethod
    def read_body(cls, source: Reader) -> Self:
        """Read an answer to a sync from the wire, after the head of the message."""
        epoch, round_, merged = source.take("QQB")
        return cls(epoch, round_, bool(merged), Download.read_body(source))


@dataclass(frozen=True)
class RoundRequest(Message):
    """A client is at the end of its round, where all sync together."""

    kind = 14

    fingerprint: bytes
    session: bytes
    client_id: int
    epoch: int
    round: int
    asking: tuple[int, ...]
    """The layers whose trigger has fired."""

    def write_body(self, out: Writer) -> None:
        """Write a round request as it crosses the wire, after the head of the message."""
        out.put_bytes(self.fingerprint)
        out.put_bytes(self.session)
        out.put("IQQH", self.client_id, self.epoch, self.round, len(self.asking))
        out.put_array(self.asking, "<u2")

    @classmethod
    def read_body(cls, source: Reader) -> Self:
        """Read a round request from the wire, after the head of the message."""
        fingerprint, session = (
            source.take_bytes(FINGERPRINT_BYTES),
            source.take_bytes(SESSION_BYTES),
        )
        client_id, epoch, round_, n = source.take("IQQH")
        source.check_sizes(1, n)
        return cls(
            fingerprint,
            session,
            client_id,
            epoch,
            round_,
            tuple(source.take_array("<u2", n).tolist()),
        )


@dataclass(frozen=True)
class RoundAnswer(Message):
    """What a client does after the end of its round."""

    kind = 15

    epoch: int
    round: int
    """The round that the client is in now: the next, or the same if it has to upload first."""
    wanted: bool
    """A client asks for a layer: send the upload of this round with Sync."""
    download: Download | None = None
    """The sums after the reported round, if it ended without this client. The client keeps what it
    has gathered on top of them."""

    def write_body(self, out: Writer) -> None:
        """Write an answer to a round as it crosses the wire, after the head of the message."""
        out.put("QQBB", self.epoch, self.round, self.wanted, self.download is not None)
        if self.download is not None:
            self.download.write_body(out)

    @classmethod
    def read_body(cls, source: Reader) -> Self:
        """Read an answer to a round from the wire, after the head of the message."""
        epoch, round_, wanted, late = source.take("QQBB")
        return cls(epoch, round_, bool(wanted), Download.read_body(source) if late else None)


def encode_spec(spec: dict[str, Any]) -> bytes:
    """Return a specification as it crosses the wire: JSON, always in the same form."""
    return encode_json(spec, sort_keys=True, separators=(",", ":")).encode()
