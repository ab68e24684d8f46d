"""Where a client is in the protocol: what its store keeps besides the client itself."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from .wire import NO_SEQUENCE, SESSION_BYTES, SyncRequest


def make_session() -> bytes:
    """Return the random name of a new session, for the state of a link."""
    return secrets.token_bytes(SESSION_BYTES)


@dataclass
class LinkState:
    """Session, epoch, round and uploads of a client, as far as they outlast its process."""

    session: bytes = field(default_factory=make_session)
    epoch: int = 0
    round: int = 0
    sequence: int = NO_SEQUENCE
    """The number of the last upload that was made."""
    frozen: bytes | None = None
    """A SyncRequest without an answer, repeated as it is until it has one."""
    leaves: bool = False
    """Whether that is the last upload of a client that leaves."""
    at_end: bool = False
    """Where all sync together: whether rewards were observed since the last report was made."""
    first_id: int = 0
    """The id of the first decision of this epoch."""
    observed_before: int = 0
    """Observations in earlier epochs."""

    def to_facts(self, *, at_end: bool) -> dict[str, Any]:
        """Return the rows that the store keeps, by name."""
        return {
            "session": self.session,
            "epoch": self.epoch,
            "round": self.round,
            "at_end": int(at_end),
            "sequence": self.sequence,
            "frozen": self.frozen,
            "first": self.first_id,
            "observed_before": self.observed_before,
        }

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> LinkState:
        """Return the state that a store kept, or raise an error if there is none in it."""
        session = bytes(facts["session"])
        if len(session) != SESSION_BYTES:
            raise ValueError(f"a session of {len(session)} bytes")
        frozen = None if facts["frozen"] is None else bytes(facts["frozen"])
        return cls(
            session=session,
            epoch=int(facts["epoch"]),
            round=int(facts["round"]),
            sequence=int(facts["sequence"]),
            frozen=frozen,
            leaves=frozen is not None and SyncRequest.from_bytes(frozen).leaving,
            at_end=bool(facts["at_end"]),
            first_id=int(facts["first"]),
            observed_before=int(facts["observed_before"]),
        )
