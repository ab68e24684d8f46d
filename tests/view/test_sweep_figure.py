"""The figure of a sweep."""

import fedsuplin as fsl
from fedsuplin.view.sweep_figure import compute_sweep_info

PROBLEM = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 60}


def swept(policies="async", problems=PROBLEM, seeds=2, **keywords):
    return fsl.sweep(policies, problems, seeds=seeds, **keywords)


def test_the_figure_is_drawn_along_numbers_with_a_line_for_each_other_combination(tmp_path):
    found = swept(
        [{"name": "async", "C": [0.1, 10]}, "oful"], {**PROBLEM, "horizon": [30, 60, 3000]}
    )
    figure = found.plot(tmp_path / "sweep.png")
    info = compute_sweep_info(found)
    assert info.axis == "horizon" and list(info.lines) == ["async, C 0.1", "async, C 10", "oful"]
    means = {(row["policy"], row["C"], row["horizon"]): row["regret"] for row in found.summary()}
    assert info.lines["async, C 10"]["regret"][1] == [
        means["async", 10, horizon] for horizon in (30, 60, 3000)
    ]
    regret, communication = figure.axes
    assert (
        regret.get_xlabel() == communication.get_xlabel() == "horizon (pulls)"
        and regret.get_xscale() == "log"
    )
    assert regret.get_ylabel() == "cumulative regret" and communication.get_ylabel().startswith(
        "communications"
    )
    looks = {(line.get_linestyle(), line.get_marker()) for line, *_ in regret.containers}
    assert len(looks) == 3  # so that print in grey tells them apart
    assert (tmp_path / "sweep.png").stat().st_size > 10_000


def test_words_one_point_one_seed_and_no_success_have_a_figure_too(words):
    regret = swept(["async", "oful", "uniform"]).plot().axes[0]
    assert [text.get_text() for text in regret.get_xticklabels()] == ["async", "oful", "uniform"]
    assert regret.get_legend() is None and [
        line.get_linestyle() for line, *_ in regret.containers
    ] == ["None"]
    assert [text.get_text() for text in swept().plot().axes[0].get_xticklabels()] == ["async"]
    assert any(
        "one point" in word and "(one seed)" in word for word in words(swept(seeds=1).plot())
    )
    failed = swept({"name": "async", "alpha_scale": -1}).plot()
    assert words(failed).count("no run succeeded") == 2 and not any(
        len(axes.get_yticks()) for axes in failed.axes
    )
    many = swept(
        {"name": "async", "C": [0.1, 1, 10], "ridge": [0.5, 1, 2]},
        {**PROBLEM, "horizon": [10, 20, 30, 40]},
        seeds=1,
    )
    assert len(many.plot().legends[0].get_texts()) == 9
