"""`fedsuplin plugins`."""

import json
import types

import fedsuplin as fsl
from fedsuplin.cli import plugins as plugins_module
from fedsuplin.registry import Registry


def test_the_description_of_every_built_in_problem_is_a_whole_sentence(numbers):
    assert [
        row["name"]
        for row in numbers("plugins")["plugins"]
        if row["kind"] == "problem" and row["what"][-1] not in ".:"
    ] == []


def test_plugins_lists_everything_that_is_registered(call, widest):
    text = call("plugins").stdout
    rows = json.loads(call("plugins", "--json").stdout)["plugins"]
    listed = {(row["kind"], row["name"]) for row in rows}
    assert {
        ("trigger", "determinant"),
        ("policy", "layered"),
        ("noise model", "bounded"),
        ("variant", "robust"),
    } <= listed
    assert all(row["package"] == "fedsuplin" and row["version"] and row["what"] for row in rows)
    assert all(name in text for _, name in listed)
    assert widest(text) <= 80


def test_plugins_shows_the_package_entry_point_and_hook_of_each_name(call, numbers):
    text = " ".join(call("plugins").stdout.split())
    sources = {source["entry_point"]: source for source in numbers("plugins")["sources"]}
    ours = {"package": "fedsuplin", "version": fsl.__version__, "error": None}
    assert sources["arrivals"] == ours | {
        "entry_point": "arrivals",
        "hooks": ["fedsuplin_register_arrivals"],
        "registered": [["arrivals", name] for name in ("round-robin", "click-leave", "random")],
    }
    assert f"fedsuplin {fsl.__version__}" in text
    assert "arrivals arrivals: round-robin, click-leave, random" in text
    registered = {tuple(pair) for source in sources.values() for pair in source["registered"]}
    assert {("triggers", "determinant"), ("problems", "synthetic")} <= registered


def test_plugins_shows_what_failed_to_load_and_why(call, numbers, monkeypatch):
    class Broken:
        name = "broken"
        dist = types.SimpleNamespace(name="theirs", version="3.1")

        def load(self):
            raise ImportError("no module named numba")

    monkeypatch.setattr(plugins_module, "plugins", Registry(entry_points=lambda: [Broken()]))
    result = call("plugins")
    printed = " ".join(result.stdout.split())
    assert (
        "plugin 'broken' of package theirs 3.1 failed to load: ImportError: no module named numba"
        in printed
    )
    assert result.stderr == ""
    (source,) = numbers("plugins")["sources"]
    assert source == {
        "entry_point": "broken",
        "package": "theirs",
        "version": "3.1",
        "hooks": [],
        "registered": [],
        "error": "ImportError: no module named numba",
    }
