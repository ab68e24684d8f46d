"""Numbers and counts as people read them."""

import pytest

from fedsuplin._shared.text import format_compact, format_count


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.25, "0.25"), (999.6, "1k"), (40_000, "40k"), (2.5e6, "2.5M")]
)
def test_numbers_are_short(value, text):
    assert format_compact(value) == text


def test_counts_have_a_plural():
    assert format_count(1, "pull") == "1 pull" and format_count(2000, "pull") == "2,000 pulls"
