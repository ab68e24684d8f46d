"""Properties of runs for all sizes, compositions and data; hypothesis looks for exceptions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsuplin as fsl
from fedsuplin.reference.decisions import find_arg_max
from fedsuplin.reference.twin import run_reference
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext import norms
from fedsuplin_ext.loop import Engine

COUNTED = (
    "arms",
    "layers",
    "clients",
    "communication",
    "messages_up",
    "messages_down",
    "bytes_up",
    "bytes_down",
)
SUMMED = ("regret", "reward")
EPSILON = np.finfo(float).eps

# --- any composition, any data ---

LAYERED = ("async", "sync", "variance", "robust", "suplinucb", "sync+robust", "variance+sync")
ONE_LAYER = ("oful", "fedlinucb", "async-linucb", "dislinucb", "greedy")
IN_ROUNDS = ("sync", "sync+robust", "variance+sync", "dislinucb")
LAWS = ("sphere", "ball", "tiny", "lattice", "repeated")


def contexts_of(law: str, rng: np.random.Generator, shape: tuple[int, int, int]) -> np.ndarray:
    """Return contexts no longer than 1.

    They are of length 1, of any length, of lengths from 1e-6 on, from a lattice where many
    coincide or are 0, or the same arms in every round.
    """
    x = rng.standard_normal(shape)
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    if law == "ball":
        x *= rng.random((*shape[:2], 1))
    if law == "tiny":
        x *= 10 ** rng.uniform(-6, 0, (*shape[:2], 1))
    if law == "lattice":
        x = rng.integers(0, 2, shape) / math.sqrt(
            shape[2]
        )  # of one sign: estimates that cancel to 0 tie beyond any relative rule
    return np.broadcast_to(x[:1], shape).copy() if law == "repeated" else x


@st.composite
def cases(draw, variants=LAYERED + ONE_LAYER, laws=LAWS):
    """Draw a variant with its parameters, and an ArrayProblem for it."""
    variant, law, seed = (
        draw(st.sampled_from(variants)),
        draw(st.sampled_from(laws)),
        draw(st.integers(0, 2**32 - 1)),
    )
    dim, n_arms, n_clients = (
        draw(st.integers(1, 6)),
        draw(st.integers(1, 9)),
        draw(st.integers(1, 4)),
    )
    horizon, rng = n_clients * draw(st.integers(1, 25)), np.random.default_rng(seed)
    contexts = contexts_of(law, rng, (horizon, n_arms, dim))
    clients = rng.integers(0, n_clients, horizon)
    if variant in IN_ROUNDS:
        clients = rng.permuted(
            np.tile(np.arange(n_clients), (horizon // n_clients, 1)), axis=1
        ).ravel()
    source = {"rewards": rng.uniform(-1, 1, (horizon, n_arms))}
    if draw(st.booleans()):
        source = {
            "theta": contexts_of("ball", rng, (1, 1, dim))[0, 0],
            "noise": 0.1 * rng.standard_normal(horizon),
        }
    if draw(st.booleans()):
        source["mask"] = rng.random((horizon, n_arms)) < 0.6
        source["mask"][np.arange(horizon), rng.integers(0, n_arms, horizon)] = True
    problem = fsl.ArrayProblem(
        contexts, clients, n_clients=n_clients, sigma=rng.uniform(0.05, 1, horizon), **source
    )
    parameters = {
        "ridge": draw(st.sampled_from([0.01, 1.0, 5.0])),
        "preset": draw(st.sampled_from(["theory", "practical"])),
    }
    if variant != "greedy":
        parameters["alpha_scale"] = draw(st.sampled_from([0.03, 0.3, 1.0]))
    if variant in ("async", "sync", "variance", "robust"):
        parameters["lazy"] = draw(st.booleans())
    if "robust" in variant:
        parameters["corruption"] = draw(st.sampled_from([0.0, 5.0]))
    return variant, parameters, problem


def made(variant: str, parameters: dict, problem: fsl.ArrayProblem) -> fsl.Algorithm:
    sizes = {name: getattr(problem, name) for name in ("dim", "n_arms", "n_clients", "horizon")}
    return fsl.make(variant, **sizes, **parameters)


def played(
    algorithm: fsl.Algorithm, problem: fsl.ArrayProblem, cuts=(), **options
) -> tuple[Engine, np.ndarray]:
    """Return an engine that played a problem cut at these pulls, and arm, layer, client of each."""
    n = problem.horizon
    stream = problem.stream(n, choose_arrival(algorithm, problem, n))
    engine, by_pull = Engine(algorithm, budget=stream.budget, **options), np.zeros((n, 3), np.int32)
    engine.record_into(None, None, None, by_pull)
    for start, end in zip((0, *cuts), (*cuts, n), strict=True):
        assert engine.play(stream.take(end - start)) == ("done", end - start)
    return engine, by_pull


@settings(max_examples=200)
@given(case=cases(), kernels=st.sampled_from(norms.available()))
def test_engine_and_twin_play_alike(case, kernels):
    variant, parameters, problem = case
    algorithm = made(variant, parameters, problem)
    found = fsl.run(algorithm, problem, record="all", kernels=kernels)
    expected = run_reference(algorithm, problem)
    for name in COUNTED:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    for name in SUMMED:
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-12, err_msg=name
        )


# --- sums ---


def by_sigma(norm: float, sigma: float) -> float:
    """A weight that the test computes too."""
    return sigma


def observations(
    problem: fsl.ArrayProblem, by_pull: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ω x xᵀ and ω r x of every pull, with ω = σ_t, and the magnitude of ω r x's terms.

    r = θᵀx + noise may be nearly 0 when its terms are not.
    """
    n = problem.horizon
    chunk, arms = problem.stream(n, None).take(n), by_pull[:, 0]
    x, pull = chunk.contexts[np.arange(n), :, arms], np.arange(n)
    reward = (
        x @ problem.theta if chunk.rewards is None else chunk.rewards[pull, arms]
    ) + chunk.noise
    within = (
        np.abs(x) @ np.abs(problem.theta) + np.abs(chunk.noise)
        if chunk.rewards is None
        else np.abs(reward)
    )
    moments, sizes = (
        np.einsum("t,t,ti->ti", chunk.sigma, *each) for each in ((reward, x), (within, np.abs(x)))
    )
    return np.einsum("t,ti,tj->tij", chunk.sigma, x, x), moments, sizes


def assert_sum(
    found: np.ndarray, terms: np.ndarray, sizes: np.ndarray, start: np.ndarray | float = 0.0
) -> None:
    """Check that a sum is right, up to the rounding of as many additions as it has terms."""
    most = np.abs(start) + sizes.sum(axis=0)
    assert (
        np.abs(found - (start + terms.sum(axis=0))) <= (len(terms) + 8) * EPSILON * most.max()
    ).all()


@settings(max_examples=100)
@given(
    case=cases(variants=("async", "sync", "suplinucb", "fedlinucb", "async-linucb", "dislinucb"))
)
def test_server_and_clients_together_hold_every_observation_once(case):
    variant, parameters, problem = case
    algorithm = made(variant, parameters | {"weighting": by_sigma}, problem)
    engine, by_pull = played(algorithm, problem)
    grams, moments, sizes = observations(problem, by_pull)
    for s in range(algorithm.n_layers):
        server, there = engine.server_layer(s), by_pull[:, 1] == s
        waiting = [engine.client_layer(client, s) for client in range(problem.n_clients)]
        gram = server["gram"] + sum(client["delta_gram"] for client in waiting)
        assert_sum(
            gram, grams[there], np.abs(grams[there]), algorithm.setting.ridge * np.eye(problem.dim)
        )
        moment = server["moment"] + sum(client["delta_moment"] for client in waiting)
        assert_sum(moment, moments[there], sizes[there])
        for known in (server, *waiting):
            np.testing.assert_array_equal(known["inverse"], known["inverse"].T)
            assert np.linalg.eigvalsh(known["gram"]).min() >= algorithm.setting.ridge * (1 - 1e-9)
            assert np.linalg.eigvalsh(known["inverse"]).min() > 0


@settings(max_examples=100)
@given(case=cases(variants=("async", "fedlinucb")))
def test_the_servers_sums_are_those_of_all_uploads(case):
    """The server has what each client observed until its last sync."""
    variant, parameters, problem = case
    algorithm = made(variant, parameters | {"weighting": by_sigma}, problem)
    result = fsl.run(algorithm, problem, record="all")
    engine, by_pull = played(algorithm, problem)
    synced = np.diff(result.communication, prepend=0) > 0
    uploaded = np.zeros(problem.horizon, bool)
    for client in range(problem.n_clients):
        last = np.flatnonzero(synced & (result.clients == client))
        uploaded[: last[-1] + 1 if len(last) else 0] |= (
            result.clients[: last[-1] + 1 if len(last) else 0] == client
        )
    grams, moments, sizes = observations(problem, by_pull)
    for s in range(algorithm.n_layers):
        server, there = engine.server_layer(s), uploaded & (by_pull[:, 1] == s)
        assert_sum(
            server["gram"],
            grams[there],
            np.abs(grams[there]),
            algorithm.setting.ridge * np.eye(problem.dim),
        )
        assert_sum(server["moment"], moments[there], sizes[there])


# --- the screening ---


class Watched:
    """S-LUCB as a Python policy that remembers which arms each layer kept."""

    def __init__(self, problem: fsl.ArrayProblem) -> None:
        n = problem.horizon
        self.means = np.einsum(
            "tda,d->ta", problem.stream(n, None).take(n).contexts, problem.theta
        )[:, : problem.n_arms]
        self.pulls = self.good = 0

    def choose(self, estimates, widths, targets, draw):
        means, there = self.means[self.pulls], estimates[0] > -np.inf
        self.pulls += 1
        good = (np.abs(estimates - means) <= widths * (1 + 1e-9) + 1e-12)[:, there].all()
        self.good += good
        best, kept = (
            means == means[there].max(),
            there & (estimates[0] + widths[0] >= (estimates[0] - widths[0])[there].max()),
        )
        for layer in range(len(targets)):
            assert not good or (best & kept).any(), (
                f"the best arm was screened out before layer {layer}"
            )
            if layer == len(targets) - 1:
                return layer * len(there) + find_arg_max(estimates[layer], kept)
            wide = kept & (widths[layer] > targets[layer])
            if wide.any():
                return layer * len(there) + find_arg_max(widths[layer], wide)
            kept = kept & (estimates[layer] >= estimates[layer][kept].max() - 2 * targets[layer])


@settings(max_examples=150)
@given(
    case=cases(
        variants=("async", "sync", "robust", "suplinucb"), laws=("sphere", "ball", "repeated")
    )
)
def test_the_best_arm_survives_the_screening_when_every_estimate_is_within_its_width(case):
    variant, parameters, problem = case
    if problem.theta is None:
        problem = fsl.ArrayProblem(
            problem._contexts,
            problem._clients,
            theta=np.eye(problem.dim)[0],
            n_clients=problem.n_clients,
        )
    algorithm = made(variant, parameters, problem)
    watched = Watched(problem)
    seen = fsl.run(made(variant, parameters | {"policy": watched}, problem), problem, record="all")
    compiled = fsl.run(algorithm, problem, record="all")
    assert watched.pulls == problem.horizon
    np.testing.assert_array_equal(
        seen.arms, compiled.arms
    )  # so what was watched is what the engine does
    np.testing.assert_array_equal(seen.layers, compiled.layers)


@pytest.mark.parametrize("variant", ["async", "sync", "robust", "suplinucb"])
def test_estimates_are_within_their_widths_with_the_radii_of_the_theorem(variant):
    """Then an arm of layer s loses at most 4 w̄ of the layer before, which kept the best arm."""
    rng, horizon = np.random.default_rng(5), 3000
    contexts = contexts_of("ball", rng, (horizon, 5, 3))
    noise, theta = 0.1 * rng.standard_normal(horizon), contexts_of("sphere", rng, (1, 1, 3))[0, 0]
    problem = fsl.ArrayProblem(contexts, np.arange(horizon) % 2, theta=theta, noise=noise)
    parameters = {
        "preset": "theory",
        "noise_scale": 0.1,
        **({"corruption": 1.0} if variant == "robust" else {}),
    }
    watched = Watched(problem)
    result = fsl.run(
        made(variant, parameters | {"policy": watched}, problem), problem, record="all"
    )
    assert watched.good == horizon
    targets = np.append(np.inf, made(variant, parameters, problem).target_widths)
    assert (np.diff(result.regret, prepend=0.0) <= 4 * targets[result.layers] + 1e-9).all()
    assert len(np.unique(result.layers)) >= 2


# --- what must not matter ---


def reordered(problem: fsl.ArrayProblem, order: np.ndarray) -> fsl.ArrayProblem:
    """Return the same rounds with their arms in another order."""
    rows = np.arange(problem.horizon)[:, None]
    source = (
        {"theta": problem.theta, "noise": problem._noise}
        if problem.theta is not None
        else {"rewards": problem._rewards[rows, order]}
    )
    mask = None if problem._mask is None else problem._mask[rows, order].astype(bool)
    clients, sigma = problem._clients, problem._sigma
    return fsl.ArrayProblem(
        problem._contexts[rows, order],
        clients,
        n_clients=problem.n_clients,
        mask=mask,
        sigma=sigma,
        **source,
    )


@settings(max_examples=150)
@given(
    case=cases(
        variants=LAYERED + ("oful", "fedlinucb", "async-linucb", "dislinucb"), laws=("ball",)
    ),
    seed=st.integers(0, 1000),
)
def test_the_order_of_arms_does_not_matter(case, seed):
    """Until a last layer without observations decides: all estimates are 0, the first wins."""
    variant, parameters, problem = case
    order = np.random.default_rng(seed).permuted(
        np.tile(np.arange(problem.n_arms), (problem.horizon, 1)), axis=1
    )
    algorithm = made(variant, parameters, problem)
    one, other = (
        fsl.run(algorithm, problem, record="all"),
        fsl.run(algorithm, reordered(problem, order), record="all"),
    )
    tied = (
        one.layers == algorithm.n_layers - 1
        if variant in LAYERED
        else np.zeros(problem.horizon, bool)
    )
    until = int(tied.argmax()) if tied.any() else problem.horizon
    np.testing.assert_array_equal(one.arms[:until], order[np.arange(until), other.arms[:until]])
    for name in ("layers", "communication", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(
            getattr(one, name)[:until], getattr(other, name)[:until], err_msg=name
        )
    np.testing.assert_allclose(one.regret[:until], other.regret[:until], rtol=1e-9, atol=1e-12)


def everything(engine: Engine, algorithm: fsl.Algorithm, clients: list[int]) -> list[np.ndarray]:
    """Return all arrays of an engine and of these clients, but no totals."""
    views = [engine.server_layer(s) for s in range(algorithm.n_layers)]
    views += [
        engine.client_layer(client, s) for client in clients for s in range(algorithm.n_layers)
    ]
    return [np.asarray(view[name]) for view in views for name in sorted(view)]


def assert_same(one: list[np.ndarray], other: list[np.ndarray]) -> None:
    for first, second in zip(one, other, strict=True):
        np.testing.assert_array_equal(first, second, strict=True)


@settings(max_examples=150)
@given(case=cases(), data=st.data())
def test_a_run_in_pieces_equals_a_whole_run_bit_for_bit(case, data):
    variant, parameters, problem = case
    algorithm = made(variant, parameters, problem)
    cuts = (
        sorted(data.draw(st.sets(st.integers(1, problem.horizon - 1), max_size=6)))
        if problem.horizon > 1
        else []
    )
    whole, pulls = played(algorithm, problem)
    pieces, same_pulls = played(algorithm, problem, cuts)
    np.testing.assert_array_equal(pulls, same_pulls)
    assert whole.totals_now == pieces.totals_now
    clients = list(range(problem.n_clients))
    assert_same(everything(whole, algorithm, clients), everything(pieces, algorithm, clients))


@settings(max_examples=100)
@given(
    case=cases(variants=("async", "variance", "robust", "oful", "suplinucb", "fedlinucb")),
    idle=st.integers(1, 3),
)
def test_clients_that_never_play_change_nothing(case, idle):
    """With the same constants and more clients, every pull, sum and message stays the same."""
    variant, parameters, problem = case
    algorithm = made(variant, parameters, problem)
    crowded, pulls = played(algorithm, problem, n_clients=problem.n_clients + idle)
    alone, same_pulls = played(algorithm, problem)
    np.testing.assert_array_equal(pulls, same_pulls)
    assert crowded.totals_now == alone.totals_now
    clients = list(range(problem.n_clients))
    assert_same(everything(crowded, algorithm, clients), everything(alone, algorithm, clients))
    for s in range(algorithm.n_layers):
        idler, beginning = (
            crowded.client_layer(problem.n_clients, s),
            Engine(algorithm).client_layer(0, s),
        )
        for name in (
            "gram",
            "moment",
            "inverse",
            "theta_hat",
            "log_det",
            "gain",
            "delta_gram",
            "delta_moment",
        ):
            np.testing.assert_array_equal(idler[name], beginning[name])
