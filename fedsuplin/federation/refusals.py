"""Why a request is refused: the exception, its texts, and which statuses are final."""

from __future__ import annotations

from ..errors import FedsuplinError


class Refused(FedsuplinError):
    """A request that was not accepted, and changed nothing. `reason` is one word for it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


OTHER_ALGORITHM = "this client is for another algorithm, or other numbers, than this server"
STOPPING = "the server is going down: try again"
FINAL_STATUSES = {
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "UNIMPLEMENTED",
}  # no use trying again
STATUS_MEANINGS = {
    "UNAUTHENTICATED": "its token or certificate is missing or not valid",
    "PERMISSION_DENIED": "its token or certificate is another client's",
    "INVALID_ARGUMENT": "it could not read or believe what was sent",
    "FAILED_PRECONDITION": "another process has taken its place, or it is for another algorithm",
    "UNIMPLEMENTED": "there is no federation of this version at this address",
}
