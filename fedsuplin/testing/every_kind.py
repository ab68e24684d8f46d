"""Checks for every kind of plugin."""

from __future__ import annotations

import dataclasses
import json

from .._shared.plain_data import collect_fields
from ..registry import KINDS, SINGULAR, MissingParameter, check_plugin
from .applying import AXIS, applies_to
from .subject import Subject, bind_plugin, call_plugin, encode_parameters, fail

# A variant is a dataclass of ours, and a problem has its own specification.
PARTS_AND_ARRIVALS = sorted(set(KINDS) - {"variants", "problems"})


@applies_to(*KINDS)
def check_can_be_made(subject: Subject) -> None:
    """Check that a plugin of any kind can be made with all its kind needs.

    It is made from its defaults or from given parameters.
    """
    try:
        subject.maker()
    except Exception as error:
        hint = ""
        if subject.name is not None and isinstance(error, MissingParameter):
            given = f"parameters={{{subject.name!r}: {{…}}}}"
            hint = f". Every parameter needs a default, or a value in conformance(…, {given})"
        fail(f"{error}{hint}", error)


@applies_to(*KINDS)
def check_is_documented(subject: Subject) -> None:
    """Check that a plugin of any kind has a docstring or, for a variant, a `summary`.

    `fedsuplin plugins` shows the first line.
    """
    if subject.kind == "variants":
        if not str(subject.make().summary).strip():
            fail('it has no summary: pass Variant(summary="…"), one line that says what it is')
        return
    factory = subject.factory
    name = getattr(factory, "__name__", repr(factory))
    # functools.partial has a docstring of its own, and a dataclass writes its signature into one
    text = "" if factory.__doc__ in (None, type(factory).__doc__) else factory.__doc__.strip()
    if not text or text.startswith(f"{name}("):
        kind = SINGULAR[subject.kind]
        fail(f"{name} has no docstring: write one whose first line says what the {kind} does")


@applies_to(*PARTS_AND_ARRIVALS, when=dataclasses.is_dataclass)
def check_repr_names_it(subject: Subject) -> None:
    """Check that the repr of a plugin of any kind has its type and parameters, each time alike.

    Errors and results show the repr.
    """
    plugin, second = subject.make(), subject.make()
    if type(plugin).__name__ not in repr(plugin):
        fail(f"its repr is {plugin!r}, which does not name its type {type(plugin).__name__}")
    if repr(plugin) != repr(second):
        advice = "leave the repr to the dataclass"
        fail(f"two with the same parameters have the reprs {plugin!r} and {second!r}: {advice}")


@applies_to(*PARTS_AND_ARRIVALS, when=dataclasses.is_dataclass)
def check_parameters_survive_saving(subject: Subject) -> None:
    """Check that the fields of a plugin of any kind, saved as JSON, make the same plugin again.

    Runs are saved and rebuilt this way.
    """
    plugin = subject.make()
    candidates = [plugin, *(bind_plugin(plugin, setting) for setting in subject.settings)]
    for candidate in filter(dataclasses.is_dataclass, candidates):
        text = encode_parameters(collect_fields(candidate))
        what = f"made again from its parameters {text}, it"
        remade = call_plugin(what, subject.factory, **json.loads(text))
        if encode_parameters(collect_fields(remade)) != text:
            fail(f"{what} has {encode_parameters(collect_fields(remade))}")


@applies_to(*AXIS, when=lambda plugin: hasattr(plugin, "bind"))
def check_binds_to_a_setting(subject: Subject) -> None:
    """Check that `bind(setting)` of any kind returns a complete plugin of it, each time alike.

    The original must not change, and binding the result once more must not change that either.
    """
    plugin = subject.make()
    for setting in subject.settings:
        before, what = repr(plugin), f"bind({setting})"
        first, again = bind_plugin(plugin, setting), bind_plugin(plugin, setting)
        call_plugin(what, check_plugin, subject.kind, first)
        if repr(plugin) != before:
            change = f"from {before} to {plugin!r}"
            advice = "return dataclasses.replace(self, …)"
            fail(f"{what} changed the plugin itself, {change}: {advice}")
        if dataclasses.is_dataclass(first):
            twice = bind_plugin(first, setting)
            if not repr(first) == repr(again) == repr(twice):
                others = f"then {again!r}, and bound once more {twice!r}"
                fail(f"{what} returns {first!r}, {others}: all must be the same")
