"""The systems of the paper's Table 1: each plays like its NumPy twin, as its own paper has it."""

import math

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, PluginError
from fedsuplin.plugin import Setting
from fedsuplin.reference.twin import run_reference
from fedsuplin.registry import plugins

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
ADVERSARIAL = ("oful", "greedy", "uniform", "suplinucb", "fedlinucb", "async-linucb", "dislinucb")
PHASED = ("pe", "fed-pe")
SIZES = [(5, 6, 4), (1, 5, 3), (3, 1, 2), (4, 7, 1), (8, 17, 5), (1, 1, 1)]


def assert_twins(algorithm, problem, **how):
    """Engine and reference agree at every pull."""
    engine, twin = (
        fsl.run(algorithm, problem, record="all", **how),
        run_reference(algorithm, problem),
    )
    for name in COUNTED:
        differ = getattr(engine, name) != getattr(twin, name)
        assert not differ.any(), f"{name} differs first at pull {int(differ.argmax())}"
    np.testing.assert_allclose(engine.regret, twin.regret, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(engine.reward, twin.reward, rtol=1e-9, atol=1e-9)
    return engine


def made(name, problem, **parameters):
    sizes = {what: getattr(problem, what) for what in ("dim", "n_arms", "n_clients", "horizon")}
    return fsl.make(name, **sizes, **({"noise_scale": 0.1} | parameters))


# --- twins ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("preset", ["practical", "theory"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_long_runs_agree(name, seed, preset):
    sizes = {"dim": 4 + seed, "n_arms": 5 + 3 * seed, "n_clients": 5}
    problem = fsl.SyntheticProblem(
        **sizes, contexts=("sphere", "ball")[seed % 2], horizon=2000, seed=seed
    )
    assert_twins(made(name, problem, preset=preset), problem)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_awkward_sizes_agree(name, sizes):
    problem = fsl.SyntheticProblem(*sizes, horizon=60 * sizes[2], seed=7)
    assert_twins(made(name, problem), problem)


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("gammas", [(1.0, 1.0), (1.5, 4.0), (4.0, 1.5), (100.0, 1.0)])
def test_a_server_that_pushes_agrees_with_layers_and_at_any_threshold(gammas, lazy):
    problem = fsl.SyntheticProblem(5, 6, 4, horizon=1200, seed=1)
    parts = {
        "trigger": "upload-download",
        "syncs": "push",
        "lazy": lazy,
        "gamma_u": gammas[0],
        "gamma_d": gammas[1],
    }
    assert_twins(made("async", problem, **parts), problem)


@pytest.mark.parametrize("kernels", ["generic", None])
def test_a_server_that_pushes_agrees_for_each_kernel_set_and_however_chunks_are_cut(kernels):
    problem = fsl.SyntheticProblem(6, 9, 5, horizon=1500, seed=2)
    algorithm = made("async-linucb", problem)
    whole = assert_twins(algorithm, problem, kernels=kernels)
    assert (
        fsl.run(algorithm, problem, record="all", chunk=7, kernels=kernels).arms == whole.arms
    ).all()


@pytest.mark.parametrize(
    "own", [{}, {"own_arms": True}, {"own_thetas": True}, {"own_arms": True, "own_thetas": True}]
)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", PHASED)
def test_phased_policies_agree(name, seed, own):
    problem = fsl.FixedArmsProblem(2 + seed, 6 + seed, 4, **own, horizon=6000, seed=seed)
    result = assert_twins(made(name, problem), problem)
    assert len(np.unique(result.arms)) > 1


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", PHASED)
def test_phased_policies_agree_at_awkward_sizes(name, sizes):
    problem = fsl.FixedArmsProblem(*sizes, horizon=300 * sizes[2], seed=3)
    algorithm = made(name, problem)
    whole = assert_twins(algorithm, problem)
    assert (
        fsl.run(algorithm, problem, record="all", chunk=11).communication == whole.communication
    ).all()


@pytest.mark.parametrize("shared", [True, False])
def test_fed_pe_takes_what_the_clients_share_as_a_parameter(shared):
    from fedsuplin_plugins.phased import FedPE

    problem = fsl.FixedArmsProblem(3, 5, 3, own_arms=True, horizon=3000, seed=5)
    assert_twins(made("fed-pe", problem, policy=FedPE(shared=shared)), problem)


def test_phased_policies_agree_under_corruption_and_random_arrival():
    problem = fsl.FixedArmsProblem(
        3, 6, 4, noise="corrupted", corruption=5.0, arrival="random", horizon=4000, seed=6
    )
    assert_twins(made("pe", problem), problem)


# --- what each is ---------------------------------------------------------------------------------
def numbers(name, **parameters):
    return fsl.make(
        name,
        **(
            {"dim": 25, "n_arms": 20, "n_clients": 20, "horizon": 40_000, "preset": "theory"}
            | parameters
        ),
    )


def test_suplinucb_has_one_player_and_its_own_share_of_the_pulls_in_its_formulas():
    one = fsl.make("async", dim=25, n_arms=20, n_clients=1, horizon=2000, preset="theory")
    many = numbers("suplinucb")
    assert many.n_layers == one.n_layers
    np.testing.assert_allclose(many.radii, one.radii)
    np.testing.assert_allclose(many.target_widths, one.target_widths)
    assert (
        not many.lazy
        and fsl.run("suplinucb", fsl.SyntheticProblem(3, 4, 2), horizon=500).communication[-1] == 0
    )


def test_fedlinucbs_radius_is_its_theorems():
    """√λB + (√(1+MC) + M√(2C))(σ√(d ln((1 + T/(min(C,1)λ))/δ)) + √λB)."""
    M, d, T, delta = 20, 25, 40_000, 0.05
    C = 1 / M**2
    by_hand = 1 + (math.sqrt(1 + M * C) + M * math.sqrt(2 * C)) * (
        math.sqrt(d * math.log((1 + T / C) / delta)) + 1
    )
    assert (
        numbers("fedlinucb").radii[0] == pytest.approx(by_hand)
        and numbers("fedlinucb").trigger.C == C
    )
    by_hand = 0.2 + (math.sqrt(1 + 3 * M) + M * math.sqrt(6)) * (
        0.5 * math.sqrt(d * math.log((1 + T / 0.01) / delta)) + 0.2
    )
    given = {"C": 3.0, "noise_scale": 0.5, "ridge": 0.01, "theta_bound": 2.0, "alpha_scale": 0.7}
    assert numbers("fedlinucb", **given).radii[0] == pytest.approx(0.7 * by_hand)


def test_dislinucbs_threshold_is_its_theorems():
    assert pytest.approx(2000 * math.log(40_000) / (25 * 20)) == numbers("dislinucb").trigger.D


def test_async_linucbs_thresholds_are_e_to_the_1_over_m():
    trigger = numbers("async-linucb").trigger
    assert trigger.gamma_u == trigger.gamma_d == pytest.approx(math.exp(1 / 20))
    assert trigger.push_threshold == pytest.approx(1 / 20)


def test_with_thresholds_of_one_everybody_knows_everything_at_once():
    """γ_U = γ_D = 1: every pull is sent to all others, so M clients are one OFUL learner."""
    problem, alone = (
        fsl.SyntheticProblem(4, 5, n_clients, horizon=600, seed=0) for n_clients in (3, 1)
    )
    together = fsl.run(
        made("async-linucb", problem, gamma_u=1.0, gamma_d=1.0), problem, record="all"
    )
    one = fsl.run(made("oful", alone), alone, record="all")
    assert (
        together.communication[-1] == 600 * 3
    )  # one upload, and a download for each of the two others
    assert (together.arms == one.arms).all() and len(np.unique(together.clients)) == 3


def test_a_ratio_of_determinants_below_one_is_refused():
    with pytest.raises(
        InvalidInput,
        match="gamma_u is a ratio of determinants, so it must be at least 1, not 0.5",
    ):
        numbers("async-linucb", gamma_u=0.5)


def test_pushing_needs_a_trigger_that_says_when():
    with pytest.raises(
        PluginError,
        match=r"syncs='push' the trigger needs a push_threshold, "
        r"which Determinant\(C=1.0\) does not have",
    ):
        numbers("async", preset="practical", syncs="push")


def test_greedy_is_oful_without_its_bonus():
    problem = fsl.SyntheticProblem(4, 5, 3, horizon=900, seed=4)
    greedy = fsl.run(made("greedy", problem), problem, record="all")
    without = fsl.run(made("oful", problem, alpha_scale=0.0), problem, record="all")
    assert (greedy.arms == without.arms).all()


def test_uniform_draws_every_arm_alike_and_anew_for_each_seed():
    first, again, other = (
        fsl.run(
            "uniform", fsl.SyntheticProblem(3, 8, 2, seed=seed), horizon=16_000, record="all"
        ).arms
        for seed in (1, 1, 2)
    )
    assert (first == again).all() and (first != other).any()
    assert abs(np.bincount(first, minlength=8) - 2000).max() < 6 * math.sqrt(2000 * 7 / 8)


# --- fixed arms -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PHASED)
def test_a_policy_for_fixed_arms_refuses_a_problem_without(name):
    with pytest.raises(
        InvalidInput,
        match=rf"{name} needs fixed arms.*SyntheticProblem does not promise.*FixedArmsProblem",
    ):
        fsl.run(name, fsl.SyntheticProblem(3, 4, 2), horizon=100)


@pytest.mark.parametrize("name", PHASED)
def test_phased_policies_end_with_the_best_arm(name):
    problem = fsl.FixedArmsProblem(4, 12, 3, horizon=60_000, seed=1)
    result = fsl.run(name, problem, record="all")
    best = int((problem.fixed_arms[0] @ problem.theta).argmax())
    assert (result.arms[-3000:] == best).mean() > 0.99 and result.regret[
        -1
    ] < 0.02 * result.uniform_regret[-1]


def test_fed_pe_learns_a_theta_for_each_arm():
    problem = fsl.FixedArmsProblem(3, 6, 5, own_arms=True, own_thetas=True, horizon=60_000, seed=2)
    result = fsl.run("fed-pe", problem)
    assert result.regret[-1] < 0.05 * result.uniform_regret[-1]
    assert "a θ for each arm" not in " ".join(result.departures)
    assert (
        "the problem has a θ for each arm, the algorithm one for all"
        in fsl.run("pe", problem).departures
    )


def test_fed_pe_talks_once_a_client_and_phase():
    problem = fsl.FixedArmsProblem(3, 6, 5, horizon=30_000, seed=2)
    result = fsl.run("fed-pe", problem, record="all")
    phases = len(np.unique(result.communication)) - 1
    assert result.communication[-1] == 5 * phases and 3 < phases < 15


def test_phases_are_the_same_however_the_arms_are_scaled_down_with_the_noise():
    """Arms are handled in their span: a plane in R⁴ plays like the same arms in R²."""
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((7, 2))
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    basis = np.linalg.qr(rng.standard_normal((4, 2)))[0]
    theta = np.array([0.6, -0.3])
    low = fsl.FixedArmsProblem(2, 7, 1, arms=flat, theta=theta, horizon=4000, seed=1)
    high = fsl.FixedArmsProblem(
        4, 7, 1, arms=flat @ basis.T, theta=basis @ theta, horizon=4000, seed=1
    )
    arms = [fsl.run("pe", problem, record="all").arms for problem in (low, high)]
    assert (arms[0] == arms[1]).mean() > 0.9 and arms[0][-1] == arms[1][-1]


def test_arms_that_are_all_zero_are_played_without_a_design():
    problem = fsl.FixedArmsProblem(2, 3, 1, arms=np.zeros((3, 2)), theta=[1.0, 0.0], horizon=50)
    assert (fsl.run("pe", problem, record="all").arms == 0).all()


def test_every_policy_plays_fixed_arms_too():
    problem = fsl.FixedArmsProblem(3, 5, 4, horizon=400, seed=0)
    for name in plugins.names("variants"):
        assert fsl.run(name, problem).n_pulls == 400


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arms": np.ones((4, 3))}, r"arms must have the shape \(5, 3\), not \(4, 3\)"),
        (
            {"arms": np.full((5, 3), 0.9)},
            "arm 0 of client 0 has length 1.55885; the theory needs at most 1",
        ),
        ({"arms": np.full((5, 3), np.nan)}, r"arms\[0, 0\] is nan: every entry must be finite"),
        ({"theta": [1, 0, 0], "own_thetas": True}, "one theta for all arms, or a theta for each"),
        ({"thetas": np.ones((2, 3))}, r"thetas must have the shape \(5, 3\)"),
    ],
)
def test_arms_that_can_not_be_played_are_refused(given, message):
    with pytest.raises(InvalidInput, match=message):
        fsl.FixedArmsProblem(3, 5, 2, **given)


def test_a_fixed_arms_problem_is_made_again_from_its_specification():
    arms = np.eye(3) / 2
    problem = fsl.FixedArmsProblem(3, 3, 2, arms=arms, own_thetas=True, seed=4, horizon=300)
    result = fsl.run("fed-pe", problem, record="all", alpha_scale=0.2)
    algorithm, again = result.rebuild()
    assert (fsl.run(algorithm, again, record="all").arms == result.arms).all()


# --- Table 1 --------------------------------------------------------------------------------------
def test_every_system_of_table_1_is_here_with_its_bounds():
    setting = Setting(dim=10, n_arms=7, n_clients=4, horizon=10_000)
    d, K, M, T, log = 10, 7, 4, 10_000, math.log(10_000)
    table = {
        "oful": (d * math.sqrt(T * log), None),
        "pe": (math.sqrt(d * T * log), None),
        "suplinucb": (math.sqrt(d * T * log**3), None),
        "fedlinucb": (d * math.sqrt(T) * log, d * M**2 * log),
        "async-linucb": (d * math.sqrt(T) * log, d * M**2 * log),
        "dislinucb": (d * math.sqrt(T) * log**2, d * M**1.5),
        "fed-pe": (math.sqrt(d * T * log), d**2 * M * K * log),
        "async": (math.sqrt(d * T * log**3), d * M**2 * math.log(d) * log),
        "sync": (math.sqrt(d * T * log**3), (d * M) ** 1.5 * math.log(d)),
    }
    claims = {
        name: plugins.create("variants", name, {}).claim for name in plugins.names("variants")
    }
    assert {name for name, claim in claims.items() if claim} == set(table)
    for name, (regret, communication) in table.items():
        assert claims[name].regret(setting) == pytest.approx(regret)
        found = claims[name].communication
        assert (
            found is None
            if communication is None
            else found(setting) == pytest.approx(communication)
        )


# --- phased policies of others --------------------------------------------------------------------
class Halving:
    """Sequential halving by sums of rewards, eight pulls per arm and phase: a third party's."""

    kernel = "phased"

    def begin(self, algorithm, problem):
        return HalvingPhases(problem.fixed_arms.shape[:2])


class HalvingPhases:
    together = False

    def __init__(self, shape):
        self.kept = np.ones(shape, bool)
        self.plan, self.idle = 8 * self.kept.astype(np.int64), np.zeros(shape[0], np.int64)

    def advance(self, clients, counts, sums):
        for client in clients:
            means = np.where(self.kept[client], sums[client], -np.inf)
            self.kept[client] = means >= np.median(means[self.kept[client]])
            self.plan[client] = 8 * self.kept[client]
        return {"communication": len(clients)}


def test_a_third_partys_phases_are_played_and_have_a_twin():
    problem = fsl.FixedArmsProblem(3, 8, 3, horizon=900, seed=1)
    result = assert_twins(made("pe", problem, policy=Halving()), problem)
    assert result.communication[-1] > 9 and result.regret[-1] < 0.6 * result.uniform_regret[-1]


@pytest.mark.parametrize(
    ("advance", "message"),
    [
        (
            lambda self, *_: 1 / 0,
            "HalvingPhases raised ZeroDivisionError: division by zero, after pull 63",
        ),
        (
            lambda self, *_: setattr(self, "plan", 0 * self.plan) or {},
            "a phase needs at least one pull for each client",
        ),
        (
            lambda self, *_: {"telegrams": 3},
            "traffic is counted as communication, .*, not as telegrams",
        ),
    ],
)
def test_phases_that_go_wrong_end_the_run_and_keep_what_was_recorded(advance, message, monkeypatch):
    monkeypatch.setattr(HalvingPhases, "advance", advance)
    problem = fsl.FixedArmsProblem(3, 8, 1, horizon=900, seed=1)
    with pytest.raises(PluginError, match=message) as caught:
        fsl.run(made("pe", problem, policy=Halving()), problem, record="all")
    assert caught.value.result.n_pulls == 64


def test_without_noise_phases_are_short_and_many():
    problem = fsl.FixedArmsProblem(1, 1, 1, horizon=2000, seed=1)
    assert_twins(made("pe", problem, alpha_scale=0.0), problem)


def test_clients_whose_arms_left_are_all_zero_play_on():
    arms = [[0, 0], [-1, 0], [0, -1]]
    problem = fsl.FixedArmsProblem(2, 3, 2, arms=arms, theta=[0.8, 0.6], horizon=2000)
    assert (assert_twins(made("fed-pe", problem), problem).arms[-100:] == 0).all()


def test_a_push_of_nothing_is_not_sent():
    """A client that saw only zero contexts has learnt nothing, however ln det is rounded."""
    contexts = np.zeros((3, 1, 2))
    contexts[1] = [0.43454435826869126, -0.9006504320194663]
    problem = fsl.ArrayProblem(contexts, [1, 0, 1], theta=[0.5, 0.5])
    result = assert_twins(made("async-linucb", problem, gamma_u=1.0, gamma_d=1.0), problem)
    assert result.communication.tolist() == [0, 2, 2]
