"""ClassificationProblem and DigitsProblem: rounds, features, and what is refused."""

import sys

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, MissingExtra


def blobs(n=300, columns=4):
    """Return features and labels of three classes around different centres."""
    rng = np.random.default_rng(0)
    labels = rng.choice(["ant", "bee", "cat"], n)
    centres = {"ant": 3.0, "bee": -3.0, "cat": 0.0}
    return rng.normal(size=(n, columns)) + np.array([centres[label] for label in labels])[
        :, None
    ] + 50, labels


def test_a_round_has_one_example_in_the_block_of_each_arm_and_its_class_pays():
    features, labels = blobs()
    problem = fsl.ClassificationProblem(features, labels, n_clients=2, constant=False)
    assert problem.classes.tolist() == ["ant", "bee", "cat"] and (problem.dim, problem.n_arms) == (
        12,
        3,
    )
    chunk = problem.stream(200, None).take(200)
    centred = features - features.mean(axis=0)
    example_of = {
        row.tobytes(): at for at, row in enumerate(centred / np.linalg.norm(centred, axis=1).max())
    }
    for contexts, rewards in zip(chunk.contexts, chunk.rewards, strict=True):
        blocks = contexts.reshape(3, 4, 3)  # block, feature, arm
        example = np.ascontiguousarray(blocks[0, :, 0])
        for block in range(3):
            for arm in range(3):
                np.testing.assert_array_equal(
                    blocks[block, :, arm], example if block == arm else np.zeros(4)
                )
        assert (
            problem.classes[rewards.argmax()] == labels[example_of[example.tobytes()]]
            and rewards.sum() == 1
        )


def test_a_constant_feature_is_optional_and_nothing_is_longer_than_one():
    features, labels = blobs()
    with_it, without = (
        fsl.ClassificationProblem(features, labels, constant=constant) for constant in (True, False)
    )
    assert (with_it.dim, without.dim) == (15, 12)
    assert (with_it._examples[:, -1] == with_it._examples[0, -1]).all()
    for problem in (with_it, without):
        assert np.linalg.norm(problem._examples, axis=1).max() == pytest.approx(1.0)


def test_async_learns_the_digits():
    result = fsl.run("async", fsl.DigitsProblem(), horizon=20_000)
    assert result.regret[-1] < 0.45 * result.uniform_regret[-1]
    since = np.searchsorted(result.pulls, 10_000)
    late = (result.regret[-1] - result.regret[since]) / (result.pulls[-1] - result.pulls[since])
    assert late < 0.9 * result.regret[-1] / result.pulls[-1]  # and goes on learning


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"features": np.zeros(3)},
            r"features must have the shape \(examples, columns\), none of them 0, not \(3,\)",
        ),
        ({"features": [["a", "b"]]}, "features can't be read as an array of numbers"),
        (
            {"features": np.where(np.arange(1200).reshape(300, 4) == 42, np.nan, 1.0)},
            r"features\[10, 2\] is nan",
        ),
        (
            {"labels": ["ant"] * 299},
            r"labels must be one for each of the 300 examples, not of shape \(299,\)",
        ),
        ({"labels": ["ant"] * 300}, "labels hold one class only, .*ant"),
        ({"labels": [np.nan] + [1.0] * 299}, r"labels\[0\] is not finite"),
        (
            {"labels": np.array([None] + ["ant"] * 299, object)},
            "labels can't be sorted into classes",
        ),
        (
            {"n_features": 5},
            r"n_features=5 is more than the 4 components that \(300, 4\) features have",
        ),
        ({"n_features": 0}, "n_features must be a whole number of at least 1"),
        ({"n_clients": 0}, "n_clients must be a whole number of at least 1"),
    ],
)
def test_examples_that_cannot_be_used_are_refused(changes, message):
    features, labels = blobs()
    with pytest.raises(InvalidInput, match=message):
        fsl.ClassificationProblem(**({"features": features, "labels": labels} | changes))


def test_identical_examples_can_be_played():
    problem = fsl.ClassificationProblem(np.ones((4, 2)), [0, 1, 1, 1])
    assert fsl.run("async", problem, horizon=200).complete
    assert problem.spec["parameters"] is None


def test_only_principal_components_need_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.decomposition", None)
    with pytest.raises(MissingExtra, match="needs scikit-learn"):
        fsl.ClassificationProblem(*blobs(), n_features=2)
    assert fsl.ClassificationProblem(*blobs()).dim == 15
