"""Merge uploads as they arrive, several in one commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

from .ledger import Ledger
from .pending_calls import Position, resolve_calls
from .refusals import Refused
from .wire import SyncAnswer, SyncRequest

LARGEST_COMMIT = 256  # uploads
CommitOutcome = tuple[list[SyncAnswer | Refused], int, int, Position]


class WaitingUpload(NamedTuple):
    """An upload that waits to be merged; its call may have been given up."""

    client_id: int
    request: SyncRequest
    future: asyncio.Future[SyncAnswer]


class Commits:
    """Uploads that are merged as they come: those that arrive while a commit is under way go into the next one together."""

    def __init__(
        self,
        ledger: Ledger,
        work: Callable[..., Any],
        committed: Callable[[int, int, list[int], Position], None],
    ) -> None:
        self._ledger, self._work, self._committed = ledger, work, committed
        self._queue: list[WaitingUpload] = []
        self._task: asyncio.Task[None] | None = None

    async def sync(self, client_id: int, request: SyncRequest) -> SyncAnswer:
        future: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._queue.append(WaitingUpload(client_id, request, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def drained(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while self._queue:
                batch = self._next()
                for each, answer in zip(batch, await self._answers(batch), strict=True):
                    resolve_calls([each.future], answer)
        finally:
            self._task = None

    async def _answers(self, batch: list[WaitingUpload]) -> list[SyncAnswer | Exception]:
        """If the store can't be written, nothing was merged. After a failure that nobody has foreseen it is one by one, so that
        one upload can't keep the others from being merged."""
        try:
            found: CommitOutcome = await self._work(
                self._merge, [(each.client_id, each.request) for each in batch]
            )
        except Exception as error:
            if len(batch) == 1 or isinstance(error, sqlite3.Error | OSError):
                return [error] * len(batch)
            return [answer for each in batch for answer in await self._answers([each])]
        answers, merged, known, where = found
        answered = [
            each
            for each, answer in zip(batch, answers, strict=True)
            if isinstance(answer, SyncAnswer)
        ]
        self._committed(
            merged, known, [each.client_id for each in answered if each.request.leaving], where
        )
        return [*answers]

    def _next(self) -> list[WaitingUpload]:
        """One upload of each client: a second one, sent again before the first was answered, is for the next commit."""
        batch: dict[int, WaitingUpload] = {}
        later = []
        for each in self._queue:
            if each.client_id in batch or len(batch) == LARGEST_COMMIT:
                later.append(each)
            else:
                batch[each.client_id] = each
        self._queue = later
        return list(batch.values())

    def _merge(self, requests: list[tuple[int, SyncRequest]]) -> CommitOutcome:
        """Where the ledger lives. With how many were merged, how many had been before, and where it is now."""
        ledger = self._ledger
        before = ledger.n_syncs
        answers = ledger.sync(requests)
        merged, answered = (
            ledger.n_syncs - before,
            sum(isinstance(answer, SyncAnswer) and answer.merged for answer in answers),
        )
        return answers, merged, answered - merged, (ledger.epoch, ledger.round)
