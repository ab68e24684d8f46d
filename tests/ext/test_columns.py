"""The columns of a result are named once, in fedsuplin_ext.loop; the engine's enums follow."""

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin import reference
from fedsuplin.simulation import result
from fedsuplin_ext import loop
from fedsuplin_ext.loop import BY_PULL, COUNTS, STATUS, SUMS
from fedsuplin_ext.state import state_of

STRUCTS = Path(__file__).parents[2] / "ext" / "fedsuplin_ext" / "structs.pxd"
SIZES = {"dim": 3, "n_arms": 5, "n_clients": 2}


def enums():
    """Return the members of every enum in structs.pxd, by its name or the comment beside it."""
    blocks = re.findall(
        r"^cdef enum\b[ :#]*(\w+).*\n((?: {4}.*\n)+)",
        STRUCTS.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return {name: re.findall(r"^    (\w+)", body, re.MULTILINE) for name, body in blocks}


@pytest.mark.parametrize(
    ("name", "columns"), [("SUMS", SUMS), ("COUNTS", COUNTS), ("BY_PULL", BY_PULL)]
)
def test_an_enum_has_the_columns_in_their_order(name, columns):
    assert enums()[name] == [*(column.upper() for column in columns), f"N_{name}"]


def test_every_status_has_its_word():
    assert [name.replace("_", " ").lower() for name in enums()["Status"]] == list(STATUS)


def test_a_result_has_these_columns_and_takes_their_names_from_the_engine():
    assert result.SUMS is loop.SUMS
    assert {*SUMS, *COUNTS, *BY_PULL} <= {field.name for field in fields(fsl.RunResult)}


@pytest.mark.parametrize("variant", ["async", "sync"])
def test_each_column_is_the_one_of_its_name(variant):
    """Against the NumPy twin, which names what it counts without an index."""
    problem = fsl.SyntheticProblem(**SIZES, noise_scale=0.1, seed=0)
    algorithm = fsl.make(variant, **SIZES, horizon=200, noise_scale=0.1)
    found, expected = (
        fsl.run(algorithm, problem, record="all"),
        reference.run_reference(algorithm, problem),
    )
    for name in {*SUMS, *COUNTS, *BY_PULL} - {
        "uniform_regret"
    }:  # of which the twin keeps no account
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-9, err_msg=name
        )


def test_totals_and_a_state_have_the_same_numbers():
    engine = loop.Engine(fsl.make("async", **SIZES, horizon=100), budget=7.0)
    engine.play(fsl.SyntheticProblem(**SIZES, seed=0).stream(100, None).take(100))
    now, state = engine.totals_now, state_of(engine)
    assert list(now) == ["pulls", *SUMS, *COUNTS]
    assert state["totals"].tolist() == [100, *(now[name] for name in COUNTS)]
    assert state["sums"].tolist() == [*(now[name] for name in SUMS), 7.0, engine.drift]


@pytest.mark.parametrize(
    ("sums", "counts", "by_pull", "words"),
    [
        (
            (2, len(SUMS) + 1),
            (2, len(COUNTS)),
            None,
            rf"sums needs {len(SUMS)} columns \({', '.join(SUMS)}\)",
        ),
        (
            (2, len(SUMS)),
            (2, len(COUNTS) - 1),
            None,
            rf"counts {len(COUNTS)} \({', '.join(COUNTS)}\)",
        ),
        ((1, len(SUMS)), (2, len(COUNTS)), None, "both a row for each recorded pull: 2"),
        (
            (2, len(SUMS)),
            (2, len(COUNTS)),
            (9, len(BY_PULL) - 1),
            f"by_pull needs {len(BY_PULL)} columns: {', '.join(BY_PULL)}",
        ),
    ],
)
def test_arrays_with_other_columns_are_refused(sums, counts, by_pull, words):
    engine = loop.Engine(fsl.make("async", **SIZES, horizon=100))
    arrays = (
        np.zeros(sums),
        np.zeros(counts, np.int64),
        None if by_pull is None else np.zeros(by_pull, np.int32),
    )
    with pytest.raises(ValueError, match=words):
        engine.record_into(np.arange(1, 3), *arrays)
