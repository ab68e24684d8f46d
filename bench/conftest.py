"""Choose which tests of bench/ run.

Timings are asserted only with --benchmark-enable, and peers are played only if they are installed.
The other tests are deselected, not skipped.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "timing: asserts how long something takes; runs with --benchmark-enable only"
    )
    config.addinivalue_line(
        "markers", "measures(reason): left out in the sanitizer build; tests/conftest.py does it"
    )
    config.addinivalue_line("markers", "peer(name): needs that package, of the extra `peers`")


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if is_left_out(item, config.getoption("benchmark_enable"))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def is_left_out(item, timing: bool) -> bool:
    """Return whether a test needs a missing peer, or times something without --benchmark-enable."""
    missing = any(find_spec(mark.args[0]) is None for mark in item.iter_markers("peer"))
    return missing or (not timing and item.get_closest_marker("timing") is not None)


@pytest.fixture
def tell(capsys):
    """Print a measured number past pytest's capture."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}")

    return say
