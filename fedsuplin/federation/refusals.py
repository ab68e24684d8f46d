"""Why a request is refused: the exception, its texts, and which statuses are final."""

from __future__ import annotations

from ..errors import FedsuplinError


class Refused(FedsuplinError):
    """A request was refused and changed nothing. `reason` is one word for why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


OTHER_ALGORITHM = "this client has another algorithm, or other parameters, than this server"
STOPPING = "the server is stopping: try again"
FINAL_STATUSES = {
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "UNIMPLEMENTED",
}  # another attempt would fail too
STATUS_MEANINGS = {
    "UNAUTHENTICATED": "its token or certificate is missing or not valid",
    "PERMISSION_DENIED": "its token or certificate is another client's",
    "INVALID_ARGUMENT": "it could not read the message, or no client could have sent it",
    "FAILED_PRECONDITION": "another process has taken its place, or it has another algorithm",
    "UNIMPLEMENTED": "no federation of this version is at this address",
}
