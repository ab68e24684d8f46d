"""The client's side of the protocol without the network: what to send next, and what an answer means."""

from __future__ import annotations

import contextlib
import json
import random
import secrets
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .._shared.checks import check_finite, is_whole_number
from ..algorithm.algorithm import Algorithm
from ..errors import FederationError, FederationWarning, FedsuplinError, InvalidInput
from ..live.client import Client, Decision
from ..live.messages import Download
from ..live.uploads import check_message, pack_upper
from .agreement import Agreement
from .client_journal import (
    DECIDED,
    DROPPED,
    MOST_EVENTS,
    OBSERVED,
    ROUND,
    UPLOADED,
    ClientJournal,
    JournalEvent,
    NullJournal,
    read_decision,
    read_observation,
)
from .refusals import FINAL_STATUSES, STATUS_MEANINGS
from .wire import (
    ANY_ALGORITHM,
    ASKING_GENERATION,
    NO_SEQUENCE,
    SESSION_BYTES,
    JoinAnswer,
    JoinRequest,
    RoundAnswer,
    RoundRequest,
    SyncAnswer,
    SyncRequest,
    encode_spec,
)

LARGEST_REWARD = 1e100
FIRST_DELAY, LONGEST_DELAY = 0.05, 5.0  # seconds between attempts
ANSWER_TYPES: dict[str, type[JoinAnswer | SyncAnswer | RoundAnswer]] = {
    "Join": JoinAnswer,
    "Sync": SyncAnswer,
    "Round": RoundAnswer,
}


class Request(NamedTuple):
    """Something to send. `number` comes back with its answer, so that the answer to an earlier attempt is told apart."""

    method: str
    data: bytes
    number: int
    together: bool
    """The server waits for others before it answers."""


class Link:
    """A client and what it has to say. Methods may be called from any thread; `changed` is notified when there is news."""

    def __init__(
        self,
        client_id: int,
        *,
        plan: Agreement | None = None,
        seed: int = 0,
        journal: NullJournal | None = None,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.on_change: Callable[[], None] = self.changed.notify_all
        self.client_id, self.seed, self.timeout = client_id, seed, timeout
        self.plan = plan
        self.client: Client | None = None  # until the server has told the algorithm
        self.error: FederationError | None = None
        self.stopped = False
        self._journal, self._clock, self._jitter = journal or NullJournal(), clock, random.Random()
        self.is_kept = isinstance(self._journal, ClientJournal)  # is there a store?
        self._session = secrets.token_bytes(SESSION_BYTES)
        self._generation = ASKING_GENERATION  # of the session: one more than the server has seen, which is asked first
        self._epoch = self._round = 0
        self._sequence = NO_SEQUENCE  # the number of the last upload that was made
        self._frozen: bytes | None = None  # a SyncRequest that was not answered yet
        self._leaves = False  # is that one of `leaving`?
        self._at_end = (
            False  # where all sync together: something was observed since the last report was made
        )
        self._report: bytes | None = None  # a RoundRequest that was not answered yet
        self._first = 0  # the id of the first decision of this epoch
        self._observed_before = 0  # in earlier epochs
        self._covers = self._merged = (
            0  # observations that are in the frozen upload; that are in the server's sums, for good
        )
        self._flush = -1  # observations that somebody waits for to be merged
        self._leaving = self._left = False
        self._due_since: float | None = None
        self._calling: Request | None = None
        self._number = 0
        self._attempts, self._not_before, self._away = 0, 0.0, False
        self._ahead = False  # the client has done something that is not in the journal yet
        self._warned = False
        self._online = False
        self._why = ""
        self._counts = dict.fromkeys(
            ("syncs", "rounds", "attempts", "failures", "bytes_up", "bytes_down"), 0
        )
        if isinstance(self._journal, ClientJournal):
            with self.changed:
                self._open_store(self._journal)

    @property
    def player(self) -> Client:
        """The client, which there is once the server has told the algorithm."""
        if self.client is None:
            raise FederationError("the server has not told the algorithm yet: there is no client")
        return self.client

    @property
    def known_plan(self) -> Agreement:
        """Likewise the plan."""
        if self.plan is None:
            raise FederationError("the server has not told the algorithm yet")
        return self.plan

    # --- choosing and learning ---------------------------------------------------------------------------------------

    def select(self, contexts: Any, mask: Any = None) -> Decision:
        with self.changed:
            self._check()
            self._ahead = True
            try:
                decision = self.player.select(contexts, mask)
            except Exception:
                self._ahead = False  # one that raises has changed nothing
                raise
            if self.is_kept:
                self._write(self._journal.decided, decision.id, *self.player._decided(decision.id))
            self._ahead = False
            self._keep_now_and_then()
            return decision

    def observe(self, decision: Decision | int, reward: float, sigma: float | None = None) -> None:
        number = decision.id if isinstance(decision, Decision) else decision
        with self.changed:
            self._check()
            if is_whole_number(number) and 0 <= number < self._first:
                return  # of an epoch that is over
            if abs(check_finite("reward", reward)) > LARGEST_REWARD:
                raise InvalidInput(
                    f"a federation takes rewards up to {LARGEST_REWARD:g}, so that sums of many stay numbers, not {reward!r}"
                )
            self._ahead = True
            try:
                self.player.observe(number, reward, sigma)
            except Exception:
                self._ahead = False
                raise
            self._write(
                self._journal.observed,
                int(number),
                float(reward),
                None if sigma is None else float(sigma),
            )
            self._ahead = False
            self._at_end = True
            self._see_what_is_due()
            self._keep_now_and_then()

    def drop(self, decision: Decision | int) -> None:
        number = decision.id if isinstance(decision, Decision) else decision
        with self.changed:
            self._check()
            if is_whole_number(number) and number in self.player._open:
                self._ahead = True
                self.player.drop(number)
                self._write(self._journal.dropped, int(number))
                self._ahead = False

    def _check(self) -> None:
        if self.stopped:
            raise FederationError("this connection is closed")
        if self._ahead and self.is_kept:
            raise FederationError(
                "the store could not be written, and is behind: close this connection and connect again from it"
            )
        if self.error is not None and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.error}; the client goes on alone", FederationWarning, stacklevel=4
            )

    def _write(self, write: Callable[..., None], *values: Any) -> None:
        """What the journal does not take ends the connection: the file is what counts, and whoever opens it goes on from it."""
        try:
            write(*values)
        except FederationError as error:
            self._fail(error)
            raise

    # --- what is due -------------------------------------------------------------------------------------------------

    @property
    def together(self) -> bool:
        """Do all clients sync at once?"""
        return self.client is not None and self.client.algorithm.syncs == "all"

    @property
    def busy(self) -> bool:
        """Is something under way or due, that an answer will settle?"""
        return self.error is None and not self.stopped and self._due_since is not None

    @property
    def away(self) -> bool:
        """Has an attempt failed since the server's last answer?"""
        return self._away

    def patience(self) -> float:
        """For how long a decision waits for what is under way; 0 if it does not."""
        if not self.busy or self.away or self._due_since is None:
            return 0.0
        return max(0.0, self._due_since + self.timeout - self._clock())

    def _is_due(self) -> bool:
        if self.client is None or self._frozen is not None:
            return True
        if self._leaving:
            return not self._has_left()
        if self._wants_flush():
            return True
        if self.together:
            return self._report is not None or self._at_end
        return self.client.wants_sync

    def _has_left(self) -> bool:
        """Has it said its last words, or has it nothing to say that anybody waits for?"""
        if self.client is None or self._left:
            return True
        return not self.together and self._frozen is None and not any(self.player._pulls)

    def _wants_flush(self) -> bool:
        return self._flush > self._merged and any(self.player._pulls)

    def _see_what_is_due(self) -> None:
        due = self._is_due()
        if due != (self._due_since is not None):
            self._due_since = self._clock() if due else None
            self.on_change()

    def request(self) -> Request | None:
        """What to send now; None if there is nothing, or a call is under way, or it is too early to try again."""
        with self.changed:
            if (
                self.stopped
                or self.error is not None
                or self._calling is not None
                or self.delay() > 0
            ):
                return None
            try:
                found = self._next()
            except FedsuplinError as error:
                self._fail(error)
                return None
            if found is None:
                return None
            self._number += 1
            self._counts["attempts"] += 1
            self._counts["bytes_up"] += len(found[1])
            self._calling = Request(
                *found, self._number, self.together and not self._leaves and found[0] != "Join"
            )
            return self._calling

    def _next(self) -> tuple[str, bytes] | None:
        """The method and the bytes."""
        if self.client is None:
            fingerprint = ANY_ALGORITHM if self.plan is None else self.plan.fingerprint
            return "Join", JoinRequest(
                self.client_id, self._session, fingerprint, self._generation
            ).to_bytes()
        if self._frozen is None:
            self._see_what_is_due()
            if self._due_since is None:
                return None
            if self._leaving or self._wants_flush():
                self._freeze(leaving=self._leaving or self.together)
            elif not self.together:
                self._freeze(leaving=False)
            elif self._report is None:
                self._report, self._at_end = (
                    self._report_of(tuple(self.client._engine.asking)),
                    False,
                )
        if self._report is not None and not self._leaves:
            return "Round", self._report
        return None if self._frozen is None else ("Sync", self._frozen)

    def _report_of(self, asking: tuple[int, ...]) -> bytes:
        plan = self.known_plan.fingerprint
        return RoundRequest(
            plan, self._session, self.client_id, self._epoch, self._round, asking
        ).to_bytes()

    def _freeze(self, *, leaving: bool) -> None:
        """An upload is made, and is in the journal before anybody sees it."""
        if (
            leaving and self._report is not None
        ):  # the round was told, and not answered: it will be told again
            self._report, self._at_end = None, True
        self._ahead = True
        upload = self.player.upload()
        sequence, plan, round_ = (
            self._sequence + 1,
            self.known_plan.fingerprint,
            self._round if self.together else 0,
        )
        frozen = SyncRequest(
            plan, self._session, sequence, self._epoch, round_, leaving, upload
        ).to_bytes()
        self._journal.uploaded(sequence, frozen, self._at_end)
        self._ahead = False
        self._sequence, self._frozen, self._leaves, self._covers = (
            sequence,
            frozen,
            leaving,
            self.n_observed,
        )

    def delay(self) -> float:
        """Seconds until the next attempt."""
        return max(0.0, self._not_before - self._clock())

    # --- what comes back ---------------------------------------------------------------------------------------------

    def answered(self, number: int, data: bytes) -> None:
        """The answer to a request. One that nobody waits for any more changes nothing."""
        with self.changed:
            if self._calling is None or number != self._calling.number or self.stopped:
                return
            method, self._calling = self._calling.method, None
            self._counts["bytes_down"] += len(data)
            try:
                self._take(method, data)
            except FederationError as error:
                self._fail(error)
            except FedsuplinError as error:
                self._fail(
                    FederationError(f"the server's answer to {method} can't be used: {error}")
                )
            self._due_since = None
            self._see_what_is_due()
            self.on_change()

    def _take(self, method: str, data: bytes) -> None:
        answer = ANSWER_TYPES[method].from_bytes(data)
        self._attempts, self._not_before, self._away, self._online, self._why = (
            0,
            0.0,
            False,
            True,
            "",
        )
        if isinstance(answer, JoinAnswer):
            self._joined(answer)
        elif isinstance(answer, SyncAnswer):
            self._synced(answer)
        else:
            self._told(answer)

    def failed(self, number: int, code: str, message: str) -> None:
        """No answer, or a refusal. `code` is the name of a gRPC status."""
        with self.changed:
            if self._calling is None or number != self._calling.number or self.stopped:
                return
            self._calling = None
            self._counts["failures"] += 1
            self._why = f"{code}: {message}"
            if code in FINAL_STATUSES:
                self._fail(
                    FederationError(
                        f"the server refuses client {self.client_id}: {STATUS_MEANINGS.get(code, code)} ({message})"
                    )
                )
            else:
                self._try_later(again=code == "ABORTED")
            self.on_change()

    def _try_later(self, *, again: bool) -> None:
        """The next time after a longer while. `again` if the server is there, and wants it from the beginning."""
        longest = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(self._attempts, 30))
        self._attempts += 1
        self._not_before = self._clock() + longest * self._jitter.uniform(0.5, 1.0)
        if not again:
            self._away, self._online = True, False
        elif self.client is None:
            self._generation = ASKING_GENERATION  # another process was faster
        elif self.together and self._frozen is not None and not self._leaves:
            # It was restarted, and does not know that this round is at its end.
            self._report = self._report_of(SyncRequest.from_bytes(self._frozen).upload.asking)

    def retracted(self, number: int) -> None:
        """The call was given up on purpose: something else is more urgent."""
        with self.changed:
            if self._calling is not None and number == self._calling.number:
                self._calling = None
                self.on_change()

    def _joined(self, answer: JoinAnswer) -> None:
        plan = Agreement.from_spec(answer.spec)
        if self.plan is not None and plan.fingerprint != self.plan.fingerprint:
            raise FederationError(
                "the server is for another algorithm, or other numbers, than was asked for"
            )
        algorithm = plan.algorithm(answer.epoch)
        if self.client_id >= algorithm.n_clients:
            raise InvalidInput(
                f"client_id must be a whole number from 0 to {algorithm.n_clients - 1}, not {self.client_id}"
            )
        if self._generation == ASKING_GENERATION:
            self._generation = answer.generation + 1
            return
        self.plan, self._sequence = plan, answer.sequence
        self._begin_epoch(answer.epoch, answer.round, answer.download)
        self._keep()

    def _synced(self, answer: SyncAnswer) -> None:
        if answer.epoch != self._epoch:
            self._begin_epoch(answer.epoch, answer.round, answer.download)
        else:
            self._apply(answer.download, merged=answer.merged)
            self._round = answer.round
            if answer.merged and (self._leaves or not self.together):
                self._merged = self._covers
        self._left = self._leaves and answer.merged
        self._counts["syncs"] += answer.merged
        self._frozen, self._leaves, self._report = None, False, None
        self._keep()

    def _apply(self, download: Download, *, merged: bool) -> None:
        """In place of what was uploaded, if it was merged; else underneath what was gathered. A download that can't be used
        changes nothing."""
        under_way = self.player._since, self.player._sent
        try:
            if not merged:
                download = select_changed_layers(download, self.player)
                self.player.withdraw()
            self.player.apply(download)
        except FedsuplinError:
            self.player._since, self.player._sent = under_way
            raise
        self._ahead = True

    def _told(self, answer: RoundAnswer) -> None:
        self._report = None
        if self._frozen is not None:
            return  # only the upload's own answer says what became of it
        if answer.epoch != self._epoch:
            self._begin_epoch(answer.epoch, answer.round, answer.download)
            self._keep()
            return
        if answer.wanted and answer.round == self._round:
            self._freeze(leaving=False)
            return
        self._counts["rounds"] += 1
        if answer.download is None:
            self._round = answer.round
            self._write(self._journal.round, self._round, self._at_end)
            return
        self._apply(
            answer.download, merged=False
        )  # the round went on without this client; what it has gathered stays on top
        self._round = answer.round
        self._keep()

    def _begin_epoch(self, epoch: int, round_: int, download: Download | None) -> None:
        """A client that begins from what the server knows; what an earlier one had gathered belonged to an earlier epoch."""
        if self.client is not None and epoch < self._epoch:
            raise FederationError(
                f"the server is in epoch {epoch}, this client in {self._epoch}: the server has lost its state"
            )
        client = Client(self.known_plan.algorithm(epoch), self.client_id, seed=self.seed)
        if download is not None and not is_fresh_download(download, client.algorithm):
            client.apply(download)
        if self.client is not None:
            self._observed_before += self.client.n_observed
            self._first = client._next = self.client._next
        self._ahead = True
        self.client, self._epoch, self._round = client, epoch, round_
        self._at_end, self._merged = False, self.n_observed

    def broken(self, error: Exception) -> None:
        """Something that nobody has thought of."""
        with self.changed:
            self._calling = None
            self._fail(FederationError(f"the connection has failed: {error!r}"))

    def told(self) -> FederationError:
        """The error, for somebody who hears of it now."""
        assert self.error is not None  # whoever asks has looked
        self._warned = True
        return self.error

    def _fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = (
                error if isinstance(error, FederationError) else FederationError(str(error))
            )
        self._online = False
        self.on_change()

    # --- flush and close ---------------------------------------------------------------------------------------------

    def flush(self) -> int:
        """All that was observed up to now shall be merged; `is_flushed` says when it is. Returns how much that is."""
        with self.changed:
            self._flush = max(self._flush, self.n_observed)
            self._not_before = 0.0
            self._see_what_is_due()
            self.on_change()
            return self._flush

    def leave(self) -> None:
        """The same, and then nobody needs to wait for this client any more."""
        with self.changed:
            self._leaving, self._left = True, False
            self._not_before = 0.0
            self._see_what_is_due()
            self.on_change()

    def is_flushed(self, until: int) -> bool:
        if self._leaving:
            return self._has_left()
        return self._frozen is None and (self._merged >= until or not any(self.player._pulls))

    @property
    def should_retract(self) -> bool:
        """Does the call that is under way wait for others, while this client has its last words to say?"""
        calling = self._calling
        if calling is None or calling.method != "Round" or self._frozen is not None:
            return False
        return self._leaving or self._wants_flush()

    def stop(self) -> None:
        """No more calls, and the store is free."""
        with self.changed:
            if not self.stopped:
                self.stopped = True
                self._journal.close()
                self.on_change()

    # --- the journal -------------------------------------------------------------------------------------------------

    def _keep_now_and_then(self) -> None:
        """Else the events since the last time would be many. What was just done is in the journal: if this fails, `error` says
        so, and the caller has what he asked for."""
        if self._journal.n_events >= MOST_EVENTS:
            with contextlib.suppress(FederationError):
                self._keep()

    def _keep(self) -> None:
        """All that there is, in place of the events so far."""
        if self.is_kept:
            facts = {
                "client_id": self.client_id,
                "seed": self.seed,
                "session": self._session,
                "spec": encode_spec(self.known_plan.spec).decode(),
                "epoch": self._epoch,
                "round": self._round,
                "at_end": int(self._at_end or (self._report is not None and self._frozen is None)),
                "sequence": self._sequence,
                "frozen": self._frozen,
                "first": self._first,
                "observed_before": self._observed_before,
                "client": self.player.to_bytes(),
            }
            self._write(self._journal.keep, facts)
        self._ahead = False

    def _open_store(self, journal: ClientJournal) -> None:
        """Go on from where the journal ends, if there is something in it."""
        facts = journal.facts()
        if not facts:
            return
        path = journal.path
        try:
            self._check_store(facts, path)
            self._restore(facts)
            for event in journal.events():
                self._repeat(event)
        except FedsuplinError as error:
            raise InvalidInput(f"the store {path} can't be used: {error}") from error
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OverflowError,
            sqlite3.Error,
        ) as error:
            raise InvalidInput(f"the store {path} does not hold a client: {error!r}") from error
        self._merged = 0 if any(self.player._pulls) else self.n_observed
        self._see_what_is_due()

    def _check_store(self, facts: dict[str, Any], path: Any) -> None:
        for name, ours in (("client_id", self.client_id), ("seed", self.seed)):
            if facts[name] != ours:
                raise InvalidInput(f"it is of a client with {name}={facts[name]}, not {ours}")
        plan = Agreement.from_spec(json.loads(facts["spec"]))
        if self.plan is not None and plan.fingerprint != self.plan.fingerprint:
            raise InvalidInput(
                f"it is for another algorithm, {plan.algorithm(0).name}, or other numbers"
            )
        self.plan = plan

    def _restore(self, facts: dict[str, Any]) -> None:
        self._session, self._epoch, self._round = (
            bytes(facts["session"]),
            int(facts["epoch"]),
            int(facts["round"]),
        )
        if len(self._session) != SESSION_BYTES:
            raise ValueError(f"a session of {len(self._session)} bytes")
        self._sequence, self._at_end = int(facts["sequence"]), bool(facts["at_end"])
        self._first, self._observed_before = int(facts["first"]), int(facts["observed_before"])
        if facts["frozen"] is not None:
            self._frozen = bytes(facts["frozen"])
            self._leaves = SyncRequest.from_bytes(self._frozen).leaving
        self.client = Client.from_bytes(facts["client"], self.known_plan.algorithm(self._epoch))

    def _repeat(self, event: JournalEvent) -> None:
        """What happened then, on the client as it was then."""
        if event.kind == DECIDED:
            self.player._decide_again(event.what, *read_decision(event, self.player.algorithm.dim))
        elif event.kind == OBSERVED:
            self.player.observe(event.what, *read_observation(event))
            self._at_end = True
        elif event.kind == DROPPED:
            self.player.drop(event.what)
        elif event.kind == UPLOADED:
            self.player.upload()
            self._sequence, self._at_end = event.what, bool(event.data[0])
        elif event.kind == ROUND:
            self._round, self._at_end = event.what, bool(event.data[0])
        else:
            raise ValueError(f"an event of kind {event.kind!r}")

    # --- what it is and was ------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def round(self) -> int:
        return self._round

    @property
    def n_observed(self) -> int:
        return self._observed_before + (0 if self.client is None else self.client.n_observed)

    @property
    def is_online(self) -> bool:
        return self._online and self.error is None and not self.stopped

    @property
    def why(self) -> str:
        """What came of the last attempt, if it failed."""
        return self._why

    def stats(self) -> dict[str, Any]:
        with self.changed:
            counts = {
                "observed": self.n_observed,
                "open": self.player.n_open,
                "epoch": self._epoch,
                "round": self._round,
            }
            pending = int(sum(self.player._pulls))
            return {
                **counts,
                "gathered": pending,
                **self._counts,
                "online": self.is_online,
                "last_failure": self._why,
            }


def is_fresh_download(download: Download, algorithm: Algorithm) -> bool:
    """Does the server know nothing yet? Then a client is as it begins."""
    empty = pack_upper(algorithm.setting.ridge * np.eye(algorithm.dim))
    return not download.moments.any() and bool((download.grams == empty).all())


def select_changed_layers(download: Download, client: Client) -> Download:
    """The layers that differ from the client's last download. Where only the answer was lost there are none, and the client goes
    on as if it had not been."""
    check_message(download, Download, client.algorithm.dim, client.algorithm.n_layers)
    held = [client.layer(int(layer)) for layer in download.layers]
    parts = zip(held, download.grams, download.moments, strict=True)
    differs = [
        not (
            np.array_equal(pack_upper(own["gram"]), gram) and np.array_equal(own["moment"], moment)
        )
        for own, gram, moment in parts
    ]
    keep = np.array(differs, bool)
    return Download(download.layers[keep], download.grams[keep], download.moments[keep])
