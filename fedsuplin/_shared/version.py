"""The version of fedsuplin, and those of the software that it computes with."""

from __future__ import annotations

__version__ = "0.1.0"


def list_software_versions(kernels: str) -> dict[str, str]:
    """Return the version of fedsuplin and of everything else that a result was computed with."""
    import platform  # here, so that it costs nothing to import __version__

    import numpy as np
    import scipy

    return {
        "fedsuplin": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "kernels": kernels,
    }
