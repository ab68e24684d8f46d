"""The decorator that says which kinds of plugin a check applies to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..contracts.protocols import PULL_METHODS
from ..contracts.variant import AXES
from .subject import Subject

AXIS = {kind: axis for axis, kind in AXES.items()}  # the keyword of `make` for a part of this kind
PULL_KINDS = tuple(
    kind for kind, axis in AXIS.items() if axis in PULL_METHODS
)  # the kinds that the engine asks at every pull
Check = Callable[[Subject], None]
Checker = TypeVar("Checker", bound=Check)
Occasion = Callable[[Any], bool]
OCCASIONS: dict[Check, tuple[tuple[str, ...], Occasion]] = {}  # the kinds, and when it applies


def applies_to(
    *kinds: str, when: Callable[[Any], bool] = lambda plugin: True
) -> Callable[[Checker], Checker]:
    """Make a function a check of plugins of these kinds, for those plugins for which `when` is true."""

    def add(function: Checker) -> Checker:
        OCCASIONS[function] = kinds, when
        return function

    return add
