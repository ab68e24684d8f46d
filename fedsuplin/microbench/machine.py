"""What this machine does, in a minute: the numbers and tables of `fedsuplin bench`.

Whatever is compared is measured side by side, the timings taking turns, and the best of each counts: a noisy neighbour slows a
core down for seconds, nothing speeds it up. The NumPy LinUCB that everything is compared with is here too; `bench/` uses it.
"""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path


def read_load() -> float | None:
    """How many processes want a core, on average over the last minute; None where nobody counts."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def read_processor_name() -> str:
    """The model of the CPU, where the system says it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
