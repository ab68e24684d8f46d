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
    """An upload that waits to be merged. Its call may be cancelled by now."""

    client_id: int
    request: SyncRequest
    future: asyncio.Future[SyncAnswer]


class Commits:
    """Merges uploads as they arrive. Those that arrive during a commit share the next one."""

    def __init__(
        self,
        ledger: Ledger,
        work: Callable[..., Any],
        on_commit: Callable[[int, int, list[int], Position], None],
    ) -> None:
        self._ledger, self._work, self._on_commit = ledger, work, on_commit
        self._queue: list[WaitingUpload] = []
        self._task: asyncio.Task[None] | None = None

    async def sync(self, client_id: int, request: SyncRequest) -> SyncAnswer:
        """Merge an upload, and return its answer once it is on disk."""
        future: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        self._queue.append(WaitingUpload(client_id, request, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def drain(self) -> None:
        """Wait until all uploads are answered."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        """Commit batches until no upload waits."""
        try:
            while self._queue:
                batch = self._take_batch()
                for each, answer in zip(batch, await self._merge_batch(batch), strict=True):
                    resolve_calls([each.future], answer)
        finally:
            self._task = None

    async def _merge_batch(self, batch: list[WaitingUpload]) -> list[SyncAnswer | Exception]:
        """Merge a batch, and return its answers.

        If the store cannot be written, nothing was merged. After an unexpected failure uploads are
        merged one by one, so that one cannot keep the others from being merged.
        """
        try:
            found: CommitOutcome = await self._work(
                self._merge, [(each.client_id, each.request) for each in batch]
            )
        except Exception as error:
            if len(batch) == 1 or isinstance(error, sqlite3.Error | OSError):
                return [error] * len(batch)
            return [answer for each in batch for answer in await self._merge_batch([each])]
        answers, merged, known, where = found
        answered = [
            each
            for each, answer in zip(batch, answers, strict=True)
            if isinstance(answer, SyncAnswer)
        ]
        self._on_commit(
            merged, known, [each.client_id for each in answered if each.request.leaving], where
        )
        return [*answers]

    def _take_batch(self) -> list[WaitingUpload]:
        """Take one upload per client out of the queue. A repeated one waits for the next commit."""
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
        """Merge uploads in the ledger's thread.

        Returns the answers, how many were merged now and before, and the ledger's position.
        """
        ledger = self._ledger
        before = ledger.n_syncs
        answers = ledger.sync(requests)
        merged, answered = (
            ledger.n_syncs - before,
            sum(isinstance(answer, SyncAnswer) and answer.merged for answer in answers),
        )
        return answers, merged, answered - merged, (ledger.epoch, ledger.round)
