"""Systems that the paper compares with. So far OFUL; the others of its Table 1 are compositions of the same parts."""

from __future__ import annotations

from fedsuplin import Variant, hookimpl

OFUL = Variant(
    summary="OFUL (LinUCB): each client alone, one layer, the arm with the largest upper bound",
    theorem=None,
    policy="optimism",
    trigger="never",
    noise="self-normalised",
    weighting="unit",
    syncs="one",
    lazy=False,
    presets={"theory": {}, "practical": {"alpha_scale": 0.5}},
)


@hookimpl
def fedsuplin_register_variants(register):
    register("oful", lambda: OFUL)
