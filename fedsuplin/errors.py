"""The exceptions that fedsuplin raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .simulation.result import RunResult


class FedsuplinError(Exception):
    """Base of every error that fedsuplin raises on purpose.

    `result` holds what was recorded before it happened, when a run was under way.
    """

    result: RunResult | None = None


class InvalidInput(FedsuplinError, ValueError):
    """An argument or an array that can't be used; the message says which, where, and what would be right."""


class UnknownName(FedsuplinError, ValueError):
    """A name that nothing is registered or defined under; the message lists the choices and the nearest."""


class PluginError(FedsuplinError, RuntimeError):
    """A plugin failed, or does not offer what its kind must."""


class NumericalError(FedsuplinError, ArithmeticError):
    """Double precision did not suffice for a Gram matrix or an estimate."""


class MissingExtra(FedsuplinError, ImportError):
    """An optional dependency is not installed; the message says which extra brings it."""


class FederationError(FedsuplinError, ConnectionError):
    """A live federation can't go on: nobody answers, or the server does not accept this client."""


class FederationWarning(UserWarning):
    """The server refuses this client: it goes on deciding, but what it learns stays with it."""


class PluginWarning(UserWarning):
    """A plugin could not be loaded; everything else still works."""


class InterruptedRun(UserWarning):
    """A run was stopped by Ctrl-C; its result holds what was recorded until then."""


def unknown(kind: str, name: str, choices: Iterable[str], hint: str = "") -> UnknownName:
    """The error for a name that does not exist: what there is, and the nearest."""
    choices = sorted(choices)
    near = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.5)
    nearest = f" Did you mean {near[0]!r}?" if near else ""
    listing = ", ".join(choices) if choices else "none"
    return UnknownName(f"unknown {kind} {name!r}.{nearest} Available: {listing}.{hint}")
