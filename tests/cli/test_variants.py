"""`fedsuplin variants`."""

import json

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.registry import plugins

SMALL = ("--dim", "4", "--arms", "5", "--clients", "2", "--horizon", "400")


@pytest.mark.parametrize("columns", [60, 100])
def test_the_numbers_of_a_variant_fit_the_terminal(call, widest, columns):
    printed = call("variants", "async", columns=columns).stdout
    assert widest(printed) <= columns
    assert "guarantee does not hold: alpha_scale is" in " ".join(printed.split())


def test_variants_lists_every_variant_with_its_parts(call, widest):
    text = call("variants").stdout
    rows = json.loads(call("variants", "--json").stdout)
    assert [row["name"] for row in rows] == plugins.names("variants")
    assert widest(text) <= 80
    for row in rows:
        assert {
            "summary",
            "policy",
            "trigger",
            "noise",
            "weighting",
            "syncs",
            "lazy",
            "theorem",
        } <= set(row)
        assert row["name"] in text
    assert "Theorem 2" in text


def test_variants_with_a_name_shows_the_numbers_that_run_would_use(call, numbers):
    text = call("variants", "async").stdout
    assert "preset practical" in text
    assert "preset theory" in text
    assert "d=25 K=20 M=20 T=40000" in text
    shown = json.loads(call("variants", "async", *SMALL, "--json").stdout)
    assert shown["practical"]["noise"] == numbers("run", *SMALL)["spec"]["algorithm"]["noise"]
    theory = fsl.make("async", dim=4, n_arms=5, n_clients=2, horizon=400, preset="theory")
    np.testing.assert_array_equal(shown["theory"]["radii"], theory.radii)
    assert "Did you mean 'sync'?" in call("variants", "synk", code=2).stderr
