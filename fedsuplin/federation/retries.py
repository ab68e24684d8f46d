"""When a client tries to reach its server again after a failed attempt."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_DELAY, LONGEST_DELAY = 0.05, 5.0  # seconds between attempts


class Retries:
    """Delays that double with each failed attempt, up to a limit, with a random part."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._jitter = clock, random.Random()
        self._n_failed, self._not_before = 0, 0.0

    def compute_delay(self) -> float:
        """Return the seconds until the next attempt."""
        return max(0.0, self._not_before - self._clock())

    def note_failure(self) -> None:
        """Put the next attempt off, for longer than the one before."""
        longest = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(self._n_failed, 30))
        self._n_failed += 1
        self._not_before = self._clock() + longest * self._jitter.uniform(0.5, 1.0)

    def note_answer(self) -> None:
        """Forget earlier failures."""
        self._n_failed, self._not_before = 0, 0.0

    def allow_now(self) -> None:
        """Let the next attempt be made at once."""
        self._not_before = 0.0
