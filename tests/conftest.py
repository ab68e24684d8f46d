"""Property tests: no deadline on a noisy machine; in CI the same examples every time, elsewhere new ones. Ctrl-C: as in a
terminal, also where the tests were started in the background, which ignores it and has children ignore it too."""

import os
import signal

from hypothesis import settings

settings.register_profile("fedsuplin", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("fedsuplin")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "measures(reason): time or memory, which the sanitizer build (bench/sanitize) spends many times over"
    )


def pytest_collection_modifyitems(config, items):
    """On the sanitizer build, what measures time or memory is left out: deselected, and said so."""
    left_out = [item for item in items if item.get_closest_marker("measures")] if os.environ.get("FEDSUPLIN_SANITIZED") else []
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
