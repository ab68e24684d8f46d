"""Calls that wait for an answer, which the barrier and the commits share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

Position = tuple[int, int]  # epoch and round: both only grow
LedgerWork = Callable[..., Awaitable[Any]]
PendingCall = asyncio.Future[Any]  # a call that waits: for the answer of its kind, or for None


def resolve_calls(futures: Iterable[PendingCall], answer: Any) -> None:
    """An answer to calls that wait, or an exception; calls that were given up are left alone."""
    for future in futures:
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
