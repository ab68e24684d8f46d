"""Every hook of fedsuplin on one page.

A plugin package names a module under the entry-point group ``fedsuplin``. The module implements any
of these hooks and marks them with ``@fedsuplin.plugin.hookimpl``. Each hook gets a callback
``register(name, factory)``. The factory is called with keywords and returns the plugin; a frozen
dataclass is its own factory, and a variant, being data, is registered as it is. What each kind of
plugin has to offer is in `contracts/protocols.py`.

fedsuplin calls each plugin on its own, the built-ins first, so that one that fails leaves the rest
working. Of pluggy's options, ``specname`` (a function with another name) and ``optionalhook`` (a
hook that this version may not have) are supported. ``wrapper``, ``hookwrapper``, ``tryfirst`` and
``trylast`` need a call that plugins share: a plugin that uses one is refused with an error that
names it, its package and the hook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from .contracts.variant import Variant

NAMESPACE = "fedsuplin"
hookspec = pluggy.HookspecMarker(NAMESPACE)
hookimpl = pluggy.HookimplMarker(NAMESPACE)

Register = Callable[[str, "Callable[..., Any] | Variant"], None]


@hookspec
def fedsuplin_register_triggers(register: Register) -> None:
    """Communication triggers: after a pull, does this layer ask for a sync?"""


@hookspec
def fedsuplin_register_weightings(register: Register) -> None:
    """Weightings: how much an observation counts in the regression."""


@hookspec
def fedsuplin_register_noise_models(register: Register) -> None:
    """Noise models: the layers, radii and target widths to assume, and how noise is drawn."""


@hookspec
def fedsuplin_register_policies(register: Register) -> None:
    """Decision policies: how an arm is picked from estimates and widths."""


@hookspec
def fedsuplin_register_variants(register: Register) -> None:
    """Variants: a policy, trigger, noise model and weighting under one name, with presets."""


@hookspec
def fedsuplin_register_arrivals(register: Register) -> None:
    """Arrival patterns: which client is active at which pull."""


@hookspec
def fedsuplin_register_problems(register: Register) -> None:
    """Problems: where contexts, clients and rewards come from."""
