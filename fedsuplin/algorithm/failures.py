"""The exception for each status with which the compiled core stops."""

from __future__ import annotations

from typing import Any

from fedsuplin_ext.loop import Engine

from ..errors import FedsuplinError, InvalidInput, NumericalError, PluginError

AXIS_AT_FAULT = {"bad weight": "weighting", "bad trigger": "trigger", "bad choice": "policy"}


def build_failure(engine: Engine, status: str, pull: int, client: int) -> BaseException:
    """The exception for a loop that could not go on."""
    where = f"at pull {pull} (client {client})"
    if status in AXIS_AT_FAULT:
        rule = engine.rules[AXIS_AT_FAULT[status]]
        if isinstance(rule.error, KeyboardInterrupt):
            return rule.error
        error: FedsuplinError = PluginError(f"{rule.name} {describe_fault(engine, rule)}, {where}")
        error.__cause__ = rule.error
        return error
    if status == "not positive definite":
        return NumericalError(
            f"a Gram matrix is no longer positive definite, or hardly, in double precision, {where}; "
            "a larger ridge or weights in a smaller range help"
        )
    if status == "not finite":
        return NumericalError(
            f"rewards, their sums or estimates are no longer finite, {where}: "
            "rewards or weights are too large for double precision"
        )
    if status == "bad client":
        return InvalidInput(f"client {client} is out of range, {where}")
    return InvalidInput(
        f"this policy syncs all clients, so each must come once a round; client {client} came twice, {where}"
    )


def describe_fault(engine: Engine, rule: Any) -> str:
    """What a plugin's rule did that the loop can't go on with."""
    if rule.error is not None:
        return f"raised {type(rule.error).__name__}: {rule.error}"
    if rule.axis == "policy":
        return f"chose {engine.chosen}, which is not layer·K + arm for an arm that is there"
    return (
        "returned a weight that is negative or not finite"
        if rule.axis == "weighting"
        else "returned a number below 0"
    )
