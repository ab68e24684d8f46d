"""Property tests: no deadline on a noisy machine; in CI the same examples every time, elsewhere new ones."""

import os

from hypothesis import settings

settings.register_profile("fedsuplin", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("fedsuplin")
