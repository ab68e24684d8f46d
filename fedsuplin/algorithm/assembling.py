"""Assemble the Algorithm of a recipe for a fixed horizon."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._shared.array_types import Floats
from .._shared.plain_data import collect_fields
from ..contracts.setting import Setting
from ..contracts.variant import AXES, Variant, check_preset
from ..errors import InvalidInput, PluginError, unknown
from ..registry import plugins
from .algorithm import Algorithm
from .composing import compose_recipe, refuse_unused_keywords
from .parts import ask_part, bind_part, make_part, pick_part_keywords

KERNELS = ("layered", "optimism", "phased")


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
    """Assemble the algorithm of a composed recipe for a fixed horizon."""
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
    """Assemble the algorithm of a fixed horizon that a specification describes."""
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
    """Assemble an algorithm from its bound parts, and check what they will do in the loop."""
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


def _compute_layer_numbers(noise: Any, setting: Setting) -> dict[str, Any]:
    """Ask the noise model, while assembling, for the numbers of each layer, and check them."""
    n_layers = ask_part(noise, "n_layers", setting)
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
    """Call a noise model, while assembling, for n finite numbers of at least 0."""
    given = ask_part(noise, what, setting)
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
    """Return an assembled algorithm as plain data, for `assemble_from_spec`."""
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
