"""The guides: every Python block runs, in order, and prints what the page says; commands and links exist."""

import contextlib
import io
import re
import shlex
import sys
import types
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import fedsuplin as fsl
from fedsuplin import cli
from fedsuplin.registry import HOOK_PREFIX, Registry, Source, plugins

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
GUIDES = ("hooks.md", "plugins.md")  # which register something


def blocks(text):
    """The Python blocks of a page: the line that each begins at, its code, and what a text block right after says it prints."""
    for found in re.finditer(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL):
        yield text[: found.start(1)].count("\n") + 1, found.group(1), found.group(2)


def played(page, monkeypatch, folder):
    """The page's blocks, run as one module; what each printed is as the page has it."""
    monkeypatch.chdir(folder)
    module = types.ModuleType("page_" + page.removesuffix(".md"))
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look there
    for line, code, told in blocks(PAGES[page]):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + code, f"docs/{page}", "exec"), vars(module))
        if told is not None:
            assert printed.getvalue() == told, f"docs/{page}, the block at line {line}"
    return module


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GUIDES])
def test_every_python_block_of_a_page_runs_and_prints_what_it_says(page, monkeypatch, tmp_path):
    assert len(list(blocks(PAGES[page]))) == PAGES[page].count("```python")
    played(page, monkeypatch, tmp_path)


@pytest.mark.parametrize("page", GUIDES)
def test_every_python_block_of_a_guide_runs_and_prints_what_it_says(page, monkeypatch, tmp_path):
    """And what the page registers can be registered, and made."""
    assert len(list(blocks(PAGES[page]))) == PAGES[page].count("```python")
    module = played(page, monkeypatch, tmp_path)
    registry, source = Registry(lambda: []), Source(page, "a-guide", "1.0")
    registry.add(module, source)
    assert source.registered
    for kind, name in source.registered:
        assert name not in plugins.names(kind)  # an example must not be called like a built-in
        registry.create(kind, name, {})
    if page == "hooks.md":
        assert source.hooks == sorted(source.hooks) and len(source.hooks) == PAGES[page].count(f"## `{HOOK_PREFIX}")


def test_the_guide_needs_no_numba(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "numba", None)
    module = played("plugins.md", monkeypatch, tmp_path)
    assert module.Rested().bind(fsl.Setting(dim=2, n_arms=2, n_clients=2, horizon=9)).compiled() is None


def test_a_block_that_fails_or_prints_something_else_would_be_noticed(monkeypatch, tmp_path):
    for wrong in ("```python\n1 / 0\n```\n", "```python\nprint(1)\n```\n\n```text\n2\n```\n"):
        monkeypatch.setitem(PAGES, "wrong.md", wrong)
        with pytest.raises((ZeroDivisionError, AssertionError)):
            played("wrong.md", monkeypatch, tmp_path)


def commands(page):
    """Every line of a bash block that calls fedsuplin."""
    for block in re.findall(r"^```bash\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL):
        yield from (line for line in block.splitlines() if line.startswith("fedsuplin "))


@pytest.mark.parametrize("line", [line for page in PAGES for line in commands(page)])
def test_every_command_of_a_guide_exists_with_its_options(line):
    command, words = cli.main, shlex.split(line, comments=True)[1:]
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    assert command is not cli.main
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert all(word in known for word in words if word.startswith("-"))


def test_the_guides_package_is_what_the_command_writes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (line,) = [line for line in commands("plugins.md") if line.startswith("fedsuplin plugins new ")]
    called = CliRunner().invoke(cli.main, shlex.split(line)[1:])
    assert called.exit_code == 0, called.output
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written and all(f"`{Path(file).name}`" in PAGES["plugins.md"] for file in written)


def test_the_page_on_federations_lists_every_message_method_status_and_metric():
    from fedsuplin.federation import service, telemetry, wire
    from fedsuplin.messages import Message

    page = PAGES["federation.md"]
    kinds = {each.kind: each.__name__ for each in Message.__subclasses__() if each.__module__.startswith("fedsuplin.")}
    assert dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)) == {str(kind): name for kind, name in kinds.items()}
    assert re.findall(r"^\| `([A-Z]\w+)` \| `\w+Request` → `\w+Answer` \|", page, re.MULTILINE) == list(wire.METHODS)
    rows = re.findall(r"^\| `([A-Z_]+)` \| (`.*?`) \|", page, re.MULTILINE)
    told = {reason: status for status, reasons in rows for reason in re.findall(r"`(\w+)`", reasons)}
    assert told == {reason: status.name for reason, status in service.CODES.items()}
    families = {family.name for family in telemetry.Metrics().registry.collect()}
    assert {name.removesuffix("_total") for name in re.findall(r"`(fedsuplin_\w+)`", page)} == families


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_guide_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", PAGES[page])
    headings = re.findall(r"^#+ (.*)$", PAGES[page], re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}  # as GitHub makes them
    for link in links:
        path, _, anchor = link.partition("#")
        package = path.startswith("../fedsuplin/")  # a wheel is tested where its source is not
        place = Path(fsl.__file__).parents[1] / path.removeprefix("../") if package else ROOT / "docs" / path
        assert not path or place.exists(), link
        assert path or anchor in anchors, link
