"""The server's durable state: the sums of all layers, and the clients, rounds and epochs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .._shared.array_types import Floats
from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import LAST_EPOCH
from ..errors import InvalidInput, NumericalError
from ..live.messages import Download
from ..live.server import Server
from ..live.triangles import unpack_upper
from ..live.uploads import select_layers
from .agreement import Agreement
from .ledger_tables import (
    COUNT_NAMES,
    LEDGER_STORE,
    NEW_MEMBER,
    Member,
    insert_rows,
    read_members,
)
from .refusals import OTHER_ALGORITHM, Refused
from .request_checks import (
    check_content,
    check_gap,
    check_identity,
    check_repeat,
    check_sequence,
    is_round_over,
)
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


class Ledger:
    """Sums, sessions, rounds and epochs of a federation, in memory and in a file.

    >>> import tempfile, fedsuplin as fsl
    >>> agreement = Agreement.of(fsl.make("async", dim=2, n_arms=3, n_clients=2, horizon=1000))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(Path(folder) / "server.db", agreement)
    ...     ledger.join(0, JoinRequest(0, bytes(16))).sequence
    ...     ledger.close()
    0
    """

    agreement: Agreement
    server: Server
    _counts: dict[str, int]

    def __init__(self, path: str | os.PathLike[str], agreement: Agreement | None = None) -> None:
        self.path = Path(path)
        self._file = open_store(self.path, LEDGER_STORE)
        self._changed: set[int] = set()  # layers that changed since the last commit
        self._replaced: dict[int, Member] = {}  # members as committed, of those that changed since
        self._is_ahead = False  # the sums in memory were not committed, and could not be undone
        self._sums: tuple[Floats, Floats]  # A (packed) and b as committed, one row per layer
        self._download: Download | None = None
        self._members: dict[int, Member] = {}
        try:
            self._begin(agreement)
        except BaseException:
            self._file.close()
            raise

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm of the current epoch."""
        return self.server.algorithm

    @property
    def n_syncs(self) -> int:
        """How many syncs there were; one per round, where all sync together."""
        return self._counts["n_syncs"]

    @property
    def communication(self) -> int:
        """The communication as the paper counts it."""
        return self._counts["communication"]

    @property
    def epoch(self) -> int:
        """The current epoch; 0 if the horizon is known."""
        return self._counts["epoch"]

    @property
    def round(self) -> int:
        """The current round, where all sync together."""
        return self._counts["round"]

    @property
    def pulls(self) -> int:
        """How many pulls were merged in this epoch."""
        return self._counts["pulls"]

    @property
    def total_pulls(self) -> int:
        """How many pulls were merged in all epochs."""
        return self._counts["total_pulls"]

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint of the agreement."""
        return self.agreement.fingerprint

    def clients(self) -> dict[int, dict[str, Any]]:
        """Return the last upload, counts and time of every client that has joined."""
        names = ("sequence", "pulls", "syncs", "seen")
        return {
            number: {name: getattr(each, name) for name in names}
            for number, each in self._members.items()
        }

    # --- joining ----------------------------------------------------------------------------------

    def join(self, client_id: int, request: JoinRequest) -> JoinAnswer:
        """Begin a session in place of the client's last one, continue it, or only answer."""
        check_identity(client_id, request.client_id)
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
                    f"client {client_id} has had {member.generation} sessions: "
                    "ask again, and join as the next",
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
            with self._open_transaction():
                self._set_member(client_id, member)
        known = member.sequence if member.session == request.session else NO_SEQUENCE
        return JoinAnswer(
            self.agreement.spec, self.epoch, self.round, known, member.generation, self.download()
        )

    # --- requests ---------------------------------------------------------------------------------

    def classify_request(self, client_id: int, request: SyncRequest | RoundRequest) -> str:
        """Return "new", "known" or "over", or raise Refused.

        "known": this upload was merged before. "over": its round or its epoch has ended.
        """
        named = request.upload.client_id if isinstance(request, SyncRequest) else request.client_id
        check_identity(client_id, named)
        if request.fingerprint != self.fingerprint:
            raise Refused("algorithm", OTHER_ALGORITHM)
        member = self._members.get(client_id)
        if member is None or member.session != request.session:
            raise Refused(
                "session",
                f"client {client_id} has joined again since then, or never: this session is over",
            )
        if request.epoch > self.epoch:
            raise Refused(
                "malformed", f"epoch {request.epoch} has not begun: it is epoch {self.epoch}"
            )
        if isinstance(request, SyncRequest):
            check_sequence(request.sequence)
            if request.sequence <= member.sequence:
                check_repeat(client_id, request, member)
                return "known"
        if request.epoch < self.epoch:
            return "over"
        if isinstance(request, SyncRequest):
            check_gap(client_id, request, member, self.algorithm)
            check_content(request, self.algorithm, self.total_pulls)
        return "over" if is_round_over(request, self.algorithm, self.round) else "new"

    # --- uploads ----------------------------------------------------------------------------------

    def sync(self, requests: Sequence[tuple[int, SyncRequest]]) -> list[SyncAnswer | Refused]:
        """Merge the uploads of several clients in one commit, and return their answers."""
        answers: dict[int, SyncAnswer | Refused] = {}  # by request
        accepted: dict[int, int] = {}  # the number of the request, by client
        for i, (client_id, request) in enumerate(requests):
            try:
                if client_id in accepted:  # a retry, or nonsense: the next batch finds out
                    answers[i] = Refused(
                        "round",
                        f"another upload of client {client_id} is being merged: send it again",
                    )
                elif self.classify_request(client_id, request) == "new":
                    accepted[client_id] = i
            except Refused as error:
                answers[i] = error
        new = {number: requests[i][1] for number, i in accepted.items()}
        for client_id, refused in self._merge(new).items():
            answers[accepted[client_id]] = refused
        for i, (client_id, request) in enumerate(requests):
            if i not in answers:
                answers[i] = (
                    self.answer_known(request)
                    if request.sequence <= self._members[client_id].sequence
                    else self.answer_over()
                )
        return [answers[i] for i in range(len(requests))]

    def _merge(self, requests: dict[int, SyncRequest]) -> dict[int, Refused]:
        """Merge uploads in one commit; return the refusals of those that cannot be added."""
        layers = range(self.algorithm.n_layers)
        try:
            self._merge_all(requests, layers)
        except NumericalError:
            refused = self._find_unfit(requests, layers)
            self._merge_all(
                {number: each for number, each in requests.items() if number not in refused}, layers
            )
            return refused
        return {}

    def _merge_all(self, requests: dict[int, SyncRequest], layers: Sequence[int]) -> None:
        """Merge all uploads in one commit, or none."""
        if requests:
            with self._open_transaction():
                self._add(requests, layers, n_rounds=len(requests), communication=len(requests))

    def close_round(
        self, requests: Sequence[SyncRequest], asked: Sequence[int]
    ) -> list[SyncAnswer | Refused]:
        """End a round of clients that sync together: merge the layers that were asked for.

        The requests must be new. Their answers are returned in the same order.
        """
        by_client, epoch = {request.upload.client_id: request for request in requests}, self.epoch
        refused: dict[int, Refused] = {}
        try:
            self._end_round(by_client, asked)
        except NumericalError:
            refused = self._find_unfit(by_client, asked)
            self._end_round(
                {number: each for number, each in by_client.items() if number not in refused}, asked
            )
        answer = self._answer(merged=True, layers=asked if self.epoch == epoch else None)
        return [refused.get(request.upload.client_id, answer) for request in requests]

    def _end_round(self, requests: dict[int, SyncRequest], asked: Sequence[int]) -> None:
        """Merge the uploads of a round and begin the next, in one commit."""
        epoch = self.epoch
        with self._open_transaction():
            if asked and requests:
                self._add(requests, asked, n_rounds=1, communication=len(requests) * len(asked))
            if self.epoch == epoch:
                self._counts["round"] += 1

    def _find_unfit(
        self, requests: dict[int, SyncRequest], asked: Sequence[int]
    ) -> dict[int, Refused]:
        """Return the refusals of uploads that cannot be added to the sums and to those before them.

        Each is tried in memory; then the sums are put back.
        """
        refused = {}
        try:
            for client_id, request in requests.items():
                try:
                    self.server.add_checked([select_layers(request.upload, asked)])
                except NumericalError as error:
                    refused[client_id] = Refused("implausible", str(error))
        finally:
            self._put_sums_back()
        return refused

    def _add(
        self,
        requests: dict[int, SyncRequest],
        layers: Sequence[int],
        n_rounds: int,
        communication: int,
    ) -> None:
        """Add uploads to sums, members and counts. The open transaction undoes it if it fails."""
        uploads = [select_layers(request.upload, layers) for request in requests.values()]
        self.server.add_checked([upload for upload in uploads if len(upload.layers)])
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
            self._set_member(client_id, changed)
        for name, more in (
            ("n_syncs", n_rounds),
            ("communication", communication),
            ("pulls", merged),
            ("total_pulls", merged),
        ):
            self._counts[name] += more
        is_over = self.pulls >= self.algorithm.horizon
        if self.agreement.doubles and is_over and self.epoch < LAST_EPOCH:
            self._begin_next_epoch()

    def _begin_next_epoch(self) -> None:
        """Begin with twice the horizon and empty sums."""
        self._counts["epoch"] += 1
        self._counts["pulls"] = self._counts["round"] = 0
        self.server = Server(self.agreement.algorithm(self.epoch))
        self._file.execute("DELETE FROM layers")
        self._changed = set(range(self.algorithm.n_layers))

    # --- answers ----------------------------------------------------------------------------------

    def answer_over(self) -> SyncAnswer:
        """Return the answer to a client whose round or epoch is over: where the server is now."""
        return self._answer(merged=False)

    def answer_known(self, request: SyncRequest) -> SyncAnswer:
        """Return the answer to an upload that was merged before: its merged layers as of now."""
        layers = json.loads(self._members[request.upload.client_id].layers)
        over = request.epoch != self.epoch  # the client needs all layers of the new epoch
        return self._answer(
            merged=True, layers=None if over or len(layers) == self.algorithm.n_layers else layers
        )

    def _answer(self, *, merged: bool, layers: Sequence[int] | None = None) -> SyncAnswer:
        """Return the answer to an upload, with the sums of some layers or of all."""
        return SyncAnswer(self.epoch, self.round, merged, self.download(layers))

    def download(self, layers: Sequence[int] | None = None) -> Download:
        """Return the sums of some layers or of all; of all, the same object until they change."""
        if layers is not None:
            return self._make_download(layers)
        if self._download is None:
            self._download = self._make_download(range(self.algorithm.n_layers))
        return self._download

    def _make_download(self, layers: Sequence[int]) -> Download:
        """Return the committed sums of some layers."""
        these, (grams, moments) = np.array(layers, np.int64), self._sums
        return Download(these, grams[these], moments[these])

    # --- the file ---------------------------------------------------------------------------------

    def _begin(self, agreement: Agreement | None) -> None:
        """Read the file, or write a new one."""
        facts = dict(self._file.execute("SELECT name, value FROM facts"))
        if facts:
            self._read(facts)
            if agreement is not None and agreement.fingerprint != self.fingerprint:
                raise InvalidInput(
                    f"{self.path} is for another algorithm, {self.algorithm.name}: "
                    "name another file, or no algorithm"
                )
            return
        if agreement is None:
            raise InvalidInput(f"{self.path} is new: name the algorithm that it is for")
        self.agreement, self._counts = agreement, dict.fromkeys(COUNT_NAMES, 0)
        self.server = Server(agreement.algorithm(0))
        self._sums = self.server.sums()
        with self._open_transaction():
            spec = encode_spec(agreement.spec).decode()
            self._file.execute("INSERT INTO facts VALUES ('plan', ?)", (spec,))
            self._changed = set(range(self.algorithm.n_layers))

    def _read(self, facts: dict[str, Any]) -> None:
        """Take everything from the file."""
        try:
            self.agreement = Agreement.from_spec(json.loads(facts["plan"]))
            self._counts = {name: int(facts[name]) for name in COUNT_NAMES}
            self.server = Server(self.agreement.algorithm(self.epoch))
            rows = self._file.execute("SELECT layer, gram, moment FROM layers ORDER BY layer")
            found = [self._restore_layer(*row) for row in rows]
            if found != list(range(self.algorithm.n_layers)):
                raise ValueError(f"it has the layers {found}, there are {self.algorithm.n_layers}")
            self._sums = self.server.sums()
            self._members = read_members(self._file)
        except (ValueError, LookupError, TypeError, OverflowError) as error:
            raise InvalidInput(f"{self.path} does not hold a server's state: {error}") from error

    def _restore_layer(self, layer: int, gram: bytes, moment: bytes) -> int:
        """Put the sums of a layer into memory, and return its number."""
        dim = self.algorithm.dim
        triangle = np.frombuffer(gram, "<f8").reshape(dim * (dim + 1) // 2)
        vector = np.frombuffer(moment, "<f8").reshape(dim).copy()
        if not self.server.replace_layer(layer, unpack_upper(triangle, dim), vector):
            raise ValueError(f"layer {layer} is not positive definite")
        return layer

    @contextmanager
    def _open_transaction(self) -> Iterator[None]:
        """Run a block whose changes in memory and in the file are made together or not at all."""
        if self._is_ahead:
            self._put_sums_back()
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
        """Undo all changes; first those that need no memory, which may have run out."""
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
            self._put_sums_back()

    def _put_sums_back(self) -> None:
        """Put the committed sums back into memory. If that fails, the next change does it first."""
        self._is_ahead = True
        for layer, (gram, moment) in enumerate(zip(*self._sums, strict=True)):
            self.server.replace_layer(layer, unpack_upper(gram, self.algorithm.dim), moment)
        self._is_ahead = False

    def _set_member(self, client_id: int, member: Member) -> None:
        """Change what is remembered about a client."""
        self._replaced.setdefault(client_id, self._members.get(client_id, NEW_MEMBER))
        self._members[client_id] = member

    def _write(self) -> tuple[Floats, Floats]:
        """Write what has changed to the file, and return all sums as they are now."""
        sums = grams, moments = self.server.sums()
        layers = [
            (at, grams[at].astype("<f8").tobytes(), moments[at].astype("<f8").tobytes())
            for at in sorted(self._changed)
        ]
        members = [(number, *self._members[number]) for number in self._replaced]
        insert_rows(self._file, "facts", [*self._counts.items()])
        insert_rows(self._file, "layers", layers)
        insert_rows(self._file, "clients", members)
        return sums

    def close(self) -> None:
        """Close the file."""
        self._file.close()
