"""The decorator that states which kinds of plugin a check applies to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..contracts.protocols import PULL_METHODS
from ..contracts.variant import AXES
from .subject import Subject

# The keyword of `make` that takes a plugin of this kind.
AXIS = {kind: axis for axis, kind in AXES.items()}
# The kinds that the engine asks at every pull.
PULL_KINDS = tuple(kind for kind, axis in AXIS.items() if axis in PULL_METHODS)
Check = Callable[[Subject], None]
Checker = TypeVar("Checker", bound=Check)
Condition = Callable[[Any], bool]
OCCASIONS: dict[Check, tuple[tuple[str, ...], Condition]] = {}
"""Each check with its kinds of plugin and the condition under which it applies to one of them."""


def applies_to(*kinds: str, when: Condition = lambda plugin: True) -> Callable[[Checker], Checker]:
    """Make a function a check for the plugins of these kinds for which `when` is true."""

    def add(function: Checker) -> Checker:
        OCCASIONS[function] = kinds, when
        return function

    return add
