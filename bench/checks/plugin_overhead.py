"""Compare the overhead that `fedsuplin bench` shows for a plugin with a measurement by hand.

    pip install ./examples/fedsuplin-demo
    python bench/checks/plugin_overhead.py

The plugin is the Python trigger `budgeted` of examples/fedsuplin-demo. Its overhead is what a
round of `async` with it costs more than one without, in µs of CPU. The command is started as a user
would; by hand means CPU time around `engine.play`, with and without the plugin, in turns. Both are
measured several times, one after the other, and the best time of each counts. The exit code is 1 if
the two overheads differ by more than 20 %.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import fedsuplin as fsl
from fedsuplin_ext.loop import Engine

TOLERANCE = 0.2  # what the issue allows: 20 %
REPEATS, TURNS, PULLS, CHUNK, HORIZON = 4, 12, 10_000, 1000, 40_000
SIZES = {"dim": 25, "n_arms": 20, "n_clients": 20}
COMMAND = ["bench", "budgeted", "--against", "async", "--turns", str(TURNS), "--json"]


def play_by_hand(trigger):
    """Return the CPU µs per pull of one run; each chunk is drawn before it is timed."""
    problem = fsl.SyntheticProblem(**SIZES, seed=0)
    stream = problem.stream(PULLS, None)
    scale = {"horizon": HORIZON, "noise_scale": problem.noise_scale}
    engine = Engine(fsl.make("async", **SIZES, **scale, trigger=trigger), key=1)
    seconds = 0.0
    for _ in range(PULLS // CHUNK):
        chunk = stream.take(CHUNK)
        before = time.thread_time()
        status, _ = engine.play(chunk)
        seconds += time.thread_time() - before
        assert status == "done"
    return 1e6 * seconds / PULLS


def measure_by_hand():
    """Return the µs with the plugin and without, the best of turns."""
    taken = [(play_by_hand("budgeted"), play_by_hand(None)) for _ in range(TURNS)]
    return [min(of_one) for of_one in zip(*taken, strict=True)]


def measure_by_command():
    """Return the same as `fedsuplin bench budgeted --against async` shows it."""
    done = subprocess.run(
        [sys.executable, "-m", "fedsuplin", *COMMAND], stdout=subprocess.PIPE, check=True
    )
    return [row["microseconds"] for row in json.loads(done.stdout)["rows"]]


def main():
    """Print both overheads, and return the exit code."""
    overheads = {}
    taken = [(measure_by_command(), measure_by_hand()) for _ in range(REPEATS)]
    for how, found in zip(("by the command", "by hand"), zip(*taken, strict=True), strict=True):
        plugin, plain = (min(of_one) for of_one in zip(*found, strict=True))
        overheads[how] = plugin - plain
        print(
            f"{how:15} budgeted {plugin:.3f} µs, async {plain:.3f} µs: {plugin - plain:.3f} µs more"
        )
    shown, measured = overheads.values()
    off = abs(shown - measured) / measured
    print(f"the overheads are {off:.1%} apart; {TOLERANCE:.0%} are allowed")
    return int(off > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
