"""Check the requests of clients against what a ledger knows."""

from __future__ import annotations

from ..algorithm.algorithm import Algorithm
from ..errors import InvalidInput
from ..live.uploads import check_upload
from .ledger_tables import Member
from .refusals import Refused
from .wire import NO_SEQUENCE, RoundRequest, SyncRequest

LARGEST_SEQUENCE = 1 << 62
MOST_TOTAL_PULLS = 1 << 62  # of all clients: one batch more, and they still fit 64 bits


def check_identity(client_id: int, named: int) -> None:
    """Refuse a request of one client that names another."""
    if named != client_id:
        raise Refused("identity", f"client {client_id} can't act for client {named}")


def check_sequence(sequence: int) -> None:
    """Refuse an upload with a number that no client gives."""
    if not NO_SEQUENCE < sequence < LARGEST_SEQUENCE:
        raise Refused("malformed", f"uploads are numbered from 1, not {sequence}")


def check_repeat(client_id: int, request: SyncRequest, member: Member) -> None:
    """Refuse an upload with a known number unless it is the last one that was merged."""
    if request.sequence < member.sequence:
        raise Refused(
            "session",
            f"upload {request.sequence} of client {client_id} is old: "
            f"{member.sequence} came after it",
        )
    if request.digest != member.digest:
        raise Refused(
            "session",
            f"upload {request.sequence} of client {client_id} was merged before with other content",
        )


def check_gap(client_id: int, request: SyncRequest, member: Member, algorithm: Algorithm) -> None:
    """Refuse an upload if uploads before it are missing.

    Where clients sync one by one, a number is left out only if the epoch of that upload was over.
    Otherwise the server that merged the missing uploads knew more than this one.
    """
    if (
        algorithm.syncs == "one"
        and request.epoch == member.epoch
        and request.sequence != member.sequence + 1
    ):
        raise Refused(
            "session",
            f"upload {request.sequence} of client {client_id} comes after {member.sequence}: "
            "uploads in between are missing. Was an older copy of the server's store put back?",
        )


def check_content(request: SyncRequest, algorithm: Algorithm, total_pulls: int) -> None:
    """Check the content of a request: refuse an upload that no client could have gathered."""
    try:
        check_upload(request.upload, algorithm)
    except InvalidInput as error:
        raise Refused("implausible", str(error)) from None
    if total_pulls + int(request.upload.pulls.sum()) > MOST_TOTAL_PULLS:
        raise Refused(
            "implausible", f"with these pulls there would be more than {MOST_TOTAL_PULLS}"
        )


def is_round_over(
    request: SyncRequest | RoundRequest, algorithm: Algorithm, current_round: int
) -> bool:
    """Check the round of a request: return whether it is over; refuse one that cannot be."""
    together = algorithm.syncs == "all"
    if isinstance(request, RoundRequest):
        if not together:
            raise Refused(
                "malformed", f"the clients of {algorithm.name} sync one by one: there are no rounds"
            )
        if any(layer >= algorithm.n_layers for layer in request.asking):
            raise Refused("implausible", f"layers {request.asking}: there are {algorithm.n_layers}")
    elif not together or request.leaving:
        return False
    if request.round > current_round:
        raise Refused(
            "malformed", f"round {request.round} has not begun: it is round {current_round}"
        )
    return request.round < current_round
