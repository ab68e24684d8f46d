"""Finds, validates and names plugins.

Entry points of the group ``fedsuplin`` are loaded once, at the first look-up. A plugin that can't
be imported, misspells a hook or takes a name already taken is reported by name and package, and
left out. Everything else still works.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pluggy

from . import hookspecs
from .contracts.protocols import find_missing
from .errors import InvalidInput, PluginError, PluginWarning, unknown

HOOK_PREFIX = "fedsuplin_register_"
KINDS = tuple(
    name.removeprefix(HOOK_PREFIX) for name in vars(hookspecs) if name.startswith(HOOK_PREFIX)
)
SINGULAR = {"policies": "policy"} | {
    kind: kind.removesuffix("s").replace("_", " ") for kind in KINDS if kind != "policies"
}
UNSUPPORTED_OPTIONS = ("wrapper", "hookwrapper", "tryfirst", "trylast")
"""Options of `hookimpl` that only mean something where plugins share a call."""


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
    """A parameter without a default was not given."""


class Registry:
    """Names to factories, by kind of plugin. The library uses one instance, `plugins`."""

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

    def names(self, kind: str) -> list[str]:
        """Return the registered names of a kind ("triggers", "variants", …), sorted."""
        return sorted(self._load_kind(kind))

    def factory(self, kind: str, name: str) -> Callable[..., Any]:
        """Return what is registered under a name.

        The error for an unknown name lists the choices, the nearest, and plugins that failed.
        """
        known = self._load_kind(kind)
        if name not in known:
            failed = [source for source in self.sources() if source.error]
            hint = "".join(f" ({source} failed to load: {source.error})" for source in failed)
            raise unknown(SINGULAR[kind], name, known, hint)
        return known[name][0]

    def create(self, kind: str, name: str, parameters: dict[str, Any]) -> Any:
        """Make the plugin `name` with its parameters, and check that it has what its kind needs."""
        factory, source = self.factory(kind, name), self._load_kind(kind)[name][1]
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
        """Return every entry point that was found, loaded or failed."""
        self._load()
        return list(self._sources)

    def find_owner(self, kind: str, name: str) -> Source:
        """Return the entry point that registered a name."""
        self.factory(kind, name)
        return self._load_kind(kind)[name][1]

    def find_name(self, kind: str, factory: Callable[..., Any]) -> str | None:
        """Return the name that a factory is registered under, or None."""
        return next(
            (
                name
                for name, (registered, _) in self._load_kind(kind).items()
                if registered is factory
            ),
            None,
        )

    def _load_kind(self, kind: str) -> dict[str, tuple[Callable[..., Any], Source]]:
        """Return the factories of a kind by name, after loading all plugins."""
        if kind not in self._factories:
            raise unknown("kind of plugin", kind, KINDS)
        self._load()
        return self._factories[kind]

    def _load(self) -> None:
        """Load all entry points, once, and warn of those that failed."""
        with self._lock:
            if self._loaded:
                return
            self._loaded = True
            for entry_point, package in self._sort_entry_points():
                self._load_one(entry_point, package)
        for source in self._sources:  # after all are loaded: a warning may be an exception
            if source.error:
                warnings.warn(f"{source} was left out: {source.error}", PluginWarning, stacklevel=2)

    def _sort_entry_points(self) -> list[tuple[Any, tuple[str, str]]]:
        """Return the entry points with their packages: ours first, so that it has its names."""
        found = list(self._entry_points())
        # Entry points of one package share its distribution, which reads a file for each answer.
        distributions = {id(getattr(each, "dist", None)): each for each in found}
        packages = {key: find_package(each) for key, each in distributions.items()}

        def sort_key(pair: tuple[Any, tuple[str, str]]) -> tuple[bool, str, str]:
            entry_point, (package, _) = pair
            return package != "fedsuplin", package, entry_point.name

        pairs = [(each, packages[id(getattr(each, "dist", None))]) for each in found]
        return sorted(pairs, key=sort_key)

    def _load_one(self, entry_point: Any, package: tuple[str, str]) -> None:
        """Load one entry point of a package, and record what it registered or why it failed."""
        source = Source(entry_point.name, *package)
        self._sources.append(source)
        try:
            self.add(entry_point.load(), source)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: no plugin ends the user's program
            source.error = f"{type(error).__name__}: {error}"

    def add(self, module: Any, source: Source) -> None:
        """Register everything that a module offers, or nothing if anything in it is wrong."""
        hooks = _find_hooks(self._manager, module)
        offered: dict[tuple[str, str], Callable[..., Any]] = {}
        self._manager.register(module, name=f"{source.package}:{source.entry_point}")
        for hook, function in hooks.items():
            kind = hook.removeprefix(HOOK_PREFIX)
            function(
                register=lambda name, factory, kind=kind: self._offer(offered, kind, name, factory)
            )
        for (kind, name), factory in offered.items():
            self._factories[kind][name] = (factory, source)
        source.hooks, source.registered = list(hooks), list(offered)

    def _offer(
        self,
        offered: dict[tuple[str, str], Callable[..., Any]],
        kind: str,
        name: str,
        factory: Callable[..., Any],
    ) -> None:
        """Add a factory to what a plugin offers, if its name is valid and free."""
        if not isinstance(name, str) or not name:
            raise PluginError(
                f"a {SINGULAR[kind]} is registered under {name!r}; "
                "the name must be a non-empty string"
            )
        if "+" in name or name.split() != [name]:
            raise PluginError(f"{SINGULAR[kind]} {name!r}: a name must not contain + or blanks")
        if kind == "variants" and not callable(factory):
            factory = functools.partial(_return_variant, factory)  # data: there is nothing to make
        if not callable(factory):
            raise PluginError(
                f"{SINGULAR[kind]} {name!r} is registered with {factory!r}, "
                "which can't be called to make one"
            )
        if name in self._factories[kind]:
            owner = self._factories[kind][name][1]
            raise PluginError(f"{SINGULAR[kind]} {name!r} is already registered by {owner}")
        if (kind, name) in offered:
            raise PluginError(f"{SINGULAR[kind]} {name!r} is registered twice")
        offered[kind, name] = factory


def check_plugin(kind: str, plugin: Any, name: str | None = None) -> Any:
    """Return the plugin itself; the registry refuses one that lacks what its kind must offer."""
    missing = find_missing(kind, plugin)
    if missing:
        what = f"{SINGULAR[kind]} {name!r}" if name else f"{plugin!r}, given as a {SINGULAR[kind]},"
        raise PluginError(f"{what} lacks {missing}; fedsuplin.plugin has a protocol of each kind")
    return plugin


def list_parameters(factory: Callable[..., Any]) -> list[str]:
    """Return the keywords that a registered factory takes."""
    return [
        name
        for name, p in inspect.signature(factory).parameters.items()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]


def list_needed_parameters(factory: Callable[..., Any]) -> list[str]:
    """Return the keywords of a registered factory that have no default."""
    signature = inspect.signature(factory)
    return [
        name
        for name in list_parameters(factory)
        if signature.parameters[name].default is inspect.Parameter.empty
    ]


def _find_hooks(manager: pluggy.PluginManager, module: Any) -> dict[str, Callable[..., Any]]:
    """Return the hooks that a module registers with, by name; refuse what can't be called."""
    found: dict[str, Callable[..., Any]] = {}
    for name in dir(module):
        options = manager.parse_hookimpl_opts(module, name)
        if options is None:
            continue
        hook = options.get("specname") or name
        if hook.removeprefix(HOOK_PREFIX) not in KINDS:
            if options["optionalhook"]:
                continue
            raise unknown("hook", hook, [HOOK_PREFIX + kind for kind in KINDS])
        refused = [option for option in UNSUPPORTED_OPTIONS if options.get(option)]
        if refused:
            raise PluginError(
                f"the hook {hook} is marked with {refused[0]}=True, which has no meaning here: "
                "fedsuplin calls each plugin on its own, the built-ins first. Use plain @hookimpl"
            )
        if hook in found:
            raise PluginError(f"the hook {hook} is implemented twice")
        found[hook] = getattr(module, name)
    return found


def find_package(entry_point: Any) -> tuple[str, str]:
    """Return the distribution of an entry point that the registry found, and its version."""
    distribution = getattr(entry_point, "dist", None)
    return (distribution.name, distribution.version) if distribution else ("unknown", "?")


def _return_variant(variant: Any) -> Any:
    """Return a variant: its factory in the registry, if it was registered as data."""
    return variant


plugins = Registry()
