"""Verdicts: decide from what was measured whether a claim holds, does not, or stays open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .._shared.array_types import Floats
from .._shared.statistics import (
    compute_confidence_band,
    compute_standard_error,
    compute_student_factor,
)
from .formatting import format_number

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"


@dataclass(frozen=True)
class Verdict:
    """One claim, what was measured, and the outcome."""

    claim: str
    source: str
    """"paper", "draft" (a paragraph commented out in the paper's source), "theorem" or "ours"."""
    setting: str
    measured: str
    """The numbers, as text."""
    outcome: str

    def to_row(self) -> dict[str, Any]:
        """Return the verdict as a row of a table."""
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """The difference of two means, with its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def less(self) -> str:
        """The verdict's outcome for the claim that the first mean is less than the second."""
        return HOLDS if self.high < 0 else FAILS if self.low > 0 else OPEN

    def __str__(self) -> str:
        mean, low, high = (
            format_number(value, sign=True) for value in (self.mean, self.low, self.high)
        )
        return f"{mean} [{low}, {high}]"


def compute_difference(first: Floats, second: Floats, *, paired: bool = True) -> Difference:
    """Return the difference of two means that a verdict is about, first minus second.

    `paired` means that the same seeds are the same problems, whose spread then cancels.

    >>> compute_difference(np.array([1.0, 2.0, 3.1]), np.array([2.0, 3.0, 4.0])).less
    'holds'
    """
    mean = float(first.mean() - second.mean())
    if paired:
        half = float(compute_confidence_band((first - second)[:, None])[0])
    else:
        half = compute_welch_half_width(first, second)
    return Difference(mean, mean - half, mean + half)


def compute_welch_half_width(first: Floats, second: Floats) -> float:
    """Return half the width of Welch's interval for the difference that a verdict is about.

    The two samples are independent and may spread differently.
    """
    errors = np.array([compute_standard_error(first), compute_standard_error(second)]) ** 2
    if not errors.any():
        return 0.0
    freedom = errors.sum() ** 2 / (errors**2 / [len(first) - 1, len(second) - 1]).sum()
    return compute_student_factor(freedom) * math.sqrt(errors.sum())


def combine_outcomes(outcomes: Sequence[str]) -> str:
    """Return the verdict on a claim of several parts: it holds if all do, and fails with one."""
    return FAILS if FAILS in outcomes else OPEN if OPEN in outcomes else HOLDS


def judge(holds: bool) -> str:
    """Return the verdict on means so far from each other that no interval is needed."""
    return HOLDS if holds else FAILS


def judge_no_more(first: Floats, second: Floats) -> str:
    """Return the verdict on the claim that the first mean is no more than the second."""
    apart = compute_difference(first, second)
    return HOLDS if apart.high <= 0 else apart.less
