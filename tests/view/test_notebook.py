"""What a notebook shows of every result, well-formed and escaped; and the example notebook runs."""

import dataclasses
import html.parser
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import nbclient
import nbformat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsuplin as fsl
from fedsuplin.plugin import Problem
from fedsuplin.view.html import NOT_XML
from fedsuplin.view.notebook import MOST_LINES
from fedsuplin.view.style import spans_widely
from fedsuplin.view.svg import FAINT, HEIGHT, WIDTH, Line, choose_look, draw_chart
from fedsuplin_ext.loop import COUNTS, SUMS

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "first-steps.ipynb"
SIZES = {"dim": 3, "n_arms": 4, "n_clients": 2}
PROBLEM = fsl.SyntheticProblem(**SIZES, seed=0)
RESULT = fsl.run("async", PROBLEM, horizon=200)
SCRIPTS = re.compile(r"<script|javascript:|\bon\w+\s*=|https?:|<link|<style|<img", re.IGNORECASE)


class Reader(html.parser.HTMLParser):
    """Checks that tags are closed in order, and collects all text."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_data(self, data):
        self.text += data


def seen(shown):
    """Return the text of a form, which must be well-formed HTML and XML and load nothing."""
    form = shown if isinstance(shown, str) else shown._repr_html_()
    ElementTree.fromstring(form)
    tags = re.sub(r"(?<=>)[^<]*(?=<)", "", form)  # what is in tags; text may say anything
    assert not SCRIPTS.search(tags)
    assert not re.search(
        r"\b(nan|inf)\b", " ".join(re.findall(r'(?: d| cx| cy| x| y)="([^"]*)"', form))
    )
    reader = Reader()
    reader.feed(form)
    assert reader.open == []
    return reader.text


def cut(result, n):
    """The same, as if it had been stopped after its n-th record."""
    rows = {name: getattr(result, name)[:n] for name in ("pulls", *SUMS, *COUNTS)}
    return dataclasses.replace(result, complete=False, **rows)


# --- every form -------------------------------------------------------------------------------


def test_a_result_shows_regret_communication_layers_and_the_guarantee():
    text = seen(RESULT)
    for words in (
        "async, preset practical",
        "T = 200",
        "uniform random play",
        "communication",
        "pulls by layer",
        "does not hold",
    ):
        assert words in text
    assert RESULT._repr_html_().count("<svg") == 2
    assert len(RESULT._repr_html_()) < 20_000


@pytest.mark.parametrize("record", ["all", 7])
def test_however_much_was_recorded_the_form_is_small(record):
    result = fsl.run("async", PROBLEM, horizon=20_000, record=record)
    assert len(result._repr_html_()) < 12_000
    seen(result)


def test_results_that_are_stopped_empty_or_of_one_pull():
    assert "stopped early after 200" in seen(cut(RESULT, 3))
    assert "nothing was played" in seen(cut(RESULT, 0))
    assert "in 1 pull" in seen(
        fsl.run("oful", fsl.SyntheticProblem(dim=2, n_arms=2, n_clients=1, seed=0), horizon=1)
    )
    assert "2,048" in seen(fsl.run(fsl.make("async", **SIZES, horizon=None), PROBLEM, horizon=2048))
    bare = dataclasses.replace(RESULT, spec={}, departures=())
    assert "guarantee: holds" in seen(bare)


@pytest.mark.parametrize(
    "variant", ["async", "sync", "variance", "robust", "oful", "fedlinucb", "uniform", "pe"]
)
@pytest.mark.parametrize("preset", ["practical", "theory"])
def test_an_algorithm_shows_its_parts_its_layers_and_its_guarantee(variant, preset):
    algorithm = fsl.make(variant, **SIZES, horizon=1000, preset=preset)
    text = seen(algorithm)
    assert f"{variant}, preset {preset}: d = 3, K = 4, M = 2, T = 1,000" in text
    assert (
        str(algorithm.trigger) in text
        and "radius by layer" in text
        and "target width by layer" in text
    )
    assert f"{algorithm.radii[-1]:.5g}" in text
    assert (f"holds ({algorithm.theorem})" if algorithm.guarantee else "does not hold") in text
    assert ("grow with ln det" in text) == bool(algorithm.radius_growth[0])


def test_a_doubling_shows_its_first_epoch():
    text = seen(fsl.make("sync", **SIZES, horizon=None))
    assert "unknown horizon" in text and "1,024 · 2^e" in text and "T = 1,024" in text


def test_a_comparison_is_a_table_that_is_the_legend_of_its_curves():
    found = fsl.compare(["async", "oful", "uniform"], PROBLEM, seeds=2, horizon=300)
    text = seen(found)
    assert "Comparison over 2 seeds" in text and all(name in text for name in found.runs)
    assert found._repr_html_().count("<svg") == 2 + 3
    stopped = dataclasses.replace(found, runs={}, complete=False)
    assert "stopped early" in seen(stopped)
    assert "nothing was played" in seen(dataclasses.replace(found, runs={}))
    assert "over one seed" in seen(fsl.compare(["oful"], PROBLEM, seeds=1, horizon=1))
    many = {f"policy {number}": "oful" for number in range(15)}
    assert (
        fsl.compare(many, PROBLEM, seeds=1, horizon=20)._repr_html_().count("<svg")
        == 2 + MOST_LINES
    )


def test_a_sweep_shows_its_points_its_failures_and_what_is_left():
    found = fsl.sweep(
        {"name": "async", "C": [0.1, 1, 10]}, SIZES | {"horizon": [100, 200]}, seeds=2
    )
    text = seen(found)
    assert (
        "Sweep of 12 runs over C × horizon" in text
        and "±" in text
        and found._repr_html_().count("<svg") == 2 + 2
    )
    words = fsl.sweep(["async", "oful"], SIZES | {"horizon": 100}, seeds=1)
    assert "oful" in seen(words) and "<svg" not in words._repr_html_()
    failed = fsl.sweep({"name": "async", "alpha_scale": [-1, 1]}, SIZES | {"horizon": 100}, seeds=1)
    assert "1 run failed, the first with InvalidInput" in seen(failed)
    assert "2 runs failed" in seen(
        fsl.sweep({"name": "async", "alpha_scale": [-1, -2]}, SIZES | {"horizon": 9}, seeds=1)
    )
    stopped = dataclasses.replace(
        found, rows=found.rows[:5], curves=found.curves[:5], complete=False
    )
    assert "stopped early with 7 runs to go" in seen(stopped)
    assert "12 runs to go" in seen(dataclasses.replace(found, rows=[], curves=[], complete=False))
    large = fsl.sweep(
        {"name": "uniform"},
        SIZES | {"horizon": list(range(10, 40)), "noise_scale": [0.1, 0.2]},
        seeds=1,
    )
    assert "The first 20 of 60 points" in seen(large)
    lines = fsl.sweep(
        "uniform", SIZES | {"horizon": list(range(10, 40)), "n_arms": list(range(2, 16))}, seeds=1
    )
    assert "and 2 more" in seen(lines)


def test_a_problem_of_ones_own_has_a_name_and_sizes():
    class TwoArms(Problem):
        dim, n_arms, n_clients = 2, 2, 1

    assert repr(TwoArms()) == "TwoArms(dim=2, n_arms=2, n_clients=1)"
    assert repr(type("Unsure", (Problem,), {})()) == "Unsure(dim=?, n_arms=?, n_clients=?)"


# --- any name, any number ---------------------------------------------------------------------

anything = st.text(max_size=20) | st.sampled_from(
    ["<script>alert(1)</script>", "a & b", "]]>", "\"'", "\x00\x1b", "&lt;", "\ud800"]
)
numbers = st.floats() | st.integers(-(10**9), 10**9).map(float)


@given(anything)
def test_every_name_is_escaped(name):
    spec = {
        "algorithm": RESULT.spec["algorithm"] | {"variant": name, "preset": name},
        "horizon": 200,
    }
    assert "<script" not in dataclasses.replace(RESULT, spec=spec, departures=(name,))._repr_html_()
    assert shown(name) in seen(dataclasses.replace(RESULT, spec=spec, departures=(name,)))
    algorithm = fsl.make("async", **SIZES, horizon=100)
    assert shown(name) in seen(dataclasses.replace(algorithm, name=name, preset=name, theorem=name))
    comparison = fsl.Comparison({name: [RESULT]}, {name: algorithm}, (0,))
    assert shown(name) in seen(comparison)
    axes, measured = (
        ("policy", name or "x"),
        dict.fromkeys((*SUMS, *COUNTS), 1.0) | {"percent_of_uniform": None},
    )
    row = dict.fromkeys(axes, name) | measured | {"seed": 0}
    sweep = fsl.SweepResult(
        [], [row | {"error": name}, row | {"error": "", "policy": "other"}], [None, None], axes
    )
    assert "<script" not in sweep._repr_html_()
    seen(sweep)


def shown(name):
    """As a reader gets it: characters that no page can have are replaced."""
    return NOT_XML.sub("\ufffd", name)


@given(
    st.lists(st.tuples(numbers, numbers), max_size=300), st.booleans(), st.booleans(), st.booleans()
)
def test_a_chart_of_any_numbers_is_well_formed_and_stays_inside(points, log_x, log_y, marks):
    x, y = ([point[axis] for point in points] for axis in (0, 1))
    drawn = draw_chart(
        "any", [Line(x, y, choose_look(0), "line")], x="x", log_x=log_x, log_y=log_y, marks=marks
    )
    seen(drawn)
    for path in re.findall(r'<path d="M([^"]*L[^"]*)"', drawn):
        for place in path.split("L"):
            left, top = map(float, place.split())
            assert 0 <= left <= WIDTH and 0 <= top <= HEIGHT


def test_looks_differ_and_only_what_spans_much_is_logarithmic():
    assert len({choose_look(number) for number in range(32)}) == 32
    assert (
        spans_widely([1, 100])
        and not spans_widely([0, 100])
        and not spans_widely([])
        and not spans_widely([float("nan")])
    )
    assert "logarithmic" in draw_chart("a", [Line([1, 2], [1, 2], FAINT)], x="x", log_y=True)
    assert "nothing recorded" in draw_chart("a", [Line([1], [np.nan], FAINT)], x="x")


# --- the example notebook ---------------------------------------------------------------------


def test_the_notebook_is_committed_without_outputs_and_its_links_lead_somewhere():
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["metadata"]["kernelspec"]["name"]) == (4, "python3")
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    text = "".join("".join(cell["source"]) for cell in book["cells"])
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links and all((NOTEBOOK.parent / link).exists() for link in links)


def test_the_notebook_runs_and_shows_what_it_says(tmp_path):
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(book)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert all(
        output.output_type in ("execute_result", "stream") and output.get("name") != "stderr"
        for output in outputs
    )
    forms = [
        output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})
    ]
    texts = [seen(form) for form in forms]
    assert (
        len(forms) == 6
        and "holds (Theorem 1)" in texts[0]
        and "Comparison over 3 seeds" in texts[2]
    )
    assert "SyntheticProblem(" in outputs[0].data["text/plain"]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "patient:" in printed and printed.count("C = ") == 5
    assert (tmp_path / "async.npz").exists()
