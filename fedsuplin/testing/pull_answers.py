"""Ask a rule many questions and judge its answers."""

from __future__ import annotations

import copy
import math
import numbers
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedsuplin_ext.rules import Rule

from ..contracts.protocols import PULL_METHODS
from .checks import AXIS
from .pull_inputs import INPUTS, Arguments
from .subject import Subject, bind_plugin, fail

GUARD = 64  # slots on either side of a plugin's own
UNTOUCHED = 12345.678
AGREEMENT = 1e-12  # relative: compiled code may add and multiply in another order


class Answer(NamedTuple):
    """What a rule said: with which arguments, as which call of a sequence, and the state after it."""

    number: int
    arguments: Arguments
    value: Any
    state: np.ndarray
    after: Arguments  # the arguments as it left them
    strayed: bool


def list_trials(subject: Subject) -> Iterator[tuple[Any, list[Arguments]]]:
    """The plugin, bound to each setting, and a sequence of inputs for it."""
    for setting in subject.settings:
        plugin = bind_plugin(subject.make(), setting)
        yield plugin, INPUTS[AXIS[subject.kind]](setting)
        if not hasattr(plugin, "bind") and subject.kind != "policies":
            return  # no setting makes a difference


def list_questions(subject: Subject) -> Iterator[tuple[Any, str, Callable[[], Iterator[Answer]]]]:
    """For each setting and each form: the plugin, the name of the form, and what asks it all inputs from fresh state."""
    for plugin, inputs in list_trials(subject):
        for name, form in find_forms(subject, plugin).items():
            yield plugin, name, partial(ask_rule, subject, plugin, form, inputs)


def find_forms(subject: Subject, plugin: Any) -> dict[str, Callable[..., Any]]:
    """The Python form as it is, and the compiled one, if there is one, through the pointer that the loop calls."""
    axis = AXIS[subject.kind]
    found = {"Python": getattr(plugin, PULL_METHODS[axis].name)}
    compiled = plugin.compiled() if hasattr(plugin, "compiled") else None
    if compiled is None:
        return found
    return found | {"compiled": Rule(axis, plugin, compiled)}


def ask_rule(
    subject: Subject, plugin: Any, form: Callable[..., Any], inputs: list[Arguments]
) -> Iterator[Answer]:
    """One call for each of the inputs, in a sequence that begins with fresh state."""
    size, usual = get_state_size(plugin), len(PULL_METHODS[AXIS[subject.kind]].arguments)
    slots = np.full(size + 2 * GUARD, UNTOUCHED)
    state, around = slots[GUARD : GUARD + size], np.r_[:GUARD, GUARD + size : len(slots)]
    state[:] = 0
    for number, arguments in enumerate(inputs):
        given = tuple(map(copy.copy, arguments if size else arguments[:usual]))
        try:
            value = form(*given, *([state] if size else []))
        except Exception as error:
            asked = Answer(number, arguments, None, state, given, False)
            fail(f"{format_call(subject, asked)} raised {type(error).__name__}: {error}", error)
        yield Answer(
            number, arguments, value, state.copy(), given, bool((slots[around] != UNTOUCHED).any())
        )


def get_state_size(plugin: Any) -> int:
    return getattr(plugin, "state_size", 0)


def format_call(subject: Subject, answer: Answer) -> str:
    """A call as its author would write it down; arrays that fill a screen are left at their shape."""
    method, usual, added = PULL_METHODS[AXIS[subject.kind]]
    asked = answer.arguments[: len(answer.after)]
    values = [
        f"{name}={format_value(value)}" for name, value in zip(usual + added, asked, strict=False)
    ]
    return f"{method}({', '.join(values)}) (call {answer.number + 1} from fresh state)"


def format_value(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    return f"{value.tolist()}" if value.size <= 6 else f"<{' × '.join(map(str, value.shape))}>"


def format_answer(answer: Answer) -> str:
    """The value, and the state that it came with."""
    return f"{answer.value!r}" + (
        f" with state {answer.state.tolist()}" if len(answer.state) else ""
    )


def find_fault_in_firing(value: Any, arguments: Arguments) -> str | None:
    return (
        None
        if isinstance(value, (bool, np.bool_, numbers.Integral)) and int(value) >= 0
        else "True or False (compiled, 1 or 0)"
    )


def find_fault_in_weight(value: Any, arguments: Arguments) -> str | None:
    return (
        None
        if isinstance(value, numbers.Real) and 0 <= float(value) < math.inf
        else "a finite number of at least 0"
    )


def find_fault_in_choice(value: Any, arguments: Arguments) -> str | None:
    estimates = arguments[0]
    there = np.flatnonzero(estimates > -np.inf)
    try:
        index = operator.index(value)
    except TypeError:
        index = -1
    return (
        None
        if index in there
        else f"layer·K + arm of an arm that is there: {', '.join(map(str, there[:20]))}"
    )


FAULT_FINDERS = {
    "trigger": find_fault_in_firing,
    "weighting": find_fault_in_weight,
    "policy": find_fault_in_choice,
}
SAME_ANSWER = {
    "trigger": lambda one, other: bool(one) == bool(other),
    "weighting": lambda one, other: math.isclose(one, other, rel_tol=AGREEMENT),
    "policy": operator.eq,
}
