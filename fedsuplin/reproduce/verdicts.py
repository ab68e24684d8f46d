"""Verdicts: a claim, what was measured, and whether it holds, does not, or can't be told from these seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .._shared.arrays import Floats
from .._shared.statistics import (
    compute_confidence_band,
    compute_standard_error,
    compute_student_factor,
)
from .formatting import format_number

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"


@dataclass(frozen=True)
class Verdict:
    """One claim, judged."""

    claim: str
    source: str
    """"paper", "draft" (a paragraph that is commented out in its source), "theorem", or "ours"."""
    setting: str
    measured: str
    """The numbers, in words."""
    outcome: str

    def row(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Difference:
    """How much larger one mean is than another, with its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def less(self) -> str:
        """Is the first less than the second?"""
        return HOLDS if self.high < 0 else FAILS if self.low > 0 else OPEN

    def __str__(self) -> str:
        return f"{format_number(self.mean, sign=True)} [{format_number(self.low, sign=True)}, {format_number(self.high, sign=True)}]"


def compute_difference(first: Floats, second: Floats, *, paired: bool = True) -> Difference:
    """First minus second. `paired` where the seeds are those of the same problems, which takes their spread away.

    >>> difference(np.array([1.0, 2.0, 3.1]), np.array([2.0, 3.0, 4.0])).less
    'holds'
    """
    mean = float(first.mean() - second.mean())
    if paired:
        half = float(compute_confidence_band((first - second)[:, None])[0])
    else:  # Welch's: the two may spread differently
        errors = np.array([compute_standard_error(first), compute_standard_error(second)]) ** 2
        freedom = (
            errors.sum() ** 2 / (errors**2 / [len(first) - 1, len(second) - 1]).sum()
            if errors.any()
            else 1.0
        )
        half = compute_student_factor(freedom) * math.sqrt(errors.sum())
    return Difference(mean, mean - half, mean + half)


def combine_outcomes(outcomes: Sequence[str]) -> str:
    """A claim of several parts holds if all do, and does not if one does not."""
    return FAILS if FAILS in outcomes else OPEN if OPEN in outcomes else HOLDS


def judge(holds: bool) -> str:
    """For a claim about means that are far from each other, where no interval is needed."""
    return HOLDS if holds else FAILS
