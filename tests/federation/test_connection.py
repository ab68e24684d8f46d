"""The client side of a federation: no fault loses an observation or counts it twice."""

import asyncio
import gc
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsuplin as fsl
from fedsuplin.algorithm.making import make_for
from fedsuplin.errors import FederationError, FederationWarning, InvalidInput
from fedsuplin.federation.agreement import Agreement
from fedsuplin.federation.client_journal import ClientJournal
from fedsuplin.federation.credentials import Listening, make_tokens, write_token_hashes
from fedsuplin.federation.ledger import Ledger
from fedsuplin.federation.link import Link
from fedsuplin.federation.refusals import Refused
from fedsuplin.federation.service import Service
from fedsuplin.federation.wire import (
    PATHS,
    JoinAnswer,
    JoinRequest,
    RoundAnswer,
    RoundRequest,
    SyncAnswer,
    SyncRequest,
)
from fedsuplin.live.triangles import unpack_upper
from fedsuplin.simulation.preparing import choose_arrival

SIZES = {"dim": 3, "n_arms": 4, "n_clients": 3}
IN_MEMORY = (
    "/dev/shm" if Path("/dev/shm").is_dir() else None
)  # faster, and these tests need no durable disk
CODES = {
    "round": "ABORTED",
    "session": "FAILED_PRECONDITION",
    "algorithm": "FAILED_PRECONDITION",
    "identity": "PERMISSION_DENIED",
}


# --- a server without a network -------------------------------------------------------------------


class Hub:
    """A ledger and a service without a network. A call's answer is put into `answers`."""

    def __init__(self, folder, agreement):
        self.folder, self.n_files = folder, 0
        self.ledger = Ledger(folder / "server-0.db", agreement)
        self._begin(range(SIZES["n_clients"]))

    def _begin(self, expected):
        self.expected, self.answers = set(expected), {}
        self._new_round()

    def _new_round(self):
        self.reports, self.uploads, self.asked, self.waiting = {}, {}, None, {}

    def restart(self):
        """Kill the server and start it again from the files on disk."""
        old, self.n_files = self.folder / f"server-{self.n_files}.db", self.n_files + 1
        new = copy_store(old, self.folder / f"server-{self.n_files}.db")
        self.ledger.close()
        self.ledger = Ledger(new)
        self._begin(range(SIZES["n_clients"]))

    def call(self, key, client_id, method, data):
        try:
            found = getattr(self, method.lower())(key, client_id, data)
        except Refused as error:
            found = (CODES.get(error.reason, "INVALID_ARGUMENT"), str(error))
        if found is not None:
            self.answers[key] = found

    def join(self, _, client_id, data):
        return self.ledger.join(client_id, JoinRequest.from_bytes(data)).to_bytes()

    def sync(self, key, client_id, data):
        request = SyncRequest.from_bytes(data)
        if self.ledger.algorithm.syncs == "one" or request.leaving:
            (answer,) = self.ledger.sync([(client_id, request)])
            if isinstance(answer, Refused):
                raise answer
            if request.leaving:
                for those in (self.reports, self.uploads):
                    those.pop(client_id, None)
                self.expected.discard(client_id)
                self.step()
            return answer.to_bytes()
        found = self.ledger.classify_request(client_id, request)
        if found != "new":
            return (
                self.ledger.answer_known(request) if found == "known" else self.ledger.answer_over()
            ).to_bytes()
        if self.asked is None:
            raise Refused("round", "report again")
        self.expected.add(client_id)
        self.uploads[client_id] = request
        self.waiting[client_id] = key
        self.step()

    def round(self, key, client_id, data):
        request = RoundRequest.from_bytes(data)
        if self.ledger.classify_request(client_id, request) == "over":
            over = self.ledger.answer_over()
            self.expected.add(client_id)
            return RoundAnswer(over.epoch, over.round, False, over.download).to_bytes()
        self.expected.add(client_id)
        self.reports[client_id] = request
        if self.asked is not None:
            return RoundAnswer(self.ledger.epoch, self.ledger.round, True).to_bytes()
        self.waiting[client_id] = key
        self.step()

    def step(self):
        if self.asked is None and self.reports and self.expected <= self.reports.keys():
            self.asked = {layer for each in self.reports.values() for layer in each.asking}
            if not self.asked:
                self.ledger.close_round([], ())
                self.answer_waiting(RoundAnswer(self.ledger.epoch, self.ledger.round, False))
            else:
                self.answer_waiting(
                    RoundAnswer(self.ledger.epoch, self.ledger.round, True), over=False
                )
        elif self.asked and self.reports.keys() <= self.uploads.keys():
            answers = self.ledger.close_round(
                [self.uploads[i] for i in sorted(self.uploads)], sorted(self.asked)
            )
            self.answer_waiting(answers[0] if answers else self.ledger.answer_over())

    def answer_waiting(self, answer, over=True):
        for key in self.waiting.values():
            self.answers[key] = answer.to_bytes()
        self.waiting = {}
        if over:
            self._new_round()

    def deadline(self):
        """End the wait for clients that have not reported or uploaded."""
        self.expected = set(self.reports)
        if self.asked is not None:
            for client_id in self.reports.keys() - self.uploads.keys():
                del self.reports[client_id]
        if self.reports:
            self.step()
        else:
            self._new_round()

    def close(self):
        self.ledger.close()


def copy_store(old, new):
    """Copy a store as a killed process leaves it: the files, without uncommitted changes."""
    for end in ("", "-wal"):
        if Path(f"{old}{end}").exists():
            shutil.copy(f"{old}{end}", f"{new}{end}")
    return new


class Killed(BaseException):
    """Raised at a commit in place of killing the process."""


class FragileJournal(ClientJournal):
    """A journal whose process is killed before or after one of its commits."""

    life = None

    def _commit_or_die(self, commit, *values):
        if self.life is not None:
            self.life -= 1
        if self.life == 0:
            raise Killed
        commit(*values)
        if self.life is not None:
            self.life -= 1
        if self.life == 0:
            raise Killed

    def _add(self, *values):
        self._commit_or_die(super()._add, *values)

    def uploaded(self, *values):
        self._commit_or_die(super().uploaded, *values)

    def keep(self, *values):
        self._commit_or_die(super().keep, *values)


class Player:
    """A client that is killed and restarted, with a network that loses and repeats messages."""

    def __init__(self, hub, client_id, folder, rng, faults):
        self.hub, self.client_id, self.folder, self.rng, self.faults = (
            hub,
            client_id,
            folder,
            rng,
            faults,
        )
        self.n_files, self.n_calls, self.now, self.late = 0, 0, 0.0, []
        self.pending = None  # the unanswered request and its key
        self._open()

    def _open(self):
        journal = FragileJournal(self.folder / f"client-{self.client_id}-{self.n_files}.db")
        if self.rng.random() < self.faults:
            journal.life = int(self.rng.integers(1, 60))
        self.link = Link(self.client_id, journal=journal, clock=lambda: self.now)

    def restart(self):
        """Kill the client, restart it from a copy of its store and return the old link."""
        old, before, self.pending = self.link, self.link, None
        path = self.folder / f"client-{self.client_id}-{self.n_files}.db"
        self.n_files += 1
        copy_store(path, self.folder / f"client-{self.client_id}-{self.n_files}.db")
        old.stop()
        self._open()
        return before

    def restart_and_compare(self):
        before = self.restart()
        if before.client is not None:
            assert_same_client(before, self.link)

    def survive(self, step, *values):
        """Run a step; if the process is killed in it, restart it and return `Killed`."""
        try:
            return step(*values)
        except Killed:
            self.restart()
            return Killed

    # --- the network ------------------------------------------------------------------------------

    def pump(self):
        """Let one more event happen on the network."""
        if (
            self.late and self.rng.random() < 0.3
        ):  # a delayed request arrives, and its answer is ignored
            self.hub.call(*self.late.pop(self.rng.integers(len(self.late))))
        if self.pending is not None:
            self.receive()
            return
        self.now += self.link.compute_delay() + 1e-6
        request = self.survive(self.link.request)
        if request is None or request is Killed:
            return
        self.n_calls += 1
        key = (self.client_id, self.n_files, self.n_calls)
        call = (key, self.client_id, request.method, request.data)
        what = self.rng.random() / self.faults if self.faults else 1.0
        if what < 0.2:  # the request is lost
            self.link.take_failure(request.number, "UNAVAILABLE", "lost")
        elif what < 0.4:  # or arrives later, after another one was sent
            self.late.append(call)
            self.link.take_failure(request.number, "DEADLINE_EXCEEDED", "late")
        elif what < 0.6:  # its answer is lost
            self.hub.call(*call)
            self.hub.answers.pop(key, None)
            self.link.take_failure(request.number, "DEADLINE_EXCEEDED", "lost")
        else:
            self.hub.call(*call)
            if what < 0.8:  # it arrives twice, and is answered twice
                self.hub.call((*key, "again"), *call[1:])
            self.pending = request, key
            self.receive()

    def receive(self):
        request, key = self.pending
        if key not in self.hub.answers:
            if (
                self.hub.waiting.get(self.client_id) != key
            ):  # the server was restarted, or has another call of this client
                self.pending = None
                self.link.take_failure(request.number, "UNAVAILABLE", "gone")
            return
        answer, self.pending = self.hub.answers.pop(key), None
        if isinstance(answer, bytes):
            self.link.take_answer(
                request.number - 1, answer
            )  # an answer to an earlier attempt is ignored
            self.survive(self.link.take_answer, request.number, answer)
        else:
            self.link.take_failure(request.number, *answer)

    # --- choosing and learning --------------------------------------------------------------------

    def select(self, contexts):
        while (decision := self.survive(self.link.select, contexts)) is Killed:
            for number in tuple(
                self.link.client.open_ids
            ):  # made, but lost with the process: never observed
                if number not in self.waiting_for:
                    self.survive(self.link.drop, number)
        return decision

    def observe(self, decision, reward):
        while decision.id in self.link.client.open_ids:
            self.survive(self.link.observe, decision.id, reward)

    waiting_for = ()


def assert_same_client(one, other):
    """Assert that two links agree in everything that a later step could depend on."""
    for layer in range(one.client.algorithm.n_layers):
        for name, known in one.client.layer(layer).items():
            if name not in ("quiet", "n_spikes"):  # these only save work and change no decision
                assert np.array_equal(known, other.client.layer(layer)[name]), (layer, name)
    parts = ("_pulls", "_sent", "_next")
    assert all(getattr(one.client, name) == getattr(other.client, name) for name in parts)
    assert (
        one.client._engine.asking == other.client._engine.asking
        and one.client.n_observed == other.client.n_observed
    )
    np.testing.assert_equal(one.client._open, other.client._open)
    np.testing.assert_equal(one.client._since, other.client._since)
    states = [
        {axis: rule.state for axis, rule in each.client._engine.rules.items()}
        for each in (one, other)
    ]
    np.testing.assert_equal(*states)
    assert all(
        getattr(one._state, name) == getattr(other._state, name)
        for name in ("session", "sequence", "frozen", "leaves", "round", "epoch")
    )
    assert (
        one._state.at_end or (one._report is not None and one._state.frozen is None)
    ) == other._state.at_end


@contextmanager
def run_federation(name, rng, faults, **keywords):
    """Run a server and clients that have joined it, with their stores in a temporary folder."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        algorithm = (
            fsl.make(name, **SIZES, **({"horizon": 500} | keywords))
            if isinstance(name, str)
            else name
        )
        hub = Hub(Path(folder), Agreement.of(algorithm))
        players = [Player(hub, i, Path(folder), rng, faults) for i in range(SIZES["n_clients"])]
        try:
            for player in players:
                while player.link.client is None:
                    player.pump()
            yield hub, players
        finally:
            hub.close()
            for player in players:
                player.link.stop()


def draw_contexts(rng):
    found = rng.standard_normal((SIZES["n_arms"], SIZES["dim"]))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def read_sums(ledger):
    """Return the server's sums of each layer, without the ridge."""
    download, ridge = ledger.download(), ledger.algorithm.setting.ridge * np.eye(SIZES["dim"])
    grams = [unpack_upper(gram, SIZES["dim"]) for gram in download.grams]
    return [np.triu(gram - ridge) for gram in grams], list(download.moments)


def make_zero_sums(ledger):
    """Return sums for every layer, before any observation."""
    n, dim = ledger.algorithm.n_layers, SIZES["dim"]
    return [np.zeros((dim, dim)) for _ in range(n)], [np.zeros(dim) for _ in range(n)]


def add_observation(sums, layer, x, reward):
    sums[0][layer] += np.triu(np.outer(x, x))
    sums[1][layer] += reward * x


def flush_all(hub, players):
    """Flush every player until the server has merged all observations."""
    for player in players:
        until = player.link.flush()
        for step in range(2000):
            if player.link.is_flushed(until):
                break
            if step % 20 == 19:
                hub.deadline()  # the other clients have finished
            player.link.flush()  # a restarted client has forgotten the earlier flush
            player.pump()
            assert player.link.error is None, player.link.error
        else:
            raise AssertionError("not merged after 2000 steps")


# --- random faults --------------------------------------------------------------------------------


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["async", "fedlinucb", "oful", "sync"]),
    faults=st.sampled_from([0.0, 0.3, 0.8]),
)
def test_the_servers_sums_equal_all_observations_under_any_faults(seed, name, faults):
    rng = np.random.default_rng(seed)
    with run_federation(name, rng, faults) as (hub, players):
        sums, waiting, n = make_zero_sums(hub.ledger), [], 0
        for player in players:
            player.waiting_for = set()
        for _ in range(250):
            player, what = players[rng.integers(len(players))], rng.random()
            if what < 0.25:
                contexts = draw_contexts(rng)
                decision = player.select(contexts)
                player.waiting_for.add(decision.id)
                waiting.append((player, decision, contexts[decision.arm]))
            elif what < 0.5 and waiting:
                player, decision, x = waiting.pop(rng.integers(len(waiting)))
                reward = rng.random()
                player.observe(decision, reward)
                player.waiting_for.discard(decision.id)
                add_observation(sums, decision.layer, x, reward)
                n += 1
            elif what < 0.5 + 0.04 * faults:
                player.restart_and_compare()
            elif what < 0.5 + 0.06 * faults:
                hub.restart()
            elif what < 0.58:
                hub.deadline()
            else:
                player.pump()
            assert player.link.error is None, player.link.error
        flush_all(hub, players)
        assert sum(player.link.n_observed for player in players) == n == hub.ledger.total_pulls
        for found, right in zip(read_sums(hub.ledger), sums, strict=True):
            assert np.allclose(found, right, rtol=0, atol=1e-9)


def play_schedule(name, seed, faults, n_rounds=25):
    """Play a fixed schedule without decisions during a sync; return choices and sums."""
    schedule, rng, chosen = np.random.default_rng(seed), np.random.default_rng(seed + 1), []
    with (
        run_federation(name, rng, faults, C=0.05)
        if name == "async"
        else run_federation(name, rng, faults) as (hub, players)
    ):
        for _ in range(n_rounds):
            for player in players:
                contexts = draw_contexts(schedule)
                decision = player.select(contexts)
                if rng.random() < 0.1 * faults:
                    player.waiting_for = {decision.id}
                    player.restart_and_compare()
                player.observe(decision, schedule.random())
                chosen.append((decision.arm, decision.layer))
                if hub.ledger.algorithm.syncs == "one":
                    run_until_idle(hub, [player], rng, faults)
            run_until_idle(hub, players, rng, faults)
        return chosen, read_sums(hub.ledger), hub.ledger.communication, hub.ledger.round


def run_until_idle(hub, players, rng, faults):
    """Run the network, with faults, until no player is busy."""
    for _ in range(5000):
        for player in players:
            if rng.random() < 0.05 * faults:
                player.restart_and_compare()
            player.pump()
            assert player.link.error is None, player.link.error
        if rng.random() < 0.02 * faults:
            hub.restart()
        if not any(player.link.busy for player in players):
            return
    raise AssertionError("something is under way for ever")


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["async", "fedlinucb", "variance", "sync", "dislinucb"]),
)
def test_a_run_with_lost_messages_makes_the_same_choices_as_one_without(seed, name):
    undisturbed, disturbed = play_schedule(name, seed, 0.0), play_schedule(name, seed, 0.6)
    assert undisturbed[0] == disturbed[0] and undisturbed[2:] == disturbed[2:]
    for one, other in zip(undisturbed[1], disturbed[1], strict=True):
        assert np.array_equal(one, other)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["async", "sync"]),
    faults=st.sampled_from([0.0, 0.5]),
)
def test_clients_follow_the_server_through_all_epochs_of_an_unknown_horizon(seed, name, faults):
    rng = np.random.default_rng(seed)
    with run_federation(fsl.Doubling(name, SIZES, first=12), rng, faults) as (hub, players):
        n, old = 0, []
        for _ in range(40):
            for player in players:
                player.waiting_for = {*player.waiting_for, player.link.client.next_id}
                old.append((player, player.select(draw_contexts(rng))))
                decision = player.select(draw_contexts(rng))
                player.observe(decision, rng.random())
                n += 1
            run_until_idle(hub, players, rng, faults)
        for (
            player,
            decision,
        ) in old:  # most belong to finished epochs: allowed, but ignored
            if decision.id < player.link._state.first_id:
                before = player.link.n_observed
                player.link.observe(decision, 0.5)
                assert player.link.n_observed == before
        flush_all(hub, players)
        assert hub.ledger.epoch >= 2 and hub.ledger.total_pulls <= n == sum(
            player.link.n_observed for player in players
        )
        assert all(
            player.link.client.algorithm.horizon == 12 * 2**player.link.epoch for player in players
        )


def start_server_and_client(folder, name="async", client_id=0, store="client.db", **keywords):
    """Start a server and a client that has joined it."""
    hub = Hub(folder, Agreement.of(fsl.make(name, **SIZES, **({"horizon": 500} | keywords))))
    return hub, join_server(
        hub, Link(client_id, journal=None if store is None else ClientJournal(folder / store))
    )


def join_server(hub, link):
    """Join: the link asks how many sessions there were and joins as the next one."""
    assert [answer_next_request(hub, link), answer_next_request(hub, link)] == [
        "Join",
        "Join",
    ] and link.client is not None
    return link


def answer_next_request(hub, link):
    """Pass the next request to the server and its answer to the link; return the method."""
    request = link.request()
    hub.call("key", link.client_id, request.method, request.data)
    link.take_answer(request.number, hub.answers.pop("key"))
    return request.method


def learn(link, rng, n=1):
    for _ in range(n):
        link.observe(link.select(draw_contexts(rng)), rng.random())


def test_an_upload_is_frozen_until_it_is_answered(tmp_path):
    hub, link = start_server_and_client(tmp_path)
    rng = np.random.default_rng(0)
    learn(link, rng, 5)
    link.flush()
    first = link.request()
    link.take_failure(first.number, "UNAVAILABLE", "")
    learn(link, rng, 5)
    assert link.request() is None and link.compute_delay() > 0  # the retry is delayed
    link._retries.allow_now()
    second = link.request()
    assert second.data == first.data and second.number > first.number
    hub.call("key", 0, second.method, second.data)
    link.take_answer(first.number, hub.answers["key"])  # answer to the failed attempt
    assert link._state.frozen is not None
    link.take_answer(second.number, hub.answers["key"])
    assert link._state.frozen is None and link.client.n_gathered == 5 == hub.ledger.total_pulls
    link.stop()
    hub.close()


def test_only_the_answer_to_an_upload_settles_whether_it_was_merged(tmp_path):
    """A cancelled upload is merged late, while the client reports the round again.

    The round is over by then, but the client took part in it.
    """
    hub, link = start_server_and_client(tmp_path, "sync", D=1e-3)
    hub.expected = {0}
    rng = np.random.default_rng(0)

    def retry_request():
        link._retries.allow_now()
        return link.request()

    learn(link, rng)
    assert answer_next_request(hub, link) == "Round"
    first = retry_request()
    link.take_failure(first.number, "DEADLINE_EXCEEDED", "it is still on its way")
    hub.restart()
    hub.expected = {0}
    second = retry_request()
    assert second.data == first.data
    hub.call("key", 0, second.method, second.data)
    link.take_failure(second.number, *hub.answers.pop("key"))  # ABORTED
    report = retry_request()
    assert report.method == "Round"
    hub.call("lost", 0, report.method, report.data)
    link.take_failure(report.number, "DEADLINE_EXCEEDED", "its answer is lost")
    hub.call("late", 0, first.method, first.data)
    assert hub.ledger.total_pulls == 1 and hub.ledger.round == 1
    link._retries.allow_now()
    assert answer_next_request(hub, link) == "Round" and link._state.frozen is not None
    assert (
        answer_next_request(hub, link) == "Sync" and not link.client.n_gathered and link.round == 1
    )
    learn(link, rng)
    link.leave()
    assert answer_next_request(hub, link) == "Sync" and hub.ledger.total_pulls == 2
    link.stop()
    hub.close()


def test_a_link_cannot_be_used_before_the_server_has_sent_the_algorithm():
    link = Link(0)
    for use in (
        link.stats,
        lambda: link.select(np.eye(3)),
        lambda: link.observe(0, 1.0),
        lambda: link.known_agreement,
    ):
        with pytest.raises(FederationError, match="the server has not sent the algorithm yet"):
            use()


def test_delays_between_attempts_grow_up_to_a_limit():
    link = Link(0, clock=lambda: 0.0)
    delays = []
    for _ in range(12):
        link._retries.allow_now()
        link.take_failure(link.request().number, "UNAVAILABLE", "")
        delays.append(link.compute_delay())
    assert 0.02 <= delays[0] <= 0.05 and 2.5 <= delays[-1] <= 5.0 and delays[4] > delays[0]


def test_a_snapshot_replaces_the_events_before_there_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr("fedsuplin.federation.link.MOST_EVENTS", 10)
    hub, link = start_server_and_client(tmp_path)
    rng = np.random.default_rng(0)
    for _ in range(20):
        learn(link, rng)
        assert link._journal.n_events <= 10
    again = Link(0, journal=ClientJournal(copy_store(tmp_path / "client.db", tmp_path / "copy.db")))
    assert_same_client(link, again)
    for each in (link, again):
        each.stop()
    hub.close()


def test_the_state_of_a_policy_survives_a_restart(tmp_path):
    """Choosing changes a rule's state, so an exported decision includes the state."""
    from fedsuplin.live.client import Client

    class Turns:
        name, state_size = "turns", 1

        def choose(self, estimates, widths, targets, draw, state):
            state[0] += 1
            return int(state[0]) % estimates.shape[1]

    algorithm = fsl.make("async", **SIZES, horizon=500, policy=Turns())
    one, other, rng = Client(algorithm), Client(algorithm), np.random.default_rng(0)
    for _ in range(5):
        decision = one.select(draw_contexts(rng))
        other.restore_decision(decision.id, *one.export_decision(decision.id))
    contexts = draw_contexts(rng)
    assert one.select(contexts) == other.select(contexts)


def test_an_upload_that_cannot_be_stored_is_not_sent_and_is_rebuilt_later(tmp_path):
    sizes = SIZES | {"dim": 40}  # so that the upload does not fit into a free page
    hub = Hub(tmp_path, Agreement.of(fsl.make("async", **sizes, horizon=500)))
    link = join_server(hub, Link(0, journal=ClientJournal(tmp_path / "client.db")))
    for _ in range(3):
        link.observe(link.select(np.full((4, 40), 0.1)), 0.5)
    (pages,) = link._journal._file.execute("PRAGMA page_count").fetchone()
    link._journal._file.execute(f"PRAGMA max_page_count={pages}")
    link.flush()
    assert link.request() is None and re.search(
        r"client.db can't be written: .*full", str(link.error)
    )
    with pytest.raises(FederationError, match="connect again from it"):
        link.select(np.full((4, 40), 0.1))
    link.stop()
    again = Link(0, journal=ClientJournal(tmp_path / "client.db"))
    assert again.n_observed == 3 and hub.ledger.total_pulls == 0
    again.flush()
    assert answer_next_request(hub, again) == "Sync" and hub.ledger.total_pulls == 3
    again.stop()
    hub.close()


def test_an_observation_counts_even_if_the_snapshot_after_it_fails(tmp_path, monkeypatch):
    hub, link = start_server_and_client(tmp_path)
    rng = np.random.default_rng(0)
    monkeypatch.setattr("fedsuplin.federation.link.MOST_EVENTS", 2)
    monkeypatch.setattr(link._journal, "write_snapshot", raise_disk_full)
    decision = link.select(draw_contexts(rng))
    link.observe(decision, 0.5)  # the second event: a snapshot is due
    assert link.n_observed == 1 and "is full" in str(link.error)
    link.stop()
    again = Link(0, journal=ClientJournal(tmp_path / "client.db"))
    assert again.n_observed == 1 and again.client.n_open == 0
    again.stop()
    hub.close()


def raise_disk_full(facts):
    raise FederationError("the store can't be written: the disk is full")


def test_a_reward_too_large_for_the_sums_is_refused_before_it_is_learnt(tmp_path):
    hub, link = start_server_and_client(tmp_path)
    decision = link.select(draw_contexts(np.random.default_rng(0)))
    with pytest.raises(InvalidInput, match=r"a federation takes rewards up to 1e\+100"):
        link.observe(decision, -1e101)
    link.observe(decision, 1e99)
    link.flush()
    assert answer_next_request(hub, link) == "Sync" and hub.ledger.total_pulls == 1
    link.stop()
    hub.close()


def test_a_full_disk_stops_the_client_and_a_new_one_resumes_from_the_store(tmp_path):
    hub, link = start_server_and_client(tmp_path)
    rng = np.random.default_rng(0)
    learn(link, rng, 3)
    decision = link.select(draw_contexts(rng))
    (pages,) = link._journal._file.execute("PRAGMA page_count").fetchone()
    link._journal._file.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(FederationError, match=r"client.db can't be written: .*full"):
        for _ in range(2000):
            link.select(draw_contexts(rng))
    n_open = link.client.n_open - 1  # the caller did not get the last one
    with pytest.raises(FederationError, match="connect again from it"):
        link.observe(decision, 0.5)
    assert link.request() is None and link.error is not None
    link.stop()
    again = Link(0, journal=ClientJournal(tmp_path / "client.db"))
    again.observe(decision, 0.5)
    assert again.n_observed == 4 and again.client.n_open == n_open - 1 and again.error is None
    again.stop()
    hub.close()


def test_files_that_are_not_this_clients_store_are_refused_and_left_unchanged(tmp_path):
    def check_refused(words, path="client.db", **keywords):
        file = Path(tmp_path / path)
        before = file.read_bytes() if file.is_file() else None
        journal = None
        with pytest.raises(InvalidInput, match=words):
            journal = ClientJournal(file)
            Link(**({"client_id": 0, "journal": journal} | keywords))
        if journal is not None:
            journal.close()
        assert before is None or file.read_bytes() == before

    hub, link = start_server_and_client(tmp_path)
    check_refused("client.db is in use")
    link.stop()
    hub.close()
    check_refused("client_id=0, not 1", client_id=1)
    check_refused("seed=0, not 5", seed=5)
    other = Agreement.of(fsl.make("async", **SIZES, horizon=501))
    check_refused("another algorithm, async, or other parameters", agreement=other)
    check_refused("it is the database of another program", path="server-0.db")
    (tmp_path / "text").write_text(
        "this is no database at all, and long enough to be looked at " * 20
    )
    check_refused("is not the store of a fedsuplin client", path="text")
    check_refused("there is no folder", path="nowhere/client.db")
    check_refused("is a folder", path=".")
    for name, value in (
        ("client", b"nonsense"),
        ("spec", "{}"),
        ("frozen", b"x" * 9),
        ("session", b"short"),
        ("round", "soon"),
    ):
        path = copy_store(tmp_path / "client.db", tmp_path / f"bad-{name}.db")
        file = sqlite3.connect(path)
        file.execute("UPDATE facts SET value = ? WHERE name = ?", (value, name))
        file.commit()
        file.close()
        check_refused(rf"bad-{name}.db (can't be used|does not hold a client)", path=path.name)


def test_a_store_that_cannot_be_opened_is_reported(tmp_path):
    (tmp_path / "client.db").symlink_to(tmp_path / "nowhere" / "client.db")
    with pytest.raises(InvalidInput, match=r"the store .*client.db can't be opened: No such file"):
        ClientJournal(tmp_path / "client.db")
    (tmp_path / "other.db-journal").mkdir()  # in place of SQLite's journal file
    with pytest.raises(InvalidInput, match=r"the store .*other.db can't be opened: "):
        ClientJournal(tmp_path / "other.db")
    with pytest.raises(InvalidInput, match=r"the store .*xxx can't be opened: .*too long"):
        ClientJournal(tmp_path / ("x" * 300))


def test_connections_without_tls_bypass_the_systems_proxy(run_server, monkeypatch):
    monkeypatch.setenv(
        "http_proxy", "http://127.0.0.1:1"
    )  # no proxy listens here, so a call through it fails
    monkeypatch.delenv("no_proxy", raising=False)
    server = run_server()
    with fsl.connect(
        server.address, client_id=0, token=server.tokens[0] + "\n"
    ) as client:  # with a line break, as read from a file
        client.observe(client.select(draw_contexts(np.random.default_rng(0))), 0.5)
        client.flush(timeout=30)
        assert client.is_online


@pytest.mark.parametrize(
    ("kind", "n_more", "words"),
    [
        ("danced", 0, "an event of kind 'danced'"),
        ("decided", 2, "2 numbers for rules that remember 0"),
    ],
)
def test_an_event_that_no_client_could_have_written_is_refused(tmp_path, kind, n_more, words):
    hub, link = start_server_and_client(tmp_path)
    link.select(draw_contexts(np.random.default_rng(0)))
    link.stop()
    hub.close()
    file = sqlite3.connect(tmp_path / "client.db")
    (data,) = file.execute("SELECT data FROM events WHERE kind = 'decided'").fetchone()
    file.execute("UPDATE events SET kind = ?, data = ?", (kind, data + bytes(8 * n_more)))
    file.commit()
    file.close()
    journal = ClientJournal(tmp_path / "client.db")
    with pytest.raises(
        InvalidInput, match=rf"client.db does not hold a client: ValueError\(.{words}"
    ):
        Link(0, journal=journal)
    journal.close()


def test_a_server_back_in_an_earlier_epoch_is_reported_to_have_lost_its_state(tmp_path):
    hub = Hub(tmp_path, Agreement.of(fsl.Doubling("async", SIZES, first=5)))
    earlier = hub.ledger.download()
    link, rng = join_server(hub, Link(0)), np.random.default_rng(0)
    learn(link, rng, 5)
    link.flush()
    assert answer_next_request(hub, link) == "Sync" and link.epoch == 1 == hub.ledger.epoch
    learn(link, rng, 3)
    link.flush()
    link.take_answer(link.request().number, SyncAnswer(0, 0, True, earlier).to_bytes())
    assert (
        str(link.error)
        == "the server is in epoch 0, this client in 1: the server has lost its state"
    )
    assert (
        link.epoch == 1
        and link.n_observed == 8
        and link.client.n_gathered == 3
        and link.request() is None
    )
    link.stop()
    hub.close()


def test_an_invalid_answer_stops_the_syncs_but_not_the_decisions(tmp_path):
    hub, link = start_server_and_client(tmp_path)
    rng = np.random.default_rng(0)
    learn(link, rng, 3)
    link.flush()
    request = link.request()
    download = hub.ledger.download()
    bad = type(download)(download.layers, -download.grams, download.moments)
    link.take_answer(request.number, SyncAnswer(0, 0, True, bad).to_bytes())
    assert (
        "can't be used: the download's matrix" in str(link.error) and link._state.frozen is not None
    )
    with pytest.warns(FederationWarning, match="continues alone"):
        learn(link, rng)
    learn(link, rng)
    link.stop()
    again = Link(
        0, journal=ClientJournal(tmp_path / "client.db")
    )  # the server may answer correctly now
    assert (
        answer_next_request(hub, again) == "Sync"
        and again.error is None
        and hub.ledger.total_pulls == 3
    )
    assert again.n_observed == 5 and again.client.n_gathered == 2
    again.stop()
    hub.close()


def test_a_replaced_session_ends_without_affecting_the_new_one(tmp_path):
    hub, link = start_server_and_client(tmp_path)
    rng = np.random.default_rng(0)
    learn(link, rng, 3)
    other = join_server(hub, Link(0))
    learn(other, rng, 2)
    link.flush()
    request = link.request()
    hub.call("key", 0, request.method, request.data)
    link.take_failure(request.number, *hub.answers.pop("key"))
    assert "another process has taken its place" in str(link.error)
    link.stop()
    again = Link(0, journal=ClientJournal(tmp_path / "client.db"))
    request = again.request()
    assert request.method == "Sync"  # joining would end the other session
    other.flush()
    assert answer_next_request(hub, other) == "Sync" and hub.ledger.total_pulls == 2
    again.stop()
    hub.close()


# --- with a network -------------------------------------------------------------------------------


class Running:
    """A server in its own thread, which can be stopped and restarted at the same address."""

    def __init__(self, folder, algorithm, **listening):
        self.folder, self.agreement, self.listening = folder, Agreement.of(algorithm), listening
        self.tokens = make_tokens(range(SIZES["n_clients"]))
        write_token_hashes(folder / "tokens", self.tokens)
        self.place = "127.0.0.1:0"
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.start()

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def start(self):
        self.ledger = Ledger(self.folder / "server.db", self.agreement)

        async def begin():
            given = {"address": self.place, "tokens": self.folder / "tokens"} | self.listening
            self.service = Service(self.ledger, Listening(**given))
            return await self.service.start()

        self.address = self._do(begin())
        self.place = self.address.partition("://")[2]

    def stop(self):
        self._do(self.service.stop())
        self.ledger.close()

    def end(self):
        self.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def connect(self, client_id=0, **keywords):
        return fsl.connect(
            self.address, client_id=client_id, **({"token": self.tokens[client_id]} | keywords)
        )

    def connect_async(self, client_id=0, **keywords):
        return fsl.connect_async(
            self.address, client_id=client_id, **({"token": self.tokens[client_id]} | keywords)
        )


@pytest.fixture
def run_server(tmp_path):
    """Return a function that starts servers; stop them after the test."""
    found = []

    def begin(name="async", **keywords):
        listening = {
            key: keywords.pop(key)
            for key in ("deadline", "tls_cert", "tls_key", "client_ca", "tokens")
            if key in keywords
        }
        algorithm = (
            fsl.make(name, **SIZES, **({"horizon": 600} | keywords))
            if isinstance(name, str)
            else name
        )
        found.append(Running(tmp_path, algorithm, **listening))
        return found[-1]

    yield begin
    for server in found:
        server.end()


class World:
    """The pulls of a problem, and the result of simulating it."""

    def __init__(self, name, horizon=300):
        problem = fsl.SyntheticProblem(*SIZES.values(), seed=1)
        self.horizon, self.algorithm = horizon, make_for(name, problem, horizon, {})
        self.chunk = problem.stream(horizon, choose_arrival(self.algorithm, problem, horizon)).take(
            horizon
        )
        self.simulated = fsl.run(self.algorithm, problem, record="all")

    def contexts(self, t):
        return self.chunk.contexts[t][:, : SIZES["n_arms"]].T

    def reward(self, t, arm):
        return float(self.contexts(t)[arm] @ self.chunk.theta) + self.chunk.noise[t]

    def matches_simulation(self, arms, ledger):
        return (
            arms == self.simulated.arms.tolist()
            and ledger.communication == self.simulated.communication[-1]
        )


@pytest.mark.parametrize("name", ["async", "sync"])
@pytest.mark.parametrize("kept", [False, True])
def test_threaded_clients_play_exactly_as_the_simulation(run_server, tmp_path, name, kept):
    world, arms = World(name), []
    server = run_server(world.algorithm)
    clients = [
        server.connect(i, store=tmp_path / f"client-{i}.db" if kept else None)
        for i in range(SIZES["n_clients"])
    ]
    for t in range(world.horizon):
        client = clients[world.chunk.clients[t]]
        decision = client.select(world.contexts(t))
        client.observe(decision, world.reward(t, decision.arm), sigma=world.chunk.sigma[t])
        arms.append(decision.arm)
        if world.algorithm.syncs == "one":
            assert client.wait_synced(20)
    assert all(client.wait_synced(20) for client in clients)
    assert world.matches_simulation(arms, server.ledger)
    for client in clients:
        client.close()
    assert server.ledger.total_pulls == world.horizon


@pytest.mark.parametrize("name", ["async", "sync"])
def test_async_clients_play_exactly_as_the_simulation(run_server, tmp_path, name):
    world, arms = World(name), []
    server = run_server(world.algorithm)

    async def play():
        clients = [
            await server.connect_async(i, store=tmp_path / f"client-{i}.db")
            for i in range(SIZES["n_clients"])
        ]
        n_threads = threading.active_count()
        for t in range(world.horizon):
            client = clients[world.chunk.clients[t]]
            decision = await client.select(world.contexts(t))
            await client.observe(
                decision, world.reward(t, decision.arm), sigma=world.chunk.sigma[t]
            )
            arms.append(decision.arm)
            if world.algorithm.syncs == "one":
                assert await client.wait_synced(20)
        for client in clients:
            assert await client.wait_synced(20)
        assert world.matches_simulation(arms, server.ledger)
        assert threading.active_count() <= n_threads
        await asyncio.gather(*(client.close() for client in clients))

    asyncio.run(play())
    assert server.ledger.total_pulls == world.horizon


@pytest.mark.parametrize("name", ["async", "sync"])
def test_a_client_continues_while_the_server_is_down_and_loses_nothing(run_server, tmp_path, name):
    server, rng = run_server(name, deadline=0.1), np.random.default_rng(0)
    client = server.connect(store=tmp_path / "client.db", timeout=2.0)
    learn(client, rng, 10)
    client.wait_synced(20)
    server.stop()
    began = time.monotonic()
    learn(client, rng, 100)
    assert time.monotonic() - began < 2.0 + 3.0  # one failed attempt, and no more waiting
    assert not client.is_online or not client.wants_sync
    server.start()
    assert client.wait_synced(20)
    client.flush(20)
    assert client.is_online and server.ledger.total_pulls == 110 == client.n_observed
    client.close()
    client.close()  # closing twice is harmless
    with pytest.raises(FederationError, match="is closed"):
        client.select(draw_contexts(rng))


def test_a_client_resumes_from_its_store_without_the_server(run_server, tmp_path):
    server, rng = run_server(), np.random.default_rng(0)
    client = server.connect(store=tmp_path / "client.db")
    decision = client.select(draw_contexts(rng))
    learn(client, rng, 20)
    client.close(flush=False)
    server.stop()
    again = server.connect(store=tmp_path / "client.db", wait=5.0)
    assert (
        again.open == (decision.id,)
        and again.n_observed == 20
        and again.n_open == 1
        and again.epoch == 0
    )
    again.observe(decision, 0.5)
    for layer in range(again.algorithm.n_layers):
        again.layer(layer)
    with pytest.raises(
        FederationError, match="not merged within 0.3 seconds .* they are kept in the store"
    ):
        again.close(timeout=0.3)
    server.start()
    with server.connect(store=tmp_path / "client.db") as last:
        assert last.n_observed == 21
    assert server.ledger.total_pulls == 21


def test_a_client_that_reconnects_during_a_round_does_not_wait_for_the_others(run_server, tmp_path):
    server, rng = run_server("sync", deadline=60.0), np.random.default_rng(0)
    client = server.connect(store=tmp_path / "client.db")
    learn(client, rng)
    client.close(flush=False)
    again = server.connect(store=tmp_path / "client.db", timeout=0.1)
    assert again.wants_sync and again.n_observed == 1  # the other clients have not reported
    again.select(draw_contexts(rng))
    again.close()
    assert server.ledger.total_pulls == 1


def test_the_end_of_the_event_loop_releases_the_store(run_server, tmp_path):
    server, rng = run_server(), np.random.default_rng(0)

    async def play():
        client = await server.connect_async(store=tmp_path / "client.db")
        await client.observe(await client.select(draw_contexts(rng)), 0.5)
        return client

    client = asyncio.run(play())
    with server.connect(store=tmp_path / "client.db") as again:
        assert again.n_observed == 1
    with pytest.raises(FederationError, match="is closed"):
        asyncio.run(client.select(draw_contexts(rng)))


def test_a_flush_that_is_interrupted_by_close_raises_an_error(run_server):
    server, rng = run_server(), np.random.default_rng(0)
    client = server.connect()
    server.stop()
    learn(client, rng)
    ends = threading.Timer(0.2, client.close, kwargs={"flush": False})
    ends.start()
    with pytest.raises(
        FederationError, match="not merged before this connection was closed .* they are lost"
    ):
        client.flush()
    ends.join()
    server.start()


def test_closing_uploads_everything_without_waiting_for_absent_clients(run_server):
    server, rng = run_server("sync", deadline=30.0), np.random.default_rng(0)
    clients = [
        server.connect(i) for i in range(2)
    ]  # the third never connects, and the deadline is far off
    for client in clients:
        learn(client, rng)
    for client in clients:
        client.close()  # does not wait for the third client
    assert server.ledger.total_pulls == 2


def test_a_flush_in_rounds_does_not_wait_for_others(run_server):
    server, rng = run_server("sync", deadline=30.0), np.random.default_rng(0)
    with server.connect() as client:
        learn(client, rng)
        client.flush(20)
        assert server.ledger.total_pulls == 1 and client.wants_sync  # it still waits for the others
    assert server.ledger.total_pulls == 1


def test_decisions_wait_for_an_answer_only_until_the_timeout(run_server):
    server, rng = run_server("sync", deadline=30.0), np.random.default_rng(0)
    client = server.connect(timeout=0.3)
    learn(client, rng)
    began = time.monotonic()
    learn(client, rng, 5)  # no other client reports: it waits once and continues
    assert 0.2 < time.monotonic() - began < 1.2
    assert client.wait_synced(0.01) is False
    client.close()


def test_a_client_shared_by_several_threads_loses_nothing(run_server, tmp_path):
    server = run_server("async", C=0.05)
    with server.connect(store=tmp_path / "client.db") as client:
        failures = []

        def play(seed):
            try:
                learn(client, np.random.default_rng(seed), 50)
            except Exception as error:  # checked below
                failures.append(error)

        threads = [threading.Thread(target=play, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures and client.n_observed == 200 and client.stats()["syncs"] > 3
    assert server.ledger.total_pulls == 200


def test_a_client_follows_the_server_into_the_next_epoch(run_server):
    server, rng = run_server(fsl.Doubling("async", SIZES, first=30)), np.random.default_rng(0)
    with server.connect() as client:
        old = client.select(draw_contexts(rng))
        for _ in range(100):
            learn(client, rng)
            client.flush(20)
        assert client.epoch == server.ledger.epoch == 2 and client.algorithm.horizon == 120
        client.observe(old, 0.5)
        assert (
            client.n_observed == 100 == server.ledger.total_pulls
            and "100 observed, online" in repr(client)
        )


# --- refusals -------------------------------------------------------------------------------------


def test_a_replaced_client_stops_syncing_raises_the_error_and_continues_alone(run_server):
    server, rng = run_server(), np.random.default_rng(0)
    client = server.connect()
    with server.connect() as other:
        learn(client, rng)
        with pytest.raises(FederationError, match="another process has taken its place"):
            client.flush(20)
        assert (
            isinstance(client.error, FederationError)
            and "refused" in repr(client)
            and not client.wants_sync
        )
        learn(client, rng, 3)
        with pytest.raises(FederationError, match="taken its place"):
            client.wait_synced()
        learn(other, rng, 2)
    with pytest.raises(FederationError, match="taken its place"):
        client.close()
    assert server.ledger.total_pulls == 2


def test_a_caller_that_has_not_seen_the_refusal_is_warned_once(run_server):
    server, rng = run_server(C=1e-6), np.random.default_rng(0)
    client = server.connect()
    with server.connect():
        learn(client, rng)
        with client._link.changed:
            assert client._link.changed.wait_for(lambda: client.error is not None, 20)
        with pytest.warns(FederationWarning, match="continues alone"):
            client.select(draw_contexts(rng))
        learn(client, rng, 3)
    client.close(flush=False)


def test_a_replaced_async_client_raises_the_error_too(run_server):
    server, rng = run_server(), np.random.default_rng(0)

    async def play():
        client = await server.connect_async()
        async with await server.connect_async() as other:
            await client.observe(await client.select(draw_contexts(rng)), 0.5)
            for asked in (client.flush, client.wait_synced, client.close):
                with pytest.raises(FederationError, match="another process has taken its place"):
                    await asked(timeout=20)
            await other.observe(await other.select(draw_contexts(rng)), 0.5)

    asyncio.run(play())
    assert server.ledger.total_pulls == 1


def test_an_async_flush_raises_an_error_when_it_times_out(run_server):
    server, rng = run_server(), np.random.default_rng(0)

    async def play():
        client = await server.connect_async()
        server.stop()
        await client.observe(await client.select(draw_contexts(rng)), 0.5)
        with pytest.raises(FederationError, match="not merged within 0 seconds"):
            await client.flush(timeout=0)
        server.start()
        await client.close()

    asyncio.run(play())
    assert server.ledger.total_pulls == 1


def test_a_refused_async_client_gets_the_error_at_once(run_server, no_server):
    server = run_server()
    for words, keywords in (
        ("token or certificate is missing or not valid", {"token": "nonsense"}),
        ("another algorithm", {"algorithm": fsl.make("async", **SIZES, horizon=601)}),
    ):
        with pytest.raises(FederationError, match=words):
            asyncio.run(server.connect_async(**keywords))
    with pytest.raises(FederationError, match="can't be reached within 1e-09 seconds"):
        asyncio.run(fsl.connect_async(no_server, client_id=0, token="token", wait=1e-9))
    assert not server.ledger.clients()


def test_a_refused_client_gets_the_error_at_once(run_server):
    server = run_server()
    for words, keywords in (
        ("token or certificate is missing or not valid", {"token": "nonsense"}),
        ("token or certificate is another client's", {"token": server.tokens[1]}),
        ("another algorithm", {"algorithm": fsl.make("async", **SIZES, horizon=601)}),
    ):
        with pytest.raises(FederationError, match=words):
            server.connect(**keywords)
    server.connect(algorithm=fsl.make("async", **SIZES, horizon=600)).close()
    assert server.ledger.clients().keys() == {0}


@pytest.mark.parametrize(
    ("words", "keywords"),
    [
        ("must be grpcs://HOST:PORT", {"address": "127.0.0.1:5000"}),
        ("must be grpcs://HOST:PORT", {"address": "https://127.0.0.1:5000"}),
        ("must be grpcs://HOST:PORT", {"address": 5}),
        ("must be HOST:PORT", {"address": "grpcs://example.org"}),
        ("not a loopback address", {"address": "grpc://example.org:5000"}),
        ("pass a token, or a certificate", {"token": None}),
        ("a token is a word", {"token": "two words"}),
        ("client_id must be a whole number", {"client_id": -1}),
        ("client_id must be a whole number", {"client_id": "0"}),
        ("seed must be a whole number", {"seed": 1.5}),
        ("wait must be a positive number", {"wait": 0}),
        ("timeout must be a positive number", {"timeout": float("nan")}),
        ("belong together", {"address": "grpcs://127.0.0.1:5000", "cert": "cert.pem"}),
        ("can't read nowhere.pem", {"address": "grpcs://127.0.0.1:5000", "ca": "nowhere.pem"}),
        ("are for TLS", {"ca": "ca.pem"}),
        ("needs an algorithm", {"algorithm": "async"}),
        ("there is no folder", {"store": "nowhere/at/all.db"}),
    ],
)
def test_wrong_arguments_are_reported_before_anything_is_sent(words, keywords):
    usual = {"address": "grpc://127.0.0.1:1", "client_id": 0, "token": "token"}
    with pytest.raises(InvalidInput, match=words):
        fsl.connect(**(usual | keywords))

    async def connect():
        await fsl.connect_async(**(usual | keywords))

    with pytest.raises(InvalidInput, match=words):
        asyncio.run(connect())


@pytest.fixture
def no_server():
    """An address where no server listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"grpc://127.0.0.1:{taken.getsockname()[1]}"


def test_connecting_times_out_where_no_server_listens(no_server, tmp_path):
    with pytest.raises(FederationError, match=r"can't be reached within 0.3 seconds \(UNAVAILABLE"):
        fsl.connect(no_server, client_id=0, token="token", wait=0.3, store=tmp_path / "client.db")
    with pytest.raises(FederationError, match=r"can't be reached within 0.3 seconds \(UNAVAILABLE"):
        asyncio.run(
            fsl.connect_async(
                no_server, client_id=0, token="token", wait=0.3, store=tmp_path / "client.db"
            )
        )


@contextmanager
def run_other_server(answer):
    """Run another gRPC server that answers Join with `answer`, or lacks Join if it is None."""
    from concurrent.futures import ThreadPoolExecutor

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if answer is None or details.method != PATHS["Join"]:
                return None
            return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)

    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, handlers=[Handler()])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"grpc://127.0.0.1:{port}"
        server.stop(None).wait()


def test_servers_of_another_kind_or_version_are_recognised(tmp_path):
    ledger = Ledger(tmp_path / "server.db", Agreement.of(fsl.make("async", **SIZES, horizon=500)))
    good = ledger.join(0, JoinRequest(0, bytes(16)))
    ledger.close()
    newer = bytearray(good.to_bytes())
    newer[4] = 9
    unknown = JoinAnswer({"name": "brandnew"}, 0, 0, 0, 1, good.download).to_bytes()
    for data, words in (
        (None, "no federation of this version is at this address"),
        (bytes(newer), "version 9 of the messages, this fedsuplin reads version 1"),
        (b"hello", "not a message of fedsuplin"),
        (unknown, "can't be used"),
    ):
        with run_other_server(data) as address, pytest.raises(FederationError, match=words):
            fsl.connect(address, client_id=0, token="token")
    with (
        run_other_server(good.to_bytes()) as address,
        pytest.raises(FederationError, match="from 0 to 2, not 7"),
    ):
        fsl.connect(address, client_id=7, token="token")
    other = fsl.make("async", **SIZES, horizon=501)
    with (
        run_other_server(good.to_bytes()) as address,
        pytest.raises(FederationError, match="or other parameters, than the one passed"),
    ):
        fsl.connect(
            address, client_id=0, token="token", algorithm=other
        )  # which the server should have checked itself


def write_certificate(folder, name, ca, *names, **keywords):
    """Write a certificate, its key and the authority's certificate; return their paths."""
    certificate = ca.issue_cert(*names, **keywords)
    certificate.private_key_pem.write_to_path(folder / f"{name}.key")
    certificate.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    ca.cert_pem.write_to_path(folder / "ca.pem")
    return {"cert": folder / f"{name}.pem", "key": folder / f"{name}.key", "ca": folder / "ca.pem"}


def test_a_certificate_can_replace_a_token(run_server, tmp_path):
    ca, rng = trustme.CA(), np.random.default_rng(0)
    tls = write_certificate(tmp_path, "server", ca, "127.0.0.1")
    server = run_server(tls_cert=tls["cert"], tls_key=tls["key"], client_ca=tls["ca"], tokens=None)
    own = write_certificate(tmp_path, "client", ca, "client-0.example.org", common_name="client-0")
    with server.connect(0, token=None, **own) as client:
        learn(client, rng, 3)
    assert server.ledger.total_pulls == 3
    with pytest.raises(FederationError, match="is another client's"):
        server.connect(1, token=None, **own)


def test_with_tls_the_servers_certificate_is_verified(run_server, tmp_path):
    ca = trustme.CA()
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    tls, rng = write_certificate(tmp_path, "server", ca, "127.0.0.1"), np.random.default_rng(0)
    server = run_server(tls_cert=tls["cert"], tls_key=tls["key"])
    with server.connect(ca=tmp_path / "ca.pem") as client:
        learn(client, rng, 3)

    async def play():
        async with await server.connect_async(1, ca=tmp_path / "ca.pem") as client:
            await client.observe(await client.select(draw_contexts(rng)), 0.5)
            await client.drop(await client.select(draw_contexts(rng)))

    asyncio.run(play())
    assert server.ledger.total_pulls == 4
    with pytest.raises(FederationError, match="can't be reached within 0.5 seconds"):
        server.connect(ca=tmp_path / "other.pem", wait=0.5)


# --- closing and process exit ---------------------------------------------------------------------


def test_an_unexpected_failure_is_raised_in_waiting_calls(run_server, monkeypatch):
    server, rng = run_server(), np.random.default_rng(0)
    client = server.connect()
    request = client._link.request

    def fail_once():
        monkeypatch.setattr(client._link, "request", request)
        raise MemoryError("no room")

    monkeypatch.setattr(client._link, "request", fail_once)
    client.observe(client.select(draw_contexts(rng)), 0.5)
    with pytest.raises(FederationError, match="the connection has failed: MemoryError"):
        client.flush(timeout=60)
    with pytest.raises(FederationError, match="the connection has failed"):
        client.close()


def test_a_garbage_collected_connection_ends_its_thread_and_releases_its_store(
    run_server, tmp_path
):
    server, rng = run_server(), np.random.default_rng(0)
    client = server.connect(store=tmp_path / "client.db")
    learn(client, rng, 5)
    thread, gone = client._driver._thread, weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    thread.join(20)
    assert not thread.is_alive()
    with server.connect(store=tmp_path / "client.db") as again:
        assert again.n_observed == 5

    async def forget():
        client = await server.connect_async(store=tmp_path / "client.db")
        await client.observe(await client.select(draw_contexts(rng)), 0.5)
        task = client._driver._task
        del client
        gc.collect()
        await asyncio.wait_for(task, 20)
        return await server.connect_async(store=tmp_path / "client.db")

    async def both():
        async with await forget() as again:
            assert again.n_observed == 6

    asyncio.run(both())


def test_an_error_in_the_with_block_is_raised_after_the_upload(run_server):
    server, rng = run_server(), np.random.default_rng(0)
    with pytest.raises(ZeroDivisionError), server.connect() as client:
        learn(client, rng, 5)
        1 / 0  # noqa: B018
    assert server.ledger.total_pulls == 5  # the observations before the error

    async def play():
        async with await server.connect_async(1) as client:
            await client.observe(await client.select(draw_contexts(rng)), 0.5)
            1 / 0  # noqa: B018

    with pytest.raises(ZeroDivisionError):
        asyncio.run(play())
    assert server.ledger.total_pulls == 6


CLIENT_SCRIPT = """
import sys
import numpy as np
import fedsuplin as fsl

client = fsl.connect(sys.argv[1], client_id=0, token=sys.argv[2], store=sys.argv[3])
for _ in range(7):
    client.observe(client.select(np.eye(4, 3)), 0.5)
print("played", flush=True)
if sys.argv[4] == "killed":
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["ended", "killed"])
@pytest.mark.parametrize("name", ["async", "sync"])
def test_a_process_that_ends_or_is_killed_does_not_hang_and_loses_nothing(
    run_server, tmp_path, how, name
):
    server = run_server(name, deadline=0.2)
    arguments = [server.address, server.tokens[0], str(tmp_path / "client.db"), how]
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT_SCRIPT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"played\n"
        if how == "killed":
            process.kill()
        assert process.wait(20) == (-9 if how == "killed" else 0)
    with server.connect(store=tmp_path / "client.db") as client:
        assert client.n_observed == 7
    assert server.ledger.total_pulls == 7


def test_importing_fedsuplin_imports_no_network_modules():
    code = "import sys, fedsuplin; assert not {'grpc', 'asyncio', 'sqlite3'} & sys.modules.keys()"
    subprocess.run(
        [sys.executable, "-c", f"{code}; fedsuplin.connect; assert 'grpc' not in sys.modules"],
        check=True,
    )
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        fsl.conect  # noqa: B018
