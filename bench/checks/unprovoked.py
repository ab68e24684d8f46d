"""Error messages that no test provokes: `raise` statements that the tests never came to.

pytest --cov tests && python bench/checks/unprovoked.py     reads what the first one measured; fails if it finds one

What only re-raises (`raise` alone), and KeyboardInterrupt, have no message of their own. What tests provoke in other processes is
not seen by coverage: ELSEWHERE names those places and the test that does.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).parents[2]
ELSEWHERE: dict[
    str, str
] = {}  # a piece of the message -> the test that provokes it in a process of its own


def raises(path: Path) -> list[ast.Raise]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None
    ]
    return [node for node in found if ast.unparse(node.exc) != "KeyboardInterrupt"]


def unprovoked() -> list[str]:
    data = CoverageData(str(ROOT / ".coverage"))
    data.read()
    found = []
    for file in sorted(data.measured_files()):
        path, executed = Path(file), set(data.lines(file) or ())
        for node in raises(path):
            text = ast.unparse(node)
            if node.lineno not in executed and not any(piece in text for piece in ELSEWHERE):
                found.append(f"{path}:{node.lineno}: {text[:110]}")
    return found


if __name__ == "__main__":
    missing = unprovoked()
    print("\n".join(missing) or "every error message of the Python code is provoked by a test")
    sys.exit(bool(missing))
