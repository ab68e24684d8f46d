"""Draw functions at random, for a reader who guesses the file of each from name and docstring.

python tests/repo/draw_functions.py --seed 1              24 names with their docstrings
python tests/repo/draw_functions.py --seed 1 --answers    the same with the file of each
python tests/repo/draw_functions.py --tree            the files of fedsuplin/, for the reader
"""

from __future__ import annotations

import argparse
import ast
import random
from pathlib import Path

ROOT = Path(__file__).parents[2]


def list_functions() -> list[tuple[Path, str, str]]:
    """Return file, name and docstring of every function and method that has a docstring."""
    found = []
    for path in sorted((ROOT / "fedsuplin").rglob("*.py")):
        scopes = [("", ast.parse(path.read_text(encoding="utf-8")))]
        while scopes:
            prefix, scope = scopes.pop()
            for node in scope.body:
                if isinstance(node, ast.ClassDef):
                    scopes.append((f"{node.name}.", node))
                is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                if is_function and (text := ast.get_docstring(node)):
                    summary = text.partition("\n\n")[0]
                    found.append((path.relative_to(ROOT), prefix + node.name, summary))
    return sorted(found)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=24)
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--tree", action="store_true")
    given = parser.parse_args()
    if given.tree:
        for path in sorted((ROOT / "fedsuplin").rglob("*.py")):
            print(path.relative_to(ROOT))
        return
    drawn = random.Random(given.seed).sample(list_functions(), given.number)
    for number, (path, name, summary) in enumerate(drawn, start=1):
        print(f"{number}. {name}: {' '.join(summary.split())}")
        if given.answers:
            print(f"   {path}")


if __name__ == "__main__":
    main()
