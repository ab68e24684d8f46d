"""Make the arrival pattern of a problem by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..registry import check_plugin, list_parameters, plugins


def make_arrival(arrival: Any, parameters: Mapping[str, Any] | None = None) -> Any:
    """Return the arrival pattern of this name, or the object itself; None stays None."""
    if isinstance(arrival, str):
        return plugins.create("arrivals", arrival, dict(parameters or {}))
    return None if arrival is None else check_plugin("arrivals", arrival)


def pick_arrival_parameters(arrival: Any, noise: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords that belong to the arrival, if it is a name.

    A keyword that the noise model takes too belongs to the noise model.
    """
    takes = (
        set(list_parameters(plugins.factory("arrivals", arrival)))
        if isinstance(arrival, str)
        else set()
    )
    if isinstance(noise, str):
        takes -= set(list_parameters(plugins.factory("noise_models", noise)))
    return {name: value for name, value in given.items() if name in takes}
