"""Finds, validates and names plugins.

Entry points of the group ``fedsuplin`` are loaded once, at the first look-up. A plugin that can't be imported, misspells a
hook or takes a name already taken is reported by name and package, and left out; everything else still works.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pluggy

from . import hookspecs
from .errors import InvalidInput, PluginError, PluginWarning, unknown

HOOK_PREFIX = "fedsuplin_register_"
KINDS = tuple(
    name.removeprefix(HOOK_PREFIX) for name in vars(hookspecs) if name.startswith(HOOK_PREFIX)
)
SINGULAR = {"policies": "policy"} | {
    kind: kind.removesuffix("s").replace("_", " ") for kind in KINDS if kind != "policies"
}
REQUIRED = {
    "triggers": ("fires",),
    "weightings": ("weight",),
    "noise_models": ("n_layers", "radii", "target_widths", "draw"),
    "policies": ("kernel or choose",),
    "variants": ("trigger", "noise", "weighting", "policy"),
    "arrivals": ("clients",),
    "problems": ("stream",),
}


@dataclass
class Source:
    """One entry point: where it comes from, what it registered, and why it failed if it did."""

    entry_point: str
    package: str
    version: str
    hooks: list[str] = field(default_factory=list)
    registered: list[tuple[str, str]] = field(default_factory=list)
    error: str | None = None

    def __str__(self) -> str:
        return f"plugin {self.entry_point!r} of package {self.package} {self.version}"


class MissingParameter(InvalidInput):
    """One that a plugin has no default for."""


class Registry:
    """Names to factories, for each kind of plugin. The library uses the one instance `plugins` below."""

    def __init__(self, entry_points: Callable[[], Any] | None = None) -> None:
        self._entry_points = entry_points or (
            lambda: importlib.metadata.entry_points(group=hookspecs.NAMESPACE)
        )
        self._manager = pluggy.PluginManager(hookspecs.NAMESPACE)
        self._manager.add_hookspecs(hookspecs)
        self._factories: dict[str, dict[str, tuple[Callable[..., Any], Source]]] = {
            kind: {} for kind in KINDS
        }
        self._sources: list[Source] = []
        self._loaded = False
        self._lock = threading.RLock()

    # --- looking up -------------------------------------------------------------------------------------------------

    def names(self, kind: str) -> list[str]:
        """The registered names of a kind ("triggers", "variants", …), sorted."""
        return sorted(self._of(kind))

    def factory(self, kind: str, name: str) -> Callable[..., Any]:
        """What is registered under a name; an unknown one lists the choices and the nearest."""
        known = self._of(kind)
        if name not in known:
            failed = [source for source in self.sources() if source.error]
            hint = "".join(f" ({source} failed to load: {source.error})" for source in failed)
            raise unknown(SINGULAR[kind], name, known, hint)
        return known[name][0]

    def create(self, kind: str, name: str, parameters: dict[str, Any]) -> Any:
        """Make the plugin `name` with its parameters, and check that it offers what its kind must."""
        factory, source = self.factory(kind, name), self._of(kind)[name][1]
        missing = [key for key in list_needed_parameters(factory) if key not in parameters]
        if missing:
            how = ", ".join(f"{key}=…" for key in missing)
            raise MissingParameter(
                f"{SINGULAR[kind]} {name!r} needs {' and '.join(missing)}: give {how}"
            )
        try:
            plugin = factory(**parameters)
        except InvalidInput:
            raise
        except Exception as error:
            raise PluginError(
                f"{SINGULAR[kind]} {name!r} of {source} could not be made: {error}"
            ) from error
        return check_plugin(kind, plugin, name)

    def sources(self) -> list[Source]:
        """Every entry point that was found, loaded or failed."""
        self._load()
        return list(self._sources)

    def owner(self, kind: str, name: str) -> Source:
        """Where a registered name comes from."""
        self.factory(kind, name)
        return self._of(kind)[name][1]

    def name_of(self, kind: str, factory: Callable[..., Any]) -> str | None:
        """The name that a factory is registered under, if it is."""
        return next(
            (name for name, (registered, _) in self._of(kind).items() if registered is factory),
            None,
        )

    def _of(self, kind: str) -> dict[str, tuple[Callable[..., Any], Source]]:
        if kind not in self._factories:
            raise unknown("kind of plugin", kind, KINDS)
        self._load()
        return self._factories[kind]

    # --- loading ----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        with self._lock:
            if self._loaded:
                return
            self._loaded = True
            for entry_point in self._in_order():
                self._load_one(entry_point)
        for source in self._sources:  # told when all are loaded: a warning may be an exception
            if source.error:
                warnings.warn(f"{source} was left out: {source.error}", PluginWarning, stacklevel=2)

    def _in_order(self) -> Iterator[Any]:
        """Ours first, so that nobody can take a built-in's name; the rest in a fixed order."""
        return iter(
            sorted(
                self._entry_points(),
                key=lambda e: (find_package(e)[0] != "fedsuplin", find_package(e)[0], e.name),
            )
        )

    def _load_one(self, entry_point: Any) -> None:
        source = Source(entry_point.name, *find_package(entry_point))
        self._sources.append(source)
        try:
            self.add(entry_point.load(), source)
        except KeyboardInterrupt:
            raise
        except (
            BaseException
        ) as error:  # SystemExit too: a plugin does not end the program of its user
            source.error = f"{type(error).__name__}: {error}"

    def add(self, module: Any, source: Source) -> None:
        """Take all that a module registers, or, if anything in it is wrong, nothing of it."""
        found = _list_hook_names(self._manager, module)
        misspelt = [name for name in found if name.removeprefix(HOOK_PREFIX) not in KINDS]
        if misspelt:
            raise unknown("hook", misspelt[0], [HOOK_PREFIX + kind for kind in KINDS])
        offered: dict[tuple[str, str], Callable[..., Any]] = {}
        self._manager.register(module, name=f"{source.package}:{source.entry_point}")
        for hook in found:
            kind = hook.removeprefix(HOOK_PREFIX)
            getattr(module, hook)(
                register=lambda name, factory, kind=kind: self._offer(offered, kind, name, factory)
            )
        for (kind, name), factory in offered.items():
            self._factories[kind][name] = (factory, source)
        source.hooks, source.registered = found, list(offered)

    def _offer(
        self,
        offered: dict[tuple[str, str], Callable[..., Any]],
        kind: str,
        name: str,
        factory: Callable[..., Any],
    ) -> None:
        if not isinstance(name, str) or not name:
            raise PluginError(
                f"a {SINGULAR[kind]} is registered under {name!r}; the name must be a non-empty string"
            )
        if "+" in name or name.split() != [name]:
            raise PluginError(f"{SINGULAR[kind]} {name!r}: a name has no + and no blanks in it")
        if kind == "variants" and not callable(factory):
            factory = functools.partial(_return_variant, factory)  # data: there is nothing to make
        if not callable(factory):
            raise PluginError(
                f"{SINGULAR[kind]} {name!r} is registered with {factory!r}, which can't be called to make one"
            )
        if name in self._factories[kind]:
            raise PluginError(
                f"{SINGULAR[kind]} {name!r} is already registered by {self._factories[kind][name][1]}"
            )
        if (kind, name) in offered:
            raise PluginError(f"{SINGULAR[kind]} {name!r} is registered twice")
        offered[kind, name] = factory


def check_plugin(kind: str, plugin: Any, name: str | None = None) -> Any:
    """`plugin` itself, if it offers what its kind must."""
    missing = [
        needed
        for needed in REQUIRED[kind]
        if not any(hasattr(plugin, name) for name in needed.split(" or "))
    ]
    if missing:
        what = f"{SINGULAR[kind]} {name!r}" if name else f"{plugin!r}, given as a {SINGULAR[kind]},"
        raise PluginError(f"{what} lacks {', '.join(missing)}; see fedsuplin.protocols")
    return plugin


def list_parameters(factory: Callable[..., Any]) -> list[str]:
    """The keywords that a factory takes."""
    return [
        name
        for name, p in inspect.signature(factory).parameters.items()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]


def list_needed_parameters(factory: Callable[..., Any]) -> list[str]:
    """The keywords that a factory can't do without."""
    signature = inspect.signature(factory)
    return [
        name
        for name in list_parameters(factory)
        if signature.parameters[name].default is inspect.Parameter.empty
    ]


def _list_hook_names(manager: pluggy.PluginManager, module: Any) -> list[str]:
    """The names in a module that are marked as hook implementations."""
    return [name for name in dir(module) if manager.parse_hookimpl_opts(module, name) is not None]


def find_package(entry_point: Any) -> tuple[str, str]:
    """The distribution that an entry point belongs to, and its version."""
    distribution = getattr(entry_point, "dist", None)
    return (distribution.name, distribution.version) if distribution else ("unknown", "?")


def _return_variant(variant: Any) -> Any:
    return variant


plugins = Registry()
