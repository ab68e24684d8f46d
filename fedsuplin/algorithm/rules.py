"""Make the rules that the engine asks at each pull."""

from __future__ import annotations

from typing import Any

from fedsuplin_ext.rules import Rule

from ..errors import FedsuplinError, PluginError


def make_rule(axis: str, part: Any) -> Rule:
    """Return the rule that a part gives the engine, checked. An error names the part."""
    try:
        return Rule(axis, part)
    except FedsuplinError:
        raise
    except Exception as error:
        message = str(error) if str(error).startswith(repr(part)) else f"{part!r}: {error}"
        raise PluginError(message) from error
