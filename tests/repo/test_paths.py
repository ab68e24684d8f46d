"""Paths on the pages exist, and the maps in README and CONTRIBUTING show the rooms."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAPS = ["README.md", "CONTRIBUTING.md"]
FOLDERS = r"fedsuplin|ext|plugins|tests|bench|docs|examples|\.ci|\.github"
PATH = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*[\w/]")
FILE = re.compile(r"`([\w-]+\.(?:py|pyi|pyx|pxd|h|c|yml))`")
MADE = ("docs/_build",)  # by a command of the page


def missing_paths(text):
    """The paths of a text that are not in the repository."""
    named = (path for path in PATH.findall(text) if not path.startswith(MADE))
    return [path for path in named if not (ROOT / path).exists()]


def missing_files(text):
    """The files that a text names without a folder, and that no folder has."""
    return [name for name in FILE.findall(text) if not any(ROOT.glob(f"*/**/{name}"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_on_a_page_exists(page):
    text = page.read_text(encoding="utf-8")
    assert missing_paths(text) == [] and missing_files(text) == []


def test_a_path_that_is_gone_is_noticed():
    text = "`fedsuplin/protocols.py` and tests/test_gram.py; `design.py`, `norms.pyx`, `tests/ext`"
    assert missing_paths(text) == ["fedsuplin/protocols.py", "tests/test_gram.py"]
    assert missing_files(text) == ["design.py"]


def read_rows():
    """The rows of the house, from top to bottom, as test_house.py has them."""
    tree = ast.parse((ROOT / "tests/repo/test_house.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROWS"
    )
    return [sorted(", ".join(row).split(", ")) for row in ast.literal_eval(value)]


@pytest.mark.parametrize("page", MAPS)
def test_the_map_of_the_rooms_is_the_house(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    table = re.search(r"^\| room \| .* \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [line.split("|")[1] for line in table[1].splitlines()]
    rows = [sorted(re.findall(r"`(\w+)(?:/|\.py)?`", cell)) for cell in cells]
    assert rows == [row for row in read_rows() if row != ["__main__"]]


def test_the_map_of_the_folders_is_complete():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in ("fedsuplin", "ext/fedsuplin_ext", "plugins", "tests", "bench", "bench/checks"):
        assert f"| `{path}/` |" in readme
    rooms = {path.name for path in (ROOT / "fedsuplin").iterdir() if path.is_dir()}
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert tested - rooms - {"ext", "plugins", "repo", "stubs", "__pycache__"} == set()
