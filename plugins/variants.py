"""The four variants of the paper. Each is data: its parts, who syncs, lazy or eager.

What a variant leaves out is as in the plain algorithm, `async`: layered screening from the last
download, the determinant trigger, sub-Gaussian noise, weight 1, and one client that syncs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsuplin.plugin import Bound, Claim, Variant, hookimpl

# Chosen by measurement over ten problems (docs/presets.md). The user can override each keyword.
PRACTICAL = {"alpha_scale": 0.15, "ridge": 0.1}
# Table 1 has async and sync. Theorems 3 and 4 give the extensions, whose regret also depends on
# σ_t and on C_p.
REGRET = Bound("√(d T log³ T)", d=0.5, T=0.5, log_T=1.5)
ASYNC_CLAIM = Claim(
    "async",
    "adversarial",
    REGRET,
    Bound("d M² log d log T", d=1, M=2, log_d=1, log_T=1),
)
SYNC_CLAIM = Claim(
    "sync",
    "adversarial",
    REGRET,
    Bound("d^(3/2) M^(3/2) log d", d=1.5, M=1.5, log_d=1),
)
ASYNC = Variant(
    summary="one client at a time, syncs alone when it has learnt enough",
    theorem="Theorem 1",
    claim=ASYNC_CLAIM,
    presets={"theory": {}, "practical": {**PRACTICAL, "C": 1.0}},
)
SYNC = Variant(
    summary="all clients in rounds, all sync the layers that ask for it",
    theorem="Theorem 2",
    claim=SYNC_CLAIM,
    trigger="timed-determinant",
    syncs="all",
    lazy=False,
    presets={"theory": {}, "practical": {**PRACTICAL}},
)
VARIANCE = Variant(
    summary="async; observations weighted by their known noise level",
    theorem="Theorem 3",
    noise="bounded",
    weighting="variance",
    presets={"theory": {}, "practical": {**PRACTICAL, "C": 1.0, "layer_zero": "square-root"}},
)
ROBUST = Variant(
    summary="async; survives rewards corrupted by C_p in all",
    theorem="Theorem 4",
    noise="corrupted",
    weighting="corruption",
    # The weights limit the adversary and the noise, so that the radii need little for either.
    presets={
        "theory": {},
        "practical": {**PRACTICAL, "alpha_scale": 0.1, "corruption_scale": 0.05, "C": 1.0},
    },
)


@hookimpl
def fedsuplin_register_variants(register: Callable[[str, Any], None]) -> None:
    for name, variant in {
        "async": ASYNC,
        "sync": SYNC,
        "variance": VARIANCE,
        "robust": ROBUST,
    }.items():
        register(name, variant)
