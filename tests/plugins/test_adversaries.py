"""Three adversaries of corrupted noise: what each adds to rewards, and within which budget."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.errors import InvalidInput, UnknownName
from fedsuplin.reference.twin import run_reference
from fedsuplin_ext import norms
from fedsuplin_plugins.noise import ADVERSARIES, Corrupted

SIZES = {"dim": 5, "n_arms": 6, "n_clients": 4, "horizon": 3000}
BUDGET = 20.0


def attacked(adversary: str, **noise: Any) -> fsl.SyntheticProblem:
    law = {"noise_scale": 0.1, "corruption": BUDGET, "adversary": adversary} | noise
    return fsl.SyntheticProblem(**SIZES, noise="corrupted", **law, seed=1)


def shown(
    adversary: str, cuts: tuple[int, ...] = (), **noise: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Mean rewards and what the adversary would add, for 500 pulls split at these cuts."""
    stream, means, added = attacked(adversary, **noise).stream(500, None), [], []
    for size in np.diff((0, *cuts, 500)):
        chunk = stream.take(size)
        means.append(norms.mean_rewards(chunk.contexts, chunk.theta)[:, : SIZES["n_arms"]])
        added.append(chunk.corruption[:, : SIZES["n_arms"]])
    return np.concatenate(means), np.concatenate(added)


def changes(result: fsl.RunResult, problem: fsl.SyntheticProblem) -> np.ndarray:
    """By how much each reward of a run differs from θᵀx plus noise."""
    chunk = problem.stream(len(result.arms), None).take(len(result.arms))
    honest = (
        norms.mean_rewards(chunk.contexts, chunk.theta)[np.arange(len(result.arms)), result.arms]
        + chunk.noise
    )
    return np.diff(result.reward, prepend=0.0) - honest


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_an_adversary_spends_its_budget_and_no_more(adversary):
    problem = attacked(adversary)
    spent = np.abs(changes(fsl.run("async", problem, record="all"), problem))
    assert spent.sum() == pytest.approx(BUDGET)
    assert spent.max() <= 2 + 1e-9


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_an_adversary_without_a_budget_changes_nothing(adversary):
    problem = attacked(adversary, corruption=0.0)
    assert np.abs(changes(fsl.run("async", problem, record="all"), problem)).max() < 1e-9


def test_the_early_adversary_shows_the_opposite_of_theta():
    means, added = shown("early")
    assert (means + added == -means).all()


def test_the_targeted_adversary_makes_the_best_arm_look_like_the_worst_and_touches_no_other():
    means, added = shown("targeted")
    pulls, best = np.arange(len(means)), means.argmax(axis=1)
    assert (means + added)[pulls, best] == pytest.approx(means.min(axis=1))
    assert (added[pulls, best] < 0).all()
    assert np.count_nonzero(added) == len(means)


def test_the_targeted_adversary_pays_only_for_pulls_of_the_best_arm():
    problem = attacked("targeted")
    result = fsl.run("uniform", problem, record="all")
    missed = np.diff(result.regret, prepend=0.0) > 1e-9
    assert np.abs(changes(result, problem)[missed]).max() < 1e-9


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_random_adversary_changes_its_share_of_the_pulls_whatever_they_are_worth(share):
    means, added = shown("random", share=share)
    changed = added.any(axis=1)
    assert changed.mean() == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / len(means)))
    if share:
        of_changed = added[changed]
        assert np.abs(of_changed).max() <= 1
        assert of_changed.std() == pytest.approx(3**-0.5, rel=0.1)  # uniform on [−1, 1]
        assert abs(np.corrcoef(of_changed.ravel(), means[changed].ravel())[0, 1]) < 5 / np.sqrt(
            of_changed.size
        )


def test_the_random_adversary_is_still_at_it_when_the_early_one_is_spent():
    last = {}
    for adversary in ("early", "random"):
        problem = attacked(adversary)
        spent = changes(fsl.run("async", problem, record="all"), problem)
        last[adversary] = np.flatnonzero(np.abs(spent) > 1e-9)[-1]
    assert last["random"] > 3 * last["early"]


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_what_an_adversary_adds_does_not_depend_on_how_the_stream_is_cut(adversary):
    _, whole = shown(adversary)
    for cuts in ((1,), (250,), (3, 10, 499)):
        assert (shown(adversary, cuts)[1] == whole).all()


@pytest.mark.parametrize("variant", ["robust", "async"])
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_the_twins_agree_against_each_adversary(adversary, variant):
    problem = attacked(adversary)
    stated = {"noise_scale": 0.1} | ({"corruption": BUDGET} if variant == "robust" else {})
    algorithm = fsl.make(variant, **SIZES, **stated)
    engine, twin = (
        fsl.run(algorithm, problem, record="all", chunk=700),
        run_reference(algorithm, problem),
    )
    for name in ("arms", "layers", "communication"):
        assert (getattr(engine, name) == getattr(twin, name)).all(), name
    np.testing.assert_allclose(engine.reward, twin.reward, rtol=1e-9, atol=1e-12)
    assert np.count_nonzero(engine.layer_pulls) >= 3


def test_an_unknown_adversary_is_refused_with_a_list_of_the_known_ones():
    with pytest.raises(
        InvalidInput, match="adversary must be one of early, targeted, random, not 'target'"
    ):
        attacked("target")
    with pytest.raises(
        InvalidInput, match="share is a share of the pulls, so it must be at most 1, not 1.5"
    ):
        attacked("random", share=1.5)
    with pytest.raises(InvalidInput, match="share must be at least 0"):
        attacked("random", share=-0.1)


@pytest.mark.parametrize("keyword", Corrupted.drawing_only)
def test_the_adversary_is_the_problems_and_no_keyword_of_the_algorithm(keyword):
    with pytest.raises(UnknownName, match=f"unknown keyword for 'robust' '{keyword}'"):
        fsl.make("robust", **SIZES, **{keyword: getattr(Corrupted(), keyword)})


def test_a_run_against_an_adversary_can_be_made_again():
    result = fsl.run("robust", attacked("random", share=0.3))
    algorithm, problem = result.rebuild()
    assert problem.noise == Corrupted(
        noise_scale=0.1, corruption=BUDGET, adversary="random", share=0.3
    )
    assert (fsl.run(algorithm, problem).regret == result.regret).all()


@pytest.mark.parametrize("variant", ["robust", "async"])
def test_the_command_line_has_the_adversaries(variant):
    sizes = [
        "--dim",
        "4",
        "--arms",
        "5",
        "--clients",
        "2",
        "--horizon",
        "400",
        "--noise",
        "corrupted",
    ]
    attack = ["--set", "adversary=random", "--set", "share=0.5"]
    called = CliRunner().invoke(root_command, ["run", variant, *sizes, *attack, "--json"])
    assert called.exit_code == 0, called.output
    drawn = json.loads(called.stdout)["spec"]["problem"]["parameters"]
    assert (drawn["adversary"], drawn["share"], drawn["corruption"]) == ("random", 0.5, 50)
    text = " ".join(
        CliRunner(env={"COLUMNS": "200"})
        .invoke(root_command, ["run", variant, *sizes, *attack])
        .stdout.split()
    )
    assert "adversary's budget 50, adversary random, share 0.5" in text
