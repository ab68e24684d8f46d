"""problem_from_table: tables in every form, missing rewards, and what is refused."""

import importlib
import sys

import numpy as np
import pandas as pd
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput, MissingExtra, UnknownName


def table(seed=0, n=60):
    """Return a table of rounds with two to four arms, whose clients have names."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "when": 10 * t,
            "shop": ("rome", "oslo", "bern")[t % 3],
            "a": x[0],
            "b": x[1],
            "paid": 0.2 + 0.5 * x[0] - 0.3 * x[1],
        }
        for t in range(n)
        for x in rng.uniform(-0.7, 0.7, (2 + t % 3, 2))
    ]
    return pd.DataFrame(rows)


NAMES = {"round": "when", "client": "shop", "reward": "paid"}


@pytest.mark.parametrize("form", ["frame", "dict", "csv", "csv.gz", "parquet", "arrow"])
def test_a_table_in_any_form_equals_a_problem_from_its_arrays(form, tmp_path):
    frame = table()
    contexts, rewards, mask = np.zeros((60, 4, 2)), np.zeros((60, 4)), np.zeros((60, 4), bool)
    for t in range(60):
        rows = frame[frame["when"] == 10 * t]
        contexts[t, : len(rows)], rewards[t, : len(rows)], mask[t, : len(rows)] = (
            rows[["a", "b"]],
            rows["paid"],
            True,
        )
    clients = np.array([2, 1, 0])[np.arange(60) % 3]  # bern, oslo, rome
    expected = fsl.run(
        "async", fsl.ArrayProblem(contexts, clients, rewards=rewards, mask=mask), record="all"
    )
    problem = fsl.problem_from_table(in_form(frame, form, tmp_path), **NAMES)
    assert problem.client_labels == ["bern", "oslo", "rome"] and problem.feature_names == ["a", "b"]
    assert problem.round_labels == list(range(0, 600, 10)) and isinstance(problem, fsl.ArrayProblem)
    found = fsl.run("async", problem, record="all")
    np.testing.assert_array_equal(found.arms, expected.arms)
    np.testing.assert_allclose(found.regret, expected.regret)


def in_form(frame, form, folder):
    """Return the table in this form."""
    if form in ("csv", "csv.gz"):
        frame.to_csv(folder / f"t.{form}", index=False)
        return folder / f"t.{form}"
    if form == "parquet":
        frame.to_parquet(folder / "t.parquet")
        return str(folder / "t.parquet")
    if form == "arrow":
        return importlib.import_module("pyarrow").Table.from_pandas(frame)
    return {name: frame[name].tolist() for name in frame} if form == "dict" else frame


def test_rounds_are_played_in_the_order_of_their_values():
    frame = table()
    shuffled = frame.sample(frac=1.0, random_state=0).sort_values("a", kind="stable")
    by_a = frame.sort_values(["when", "a"])
    one, other = (fsl.problem_from_table(each, **NAMES) for each in (shuffled, by_a))
    np.testing.assert_array_equal(one._contexts, other._contexts)
    np.testing.assert_array_equal(one._clients, other._clients)


def test_client_labels_may_have_mixed_types():
    frame = table().assign(
        shop=lambda rows: rows["shop"].map({"rome": 7, "oslo": "guest", "bern": 3})
    )
    assert fsl.problem_from_table(frame, **NAMES).client_labels == [3, 7, "guest"]


def test_features_default_to_the_other_columns():
    frame = table().assign(note="text")
    assert fsl.problem_from_table(frame, **NAMES, features=["b"]).dim == 1
    with pytest.raises(
        InvalidInput, match="column 'note' of the table does not hold numbers; features= names"
    ):
        fsl.problem_from_table(frame, **NAMES)


def test_long_contexts_are_scaled_on_request():
    frame = table().assign(a=lambda rows: rows["a"] * 30)
    with pytest.raises(InvalidInput, match="has length .*scale_contexts=True"):
        fsl.problem_from_table(frame, **NAMES)
    scaled = fsl.problem_from_table(frame, **NAMES, scale_contexts=True)
    assert np.linalg.norm(scaled._contexts, axis=2).max() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda f: f.drop(columns="shop"),
            "the table has no column 'shop'; it has when, a, b, paid",
        ),
        (
            lambda f: f.drop(columns=["a", "b"]),
            "the table has no features: columns beside when, shop, paid",
        ),
        (lambda f: f[:0], "the table has no row"),
        (lambda f: pd.concat([f, f["a"]], axis=1), "the table has two columns called 'a'"),
        (
            lambda f: f.assign(shop=[["x"]] * len(f)),
            "column 'shop' of the table can't tell rows apart: unhashable",
        ),
        (
            lambda f: f.assign(shop=["x"] + ["y"] * (len(f) - 1)),
            "round 0 has rows of several 'shop'",
        ),
        (
            lambda f: f.assign(shop=[None] + ["y"] * (len(f) - 1)),
            "row 0 of the table has no 'shop'",
        ),
        (
            lambda f: f.assign(a=[0.1, np.nan] + [0.1] * (len(f) - 2)),
            "row 1 of the table has no finite 'a'",
        ),
        (lambda f: f.assign(paid="much"), "column 'paid' of the table does not hold numbers"),
        (lambda f: f.assign(paid=[0.1, np.inf] + [0.1] * (len(f) - 2)), r"rewards\[0, 1\] is inf"),
        (lambda f: {"when": [1, 2], "shop": [1], "paid": [0], "a": [0]}, "do not fit together"),
        (
            lambda f: 7,
            "a table is a DataFrame, a dict of columns, "
            "or the path of a Parquet or CSV file, not int",
        ),
        (lambda f: "rounds.xlsx", "rounds.xlsx: the name of a table's file must end in .parquet"),
        (lambda f: "nowhere.csv", "nowhere.csv does not exist"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(spoil, message):
    with pytest.raises(InvalidInput, match=message):
        fsl.problem_from_table(spoil(table()), **NAMES)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_the_error_names_a_file_that_is_no_table(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xff\xfe\x00 nothing")
    with pytest.raises(InvalidInput, match=f"{name} can't be read as a table"):
        fsl.problem_from_table(tmp_path / name)


def logged(n=3000, noise=0.1):
    """Return a log: three arms per round, and the reward of the first alone."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-0.7, 0.7, (3 * n, 2)), columns=["a", "b"])
    frame["when"], frame["shop"] = np.repeat(np.arange(n), 3), np.repeat(np.arange(n) % 4, 3)
    paid = 0.5 * frame["a"] - 0.3 * frame["b"] + rng.normal(0, noise, 3 * n)
    return frame.assign(paid=np.where(np.arange(3 * n) % 3 == 0, paid, np.nan))


def test_missing_rewards_are_refused_with_advice():
    with pytest.raises(
        InvalidInput,
        match=r"6000 of 9000 rewards are missing, the first in round 0, arm 1: .*missing=\"model\"",
    ):
        fsl.problem_from_table(logged(), **NAMES)
    with pytest.raises(
        UnknownName, match="unknown way with missing rewards 'modle'. Did you mean 'model'"
    ):
        fsl.problem_from_table(logged(), **NAMES, missing="modle")


def test_a_model_of_the_known_rewards_replaces_all_rewards():
    frame = logged()
    problem = fsl.problem_from_table(frame, **NAMES, missing="model", seed=1)
    np.testing.assert_allclose(problem.theta, [0.5, -0.3], atol=0.02)
    assert problem.noise_scale == pytest.approx(0.1, rel=0.05)
    known = frame[frame["paid"].notna()]
    residuals = known["paid"] - known[["a", "b"]].to_numpy() @ problem.theta
    drawn = problem.stream(3000, None).take(3000).noise
    assert (
        set(drawn.round(12)) <= set((residuals - residuals.mean()).round(12))
        and len(set(drawn)) > 1000
    )
    assert fsl.run("async", problem).regret[-1] < 0.2 * fsl.run("async", problem).uniform_regret[-1]
    again, other = (
        fsl.problem_from_table(frame, **NAMES, missing="model", seed=seed)._noise for seed in (1, 2)
    )
    assert (again == problem._noise).all() and (other != problem._noise).any()


def test_a_model_is_fitted_to_the_scaled_contexts():
    frame = logged().assign(a=lambda rows: rows["a"] * 10, b=lambda rows: rows["b"] * 10)
    problem = fsl.problem_from_table(frame, **NAMES, missing="model", scale_contexts=True)
    known = frame[frame["paid"].notna()]
    fitted = problem._contexts[:, 0] @ problem.theta
    assert (
        np.corrcoef(fitted, known["paid"])[0, 1] > 0.9
        and np.linalg.norm(problem._contexts, axis=2).max() <= 1 + 1e-12
    )


def test_missing_arms_do_not_count_in_a_model():
    frame = logged()
    fewer = frame[
        (np.arange(len(frame)) % 3 == 0) | (frame["when"] % 2 == 0)
    ]  # unknown rewards of every other round are gone
    whole, part = (
        fsl.problem_from_table(each, **NAMES, missing="model") for each in (frame, fewer)
    )
    np.testing.assert_allclose(part.theta, whole.theta, rtol=1e-12)
    assert part.noise_scale == pytest.approx(whole.noise_scale, rel=1e-12)
    np.testing.assert_array_equal(
        part.stream(3000, None).take(3000).mask[:2, :3], [[1, 1, 1], [1, 0, 0]]
    )


def test_a_model_needs_known_rewards_and_a_positive_ridge():
    with pytest.raises(InvalidInput, match="every reward is missing"):
        fsl.problem_from_table(logged(10).assign(paid=np.nan), **NAMES, missing="model")
    with pytest.raises(InvalidInput, match="ridge must be positive"):
        fsl.problem_from_table(logged(10), **NAMES, missing="model", ridge=0)


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        MissingExtra,
        match=r"problem_from_table needs pandas: pip install 'fedsuplin\[datasets\]'",
    ):
        fsl.problem_from_table({})
