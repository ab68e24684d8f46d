"""Verdicts: a claim, what was measured, and whether it holds, does not, or can't be told from these seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..arrays import Floats
from ..comparison import CONFIDENCE, band, standard_error

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
        return f"{number(self.mean, sign=True)} [{number(self.low, sign=True)}, {number(self.high, sign=True)}]"


def difference(first: Floats, second: Floats, *, paired: bool = True) -> Difference:
    """First minus second. `paired` where the seeds are those of the same problems, which takes their spread away.

    >>> difference(np.array([1.0, 2.0, 3.1]), np.array([2.0, 3.0, 4.0])).less
    'holds'
    """
    mean = float(first.mean() - second.mean())
    if paired:
        half = float(band((first - second)[:, None])[0])
    else:  # Welch's: the two may spread differently
        from scipy.special import stdtrit  # takes a while to import, and --help and completion do without

        errors = np.array([standard_error(first), standard_error(second)]) ** 2
        freedom = errors.sum() ** 2 / (errors**2 / [len(first) - 1, len(second) - 1]).sum() if errors.any() else 1.0
        half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * math.sqrt(errors.sum()))
    return Difference(mean, mean - half, mean + half)


def all_of(outcomes: Sequence[str]) -> str:
    """A claim of several parts holds if all do, and does not if one does not."""
    return FAILS if FAILS in outcomes else OPEN if OPEN in outcomes else HOLDS


def judged(holds: bool) -> str:
    """For a claim about means that are far from each other, where no interval is needed."""
    return HOLDS if holds else FAILS


def mean_error(values: Floats) -> str:
    """Mean ± standard error, to the first digit of the error.

    >>> mean_error(np.array([1230.0, 1250.0])), mean_error(np.array([0.5, 0.53]))
    ('1,240 ± 10', '0.52 ± 0.02')
    """
    return with_error(values.mean(), standard_error(values))


def with_error(mean: float, error: float) -> str:
    if not error > 0:  # the same for every seed, or one seed only
        return number(mean)
    digits = max(0, -math.floor(math.log10(error)))
    return f"{mean:,.{digits}f} ± {error:,.{digits}f}"


def number(value: float, *, sign: bool = False) -> str:
    """In three digits or, from 1000 on, whole.

    >>> number(12345.6), number(0.01234), number(3.0, sign=True)
    ('12,346', '0.0123', '+3')
    """
    plus = "+" if sign else ""
    return f"{value:{plus},.0f}" if abs(value) >= 999.5 else f"{value:{plus}.3g}"
