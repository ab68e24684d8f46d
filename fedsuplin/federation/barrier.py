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
        on_closed: Callable[[int, Position], None] = lambda n_merged, where: None,
    ) -> None:
        self._ledger, self._work = ledger, work
        self._deadline, self._on_closed = deadline, on_closed
        self._where: Position = (ledger.epoch, ledger.round)
        self._expected = set(
            range(ledger.algorithm.n_clients)
        )  # the clients that this round waits for
        self._joining: set[int] = set()  # those that the next round waits for too
        self._reports: dict[int, RoundRequest] = {}
        self._asked: set[int] | None = None  # layers; None while reports come in
        self._uploads: dict[int, SyncRequest] = {}
        self._waiting: dict[int, PendingCall] = {}  # the call that waits, by client
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._stopped = False

    # --- what clients do --------------------------------------------------------------------------

    async def report(self, client_id: int, request: RoundRequest) -> RoundAnswer:
        """Take the report of a client that is at the end of its round; answer when all are."""
        while True:
            over = await self._answer_if_over(client_id, request)
            if over is not None:
                return RoundAnswer(over.epoch, over.round, wanted=False, download=over.download)
            self._expected.add(client_id)
            self._reports[client_id] = request
            if self._asked is not None:  # its answer was lost, or it is late but in time
                self._asked.update(request.asking)
                return RoundAnswer(*self._where, wanted=True)
            answer = await self._wait_for_phase(client_id, RoundAnswer)
            if answer is not None:
                return answer

    async def upload(self, client_id: int, request: SyncRequest) -> SyncAnswer:
        """Take an upload in a round in which a client asks; answer when all are merged."""
        while True:
            answer = await self._answer_if_over(client_id, request)
            if answer is not None:
                return answer
            if self._asked is None:
                raise Refused(
                    "round",
                    "it is not known yet whether a client asks in this round: "
                    f"report round {request.round} again",
                )
            self._expected.add(client_id)
            self._uploads[client_id] = request
            answer = await self._wait_for_phase(client_id, SyncAnswer)
            if answer is not None:
                return answer

    def add_client(self, client_id: int, session: bytes) -> None:
        """Wait for a client from the next round on, and forget what its other sessions sent."""
        if client_id not in self._expected:
            self._joining.add(client_id)
        sent: tuple[dict[int, RoundRequest], dict[int, SyncRequest]]
        sent = (self._reports, self._uploads)
        for requests in sent:
            if client_id in requests and requests[client_id].session != session:
                del requests[client_id]
                self._resolve([client_id], None)
        self._end_phase_if_complete()

    def remove_clients(self, client_ids: Iterable[int], where: Position) -> None:
        """Wait no more for clients whose last uploads are merged; the ledger is now at `where`."""
        for client_id in client_ids:
            self._expected.discard(client_id)
            self._joining.discard(client_id)
            self._reports.pop(client_id, None)
            self._uploads.pop(client_id, None)
            self._resolve([client_id], Refused("round", f"client {client_id} has left this round"))
        self._catch_up(where)
        self._end_phase_if_complete()

    async def stop(self) -> None:
        """Finish and answer the merge that is under way, and ask all other clients to try again."""
        self._stopped = True
        self._set_timer(False)
        if self._closing is not None:
            await asyncio.wait([self._closing])
        self._resolve(list(self._waiting), Refused("stopping", STOPPING))

    # --- one call ---------------------------------------------------------------------------------

    async def _answer_if_over(
        self, client_id: int, request: RoundRequest | SyncRequest
    ) -> SyncAnswer | None:
        """Return the answer to a request whose round is not the current one.

        None: it is the current one, and stays so until the caller awaits something.
        """
        while True:
            if self._stopped:
                raise Refused("stopping", STOPPING)
            found: tuple[SyncAnswer | None, Position] = await self._work(
                self._inspect, client_id, request
            )
            answer, where = found
            if self._closing is not None:
                await asyncio.wait([self._closing])
                continue
            self._catch_up(where)
            if answer is not None:
                # At once: a client that is always one round behind would never be in time.
                self._expected.add(client_id)
                return answer
            if (request.epoch, request.round) == self._where and not self._stopped:
                return None

    def _inspect(
        self, client_id: int, request: RoundRequest | SyncRequest
    ) -> tuple[SyncAnswer | None, Position]:
        """Check a request in the ledger's thread; return its answer, if any, and the position."""
        ledger, answer = self._ledger, None
        found = ledger.classify_request(client_id, request)
        if found == "over":
            answer = ledger.answer_over()
        elif found == "known" and isinstance(request, SyncRequest):
            answer = ledger.answer_known(request)
        return answer, (ledger.epoch, ledger.round)

    async def _wait_for_phase(self, client_id: int, kind: type[Answer]) -> Answer | None:
        """Wait for the end of the phase, and return the answer; None: check the request again.

        A client has one call that waits. A new one replaces the one before, which was lost.
        """
        self._resolve(
            [client_id],
            Refused("round", f"another call of client {client_id} took the place of this one"),
        )
        future: PendingCall = asyncio.get_running_loop().create_future()
        self._waiting[client_id] = future
        if self._timer is None:
            self._set_timer(True)
        self._end_phase_if_complete()
        answer = await future
        return answer if isinstance(answer, kind) else None

    def _resolve(
        self, client_ids: Iterable[int], answer: RoundAnswer | SyncAnswer | Exception | None
    ) -> None:
        """Answer the waiting calls of some clients."""
        resolve_calls(
            [
                self._waiting.pop(client_id)
                for client_id in client_ids
                if client_id in self._waiting
            ],
            answer,
        )

    # --- phases -----------------------------------------------------------------------------------

    def _end_phase_if_complete(self) -> None:
        """End the phase if all clients that it waits for have come."""
        if self._closing is not None or self._stopped:
            return
        if self._asked is None:
            if self._reports and self._expected <= self._reports.keys():
                self._end_reports()
        elif self._reports.keys() <= self._uploads.keys():
            self._close()

    def _end_reports(self) -> None:
        """Ask for uploads if a client asks for a layer, else end the round."""
        asked = {layer for report in self._reports.values() for layer in report.asking}
        if not asked:
            self._close()
            return
        self._asked = asked
        self._set_timer(True)
        self._resolve(list(self._waiting), RoundAnswer(*self._where, wanted=True))

    def _end_phase_late(self) -> None:
        """End the phase at its deadline without the clients that have not come."""
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
        self._end_phase_if_complete()

    def _close(self) -> None:
        """Start to end the round."""
        self._set_timer(False)
        self._closing = asyncio.create_task(self._merge())

    async def _merge(self) -> None:
        """End the round. If the ledger fails, nothing has changed, and the phase begins again."""
        waiting, self._waiting = self._waiting, {}
        # In an order that does not depend on time.
        uploads, asked = dict(sorted(self._uploads.items())), sorted(self._asked or ())
        try:
            closed: ClosedRound = await self._work(self._close_round, self._where, uploads, asked)
        except Exception as error:
            self._restart_phase()
            resolve_calls(waiting.values(), error)
        else:
            answers, where = closed
            no_sync = RoundAnswer(*where, wanted=False)
            for client_id, future in waiting.items():
                resolve_calls(
                    [future],
                    None if answers is None else answers.get(client_id) if asked else no_sync,
                )
            self._begin(where)
            merged = [each for each in (answers or {}).values() if isinstance(each, SyncAnswer)]
            self._on_closed(len(merged), where)
        finally:
            self._closing = None

    def _close_round(
        self, where: Position, uploads: dict[int, SyncRequest], asked: list[int]
    ) -> ClosedRound:
        """End the round in the ledger's thread; return the answers and the position.

        Requests are checked again: a client may have begun another session. If an epoch has begun,
        there is nothing to end, and the answers are None.
        """
        ledger = self._ledger
        fit: dict[int, SyncRequest] = {}
        answers: dict[int, SyncAnswer | Refused] = {}
        if (ledger.epoch, ledger.round) != where:
            return None, (ledger.epoch, ledger.round)
        for client_id, request in uploads.items():
            try:
                if ledger.classify_request(client_id, request) == "new":
                    fit[client_id] = request
            except Refused as error:
                answers[client_id] = error
        merged = ledger.close_round(list(fit.values()), asked if fit else ())
        return answers | dict(zip(fit, merged, strict=True)), (ledger.epoch, ledger.round)

    def _restart_phase(self) -> None:
        """Begin the phase again."""
        if self._asked is None:
            self._reports.clear()
        else:
            self._uploads.clear()
            self._set_timer(True)

    def _catch_up(self, where: Position) -> None:
        """Follow a ledger that moved on: a client that left brought the last pulls of an epoch."""
        if self._closing is None and where > self._where:
            self._begin(where)
            self._resolve(list(self._waiting), None)

    def _begin(self, where: Position) -> None:
        """Begin the round at a position."""
        self._where = where
        self._reports.clear()
        self._uploads.clear()
        self._asked = None
        self._set_timer(False)
        self._expected |= self._joining
        self._joining.clear()

    def _set_timer(self, on: bool) -> None:
        """Restart the deadline of a phase, or stop it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = (
            asyncio.get_running_loop().call_later(self._deadline, self._end_phase_late)
            if on and not self._stopped
            else None
        )
