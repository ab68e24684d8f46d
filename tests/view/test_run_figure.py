"""The figure of a run: the info object says what is seen, and drawing touches nothing global."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import MissingExtra
from fedsuplin.view.run_figure import ResultInfo, compute_result_info, draw_result, draw_result_info
from fedsuplin_ext.loop import COUNTS, SUMS


def played(variant="async", horizon=600, **keywords):
    return fsl.run(variant, fsl.SyntheticProblem(4, 5, 3, seed=0), horizon=horizon, **keywords)


def test_the_info_object_is_plain_arrays_and_words():
    result = played()
    info = compute_result_info(result)
    np.testing.assert_array_equal(info.regret, result.regret)
    np.testing.assert_array_equal(info.uniform_regret, result.uniform_regret)
    np.testing.assert_array_equal(info.layer_pulls, result.layer_pulls)
    assert info.title == "async, preset practical:  d = 4,  K = 5,  M = 3,  T = 600"
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.title = "another"


def test_every_panel_is_labelled_and_lines_differ_by_more_than_colour(words):
    figure = draw_result(played())
    regret, communication, layers = figure.axes
    assert (regret.get_xlabel(), regret.get_ylabel()) == ("pulls", "cumulative regret")
    assert communication.get_ylabel().startswith("communications")
    assert (layers.get_xlabel(), layers.get_ylabel()) == ("layer", "pulls")
    assert {line.get_linestyle() for line in regret.lines} == {"-", "--"}
    assert any(word.startswith("uniform random play: ") for word in words(figure))


def test_curves_start_at_zero_and_end_where_the_result_does():
    result = played()
    uniform, own = draw_result(result).axes[0].lines
    for line, values in ((uniform, result.uniform_regret), (own, result.regret)):
        assert (line.get_xdata()[0], line.get_ydata()[0]) == (0, 0)
        assert (line.get_xdata()[-1], line.get_ydata()[-1]) == (600, values[-1])


def test_communication_gets_logarithmic_axes_where_it_spans_much():
    few = draw_result(played(horizon=60))
    many = draw_result(played(horizon=3000, trigger="always"))
    assert few.axes[1].get_yscale() == "linear"
    assert many.axes[1].get_yscale() == "log"


def test_a_panel_without_communication_says_so_and_one_layer_is_drawn(words):
    figure = draw_result(played("oful"))
    assert "no communication" in words(figure)
    assert [bar.get_height() for bar in figure.axes[2].patches] == [600]


@pytest.mark.parametrize("record", ["log", "all", 1000])
def test_a_path_saves_the_figure(tmp_path, record):
    figure = played(record=record).plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_run_without_a_recorded_pull_can_be_drawn(tmp_path, words):
    result = played()
    empty = dataclasses.replace(
        result,
        complete=False,
        **{name: getattr(result, name)[:0] for name in ("pulls", *SUMS, *COUNTS)},
    )
    figure = empty.plot(tmp_path / "run.png")
    assert words(figure).count("nothing recorded") == 2
    assert "stopped early after 600" in figure.get_suptitle()


def test_no_tick_label_lies_on_its_neighbour():
    many = np.array([54, 46, 57, 83, 127, 216, 433, 1051, 2344, 6033, 15372, 14184, 0, 0, 0, 0, 0])
    pulls = np.array([1, 10, 1_000_000, 50_000_000])
    info = ResultInfo("a title", "variance", pulls, pulls / 50, pulls / 3, pulls // 2, many)
    for figure in (draw_result_info(info), draw_result(played()), draw_result(played("sync"))):
        figure.draw_without_rendering()
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                shown = [
                    label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()
                ]
                shown = [
                    box
                    for box in shown
                    if axes.get_window_extent().expanded(1.3, 1.3).contains(box.x0, box.y0)
                ]
                assert not any(
                    one.overlaps(other) for one, other in zip(shown, shown[1:], strict=False)
                )


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install 'fedsuplin\[plot\]'"):
        played().plot()


def test_matplotlib_is_not_imported_before_it_is_needed_and_pyplot_never():
    code = (
        "import sys, fedsuplin as fsl, fedsuplin.view.run_figure, fedsuplin.cli.main;"
        "assert 'matplotlib' not in sys.modules;"
        "fsl.run('async', fsl.SyntheticProblem(2, 2, 1), horizon=50).plot();"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
