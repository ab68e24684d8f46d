"""Answer the calls that wait in a barrier or for a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

Position = tuple[int, int]  # epoch and round: both only grow
LedgerWork = Callable[..., Awaitable[Any]]
PendingCall = asyncio.Future[Any]  # a waiting call; None: check again


def resolve_calls(futures: Iterable[PendingCall], answer: Any) -> None:
    """Give pending calls an answer or an exception. Cancelled calls are left alone."""
    for future in futures:
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
