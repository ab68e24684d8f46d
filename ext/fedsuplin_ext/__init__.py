"""The compiled core of fedsuplin: norms, screening, gram, rules and the loop."""

from pathlib import Path

__all__ = ["get_include"]


def get_include() -> str:
    """The `include_path` for cythonize, with which a plugin can cimport signatures and formulas."""
    return str(Path(__file__).parents[1])
