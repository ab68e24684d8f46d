"""`fedsuplin plugins new`; tests/repo/test_examples.py installs and runs what it writes."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from fedsuplin.cli import scaffold
from fedsuplin.cli.scaffold import fill_templates


def test_new_writes_a_package_and_prints_the_next_commands(call, tmp_path):
    result = call("plugins", "new", "Fedsuplin_My.Gossip", "--folder", tmp_path)
    made = tmp_path / "Fedsuplin_My.Gossip"
    written = {str(file.relative_to(made)) for file in made.rglob("*") if file.is_file()}
    module = "src/fedsuplin_my_gossip/__init__.py"
    assert written == {"pyproject.toml", "README.md", module, "tests/test_conformance.py"}
    assert all(file in result.stdout for file in written)
    assert [made] == list(tmp_path.iterdir())
    project = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    assert project["name"] == "Fedsuplin_My.Gossip"
    assert project["entry-points"] == {"fedsuplin": {"my-gossip": "fedsuplin_my_gossip"}}
    assert 'register("my-gossip", ' in (made / module).read_text(encoding="utf-8")
    readme = (made / "README.md").read_text(encoding="utf-8")
    commands = re.search(r"```bash\n(.*?)```", readme, re.DOTALL)[1].splitlines()
    assert len(commands) == 3 and commands[-1] == "fedsuplin run my-gossip"
    steps = [line.strip() for line in result.stdout.splitlines()[-4:]]
    assert steps == [f"cd {made}", *commands]


def test_the_files_have_no_long_lines_and_no_placeholders(widest):
    for text in fill_templates("my-gossip").values():
        assert text.endswith("\n") and widest(text) <= 100 and "$" not in text


def test_the_module_imports_from_fedsuplin_plugin_only():
    module = fill_templates("my-gossip")["src/my_gossip/__init__.py"]
    imported = [
        name
        for node in ast.walk(ast.parse(module))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or node.names[0].name]
    ]
    assert [name for name in imported if name.startswith("fedsuplin")] == ["fedsuplin.plugin"]


def test_the_readme_names_files_that_exist():
    readme = fill_templates("my-gossip")["README.md"]
    named = re.findall(r"`((?:docs|fedsuplin)/[^`]*)`", readme)
    assert len(named) == 3
    assert all((Path(__file__).parents[2] / path).exists() for path in named)


@pytest.mark.parametrize(
    ("name", "reason", "suggestion"),
    [
        ("my gossip", "must be letters and digits", "my-gossip"),
        ("-gossip", "must be letters and digits", "gossip"),
        ("gossip\n", "must be letters and digits", "gossip"),
        ("θ", "must be letters and digits", "my-plugin"),
        ("", "must be letters and digits", "my-plugin"),
        ("../gossip", "must be letters and digits", "gossip"),
        ("3bandits", "module would be '3bandits', which Python can't import", "fedsuplin-3bandits"),
        ("lambda", "module would be 'lambda', which Python can't import", "fedsuplin-lambda"),
        ("random", "hide Python's own 'random'", "fedsuplin-random"),
        ("numpy", "a module 'numpy' is already installed", "fedsuplin-numpy"),
        ("fedsuplin-ext", "a module 'fedsuplin_ext' is already installed", "my-ext"),
        (
            "fedsuplin-sync",
            "the variant 'sync' is already registered by plugin 'variants' of package fedsuplin",
            "my-sync",
        ),
        (
            "periodic",
            "the trigger 'periodic' is already registered by plugin 'triggers'",
            "my-periodic",
        ),
    ],
)
def test_new_refuses_a_wrong_name_and_suggests_a_right_one(
    call, tmp_path, name, reason, suggestion
):
    printed = call("plugins", "new", "--folder", tmp_path, "--", name, code=2).stderr
    assert printed.startswith("Error: ") and printed.count("\n") == 1
    assert reason in printed and printed.endswith(f". {suggestion!r} would be right\n")
    assert not list(tmp_path.iterdir())
    call("plugins", "new", "--folder", tmp_path, suggestion)


def test_new_does_not_touch_an_existing_folder(call, tmp_path):
    (tmp_path / "my-gossip").mkdir()
    printed = call("plugins", "new", "my-gossip", "--folder", tmp_path, code=2).stderr
    message = "already exists: choose another name, or another --folder"
    assert printed == f"Error: {tmp_path / 'my-gossip'} {message}\n"
    assert not list((tmp_path / "my-gossip").iterdir())
    assert (
        "does not exist"
        in call("plugins", "new", "my-gossip", "--folder", tmp_path / "nowhere", code=2).stderr
    )
    assert (
        "put --json after new: before it, it is for the list"
        in call("plugins", "--json", "new", "my-gossip", code=2).stderr
    )


def test_new_writes_all_or_nothing(call, tmp_path, monkeypatch):
    def full(path, *_, **__):
        if path.name == "README.md":
            raise OSError(28, "No space left on device", str(path))
        return real(path, *_, **__)

    real = Path.write_text
    monkeypatch.setattr(Path, "write_text", full)
    assert (
        "No space left on device"
        in call("plugins", "new", "my-gossip", "--folder", tmp_path, code=1).stderr
    )
    assert not list(tmp_path.iterdir())


def test_new_names_the_users_folder_when_it_cant_be_made(call, tmp_path, monkeypatch):
    def refused(*_, prefix, **__):
        raise PermissionError(13, "Permission denied", str(tmp_path / f"{prefix}x1"))

    monkeypatch.setattr(scaffold.tempfile, "TemporaryDirectory", refused)
    printed = call("plugins", "new", "my-gossip", "--folder", tmp_path, code=1).stderr
    assert printed == f"Error: {tmp_path / 'my-gossip'}: Permission denied\n"
    assert not list(tmp_path.iterdir())
