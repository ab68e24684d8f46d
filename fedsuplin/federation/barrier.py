"""The rounds of clients that sync together: who is waited for, and when a round ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from .ledger import Ledger
from .pending_calls import LedgerWork, PendingCall, Position, resolve_calls
from .refusals import STOPPING, Refused
from .telemetry import log_event
from .wire import RoundAnswer, RoundRequest, SyncAnswer, SyncRequest

ClosedRound = tuple[dict[int, SyncAnswer | Refused] | None, Position]
Answer = TypeVar("Answer", RoundAnswer, SyncAnswer)


class Barrier:
    """The rounds of a ledger whose algorithm syncs all clients at once."""

    def __init__(
        self,
        ledger: Ledger,
        work: LedgerWork,
        deadline: float,
        closed: Callable[[int, Position], None] = lambda n_merged, where: None,
    ) -> None:
        self._ledger, self._work, self._deadline, self._told_closed = ledger, work, deadline, closed
        self._where: Position = (ledger.epoch, ledger.round)
        self._expected = set(range(ledger.algorithm.n_clients))  # who is waited for
        self._joining: set[int] = set()  # who will be, from the next round on
        self._reports: dict[int, RoundRequest] = {}
        self._asked: set[int] | None = None  # layers; None in the first phase
        self._uploads: dict[int, SyncRequest] = {}
        self._waiting: dict[int, PendingCall] = {}  # by client, its call that has no answer yet
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._stopped = False

    # --- what clients do ------------------------------------------------------------------------------------------------------

    async def report(self, client_id: int, request: RoundRequest) -> RoundAnswer:
        """A client is at the end of its round; the answer comes when all are."""
        while True:
            over = await self._not_now(client_id, request)
            if over is not None:
                return RoundAnswer(over.epoch, over.round, wanted=False, download=over.download)
            self._expected.add(client_id)
            self._reports[client_id] = request
            if self._asked is not None:  # its answer was lost, or it is late, but not too late
                self._asked.update(request.asking)
                return RoundAnswer(*self._where, wanted=True)
            answer = await self._waits(client_id, RoundAnswer)
            if answer is not None:
                return answer

    async def upload(self, client_id: int, request: SyncRequest) -> SyncAnswer:
        """What a client has gathered, in a round in which somebody asks; the answer comes when it is merged with all others'."""
        while True:
            answer = await self._not_now(client_id, request)
            if answer is not None:
                return answer
            if self._asked is None:
                raise Refused(
                    "round",
                    f"it is not known yet whether somebody asks in this round: report round {request.round} again",
                )
            self._expected.add(client_id)
            self._uploads[client_id] = request
            answer = await self._waits(client_id, SyncAnswer)
            if answer is not None:
                return answer

    def joined(self, client_id: int, session: bytes) -> None:
        """A client has come, or come back: it is waited for from the next round on. What another session of it said is void."""
        if client_id not in self._expected:
            self._joining.add(client_id)
        said: tuple[dict[int, RoundRequest], dict[int, SyncRequest]] = (
            self._reports,
            self._uploads,
        )
        for those in said:
            if client_id in those and those[client_id].session != session:
                del those[client_id]
                self._tell([client_id], None)
        self._step()

    def left(self, client_ids: Iterable[int], where: Position) -> None:
        """Clients have sent their last uploads, which are merged; the ledger is now at `where`."""
        for client_id in client_ids:
            self._expected.discard(client_id)
            self._joining.discard(client_id)
            self._reports.pop(client_id, None)
            self._uploads.pop(client_id, None)
            self._tell([client_id], Refused("round", f"client {client_id} has left this round"))
        self._catch_up(where)
        self._step()

    async def stop(self) -> None:
        """What is being merged is merged and answered. Whoever else waits is told to come again."""
        self._stopped = True
        self._set_timer(False)
        if self._closing is not None:
            await asyncio.wait([self._closing])
        self._tell(list(self._waiting), Refused("stopping", STOPPING))

    # --- one call -----------------------------------------------------------------------------------------------------------

    async def _not_now(
        self, client_id: int, request: RoundRequest | SyncRequest
    ) -> SyncAnswer | None:
        """The answer to what is not for the round that is under way. None: it is, and nothing has happened since that was
        found, so whoever asks may count on it until he awaits again."""
        while True:
            if self._stopped:
                raise Refused("stopping", STOPPING)
            found: tuple[SyncAnswer | None, Position] = await self._work(
                self._look, client_id, request
            )
            answer, where = found
            if self._closing is not None:
                await asyncio.wait([self._closing])
                continue
            self._catch_up(where)
            if answer is not None:
                self._expected.add(
                    client_id
                )  # at once: who is always one round behind would never be in time
                return answer
            if (request.epoch, request.round) == self._where and not self._stopped:
                return None

    def _look(
        self, client_id: int, request: RoundRequest | SyncRequest
    ) -> tuple[SyncAnswer | None, Position]:
        """Where the ledger lives: is it in order, and is there something to answer at once?"""
        found, ledger, answer = self._ledger.look(client_id, request), self._ledger, None
        if found == "over":
            answer = ledger.answer()
        elif found == "known" and isinstance(request, SyncRequest):
            answer = ledger.known(request)
        return answer, (ledger.epoch, ledger.round)

    async def _waits(self, client_id: int, kind: type[Answer]) -> Answer | None:
        """For the end of the phase. None: something has happened in between, look again. A client has one call that waits: a
        new one takes the place of the one before, which was lost on the way."""
        self._tell(
            [client_id],
            Refused("round", f"another call of client {client_id} took the place of this one"),
        )
        future: PendingCall = asyncio.get_running_loop().create_future()
        self._waiting[client_id] = future
        if self._timer is None:
            self._set_timer(True)
        self._step()
        answer = await future
        return answer if isinstance(answer, kind) else None

    def _tell(
        self, client_ids: Iterable[int], answer: RoundAnswer | SyncAnswer | Exception | None
    ) -> None:
        resolve_calls(
            [
                self._waiting.pop(client_id)
                for client_id in client_ids
                if client_id in self._waiting
            ],
            answer,
        )

    # --- phases ---------------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Has everybody come whom this phase waits for?"""
        if self._closing is not None or self._stopped:
            return
        if self._asked is None:
            if self._reports and self._expected <= self._reports.keys():
                self._end_reports()
        elif self._reports.keys() <= self._uploads.keys():
            self._close()

    def _end_reports(self) -> None:
        asked = {layer for report in self._reports.values() for layer in report.asking}
        if not asked:
            self._close()
            return
        self._asked = asked
        self._set_timer(True)
        self._tell(list(self._waiting), RoundAnswer(*self._where, wanted=True))

    def _late(self) -> None:
        """The deadline: whoever has not come is absent."""
        self._timer = None
        missing = (
            (self._expected - self._reports.keys())
            if self._asked is None
            else (self._reports.keys() - self._uploads.keys())
        )
        log_event(
            "absent",
            level=logging.WARNING,
            clients=sorted(missing),
            epoch=self._where[0],
            round=self._where[1],
        )
        self._expected -= missing
        for client_id in missing:
            self._reports.pop(client_id, None)
        self._step()

    def _close(self) -> None:
        self._set_timer(False)
        self._closing = asyncio.create_task(self._merge())

    async def _merge(self) -> None:
        """The end of the round. If the ledger can't, nothing has changed, and everybody has to come again."""
        waiting, self._waiting = self._waiting, {}
        uploads, asked = (
            dict(sorted(self._uploads.items())),
            sorted(self._asked or ()),
        )  # in an order that does not depend on time
        try:
            closed: ClosedRound = await self._work(self._close_round, self._where, uploads, asked)
        except Exception as error:
            self._again()
            resolve_calls(waiting.values(), error)
        else:
            answers, where = closed
            nobody_asked = RoundAnswer(*where, wanted=False)
            for client_id, future in waiting.items():
                resolve_calls(
                    [future],
                    None if answers is None else answers.get(client_id) if asked else nobody_asked,
                )
            self._begin(where)
            self._told_closed(
                sum(isinstance(answer, SyncAnswer) for answer in (answers or {}).values()), where
            )
        finally:
            self._closing = None

    def _close_round(
        self, where: Position, uploads: dict[int, SyncRequest], asked: list[int]
    ) -> ClosedRound:
        """Where the ledger lives. What was in order when it came may not be any more: another session, or a new epoch, in
        which case there is nothing to close (None)."""
        ledger = self._ledger
        fit: dict[int, SyncRequest] = {}
        answers: dict[int, SyncAnswer | Refused] = {}
        if (ledger.epoch, ledger.round) != where:
            return None, (ledger.epoch, ledger.round)
        for client_id, request in uploads.items():
            try:
                if ledger.look(client_id, request) == "new":
                    fit[client_id] = request
            except Refused as error:
                answers[client_id] = error
        told = ledger.close_round(list(fit.values()), asked if fit else ())
        return answers | dict(zip(fit, told, strict=True)), (ledger.epoch, ledger.round)

    def _again(self) -> None:
        """The phase from its beginning."""
        if self._asked is None:
            self._reports.clear()
        else:
            self._uploads.clear()
            self._set_timer(True)

    def _catch_up(self, where: Position) -> None:
        """The ledger has gone on by itself: a client that left has brought the last pulls of an epoch."""
        if self._closing is None and where > self._where:
            self._begin(where)
            self._tell(list(self._waiting), None)

    def _begin(self, where: Position) -> None:
        self._where = where
        self._reports.clear()
        self._uploads.clear()
        self._asked = None
        self._set_timer(False)
        self._expected |= self._joining
        self._joining.clear()

    def _set_timer(self, on: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = (
            asyncio.get_running_loop().call_later(self._deadline, self._late)
            if on and not self._stopped
            else None
        )
