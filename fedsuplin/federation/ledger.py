"""The server's durable state: the sums of all layers, sessions, rounds and epochs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .._shared.arrays import Floats
from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import LAST_EPOCH
from ..errors import InvalidInput, NumericalError
from ..live.messages import Download
from ..live.server import Server
from ..live.uploads import check_upload, select_layers, unpack_upper
from .agreement import Agreement
from .ledger_tables import COUNT_NAMES, LEDGER_STORE, NEW_MEMBER, Member
from .refusals import OTHER_ALGORITHM, Refused
from .stores import open_store
from .wire import (
    ANY_ALGORITHM,
    ASKING_GENERATION,
    NO_SEQUENCE,
    JoinAnswer,
    JoinRequest,
    RoundRequest,
    SyncAnswer,
    SyncRequest,
    encode_spec,
)

LARGEST_SEQUENCE = 1 << 62
MOST_TOTAL_PULLS = (
    1 << 62
)  # pulls, of all clients; a batch of uploads more, and they are still counted in 64 bits
MOST_STATEMENT_VALUES = 999  # of a statement, where SQLite is older than 3.32


class Ledger:
    """Sums, sessions, rounds and epochs of a federation.

    >>> import tempfile, fedsuplin as fsl
    >>> plan = Plan.of(fsl.make("async", dim=2, n_arms=3, n_clients=2, horizon=1000))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(Path(folder) / "server.db", plan)
    ...     ledger.join(0, JoinRequest(0, bytes(16))).sequence
    ...     ledger.close()
    0
    """

    plan: Agreement
    server: Server
    _counts: dict[str, int]

    def __init__(self, path: str | os.PathLike[str], plan: Agreement | None = None) -> None:
        self.path = Path(path)
        self._file = open_store(self.path, LEDGER_STORE)
        self._changed: set[int] = set()  # layers, since the last commit
        self._replaced: dict[
            int, Member
        ] = {}  # of clients that have changed since: what was remembered at the last commit
        self._is_ahead = False  # does the server in memory know something that was not committed, and could not be undone?
        self._sums: tuple[
            Floats, Floats
        ]  # A, packed, and b, a row for each layer: as they were committed
        self._download: Download | None = None
        self._members: dict[int, Member] = {}
        try:
            self._begin(plan)
        except BaseException:
            self._file.close()
            raise

    @property
    def algorithm(self) -> Algorithm:
        return self.server.algorithm

    @property
    def n_syncs(self) -> int:
        return self._counts["n_syncs"]

    @property
    def communication(self) -> int:
        return self._counts["communication"]

    @property
    def epoch(self) -> int:
        return self._counts["epoch"]

    @property
    def round(self) -> int:
        return self._counts["round"]

    @property
    def pulls(self) -> int:
        """Merged in this epoch."""
        return self._counts["pulls"]

    @property
    def total_pulls(self) -> int:
        return self._counts["total_pulls"]

    @property
    def fingerprint(self) -> bytes:
        return self.plan.fingerprint

    def clients(self) -> dict[int, dict[str, Any]]:
        names = ("sequence", "pulls", "syncs", "seen")
        return {
            number: {name: getattr(each, name) for name in names}
            for number, each in self._members.items()
        }

    # --- a client comes -----------------------------------------------------------------------------------------------------

    def join(self, client_id: int, request: JoinRequest) -> JoinAnswer:
        """A session begins, in place of an older one of this client's, or goes on; or it is only asked what there is."""
        self._check_identity(client_id, request.client_id)
        if not 0 <= client_id < self.algorithm.n_clients:
            raise Refused(
                "identity",
                f"there is no client {client_id}: ids are 0 to {self.algorithm.n_clients - 1}",
            )
        if request.fingerprint not in (ANY_ALGORITHM, self.fingerprint):
            raise Refused("algorithm", OTHER_ALGORITHM)
        member = self._members.get(client_id, NEW_MEMBER)
        if request.generation != ASKING_GENERATION and request.session != member.session:
            if request.generation != member.generation + 1:
                raise Refused(
                    "round",
                    f"client {client_id} has had {member.generation} sessions: ask again, and join as the next",
                )
            member = member._replace(
                session=request.session,
                generation=request.generation,
                sequence=NO_SEQUENCE,
                digest=b"",
                layers="[]",
                epoch=self.epoch,
                seen=time.time(),
            )
            with self._changing():
                self._put(client_id, member)
        known = member.sequence if member.session == request.session else NO_SEQUENCE
        return JoinAnswer(
            self.plan.spec, self.epoch, self.round, known, member.generation, self.download()
        )

    # --- is a request in order? ----------------------------------------------------------------------------------------------

    def look(self, client_id: int, request: SyncRequest | RoundRequest) -> str:
        """ "new", "known" (this upload was merged before) or "over" (its round or its epoch is); anything else is Refused."""
        named = request.upload.client_id if isinstance(request, SyncRequest) else request.client_id
        self._check_identity(client_id, named)
        if request.fingerprint != self.fingerprint:
            raise Refused("algorithm", OTHER_ALGORITHM)
        member = self._members.get(client_id)
        if member is None or member.session != request.session:
            raise Refused(
                "session",
                f"client {client_id} has joined anew since, or never: this session is over",
            )
        if request.epoch > self.epoch:
            raise Refused(
                "malformed", f"epoch {request.epoch} has not begun: it is epoch {self.epoch}"
            )
        if isinstance(request, SyncRequest):
            if not NO_SEQUENCE < request.sequence < LARGEST_SEQUENCE:
                raise Refused(
                    "malformed", f"uploads are numbered from 1 on, not {request.sequence}"
                )
            if request.sequence <= member.sequence:
                return self._seen_before(client_id, request, member)
        if request.epoch < self.epoch:
            return "over"
        if isinstance(request, SyncRequest):
            self._check_gap(client_id, request, member)
            self._check_upload(request)
        return self._look_at_round(request)

    def _check_gap(self, client_id: int, request: SyncRequest, member: Member) -> None:
        """Where clients sync one by one, a number is left out only by an upload whose epoch was over. Else the uploads between
        were merged by a server that knew more than this one."""
        if (
            self.algorithm.syncs == "one"
            and request.epoch == member.epoch
            and request.sequence != member.sequence + 1
        ):
            raise Refused(
                "session",
                f"upload {request.sequence} of client {client_id} comes after {member.sequence}: uploads between are missing. "
                "Was an older copy of the server's store put back?",
            )

    def _seen_before(self, client_id: int, request: SyncRequest, member: Member) -> str:
        if request.sequence < member.sequence:
            raise Refused(
                "session",
                f"upload {request.sequence} of client {client_id} is old: {member.sequence} came after it",
            )
        if request.digest != member.digest:
            raise Refused(
                "session",
                f"upload {request.sequence} of client {client_id} was merged before, and was another",
            )
        return "known"

    def _look_at_round(self, request: SyncRequest | RoundRequest) -> str:
        together = self.algorithm.syncs == "all"
        if isinstance(request, RoundRequest):
            if not together:
                raise Refused(
                    "malformed",
                    f"the clients of {self.algorithm.name} sync one by one: there are no rounds",
                )
            if any(layer >= self.algorithm.n_layers for layer in request.asking):
                raise Refused(
                    "implausible", f"layers {request.asking}: there are {self.algorithm.n_layers}"
                )
        elif not together or request.leaving:
            return "new"
        if request.round > self.round:
            raise Refused(
                "malformed", f"round {request.round} has not begun: it is round {self.round}"
            )
        return "new" if request.round == self.round else "over"

    @staticmethod
    def _check_identity(client_id: int, named: int) -> None:
        if named != client_id:
            raise Refused("identity", f"client {client_id} can't speak for client {named}")

    def _check_upload(self, request: SyncRequest) -> None:
        try:
            check_upload(request.upload, self.algorithm)
        except InvalidInput as error:
            raise Refused("implausible", str(error)) from None
        if self.total_pulls + int(request.upload.pulls.sum()) > MOST_TOTAL_PULLS:
            raise Refused(
                "implausible",
                f"with these pulls there would be more than {MOST_TOTAL_PULLS}, which nobody plays",
            )

    # --- uploads --------------------------------------------------------------------------------------------------------------

    def sync(self, requests: Sequence[tuple[int, SyncRequest]]) -> list[SyncAnswer | Refused]:
        """Merge what several clients have sent, in one commit; each gets its answer, with the same download."""
        answers: dict[int, SyncAnswer | Refused] = {}  # by request
        accepted: dict[int, int] = {}  # by client: which of the requests
        for i, (client_id, request) in enumerate(requests):
            try:
                if (
                    client_id in accepted
                ):  # twice in a batch: a retry, or nonsense; the next batch will tell
                    answers[i] = Refused(
                        "round",
                        f"another upload of client {client_id} is being merged: send it again",
                    )
                elif self.look(client_id, request) == "new":
                    accepted[client_id] = i
            except Refused as error:
                answers[i] = error
        for client_id, refused in self._merge(
            {number: requests[i][1] for number, i in accepted.items()}
        ).items():
            answers[accepted[client_id]] = refused
        for i, (client_id, request) in enumerate(requests):
            if i not in answers:
                answers[i] = (
                    self.known(request)
                    if request.sequence <= self._members[client_id].sequence
                    else self.answer()
                )
        return [answers[i] for i in range(len(requests))]

    def _merge(self, requests: dict[int, SyncRequest]) -> dict[int, Refused]:
        """All of them in one commit. If their sum can't be, those that can be, and the others are named."""
        layers = range(self.algorithm.n_layers)
        try:
            self._merge_all(requests, layers)
        except NumericalError:
            refused = self._unfit(requests, layers)
            self._merge_all(
                {number: each for number, each in requests.items() if number not in refused}, layers
            )
            return refused
        return {}

    def _merge_all(self, requests: dict[int, SyncRequest], layers: Sequence[int]) -> None:
        if requests:
            with self._changing():
                self._add(requests, layers, n_rounds=len(requests), communication=len(requests))

    def close_round(
        self, requests: Sequence[SyncRequest], asked: Sequence[int]
    ) -> list[SyncAnswer | Refused]:
        """The end of a round of those who sync together: the layers that were asked for, of all who are there. Each has its
        answer, in the order of the requests, which `look` has found new."""
        by_client, epoch = {request.upload.client_id: request for request in requests}, self.epoch
        refused: dict[int, Refused] = {}
        try:
            self._end_round(by_client, asked)
        except NumericalError:
            refused = self._unfit(by_client, asked)
            self._end_round(
                {number: each for number, each in by_client.items() if number not in refused}, asked
            )
        answer = self._answer(merged=True, layers=asked if self.epoch == epoch else None)
        return [refused.get(request.upload.client_id, answer) for request in requests]

    def _end_round(self, requests: dict[int, SyncRequest], asked: Sequence[int]) -> None:
        epoch = self.epoch
        with self._changing():
            if asked and requests:
                self._add(requests, asked, n_rounds=1, communication=len(requests) * len(asked))
            if self.epoch == epoch:
                self._counts["round"] += 1

    def _unfit(self, requests: dict[int, SyncRequest], asked: Sequence[int]) -> dict[int, Refused]:
        """Those that can't be added to what is known and to those before them. Tried in memory, and put back."""
        refused = {}
        try:
            for client_id, request in requests.items():
                try:
                    self.server.add([select_layers(request.upload, asked)])
                except NumericalError as error:
                    refused[client_id] = Refused("implausible", str(error))
        finally:
            self._put_back()
        return refused

    def _add(
        self,
        requests: dict[int, SyncRequest],
        layers: Sequence[int],
        n_rounds: int,
        communication: int,
    ) -> None:
        """Sums, sequences and counts; what `_changing` undoes if the commit fails."""
        uploads = [select_layers(request.upload, layers) for request in requests.values()]
        self.server.add([upload for upload in uploads if len(upload.layers)])
        self._changed.update(*(upload.layers.tolist() for upload in uploads))
        merged, these, now = 0, json.dumps([*layers]), time.time()
        for (client_id, request), upload in zip(requests.items(), uploads, strict=True):
            member, pulls = self._members[client_id], int(upload.pulls.sum())
            merged += pulls
            changed = member._replace(
                sequence=request.sequence,
                digest=request.digest,
                layers=these,
                epoch=request.epoch,
                pulls=member.pulls + pulls,
                syncs=member.syncs + 1,
                seen=now,
            )
            self._put(client_id, changed)
        for name, more in (
            ("n_syncs", n_rounds),
            ("communication", communication),
            ("pulls", merged),
            ("total_pulls", merged),
        ):
            self._counts[name] += more
        if self.plan.doubles and self.pulls >= self.algorithm.horizon and self.epoch < LAST_EPOCH:
            self._next_epoch()

    def _next_epoch(self) -> None:
        """Twice the horizon, from nothing."""
        self._counts["epoch"] += 1
        self._counts["pulls"] = self._counts["round"] = 0
        self.server = Server(self.plan.algorithm(self.epoch))
        self._file.execute("DELETE FROM layers")
        self._changed = set(range(self.algorithm.n_layers))

    # --- answers ---------------------------------------------------------------------------------------------------------

    def answer(self) -> SyncAnswer:
        """For those whose round or epoch is over: where everybody is now."""
        return self._answer(merged=False)

    def known(self, request: SyncRequest) -> SyncAnswer:
        """For an upload that was merged before: the layers that were, as they are now."""
        layers = json.loads(self._members[request.upload.client_id].layers)
        over = request.epoch != self.epoch  # then it is all of the new one that the client needs
        return self._answer(
            merged=True, layers=None if over or len(layers) == self.algorithm.n_layers else layers
        )

    def _answer(self, *, merged: bool, layers: Sequence[int] | None = None) -> SyncAnswer:
        return SyncAnswer(self.epoch, self.round, merged, self.download(layers))

    def download(self, layers: Sequence[int] | None = None) -> Download:
        """What the server knows of these layers, or of all; the same object as long as it is the same."""
        if layers is not None:
            return self._download_of(layers)
        if self._download is None:
            self._download = self._download_of(range(self.algorithm.n_layers))
        return self._download

    def _download_of(self, layers: Sequence[int]) -> Download:
        these, (grams, moments) = np.array(layers, np.int64), self._sums
        return Download(these, grams[these], moments[these])

    # --- the file --------------------------------------------------------------------------------------------------------

    def _begin(self, plan: Agreement | None) -> None:
        facts = dict(self._file.execute("SELECT name, value FROM facts"))
        if not facts:
            if plan is None:
                raise InvalidInput(f"{self.path} is new: say which algorithm it is for")
            self.plan, self._counts = plan, dict.fromkeys(COUNT_NAMES, 0)
            self.server = Server(plan.algorithm(0))
            self._sums = self.server.sums()
            with self._changing():
                self._file.execute(
                    "INSERT INTO facts VALUES ('plan', ?)", (encode_spec(plan.spec).decode(),)
                )
                self._changed = set(range(self.algorithm.n_layers))
            return
        self._read(facts)
        if plan is not None and plan.fingerprint != self.fingerprint:
            raise InvalidInput(
                f"{self.path} is for another algorithm, {self.algorithm.name}: give another name, or leave it out"
            )

    def _read(self, facts: dict[str, Any]) -> None:
        try:
            self.plan = Agreement.from_spec(json.loads(facts["plan"]))
            self._counts = {name: int(facts[name]) for name in COUNT_NAMES}
            self.server = Server(self.plan.algorithm(self.epoch))
            found = [
                self._restore(*row)
                for row in self._file.execute(
                    "SELECT layer, gram, moment FROM layers ORDER BY layer"
                )
            ]
            if found != list(range(self.algorithm.n_layers)):
                raise ValueError(f"it has the layers {found}, there are {self.algorithm.n_layers}")
            self._sums = self.server.sums()
            for number, *rest in self._file.execute(
                f"SELECT client_id, {', '.join(Member._fields)} FROM clients"
            ):
                self._members[number] = Member(*rest)
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise InvalidInput(f"{self.path} does not hold what a server does: {error}") from error

    def _restore(self, layer: int, gram: bytes, moment: bytes) -> int:
        dim = self.algorithm.dim
        triangle, vector = (
            np.frombuffer(gram, "<f8").reshape(dim * (dim + 1) // 2),
            np.frombuffer(moment, "<f8").reshape(dim),
        )
        if not self.server.put(layer, unpack_upper(triangle, dim), vector.copy()):
            raise ValueError(f"layer {layer} is not positive definite")
        return layer

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """All that happens in the block, in memory and in the file, or nothing."""
        if self._is_ahead:
            self._put_back()
        server, counts = self.server, dict(self._counts)
        try:
            self._file.execute("BEGIN IMMEDIATE")
            yield
            sums = self._write()
            self._file.execute("COMMIT")
        except BaseException:
            self._undo(server, counts)
            raise
        else:
            self._sums = sums
        finally:
            self._changed, self._replaced, self._download = set(), {}, None

    def _undo(self, server: Server, counts: dict[str, int]) -> None:
        """What needs no memory comes first: that may be what there was too little of."""
        self.server, self._counts = server, counts
        for number, member in self._replaced.items():
            if member is NEW_MEMBER:
                self._members.pop(number, None)
            else:
                self._members[number] = member
        try:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
        finally:
            self._put_back()

    def _put_back(self) -> None:
        """The sums of the last commit, in memory. If that fails it is done before the next change."""
        self._is_ahead = True
        for layer, (gram, moment) in enumerate(zip(*self._sums, strict=True)):
            self.server.put(layer, unpack_upper(gram, self.algorithm.dim), moment)
        self._is_ahead = False

    def _put(self, client_id: int, member: Member) -> None:
        self._replaced.setdefault(client_id, self._members.get(client_id, NEW_MEMBER))
        self._members[client_id] = member

    def _write(self) -> tuple[Floats, Floats]:
        """What has changed, to the file; returns all sums as they are now."""
        sums = grams, moments = self.server.sums()
        layers = [
            (at, grams[at].astype("<f8").tobytes(), moments[at].astype("<f8").tobytes())
            for at in sorted(self._changed)
        ]
        self._insert("facts", [*self._counts.items()])
        self._insert("layers", layers)
        self._insert("clients", [(number, *self._members[number]) for number in self._replaced])
        return sums

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """In as few calls as can be: each lets other threads run, and where they are busy it takes milliseconds to come back."""
        while rows:
            these, rows = (
                rows[: MOST_STATEMENT_VALUES // len(rows[0])],
                rows[MOST_STATEMENT_VALUES // len(rows[0]) :],
            )
            marks = f"({', '.join('?' * len(these[0]))})"
            values = [value for row in these for value in row]
            self._file.execute(
                f"INSERT OR REPLACE INTO {table} VALUES {', '.join([marks] * len(these))}", values
            )

    def close(self) -> None:
        self._file.close()
