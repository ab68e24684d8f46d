"""Optional packages, imported when needed, with what to install if missing."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import MissingExtra

PACKAGES = {
    "sklearn": "scikit-learn",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "prometheus_client": "prometheus-client",
}  # packages whose name differs from their module's


def import_extra(module: str, extra: str, what: str) -> Any:
    """Import a module of an optional extra, which `what` needs.

    The error for one that is missing says which extra to install.

    >>> import_extra("json.decoder", "none", "this example").__name__
    'json.decoder'
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        top = module.partition(".")[0]
        raise MissingExtra(
            f"{what} needs {PACKAGES.get(top, top)}: pip install 'fedsuplin[{extra}]'"
        ) from None
