"""The documentation site: it builds without warnings, fetches nothing, has every public name.

Generated pages are as their command makes them.
"""

import csv
import importlib
import importlib.util
import inspect
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
import fedsuplin.plugin
from fedsuplin import errors
from fedsuplin.cli import bench
from fedsuplin.cli.main import root_command
from fedsuplin.microbench.machine import read_load, read_processor_name
from fedsuplin.microbench.page import format_load_warning
from fedsuplin.microbench.settings import Effort
from fedsuplin.reproduce.experiment import Options
from fedsuplin.reproduce.markdown_page import make_anchor, write_markdown_page
from fedsuplin.reproduce.reproduction import EXPERIMENTS

pytestmark = pytest.mark.tree
ROOT = next(each for each in Path(__file__).resolve().parents if (each / "pyproject.toml").exists())
DOCS = ROOT / "docs"
BUILT = shutil.ignore_patterns("_build", "files", "build", "*.rst", "*.so", "*.c", "__pycache__")


def load_tool(name, folder="tools"):
    """Load a script of docs/tools as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / folder / f"{name}.py")
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = load_tool("api_reference", ".")  # the one list of public names


def build(docs, site, *options):
    """Run `python -m sphinx -W --keep-going`, and return its exit code and its warnings."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += [*options, docs, site]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site from a copy, since generated pages are written beside the others."""
    copy = tmp_path_factory.mktemp("repository")
    for folder in ("examples", "fedsuplin"):  # what pages link to
        shutil.copytree(ROOT / folder, copy / folder, ignore=BUILT)
    shutil.copytree(DOCS, copy / "docs", ignore=BUILT)
    shutil.copytree(DOCS / "templates", copy / "docs/templates", dirs_exist_ok=True)
    code, output = build(copy / "docs", copy / "html")
    assert code == 0, output
    return copy / "html", output


def read_html(site, page):
    """Return the HTML of a page."""
    return (site[0] / page).read_text(encoding="utf-8")


# --- the build ------------------------------------------------------------------------------------


def test_the_build_has_no_warnings(site):
    """No link, anchor, picture or reference is missing, and every page is in the navigation."""
    assert site[1].strip() == ""


def test_a_broken_link_anchor_or_picture_or_a_page_without_navigation_is_an_error(tmp_path):
    """The build would notice: a small site with our settings, without the API pages."""
    for name in ("tools", "templates", "static", "pictures"):
        shutil.copytree(DOCS / name, tmp_path / "docs" / name)
    for name in ("conf.py", "api_reference.py"):
        shutil.copy(DOCS / name, tmp_path / "docs")
    (tmp_path / "docs/index.md").write_text("# Page\n\n```{toctree}\nother\n```\n")
    (tmp_path / "docs/other.md").write_text("# Another page\n\n[to itself](#another-page)\n")
    without_api = ("-D", "extensions=myst_parser,github_markdown")
    code, output = build(tmp_path / "docs", tmp_path / "good", *without_api)
    assert code == 0, output
    broken = "[a](missing.md)\n\n[b](#nowhere)\n\n[c](other.md#nowhere-else)\n\n"
    broken += "![d](gone.png)\n\n{py:class}`Absent`\n"
    (tmp_path / "docs/index.md").write_text(f"# Page\n\n{broken}\n```{{toctree}}\nother\n```\n")
    (tmp_path / "docs/lonely.md").write_text("# A page that no other mentions\n")
    code, output = build(tmp_path / "docs", tmp_path / "bad", *without_api)
    assert code != 0
    for words in ("missing.md", "'nowhere'", "nowhere-else", "gone.png", "Absent", "lonely.md"):
        assert words in output, f"{words} is not in:\n{output}"


def test_a_page_fetches_nothing_from_another_host(site):
    """Scripts, styles, fonts, pictures and frames are the site's own; links may lead elsewhere."""
    fetched = re.compile(
        r"<(?:script|img|iframe|source|video|audio|embed|object|link)\b[^>]*?"
        r"(?:src|href|data)=[\"']?((?:https?:)?//[^\"'>\s]+)"
    )
    pages = list(site[0].rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        assert fetched.findall(page.read_text(encoding="utf-8")) == [], page
    for sheet in site[0].rglob("*.css"):
        imported = r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)"
        assert re.findall(imported, sheet.read_text(encoding="utf-8")) == [], sheet
    assert "http" not in (DOCS / "conf.py").read_text(encoding="utf-8")


# --- navigation and pages -------------------------------------------------------------------------


def list_entries(page):
    """Yield the pages that the toctrees of a page lead to."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for tree in re.findall(r"^```\{toctree\}\n((?:.*\n)*?)```$", text, re.MULTILINE):
        for line in tree.splitlines():
            if line and not line.startswith(":"):
                target = re.sub(r".*<(.*)>$", r"\1", line)
                yield (Path(page).parent / f"{target}.md").as_posix()


def test_every_page_is_in_the_navigation_once():
    reached, left = ["index.md"], ["index.md"]
    while left:
        found = [page for page in list_entries(left.pop()) if (DOCS / page).exists()]
        reached += found
        left += found
    assert sorted(reached) == sorted(
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")
    )
    groups = {Path(page).stem for page in list_entries("api/index.md")}
    assert groups == REFERENCE.GROUPS.keys()


def test_every_page_has_the_sections_in_its_header_and_can_be_searched(site):
    sections = ("Algorithm", "Policies", "Guides", "How it works", "Results", "API")
    pages = [page for page in site[0].rglob("*.html") if "_static" not in page.parts]
    assert len(pages) > 80
    for page in pages:
        header = page.read_text(encoding="utf-8").partition("</header>")[0]
        for words in sections:
            assert re.search(rf">\s*{words}\s*</a>", header), f"{page}: {words}"
        assert "search-button" in header and "theme-switch" in header
    index = read_html(site, "searchindex.js")
    assert all(f'"{name}"' in index for name in ("index", "policies/async", "api/fedsuplin.run"))
    assert (site[0] / "search.html").exists()


def test_pictures_switch_with_the_theme(site):
    page = read_html(site, "algorithm.html")
    light, dark = (
        re.findall(rf'<img[^>]*class="only-{mode}"[^>]*src="([^"]+)"', page)
        for mode in ("light", "dark")  # each picture once for either
    )
    assert [name.replace("-light", "-dark") for name in light] == dark
    assert len(dark) == 5 and "<picture>" not in page
    assert all((site[0] / name).exists() for name in light + dark)


def test_links_out_of_docs_lead_to_pages_that_show_the_files(site):
    hooks = re.findall(
        r"^def (\w+)", (ROOT / "fedsuplin/hookspecs.py").read_text("utf-8"), re.MULTILINE
    )
    source = read_html(site, "files/fedsuplin/hookspecs.py.html")
    assert hooks and all(f">{name}<" in source for name in hooks)
    assert 'href="files/fedsuplin/hookspecs.py.html"' in read_html(site, "hooks.html")
    assert "pyproject.toml" in read_html(site, "files/examples/fedsuplin-demo.html")
    assert list(site[0].glob("_downloads/*/first-steps.ipynb"))


def test_code_has_copy_buttons(site):
    for page in ("index.html", "api/fedsuplin.run.html", "policies/async.html"):
        assert "copybutton.js" in read_html(site, page)


# --- the API pages --------------------------------------------------------------------------------


def list_names_of(module):
    """Return the listed names of a module."""
    names = (name.rpartition(".") for name in REFERENCE.list_names())
    return sorted(name for where, _, name in names if where == module)


def test_the_list_of_public_names_is_complete():
    """Else: docs/api_reference.py."""
    names = REFERENCE.list_names()
    assert len(set(names)) == len(names)
    assert {name.rpartition(".")[0] for name in names} == set(REFERENCE.DOORS)
    for module in set(REFERENCE.DOORS) - {"fedsuplin.errors"}:
        assert list_names_of(module) == sorted(importlib.import_module(module).__all__)
    classes = [thing for thing in vars(errors).values() if inspect.isclass(thing)]
    raised = [thing.__name__ for thing in classes if issubclass(thing, Exception)]
    assert len(raised) >= 10 and list_names_of("fedsuplin.errors") == sorted(raised)


def test_what_dir_shows_is_in_the_list():
    assert dir(fsl) == list_names_of("fedsuplin")
    assert dir(fedsuplin.plugin) == list_names_of("fedsuplin.plugin")


def test_a_name_that_two_modules_export_has_one_page():
    homes = REFERENCE.find_home_pages()
    assert homes["fedsuplin.plugin.PluginError"] == "fedsuplin.errors.PluginError"
    assert homes["fedsuplin.plugin.Variant"] == homes["fedsuplin.Variant"] == "fedsuplin.Variant"
    things = [REFERENCE.resolve(name) for name in set(homes.values())]
    assert len({id(thing) for thing in things}) == len(things)


def test_plain_objects_say_what_they_are():
    """Their docstring is that of their type, so docs/api_reference.py has a sentence in DATA."""
    things = {name: REFERENCE.resolve(name) for name in REFERENCE.list_names()}
    plain = {
        name
        for name, thing in things.items()
        if not inspect.isclass(thing) and not inspect.isroutine(thing)
    }
    described = [things[name] for name in REFERENCE.DATA]
    assert [name for name in plain if not any(things[name] is thing for thing in described)] == []
    assert REFERENCE.DATA.keys() <= plain


def test_every_public_name_is_described_on_an_api_page(site):
    pages = {
        page.stem: page.read_text(encoding="utf-8") for page in (site[0] / "api").glob("*.html")
    }
    for name, home in REFERENCE.find_home_pages().items():
        described = [page for page, text in pages.items() if f'id="{home}"' in text]
        assert len(described) == 1, f"{name} is on {described}"
        assert home in REFERENCE.DATA or described == [home]
    for key, group in REFERENCE.GROUPS.items():
        assert f'href="{key}.html">{group.title}</a>' in pages["index"]
        for section in group.sections:
            for name in section.names:
                assert name not in pages or f'"{name}.html#' in pages[key], f"{key}: {name}"


def test_docstrings_become_tables_and_blocks_of_code(site):
    """A numpydoc section is a field, an example is a block; wrong indentation makes a quotation."""
    fields = {"Parameters", "Returns", "Raises", "Attributes"}
    for page in (site[0] / "api").glob("fedsuplin.*.html"):
        text, thing = page.read_text(encoding="utf-8"), REFERENCE.resolve(page.stem)
        doc = inspect.getdoc(thing) or ""
        for field in fields & set(re.findall(r"^(\w+)\n-+$", doc, re.MULTILINE)):
            assert f'{field}<span class="colon">' in text, f"{page.stem}: {field}"
        assert "<blockquote" not in text, page.stem
        assert (">>>" not in doc) or '<span class="gp">&gt;&gt;&gt; </span>' in text, page.stem


def test_links_to_a_name_lead_to_its_page(site):
    """`api/index.md#fedsuplin.Client` is the index on GitHub, and the name's page on the site."""
    linked = {
        (path.relative_to(DOCS).with_suffix(".html").as_posix(), name)
        for path in DOCS.rglob("*.md")
        for name in re.findall(r"api/index\.md#([\w.]+)\)", path.read_text(encoding="utf-8"))
    }
    assert ("algorithm.html", "fedsuplin.Client") in linked
    for page, name in linked:
        assert name in REFERENCE.list_names() and f'api/{name}.html#{name}"' in read_html(
            site, page
        )


# --- generated pages ------------------------------------------------------------------------------


def test_the_pages_of_the_policies_are_what_the_code_says_today():
    """Else: python docs/tools/policies.py."""
    pages = load_tool("policies").make_pages()
    assert {path.name for path in (DOCS / "policies").iterdir()} == pages.keys()
    for name, text in pages.items():
        assert (DOCS / "policies" / name).read_text(encoding="utf-8") == text, name


def test_the_pictures_are_those_that_the_script_draws(tmp_path):
    """By name: how a line is drawn differs between versions of matplotlib."""
    pictures = load_tool("pictures")
    assert list(pictures.LOOKS) == ["light", "dark"]
    pictures.LOOKS.pop("dark")  # the same again
    light = [path.name for path in pictures.write(tmp_path)]
    drawn = {name.replace("-light", mode) for name in light for mode in ("-light", "-dark")}
    assert drawn | {"favicon.svg"} == {path.name for path in (DOCS / "pictures").iterdir()}
    shown = set(
        re.findall(
            r'(?:src|srcset)="pictures/([\w.-]+)"',
            (DOCS / "algorithm.md").read_text(encoding="utf-8"),
        )
    )
    assert shown == drawn
    assert all(path.read_bytes().startswith(b"<?xml") for path in tmp_path.iterdir())


def find_shape(page):
    """Return headings, heads and first columns of tables: what does not depend on measurements."""
    lines = page.splitlines()
    heads = [
        line
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("#") or below.startswith("|--")
    ]
    firsts = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    return heads, [re.sub(r" \d[\d.]*$", "", cell) for cell in firsts]  # a peer's version


def test_the_page_of_the_benchmarks_has_the_shape_that_the_command_writes(tmp_path, monkeypatch):
    """Else: fedsuplin bench --markdown docs/benchmarks.md."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        bench, "QUICK", Effort(turns=1, kernel_turns=5, pulls=1000, numpy_rounds=20)
    )
    done = CliRunner().invoke(root_command, ["bench", "--quick", "--json", "--markdown", "made.md"])
    assert done.exit_code == 0 and "wrote made.md" in done.stderr, done.output
    assert done.stdout.startswith("{") and done.stdout.endswith("}\n")  # as JSON, and nothing else
    made, kept = (
        path.read_text(encoding="utf-8") for path in (tmp_path / "made.md", DOCS / "benchmarks.md")
    )
    assert find_shape(made) == find_shape(kept)
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
    """Every experiment is on it, in order, with figure and tables; the paper's four at least.

    Else: fedsuplin reproduce all --movielens FOLDER --markdown docs/results.md.
    """
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    empty = write_markdown_page(tmp_path / "made.md", [], Options()).read_text(encoding="utf-8")
    assert page.partition("\n\n|")[0] == empty.partition("\n\n|")[0]
    assert (
        find_shape(page)[1][: len(find_shape(empty)[1])] == find_shape(empty)[1]
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
    titles = [EXPERIMENTS[name].title for name in ran]
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == titles
    assert re.findall(r"^\| \[(.*)\]\(#(.*?)\) \|", page, re.MULTILINE) == [
        (title, make_anchor(title)) for title in titles
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
