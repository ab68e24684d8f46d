"""Every Python block of docs/ runs, in order, and prints what the page says; links exist."""

import contextlib
import io
import re
import shlex
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from fedsuplin.cli.main import root_command
from fedsuplin.plugin import Setting
from fedsuplin.registry import HOOK_PREFIX, Registry, Source, plugins

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
}
GUIDES = ("hooks.md", "plugins.md")  # which register something


def list_blocks(text):
    """Yield the line, the code and the expected output of each Python block of a page."""
    for found in re.finditer(
        r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL
    ):
        yield text[: found.start(1)].count("\n") + 1, found.group(1), found.group(2)


def play_page(page, monkeypatch, folder):
    """Run the blocks of a page as one module, and compare what each prints with the page."""
    monkeypatch.chdir(folder)
    module = types.ModuleType("page_" + re.sub(r"\W", "_", page.removesuffix(".md")))
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look there
    for line, code, expected in list_blocks(PAGES[page]):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + code, f"docs/{page}", "exec"), vars(module))
        if expected is not None:
            assert printed.getvalue() == expected, f"docs/{page}, the block at line {line}"
    return module


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GUIDES])
def test_every_python_block_of_a_page_runs_and_prints_what_it_says(page, monkeypatch, tmp_path):
    assert len(list(list_blocks(PAGES[page]))) == PAGES[page].count("```python")
    play_page(page, monkeypatch, tmp_path)


@pytest.mark.parametrize("page", GUIDES)
def test_every_python_block_of_a_guide_runs_and_prints_what_it_says(page, monkeypatch, tmp_path):
    """And what the page registers can be registered, and made."""
    assert len(list(list_blocks(PAGES[page]))) == PAGES[page].count("```python")
    module = play_page(page, monkeypatch, tmp_path)
    registry, source = Registry(lambda: []), Source(page, "a-guide", "1.0")
    registry.add(module, source)
    assert source.registered
    for kind, name in source.registered:
        assert name not in plugins.names(kind)  # an example must not be called like a built-in
        registry.create(kind, name, {})
    if page == "hooks.md":
        assert source.hooks == sorted(source.hooks) and len(source.hooks) == PAGES[page].count(
            f"## `{HOOK_PREFIX}"
        )


def test_the_guide_needs_no_numba(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "numba", None)
    module = play_page("plugins.md", monkeypatch, tmp_path)
    assert module.Rested().bind(Setting(dim=2, n_arms=2, n_clients=2, horizon=9)).compiled() is None


def test_a_block_that_fails_or_prints_something_else_would_be_noticed(monkeypatch, tmp_path):
    for wrong in ("```python\n1 / 0\n```\n", "```python\nprint(1)\n```\n\n```text\n2\n```\n"):
        monkeypatch.setitem(PAGES, "wrong.md", wrong)
        with pytest.raises((ZeroDivisionError, AssertionError)):
            play_page("wrong.md", monkeypatch, tmp_path)


def list_commands(page):
    """Yield every line of a bash block that calls fedsuplin."""
    for block in re.findall(r"^```bash\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL):
        yield from (line for line in block.splitlines() if line.startswith("fedsuplin "))


def test_the_guides_package_is_what_the_command_writes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (line,) = [
        line for line in list_commands("plugins.md") if line.startswith("fedsuplin plugins new ")
    ]
    called = CliRunner().invoke(root_command, shlex.split(line)[1:])
    assert called.exit_code == 0, called.output
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written and all(f"`{Path(file).name}`" in PAGES["plugins.md"] for file in written)


def test_the_page_on_federations_lists_every_message_method_status_and_metric():
    from fedsuplin.federation.service import STATUS_CODES
    from fedsuplin.federation.telemetry import Metrics
    from fedsuplin.federation.wire import METHODS
    from fedsuplin.live.messages import Message

    page = PAGES["federation.md"]
    kinds = {
        each.kind: each.__name__
        for each in Message.__subclasses__()
        if each.__module__.startswith("fedsuplin.")
    }
    assert dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)) == {
        str(kind): name for kind, name in kinds.items()
    }
    assert re.findall(
        r"^\| `([A-Z]\w+)` \| `\w+Request` → `\w+Answer` \|", page, re.MULTILINE
    ) == list(METHODS)
    rows = re.findall(r"^\| `([A-Z_]+)` \| (`.*?`) \|", page, re.MULTILINE)
    listed = {
        reason: status for status, reasons in rows for reason in re.findall(r"`(\w+)`", reasons)
    }
    assert listed == {reason: status.name for reason, status in STATUS_CODES.items()}
    families = {family.name for family in Metrics().registry.collect()}
    assert {
        name.removesuffix("_total") for name in re.findall(r"`(fedsuplin_\w+)`", page)
    } == families


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.tree
def test_every_link_of_a_guide_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", PAGES[page])
    headings = re.findall(r"^#+ (.*)$", PAGES[page], re.MULTILINE)
    anchors = {
        re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings
    }  # as GitHub makes them
    for link in links:
        path, _, anchor = link.partition("#")
        assert not path or (DOCS / page).parent.joinpath(path).exists(), link
        assert path or anchor in anchors, (
            link
        )  # those of other pages are checked when the site is built
