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


def draw_contexts(rng):
    found = rng.standard_normal((4, 3))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


class Player:
    """A client with a session that plays, makes requests and sums its own observations."""

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
            given = draw_contexts(self.rng)
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


def read_everything(ledger):
    """Return the complete state of the ledger, in memory and in its file."""
    sums = [
        (known["gram"].tolist(), known["moment"].tolist())
        for known in map(ledger.server.layer, range(ledger.algorithm.n_layers))
    ]
    tables = [
        sorted(map(repr, ledger._file.execute(f"SELECT * FROM {name}")))
        for name in ("facts", "layers", "clients")
    ]
    return sums, tables, dict(ledger._counts), dict(ledger._members), ledger.download().to_bytes()


def equals_sum_of(ledger, *players):
    known = [ledger.server.layer(layer) for layer in range(ledger.algorithm.n_layers)]
    ridge = ledger.algorithm.setting.ridge * np.eye(3)
    gram, moment = (
        sum(each["gram"] - ridge for each in known),
        sum(each["moment"] for each in known),
    )
    return np.allclose(gram, sum(p.gram for p in players), atol=1e-9) and np.allclose(
        moment, sum(p.moment for p in players), atol=1e-9
    )


# --- each upload counts once ----------------------------------------------------------------------


def test_uploads_of_several_clients_are_merged_in_one_commit(ledger):
    players = [Player(ledger, i).play(10 + i) for i in range(3)]
    answers = ledger.sync([(p.client_id, p.request()) for p in players])
    assert [answer.merged for answer in answers] == [True] * 3 and answers[0].download is answers[
        2
    ].download
    assert (
        equals_sum_of(ledger, *players)
        and ledger.n_syncs == ledger.communication == 3
        and ledger.pulls == 33
    )
    assert {number: each["pulls"] for number, each in ledger.clients().items()} == {
        0: 10,
        1: 11,
        2: 12,
    }


def test_an_upload_sent_twice_counts_once_and_is_answered_twice(ledger):
    player = Player(ledger, 0).play(10)
    request = player.request()
    first, before = player.sync(request), read_everything(ledger)
    again = ledger.sync([(0, request)])[0]
    assert (
        again.merged
        and ledger.classify_request(0, request) == "known"
        and read_everything(ledger) == before
    )
    assert again.download.to_bytes() == first.download.to_bytes()
    assert equals_sum_of(ledger, player)


def test_an_upload_twice_in_one_batch_counts_once(ledger):
    player = Player(ledger, 0).play(10)
    request = player.request()
    first, second = ledger.sync([(0, request), (0, request)])
    assert first.merged and isinstance(second, Refused) and second.reason == "round"
    assert equals_sum_of(ledger, player) and ledger.n_syncs == 1


def test_an_upload_whose_answer_was_lost_in_a_restart_counts_once(ledger, agreement):
    player = Player(ledger, 0).play(10)
    request = player.request()
    ledger.sync([(0, request)])
    before = read_everything(ledger)
    ledger.close()
    again = Ledger(ledger.path)
    assert (
        read_everything(again) == before
        and again.sync([(0, request)])[0].merged
        and read_everything(again) == before
    )
    again.close()


def test_a_restarted_ledger_computes_the_same_sums_as_one_that_kept_running(tmp_path, agreement):
    """The sums are equal to the bit, as they are the whole state."""
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
    assert read_everything(ledgers[0])[0] == read_everything(ledgers[1])[0]
    for each in ledgers:
        each.close()


def test_other_content_under_a_merged_sequence_number_is_refused(ledger):
    player = Player(ledger, 0).play(10)
    player.sync()
    before = read_everything(ledger)
    player.play(5)
    player.sync()
    before = read_everything(ledger)
    for number, words in (
        (2, "was merged before with other content"),
        (1, "is old: 2 came after it"),
    ):
        (answer,) = ledger.sync([(0, player.request(sequence=number))])
        assert isinstance(answer, Refused) and answer.reason == "session" and words in str(answer)
    assert read_everything(ledger) == before


def test_a_new_session_replaces_the_old_one_which_is_refused(ledger):
    old = Player(ledger, 0).play(10)
    new = Player(ledger, 0, seed=1).play(4)  # the same client in a new session
    before = read_everything(ledger)
    (answer,) = ledger.sync([(0, old.request())])
    assert (
        isinstance(answer, Refused)
        and answer.reason == "session"
        and read_everything(ledger) == before
    )
    new.sync()
    assert equals_sum_of(ledger, new)
    assert (
        ledger.join(0, JoinRequest(0, new.session)).sequence == 1
    )  # joining again changes nothing
    assert new.play(3).sync().merged


def test_a_delayed_join_of_an_older_session_changes_nothing(ledger):
    """A process asks to join and is killed; another joins before the request arrives."""
    late = JoinRequest(0, b"first session...", generation=1)
    new = Player(ledger, 0).play(4)
    before = read_everything(ledger)
    for request in (late, JoinRequest(0, b"from the future.", generation=3)):
        with pytest.raises(Refused, match="client 0 has had 1 sessions: ask again") as raised:
            ledger.join(0, request)
        assert raised.value.reason == "round" and read_everything(ledger) == before
    asked = ledger.join(0, JoinRequest(0, bytes(16), generation=ASKING_GENERATION))
    assert (asked.generation, asked.sequence) == (1, 0) and read_everything(ledger) == before
    assert new.sync().merged and equals_sum_of(ledger, new)


def test_a_late_joiner_starts_from_what_the_server_knows(ledger):
    player = Player(ledger, 0).play(20)
    player.sync()
    answer = ledger.join(2, JoinRequest(2, bytes(16)))
    assert answer.download.to_bytes() == ledger.download().to_bytes() and answer.sequence == 0
    client = fsl.Client(Agreement.from_spec(answer.spec).algorithm(answer.epoch), 2)
    client.apply(answer.download)
    assert np.array_equal(client.layer(0)["gram"], ledger.server.layer(0)["gram"])


def test_a_gap_between_sequence_numbers_is_refused(ledger, tmp_path):
    """Restoring an older copy of the server's store loses what was merged since."""
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
    before = read_everything(restored)
    player.ledger = restored
    (answer,) = restored.sync([(0, player.play(5).request())])
    assert (
        isinstance(answer, Refused)
        and answer.reason == "session"
        and read_everything(restored) == before
    )
    assert "comes after 1: uploads in between are missing. Was an older copy" in str(answer)
    restored.close()


# --- implausible uploads and misbehaving clients --------------------------------------------------


def change_upload(upload, **changed):
    return dataclasses.replace(upload, **changed)


def change_matrix(upload, matrix):
    grams = np.array(upload.grams)
    grams[0] = pack_upper(np.asarray(matrix, float))
    return change_upload(upload, grams=grams)


BAD_UPLOADS = {
    "NaN": lambda u: change_upload(u, moments=u.moments * np.nan),
    "infinity": lambda u: change_upload(u, grams=u.grams + np.inf),
    "a negative diagonal": lambda u: change_matrix(u, np.diag([-1.0, 1, 1])),
    "not semi-definite, with a fine diagonal": lambda u: change_matrix(
        u, [[1, 2, 0], [2, 1, 0], [0, 0, 1]]
    ),
    "a diagonal that sums to nothing": lambda u: clear_moments(
        change_matrix(u, np.diag([-0.5, 0.5, 0]))
    ),
    "nothing but off the diagonal": lambda u: clear_moments(
        change_matrix(u, [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]])
    ),
    "a trace that its pulls can not give": lambda u: change_upload(u, grams=u.grams * 1.01),
    "no pulls at all": lambda u: change_upload(u, pulls=u.pulls * 0),
    "negative pulls": lambda u: change_upload(u, pulls=-u.pulls),
    "more pulls than can be": lambda u: change_upload(u, pulls=u.pulls + (1 << 48)),
    "a moment without a matrix": lambda u: change_upload(u, grams=u.grams * 0),
    "numbers that are too large": lambda u: change_upload(u, moments=u.moments + 1e200),
    "a layer twice": lambda u: change_upload(u, **duplicate_layers(u)),
    "a layer that is not there": lambda u: change_upload(u, layers=u.layers + 50),
    "a trigger of a layer that is not there": lambda u: change_upload(u, asking=(50,)),
    "another dimension": lambda u: change_upload(
        u, grams=np.ones((len(u.layers), 10)), moments=np.ones((len(u.layers), 4))
    ),
}  # fmt: skip


def clear_moments(upload):
    return change_upload(upload, moments=upload.moments * 0)


def duplicate_layers(upload):
    return {
        name: np.concatenate([getattr(upload, name)] * 2)
        for name in ("layers", "grams", "moments", "pulls")
    }


@pytest.mark.parametrize("how", BAD_UPLOADS)
def test_an_upload_that_no_pulls_could_produce_is_refused_and_changes_nothing(ledger, how):
    good, bad = Player(ledger, 1).play(8), Player(ledger, 0).play(10)
    request = bad.request()
    sent = dataclasses.replace(request, upload=BAD_UPLOADS[how](request.upload))
    before = read_everything(ledger)
    with pytest.raises(Refused) as raised:
        ledger.classify_request(0, sent)
    assert raised.value.reason == "implausible" and read_everything(ledger) == before
    answers = ledger.sync([(0, sent), (1, good.request())])  # other clients are not affected
    assert isinstance(answers[0], Refused) and answers[1].merged and equals_sum_of(ledger, good)
    assert ledger.sync([(0, request)])[0].merged and equals_sum_of(ledger, good, bad)


def test_an_upload_that_would_make_the_sums_singular_is_refused_and_changes_nothing(
    ledger,
):
    """With the largest trace of 2⁴⁷ pulls in one direction, the ridge is lost in rounding."""
    good, bad = Player(ledger, 1).play(8), Player(ledger, 0).play(10)
    request = bad.request()
    most = 1 << 47
    one_way = pack_upper(np.outer([0.6, 0.6, 0.5], [0.6, 0.6, 0.5]) * most)
    layers = np.array([0, 1])
    grams = np.vstack(
        [pack_upper(np.eye(3)), one_way]
    )  # the first layer alone is fine: all or none
    upload = change_upload(
        request.upload,
        layers=layers,
        grams=grams,
        moments=np.zeros((2, 3)),
        pulls=np.array([9, most]),
        asking=(),
    )
    sent, before = dataclasses.replace(request, upload=upload), read_everything(ledger)
    assert ledger.classify_request(0, sent) == "new"
    with pytest.raises(
        NumericalError,
        match="with this upload layer 1 would no longer be positive definite; it was refused",
    ):
        ledger.server.add_checked([upload])
    assert read_everything(ledger) == before
    answers = ledger.sync([(0, sent), (1, good.request())])
    assert answers[
        0
    ].reason == "implausible" and "layer 1 would no longer be positive definite" in str(answers[0])
    assert answers[1].merged and equals_sum_of(ledger, good)
    assert ledger.sync([(0, request)])[0].merged and equals_sum_of(ledger, good, bad)


def test_uploads_of_weighted_variants_are_accepted(tmp_path):
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
    before = read_everything(ledger)
    (answer,) = ledger.sync([(0, player.request(**changed))])
    assert (
        isinstance(answer, Refused)
        and answer.reason == reason
        and read_everything(ledger) == before
    )


def test_a_client_cannot_act_for_another(ledger):
    player, other = Player(ledger, 0).play(5), Player(ledger, 1)
    before = read_everything(ledger)
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
    assert read_everything(ledger) == before
    with pytest.raises(Refused, match="another algorithm"):
        ledger.join(0, JoinRequest(0, bytes(16), b"x" * 32))
    with pytest.raises(Refused, match="there is no client 3: ids are 0 to 2"):
        ledger.join(3, JoinRequest(3, bytes(16)))
    assert ledger.join(0, JoinRequest(0, bytes(16), ANY_ALGORITHM, 2)).sequence == 0


def test_an_upload_that_cannot_be_added_is_refused_and_the_others_are_merged(ledger, monkeypatch):
    """If a sum is not positive definite, the uploads that can be added are merged in one commit."""
    players = [Player(ledger, i).play(6) for i in range(3)]
    add = ledger.server.add_checked

    def refuse_some(uploads):
        if any(upload.client_id == 1 for upload in uploads):
            raise NumericalError("not with this one")
        add(uploads)

    monkeypatch.setattr(ledger.server, "add_checked", refuse_some)
    answers = ledger.sync([(p.client_id, p.request()) for p in players])
    assert answers[0].merged and answers[2].merged and "not with this one" in str(answers[1])
    assert equals_sum_of(ledger, players[0], players[2])


@pytest.mark.parametrize("at", ["sums", "rollback"])
def test_running_out_of_memory_in_a_commit_or_rollback_loses_and_repeats_nothing(
    ledger, monkeypatch, at
):
    player, other = Player(ledger, 0).play(6), Player(ledger, 1).play(6)
    request = player.request()
    with monkeypatch.context() as short:
        short.setattr(ledger.server, "sums", raise_memory_error)
        if at == "rollback":
            short.setattr("fedsuplin.federation.ledger.unpack_upper", raise_memory_error)
        with pytest.raises(MemoryError):
            ledger.sync([(0, request)])
    assert not ledger._file.in_transaction and ledger.clients()[0]["sequence"] == 0
    assert ledger.sync([(1, other.request())])[0].merged and equals_sum_of(ledger, other)
    assert ledger.sync([(0, request)])[0].merged and equals_sum_of(ledger, player, other)


def raise_memory_error(*_):
    raise MemoryError


# --- rounds ---------------------------------------------------------------------------------------


@pytest.fixture
def sync_ledger(tmp_path):
    made = Ledger(tmp_path / "rounds.db", Agreement.of(fsl.make("sync", **SIZES, horizon=1000)))
    yield made
    made.close()


def test_a_round_is_merged_as_a_whole_and_answered_with_the_requested_layers(sync_ledger):
    players = [Player(sync_ledger, i).play(4) for i in range(3)]
    requests = [p.request() for p in players]
    assert [sync_ledger.classify_request(i, request) for i, request in enumerate(requests)] == [
        "new"
    ] * 3
    answers = sync_ledger.close_round(requests, [0])
    assert all(answer.merged and answer.round == 1 for answer in answers) and answers[
        0
    ].download.layers.tolist() == [0]
    assert sync_ledger.round == 1 and sync_ledger.communication == 3 and sync_ledger.n_syncs == 1
    late = dataclasses.replace(requests[0], sequence=9)
    assert sync_ledger.classify_request(0, late) == "over" and not sync_ledger.answer_over().merged
    assert sync_ledger.classify_request(0, requests[0]) == "known"
    again = sync_ledger.answer_known(
        requests[0]
    )  # its answer was lost; the client still keeps its data of the other layers
    assert again.merged and again.download.layers.tolist() == [0]
    with pytest.raises(Refused, match="round 5 has not begun: it is round 1"):
        sync_ledger.classify_request(0, dataclasses.replace(requests[0], sequence=10, round=5))


def test_a_round_without_uploads_is_stored_and_changes_nothing_else(sync_ledger):
    before = sync_ledger.download().to_bytes()
    assert sync_ledger.close_round([], []) == [] and sync_ledger.round == 1
    sync_ledger.close()
    again = Ledger(sync_ledger.path)
    assert again.round == 1 and again.download().to_bytes() == before and again.communication == 0
    again.close()


def test_a_leaving_client_is_merged_in_any_round(sync_ledger):
    player = Player(sync_ledger, 0).play(4)
    sync_ledger.close_round([], [])
    request = player.request(round=0, leaving=True)
    assert (
        sync_ledger.classify_request(0, request) == "new"
        and sync_ledger.sync([(0, request)])[0].merged
        and equals_sum_of(sync_ledger, player)
    )


def test_an_upload_that_cannot_be_added_does_not_stop_the_round(sync_ledger, monkeypatch):
    players = [Player(sync_ledger, i).play(4) for i in range(3)]
    add = sync_ledger.server.add_checked

    def refuse_some(uploads):
        if any(upload.client_id == 2 for upload in uploads):
            raise NumericalError("not with this one")
        add(uploads)

    monkeypatch.setattr(sync_ledger.server, "add_checked", refuse_some)
    answers = sync_ledger.close_round([p.request() for p in players], [0])
    assert (
        answers[0].merged
        and answers[1].merged
        and isinstance(answers[2], Refused)
        and sync_ledger.round == 1
    )


def test_running_out_of_memory_while_adding_uploads_one_by_one_counts_nothing_twice(
    sync_ledger, monkeypatch
):
    players = [Player(sync_ledger, i).play(4) for i in range(3)]
    requests = [p.request() for p in players]
    layers = sorted({int(layer) for request in requests for layer in request.upload.layers})
    add, n_calls = sync_ledger.server.add_checked, iter(range(10))

    def refuse_some(uploads):
        if next(n_calls) == 2:
            raise MemoryError
        if any(upload.client_id == 1 for upload in uploads):
            raise NumericalError("not with this one")
        add(uploads)

    with monkeypatch.context() as short:
        short.setattr(sync_ledger.server, "add_checked", refuse_some)
        with pytest.raises(MemoryError):
            sync_ledger.close_round([requests[0], requests[2], requests[1]], layers)
    assert all(each["sequence"] == 0 for each in sync_ledger.clients().values())
    sync_ledger.close_round(requests, layers)
    assert equals_sum_of(sync_ledger, *players)


def test_rounds_exist_only_for_synchronous_algorithms(ledger, sync_ledger):
    player = Player(ledger, 0)
    with pytest.raises(Refused, match="there are no rounds"):
        ledger.classify_request(0, RoundRequest(ledger.fingerprint, player.session, 0, 0, 0, ()))
    player = Player(sync_ledger, 0)
    with pytest.raises(Refused, match="layers"):
        sync_ledger.classify_request(
            0, RoundRequest(sync_ledger.fingerprint, player.session, 0, 0, 0, (99,))
        )


# --- epochs ---------------------------------------------------------------------------------------


def test_an_epoch_ends_when_its_pulls_are_merged_and_the_next_starts_empty(tmp_path):
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


def test_a_client_that_claims_endless_pulls_reaches_the_last_epoch_without_an_error(tmp_path):
    """A client with a token can end epochs (see docs/federation.md); the server survives."""
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


def test_all_uploads_of_a_batch_that_ends_an_epoch_belong_to_that_epoch(tmp_path):
    """This also holds if one of the uploads can't be added."""
    ledger = Ledger(tmp_path / "s.db", Agreement.of(Doubling("async", SIZES, first=10)))
    players = [Player(ledger, 0).play(12), Player(ledger, 1).play(3), Player(ledger, 2).play(1)]
    requests = [(player.client_id, player.request()) for player in players]
    huge = np.zeros((1, 6))
    huge[0, [0, 1, 3]] = 2.0**46  # of rank one, and so large that the ridge is rounded away
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


class FailingConnection:
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
def test_a_full_disk_at_any_statement_changes_nothing_and_a_retry_succeeds(tmp_path, doubles):
    agreement = Agreement.of(
        Doubling("async", SIZES, first=20) if doubles else fsl.make("async", **SIZES, horizon=1000)
    )
    ledger = Ledger(tmp_path / "s.db", agreement)
    players = [Player(ledger, i).play(12) for i in range(2)]
    players[0].sync()
    requests, before, file, failures = (
        [(p.client_id, p.play(9).request()) for p in players],
        read_everything(ledger),
        ledger._file,
        0,
    )
    for n in range(100):
        ledger._file = FailingConnection(file, n)
        try:
            answers = ledger.sync(requests)
        except sqlite3.OperationalError:
            failures += 1
            ledger._file = file
            assert read_everything(ledger) == before
        else:
            break
    ledger._file = file
    assert failures == 5 + doubles  # BEGIN, three tables, COMMIT; when an epoch ends, also a DELETE
    assert all(answer.merged for answer in answers) and ledger.epoch == doubles
    assert ledger.total_pulls == 42
    ledger.close()


def test_a_commit_of_more_clients_than_fit_into_one_statement_succeeds(tmp_path):
    """Old versions of SQLite take 999 values per statement; 150 clients need 1500."""
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


def test_a_store_is_readable_by_its_owner_only(ledger):
    Player(ledger, 0).play(3).sync()
    assert {
        path.name: path.stat().st_mode & 0o777 for path in ledger.path.parent.glob("server.db*")
    } == {
        "server.db": 0o600,
        "server.db-wal": 0o600,
    }


def test_a_store_is_a_file_even_if_it_is_called_memory(tmp_path, agreement, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Ledger(":memory:", agreement).close()
    assert (tmp_path / ":memory:").stat().st_size > 0


def test_a_store_can_be_open_in_one_server_at_a_time(ledger):
    with pytest.raises(InvalidInput, match="is in use: another server has it open"):
        Ledger(ledger.path)


def test_files_that_are_not_a_store_of_this_algorithm_are_refused_and_left_unchanged(
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
