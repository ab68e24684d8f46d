"""Make, bind and ask the parts of a recipe, and list their keywords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsuplin_ext.rules import is_compiled

from ..contracts.protocols import PULL_METHODS
from ..contracts.setting import Setting
from ..contracts.variant import AXES
from ..errors import FedsuplinError, PluginError
from ..registry import check_plugin, list_parameters, plugins
from .rules import make_rule


def make_part(axis: str, given: Any, keywords: Mapping[str, Any]) -> Any:
    """Return the part for one axis, given by name, as an object or as a bare function."""
    if _is_bare_function(axis, given):
        return Bare(axis, given)
    return (
        plugins.create(AXES[axis], given, dict(keywords))
        if isinstance(given, str)
        else check_plugin(AXES[axis], given)
    )


def _is_bare_function(axis: str, given: Any) -> bool:
    """Return whether a part was given as a function without the method of its axis."""
    return (
        axis in PULL_METHODS
        and (callable(given) or is_compiled(given))
        and not hasattr(given, PULL_METHODS[axis].name)
    )


class Bare:
    """A trigger, a weighting or a policy that was given as a function alone."""

    def __init__(self, axis: str, function: Any) -> None:
        self._function = function
        setattr(
            self,
            PULL_METHODS[axis].name,
            make_rule(axis, self) if is_compiled(function) else function,
        )

    def compiled(self) -> Any:
        """Return the part's function if it is compiled, else None."""
        return self._function if is_compiled(self._function) else None

    def __repr__(self) -> str:
        return f"Bare({getattr(self._function, '__qualname__', self._function)})"


def bind_part(axis: str, part: Any, setting: Setting) -> Any:
    """Fill in what a part leaves open until the sizes are known, if it has `bind`."""
    return (
        check_plugin(AXES[axis], ask_part(part, "bind", setting)) if hasattr(part, "bind") else part
    )


def ask_part(part: Any, method: str, setting: Setting) -> Any:
    """Call a method of a part with the setting. Whatever it raises becomes a PluginError."""
    try:
        return getattr(part, method)(setting)
    except FedsuplinError:
        raise
    except Exception as error:
        raise PluginError(f"{part!r}: {method} raised {type(error).__name__}: {error}") from error


def list_part_keywords(axis: str, name: str) -> set[str]:
    """Return the keywords of one part: its parameters, except those for drawing."""
    factory = plugins.factory(AXES[axis], name)
    return set(list_parameters(factory)) - set(getattr(factory, "drawing_only", ()))


def pick_part_keywords(axis: str, given: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for the keywords of one part, if it is made by name."""
    takes = list_part_keywords(axis, given) if isinstance(given, str) else ()
    return {key: value for key, value in values.items() if key in takes}
