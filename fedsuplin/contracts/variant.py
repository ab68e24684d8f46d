"""Variant: a named composition of parts, with its axes, presets and ways to sync."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import unknown
from .claims import Claim

AXES = {
    "policy": "policies",
    "trigger": "triggers",
    "noise": "noise_models",
    "weighting": "weightings",
}
PRESETS = ("practical", "theory")
SYNCS = {
    "one": "one client syncs, all layers",
    "all": "all clients sync, marked layers",
    "push": "one client uploads, the server sends each what it lacks",
}
PARTS = (*AXES, "syncs", "lazy")


@dataclass(frozen=True)
class Variant:
    """A composition of parts under one name.

    Each part is a registered name or an object. The defaults are the paper's plain algorithm,
    `async`.

    Parameters
    ----------
    policy, trigger, noise, weighting : str or plugin
        The parts: how an arm is chosen, when a client asks for a sync, what is assumed of the
        noise, and how much an observation counts.
    syncs : {"one", "all", "push"}
        "one": the client whose trigger fired, all layers. "all": every client at the end of the
        round, the marked layers. "push": that client uploads, and the server sends each client
        what it lacks where it exceeds the trigger's ``push_threshold``, in ln det.
    lazy : bool
        Decide from the last download alone (lazy), or from it and what was gathered since (eager).
    summary : str
        One line for the list of variants.
    theorem : str or None
        The theorem of the paper that covers this composition, if one does.
    claim : Claim or None
        Its row in the paper's Table 1, if it has one.
    presets : mapping of str to mapping
        Keywords for the presets "practical" and "theory", which the user may override.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> gossip = fsl.Variant(trigger="periodic", lazy=False)
    >>> fsl.make(gossip, dim=4, n_arms=5, n_clients=2, horizon=1000, every=20).trigger
    Periodic(every=20)
    """

    policy: Any = "layered"
    trigger: Any = "determinant"
    noise: Any = "gaussian"
    weighting: Any = "unit"
    syncs: str = "one"
    lazy: bool = True
    summary: str = ""
    theorem: str | None = None
    claim: Claim | None = None
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.syncs not in SYNCS:
            raise unknown("way to sync", self.syncs, SYNCS)
        for preset in self.presets:
            check_preset(preset)


def check_preset(preset: str) -> None:
    """Refuse a preset that no variant has."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
