"""Live clients and a server choose and sync as the simulation does, even after restarts."""

import re
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsuplin as fsl
from fedsuplin._shared.archives import read_archive, write_archive
from fedsuplin.algorithm.making import make_for
from fedsuplin.errors import InvalidInput, NumericalError, PluginError
from fedsuplin.live.messages import Download, Upload
from fedsuplin.live.triangles import pack_upper, unpack_upper
from fedsuplin.simulation.preparing import choose_arrival

NOISE = {"variance": {"noise": "bounded"}, "robust": {"noise": "corrupted", "corruption": 20.0}}
LIVE = [
    "async",
    "sync",
    "variance",
    "robust",
    "sync+robust",
    "fedlinucb",
    "dislinucb",
    "suplinucb",
    "oful",
    "uniform",
]
SIZES = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 500}


class World:
    """The contexts and rewards of a problem, pull by pull."""

    def __init__(self, name, problem, horizon):
        self.algorithm = make_for(name, problem, horizon, {})
        stream = problem.stream(horizon, choose_arrival(self.algorithm, problem, horizon))
        self.chunk, self.budget = stream.take(horizon), stream.budget

    def contexts(self, t):
        return self.chunk.contexts[t][:, : self.algorithm.n_arms].T

    def reward(self, t, arm):
        added = 0.0
        if self.chunk.corruption is not None:
            added = max(-self.budget, min(self.budget, self.chunk.corruption[t, arm]))
            self.budget -= abs(added)
        return float(self.contexts(t)[arm] @ self.chunk.theta) + self.chunk.noise[t] + added


def play_federation(world, horizon, at_pull=lambda t, clients, server: (clients, server)):
    """Play live; `at_pull` may replace the clients and the server before each pull."""
    clients = [fsl.Client(world.algorithm, client_id=i) for i in range(world.algorithm.n_clients)]
    server, arms, layers = fsl.Server(world.algorithm), [], []
    for t in range(horizon):
        clients, server = at_pull(t, clients, server)
        client = clients[world.chunk.clients[t]]
        decision = client.select(world.contexts(t))
        client.observe(decision, world.reward(t, decision.arm), sigma=world.chunk.sigma[t])
        arms.append(decision.arm)
        layers.append(decision.layer)
        if world.algorithm.syncs == "one":
            if client.wants_sync:
                client.apply(server.merge(client.upload()))
        elif (t + 1) % len(clients) == 0:
            answer = server.barrier([each.upload() for each in clients])
            for each in clients:
                each.apply(answer)
    return arms, layers, server


@pytest.mark.parametrize("name", [name for name in LIVE if name != "uniform"])
@pytest.mark.parametrize("sizes", [(5, 7, 4), (1, 1, 1), (9, 3, 2)])
def test_a_live_federation_plays_as_the_simulation_does(name, sizes):
    problem, horizon = fsl.SyntheticProblem(*sizes, **NOISE.get(name, {}), seed=1), 1200
    world = World(name, problem, horizon)
    simulated = fsl.run(world.algorithm, problem, record="all")
    arms, layers, server = play_federation(world, horizon)
    assert arms == simulated.arms.tolist() and layers == simulated.layers.tolist()
    assert server.communication == simulated.communication[-1]


@pytest.mark.parametrize("name", LIVE)
def test_saving_and_loading_clients_and_server_repeatedly_changes_nothing(name, tmp_path):
    problem, horizon = fsl.SyntheticProblem(4, 5, 3, **NOISE.get(name, {}), seed=2), 600

    def save_and_load(t, clients, server):
        if t % 31 == 0:
            for client in clients:
                client.save(tmp_path / f"client-{client.client_id}")
            server.save(tmp_path / "server")
            clients = [
                fsl.Client.load(tmp_path / f"client-{i}", world.algorithm)
                for i in range(len(clients))
            ]
            server = fsl.Server.load(tmp_path / "server", world.algorithm)
        return clients, server

    world = World(name, problem, horizon)
    plain = play_federation(world, horizon)
    world = World(name, problem, horizon)
    again = play_federation(world, horizon, save_and_load)
    assert plain[:2] == again[:2] and plain[2].communication == again[2].communication
    for layer in range(world.algorithm.n_layers):
        assert np.array_equal(plain[2].layer(layer)["gram"], again[2].layer(layer)["gram"])


# --- observations that are late, out of order or missing ------------------------------------------


def contexts(rng, n_arms=4, dim=3):
    found = rng.standard_normal((n_arms, dim))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), name=st.sampled_from(["async", "fedlinucb", "variance"]))
def test_the_servers_sums_equal_all_observations_in_any_order_and_delay(seed, name):
    rng = np.random.default_rng(seed)
    algorithm = fsl.make(name, **SIZES, weighting=lambda norm, sigma: sigma)  # weights that differ
    clients, server = [fsl.Client(algorithm, client_id=i) for i in range(2)], fsl.Server(algorithm)
    waiting, under_way, gram, moment = [], {}, np.zeros((3, 3)), np.zeros(3)
    for _ in range(120):
        client, what = clients[rng.integers(2)], rng.random()
        if what < 0.4:
            given_contexts = contexts(rng)
            decision = client.select(given_contexts)
            waiting.append((client, decision, given_contexts[decision.arm]))
        elif what < 0.8 and waiting:
            client, decision, x = waiting.pop(rng.integers(len(waiting)))
            reward, weight = rng.random(2)
            client.observe(decision, reward, sigma=weight)
            gram, moment = gram + weight * np.outer(x, x), moment + weight * reward * x
        elif client.client_id in under_way:
            client.apply(server.merge(under_way.pop(client.client_id)))
        else:
            under_way[client.client_id] = client.upload()
    for client in clients:
        upload = under_way.get(client.client_id) or client.upload()
        client.apply(server.merge(upload))
        client.apply(server.merge(client.upload()))
    known = [server.layer(layer) for layer in range(algorithm.n_layers)]
    ridge = algorithm.setting.ridge * np.eye(3)
    assert np.allclose(sum(each["gram"] - ridge for each in known), gram, atol=1e-9)
    assert np.allclose(sum(each["moment"] for each in known), moment, atol=1e-9)
    assert sum(client.n_observed for client in clients) + len(waiting) <= 120


def test_a_dropped_decision_changes_nothing():
    rng = np.random.default_rng(0)
    algorithm = fsl.make("async", **SIZES)
    one, other = fsl.Client(algorithm), fsl.Client(algorithm)
    for _ in range(20):
        given_contexts = contexts(rng)
        other.drop(other.select(contexts(rng)))  # one more decision, never observed
        first, second = one.select(given_contexts), other.select(given_contexts)
        assert (first.arm, first.layer) == (second.arm, second.layer)
        one.observe(first, 0.5)
        other.observe(second.id, 0.5)
    assert one.n_open == other.n_open == 0


def test_open_decisions_survive_a_save(tmp_path):
    rng = np.random.default_rng(1)
    algorithm = fsl.make("async", **SIZES)
    client = fsl.Client(algorithm, client_id=1)
    decisions = [client.select(contexts(rng)) for _ in range(5)]
    client.observe(decisions[2], 0.1)
    client.upload()
    client.observe(decisions[4], 0.3)  # after the upload, before its answer
    loaded = fsl.Client.load(client.save(tmp_path / "client"), algorithm)
    assert loaded.client_id == 1 and loaded.n_open == 3 and not loaded.wants_sync
    download = fsl.Server(algorithm).download(range(algorithm.n_layers))
    for each in (client, loaded):
        each.apply(download)
        each.observe(decisions[0], 0.9)
    for layer in range(algorithm.n_layers):
        assert np.array_equal(client.layer(layer)["delta_gram"], loaded.layer(layer)["delta_gram"])
    with pytest.raises(InvalidInput, match="decision 0 is not open"):
        loaded.observe(decisions[0], 0.9)


# --- refused input changes nothing ----------------------------------------------------------------


def read_knowledge(client):
    """Return the sums of a client and the state of its rules."""
    layers = [client.layer(layer) for layer in range(client.algorithm.n_layers)]
    return layers, {
        axis: rule.state for axis, rule in client._engine.rules.items() if rule.state is not None
    }


@pytest.mark.parametrize("n_before", [0, 3, 30])  # gathered: nothing, vectors, a matrix
@pytest.mark.parametrize("name", ["async", "sync", "oful"])
def test_a_reward_that_cannot_be_learnt_changes_nothing_and_keeps_the_decision_open(name, n_before):
    algorithm = fsl.make(name, **SIZES, weighting=lambda norm, sigma: sigma)
    one, other = fsl.Client(algorithm), fsl.Client(algorithm)
    for client in (one, other):
        rng = np.random.default_rng(0)
        for _ in range(n_before):
            client.observe(client.select(contexts(rng)), 0.3, sigma=0.5)
    first, second = (client.select(contexts(np.random.default_rng(1))) for client in (one, other))
    with pytest.raises(NumericalError, match="no longer"):
        one.observe(first, 1e200, sigma=1e200)  # their product overflows a double
    np.testing.assert_equal(read_knowledge(one), read_knowledge(other))
    one.observe(first, 0.5)
    other.observe(second, 0.5)
    np.testing.assert_equal(read_knowledge(one), read_knowledge(other))
    assert one.n_observed == n_before + 1 and one.n_open == 0


def test_a_failing_trigger_changes_nothing_and_can_be_called_again():
    broken = [True]

    def fires(gain, elapsed):
        if broken[0]:
            raise RuntimeError("no answer")
        return elapsed > 1

    client = fsl.Client(fsl.make("async", **SIZES, trigger=fires))
    decision, before = client.select(contexts(np.random.default_rng(0))), read_knowledge(client)
    with pytest.raises(PluginError, match="no answer"):
        client.observe(decision, 0.5)
    np.testing.assert_equal(read_knowledge(client), before)
    broken[0] = False
    client.observe(decision, 0.5)
    assert (
        client.n_observed == 1 and not client.wants_sync
    )  # this was the first pull, not the second
    client.observe(client.select(contexts(np.random.default_rng(1))), 0.5)
    assert client.wants_sync


def test_a_download_that_overflows_with_later_observations_is_refused_as_a_whole():
    algorithm = fsl.make("sync", dim=1, n_arms=1, n_clients=2, horizon=500)
    client = fsl.Client(algorithm)
    client.observe(client.select([[1.0]]), 0.1)
    client.upload()
    client.observe(client.select([[1.0]]), 1.6e308)  # after the upload
    n, before = algorithm.n_layers, read_knowledge(client)
    with pytest.raises(NumericalError, match="no longer finite"):
        client.apply(Download(np.arange(n), np.full((n, 1), 2.0), np.full((n, 1), 1.5e308)))
    np.testing.assert_equal(read_knowledge(client), before)
    client.apply(Download(np.arange(n), np.full((n, 1), 2.0), np.full((n, 1), 0.1)))
    assert client.layer(0)["delta_moment"][0] == 1.6e308


# --- threads --------------------------------------------------------------------------------------


def test_a_client_shared_by_threads_loses_nothing():
    algorithm = fsl.make("async", **(SIZES | {"horizon": 10_000}))
    client, server = fsl.Client(algorithm), fsl.Server(algorithm)
    failures = []

    def play(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(300):
                decision = client.select(contexts(rng))
                client.observe(decision, rng.random())
                if rng.random() < 0.05:
                    with syncing:
                        client.apply(server.merge(client.upload()))
        except Exception as error:  # a thread cannot raise in the test: checked below
            failures.append(error)

    syncing = threading.Lock()  # one upload under way at a time
    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.apply(server.merge(client.upload()))
    assert not failures and client.n_observed == 1200 and client.n_open == 0
    traces = sum(np.trace(server.layer(layer)["gram"]) for layer in range(algorithm.n_layers))
    assert traces - algorithm.n_layers * 3 * algorithm.setting.ridge == pytest.approx(
        1200, abs=1e-6
    )


def test_one_algorithm_can_be_used_by_concurrent_runs():
    problem = fsl.SyntheticProblem(4, 5, 3, seed=0)
    algorithm = fsl.make("async", dim=4, n_arms=5, n_clients=3, horizon=3000)
    alone, found = fsl.run(algorithm, problem, record="all"), []
    threads = [
        threading.Thread(target=lambda: found.append(fsl.run(algorithm, problem, record="all")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(np.array_equal(result.arms, alone.arms) for result in found)


# --- invalid input --------------------------------------------------------------------------------


def check_refused(words, what, error=InvalidInput):
    with pytest.raises(error, match=words):
        what()


def test_a_client_reports_invalid_arguments():
    algorithm = fsl.make("async", **SIZES)
    client = fsl.Client(algorithm)
    good = contexts(np.random.default_rng(0))
    check_refused(
        "client_id must be a whole number from 0 to 1", lambda: fsl.Client(algorithm, client_id=2)
    )
    for seed in (-1, 0.5, True, None):
        check_refused(
            "seed must be a whole number of at least 0, not",
            lambda seed=seed: fsl.Client(algorithm, seed=seed),
        )
    check_refused("needs an Algorithm", lambda: fsl.Client("async"))
    check_refused(r"shape \(arms, dim\) = \(4, 3\), not \(3, 3\)", lambda: client.select(good[:3]))
    check_refused("NaN or infinity", lambda: client.select(good * np.nan))
    check_refused("has length 2", lambda: client.select(2 * good))
    check_refused("mask must be 4 booleans", lambda: client.select(good, mask=[False] * 4))
    check_refused(
        "mask can't be read as an array: .*inhomogeneous",
        lambda: client.select(good, mask=[[True], [True, False]]),
    )
    decision = client.select(good)
    check_refused("reward must be a finite number", lambda: client.observe(decision, float("nan")))
    check_refused("sigma must be at least 0", lambda: client.observe(decision, 0.1, sigma=-1))
    check_refused("decision 77 is not open", lambda: client.observe(77, 0.1))
    client.observe(decision, 0.1)
    check_refused("decision 0 is not open", lambda: client.observe(decision, 0.1))
    for name, words in (("async-linucb", "sends on its own"), ("pe", "plays in phases")):
        check_refused(words, lambda name=name: fsl.Server(fsl.make(name, **SIZES)))


@pytest.mark.parametrize(
    "change",
    [
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x.tolist(),
        lambda x: x.astype(">f8"),
        lambda x: np.frombuffer(b"0" + x.tobytes(), np.uint8)[1:].view(np.float64).reshape(x.shape),
    ],
    ids=["fortran", "strided", "lists", "big-endian", "misaligned"],
)
@pytest.mark.parametrize(("dim", "n_arms"), [(3, 4), (1, 4), (3, 1), (1, 1)])
@pytest.mark.parametrize("masked", [False, True])
def test_the_layout_of_contexts_changes_no_decision(change, dim, n_arms, masked):
    algorithm = fsl.make("async", dim=dim, n_arms=n_arms, n_clients=2, horizon=500)
    plain, other, rng = fsl.Client(algorithm), fsl.Client(algorithm), np.random.default_rng(0)
    for _ in range(20):
        x = rng.uniform(-0.5, 0.5, (n_arms, dim))
        mask = np.arange(n_arms) == rng.integers(n_arms) if masked else None
        decision = plain.select(x, mask)
        assert other.select(change(x), mask if mask is None else mask.tolist()) == decision
        for client in (plain, other):
            assert np.array_equal(client.export_decision(decision.id)[1], x[decision.arm])
            client.observe(decision, 0.3)


def test_a_context_that_is_masked_out_may_be_anything():
    client, x = fsl.Client(fsl.make("async", **SIZES)), np.full((4, 3), 0.5)
    x[1] = np.nan, np.inf, 9.0
    check_refused("NaN or infinity", lambda: client.select(x))
    assert client.select(x, np.array([False, False, True, False])).arm == 2
    assert client.n_open == 1


@pytest.mark.parametrize("mask", [np.ones(4), np.ones(3, bool), np.ones((4, 1), bool)], ids=str)
def test_a_mask_of_another_type_or_shape_is_refused(mask):
    client = fsl.Client(fsl.make("async", **SIZES))
    check_refused("mask must be 4 booleans", lambda: client.select(np.zeros((4, 3)), mask))
    assert client.n_open == 0


def test_errors_name_the_plugin_that_fails_in_a_live_client():
    def broken(gain, elapsed):
        raise RuntimeError("no luck")

    client = fsl.Client(fsl.make("async", **SIZES, trigger=broken))
    decision = client.select(contexts(np.random.default_rng(0)))
    check_refused(
        "broken.*raised RuntimeError: no luck",
        lambda: client.observe(decision, 0.1),
        PluginError,
    )
    client = fsl.Client(fsl.make("async", **SIZES, weighting=lambda norm, sigma: -1.0))
    check_refused(
        "returned a weight that is negative or not finite",
        lambda: client.observe(client.select(contexts(np.random.default_rng(0))), 0.1),
        PluginError,
    )


def test_errors_name_a_policy_that_chooses_no_valid_arm_and_no_decision_is_made():
    class Outside:
        arm = 99

        def choose(self, estimates, widths, targets, draw):
            return self.arm

        def __repr__(self):
            return "Outside()"

    policy = Outside()
    client, good = (
        fsl.Client(fsl.make("async", **SIZES, policy=policy)),
        contexts(np.random.default_rng(0)),
    )
    for arm in (99, -1):
        policy.arm = arm
        check_refused(re.escape(f"Outside() chose {arm}"), lambda: client.select(good), PluginError)
    assert client.n_open == 0
    policy.arm = 2
    assert client.select(good) == fsl.Decision(0, 2, 0)


def test_no_decision_is_made_when_the_estimates_overflow():
    """The download and θ̂ are finite, but the estimate of an arm is not."""
    algorithm = fsl.make("oful", **SIZES)
    client = fsl.Client(algorithm)
    client.apply(
        Download(
            np.array([0]),
            pack_upper(algorithm.setting.ridge * np.eye(3))[None],
            np.full((1, 3), 1.7e308),
        )
    )
    check_refused(
        "estimates are no longer finite",
        lambda: client.select(np.full((4, 3), 0.577)),
        NumericalError,
    )
    assert client.n_open == 0 and client.select(np.zeros((4, 3))).id == 0


def test_a_download_swamped_by_gathered_observations_is_refused():
    """A weight of 10¹² is harmless with A = 10¹² I, and swamps A = 10⁻⁶ I."""
    heavy = fsl.make(
        "async", **SIZES, ridge=1e-6, weighting=lambda norm, sigma: 1e12, trigger="never"
    )
    client, layers = fsl.Client(heavy), np.arange(heavy.n_layers)

    def make_download(scale):
        return Download(
            layers,
            np.tile(pack_upper(scale * np.eye(3)), (len(layers), 1)),
            np.zeros((len(layers), 3)),
        )

    client.apply(make_download(1e12))
    client.observe(client.select(np.full((4, 3), 0.5)), 0.1)
    before = [client.layer(layer) for layer in layers]
    check_refused(
        "no longer positive definite, or hardly",
        lambda: client.apply(make_download(1e-6)),
        NumericalError,
    )
    np.testing.assert_equal([client.layer(layer) for layer in layers], before)
    client.apply(make_download(1e13))
    assert client.layer(0)["gram"][0, 0] == 1e13 and client.upload().pulls.tolist() == [1]


def test_a_mask_restricts_the_choice_to_its_arms():
    client = fsl.Client(fsl.make("async", **SIZES))
    for arm in range(4):
        mask = np.arange(4) == arm
        assert client.select(contexts(np.random.default_rng(arm)), mask=mask).arm == arm


def make_upload(algorithm, gram, moment=None, layer=0, client_id=0, asking=()):
    moment = np.zeros(3) if moment is None else moment
    gram, moment = pack_upper(np.asarray(gram, float))[None], np.asarray(moment, float)[None]
    return Upload(client_id, np.array([layer]), gram, moment, np.array([9]), asking)


def test_an_invalid_upload_is_refused_and_changes_nothing():
    algorithm = fsl.make("async", **SIZES)
    server = fsl.Server(algorithm)
    before = [server.layer(layer) for layer in range(algorithm.n_layers)]
    check_refused(
        "NaN or infinity", lambda: server.merge(make_upload(algorithm, np.eye(3) * np.nan))
    )
    check_refused(
        "different ones of 0 to", lambda: server.merge(make_upload(algorithm, np.eye(3), layer=99))
    )
    check_refused("must have the shape", lambda: server.merge(make_upload(algorithm, np.eye(4))))
    check_refused("has the trace -3", lambda: server.merge(make_upload(algorithm, -np.eye(3))))
    check_refused(
        "its pulls can give 0 to 9", lambda: server.merge(make_upload(algorithm, 4 * np.eye(3)))
    )
    check_refused(
        "not positive semi-definite",
        lambda: server.merge(make_upload(algorithm, np.diag([1.0, -0.1, 1.0]))),
    )
    check_refused("use merge", lambda: server.barrier([]))
    for layer, known in enumerate(before):
        assert all(
            np.array_equal(known[name], server.layer(layer)[name])
            for name in ("gram", "inverse", "moment", "theta_hat")
        )
    assert server.n_syncs == 0
    together = fsl.Server(fsl.make("sync", **SIZES))
    check_refused("use barrier", lambda: together.merge(make_upload(algorithm, np.eye(3))))
    check_refused(
        "needs the uploads of all 2 clients",
        lambda: together.barrier([make_upload(algorithm, np.eye(3))]),
    )


def test_a_download_that_is_not_positive_definite_is_refused():
    algorithm = fsl.make("async", **SIZES)
    client = fsl.Client(algorithm)
    bad = Download(np.array([0]), pack_upper(-np.eye(3))[None], np.zeros((1, 3)))
    check_refused("not positive definite", lambda: client.apply(bad), NumericalError)
    assert np.array_equal(client.layer(0)["gram"], algorithm.setting.ridge * np.eye(3))


def test_packing_keeps_the_upper_triangle():
    matrix = np.arange(9.0).reshape(3, 3)
    assert np.array_equal(unpack_upper(pack_upper(matrix), 3), np.triu(matrix))


def test_files_of_another_kind_or_algorithm_are_refused(tmp_path):
    algorithm, other = fsl.make("async", **SIZES), fsl.make("async", **SIZES, C=0.5)
    client, server = (
        fsl.Client(algorithm).save(tmp_path / "client"),
        fsl.Server(algorithm).save(tmp_path / "server"),
    )
    check_refused("it is a server's, not a client's", lambda: fsl.Client.load(server, algorithm))
    check_refused("it is a client's, not a server's", lambda: fsl.Server.load(client, algorithm))
    check_refused(
        "its algorithm.trigger.parameters.C is 1.0, not 0.5", lambda: fsl.Client.load(client, other)
    )
    server.write_bytes(server.read_bytes()[:-3])
    check_refused("is damaged or cut short", lambda: fsl.Server.load(server, algorithm))
    arrays, rest = read_archive(client)
    write_archive(client, {name: values for name, values in arrays.items() if name != "held"}, rest)
    check_refused(
        "does not hold a client: .*its held must be", lambda: fsl.Client.load(client, algorithm)
    )
