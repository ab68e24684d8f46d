"""The client's side of the protocol without the network: requests to send, answers to take."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from .._shared.checks import check_finite, is_whole_number
from ..errors import FederationError, FederationWarning, FedsuplinError, InvalidInput
from ..live.algorithm_checks import check_client_id
from ..live.client import Client, Decision
from ..live.messages import Download
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
from .downloads import is_fresh_download, select_changed_layers
from .link_state import LinkState
from .refusals import FINAL_STATUSES, STATUS_MEANINGS
from .retries import Retries
from .wire import (
    ANY_ALGORITHM,
    ASKING_GENERATION,
    JoinAnswer,
    JoinRequest,
    RoundAnswer,
    RoundRequest,
    SyncAnswer,
    SyncRequest,
    encode_spec,
)

LARGEST_REWARD = 1e100
ANSWER_TYPES: dict[str, type[JoinAnswer | SyncAnswer | RoundAnswer]] = {
    "Join": JoinAnswer,
    "Sync": SyncAnswer,
    "Round": RoundAnswer,
}


class Request(NamedTuple):
    """A request to send. Its answer names the same `number`, so that late answers are ignored."""

    method: str
    data: bytes
    number: int
    together: bool
    """Whether the server waits for other clients before it answers."""


class Link:
    """A client and its part in the protocol.

    Methods may be called from any thread; `changed` is notified when something happens.
    """

    def __init__(
        self,
        client_id: int,
        *,
        agreement: Agreement | None = None,
        seed: int = 0,
        journal: NullJournal | None = None,
        timeout: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.on_change: Callable[[], None] = self.changed.notify_all
        self.client_id, self.seed, self.timeout = client_id, seed, timeout
        self.agreement = agreement
        self.client: Client | None = None  # until the server has sent the algorithm
        self.error: FederationError | None = None
        self.stopped = False
        self._journal, self._clock, self._retries = journal or NullJournal(), clock, Retries(clock)
        self.has_store = isinstance(self._journal, ClientJournal)
        self._state = LinkState()
        # Of the session: one more than the server has seen. The server is asked for that first.
        self._generation = ASKING_GENERATION
        self._report: bytes | None = None  # a RoundRequest without an answer
        self._covers = 0  # observations up to and including those in the frozen upload
        self._merged = 0  # observations that are in the server's sums for good
        self._flush = -1  # observations that a caller of flush waits for
        self._leaving = self._left = False
        self._due_since: float | None = None
        self._calling: Request | None = None
        self._number = 0
        self._away = False
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
    def started_client(self) -> Client:
        """The client, or an error before the server has sent the algorithm."""
        if self.client is None:
            raise FederationError("the server has not sent the algorithm yet: there is no client")
        return self.client

    @property
    def known_agreement(self) -> Agreement:
        """The agreement, or an error before the server has sent it."""
        if self.agreement is None:
            raise FederationError("the server has not sent the algorithm yet")
        return self.agreement

    # --- choosing and learning --------------------------------------------------------------------

    def select(self, contexts: Any, mask: Any = None) -> Decision:
        """Choose an arm, and write the decision to the journal."""
        with self.changed:
            self._check()
            client = self.started_client
            self._ahead = True
            try:
                decision = client.select(contexts, mask)
            except Exception:
                self._ahead = False  # the client has not changed
                raise
            if self.has_store:
                repeatable = client.export_decision(decision.id)
                self._write(self._journal.write_decision, decision.id, *repeatable)
            self._ahead = False
            self._save_snapshot_if_due()
            return decision

    def observe(self, decision: Decision | int, reward: float, sigma: float | None = None) -> None:
        """Learn from a reward, and write it to the journal."""
        number = decision.id if isinstance(decision, Decision) else decision
        with self.changed:
            self._check()
            if is_whole_number(number) and 0 <= number < self._state.first_id:
                return  # a decision of an earlier epoch
            if abs(check_finite("reward", reward)) > LARGEST_REWARD:
                raise InvalidInput(
                    f"a federation takes rewards up to {LARGEST_REWARD:g}, so that sums of many "
                    f"stay finite, not {reward!r}"
                )
            self._ahead = True
            try:
                self.started_client.observe(number, reward, sigma)
            except Exception:
                self._ahead = False
                raise
            self._write(
                self._journal.write_observation,
                int(number),
                float(reward),
                None if sigma is None else float(sigma),
            )
            self._ahead = False
            self._state.at_end = True
            self._update_due()
            self._save_snapshot_if_due()

    def drop(self, decision: Decision | int) -> None:
        """Forget a decision, and write that to the journal."""
        number = decision.id if isinstance(decision, Decision) else decision
        with self.changed:
            self._check()
            if is_whole_number(number) and number in self.started_client.open_ids:
                self._ahead = True
                self.started_client.drop(number)
                self._write(self._journal.write_drop, int(number))
                self._ahead = False

    def _check(self) -> None:
        """Raise an error if the link cannot be used; warn once if the client is on its own."""
        if self.stopped:
            raise FederationError("this connection is closed")
        if self._ahead and self.has_store:
            raise FederationError(
                "the store could not be written and is behind: close this connection and connect "
                "again from it"
            )
        if self.error is not None and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.error}; the client continues alone", FederationWarning, stacklevel=4
            )

    def _write(self, write: Callable[..., None], *values: Any) -> None:
        """Write to the journal. A failure ends the connection; the next starts from the file."""
        try:
            write(*values)
        except FederationError as error:
            self._fail(error)
            raise

    # --- what is due ------------------------------------------------------------------------------

    @property
    def together(self) -> bool:
        """Whether all clients sync at once."""
        return self.client is not None and self.client.algorithm.syncs == "all"

    @property
    def busy(self) -> bool:
        """Whether a call is under way or due."""
        return self.error is None and not self.stopped and self._due_since is not None

    @property
    def away(self) -> bool:
        """Whether an attempt has failed since the server's last answer."""
        return self._away

    def compute_patience(self) -> float:
        """Return for how many seconds a decision still waits for what is under way."""
        if not self.busy or self.away or self._due_since is None:
            return 0.0
        return max(0.0, self._due_since + self.timeout - self._clock())

    def compute_delay(self) -> float:
        """Return the seconds until the next attempt."""
        return self._retries.compute_delay()

    def _is_due(self) -> bool:
        """Return whether there is something to send."""
        if self.client is None or self._state.frozen is not None:
            return True
        if self._leaving:
            return not self._has_left()
        if self._wants_flush():
            return True
        if self.together:
            return self._report is not None or self._state.at_end
        return self.client.wants_sync

    def _has_left(self) -> bool:
        """Return whether the last upload was merged, or there is nothing left to upload."""
        if self.client is None or self._left:
            return True
        return not self.together and self._state.frozen is None and not self.client.n_gathered

    def _wants_flush(self) -> bool:
        """Return whether a caller of flush waits for observations that were not uploaded."""
        return self._flush > self._merged and self.started_client.n_gathered > 0

    def _update_due(self) -> None:
        """Note since when something is due, or that nothing is."""
        due = self._is_due()
        if due != (self._due_since is not None):
            self._due_since = self._clock() if due else None
            self.on_change()

    def request(self) -> Request | None:
        """Return what to send now.

        None if nothing is due, a call is under way, or it is too early for another attempt.
        """
        with self.changed:
            if (
                self.stopped
                or self.error is not None
                or self._calling is not None
                or self.compute_delay() > 0
            ):
                return None
            try:
                found = self._choose_next()
            except FedsuplinError as error:
                self._fail(error)
                return None
            if found is None:
                return None
            method, data = found
            self._number += 1
            self._counts["attempts"] += 1
            self._counts["bytes_up"] += len(data)
            waits = self.together and not self._state.leaves and method != "Join"
            self._calling = Request(method, data, self._number, waits)
            return self._calling

    def _choose_next(self) -> tuple[str, bytes] | None:
        """Return the method and the bytes of the next request, or None if nothing is due."""
        state = self._state
        if self.client is None:
            fingerprint = ANY_ALGORITHM if self.agreement is None else self.agreement.fingerprint
            join = JoinRequest(self.client_id, state.session, fingerprint, self._generation)
            return "Join", join.to_bytes()
        if state.frozen is None:
            self._update_due()
            if self._due_since is None:
                return None
            if self._leaving or self._wants_flush():
                self._freeze(leaving=self._leaving or self.together)
            elif not self.together:
                self._freeze(leaving=False)
            elif self._report is None:
                self._report = self._make_round_request(self.client.asking)
                state.at_end = False
        if self._report is not None and not state.leaves:
            return "Round", self._report
        return None if state.frozen is None else ("Sync", state.frozen)

    def _make_round_request(self, asking: tuple[int, ...]) -> bytes:
        """Return a report that the client is at the end of its round."""
        state = self._state
        return RoundRequest(
            self.known_agreement.fingerprint,
            state.session,
            self.client_id,
            state.epoch,
            state.round,
            asking,
        ).to_bytes()

    def _freeze(self, *, leaving: bool) -> None:
        """Make an upload, and write it to the journal before it can be sent."""
        state = self._state
        if leaving and self._report is not None:
            # The report has no answer: it will be made again.
            self._report, state.at_end = None, True
        self._ahead = True
        upload = self.started_client.upload()
        sequence = state.sequence + 1
        frozen = SyncRequest(
            self.known_agreement.fingerprint,
            state.session,
            sequence,
            state.epoch,
            state.round if self.together else 0,
            leaving,
            upload,
        ).to_bytes()
        self._journal.write_upload(sequence, frozen, state.at_end)
        self._ahead = False
        state.sequence, state.frozen, state.leaves = sequence, frozen, leaving
        self._covers = self.n_observed

    # --- answers ----------------------------------------------------------------------------------

    def take_answer(self, number: int, data: bytes) -> None:
        """Take the answer to a request. It is ignored if the request is no longer under way."""
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
            self._update_due()
            self.on_change()

    def _take(self, method: str, data: bytes) -> None:
        """Read an answer and act on it."""
        answer = ANSWER_TYPES[method].from_bytes(data)
        self._retries.note_answer()
        self._away, self._online, self._why = False, True, ""
        if isinstance(answer, JoinAnswer):
            self._take_join(answer)
        elif isinstance(answer, SyncAnswer):
            self._take_sync(answer)
        else:
            self._take_round_answer(answer)

    def take_failure(self, number: int, code: str, message: str) -> None:
        """Take a failed call or a refusal. `code` is the name of a gRPC status."""
        with self.changed:
            if self._calling is None or number != self._calling.number or self.stopped:
                return
            self._calling = None
            self._counts["failures"] += 1
            self._why = f"{code}: {message}"
            if code in FINAL_STATUSES:
                meaning = STATUS_MEANINGS.get(code, code)
                self._fail(
                    FederationError(
                        f"the server refuses client {self.client_id}: {meaning} ({message})"
                    )
                )
            else:
                self._try_later(again=code == "ABORTED")
            self.on_change()

    def _try_later(self, *, again: bool) -> None:
        """Put the next attempt off. `again`: the server answered, and asks to start over."""
        state = self._state
        self._retries.note_failure()
        if not again:
            self._away, self._online = True, False
        elif self.client is None:
            self._generation = ASKING_GENERATION  # another process was faster
        elif self.together and state.frozen is not None and not state.leaves:
            # The server was restarted, and does not know that this round is at its end.
            asking = SyncRequest.from_bytes(state.frozen).upload.asking
            self._report = self._make_round_request(asking)

    def take_back_call(self, number: int) -> None:
        """Forget a call that was cancelled because something else is more urgent."""
        with self.changed:
            if self._calling is not None and number == self._calling.number:
                self._calling = None
                self.on_change()

    def _take_join(self, answer: JoinAnswer) -> None:
        """Take the server's algorithm, and begin in its epoch."""
        agreement = Agreement.from_spec(answer.spec)
        if self.agreement is not None and agreement.fingerprint != self.agreement.fingerprint:
            raise FederationError(
                "the server runs another algorithm, or other parameters, than the one passed"
            )
        check_client_id(self.client_id, agreement.algorithm(answer.epoch))
        if self._generation == ASKING_GENERATION:
            self._generation = answer.generation + 1
            return
        self.agreement, self._state.sequence = agreement, answer.sequence
        self._begin_epoch(answer.epoch, answer.round, answer.download)
        self._save_snapshot()

    def _take_sync(self, answer: SyncAnswer) -> None:
        """Take the answer to an upload."""
        state = self._state
        if answer.epoch != state.epoch:
            self._begin_epoch(answer.epoch, answer.round, answer.download)
        else:
            self._apply(answer.download, merged=answer.merged)
            state.round = answer.round
            if answer.merged and (state.leaves or not self.together):
                self._merged = self._covers
        self._left = state.leaves and answer.merged
        self._counts["syncs"] += answer.merged
        state.frozen, state.leaves, self._report = None, False, None
        self._save_snapshot()

    def _apply(self, download: Download, *, merged: bool) -> None:
        """Take a download in place of the upload if that was merged, else beneath it.

        A download that cannot be used changes nothing.
        """
        client = self.started_client
        if not merged:
            download = select_changed_layers(download, client)
        client.apply(download, merged=merged)
        self._ahead = True

    def _take_round_answer(self, answer: RoundAnswer) -> None:
        """Take the answer to a report that a round is at its end."""
        state = self._state
        self._report = None
        if state.frozen is not None:
            return  # only the answer to the upload tells whether it was merged
        if answer.epoch != state.epoch:
            self._begin_epoch(answer.epoch, answer.round, answer.download)
            self._save_snapshot()
            return
        if answer.wanted and answer.round == state.round:
            self._freeze(leaving=False)
            return
        self._counts["rounds"] += 1
        if answer.download is None:
            state.round = answer.round
            self._write(self._journal.write_round, state.round, state.at_end)
            return
        # The round ended without this client, which keeps what it has gathered.
        self._apply(answer.download, merged=False)
        state.round = answer.round
        self._save_snapshot()

    def _begin_epoch(self, epoch: int, round_: int, download: Download | None) -> None:
        """Begin an epoch with a new client. What the last one had gathered is dropped."""
        state, last = self._state, self.client
        if last is not None and epoch < state.epoch:
            raise FederationError(
                f"the server is in epoch {epoch}, this client in {state.epoch}: "
                "the server has lost its state"
            )
        client = Client(
            self.known_agreement.algorithm(epoch),
            self.client_id,
            seed=self.seed,
            first_id=0 if last is None else last.next_id,
        )
        if download is not None and not is_fresh_download(download, client.algorithm):
            client.apply(download)
        if last is not None:
            state.observed_before += last.n_observed
            state.first_id = client.next_id
        self._ahead = True
        self.client, state.epoch, state.round = client, epoch, round_
        state.at_end, self._merged = False, self.n_observed

    def fail_unexpectedly(self, error: Exception) -> None:
        """End the connection with an error that no other code handles."""
        with self.changed:
            self._calling = None
            self._fail(FederationError(f"the connection has failed: {error!r}"))

    def take_error(self) -> FederationError:
        """Return the error to raise it, so that no warning follows."""
        assert self.error is not None  # callers check that first
        self._warned = True
        return self.error

    def _fail(self, error: Exception) -> None:
        """End the connection with an error. The first one counts."""
        if self.error is None:
            self.error = (
                error if isinstance(error, FederationError) else FederationError(str(error))
            )
        self._online = False
        self.on_change()

    # --- flush and close --------------------------------------------------------------------------

    def flush(self) -> int:
        """Ask that all observations so far are merged; return their number for `is_flushed`."""
        with self.changed:
            self._flush = max(self._flush, self.n_observed)
            self._retries.allow_now()
            self._update_due()
            self.on_change()
            return self._flush

    def leave(self) -> None:
        """Ask that all observations are merged and that no round waits for this client."""
        with self.changed:
            self._leaving, self._left = True, False
            self._retries.allow_now()
            self._update_due()
            self.on_change()

    def is_flushed(self, until: int) -> bool:
        """Return whether this many observations are merged, or none is left to upload."""
        if self._leaving:
            return self._has_left()
        return self._state.frozen is None and (
            self._merged >= until or not self.started_client.n_gathered
        )

    @property
    def should_retract(self) -> bool:
        """Whether the call under way waits for other clients while this one has to flush."""
        calling = self._calling
        if calling is None or calling.method != "Round" or self._state.frozen is not None:
            return False
        return self._leaving or self._wants_flush()

    def stop(self) -> None:
        """Make no more calls, and close the store."""
        with self.changed:
            if not self.stopped:
                self.stopped = True
                self._journal.close()
                self.on_change()

    # --- the journal ------------------------------------------------------------------------------

    def _save_snapshot_if_due(self) -> None:
        """Save a snapshot when there are many events since the last.

        The event itself is in the journal. If the snapshot fails, `error` tells why, and the caller
        still gets what was asked for.
        """
        if self._journal.n_events >= MOST_EVENTS:
            with contextlib.suppress(FederationError):
                self._save_snapshot()

    def _save_snapshot(self) -> None:
        """Write everything to the store, in place of the events so far."""
        if self.has_store:
            # A report that was made is not kept: it is made again.
            reported = self._report is not None and self._state.frozen is None
            facts = {
                "client_id": self.client_id,
                "seed": self.seed,
                "spec": encode_spec(self.known_agreement.spec).decode(),
                "client": self.started_client.to_bytes(),
                **self._state.to_facts(at_end=self._state.at_end or reported),
            }
            self._write(self._journal.write_snapshot, facts)
        self._ahead = False

    def _open_store(self, journal: ClientJournal) -> None:
        """Continue from where the journal ends, if there is something in it."""
        facts = journal.read_facts()
        if not facts:
            return
        path = journal.path
        try:
            self._check_store(facts)
            self._state = LinkState.from_facts(facts)
            algorithm = self.known_agreement.algorithm(self._state.epoch)
            self.client = Client.from_bytes(facts["client"], algorithm)
            for event in journal.read_events():
                self._replay(event)
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
        self._merged = 0 if self.client.n_gathered else self.n_observed
        self._update_due()

    def _check_store(self, facts: dict[str, Any]) -> None:
        """Check that a store is this client's, and take its agreement."""
        for name, ours in (("client_id", self.client_id), ("seed", self.seed)):
            if facts[name] != ours:
                raise InvalidInput(f"it is of a client with {name}={facts[name]}, not {ours}")
        agreement = Agreement.from_spec(json.loads(facts["spec"]))
        if self.agreement is not None and agreement.fingerprint != self.agreement.fingerprint:
            raise InvalidInput(
                f"it is for another algorithm, {agreement.algorithm(0).name}, or other parameters"
            )
        self.agreement = agreement

    def _replay(self, event: JournalEvent) -> None:
        """Repeat an event of the journal on the client as it was then."""
        client, state = self.started_client, self._state
        if event.kind == DECIDED:
            client.restore_decision(event.what, *read_decision(event, client.algorithm.dim))
        elif event.kind == OBSERVED:
            client.observe(event.what, *read_observation(event))
            state.at_end = True
        elif event.kind == DROPPED:
            client.drop(event.what)
        elif event.kind == UPLOADED:
            client.upload()
            state.sequence, state.at_end = event.what, bool(event.data[0])
        elif event.kind == ROUND:
            state.round, state.at_end = event.what, bool(event.data[0])
        else:
            raise ValueError(f"an event of kind {event.kind!r}")

    # --- status -----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that the client is in."""
        return self._state.epoch

    @property
    def round(self) -> int:
        """The round that the client is in, where all sync together."""
        return self._state.round

    @property
    def n_observed(self) -> int:
        """How many rewards were observed in all epochs."""
        now = 0 if self.client is None else self.client.n_observed
        return self._state.observed_before + now

    @property
    def is_online(self) -> bool:
        """Whether the server answered the last call."""
        return self._online and self.error is None and not self.stopped

    @property
    def why(self) -> str:
        """Why the last attempt failed, or nothing if it did not."""
        return self._why

    def stats(self) -> dict[str, Any]:
        """Return the counts of what was observed, sent and received."""
        with self.changed:
            client = self.started_client
            return {
                "observed": self.n_observed,
                "open": client.n_open,
                "epoch": self.epoch,
                "round": self.round,
                "gathered": client.n_gathered,
                **self._counts,
                "online": self.is_online,
                "last_failure": self._why,
            }
