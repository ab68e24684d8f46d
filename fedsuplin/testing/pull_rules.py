"""Checks for triggers, weightings and policies that are asked at each pull."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsuplin_ext.rules import Rule

from ..contracts.protocols import PULL_METHODS
from .checks import AXIS, PULL_KINDS, applies_to
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
    """It is asked at every pull, unless it names one of the engine's decisions."""
    return getattr(plugin, "kernel", None) is None


@applies_to(*PULL_KINDS, when=is_asked_each_pull)
def check_takes_the_arguments_of_its_kind(subject: Subject) -> None:
    """Both forms take the arguments that the engine gives, with `state` if `state_size` is above 0."""
    axis = AXIS[subject.kind]
    for plugin, _ in list_trials(subject):
        method = getattr(plugin, PULL_METHODS[axis].name, None)
        call_plugin("its Python form", Rule, axis, plugin, method)
        compiled = (
            call_plugin("compiled()", plugin.compiled) if hasattr(plugin, "compiled") else None
        )
        if compiled is not None:
            call_plugin("its compiled form", Rule, axis, plugin, compiled)


@applies_to(
    *PULL_KINDS, when=lambda plugin: is_asked_each_pull(plugin) and get_state_size(plugin) > 0
)
def check_keeps_to_its_state(subject: Subject) -> None:
    """It writes into no more than its `state_size` slots: behind them are another client's."""
    for plugin, form, ask in list_questions(subject):
        for answer in ask():
            if answer.strayed:
                call = format_call(subject, answer)
                fail(
                    f"the {form} form writes outside its {get_state_size(plugin)} slots of state, at {call}: raise state_size"
                )


@applies_to(*PULL_KINDS, when=is_asked_each_pull)
def check_answers_are_legal(subject: Subject) -> None:
    """Every answer, over a wide range of inputs, is one that the engine can go on with, and the state holds no NaN."""
    legal = FAULT_FINDERS[AXIS[subject.kind]]
    for _, form, ask in list_questions(subject):
        for answer in ask():
            wrong = legal(answer.value, answer.arguments)
            if wrong:
                fail(
                    f"{format_call(subject, answer)} is {answer.value!r} in the {form} form; it must be {wrong}"
                )
            if np.isnan(answer.state).any():
                fail(
                    f"after {format_call(subject, answer)} the state is {answer.state} in the {form} form; no slot may be NaN"
                )


@applies_to(*PULL_KINDS, when=is_asked_each_pull)
def check_answers_are_the_same_again(subject: Subject) -> None:
    """The same inputs from fresh state get the same answers and leave the same state, whichever instance is asked."""
    for (_, form, ask), (_, _, ask_another) in zip(
        list_questions(subject), list_questions(subject), strict=True
    ):
        for one, again, elsewhere in zip(
            list(ask()), list(ask()), list(ask_another()), strict=True
        ):
            for other in (again, elsewhere):
                if one.value != other.value or (one.state != other.state).any():
                    fail(
                        f"{format_call(subject, one)} is {format_answer(one)} in the {form} form, and asked again {format_answer(other)}: "
                        "what changes from call to call belongs in `state` (see fedsuplin.protocols.Stateful)"
                    )


@applies_to(
    *PULL_KINDS, when=lambda plugin: is_asked_each_pull(plugin) and hasattr(plugin, "compiled")
)
def check_python_and_compiled_agree(subject: Subject) -> None:
    """The compiled form gives the answers of the Python form and leaves the same state."""
    same = SAME_ANSWER[AXIS[subject.kind]]
    for plugin, inputs in list_trials(subject):
        both = find_forms(subject, plugin)
        if len(both) == 1:
            raise NotApplicable(f"{subject.label} has no compiled form here")
        most = np.zeros(
            get_state_size(plugin)
        )  # that a slot has held: what its sum is rounded to, even where it cancels
        for ours, theirs in zip(
            *(ask_rule(subject, plugin, form, inputs) for form in both.values()), strict=True
        ):
            most = np.maximum(most, np.abs(ours.state))
            if (
                not same(ours.value, theirs.value)
                or not (np.abs(ours.state - theirs.state) <= AGREEMENT * most).all()
            ):
                fail(
                    f"{format_call(subject, ours)} of {plugin!r} is {format_answer(ours)} in Python and {format_answer(theirs)} compiled"
                )


@applies_to("policies", when=is_asked_each_pull)
def check_leaves_the_targets_alone(subject: Subject) -> None:
    """`choose` does not write into `targets`, which the engine keeps for the whole run."""
    for _, form, ask in list_questions(subject):
        for answer in ask():
            if (answer.arguments[2] != answer.after[2]).any():
                fail(
                    f"the {form} form changes targets from {answer.arguments[2]} to {answer.after[2]}"
                )
