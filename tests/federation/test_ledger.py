"""The server's ledger: uploads are durable before their answer and count once."""

import dataclasses
import os
import sqlite3

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.doubling import LAST_EPOCH, Doubling
from fedsuplin.errors import InvalidInput, NumericalError
from fedsuplin.federation.agreement import Agreement
from fedsuplin.federation.ledger import Ledger
from fedsuplin.federation.refusals import Refused
from fedsuplin.federation.wire import (
    ANY_ALGORITHM,
    ASKING_GENERATION,
    JoinRequest,
    RoundRequest,
    SyncRequest,
)
from fedsuplin.live.messages import Download
from fedsuplin.live.triangles import pack_upper

SIZES = {"dim": 3, "n_arms": 4, "n_clients": 3}


def contexts(rng):
    found = rng.standard_normal((4, 3))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


class Player:
    """A client with a session that plays and makes requests, and sums up its own observations."""

    def __init__(self, ledger, client_id, seed=0):
        self.ledger, self.client_id, self.session = ledger, client_id, os.urandom(16)
        self.client, self.sequence = fsl.Client(ledger.algorithm, client_id), 0
        self.rng, self.gram, self.moment = (
            np.random.default_rng([seed, client_id]),
            np.zeros((3, 3)),
            np.zeros(3),
        )
        generation = (
            ledger.join(
                client_id, JoinRequest(client_id, self.session, generation=ASKING_GENERATION)
            ).generation
            + 1
        )
        assert (
            ledger.join(
                client_id, JoinRequest(client_id, self.session, generation=generation)
            ).generation
            == generation
        )

    def play(self, n):
        for _ in range(n):
            given = contexts(self.rng)
            decision, reward = self.client.select(given), self.rng.random()
            self.client.observe(decision, reward)
            x = given[decision.arm]
            self.gram, self.moment = self.gram + np.outer(x, x), self.moment + reward * x
        return self

    def request(self, **changed):
        self.sequence += 1
        usual = SyncRequest(
            self.ledger.fingerprint,
            self.session,
            self.sequence,
            self.ledger.epoch,
            self.ledger.round,
            False,
            self.client.upload(),
        )
        return dataclasses.replace(usual, **changed)

    def sync(self, request=None):
        (answer,) = self.ledger.sync([(self.client_id, request or self.request())])
        assert not isinstance(answer, Refused), answer
        self.client.apply(answer.download)
        return answer


@pytest.fixture
def agreement():
    return Agreement.of(fsl.make("async", **SIZES, horizon=1000))


@pytest.fixture
def ledger(tmp_path, agreement):
    made = Ledger(tmp_path / "server.db", agreement)
    yield made
    made.close()


def everything(ledger):
    """All that the ledger says, and all that its file says."""
    sums = [
        (known["gram"].tolist(), known["moment"].tolist())
        for known in map(ledger.server.layer, range(ledger.algorithm.n_layers))
    ]
    tables = [
        sorted(map(repr, ledger._file.execute(f"SELECT * FROM {name}")))
        for name in ("facts", "layers", "clients")
    ]
    return sums, tables, dict(ledger._counts), dict(ledger._members), ledger.download().to_bytes()


def is_the_sum(ledger, *players):
    known = [ledger.server.layer(layer) for layer in range(ledger.algorithm.n_layers)]
    ridge = ledger.algorithm.setting.ridge * np.eye(3)
    gram, moment = (
        sum(each["gram"] - ridge for each in known),
        sum(each["moment"] for each in known),
    )
    return np.allclose(gram, sum(p.gram for p in players), atol=1e-9) and np.allclose(
        moment, sum(p.moment for p in players), atol=1e-9
    )


# --- each upload once -----------------------------------------------------------------------------


def test_uploads_of_several_clients_go_into_the_sums_in_one_commit(ledger):
    players = [Player(ledger, i).play(10 + i) for i in range(3)]
    answers = ledger.sync([(p.client_id, p.request()) for p in players])
    assert [answer.merged for answer in answers] == [True] * 3 and answers[0].download is answers[
        2
    ].download
    assert (
        is_the_sum(ledger, *players)
        and ledger.n_syncs == ledger.communication == 3
        and ledger.pulls == 33
    )
    assert {number: each["pulls"] for number, each in ledger.clients().items()} == {
        0: 10,
        1: 11,
        2: 12,
    }


def test_an_upload_that_comes_twice_counts_once_and_is_answered_twice(ledger):
    player = Player(ledger, 0).play(10)
    request = player.request()
    first, before = player.sync(request), everything(ledger)
    again = ledger.sync([(0, request)])[0]
    assert (
        again.merged
        and ledger.classify_request(0, request) == "known"
        and everything(ledger) == before
    )
    assert again.download.to_bytes() == first.download.to_bytes()
    assert is_the_sum(ledger, player)


def test_an_upload_that_comes_twice_at_once_counts_once(ledger):
    player = Player(ledger, 0).play(10)
    request = player.request()
    first, second = ledger.sync([(0, request), (0, request)])
    assert first.merged and isinstance(second, Refused) and second.reason == "round"
    assert is_the_sum(ledger, player) and ledger.n_syncs == 1


def test_an_upload_whose_answer_was_lost_in_a_restart_counts_once(ledger, agreement):
    player = Player(ledger, 0).play(10)
    request = player.request()
    ledger.sync([(0, request)])
    before = everything(ledger)
    ledger.close()
    again = Ledger(ledger.path)
    assert (
        everything(again) == before
        and again.sync([(0, request)])[0].merged
        and everything(again) == before
    )
    again.close()


def test_what_a_restarted_ledger_does_is_what_it_would_have_done(tmp_path, agreement):
    """To the bit: the state is the sums, and nothing else."""
    ledgers = [Ledger(tmp_path / name, agreement) for name in ("one", "other")]
    players = [[Player(each, i) for i in range(3)] for each in ledgers]
    for step in range(30):
        for which in (0, 1):
            if which:
                ledgers[1].close()
                ledgers[1] = Ledger(tmp_path / "other")
            player = players[which][step % 3]
            player.ledger = ledgers[which]
            player.play(7).sync()
    assert everything(ledgers[0])[0] == everything(ledgers[1])[0]
    for each in ledgers:
        each.close()


def test_other_bytes_under_a_number_that_was_merged_are_refused(ledger):
    player = Player(ledger, 0).play(10)
    player.sync()
    before = everything(ledger)
    player.play(5)
    player.sync()
    before = everything(ledger)
    for number, words in (
        (2, "was merged before with other content"),
        (1, "is old: 2 came after it"),
    ):
        (answer,) = ledger.sync([(0, player.request(sequence=number))])
        assert isinstance(answer, Refused) and answer.reason == "session" and words in str(answer)
    assert everything(ledger) == before


def test_a_new_session_takes_over_and_the_old_one_is_told(ledger):
    old = Player(ledger, 0).play(10)
    new = Player(ledger, 0, seed=1).play(4)  # the same client, started anew
    before = everything(ledger)
    (answer,) = ledger.sync([(0, old.request())])
    assert (
        isinstance(answer, Refused) and answer.reason == "session" and everything(ledger) == before
    )
    new.sync()
    assert is_the_sum(ledger, new)
    assert (
        ledger.join(0, JoinRequest(0, new.session)).sequence == 1
    )  # joining again changes nothing
    assert new.play(3).sync().merged


def test_the_join_of_an_older_session_that_comes_late_changes_nothing(ledger):
    """A process asked to join and was killed; another took its place before the request came."""
    late = JoinRequest(0, b"first session...", generation=1)
    new = Player(ledger, 0).play(4)
    before = everything(ledger)
    for request in (late, JoinRequest(0, b"from the future.", generation=3)):
        with pytest.raises(Refused, match="client 0 has had 1 sessions: ask again") as raised:
            ledger.join(0, request)
        assert raised.value.reason == "round" and everything(ledger) == before
    asked = ledger.join(0, JoinRequest(0, bytes(16), generation=ASKING_GENERATION))
    assert (asked.generation, asked.sequence) == (1, 0) and everything(ledger) == before
    assert new.sync().merged and is_the_sum(ledger, new)


def test_a_late_joiner_starts_from_what_the_server_knows(ledger):
    player = Player(ledger, 0).play(20)
    player.sync()
    answer = ledger.join(2, JoinRequest(2, bytes(16)))
    assert answer.download.to_bytes() == ledger.download().to_bytes() and answer.sequence == 0
    client = fsl.Client(Agreement.from_spec(answer.spec).algorithm(answer.epoch), 2)
    client.apply(answer.download)
    assert np.array_equal(client.layer(0)["gram"], ledger.server.layer(0)["gram"])


def test_uploads_that_are_missing_between_two_are_noticed(ledger, tmp_path):
    """An older copy of the server's store was put back: what was merged since is lost."""
    player = Player(ledger, 0).play(5)
    player.sync()
    ledger.close()
    older = ledger.path.read_bytes()
    again = Ledger(ledger.path)
    player.ledger = again
    player.play(5).sync()
    again.close()
    ledger.path.write_bytes(older)
    restored = Ledger(ledger.path)
    before = everything(restored)
    player.ledger = restored
    (answer,) = restored.sync([(0, player.play(5).request())])
    assert (
        isinstance(answer, Refused)
        and answer.reason == "session"
        and everything(restored) == before
    )
    assert "comes after 1: uploads in between are missing. Was an older copy" in str(answer)
    restored.close()


# --- bad clients ----------------------------------------------------------------------------------


def spoilt(upload, **changed):
    return dataclasses.replace(upload, **changed)


def with_matrix(upload, matrix):
    grams = np.array(upload.grams)
    grams[0] = pack_upper(np.asarray(matrix, float))
    return spoilt(upload, grams=grams)


BAD_UPLOADS = {
    "NaN": lambda u: spoilt(u, moments=u.moments * np.nan),
    "infinity": lambda u: spoilt(u, grams=u.grams + np.inf),
    "a negative diagonal": lambda u: with_matrix(u, np.diag([-1.0, 1, 1])),
    "not semi-definite, with a fine diagonal": lambda u: with_matrix(
        u, [[1, 2, 0], [2, 1, 0], [0, 0, 1]]
    ),
    "a diagonal that sums to nothing": lambda u: without_moments(
        with_matrix(u, np.diag([-0.5, 0.5, 0]))
    ),
    "nothing but off the diagonal": lambda u: without_moments(
        with_matrix(u, [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])
    ),
    "a trace that its pulls can not give": lambda u: spoilt(u, grams=u.grams * 1.01),
    "no pulls at all": lambda u: spoilt(u, pulls=u.pulls * 0),
    "negative pulls": lambda u: spoilt(u, pulls=-u.pulls),
    "more pulls than can be": lambda u: spoilt(u, pulls=u.pulls + (1 << 48)),
    "a moment without a matrix": lambda u: spoilt(u, grams=u.grams * 0),
    "numbers that are too large": lambda u: spoilt(u, moments=u.moments + 1e200),
    "a layer twice": lambda u: spoilt(u, **twice(u)),
    "a layer that is not there": lambda u: spoilt(u, layers=u.layers + 50),
    "a trigger of a layer that is not there": lambda u: spoilt(u, asking=(50,)),
    "another dimension": lambda u: spoilt(
        u, grams=np.ones((len(u.layers), 10)), moments=np.ones((len(u.layers), 4))
    ),
}  # fmt: skip


def without_moments(upload):
    return spoilt(upload, moments=upload.moments * 0)


def twice(upload):
    return {
        name: np.concatenate([getattr(upload, name)] * 2)
        for name in ("layers", "grams", "moments", "pulls")
    }


@pytest.mark.parametrize("how", BAD_UPLOADS)
def test_an_upload_that_no_pulls_could_give_is_refused_and_changes_nothing(ledger, how):
    good, bad = Player(ledger, 1).play(8), Player(ledger, 0).play(10)
    request = bad.request()
    sent = dataclasses.replace(request, upload=BAD_UPLOADS[how](request.upload))
    before = everything(ledger)
    with pytest.raises(Refused) as raised:
        ledger.classify_request(0, sent)
    assert raised.value.reason == "implausible" and everything(ledger) == before
    answers = ledger.sync([(0, sent), (1, good.request())])  # other clients are not affected
    assert isinstance(answers[0], Refused) and answers[1].merged and is_the_sum(ledger, good)
    assert ledger.sync([(0, request)])[0].merged and is_the_sum(ledger, good, bad)


def test_an_upload_after_which_the_sums_could_not_be_inverted_is_refused_and_changes_nothing(
    ledger,
):
    """The largest trace of so many pulls, in one direction: the ridge is lost in rounding."""
    good, bad = Player(ledger, 1).play(8), Player(ledger, 0).play(10)
    request = bad.request()
    most = 1 << 47
    one_way = pack_upper(np.outer([0.6, 0.6, 0.5], [0.6, 0.6, 0.5]) * most)
    layers = np.array([0, 1])
    grams = np.vstack(
        [pack_upper(np.eye(3)), one_way]
    )  # the first of the layers would do: all or none
    upload = spoilt(
        request.upload,
        layers=layers,
        grams=grams,
        moments=np.zeros((2, 3)),
        pulls=np.array([9, most]),
        asking=(),
    )
    sent, before = dataclasses.replace(request, upload=upload), everything(ledger)
    assert ledger.classify_request(0, sent) == "new"
    with pytest.raises(
        NumericalError,
        match="with this upload layer 1 would no longer be positive definite; it was refused",
    ):
        ledger.server.add_checked([upload])
    assert everything(ledger) == before
    answers = ledger.sync([(0, sent), (1, good.request())])
    assert answers[
        0
    ].reason == "implausible" and "layer 1 would no longer be positive definite" in str(answers[0])
    assert answers[1].merged and is_the_sum(ledger, good)
    assert ledger.sync([(0, request)])[0].merged and is_the_sum(ledger, good, bad)


def test_the_trace_may_be_all_that_a_weighting_allows(tmp_path):
    for name, keywords in (("variance", {}), ("robust", {"corruption": 5.0})):
        agreement = Agreement.of(fsl.make(name, **SIZES, horizon=1000, **keywords))
        ledger = Ledger(tmp_path / name, agreement)
        player = Player(ledger, 0).play(50)
        assert player.sync().merged
        ledger.close()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"fingerprint": bytes(31) + b"x"}, "algorithm"),
        ({"session": bytes(16)}, "session"),
        ({"epoch": 1}, "malformed"),
        ({"sequence": 0}, "malformed"),
        ({"sequence": 2**63}, "malformed"),
    ],
)
def test_another_algorithm_session_or_epoch_is_refused_and_changes_nothing(ledger, changed, reason):
    player = Player(ledger, 0).play(5)
    before = everything(ledger)
    (answer,) = ledger.sync([(0, player.request(**changed))])
    assert isinstance(answer, Refused) and answer.reason == reason and everything(ledger) == before


def test_a_client_can_not_speak_for_another(ledger):
    player, other = Player(ledger, 0).play(5), Player(ledger, 1)
    before = everything(ledger)
    for call in (
        lambda: ledger.classify_request(1, player.request()),
        lambda: ledger.join(1, JoinRequest(0, bytes(16))),
        lambda: ledger.classify_request(
            1, RoundRequest(ledger.fingerprint, other.session, 0, 0, 0, ())
        ),
    ):
        with pytest.raises(Refused, match="client 1 can't act for client 0") as raised:
            call()
        assert raised.value.reason == "identity"
    assert everything(ledger) == before
    with pytest.raises(Refused, match="another algorithm"):
        ledger.join(0, JoinRequest(0, bytes(16), b"x" * 32))
    with pytest.raises(Refused, match="there is no client 3: ids are 0 to 2"):
        ledger.join(3, JoinRequest(3, bytes(16)))
    assert ledger.join(0, JoinRequest(0, bytes(16), ANY_ALGORITHM, 2)).sequence == 0


def test_one_who_can_not_be_added_is_refused_and_the_others_are_merged(ledger, monkeypatch):
    """If a sum is not positive definite, the uploads that can be added are merged in one commit."""
    players = [Player(ledger, i).play(6) for i in range(3)]
    add = ledger.server.add_checked

    def picky(uploads):
        if any(upload.client_id == 1 for upload in uploads):
            raise NumericalError("not with this one")
        add(uploads)

    monkeypatch.setattr(ledger.server, "add_checked", picky)
    answers = ledger.sync([(p.client_id, p.request()) for p in players])
    assert answers[0].merged and answers[2].merged and "not with this one" in str(answers[1])
    assert is_the_sum(ledger, players[0], players[2])


@pytest.mark.parametrize("at", ["sums", "rollback"])
def test_where_memory_runs_out_in_a_commit_and_in_undoing_it_nothing_is_lost_or_counted_twice(
    ledger, monkeypatch, at
):
    player, other = Player(ledger, 0).play(6), Player(ledger, 1).play(6)
    request = player.request()
    with monkeypatch.context() as short:
        short.setattr(ledger.server, "sums", out_of_memory)
        if at == "rollback":
            short.setattr("fedsuplin.federation.ledger.unpack_upper", out_of_memory)
        with pytest.raises(MemoryError):
            ledger.sync([(0, request)])
    assert not ledger._file.in_transaction and ledger.clients()[0]["sequence"] == 0
    assert ledger.sync([(1, other.request())])[0].merged and is_the_sum(ledger, other)
    assert ledger.sync([(0, request)])[0].merged and is_the_sum(ledger, player, other)


def out_of_memory(*_):
    raise MemoryError


# --- rounds ---------------------------------------------------------------------------------------


@pytest.fixture
def together(tmp_path):
    made = Ledger(tmp_path / "rounds.db", Agreement.of(fsl.make("sync", **SIZES, horizon=1000)))
    yield made
    made.close()


def test_a_round_is_merged_whole_and_the_layers_that_were_asked_for_come_back(together):
    players = [Player(together, i).play(4) for i in range(3)]
    requests = [p.request() for p in players]
    assert [together.classify_request(i, request) for i, request in enumerate(requests)] == [
        "new"
    ] * 3
    answers = together.close_round(requests, [0])
    assert all(answer.merged and answer.round == 1 for answer in answers) and answers[
        0
    ].download.layers.tolist() == [0]
    assert together.round == 1 and together.communication == 3 and together.n_syncs == 1
    late = dataclasses.replace(requests[0], sequence=9)
    assert together.classify_request(0, late) == "over" and not together.answer_over().merged
    assert together.classify_request(0, requests[0]) == "known"
    again = together.answer_known(
        requests[0]
    )  # its answer was lost: of the other layers the client still has what it gathered
    assert again.merged and again.download.layers.tolist() == [0]
    with pytest.raises(Refused, match="round 5 has not begun: it is round 1"):
        together.classify_request(0, dataclasses.replace(requests[0], sequence=10, round=5))


def test_a_round_in_which_nobody_asks_is_remembered_and_changes_nothing_else(together):
    before = together.download().to_bytes()
    assert together.close_round([], []) == [] and together.round == 1
    together.close()
    again = Ledger(together.path)
    assert again.round == 1 and again.download().to_bytes() == before and again.communication == 0
    again.close()


def test_who_leaves_is_merged_whatever_the_round(together):
    player = Player(together, 0).play(4)
    together.close_round([], [])
    request = player.request(round=0, leaving=True)
    assert (
        together.classify_request(0, request) == "new"
        and together.sync([(0, request)])[0].merged
        and is_the_sum(together, player)
    )


def test_one_upload_of_a_round_that_can_not_be_added_does_not_stop_the_round(together, monkeypatch):
    players = [Player(together, i).play(4) for i in range(3)]
    add = together.server.add_checked

    def picky(uploads):
        if any(upload.client_id == 2 for upload in uploads):
            raise NumericalError("not with this one")
        add(uploads)

    monkeypatch.setattr(together.server, "add_checked", picky)
    answers = together.close_round([p.request() for p in players], [0])
    assert (
        answers[0].merged
        and answers[1].merged
        and isinstance(answers[2], Refused)
        and together.round == 1
    )


def test_where_memory_runs_out_while_it_is_found_who_can_not_be_added_nobody_is_counted_twice(
    together, monkeypatch
):
    players = [Player(together, i).play(4) for i in range(3)]
    requests = [p.request() for p in players]
    layers = sorted({int(layer) for request in requests for layer in request.upload.layers})
    add, n_calls = together.server.add_checked, iter(range(10))

    def picky(uploads):
        if next(n_calls) == 2:
            raise MemoryError
        if any(upload.client_id == 1 for upload in uploads):
            raise NumericalError("not with this one")
        add(uploads)

    with monkeypatch.context() as short:
        short.setattr(together.server, "add_checked", picky)
        with pytest.raises(MemoryError):
            together.close_round([requests[0], requests[2], requests[1]], layers)
    assert all(each["sequence"] == 0 for each in together.clients().values())
    together.close_round(requests, layers)
    assert is_the_sum(together, *players)


def test_rounds_are_for_those_who_sync_together(ledger, together):
    player = Player(ledger, 0)
    with pytest.raises(Refused, match="there are no rounds"):
        ledger.classify_request(0, RoundRequest(ledger.fingerprint, player.session, 0, 0, 0, ()))
    player = Player(together, 0)
    with pytest.raises(Refused, match="layers"):
        together.classify_request(
            0, RoundRequest(together.fingerprint, player.session, 0, 0, 0, (99,))
        )


# --- epochs ---------------------------------------------------------------------------------------


def test_an_epoch_ends_when_its_pulls_are_merged_and_the_next_begins_from_nothing(tmp_path):
    agreement = Agreement.of(Doubling("async", SIZES, first=20))
    ledger = Ledger(tmp_path / "s.db", agreement)
    one, other = Player(ledger, 0).play(15), Player(ledger, 1).play(9)
    one.sync()
    old = other.request()
    assert (ledger.epoch, ledger.pulls) == (0, 15)
    (answer,) = ledger.sync([(0, Player.request(one.play(6)))])
    assert answer.merged and answer.epoch == 1 and ledger.pulls == 0 and ledger.total_pulls == 21
    assert ledger.algorithm.horizon == 40 and ledger.classify_request(1, old) == "over"
    (late,) = ledger.sync([(1, old)])
    assert (
        not late.merged
        and late.epoch == 1
        and np.array_equal(late.download.grams, ledger.download().grams)
    )
    ledger.close()
    again = Ledger(ledger.path)
    assert (again.epoch, again.algorithm.horizon, again.total_pulls) == (1, 40, 21)
    again.close()


def test_a_client_that_claims_pulls_without_end_comes_to_the_last_epoch_and_to_no_error(tmp_path):
    """Whoever has a token can end epochs; docs/federation.md says so. The server outlives it."""
    ledger = Ledger(tmp_path / "s.db", Agreement.of(Doubling("async", SIZES)))
    player = Player(ledger, 0)
    for _ in range(LAST_EPOCH + 3):
        player.client = fsl.Client(ledger.algorithm, 0)
        request = player.play(1).request()
        claims = dataclasses.replace(request.upload, pulls=np.array([1 << 48]))
        (answer,) = ledger.sync([(0, dataclasses.replace(request, upload=claims))])
        assert answer.merged
    assert ledger.epoch == LAST_EPOCH
    ledger._counts["total_pulls"] = (1 << 62) - 5
    (answer,) = ledger.sync([(0, dataclasses.replace(player.request(), upload=claims))])
    assert (
        isinstance(answer, Refused)
        and answer.reason == "implausible"
        and "there would be more than 4611686018427387904" in str(answer)
    )
    ledger.close()


def test_uploads_of_a_batch_that_ends_an_epoch_are_of_that_epoch_and_not_of_the_next(tmp_path):
    """Also where one of it can't be added."""
    ledger = Ledger(tmp_path / "s.db", Agreement.of(Doubling("async", SIZES, first=10)))
    players = [Player(ledger, 0).play(12), Player(ledger, 1).play(3), Player(ledger, 2).play(1)]
    requests = [(player.client_id, player.request()) for player in players]
    huge = np.zeros((1, 6))
    huge[0, [0, 1, 3]] = 2.0**46  # of rank one, and so large that the ridge is lost in it
    bad = dataclasses.replace(requests[2][1].upload, grams=huge, pulls=np.array([1 << 48]))
    requests[2] = (2, dataclasses.replace(requests[2][1], upload=bad))
    answers = ledger.sync(requests)
    assert [(answer.merged, answer.epoch) for answer in answers[:2]] == [(True, 1)] * 2 and answers[
        2
    ].reason == "implausible"
    assert (
        ledger.total_pulls == 15
        and ledger.pulls == 0
        and np.array_equal(ledger.download().moments, np.zeros((ledger.algorithm.n_layers, 3)))
    )
    ledger.close()


# --- the file -------------------------------------------------------------------------------------


class Failing:
    """A connection that fails from its n-th statement on, as a full disk would."""

    def __init__(self, file, n):
        self._file, self.left = file, n

    def __getattr__(self, name):
        return getattr(self._file, name)

    def execute(self, statement, *arguments):
        if statement != "ROLLBACK":
            self.left -= 1
            if self.left < 0:
                raise sqlite3.OperationalError("database or disk is full")
        return self._file.execute(statement, *arguments)


@pytest.mark.parametrize("doubles", [False, True])
def test_a_disk_that_is_full_at_any_statement_changes_nothing_and_later_all_goes_on(
    tmp_path, doubles
):
    agreement = Agreement.of(
        Doubling("async", SIZES, first=20) if doubles else fsl.make("async", **SIZES, horizon=1000)
    )
    ledger = Ledger(tmp_path / "s.db", agreement)
    players = [Player(ledger, i).play(12) for i in range(2)]
    players[0].sync()
    requests, before, file, failures = (
        [(p.client_id, p.play(9).request()) for p in players],
        everything(ledger),
        ledger._file,
        0,
    )
    for n in range(100):
        ledger._file = Failing(file, n)
        try:
            answers = ledger.sync(requests)
        except sqlite3.OperationalError:
            failures += 1
            ledger._file = file
            assert everything(ledger) == before
        else:
            break
    ledger._file = file
    assert (
        failures == 5 + doubles
    )  # BEGIN, the three tables, COMMIT; and what an epoch that is over has left is deleted
    assert all(answer.merged for answer in answers) and ledger.epoch == doubles
    assert ledger.total_pulls == 42
    ledger.close()


def test_a_commit_of_more_clients_than_a_statement_has_room_for_is_one_commit(tmp_path):
    """SQLite takes 999 values a statement if it is old: here 150 clients have 1500."""
    ledger = Ledger(
        tmp_path / "s.db",
        Agreement.of(fsl.make("async", **SIZES | {"n_clients": 150}, horizon=1000)),
    )
    players = [Player(ledger, i).play(2) for i in range(150)]
    ledger._file.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
    answers = ledger.sync([(p.client_id, p.request()) for p in players])
    assert all(answer.merged for answer in answers) and ledger.total_pulls == 300
    ledger.close()
    again = Ledger(tmp_path / "s.db")
    assert [each["pulls"] for each in again.clients().values()] == [2] * 150
    again.close()


def test_a_store_is_its_owners_alone(ledger):
    Player(ledger, 0).play(3).sync()
    assert {
        path.name: path.stat().st_mode & 0o777 for path in ledger.path.parent.glob("server.db*")
    } == {
        "server.db": 0o600,
        "server.db-wal": 0o600,
    }


def test_a_store_is_a_file_whatever_it_is_called(tmp_path, agreement, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Ledger(":memory:", agreement).close()
    assert (tmp_path / ":memory:").stat().st_size > 0


def test_a_store_is_one_servers_at_a_time(ledger):
    with pytest.raises(InvalidInput, match="is in use: another server has it open"):
        Ledger(ledger.path)


def test_a_store_of_another_algorithm_or_of_something_else_is_refused_and_left_alone(
    tmp_path, ledger, agreement
):
    ledger.close()
    with pytest.raises(InvalidInput, match="is for another algorithm, async"):
        Ledger(ledger.path, Agreement.of(fsl.make("async", **SIZES, horizon=2000)))
    with pytest.raises(InvalidInput, match="is new: name the algorithm"):
        Ledger(tmp_path / "new.db")
    with pytest.raises(InvalidInput, match="there is no folder"):
        Ledger(tmp_path / "nowhere" / "s.db", agreement)
    text = tmp_path / "text"
    text.write_text("some notes of mine" * 100)
    with pytest.raises(InvalidInput, match="is not the store of a fedsuplin server"):
        Ledger(text, agreement)
    assert text.read_text() == "some notes of mine" * 100
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    foreign.execute("CREATE TABLE mine (x)")
    foreign.close()
    with pytest.raises(InvalidInput, match="it is the database of another program"):
        Ledger(tmp_path / "foreign.db", agreement)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("PRAGMA user_version=9", "has format 9; this fedsuplin reads 1"),
        ("DELETE FROM layers WHERE layer=0", "does not hold a server's state: it has the layers"),
        ("UPDATE layers SET gram=x'00' WHERE layer=0", "does not hold a server's state"),
        ("UPDATE layers SET gram=zeroblob(48) WHERE layer=0", "layer 0 is not positive definite"),
        ("UPDATE layers SET layer=1099511627776 WHERE layer=0", "does not hold a server's state"),
        ("UPDATE facts SET value=1e400 WHERE name='round'", "does not hold a server's state"),
        ("DELETE FROM facts WHERE name='epoch'", "does not hold a server's state"),
        ("UPDATE facts SET value='{}' WHERE name='plan'", "not the specification of an algorithm"),
    ],
)
def test_a_store_that_was_tampered_with_is_refused(ledger, statement, words):
    ledger.close()
    file = sqlite3.connect(ledger.path)
    file.execute(statement)
    file.commit()
    file.close()
    with pytest.raises(InvalidInput, match=words):
        Ledger(ledger.path)


def test_an_agreement_is_plain_data_and_the_same_on_both_sides():
    algorithm = fsl.make("robust", **SIZES, horizon=700, corruption=3.0)
    agreement = Agreement.of(algorithm)
    again = Agreement.from_spec(agreement.spec).algorithm(0)
    assert (
        again.radii.tolist() == algorithm.radii.tolist() and again.weighting == algorithm.weighting
    )
    with pytest.raises(InvalidInput, match="epoch 0 only"):
        agreement.algorithm(1)
    with pytest.raises(InvalidInput, match="needs an algorithm"):
        Agreement.of("async")
    with pytest.raises(InvalidInput, match="not the specification"):
        Agreement.from_spec({"variant": "async"})
    with pytest.raises(InvalidInput, match="passed as an object"):
        Agreement.of(fsl.make("async", **SIZES, horizon=700, trigger=lambda gain, elapsed: True))
    assert isinstance(Download.from_bytes(fsl.Server(again).download([0]).to_bytes()), Download)
