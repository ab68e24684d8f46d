"""The plugin under test: how to make, bind and call it, and in which settings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from .._shared.plain_data import encode_json
from ..contracts.setting import Setting

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
        """Make a fresh plugin; raise NotApplicable where that fails.

        That it can be made is a check of its own. Where it fails, the other checks are skipped.
        """
        try:
            return self.maker()
        except Exception as error:
            raise NotApplicable(f"{self.label} can't be made: {error}") from error

    @property
    def settings(self) -> list[Setting]:
        """The settings to test it in."""
        return [replace(setting, **self.where) for setting in SETTINGS]

    @property
    def game(self) -> Setting:
        """The setting of a short run: whole rounds, so that it can be synchronous."""
        wanted = replace(GAME, **self.where)
        rounds = max(1, min(PULLS, wanted.horizon) // wanted.n_clients)
        return replace(wanted, horizon=rounds * wanted.n_clients)


def copy_plugin(plugin: Any) -> Any:
    """Return a second plugin with the same parameters, or the same one if it can't be copied."""
    try:
        return copy.deepcopy(plugin)
    except Exception:
        return plugin


def bind_plugin(plugin: Any, setting: Setting) -> Any:
    """Return the plugin as an algorithm of this setting uses it."""
    if not hasattr(plugin, "bind"):
        return plugin
    return call_plugin(f"bind({setting})", plugin.bind, setting)


def call_plugin(what: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call a function of a plugin; if it raises, fail with a message that begins with `what`."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        fail(f"{what} raised {type(error).__name__}: {error}", error)


def fail(message: str, cause: Exception | None = None) -> NoReturn:
    """Raise the AssertionError of a failed check."""
    raise AssertionError(message) from cause


def encode_parameters(parameters: Any) -> str:
    """Return parameters as the JSON text of a saved run; fail if JSON has no form for a value."""

    def refuse(value: Any) -> NoReturn:
        allowed = "it must be a number, a string, an array, or a list or dict of these"
        fail(f"{parameters} can't be saved because of {value!r}; {allowed}")

    return encode_json(parameters, refuse)
