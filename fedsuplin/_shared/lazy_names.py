"""Import public names, and modules of other packages, when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def make_lazy_names(
    namespace: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a module that loads each name from its home.

    `homes` gives the full name of the module that defines each name. A home that ends with the
    name itself is a module that is public as a whole.
    """
    own = namespace["__name__"]

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        home = importlib.import_module(homes[name])
        value = home if homes[name].rpartition(".")[2] == name else getattr(home, name)
        namespace[name] = value
        return value

    return load, lambda: sorted(homes)


class LazyModule:
    """Stands for a module of another package, and imports it when one of its names is used.

    >>> LazyModule("math").sqrt(4)
    2.0
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
