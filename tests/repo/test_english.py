"""Sources and pages use plain words, and lines of code fit in 100 columns."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parents[2]
NOT_PLAIN = re.compile(
    r"(?<![a-z])(told|nobody|somebody|anybody|heard[ _]of)(?![a-z])", re.IGNORECASE
)  # in names too
PROSE = (".py", ".pyi", ".pyx", ".pxd", ".h", ".c", ".md", ".toml", ".yml", ".cff", ".ipynb", "")
CODE = (".py", ".pyi", ".pyx", ".pxd", ".h", ".c")
WIDEST = 100


def list_files(endings):
    """The files that git tracks, and those that it would, with one of these endings."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in names.splitlines()]
    found = [path for path in paths if path.suffix in endings and path.is_file()]
    assert len(found) > 100
    return [path for path in found if path != Path(__file__)]


def test_no_word_that_the_style_guide_has_a_plainer_one_for():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in list_files(PROSE)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if NOT_PLAIN.search(line)
    ]
    assert found == []


def test_no_line_of_code_is_wider_than_100_characters():
    found = [
        f"{path.relative_to(ROOT)}:{number} has {len(line)}"
        for path in list_files(CODE)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > WIDEST
    ]
    assert found == []
