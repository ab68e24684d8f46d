"""The README's code runs, its commands exist, and its table of variants is complete."""

import os
import re
import subprocess
from pathlib import Path

from fedsuplin.registry import plugins

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 1
    exec(compile(blocks[0], "README.md", "exec"), {})
    assert "RunResult(async, 40000 pulls" in capsys.readouterr().out
    assert (tmp_path / "run.npz").exists()


def test_every_variant_is_in_the_table():
    for name in plugins.names("variants"):
        assert f"| `{name}` |" in README


def test_ci_runs_the_test_command_of_the_readme_word_for_word():
    command = subprocess.run(
        ["awk", "/^# test/ {getline; print; exit}", "README.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert command == 'pip install ".[test]" && pytest -n auto --dist loadfile'
    assert "awk '/^# test/ {getline; print; exit}' README.md" in (ROOT / ".ci/run").read_text()
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_every_link_leads_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links and all((ROOT / link).exists() for link in links)
