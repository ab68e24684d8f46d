"""The exceptions and warnings that fedsuplin raises on purpose."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .simulation.result import RunResult


class FedsuplinError(Exception):
    """Base of every error that fedsuplin raises on purpose.

    Attributes
    ----------
    result : RunResult or None
        What was recorded before the error, if it happened during a run.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> try:
    ...     fsl.make("asinc", dim=4, n_arms=5, n_clients=2, horizon=100)
    ... except fsl.FedsuplinError as error:
    ...     print(str(error)[:50])
    unknown variant 'asinc'. Did you mean 'async'? Ava
    """

    result: RunResult | None = None


class InvalidInput(FedsuplinError, ValueError):
    """An argument or an array can't be used. The message says which, where, and what is right."""


class UnknownName(FedsuplinError, ValueError):
    """A name does not exist. The message lists the choices and the nearest."""


class PluginError(FedsuplinError, RuntimeError):
    """A plugin failed, or does not offer what its kind must."""


class NumericalError(FedsuplinError, ArithmeticError):
    """Double precision did not suffice for a Gram matrix or an estimate."""


class MissingExtra(FedsuplinError, ImportError):
    """An optional dependency is not installed. The message names the extra that brings it."""


class FederationError(FedsuplinError, ConnectionError):
    """A live federation can't continue: no server answers, or the server refuses this client."""


class FederationWarning(UserWarning):
    """The server refuses this client. It keeps deciding, but no longer shares what it learns."""


class PluginWarning(UserWarning):
    """A plugin could not be loaded. Everything else still works."""


class InterruptedRun(UserWarning):
    """A run was stopped by Ctrl-C. Its result holds what was recorded until then."""


def unknown(kind: str, name: str, choices: Iterable[str], hint: str = "") -> UnknownName:
    """Return the error for a name that does not exist, with the choices and the nearest."""
    choices = sorted(choices)
    near = difflib.get_close_matches(str(name), choices, n=1, cutoff=0.5)
    nearest = f" Did you mean {near[0]!r}?" if near else ""
    listing = ", ".join(choices) if choices else "none"
    return UnknownName(f"unknown {kind} {name!r}.{nearest} Available: {listing}.{hint}")
