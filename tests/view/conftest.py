"""What the tests of figures share."""

import pytest


@pytest.fixture
def words():
    """A function that returns every text of a figure that a reader sees."""
    return read_words


def read_words(figure):
    """Return the texts of a figure: titles, labels, legends and what is written in its panels."""
    legends = list(figure.legends)
    found = [figure.get_suptitle()]
    for axes in figure.axes:
        found += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
        found += [text.get_text() for text in axes.texts]
        legends += [axes.get_legend()] if axes.get_legend() else []
    return found + [text.get_text() for legend in legends for text in legend.get_texts()]
