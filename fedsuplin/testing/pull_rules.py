"""Checks for triggers, weightings and policies that are asked at each pull."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsuplin_ext.rules import Rule

from ..contracts.protocols import PULL_METHODS
from .applying import AXIS, PULL_KINDS, applies_to
from .pull_answers import (
    AGREEMENT,
    FAULT_FINDERS,
    SAME_ANSWER,
    ask_rule,
    find_forms,
    format_answer,
    format_call,
    get_state_size,
    list_questions,
    list_trials,
)
from .subject import NotApplicable, Subject, call_plugin, fail


def is_asked_each_pull(plugin: Any) -> bool:
    """Return whether a plugin has a rule that is asked at each pull: not if it names a kernel."""
    return getattr(plugin, "kernel", None) is None


def has_state(plugin: Any) -> bool:
    """Return whether a plugin has a rule that is asked at each pull and keeps state."""
    return is_asked_each_pull(plugin) and get_state_size(plugin) > 0


def may_be_compiled(plugin: Any) -> bool:
    """Return whether a plugin has a rule that is asked at each pull and may be compiled."""
    return is_asked_each_pull(plugin) and hasattr(plugin, "compiled")


@applies_to(*PULL_KINDS, when=is_asked_each_pull)
def check_takes_the_arguments_of_its_kind(subject: Subject) -> None:
    """Check that both forms of a rule accept the engine's arguments at each pull.

    If `state_size` is above 0, `state` is one of them.
    """
    axis = AXIS[subject.kind]
    for plugin, _ in list_trials(subject):
        method = getattr(plugin, PULL_METHODS[axis].name, None)
        call_plugin("its Python form", Rule, axis, plugin, method)
        if hasattr(plugin, "compiled"):
            compiled = call_plugin("compiled()", plugin.compiled)
            if compiled is not None:
                call_plugin("its compiled form", Rule, axis, plugin, compiled)


@applies_to(*PULL_KINDS, when=has_state)
def check_keeps_to_its_state(subject: Subject) -> None:
    """Check that a rule writes only into its `state_size` slots: the next are another client's."""
    for plugin, form, ask in list_questions(subject):
        for answer in ask():
            if answer.strayed:
                slots = f"its {get_state_size(plugin)} slots of state"
                call = format_call(subject, answer)
                fail(f"the {form} form writes outside {slots}, at {call}: raise state_size")


@applies_to(*PULL_KINDS, when=is_asked_each_pull)
def check_answers_are_legal(subject: Subject) -> None:
    """Check that the engine can use every answer of a rule, over a wide range of inputs.

    The state must not hold NaN.
    """
    find_fault = FAULT_FINDERS[AXIS[subject.kind]]
    for _, form, ask in list_questions(subject):
        for answer in ask():
            right = find_fault(answer.value, answer.arguments)
            if right:
                call = format_call(subject, answer)
                fail(f"{call} is {answer.value!r} in the {form} form; it must be {right}")
            if np.isnan(answer.state).any():
                state = f"the state is {answer.state} in the {form} form"
                fail(f"after {format_call(subject, answer)} {state}; no slot may be NaN")


@applies_to(*PULL_KINDS, when=is_asked_each_pull)
def check_answers_are_the_same_again(subject: Subject) -> None:
    """Check that a rule, given the same inputs from fresh state, gives the same answers and state.

    This must hold for any instance with the same parameters.
    """
    advice = "what changes from call to call belongs in `state` (see fedsuplin.plugin.Stateful)"
    for (_, form, ask), (_, _, ask_another) in zip(
        list_questions(subject), list_questions(subject), strict=True
    ):
        answers = zip(list(ask()), list(ask()), list(ask_another()), strict=True)
        for one, *others in answers:
            for other in others:
                if one.value != other.value or (one.state != other.state).any():
                    first = (
                        f"{format_call(subject, one)} is {format_answer(one)} in the {form} form"
                    )
                    fail(f"{first}, and asked again {format_answer(other)}: {advice}")


@applies_to(*PULL_KINDS, when=may_be_compiled)
def check_python_and_compiled_agree(subject: Subject) -> None:
    """Check that both forms of a rule give the same answers and leave the same state."""
    same = SAME_ANSWER[AXIS[subject.kind]]
    for plugin, inputs in list_trials(subject):
        both = find_forms(subject, plugin)
        if len(both) == 1:
            raise NotApplicable(f"{subject.label} has no compiled form here")
        # The largest value that a slot has held: rounding errors are in proportion to it.
        most = np.zeros(get_state_size(plugin))
        answers = [ask_rule(subject, plugin, form, inputs) for form in both.values()]
        for ours, theirs in zip(*answers, strict=True):
            most = np.maximum(most, np.abs(ours.state))
            near = (np.abs(ours.state - theirs.state) <= AGREEMENT * most).all()
            if not (same(ours.value, theirs.value) and near):
                values = f"{format_answer(ours)} in Python and {format_answer(theirs)} compiled"
                fail(f"{format_call(subject, ours)} of {plugin!r} is {values}")


@applies_to("policies", when=is_asked_each_pull)
def check_leaves_the_targets_alone(subject: Subject) -> None:
    """Check that a rule's `choose` does not write into `targets`, which the engine keeps."""
    for _, form, ask in list_questions(subject):
        for answer in ask():
            before, after = answer.arguments[2], answer.after[2]
            if (before != after).any():
                fail(f"the {form} form changes targets from {before} to {after}")
