"""The plugin under test: how to make, bind and call it, and in which settings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from .._shared.plain_data import encode_json
from ..contracts.setting import Setting
from ..registry import SINGULAR, plugins

SETTINGS = (  # small ones first, so that a failure is shown where it is easiest to follow
    Setting(dim=1, n_arms=1, n_clients=1, horizon=1),
    Setting(dim=2, n_arms=3, n_clients=2, horizon=50, ridge=0.01),
    Setting(dim=5, n_arms=6, n_clients=4, horizon=600),
    Setting(dim=25, n_arms=20, n_clients=20, horizon=10**9, ridge=5.0),
)
GAME = Setting(dim=4, n_arms=5, n_clients=3, horizon=300)
PULLS = 300  # most pulls of a game: the reference takes a few tenths of a millisecond for each


class NotApplicable(Exception):
    """Raised by a check that cannot be made for this plugin here; the message is the reason."""


@dataclass(frozen=True)
class Subject:
    """A plugin under test: how to make it afresh, and the sizes that it is meant for."""

    label: str
    kind: str
    maker: Callable[[], Any]
    factory: Callable[..., Any]
    where: Mapping[str, Any]
    """The sizes that the author fixed, by their names in `Setting`."""
    name: str | None = None
    """The name that it is registered under; None for an object that was passed in."""

    def make(self) -> Any:
        """Make the plugin under test afresh; raise NotApplicable where that fails.

        That it can be made is a check of its own. Where it fails, the other checks are skipped.
        """
        try:
            return self.maker()
        except Exception as error:
            raise NotApplicable(f"{self.label} can't be made: {error}") from error

    @property
    def settings(self) -> list[Setting]:
        """The settings to test the plugin in."""
        return [replace(setting, **self.where) for setting in SETTINGS]

    @property
    def game(self) -> Setting:
        """The setting of a short run: whole rounds, so that it can be synchronous."""
        wanted = replace(GAME, **self.where)
        rounds = max(1, min(PULLS, wanted.horizon) // wanted.n_clients)
        return replace(wanted, horizon=rounds * wanted.n_clients)


def make_registered_subject(
    kind: str, name: str, parameters: Mapping[str, Any], where: Mapping[str, Any]
) -> Subject:
    """Make the subject of tests for a registered plugin."""
    return Subject(
        label=f"{SINGULAR[kind]} {name!r}",
        kind=kind,
        maker=lambda: plugins.create(kind, name, dict(parameters)),
        factory=plugins.factory(kind, name),
        where=where,
        name=name,
    )


def copy_plugin(plugin: Any) -> Any:
    """Return a copy of the plugin under test, or the same one if it can't be copied."""
    try:
        return copy.deepcopy(plugin)
    except Exception:
        return plugin


def bind_plugin(plugin: Any, setting: Setting) -> Any:
    """Return the plugin under test as an algorithm of this setting uses it."""
    if not hasattr(plugin, "bind"):
        return plugin
    return call_plugin(f"bind({setting})", plugin.bind, setting)


def call_plugin(what: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call a function of the plugin under test; if it raises, fail.

    The message begins with `what`.
    """
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        fail(f"{what} raised {type(error).__name__}: {error}", error)


def fail(message: str, cause: Exception | None = None) -> NoReturn:
    """Fail the plugin under test: raise an AssertionError with this message."""
    raise AssertionError(message) from cause


def encode_parameters(parameters: Any) -> str:
    """Return parameters of the plugin under test as the JSON text of a saved run, or fail.

    It fails if JSON has no form for a value.
    """

    def refuse(value: Any) -> NoReturn:
        allowed = "it must be a number, a string, an array, or a list or dict of these"
        fail(f"{parameters} can't be saved because of {value!r}; {allowed}")

    return encode_json(parameters, refuse)
