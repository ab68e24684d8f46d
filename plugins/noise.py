"""Noise models: what an algorithm may assume about the noise, and how a problem draws it.

An algorithm assumes the number of layers, the radii α_s and the target widths w̄_s of the paper.
The noise scale σ, the ridge λ and the bound B on ‖θ‖ stand where the paper has 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedsuplin.plugin import (
    InvalidInput,
    Setting,
    check_not_negative,
    check_positive,
    check_probability,
    hookimpl,
)

__all__ = ["Bounded", "Corrupted", "Gaussian", "SelfNormalised"]


@dataclass(frozen=True)
class Gaussian:
    """σ-sub-Gaussian noise: the model of async and sync. It is drawn as Gaussian noise."""

    noise_scale: float = 1.0
    theta_bound: float = 1.0
    delta: float = 0.05
    alpha_scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_scale", check_not_negative("noise_scale", self.noise_scale))
        check_radius_parameters(self)

    def n_layers(self, setting: Setting) -> int:
        """Return the number of layers."""
        return 1 + compute_ceil_log2(setting.dim)

    def radii(self, setting: Setting) -> np.ndarray:
        """Return α_0 = √λB + σ√(d ln(2M²T/δ)), α_s = √λB + σ√(2 ln(2KMT ln d/δ)).

        All are multiplied by alpha_scale.
        """
        bias = math.sqrt(setting.ridge) * self.theta_bound
        first = bias + self.noise_scale * compute_layer_zero_term(setting, self.delta)
        later = bias + self.noise_scale * compute_independent_term(setting, self.delta)
        return self.alpha_scale * np.array([first] + [later] * (self.n_layers(setting) - 1))

    def target_widths(self, setting: Setting) -> np.ndarray:
        """Return w̄_s = 2^-s d^1.5/√T."""
        return halve_repeatedly(
            setting.dim**1.5 / math.sqrt(setting.horizon), self.n_layers(setting)
        )

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the noise of n pulls, and the noise levels that clients know."""
        return self.noise_scale * rng.standard_normal(n), np.full(n, self.noise_scale)


@dataclass(frozen=True)
class Corrupted(Gaussian):
    """σ-sub-Gaussian noise, and an adversary that changes rewards by at most C_p: for robust.

    `corruption_scale` multiplies γC_p = √d, the price of corruption in every radius; the theorem
    has 1. A problem draws Gaussian noise, plus what the adversary adds until its budget is spent.
    "early" shows −θ from the first pull on. "targeted" shows the worst arm's mean in place of the
    best arm's, and leaves the others alone. "random" adds to each arm a number uniform on [−1, 1],
    on a random `share` of the pulls.
    """

    drawing_only: ClassVar[tuple[str, ...]] = ("adversary", "share")

    corruption: float = 0.0
    corruption_scale: float = 1.0
    adversary: str = "early"
    share: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("corruption", "corruption_scale"):
            object.__setattr__(self, name, check_not_negative(name, getattr(self, name)))
        if self.adversary not in ADVERSARIES:
            raise InvalidInput(
                f"adversary must be one of {', '.join(ADVERSARIES)}, not {self.adversary!r}"
            )
        if check_not_negative("share", self.share) > 1:
            raise InvalidInput(
                f"share is a share of the pulls, so it must be at most 1, not {self.share!r}"
            )

    @property
    def budget(self) -> float:
        """The most that the adversary may change in all, C_p."""
        return self.corruption

    def radii(self, setting: Setting) -> np.ndarray:
        """Add corruption_scale·√d·alpha_scale to the sub-Gaussian radii, unless C_p = 0."""
        extra = self.corruption_scale * math.sqrt(setting.dim) if self.corruption > 0 else 0.0
        return super().radii(setting) + self.alpha_scale * extra

    def corrupt(self, rng: np.random.Generator, means: np.ndarray, best: np.ndarray) -> np.ndarray:
        """Return what the adversary adds to the mean of every arm, before its budget is applied."""
        return ADVERSARIES[self.adversary](rng, means, best, self.share)


def negate_means(
    rng: np.random.Generator, means: np.ndarray, best: np.ndarray, share: float
) -> np.ndarray:
    """Return what makes every mean look like its negative."""
    return -2 * means


def spoil_best_arm(
    rng: np.random.Generator, means: np.ndarray, best: np.ndarray, share: float
) -> np.ndarray:
    """Return what makes the best arm look like the worst."""
    added = np.zeros_like(means)
    pulls = np.arange(len(means))
    added[pulls, best] = means.min(axis=1) - means[pulls, best]
    return added


def add_random_numbers(
    rng: np.random.Generator, means: np.ndarray, best: np.ndarray, share: float
) -> np.ndarray:
    """Return random numbers for a share of the pulls.

    Each pull takes one row of draws, so that they do not depend on how pulls come in chunks.
    """
    drawn = rng.random((len(means), 1 + means.shape[1]))
    return np.where(drawn[:, :1] < share, 2 * drawn[:, 1:] - 1, 0.0)


ADVERSARIES = {"early": negate_means, "targeted": spoil_best_arm, "random": add_random_numbers}


@dataclass(frozen=True)
class Bounded:
    """|ε| ≤ R with a variance σ_t² that the client knows: the model of variance.

    `layer_zero` is "bernstein", the paper's β_T, or "square-root", √λB + √(d ln(2M²T/δ)), which has
    the Õ(√d) of the paper without constants in the thousands. σ_t is drawn uniformly from
    [sigma_low, sigma_high] (at most R), and ε = ±R with probability σ_t²/(2R²) each, else 0. Of all
    bounded laws, this is the one for which knowing the variance matters most.
    """

    drawing_only: ClassVar[tuple[str, ...]] = ("sigma_low", "sigma_high")

    R: float = 1.0
    theta_bound: float = 1.0
    delta: float = 0.05
    alpha_scale: float = 1.0
    layer_zero: str = "bernstein"
    sigma_low: float = 0.0
    sigma_high: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "R", check_positive("R", self.R))
        check_radius_parameters(self)
        if self.layer_zero not in ("bernstein", "square-root"):
            raise InvalidInput(
                f"layer_zero must be 'bernstein' or 'square-root', not {self.layer_zero!r}"
            )
        high = self.R if self.sigma_high is None else self.sigma_high
        low = check_not_negative("sigma_low", self.sigma_low)
        if not low <= check_not_negative("sigma_high", high) <= self.R:
            raise InvalidInput(
                f"0 ≤ sigma_low ≤ sigma_high ≤ R must hold, not {low}, {high}, {self.R}"
            )

    def n_layers(self, setting: Setting) -> int:
        """Return the number of layers."""
        return 1 + max(1, math.ceil(math.log2(self.R) + math.log2(setting.horizon)))

    def radii(self, setting: Setting) -> np.ndarray:
        """Return α_0 = √λB + β (or + √(d ln(2M²T/δ))), α_s = √λB + √(2 ln(2KMT ln d/δ)).

        There is no σ, because the weights normalise the noise.
        """
        bias = math.sqrt(setting.ridge) * self.theta_bound
        term = (
            self.compute_bernstein_term
            if self.layer_zero == "bernstein"
            else compute_layer_zero_term
        )
        later = bias + compute_independent_term(setting, self.delta)
        return self.alpha_scale * np.array(
            [bias + term(setting, self.delta)] + [later] * (self.n_layers(setting) - 1)
        )

    def compute_bernstein_term(self, setting: Setting, delta: float) -> float:
        """Return β = 12√(d ln(1 + T²/(dλ)) ι) + 24ι√d + 6ι.

        Here ι = ln(32(ln(max(R√T, 1)) + 1)T²/δ).
        """
        d, T = setting.dim, setting.horizon
        iota = math.log(32 * (math.log(max(self.R * math.sqrt(T), 1)) + 1) * T**2 / delta)
        return (
            12 * math.sqrt(d * math.log(1 + T**2 / (d * setting.ridge)) * iota)
            + 24 * iota * math.sqrt(d)
            + 6 * iota
        )

    def target_widths(self, setting: Setting) -> np.ndarray:
        """Return w̄_s = 2^-s dR²."""
        return halve_repeatedly(setting.dim * self.R**2, self.n_layers(setting))

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the noise of n pulls, and the noise levels that clients know."""
        u = rng.random((n, 2))
        high = self.R if self.sigma_high is None else self.sigma_high
        sigma = self.sigma_low + (high - self.sigma_low) * u[:, 0]
        half = (sigma / self.R) ** 2 / 2
        noise = np.where(u[:, 1] < half, self.R, np.where(u[:, 1] < 2 * half, -self.R, 0.0))
        return noise, sigma


@dataclass(frozen=True)
class SelfNormalised(Gaussian):
    """σ-sub-Gaussian noise with OFUL's radius, which grows with ln det A, and one layer."""

    drawn_as: ClassVar[str] = "gaussian"

    def n_layers(self, setting: Setting) -> int:
        """Return the number of layers."""
        return 1

    def radii(self, setting: Setting) -> np.ndarray:
        """Return the radius of each layer."""
        return np.array([self.alpha_scale * math.sqrt(setting.ridge) * self.theta_bound])

    def radius_growth(self, setting: Setting) -> tuple[float, float]:
        """Return (σ, 2 ln(1/δ)), which stands for σ√(2 ln(1/δ) + ln det(A)/det(λI)).

        That is the second term of OFUL's radius; the first is √λB. σ is multiplied by alpha_scale.
        """
        return self.alpha_scale * self.noise_scale, 2 * math.log(1 / self.delta)

    def target_widths(self, setting: Setting) -> np.ndarray:
        """Return the target width of each layer."""
        return np.zeros(1)


def check_radius_parameters(model: Gaussian | Bounded) -> None:
    """Check the parameters that every radius depends on."""
    object.__setattr__(model, "theta_bound", check_not_negative("theta_bound", model.theta_bound))
    object.__setattr__(model, "delta", check_probability("delta", model.delta))
    object.__setattr__(model, "alpha_scale", check_not_negative("alpha_scale", model.alpha_scale))


def compute_layer_zero_term(setting: Setting, delta: float) -> float:
    """Return √(d ln(2M²T/δ)). For λ < 1 the logarithm takes T/λ in place of T."""
    pulls = setting.horizon / min(setting.ridge, 1.0)
    return math.sqrt(setting.dim * math.log(2 * setting.n_clients**2 * pulls / delta))


def compute_independent_term(setting: Setting, delta: float) -> float:
    """Return √(2 ln(2KMT ln d/δ)), for layers past the first, whose rewards are independent.

    ln d counts as ln 2 for d = 1.
    """
    log_dim = math.log(max(setting.dim, 2))
    return math.sqrt(
        2 * math.log(2 * setting.n_arms * setting.n_clients * setting.horizon * log_dim / delta)
    )


def compute_ceil_log2(n: int) -> int:
    """Return ⌈log₂ n⌉."""
    return (n - 1).bit_length()


def halve_repeatedly(first: float, n: int) -> np.ndarray:
    """Return n numbers, each half of the one before."""
    return first * 0.5 ** np.arange(n)


@hookimpl
def fedsuplin_register_noise_models(register: Callable[[str, Any], None]) -> None:
    register("gaussian", Gaussian)
    register("corrupted", Corrupted)
    register("bounded", Bounded)
    register("self-normalised", SelfNormalised)
