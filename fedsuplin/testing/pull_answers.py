"""Call a rule with many inputs, in each of its forms, and judge its answers."""

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
from .applying import AXIS
from .pull_inputs import INPUTS, Arguments
from .subject import Subject, bind_plugin, fail

GUARD = 64  # slots on either side of a plugin's own
UNTOUCHED = 12345.678
AGREEMENT = 1e-12  # relative: compiled code may add and multiply in another order


class Answer(NamedTuple):
    """One answer of a rule: the number of the call, its arguments, its value and its effects."""

    number: int
    arguments: Arguments
    value: Any
    state: np.ndarray
    """The state after the call."""
    after: Arguments
    """The arguments after the call, which may have written into them."""
    strayed: bool
    """Whether it wrote outside its state."""


def list_trials(subject: Subject) -> Iterator[tuple[Any, list[Arguments]]]:
    """Yield the plugin bound to each setting, with a sequence of inputs for it to answer."""
    for setting in subject.settings:
        plugin = bind_plugin(subject.make(), setting)
        yield plugin, INPUTS[AXIS[subject.kind]](setting)
        if not hasattr(plugin, "bind") and subject.kind != "policies":
            return  # settings make no difference


def list_questions(subject: Subject) -> Iterator[tuple[Any, str, Callable[[], Iterator[Answer]]]]:
    """Yield by setting and form: the plugin, the form's name, and a function that gets its answers.

    That function calls the form with all inputs, starting from fresh state.
    """
    for plugin, inputs in list_trials(subject):
        for name, form in find_forms(subject, plugin).items():
            yield plugin, name, partial(ask_rule, subject, plugin, form, inputs)


def find_forms(subject: Subject, plugin: Any) -> dict[str, Callable[..., Any]]:
    """Return the forms of a rule that can answer: the Python one and any compiled one.

    The compiled form is called as the loop calls it.
    """
    axis = AXIS[subject.kind]
    found = {"Python": getattr(plugin, PULL_METHODS[axis].name)}
    compiled = plugin.compiled() if hasattr(plugin, "compiled") else None
    if compiled is None:
        return found
    return found | {"compiled": Rule(axis, plugin, compiled)}


def ask_rule(
    subject: Subject, plugin: Any, form: Callable[..., Any], inputs: list[Arguments]
) -> Iterator[Answer]:
    """Call a form once for each of the inputs, starting from fresh state, and yield its answers."""
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
        strayed = bool((slots[around] != UNTOUCHED).any())
        yield Answer(number, arguments, value, state.copy(), given, strayed)


def get_state_size(plugin: Any) -> int:
    """Return how many numbers of state a rule's answers may depend on, for each client."""
    return getattr(plugin, "state_size", 0)


def format_call(subject: Subject, answer: Answer) -> str:
    """Return the call that led to an answer, as its author would write it.

    Of large arrays only the shape is shown.
    """
    method, usual, added = PULL_METHODS[AXIS[subject.kind]]
    asked = answer.arguments[: len(answer.after)]
    values = [
        f"{name}={format_value(value)}" for name, value in zip(usual + added, asked, strict=False)
    ]
    return f"{method}({', '.join(values)}) (call {answer.number + 1} from fresh state)"


def format_value(value: Any) -> str:
    """Return an argument of the call that led to an answer as text: a large array as its shape."""
    if not isinstance(value, np.ndarray):
        return repr(value)
    return f"{value.tolist()}" if value.size <= 6 else f"<{' × '.join(map(str, value.shape))}>"


def format_answer(answer: Answer) -> str:
    """Return an answer as text: its value and, if the plugin has state, the state after it."""
    state = f" with state {answer.state.tolist()}" if len(answer.state) else ""
    return f"{answer.value!r}{state}"


def find_fault_in_firing(value: Any, arguments: Arguments) -> str | None:
    """Return what a trigger's answer must be, or None if it is that."""
    if isinstance(value, (bool, np.bool_, numbers.Integral)) and int(value) >= 0:
        return None
    return "True or False (compiled, 1 or 0)"


def find_fault_in_weight(value: Any, arguments: Arguments) -> str | None:
    """Return what a weighting's answer must be, or None if it is that."""
    if isinstance(value, numbers.Real) and 0 <= float(value) < math.inf:
        return None
    return "a finite number of at least 0"


def find_fault_in_choice(value: Any, arguments: Arguments) -> str | None:
    """Return what a policy's answer must be, or None if it is that."""
    estimates = arguments[0]
    present = np.flatnonzero(estimates > -np.inf)
    try:
        index = operator.index(value)
    except TypeError:
        index = -1
    if index in present:
        return None
    return f"layer·K + arm of an arm that is present: {', '.join(map(str, present[:20]))}"


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
