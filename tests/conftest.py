"""Property tests: no deadline on a noisy machine; in CI the same examples every time, elsewhere new ones. Ctrl-C: as in a
terminal, also where the tests were started in the background, which ignores it and has children ignore it too."""

import os
import signal
import sys

from hypothesis import settings

settings.register_profile("fedsuplin", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("fedsuplin")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


MARKERS = (
    "measures(reason): time or memory, which the sanitizer build (bench/checks/sanitize) spends many times over",
    'compiles: needs a C compiler; pytest -m "not compiles" is for machines that have none',
    'tree: about the sources themselves, such as types, style, links and the site; pytest -m "not tree" is for a wheel',
    "posix: signals, forks and terminals; left out on Windows",
    "linux: limits on memory and files, and /proc; left out on Windows and macOS",
)


def pytest_configure(config):
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def not_here():
    """The markers of what this build or this system can not run."""
    yield from ["measures"] if os.environ.get("FEDSUPLIN_SANITIZED") else []
    yield from ["linux"] if sys.platform != "linux" else []
    yield from ["posix"] if sys.platform == "win32" else []


def pytest_collection_modifyitems(config, items):
    """What can not run here is left out: deselected, and said so. A package that is missing is never a reason."""
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in not_here())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
