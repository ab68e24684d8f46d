"""Checks for every kind of plugin."""

from __future__ import annotations

import dataclasses
import json

from ..registry import KINDS, SINGULAR, MissingParameter, check_plugin
from .checks import AXIS, applies_to
from .subject import Subject, bind_plugin, call_plugin, encode_parameters, fail, read_parameters


@applies_to(*KINDS)
def check_can_be_made(subject: Subject) -> None:
    """It can be made with its defaults (or the parameters given), and offers what its kind must."""
    try:
        subject.maker()
    except Exception as error:
        missing = subject.name is not None and isinstance(error, MissingParameter)
        hint = f". Every parameter needs a default, or a value in conformance(…, parameters={{{subject.name!r}: {{…}}}})"
        fail(f"{error}{hint if missing else ''}", error)


@applies_to(*KINDS)
def check_is_documented(subject: Subject) -> None:
    """It says what it is: the docstring of the class or factory, the `summary` of a variant. `fedsuplin plugins` shows it."""
    if subject.kind == "variants":
        if not str(subject.make().summary).strip():
            fail('it has no summary: Variant(summary="…") says in a line what it is')
        return
    factory = subject.factory
    name = getattr(factory, "__name__", repr(factory))
    text = (
        "" if factory.__doc__ in (None, type(factory).__doc__) else factory.__doc__.strip()
    )  # functools.partial has its own
    if not text or text.startswith(f"{name}("):  # which is what a dataclass writes for itself
        fail(f"{name} has no docstring: its first line says what the {SINGULAR[subject.kind]} does")


@applies_to(*(set(KINDS) - {"variants", "problems"}), when=dataclasses.is_dataclass)
def check_repr_names_it(subject: Subject) -> None:
    """A dataclass shows its type and its parameters, the same each time: errors and results name it so."""
    plugin, second = subject.make(), subject.make()
    if type(plugin).__name__ not in repr(plugin):
        fail(f"its repr is {plugin!r}, which does not name its type {type(plugin).__name__}")
    if repr(plugin) != repr(second):
        fail(
            f"two with the same parameters show as {plugin!r} and {second!r}: leave the repr to the dataclass"
        )


@applies_to(*(set(KINDS) - {"variants", "problems"}), when=dataclasses.is_dataclass)
def check_parameters_survive_saving(subject: Subject) -> None:
    """The fields of a dataclass can be written as JSON, and make the same plugin again: so are runs saved and rebuilt."""
    plugin = subject.make()
    candidates = [plugin] + [
        bind_plugin(plugin, setting) for setting in subject.settings if hasattr(plugin, "bind")
    ]
    for candidate in filter(dataclasses.is_dataclass, candidates):
        text = encode_parameters(read_parameters(candidate))
        remade = call_plugin(
            f"made again from its parameters {text}, it", subject.factory, **json.loads(text)
        )
        if encode_parameters(read_parameters(remade)) != text:
            fail(
                f"made again from its parameters {text}, it has {encode_parameters(read_parameters(remade))}"
            )


@applies_to(*AXIS, when=lambda plugin: hasattr(plugin, "bind"))
def check_binds_to_a_setting(subject: Subject) -> None:
    """`bind(setting)` gives a plugin of its kind, the same each time, with nothing left to bind; the original stays."""
    plugin = subject.make()
    for setting in subject.settings:
        before, what = repr(plugin), f"bind({setting})"
        first, again = bind_plugin(plugin, setting), bind_plugin(plugin, setting)
        call_plugin(what, check_plugin, subject.kind, first)
        if repr(plugin) != before:
            fail(
                f"{what} changed the plugin itself, from {before} to {plugin!r}: return dataclasses.replace(self, …)"
            )
        if dataclasses.is_dataclass(first) and not repr(first) == repr(again) == repr(
            bind_plugin(first, setting)
        ):
            fail(
                f"{what} gives {first!r}, then {again!r}, and bound once more {bind_plugin(first, setting)!r}: all must be the same"
            )
