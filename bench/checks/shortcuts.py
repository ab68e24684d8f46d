"""Compare runs with and without the engine's shortcuts: decisions must not depend on them.

python bench/checks/shortcuts.py                200 random settings, about two minutes
python bench/checks/shortcuts.py --settings 20  fewer; --first 1000 begins at another seed

Each setting is played with every combination of shortcuts. Arms, layers, clients, communication and
the recorded sums must be the same at every pull. Prints how many widths each shortcut spared, and
fails at a difference, or if a shortcut was never used.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

import fedsuplin as fsl
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext import norms
from fedsuplin_ext.loop import BY_PULL, COUNTS, SHORTCUTS, SUMS, Engine
from fedsuplin_ext.measure import CallCounter

COMBINATIONS = [
    chosen for n in range(len(SHORTCUTS) + 1) for chosen in itertools.combinations(SHORTCUTS, n)
]
SETS = [*norms.available(), *([norms.SPLIT] if "avx2" in norms.available() else [])]
DIMENSIONS = (1, 2, 3, 5, 8, 9, 25, 33, 64)
ARMS = (1, 2, 5, 8, 13, 20, 33, 50)
LAWS: dict[str, dict[str, Any]] = {
    "variance": {"noise": "bounded", "R": 0.5},
    "robust": {"noise": "corrupted", "corruption": 20.0},
}


class Lagging:
    """A trigger under which clients hold snapshots of very different age.

    The first client syncs once. Each other client syncs half as often as the one before it.
    """

    state_size = 2  # pulls of this client, and its pull of the next sync

    def __init__(self, once: int) -> None:
        self.once = once

    def __repr__(self) -> str:
        return f"Lagging({self.once})"

    def fires(self, gain: float, elapsed: float, state: np.ndarray) -> bool:
        """Return whether to sync."""
        state[0] += 1
        if state[0] == self.once:
            state[1] = self.once % 7 + gain
            return True
        return bool(state[1] > 3 and elapsed >= 3)


class Outcome(NamedTuple):
    """What came out of one setting."""

    description: str
    n_layers: int
    pulls: int
    differences: list[str]
    widths: int
    """How often widths are computed without shortcuts."""
    spared: dict[str, int]
    """By shortcut, how many of these it spares; for "fused", how many passes over the contexts."""


def draw_setting(seed: int) -> dict[str, Any]:
    """Draw a variant, sizes and parameters."""
    rng = np.random.default_rng([17, seed])
    variant = str(rng.choice(["async", "sync", "variance", "robust"]))
    dim, n_arms = int(rng.choice(DIMENSIONS)), int(rng.choice(ARMS))
    n_clients = int(rng.choice([1, 2, 4, 10]))
    pulls = 600 if dim > 25 else int(rng.choice([800, 2500]))
    setting: dict[str, Any] = {
        "variant": variant,
        "dim": dim,
        "n_arms": n_arms,
        "n_clients": n_clients,
        "pulls": pulls // n_clients * n_clients,
        "horizon": int(rng.choice([1, 20])) * (pulls // n_clients * n_clients),
        "kernels": str(rng.choice(SETS)),
        "contexts": str(rng.choice(["sphere", "ball"])),
        "alpha_scale": float(10 ** rng.uniform(-1.7, 0)),
        "ridge": float(rng.choice([0.01, 0.1, 1.0, 5.0])),
        # Impatient: so many certificates that clients hold downloads whose own are long gone.
        "patience": [None, 1, 3][int(rng.integers(3))],
    }
    if rng.random() < 0.5:
        setting["lazy"] = bool(rng.random() < 0.5)
    if variant != "sync" and rng.random() < 0.4:
        setting["trigger"] = Lagging(int(rng.integers(20, 200)))
    elif variant != "sync":
        setting["C"] = float(rng.choice([0.01, 0.3, 1.0]))
    return setting


def play(algorithm: fsl.Algorithm, chunk: Any, how: dict[str, Any], chosen: tuple[str, ...]) -> Any:
    """Play a chunk with some shortcuts; return what happened at each pull, and the calls."""
    n = len(chunk.clients)
    by_pull = np.zeros((n, len(BY_PULL)), np.int32)
    sums, counts = np.zeros((n, len(SUMS))), np.zeros((n, len(COUNTS)), np.int64)
    engine = Engine(algorithm, shortcuts=chosen, **how)
    engine.record_into(np.arange(1, n + 1), sums, counts, by_pull)
    with CallCounter(engine) as calls:
        status, done = engine.play(chunk)
    if (status, done) != ("done", n):
        raise SystemExit(f"{algorithm}: {status} after {done} of {n} pulls")
    return {"by_pull": by_pull, "counts": counts, "sums": sums}, calls


def check_setting(seed: int) -> Outcome:
    """Play one setting with every combination of shortcuts."""
    setting = draw_setting(seed)
    description = ", ".join(f"{name}={value}" for name, value in setting.items())
    pulls, kernels = setting.pop("pulls"), setting.pop("kernels")
    variant, contexts = setting.pop("variant"), setting.pop("contexts")
    patience = setting.pop("patience")
    law = LAWS.get(variant, {})
    sizes = {name: setting[name] for name in ("dim", "n_arms", "n_clients", "horizon")}
    own = {name: value for name, value in law.items() if name != "noise"}
    algorithm = fsl.make(variant, **setting, **own)
    problem = fsl.SyntheticProblem(**sizes, contexts=contexts, seed=seed, **law)
    stream = problem.stream(sizes["horizon"], choose_arrival(algorithm, problem, sizes["horizon"]))
    chunk = stream.take(pulls)
    how = {"kernels": kernels, "budget": stream.budget, "patience": patience}
    runs = {chosen: play(algorithm, chunk, how, chosen) for chosen in COMBINATIONS}
    plain, calls = runs[()]
    differences = [
        f"{'+'.join(chosen)}: {name} differs first at pull {int((found != plain[name]).argmax())}"
        for chosen, (recorded, _) in runs.items()
        for name, found in recorded.items()
        if (found != plain[name]).any()
    ]
    spared = {name: calls.widths - runs[(name,)][1].widths for name in SHORTCUTS if name != "fused"}
    spared["fused"] = runs[("spikes",)][1].products - runs[("spikes", "fused")][1].products
    return Outcome(description, algorithm.n_layers, pulls, differences, calls.widths, spared)


def main(first: int, settings: int) -> int:
    """Check so many settings, and return how many differ, or 1 if a shortcut was not used."""
    spared: Counter[str] = Counter()
    used: Counter[str] = Counter()
    layers: Counter[int] = Counter()
    wrong = pulls = widths = 0
    for seed in range(first, first + settings):
        outcome = check_setting(seed)
        pulls, widths = pulls + outcome.pulls, widths + outcome.widths
        layers[outcome.n_layers] += 1
        for name, n in outcome.spared.items():
            spared[name] += n
            used[name] += n > 0
        if outcome.differences:
            wrong += 1
            print(f"seed {seed}: {outcome.description}")
            print("".join(f"    {each}\n" for each in outcome.differences), end="", flush=True)
    print(
        f"{settings} settings, {pulls} pulls, each with {len(COMBINATIONS)} combinations of "
        f"{', '.join(SHORTCUTS)}; settings by layers: {dict(sorted(layers.items()))}"
    )
    for name in SHORTCUTS:
        what = "passes over the contexts" if name == "fused" else f"of {widths} widths"
        print(f"    {name} spared {spared[name]} {what}, in {used[name]} settings")
    unused = [name for name in SHORTCUTS if not used[name]]
    print(f"{wrong} settings differ" + (f"; never used: {', '.join(unused)}" if unused else ""))
    return wrong or len(unused)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--settings", type=int, default=200, help="how many seeds")
    arguments = parser.parse_args()
    sys.exit(bool(main(arguments.first, arguments.settings)))
