"""Check that the memory of a run does not grow with its length.

python bench/checks/long_run.py                  10⁷ and 10⁸ pulls, about a minute
python bench/checks/long_run.py --pulls 1000000  a tenth of these, and these

Each run is in a process of its own, and draws ahead. Fails if the longer one has a peak more than
4 MiB above the other: one byte per pull would be twenty times as much at 10⁸.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

SIZES = {"dim": 5, "n_arms": 5, "n_clients": 10}
ALLOWED = 4.0  # MiB
RUN = """
import sys
import fedsuplin as fsl
sizes, pulls = {sizes}, {pulls}
problem = fsl.SyntheticProblem(**sizes, noise_scale=0.1, seed=0)
assert fsl.run("async", problem, horizon=pulls, prefetch=True).complete
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(line.split()[1])
"""


def measure_peak(pulls: int) -> float:
    """Return the peak of the memory of a run of so many pulls, in MiB."""
    code = RUN.format(sizes=SIZES, pulls=pulls)
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(found.stdout) / 1024


def main(pulls: int) -> int:
    """Print the peak of both runs, and return 1 if it grows."""
    if not Path("/proc/self/status").exists():
        print("the peak of a process is read from /proc, which this system does not have")
        return 1
    peaks = []
    for length in (pulls // 10, pulls):
        began = time.perf_counter()
        peaks.append(measure_peak(length))
        seconds = time.perf_counter() - began
        print(f"{length:>11,} pulls: {peaks[-1]:6.1f} MiB at most, {seconds:.0f} s", flush=True)
    grows = peaks[1] > peaks[0] + ALLOWED
    print(f"memory {'grows' if grows else 'does not grow'} ({peaks[1] - peaks[0]:+.1f} MiB)")
    return int(grows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pulls", type=lambda text: int(float(text)), default=10**8)
    sys.exit(main(**vars(parser.parse_args())))
