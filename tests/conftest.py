"""Property tests: no deadline on a noisy machine; in CI the same examples every time, elsewhere new ones. Ctrl-C: as in a
terminal, also where the tests were started in the background, which ignores it and has children ignore it too."""

import os
import signal

from hypothesis import settings

settings.register_profile("fedsuplin", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("fedsuplin")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
