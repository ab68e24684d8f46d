"""Combine variants and replaced parts into one recipe, and list its keywords."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from ..contracts.variant import AXES, PARTS, PRESETS, Variant
from ..errors import InvalidInput, PluginError, unknown
from ..registry import plugins
from .parts import list_part_keywords


def compose_recipe(variant: str | Variant, parts: Mapping[str, Any]) -> tuple[str, Variant]:
    """Return the name to show and the recipe: a variant with some parts replaced.

    A part that is None stays as it is. A theorem covers the recipe if it covers one of the named
    variants that is the same in every part.
    """
    replaced = {part: value for part, value in parts.items() if value is not None}
    name, recipes = _look_up_variants(variant)
    for each in recipes.values():
        if not isinstance(each, Variant):
            raise PluginError(
                f"{name!r} is a variant, so it must be a fedsuplin.Variant, not {each!r}"
            )
    recipe = (
        combine_variants(recipes, replaced) if len(recipes) > 1 else next(iter(recipes.values()))
    )
    recipe = dataclasses.replace(recipe, **replaced)
    same = [
        r
        for r in recipes.values()
        if all(getattr(r, part) == getattr(recipe, part) for part in PARTS)
    ]
    covered = (
        {"theorem": same[0].theorem, "claim": same[0].claim}
        if same
        else {"theorem": None, "claim": None}
    )
    return name, dataclasses.replace(recipe, **covered)


def _look_up_variants(variant: str | Variant) -> tuple[str, dict[str, Variant]]:
    """Return the name to show for what is composed, and the variants that it names."""
    if isinstance(variant, Variant):
        return "custom", {"custom": variant}
    if not isinstance(variant, str):
        raise InvalidInput(f"a variant is a name, names joined by +, or a Variant, not {variant!r}")
    return variant, {name: plugins.create("variants", name, {}) for name in variant.split("+")}


def combine_variants(recipes: Mapping[str, Variant], decided: Collection[str] = ()) -> Variant:
    """Combine what each variant changes in the plain one.

    If two change the same part in different ways, the part must be in `decided`. If presets give
    one keyword twice, the later name counts.
    """
    plain = Variant()
    parts: dict[str, Any] = {}
    chosen_by: dict[str, str] = {}
    for name, recipe in recipes.items():
        for part in PARTS:
            value = getattr(recipe, part)
            if value == getattr(plain, part) or part in decided:
                continue
            if parts.setdefault(part, value) != value:
                raise InvalidInput(
                    f"{chosen_by[part]!r} and {name!r} both choose the {part} "
                    f"({parts[part]!r} and {value!r}): say which with {part}="
                )
            chosen_by[part] = name
    presets: dict[str, dict[str, Any]] = {preset: {} for preset in PRESETS}
    for recipe in recipes.values():
        for preset, values in recipe.presets.items():
            presets.setdefault(preset, {}).update(values)
    return Variant(
        **parts, presets=presets, summary=" + ".join(recipe.summary for recipe in recipes.values())
    )


def list_keywords(recipe: Variant) -> set[str]:
    """Return the keywords that `make` takes for a composed recipe, beyond sizes and parts."""
    named = {axis: getattr(recipe, axis) for axis in AXES if isinstance(getattr(recipe, axis), str)}
    return {"ridge"}.union(*(list_part_keywords(axis, value) for axis, value in named.items()))


def refuse_unused_keywords(name: str, recipe: Variant, parameters: Mapping[str, Any]) -> None:
    """Raise an error for a keyword that no part of the composed recipe takes."""
    takes = list_keywords(recipe)
    for keyword in parameters:
        if keyword not in takes:
            raise unknown(f"keyword for {name!r}", keyword, takes)
