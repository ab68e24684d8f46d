"""Find error messages that no test provokes: `raise` statements that the tests never reach.

pytest --cov tests && python bench/checks/unprovoked.py     reads the coverage of the tests

Fails if there is one. A bare `raise` and KeyboardInterrupt have no message of their own. Coverage
does not see what tests provoke in other processes: ELSEWHERE names those messages and their tests.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).parents[2]
# A piece of the message: the test that provokes it in a process of its own.
ELSEWHERE: dict[str, str] = {}


def list_raises(path: Path) -> list[ast.Raise]:
    """Return the `raise` statements of a file that have a message."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None
    ]
    return [node for node in found if ast.unparse(node.exc) != "KeyboardInterrupt"]


def find_unprovoked() -> list[str]:
    """Return the `raise` statements that were never reached, with their places."""
    data = CoverageData(str(ROOT / ".coverage"))
    data.read()
    found = []
    for file in sorted(data.measured_files()):
        path, executed = Path(file), set(data.lines(file) or ())
        for node in list_raises(path):
            text = ast.unparse(node)
            if node.lineno not in executed and not any(piece in text for piece in ELSEWHERE):
                found.append(f"{path}:{node.lineno}: {text[:110]}")
    return found


if __name__ == "__main__":
    missing = find_unprovoked()
    print("\n".join(missing) or "every error message of the Python code is provoked by a test")
    sys.exit(bool(missing))
