"""Numbers and counts as short text."""

from __future__ import annotations

import re


def format_compact(value: float) -> str:
    """Return a number as short text with a unit, such as 24.2k, for figures and tables alike.

    >>> [format_compact(value) for value in (0, 0.25, 640, 1149, 24250, 14731.9, 2_000_000)]
    ['0', '0.25', '640', '1.15k', '24.2k', '14.7k', '2M']
    """
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * unit:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.3g}"


def format_count(n: int, what: str) -> str:
    """Return a number of things as text, in singular or plural.

    >>> format_count(1, "pull"), format_count(2000, "pull")
    ('1 pull', '2,000 pulls')
    """
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def normalise_package_name(name: str) -> str:
    """Return the text of a package's name in the form in which installers compare names.

    >>> normalise_package_name("Fedsuplin_Demo")
    'fedsuplin-demo'
    """
    return re.sub(r"[-_.]+", "-", name).lower()
