"""The plugin under test: how to make, bind and call it, and in which settings. ·"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from .._shared.plain_data import encode_json
from ..contracts.setting import Setting

SETTINGS = (  # small first, so that a failure is shown where it is easiest to follow
    Setting(dim=1, n_arms=1, n_clients=1, horizon=1),
    Setting(dim=2, n_arms=3, n_clients=2, horizon=50, ridge=0.01),
    Setting(dim=5, n_arms=6, n_clients=4, horizon=600),
    Setting(dim=25, n_arms=20, n_clients=20, horizon=10**9, ridge=5.0),
)
GAME = Setting(dim=4, n_arms=5, n_clients=3, horizon=300)
PULLS = 300  # of a game at most: the reference takes a few tenths of a millisecond for each


class NotApplicable(Exception):
    """A check that can't be made of this plugin here; says why."""


@dataclass(frozen=True)
class Subject:
    """A plugin under examination: how to make it, again and again, and where it is to work."""

    label: str
    kind: str
    maker: Callable[[], Any]
    factory: Callable[..., Any]
    where: Mapping[str, Any]
    name: str | None = None  # that it is registered under

    def make(self) -> Any:
        """A fresh one. That it can be made is a claim of its own; where it is broken, the others have nothing to say."""
        try:
            return self.maker()
        except Exception as error:
            raise NotApplicable(f"{self.label} can't be made: {error}") from error

    @property
    def settings(self) -> list[Setting]:
        return [replace(setting, **self.where) for setting in SETTINGS]

    @property
    def game(self) -> Setting:
        """The sizes of a run that is played: whole rounds, so that it can be synchronous."""
        wanted = replace(GAME, **self.where)
        return replace(
            wanted,
            horizon=max(1, min(PULLS, wanted.horizon) // wanted.n_clients) * wanted.n_clients,
        )


def copy_plugin(plugin: Any) -> Any:
    """A second plugin with the same parameters; the same one where it can't be copied."""
    try:
        return copy.deepcopy(plugin)
    except Exception:
        return plugin


def bind_plugin(plugin: Any, setting: Setting) -> Any:
    """The plugin as an algorithm of this setting has it."""
    return (
        call_plugin(f"bind({setting})", plugin.bind, setting) if hasattr(plugin, "bind") else plugin
    )


def call_plugin(what: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What a plugin's function returns; if it raises, `what` says with which inputs."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        fail(f"{what} raised {type(error).__name__}: {error}", error)


def fail(message: str, cause: Exception | None = None) -> NoReturn:
    raise AssertionError(message) from cause


def read_parameters(plugin: Any) -> dict[str, Any]:
    """What a saved run holds of a plugin: the fields that make it."""
    return {
        field.name: getattr(plugin, field.name)
        for field in dataclasses.fields(plugin)
        if field.init
    }


def encode_parameters(parameters: Any) -> str:
    """Parameters as a saved run has them: NumPy's numbers and arrays are numbers and lists; nothing else is taken."""

    def refuse(value: Any) -> NoReturn:
        fail(
            f"{parameters} can't be saved: {value!r} is neither a number, a word, nor a list or dict of them"
        )

    return encode_json(parameters, refuse)
