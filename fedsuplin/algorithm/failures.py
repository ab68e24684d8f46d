"""The exception for each status with which the compiled core stops."""

from __future__ import annotations

from typing import Any

from fedsuplin_ext.loop import Engine

from ..errors import InvalidInput, NumericalError, PluginError

AXIS_AT_FAULT = {"bad weight": "weighting", "bad trigger": "trigger", "bad choice": "policy"}


def build_failure(engine: Engine, status: str, where: str = "") -> BaseException:
    """Return the exception for the status with which an engine stopped.

    `engine` is the compiled loop of a run or of a live client. `where` says at which pull and
    client, in words. Ctrl-C in the Python code of a plugin stays KeyboardInterrupt.
    """
    at = f", {where}" if where else ""
    if status in AXIS_AT_FAULT:
        rule = engine.rules[AXIS_AT_FAULT[status]]
        if isinstance(rule.error, KeyboardInterrupt):
            return rule.error
        error = PluginError(f"{rule.name} {describe_fault(engine, rule)}{at}")
        error.__cause__ = rule.error
        return error
    if status == "not positive definite":
        return NumericalError(
            "a Gram matrix is no longer positive definite, or hardly, in double precision"
            f"{at}; a larger ridge or weights in a smaller range help"
        )
    if status == "not finite":
        return NumericalError(
            f"rewards, their sums or estimates are no longer finite{at}: "
            "rewards or weights are too large for double precision"
        )
    if status == "bad client":
        return InvalidInput(f"the client is out of range{at}")
    return InvalidInput(
        "this policy syncs all clients, so each must come once per round; "
        f"the client came twice{at}"
    )


def describe_fault(engine: Engine, rule: Any) -> str:
    """Return in words the fault of a plugin's rule that made the engine fail."""
    if rule.error is not None:
        return f"raised {type(rule.error).__name__}: {rule.error}"
    if rule.axis == "policy":
        return f"chose {engine.chosen}, which is not layer·K + arm for an available arm"
    return (
        "returned a weight that is negative or not finite"
        if rule.axis == "weighting"
        else "returned a number below 0"
    )
