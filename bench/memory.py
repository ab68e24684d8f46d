"""Check what clients that have played hold in memory.

python bench/memory.py           both, half a minute
python bench/memory.py --quick   a hundredth of the clients, to see that it works

`async` with the practical preset at d = 25 holds at most 8 KB per client when each has played once,
and 12 KB when each has played twice: what the engine says that it holds. A million clients at d = 8
that have played twice need less than 1 GB: the peak of a process, with Python and NumPy in it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

BOUNDS = {1: 8_000, 2: 12_000}  # bytes per client, by how often each has played
MOST = 1e9  # bytes of the process with the most clients

PLAY = """
import fedsuplin as fsl
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext.loop import Engine
problem = fsl.SyntheticProblem({dim}, {n_arms}, {n_clients}, noise_scale=0.1, seed=0)
sizes = dict(dim={dim}, n_arms={n_arms}, n_clients={n_clients}, horizon={pulls})
algorithm = fsl.make("async", **sizes, noise_scale=0.1)
stream = problem.stream({pulls}, choose_arrival(algorithm, problem, {pulls}))
engine, left = Engine(algorithm, budget=stream.budget), {pulls}
before = engine.memory_used
while left:
    n = min(left, 1000)
    assert engine.play(stream.take(n)) == ("done", n)
    left -= n
assert (engine.client_pulls > 0).all()
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(engine.memory_used - before, int(peak) * 1024)
"""


def measure_memory(dim: int, n_arms: int, n_clients: int, each: int) -> tuple[int, int]:
    """Return what the engine took while each client played, and the peak of the process."""
    code = PLAY.format(dim=dim, n_arms=n_arms, n_clients=n_clients, pulls=each * n_clients)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    taken, peak = map(int, done.stdout.split())
    return taken, peak


def main(scale: int) -> int:
    """Print the memory of both cases, and return how many bounds are missed."""
    missed = 0
    for each, bound in BOUNDS.items():
        n_clients = 10_000 // scale
        taken, _ = measure_memory(25, 20, n_clients, each)
        share = taken / n_clients
        missed += share > bound
        print(
            f"d=25, {n_clients} clients, {each} pulls each: {share:,.0f} bytes per client, "
            f"at most {bound:,}{'' if share <= bound else ' MISSED'}",
            flush=True,
        )
    n_clients = 1_000_000 // scale
    _, peak = measure_memory(8, 8, n_clients, 2)
    missed += peak >= MOST
    print(
        f"d=8, {n_clients:,} clients, 2 pulls each: a peak of {peak / 1e6:,.0f} MB, "
        f"less than {MOST / 1e6:,.0f}{'' if peak < MOST else ' MISSED'}"
    )
    return missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the clients")
    sys.exit(main(100 if parser.parse_args().quick else 1))
