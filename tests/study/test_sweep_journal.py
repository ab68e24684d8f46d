"""The journal of a sweep: what interrupts, kills and other files leave."""

import dataclasses
import json
import time

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.errors import InvalidInput
from fedsuplin.registry import plugins
from fedsuplin.study import sweeps
from fedsuplin.study.grid import list_points
from fedsuplin.study.sweep_journal import HEADING, SweepJournal
from fedsuplin.study.sweeps import run_point

PROBLEM = {"dim": 3, "n_arms": 4, "n_clients": 2, "horizon": 60}


def swept(policies="async", problems=PROBLEM, seeds=2, **keywords):
    return fsl.sweep(policies, problems, seeds=seeds, **keywords)


def table(found, folder):
    return found.write_csv(folder / "compared.csv").read_bytes()


def lines_of(folder):
    return (folder / "runs.jsonl").read_bytes().splitlines()[1:]


def test_more_seeds_and_values_run_only_what_is_new(tmp_path):
    swept({"name": "async", "C": [0.1, 1]}, seeds=2, folder=tmp_path)
    before = lines_of(tmp_path)
    found = swept({"name": "async", "C": [0.1, 1, 10]}, seeds=3, folder=tmp_path)
    assert lines_of(tmp_path)[:4] == before and len(lines_of(tmp_path)) == len(found.rows) == 9
    assert table(found, tmp_path) == table(
        swept({"name": "async", "C": [0.1, 1, 10]}, seeds=3), tmp_path
    )
    fewer = swept({"name": "async", "C": 1}, seeds=1, folder=tmp_path)
    assert len(fewer.rows) == 1 and len(lines_of(tmp_path)) == 9


def test_runs_that_failed_are_tried_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(sweeps, "make_problem", lambda point: 1 / (point.seed - 1))
        patched.setattr(sweeps, "check_names", lambda points: None)
        first = swept(seeds=[1], folder=tmp_path)
    assert first.rows[0]["error"] == "ZeroDivisionError: division by zero"
    second = swept(seeds=[1], folder=tmp_path)
    assert not second.failed and len(lines_of(tmp_path)) == 2
    assert not swept(seeds=[1], folder=tmp_path).failed and len(lines_of(tmp_path)) == 2


def test_runs_with_other_constants_in_their_preset_are_other_runs(tmp_path, monkeypatch):
    first = swept(["async", "sync"], folder=tmp_path)
    recipe = plugins.create("variants", "async", {})
    changed = dataclasses.replace(
        recipe,
        presets=recipe.presets | {"practical": recipe.presets["practical"] | {"alpha_scale": 0.5}},
    )
    create = plugins.create
    monkeypatch.setattr(
        plugins,
        "create",
        lambda kind, name, keywords: changed if name == "async" else create(kind, name, keywords),
    )
    again = swept(["async", "sync"], folder=tmp_path)
    regrets = [[row["regret"] for row in found.rows] for found in (first, again)]
    assert regrets[0][:2] != regrets[1][:2] and regrets[0][2:] == regrets[1][2:]
    assert (
        len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1 + 4 + 2
    )  # the heading, and async once more


def test_ten_thousand_points_are_planned_and_continued_in_seconds(tmp_path):
    grids = {"name": "async", "C": np.linspace(0.1, 2, 100)}, {**PROBLEM, "dim": [2, 3, 4, 5]}
    points = list_points(*grids, 25, None)
    line = json.loads(json.dumps(run_point(points[0])))
    with (tmp_path / "runs.jsonl").open("wb") as file:
        file.write(HEADING)
        file.writelines(
            json.dumps(line | {"key": point.key}).encode() + b"\n" for point in points[:-3]
        )
    seen, began = [], time.perf_counter()
    found = fsl.sweep(*grids, seeds=25, folder=tmp_path, progress=seen.append)
    assert time.perf_counter() - began < 20  # two on a quiet machine
    assert len(found.rows) == 10_000 and [now.done for now in seen] == [9997, 9998, 9999, 10_000]
    assert len(found.summary()) == 400


def test_a_journal_is_locked_while_a_sweep_writes_to_it(tmp_path):
    with (
        SweepJournal(tmp_path / "runs.jsonl"),
        pytest.raises(InvalidInput, match="another sweep is writing to"),
    ):
        swept(folder=tmp_path)
    assert len(swept(folder=tmp_path).rows) == 2


def test_half_a_line_at_the_end_is_done_again(tmp_path):
    whole = table(swept(seeds=3, folder=tmp_path), tmp_path)
    text = (tmp_path / "runs.jsonl").read_bytes()
    last = text.rstrip(b"\n").rfind(b"\n") + 1
    for end in (last + 1, last + 40, len(text) - 1):
        (tmp_path / "runs.jsonl").write_bytes(text[:end])
        assert table(swept(seeds=3, folder=tmp_path), tmp_path) == whole
        assert len(lines_of(tmp_path)) == 3
    for end in (0, 7, len(HEADING) - 1):  # killed as early as that
        (tmp_path / "runs.jsonl").write_bytes(HEADING[:end])
        assert len(swept(folder=tmp_path).rows) == 2


@pytest.mark.parametrize(
    "garbage", [b"garbage\n", b"5\n", b'{"no": "key"}\n', b"\n", b"\xff\xfe\n"]
)
def test_a_line_that_can_not_be_read_is_named(garbage, tmp_path):
    swept(folder=tmp_path)
    first, *rest = (tmp_path / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "runs.jsonl").write_bytes(b"".join([first, rest[0], garbage, rest[1]]))
    with pytest.raises(InvalidInput, match=r"line 3 of .*runs.jsonl can't be read"):
        swept(folder=tmp_path)
    assert (tmp_path / "runs.jsonl").read_bytes().endswith(rest[1])


@pytest.mark.parametrize(
    "text",
    [b"a thesis without a newline", b"a thesis\nof two lines", b'{"format": "other"}\n', b"\x00\n"],
)
def test_a_file_that_is_not_a_journal_is_left_alone(text, tmp_path):
    (tmp_path / "runs.jsonl").write_bytes(text)
    with pytest.raises(InvalidInput, match="is not the journal of a sweep"):
        swept(folder=tmp_path)
    assert (tmp_path / "runs.jsonl").read_bytes() == text
