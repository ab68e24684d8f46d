"""Memory for the contexts of a stream: two arrays that take turns."""

from __future__ import annotations

from fedsuplin_ext import norms

from .._shared.array_types import Floats


class AlternatingBuffers:
    """Two arrays of contexts: a stream fills one while the chunk in the other is played."""

    def __init__(self, dim: int, n_arms: int) -> None:
        self._dim, self._n_arms = dim, n_arms
        self._now, self._next = (norms.aligned_zeros(0, dim, n_arms) for _ in range(2))

    def take(self, n: int) -> Floats:
        """Return memory for n pulls, other than that of the call before."""
        self._now, self._next = self._next, self._now
        if len(self._now) < n:
            self._now = norms.aligned_zeros(n, self._dim, self._n_arms)
        return self._now[:n]
