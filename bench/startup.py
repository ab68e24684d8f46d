"""What starting costs: the CPU time of `fedsuplin run` against that of importing SciPy.

    python bench/startup.py [TURNS]

Both run in processes of their own, in turns, and the best time of each counts. The exit code is 1
if the ratio is above 1.15.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

LIMIT = 1.15
COMMANDS = {
    "import numpy, scipy.linalg": ["-c", "import numpy, scipy.linalg"],
    "fedsuplin run": ["-m", "fedsuplin", "run"],
}


def measure_cpu(arguments: list[str], environment: dict[str, str]) -> float:
    """Return the CPU seconds of a new Python with all of its threads and children."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {process.returncode}")
    return used.ru_utime + used.ru_stime


def measure_best(turns: int) -> dict[str, float]:
    """Return the best CPU time of each command; a turn before the first writes the bytecode."""
    best = dict.fromkeys(COMMANDS, float("inf"))
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for turn in range(turns + 1):
            for name, arguments in COMMANDS.items():
                seconds = measure_cpu(arguments, environment)
                best[name] = min(best[name], seconds) if turn else best[name]
    return best


def main() -> int:
    """Print both times and their ratio; return the exit code."""
    best = measure_best(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    for name, seconds in best.items():
        print(f"{name:<28} {seconds:.3f} s of CPU time")
    base, ours = best.values()
    print(f"{'ratio':<28} {ours / base:.3f} (at most {LIMIT})")
    return int(ours > LIMIT * base)


if __name__ == "__main__":
    sys.exit(main())
