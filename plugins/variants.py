"""The four variants of the paper. Each is data: which trigger, noise model and weighting, who syncs, lazy or eager."""

from __future__ import annotations

from fedsuplin import Variant, hookimpl

# Provisional, measured at the paper's setting and a few others (docs/presets.md); each keyword can be given by the user instead.
PRACTICAL = {"alpha_scale": 0.15, "ridge": 0.1}

ASYNC = Variant(
    summary="one client a time, syncs alone when it has learnt enough",
    theorem="Theorem 1",
    policy="layered",
    trigger="determinant",
    noise="gaussian",
    weighting="unit",
    syncs="one",
    lazy=True,
    presets={"theory": {}, "practical": {**PRACTICAL, "C": 1.0}},
)
SYNC = Variant(
    summary="all clients in rounds, all sync the layers that ask for it",
    theorem="Theorem 2",
    policy="layered",
    trigger="timed-determinant",
    noise="gaussian",
    weighting="unit",
    syncs="all",
    lazy=False,
    presets={"theory": {}, "practical": {**PRACTICAL}},
)
VARIANCE = Variant(
    summary="async; observations weighted by the noise level the client is told",
    theorem="Theorem 3",
    policy="layered",
    trigger="determinant",
    noise="bounded",
    weighting="variance",
    syncs="one",
    lazy=True,
    presets={"theory": {}, "practical": {**PRACTICAL, "C": 1.0, "layer_zero": "square-root"}},
)
ROBUST = Variant(
    summary="async; survives rewards corrupted by C_p in all",
    theorem="Theorem 4",
    policy="layered",
    trigger="determinant",
    noise="corrupted",
    weighting="corruption",
    syncs="one",
    lazy=True,
    # √d, the price of corruption, is in every radius whatever the noise: it wants a smaller scale.
    presets={"theory": {}, "practical": {**PRACTICAL, "alpha_scale": 0.05, "C": 1.0}},
)


@hookimpl
def fedsuplin_register_variants(register):
    for name, variant in {"async": ASYNC, "sync": SYNC, "variance": VARIANCE, "robust": ROBUST}.items():
        register(name, lambda variant=variant: variant)
