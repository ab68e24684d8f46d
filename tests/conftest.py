"""What all tests share: settings of property tests, Ctrl-C, and markers.

Property tests have no deadline, as machines are noisy. In CI they see the same examples every time.
A shell's background job ignores Ctrl-C, and so do its children; tests need it to work.
"""

import os
import signal
import sys

from hypothesis import settings

settings.register_profile("fedsuplin", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("fedsuplin")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


MARKERS = (
    "measures(reason): measures time or memory; not for the slow build of bench/checks/sanitize",
    'compiles: needs a C compiler; pytest -m "not compiles" is for machines that have none',
    'tree: checks the sources: types, style, links, the site; pytest -m "not tree" is for a wheel',
    "posix: signals, forks and terminals; left out on Windows",
    "linux: limits on memory and files, and /proc; left out on Windows and macOS",
)


def pytest_configure(config):
    """Register the markers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def not_here():
    """Yield the markers of tests that this build or this system can't run."""
    yield from ["measures"] if os.environ.get("FEDSUPLIN_SANITIZED") else []
    yield from ["linux"] if sys.platform != "linux" else []
    yield from ["posix"] if sys.platform == "win32" else []


def pytest_collection_modifyitems(config, items):
    """Deselect the tests that can't run here. A missing package is never a reason."""
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in not_here())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
