"""Make, bind and check the parts of a recipe, and build the Algorithm for a fixed horizon."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsuplin_ext.rules import is_compiled

from .._shared.arrays import Floats
from ..contracts.protocols import PULL_METHODS
from ..contracts.setting import Setting
from ..contracts.variant import AXES, PRESETS, Variant
from ..errors import FedsuplinError, InvalidInput, PluginError, unknown
from ..registry import check_plugin, plugins
from .algorithm import Algorithm, make_rule
from .composing import compose_recipe, pick_part_keywords, refuse_unused_keywords

KERNELS = ("layered", "optimism", "phased")


def check_preset(preset: str) -> None:
    """Refuse a preset that does not exist."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)


def assemble_algorithm(
    name: str,
    recipe: Variant,
    /,
    *,
    dim: int,
    n_arms: int,
    n_clients: int,
    horizon: int,
    preset: str = "practical",
    **parameters: Any,
) -> Algorithm:
    """Make and bind the parts of a composed recipe, and compute its numbers for a fixed horizon."""
    check_preset(preset)

    preset_values = dict(recipe.presets.get(preset, {}))
    ridge = parameters.get("ridge", preset_values.get("ridge", 1.0))
    setting = Setting(dim=dim, n_arms=n_arms, n_clients=n_clients, horizon=horizon, ridge=ridge)
    refuse_unused_keywords(name, recipe, parameters)
    keywords = {
        axis: pick_part_keywords(axis, getattr(recipe, axis), preset_values | parameters)
        for axis in AXES
    }
    bound = {
        axis: bind_part(axis, make_part(axis, getattr(recipe, axis), keywords[axis]), setting)
        for axis in AXES
    }
    spec = describe_algorithm(name, setting, preset, recipe, bound, keywords)
    return build_checked_algorithm(name, setting, preset, recipe, bound, spec)


def assemble_from_spec(spec: Mapping[str, Any]) -> Algorithm:
    """Make the algorithm of a fixed horizon that a specification describes."""
    setting = Setting(
        **{key: spec[key] for key in ("dim", "n_arms", "n_clients", "horizon", "ridge")}
    )
    parts = {}
    for axis, kind in AXES.items():
        name = spec[axis]["name"]
        if name is None:
            raise InvalidInput(
                f"the {axis} was passed as an object of type {spec[axis]['type']}, "
                "so it can't be made again by name"
            )
        parts[axis] = bind_part(axis, plugins.create(kind, name, spec[axis]["parameters"]), setting)
    names = {axis: spec[axis]["name"] for axis in AXES}
    variant = Variant() if spec["variant"] == "custom" else spec["variant"]
    name, recipe = compose_recipe(variant, names | {"syncs": spec["syncs"], "lazy": spec["lazy"]})
    return build_checked_algorithm(name, setting, spec["preset"], recipe, parts, dict(spec))


def build_checked_algorithm(
    name: str,
    setting: Setting,
    preset: str,
    recipe: Variant,
    parts: Mapping[str, Any],
    spec: dict[str, Any],
) -> Algorithm:
    """Build an algorithm after checking everything that its parts will do in the loop."""
    algorithm = Algorithm(
        name=name,
        setting=setting,
        preset=preset,
        syncs=recipe.syncs,
        lazy=recipe.lazy,
        theorem=recipe.theorem,
        claim=recipe.claim,
        spec=spec,
        **parts,
        **_compute_layer_numbers(parts["noise"], setting),
    )
    if algorithm.kernel is not None and algorithm.kernel not in KERNELS:
        raise unknown("decision kernel", algorithm.kernel, KERNELS)
    if algorithm.syncs == "push" and not hasattr(algorithm.trigger, "push_threshold"):
        raise PluginError(
            "with syncs='push' the trigger needs a push_threshold, "
            f"which {algorithm.trigger!r} does not have"
        )
    _ = algorithm.rules
    return algorithm


def make_part(axis: str, given: Any, keywords: Mapping[str, Any]) -> Any:
    """Return the plugin for one axis, given by name, as an object or as a bare function."""
    if _is_bare_function(axis, given):
        return Bare(axis, given)
    return (
        plugins.create(AXES[axis], given, dict(keywords))
        if isinstance(given, str)
        else check_plugin(AXES[axis], given)
    )


def _is_bare_function(axis: str, given: Any) -> bool:
    """Return whether a part was given as a function without the method of its axis."""
    return (
        axis in PULL_METHODS
        and (callable(given) or is_compiled(given))
        and not hasattr(given, PULL_METHODS[axis].name)
    )


class Bare:
    """A trigger, a weighting or a policy that was given as a function alone."""

    def __init__(self, axis: str, function: Any) -> None:
        self._function = function
        setattr(
            self,
            PULL_METHODS[axis].name,
            make_rule(axis, self) if is_compiled(function) else function,
        )

    def compiled(self) -> Any:
        """Return the function if it is compiled, else None."""
        return self._function if is_compiled(self._function) else None

    def __repr__(self) -> str:
        return f"Bare({getattr(self._function, '__qualname__', self._function)})"


def bind_part(axis: str, part: Any, setting: Setting) -> Any:
    """Fill in what a part leaves open until the sizes are known, if it has `bind`."""
    return (
        check_plugin(AXES[axis], _ask_part(part, "bind", setting))
        if hasattr(part, "bind")
        else part
    )


def _ask_part(part: Any, method: str, setting: Setting) -> Any:
    """Call a method of a part with the setting. Whatever it raises becomes a PluginError."""
    try:
        return getattr(part, method)(setting)
    except FedsuplinError:
        raise
    except Exception as error:
        raise PluginError(f"{part!r}: {method} raised {type(error).__name__}: {error}") from error


def _compute_layer_numbers(noise: Any, setting: Setting) -> dict[str, Any]:
    """Ask a noise model for the numbers of each layer, and check them."""
    n_layers = _ask_part(noise, "n_layers", setting)
    if not isinstance(n_layers, numbers.Integral) or isinstance(n_layers, bool) or n_layers < 1:
        raise PluginError(
            f"noise model {noise!r}: n_layers must be a whole number of at least 1, "
            f"not {n_layers!r}"
        )
    found = {
        what: _read_layer_numbers(noise, what, setting, int(n_layers))
        for what in ("radii", "target_widths")
    }
    growth = (
        _read_layer_numbers(noise, "radius_growth", setting, 2)
        if hasattr(noise, "radius_growth")
        else (0.0, 0.0)
    )
    return found | {"radius_growth": tuple(float(value) for value in growth)}


def _read_layer_numbers(noise: Any, what: str, setting: Setting, n: int) -> Floats:
    """Call a method of a noise model that must return n finite numbers of at least 0."""
    given = _ask_part(noise, what, setting)
    try:
        values = np.array(given, dtype=float)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (n,) or not np.isfinite(values).all() or (values < 0).any():
        raise PluginError(
            f"noise model {noise!r}: {what} must be {n} finite numbers ≥ 0, not {given!r}"
        )
    values.setflags(write=False)
    return values


def describe_algorithm(
    name: str,
    setting: Setting,
    preset: str,
    recipe: Variant,
    parts: Mapping[str, Any],
    keywords: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the algorithm as plain data, from which `assemble_from_spec` makes it again."""
    described = {}
    for axis, part in parts.items():
        given = getattr(recipe, axis)
        described[axis] = {
            "name": given if isinstance(given, str) else None,
            "type": type(part).__qualname__,
            "parameters": collect_fields(part)
            if dataclasses.is_dataclass(part)
            else keywords[axis],
        }
    return {
        "variant": name,
        **dataclasses.asdict(setting),
        "preset": preset,
        "syncs": recipe.syncs,
        "lazy": recipe.lazy,
        **described,
    }


def collect_fields(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that make it again."""
    return {
        field.name: getattr(part, field.name) for field in dataclasses.fields(part) if field.init
    }
