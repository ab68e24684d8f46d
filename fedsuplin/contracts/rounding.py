"""The margin for rounding with which triggers compare, so that every CPU decides the same."""

from __future__ import annotations


def add_rounding_margin(threshold: float) -> float:
    """Return a threshold raised by a relative 1e-9, for triggers to compare with.

    A unit context on A = I makes a ratio of determinants exactly 2. Without the margin the
    trajectory would depend on how a CPU rounds it.

    Parameters
    ----------
    threshold : float
        What the left side of a trigger's condition must exceed.

    Returns
    -------
    float
        The raised threshold.

    Examples
    --------
    >>> from fedsuplin.plugin import add_rounding_margin
    >>> 2.0 + 1e-12 > add_rounding_margin(2.0)
    False
    """
    return (1 + 1e-9) * threshold
