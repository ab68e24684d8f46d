"""The compiled core of fedsuplin: norms, screening, gram, rules and the loop."""

from pathlib import Path

__all__ = ["get_include"]


def get_include() -> str:
    """The folder for the `include_path` of cythonize, so that a plugin can cimport our .pxd: signatures, formulas."""
    return str(Path(__file__).parents[1])
