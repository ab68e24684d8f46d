"""The systems that the paper compares with in Table 1, and greedy and uniform play.

Each is a composition of parts, as data in the lower half. The upper half has the few parts that the
paper's own variants do not need.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy import LowLevelCallable

from fedsuplin.plugin import (
    Bound,
    Claim,
    InvalidInput,
    Setting,
    Variant,
    add_rounding_margin,
    check_finite,
    check_positive,
    formulas,
    from_cython,
    hookimpl,
)
from fedsuplin_plugins.noise import Gaussian, SelfNormalised
from fedsuplin_plugins.triggers import TimedDeterminant


@dataclass(frozen=True)
class DisLinUCBTrigger(TimedDeterminant):
    """(t − t_last)·ln(det(A+ΔA)/det(A)) > D with the D of DisLinUCB: T_c ln(M T_c)/(d M)."""

    @staticmethod
    def theorem(setting: Setting) -> float:
        """Return the value that the theorem uses."""
        rounds = setting.rounds
        return max(
            0.0, rounds * math.log(setting.n_clients * rounds) / (setting.dim * setting.n_clients)
        )


@dataclass(frozen=True)
class UploadDownload:
    """Upload when det(A_i)/det(A_i − ΔA_i) > γ_U, download when det would rise by more than γ_D.

    Both default to e^(1/M).
    """

    gamma_u: float | None = None
    gamma_d: float | None = None

    def __post_init__(self) -> None:
        for name in ("gamma_u", "gamma_d"):
            value = getattr(self, name)
            if value is not None and check_finite(name, value) < 1:
                raise InvalidInput(
                    f"{name} is a ratio of determinants, so it must be at least 1, not {value!r}"
                )

    def bind(self, setting: Setting) -> UploadDownload:
        """Fill in the defaults that depend on the sizes."""
        default = math.exp(1 / setting.n_clients)
        given = {name: getattr(self, name) for name in ("gamma_u", "gamma_d")}
        return replace(
            self, **{name: default if value is None else value for name, value in given.items()}
        )

    @property
    def push_threshold(self) -> float:
        """What a client must lack, in ln det, before the server sends it."""
        return self._compute_threshold("gamma_d")

    @property
    def threshold(self) -> float:
        """The threshold in ln det, with the rounding margin."""
        return self._compute_threshold("gamma_u")

    def _compute_threshold(self, name: str) -> float:
        """Return ln γ with the rounding margin."""
        ratio: float | None = getattr(self, name)
        if ratio is None:
            raise InvalidInput(
                f"this UploadDownload has no {name} yet: call bind(setting), or give it"
            )
        return add_rounding_margin(math.log(ratio))

    def fires(self, gain: float, elapsed: float) -> bool:
        """Return whether to ask for a sync."""
        return gain > self.threshold

    def compiled(self) -> LowLevelCallable:
        """Return the same rule as a compiled function."""
        return from_cython(formulas, "gain_above", self.threshold)


@dataclass(frozen=True)
class SinglePlayer(Gaussian):
    """σ-sub-Gaussian noise for a learner alone: M = 1 in the formulas, and T // M pulls."""

    drawn_as: ClassVar[str] = "gaussian"

    def n_layers(self, setting: Setting) -> int:
        """Return the number of layers."""
        return super().n_layers(reduce_to_one_client(setting))

    def radii(self, setting: Setting) -> np.ndarray:
        """Return the radius of each layer."""
        return super().radii(reduce_to_one_client(setting))

    def target_widths(self, setting: Setting) -> np.ndarray:
        """Return the target width of each layer."""
        return super().target_widths(reduce_to_one_client(setting))


def reduce_to_one_client(setting: Setting) -> Setting:
    """Return the setting that one client has by itself."""
    return replace(setting, n_clients=1, horizon=max(1, setting.horizon // setting.n_clients))


@dataclass(frozen=True)
class FedLinUCBNoise(SelfNormalised):
    """σ-sub-Gaussian noise with the radius of FedLinUCB.

    C is the trigger's, 1/M² by its theorem. `radius` is "theorem",
    √λB + (√(1+MC) + M√(2C))(σ√(d ln((1 + T/(min(C,1)λ))/δ)) + √λB), or "self-normalised", OFUL's.
    """

    C: float | None = None
    radius: str = "theorem"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.C is not None:
            object.__setattr__(self, "C", check_positive("C", self.C))
        if self.radius not in ("theorem", "self-normalised"):
            raise InvalidInput(
                f"radius must be 'theorem' or 'self-normalised', not {self.radius!r}"
            )

    def bind(self, setting: Setting) -> FedLinUCBNoise:
        """Fill in the defaults that depend on the sizes."""
        return self if self.C is not None else replace(self, C=1 / setting.n_clients**2)

    def radii(self, setting: Setting) -> np.ndarray:
        """Return the radius of each layer."""
        if self.radius != "theorem":
            return super().radii(setting)
        if self.C is None:
            raise InvalidInput("this FedLinUCBNoise has no C yet: call bind(setting), or give it")
        C, M, bias = self.C, setting.n_clients, math.sqrt(setting.ridge) * self.theta_bound
        pulls = setting.horizon / (min(C, 1) * setting.ridge)
        centralised = (
            self.noise_scale * math.sqrt(setting.dim * math.log((1 + pulls) / self.delta)) + bias
        )
        return np.array(
            [
                self.alpha_scale
                * (bias + (math.sqrt(1 + M * C) + M * math.sqrt(2 * C)) * centralised)
            ]
        )

    def radius_growth(self, setting: Setting) -> tuple[float, float]:
        """Return how the radius grows with ln det A."""
        return super().radius_growth(setting) if self.radius != "theorem" else (0.0, 0.0)


@hookimpl
def fedsuplin_register_triggers(register: Callable[[str, Any], None]) -> None:
    register("dislinucb", DisLinUCBTrigger)
    register("upload-download", UploadDownload)


@hookimpl
def fedsuplin_register_noise_models(register: Callable[[str, Any], None]) -> None:
    register("single-player", SinglePlayer)
    register("fedlinucb", FedLinUCBNoise)


# Radii of one-layer optimism at half of OFUL's. By docs/presets.md that is right for oful, and
# large for those that talk.
HALF = {"alpha_scale": 0.5}
OFUL = Variant(
    summary="OFUL (LinUCB): each client alone, one layer, the arm with the largest upper bound",
    policy="optimism",
    trigger="never",
    noise="self-normalised",
    lazy=False,
    claim=Claim("single player", "infinite", Bound("d √(T log T)", d=1, T=0.5, log_T=0.5), None),
    presets={"theory": {}, "practical": HALF},
)
GREEDY = replace(
    OFUL,
    summary="each client alone, always the arm with the largest estimate: OFUL without its bonus",
    claim=None,
    presets={"theory": {"alpha_scale": 0.0}, "practical": {"alpha_scale": 0.0}},
)
UNIFORM = replace(
    OFUL,
    summary="any arm, with equal probability: learns nothing",
    policy="uniform",
    claim=None,
    presets={},
)
SUPLINUCB = Variant(
    summary="SupLinUCB: each client alone, the layered screening with one player in its formulas",
    trigger="never",
    noise="single-player",
    lazy=False,
    claim=Claim(
        "single player",
        "adversarial",
        Bound("√(d T log³ T)", d=0.5, T=0.5, log_T=1.5),
        None,
    ),
    presets={"theory": {}, "practical": {"alpha_scale": 0.15, "ridge": 0.1}},
)
FEDLINUCB = Variant(
    summary="FedLinUCB: one layer of optimism from the last download; "
    "a client syncs when it has learnt enough",
    policy="optimism",
    noise="fedlinucb",
    claim=Claim(
        "async",
        "infinite",
        Bound("d √T log T", d=1, T=0.5, log_T=1),
        Bound("d M² log T", d=1, M=2, log_T=1),
    ),
    presets={"theory": {}, "practical": {**HALF, "C": 1.0, "radius": "self-normalised"}},
)
ASYNC_LINUCB = Variant(
    summary="Async-LinUCB: one layer of optimism; clients upload, "
    "and the server sends each what it lacks, by thresholds",
    policy="optimism",
    trigger="upload-download",
    noise="self-normalised",
    syncs="push",
    lazy=False,
    claim=FEDLINUCB.claim,
    presets={"theory": {}, "practical": {**HALF, "gamma_u": 2.0, "gamma_d": 2.0}},
)
DISLINUCB = Variant(
    summary="DisLinUCB: one layer of optimism in rounds; "
    "all clients sync when one of them has learnt enough",
    policy="optimism",
    trigger="dislinucb",
    noise="self-normalised",
    syncs="all",
    lazy=False,
    claim=Claim(
        "sync",
        "infinite",
        Bound("d √T log² T", d=1, T=0.5, log_T=2),
        Bound("d M^(3/2)", d=1, M=1.5),
    ),
    presets={"theory": {}, "practical": HALF},
)
BASELINES = {
    "oful": OFUL,
    "greedy": GREEDY,
    "uniform": UNIFORM,
    "suplinucb": SUPLINUCB,
    "fedlinucb": FEDLINUCB,
    "async-linucb": ASYNC_LINUCB,
    "dislinucb": DISLINUCB,
}


@hookimpl
def fedsuplin_register_variants(register: Callable[[str, Any], None]) -> None:
    for name, variant in BASELINES.items():
        register(name, variant)
