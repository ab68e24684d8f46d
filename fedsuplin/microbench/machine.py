"""The load and the processor of this machine."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path


def read_load() -> float | None:
    """Return the load of this machine over the last minute; None where it is unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def read_processor_name() -> str:
    """Return the model of this machine's CPU, or its architecture if the model is unknown."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
