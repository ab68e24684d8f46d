"""The figure of a comparison."""

import dataclasses

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.suitable_variants import list_suitable_variants
from fedsuplin.view.comparison_figure import compute_comparison_info, draw_comparison_info

PROBLEM = fsl.SyntheticProblem(4, 5, 4, noise_scale=0.1)
NAMES = ["async", "sync", "oful", "uniform"]


@pytest.fixture(scope="module")
def found():
    return fsl.compare(NAMES, PROBLEM, seeds=4, horizon=2000)


def stopped_after(runs):
    def impatient(done, total, policy):
        if done == runs:
            raise KeyboardInterrupt

    return fsl.compare(
        ["oful", "async"], PROBLEM, seeds=range(5, 9), horizon=500, threads=1, progress=impatient
    )


def test_the_figure_has_both_panels_and_dashed_bounds_on_request(found, tmp_path):
    plain, bounds = found.plot(tmp_path / "a.png"), found.plot(bounds=True)
    assert (tmp_path / "a.png").stat().st_size > 10_000
    regret, communication = plain.axes
    assert len(regret.lines) == 4 and len(communication.lines) == 2  # two of them talk
    assert len(bounds.axes[0].lines) == 4 + 3 and len(bounds.axes[1].lines) == 2 + 2
    assert "thin dashed" in bounds.get_suptitle() and "dashed" not in plain.get_suptitle()
    assert regret.get_yscale() == communication.get_yscale() == "log"


def test_every_policy_has_its_own_colour_and_no_line_runs_through_the_legend():
    names = list_suitable_variants(PROBLEM)
    figure = fsl.compare(names, PROBLEM, seeds=1, horizon=100).plot(bounds=True)
    regret, (legend,) = figure.axes[0], figure.legends
    curves = [line for line in regret.lines if not line.get_label().startswith("_")]
    assert len(names) > 10 and len({line.get_color() for line in curves}) == len(curves) == len(
        names
    )
    figure.draw_without_rendering()
    assert regret.get_legend() is None and not any(
        axes.bbox.overlaps(legend.get_window_extent()) for axes in figure.axes
    )


def test_policies_that_do_not_talk_leave_a_panel_that_says_so():
    figure = fsl.compare(["oful"], PROBLEM, seeds=1, horizon=100).plot()
    assert [text.get_text() for text in figure.axes[1].texts] == ["no communication"]


def test_a_figure_of_no_finished_run_says_so():
    found = dataclasses.replace(stopped_after(1), runs={})
    assert [text.get_text() for axes in found.plot().axes for text in axes.texts] == [
        "no run was finished"
    ] * 2


def test_the_info_object_is_plain_arrays_and_words(found):
    info = compute_comparison_info(found)
    assert info.title == "d = 4,  K = 5,  M = 4,  T = 2,000  (4 seeds)"
    assert info.has_bands and not info.has_bounds
    final = {name: found.last(name, "regret").mean() for name in NAMES}
    assert list(info.curves) == sorted(final, key=final.get, reverse=True)
    curve = info.curves["oful"]["regret"]
    pulls, mean, half = found.curve("oful", "regret")
    there = mean > 0
    np.testing.assert_array_equal(curve.pulls, pulls[there])
    np.testing.assert_array_equal(curve.mean, mean[there])
    np.testing.assert_array_equal(curve.half, half[there])
    assert curve.bound is None and "communication" not in info.curves["oful"]


def test_bounds_are_in_the_info_object_where_the_paper_states_them(found):
    info = compute_comparison_info(found, bounds=True)
    curve = info.curves["async"]["communication"]
    expected = found.bound_curve("async", "communication", curve.pulls)
    np.testing.assert_array_equal(curve.bound, expected)
    assert info.curves["uniform"]["regret"].bound is None
    assert len(draw_comparison_info(info).axes) == 2
