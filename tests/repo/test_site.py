"""The documentation site: built without a complaint, it fetches nothing, and generated pages are as their command makes them."""

import csv
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.microbench.machine import read_load, read_processor_name
from fedsuplin.microbench.page import format_load_warning
from fedsuplin.microbench.settings import Effort
from fedsuplin.reproduce.experiment import Options
from fedsuplin.reproduce.markdown_page import write_markdown_page
from fedsuplin.reproduce.reproduction import EXPERIMENTS

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def tool(name):
    """A script of docs/tools as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "tools" / f"{name}.py")
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(root, site):
    """`mkdocs build --strict` of a copy of the repository; its exit code and what it said."""
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        root / "mkdocs.yml",
        "--site-dir",
        site,
    ]
    done = subprocess.run(
        command,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"COLUMNS": "200"},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    place = tmp_path_factory.mktemp("site")
    code, told = built(ROOT, place)
    assert code == 0, told
    return place, told


# --- the build ----------------------------------------------------------------------------------------------------------------


def test_the_build_has_nothing_to_complain_of(site):
    """Not even what mkdocs only mentions, as INFO: a link, an anchor or a page that is missing."""
    lines = [line for line in site[1].splitlines() if line.strip()]
    usual = (
        "Cleaning site directory",
        "Building documentation to directory",
        "Documentation built in",
    )
    assert [line for line in lines if not any(words in line for words in usual)] == []


def test_a_broken_link_or_anchor_is_an_error(tmp_path):
    """The build would notice: a small site with the settings of ours."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "docs/pictures").mkdir(parents=True)
    shutil.copytree(DOCS / "tools", tmp_path / "docs/tools")
    shutil.copy(DOCS / "site.css", tmp_path / "docs")
    (tmp_path / "mkdocs.yml").write_text(
        re.sub(r"^watch:.*\n", "", settings.partition("\nnav:")[0], flags=re.MULTILINE)
    )
    page = "# Page\n\n[a](missing.md)\n\n[b](#nowhere)\n\n[c](other.md#nowhere-else)\n"
    (tmp_path / "docs/index.md").write_text(page)
    (tmp_path / "docs/other.md").write_text("# Another page\n")
    code, told = built(tmp_path, tmp_path / "site")
    assert code != 0
    assert all(words in told for words in ("missing.md", "'#nowhere'", "nowhere-else")), told


def test_a_page_fetches_nothing_from_another_host(site):
    """Scripts, styles, fonts, pictures and frames are the site's own, in pages and in style sheets; links may lead elsewhere."""
    fetched = re.compile(
        r"<(?:script|img|iframe|source|video|audio|embed|object|link)\b[^>]*?(?:src|href|data)=[\"']?((?:https?:)?//[^\"'>\s]+)"
    )
    pages = list(site[0].rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert fetched.findall(page.read_text(encoding="utf-8")) == [], page
    for sheet in site[0].rglob("*.css"):
        found = re.findall(
            r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)",
            sheet.read_text(encoding="utf-8"),
        )
        assert found == [], sheet


def test_every_page_is_in_the_navigation_and_every_public_name_in_the_reference(site):
    reference = (site[0] / "api.html").read_text(encoding="utf-8")
    for name in fsl.__all__:
        anchors = (
            f'id="fedsuplin.{name}"',
            f'id="fedsuplin.{name}.{name}"',
        )  # a function in a module of its own name
        assert any(anchor in reference for anchor in anchors), name
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    for page in DOCS.rglob("*.md"):
        assert page.relative_to(DOCS).as_posix() in navigation


def test_examples_of_docstrings_are_blocks_of_code_in_the_reference(site):
    reference = (site[0] / "api.html").read_text(encoding="utf-8")
    assert "language-pycon" in reference and "<blockquote>" not in reference
    spec = tool("docstrings")
    assert spec.with_blocks("One.\n\n>>> 1\n1\n") == "One.\n\n```pycon\n>>> 1\n1\n```\n"


# --- generated pages ----------------------------------------------------------------------------------------------------------


def test_the_pages_of_the_policies_are_what_the_code_says_today():
    """Else: python docs/tools/policies.py."""
    pages = tool("policies").pages()
    assert {path.name for path in (DOCS / "policies").iterdir()} == pages.keys()
    for name, text in pages.items():
        assert (DOCS / "policies" / name).read_text(encoding="utf-8") == text, name


def test_the_pictures_are_those_that_the_script_draws(tmp_path):
    """By name: how a line is drawn differs between versions of matplotlib."""
    pictures = tool("pictures")
    assert list(pictures.LOOKS) == ["light", "dark"]
    pictures.LOOKS.pop("dark")  # the same again
    light = [path.name for path in pictures.write(tmp_path)]
    drawn = {name.replace("-light", mode) for name in light for mode in ("-light", "-dark")}
    assert drawn | {"favicon.svg"} == {path.name for path in (DOCS / "pictures").iterdir()}
    shown = set(
        re.findall(
            r"\(pictures/([\w.-]+)#only-(?:light|dark)\)",
            (DOCS / "algorithm.md").read_text(encoding="utf-8"),
        )
    )
    assert shown == drawn
    assert all(path.read_bytes().startswith(b"<?xml") for path in tmp_path.iterdir())


def shape(page):
    """Headings, heads of tables, and the first column of every table: what does not depend on what was measured."""
    lines = page.splitlines()
    heads = [
        line
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("#") or below.startswith("|--")
    ]
    return heads, [line.split("|")[1].strip() for line in lines if line.startswith("| ")]


def test_the_page_of_the_benchmarks_has_the_shape_that_the_command_writes(tmp_path, monkeypatch):
    """Else: fedsuplin bench --markdown docs/benchmarks.md."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        benchmark, "QUICK", Effort(turns=1, kernel_turns=5, pulls=1000, numpy_rounds=20)
    )
    done = CliRunner().invoke(root_command, ["bench", "--quick", "--json", "--markdown", "made.md"])
    assert done.exit_code == 0 and "wrote made.md" in done.stderr, done.output
    assert done.stdout.startswith("{") and done.stdout.endswith("}\n")  # as JSON, and nothing else
    made, kept = (
        path.read_text(encoding="utf-8") for path in (tmp_path / "made.md", DOCS / "benchmarks.md")
    )
    assert shape(made) == shape(kept)
    assert (
        "`fedsuplin bench --quick --markdown made.md`" in made
        and "`fedsuplin bench --markdown docs/benchmarks.md`" in kept
    )
    assert f"fedsuplin {fsl.__version__}" in made and time.strftime("%Y-%m-", time.gmtime()) in made


def test_a_page_of_a_busy_machine_says_so(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert "Other processes" in format_load_warning(3.0) and format_load_warning(0.4) == ""
    assert read_processor_name()
    monkeypatch.delattr(os, "getloadavg", raising=False)
    assert read_load() is None


def test_the_page_of_the_results_has_the_shape_that_the_command_writes(tmp_path):
    """Every experiment that it was made of, in order, with its figure and its tables; the paper's four at least.

    Else: fedsuplin reproduce all --movielens FOLDER --markdown docs/results.md.
    """
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    empty = write_markdown_page(tmp_path / "made.md", [], Options()).read_text(encoding="utf-8")
    assert page.partition("\n\n|")[0] == empty.partition("\n\n|")[0]
    assert (
        shape(page)[1][: len(shape(empty)[1])] == shape(empty)[1]
    )  # what it says of its making, and the overview's head
    command = re.search(
        r"^\| command \| `fedsuplin reproduce (.*?) --.*--markdown docs/results.md` \|$",
        page,
        re.MULTILINE,
    )
    ran = command[1].split()
    assert ran == [name for name in EXPERIMENTS if name in ran] and {
        "arrivals",
        "clients",
        "tradeoff",
        "movielens",
    } <= set(ran)
    assert re.findall(r"^## (.*) \{ #(\w+) \}$", page, re.MULTILINE) == [
        (EXPERIMENTS[name].title, name) for name in ran
    ]
    for name in ran:
        assert (
            f"](results/{name}.png)" in page
            and (DOCS / "results" / f"{name}.png").stat().st_size < 200_000
        )
        assert f"### Settings of {name}" in page and f"### Means of {name}" in page
    assert {path.name for path in (DOCS / "results").iterdir()} == {f"{name}.png" for name in ran}


def test_reproduce_writes_its_page_as_markdown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clients = EXPERIMENTS["clients"]
    monkeypatch.setattr(clients, "counts", (2, 4))
    monkeypatch.setattr(clients, "pulls_each", 60)
    given = [
        "reproduce",
        "clients",
        "movielens",
        "--quick",
        "--seeds",
        "2",
        "--markdown",
        "made.md",
        "--quiet",
    ]
    done = CliRunner().invoke(root_command, given)
    assert done.exit_code == 0, done.output
    page = (tmp_path / "made.md").read_text(encoding="utf-8")
    assert "`fedsuplin reproduce clients movielens --quick --seeds 2 --markdown made.md`" in page
    assert (tmp_path / "made/clients.png").read_bytes()[:4] == b"\x89PNG" and not (
        tmp_path / "made/movielens.png"
    ).exists()
    assert page.count("it needs a MovieLens release") == 2
    with (tmp_path / "reproduction/clients/verdicts.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        assert all(row["claim"] in page and row["measured"] in page for row in csv.DictReader(file))
