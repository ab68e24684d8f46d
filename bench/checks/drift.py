"""Measure how far the engine's rank-one updates drift from exact arithmetic over many pulls.

python bench/checks/drift.py                 10⁷ pulls of each policy, some minutes
python bench/checks/drift.py --pulls 100000  fewer; --policies async sync for some

At the end the inverses, θ̂, ln det and gains of the server and of every client are compared with
those of their own Gram matrices in rational arithmetic, which does not round, and the Gram matrices
with the sum of all observations. Errors are relative: the largest difference over the largest
entry. Fails if one is above 1e-9.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from fractions import Fraction
from typing import Any

import numpy as np

import fedsuplin as fsl
from fedsuplin.errors import NumericalError
from fedsuplin.simulation.loop import choose_chunk_size
from fedsuplin.simulation.preparing import choose_arrival
from fedsuplin_ext.loop import Engine

BOUND = 1e-9
SIZES = {"dim": 6, "n_arms": 4, "n_clients": 2}
# By label: the variant and its parameters.
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "async": ("async", {}),
    "few syncs": ("async", {"C": 1e6}),
    "a sync per pull": ("async", {"trigger": "always"}),
    "eager, no sync": ("async", {"trigger": "never", "lazy": False}),
    "sync": ("sync", {}),
    "variance": ("variance", {"R": 0.5}),
    "robust": ("robust", {"corruption": 20.0}),
    "oful": ("oful", {}),
    "fedlinucb": ("fedlinucb", {}),
    "async-linucb": ("async-linucb", {}),
}
DRAWN = {
    "variance": {"noise": "bounded", "R": 0.5},
    "robust": {"noise": "corrupted", "corruption": 20.0},
}
WEIGHTED = ("variance", "robust")


# --- exact arithmetic ---


def convert_to_fractions(values: np.ndarray) -> np.ndarray:
    """Return the same numbers as fractions, whose sums and products are exact."""
    return np.vectorize(lambda value: Fraction(float(value)), otypes=[object])(values)


def solve_exactly(gram: np.ndarray, moment: np.ndarray) -> tuple[np.ndarray, np.ndarray, Fraction]:
    """Return A⁻¹, A⁻¹b and det A of fractions by Gauss–Jordan elimination.

    Raise ArithmeticError if A is not positive definite.
    """
    d = len(gram)
    rows = [[*gram[i], *(Fraction(int(i == j)) for j in range(d)), moment[i]] for i in range(d)]
    determinant = Fraction(1)
    for k in range(d):
        pivot = rows[k][k]
        if pivot <= 0:
            raise ArithmeticError(f"pivot {k} is {float(pivot)}")
        determinant *= pivot
        rows[k] = [value / pivot for value in rows[k]]
        for i in set(range(d)) - {k}:
            factor = rows[i][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    solved = np.array([[float(value) for value in row[d:]] for row in rows])
    return solved[:, :d], solved[:, d], determinant


def compute_exact_log(ratio: Fraction) -> float:
    """Return ln of a fraction, exact also near 1 and beyond the range of doubles."""
    if abs(ratio - 1) < Fraction(1, 2):
        return math.log1p(float(ratio - 1))
    return math.log(ratio.numerator) - math.log(ratio.denominator)


def compute_difference(found: Any, expected: Any) -> float:
    """Return the largest difference over the largest entry; 0 if both are 0."""
    most = float(np.abs(np.asarray(found) - expected).max())
    return most / float(np.abs(expected).max()) if most else 0.0


# --- the state of an engine ---


def measure_layer(layer: dict[str, Any], ridge: float) -> dict[str, float]:
    """Return the relative errors of a layer of the server or of a client."""
    gram, moment = convert_to_fractions(layer["gram"]), convert_to_fractions(layer["moment"])
    inverse, theta_hat, determinant = solve_exactly(gram, moment)
    whole = compute_exact_log(determinant / Fraction(ridge) ** len(inverse))
    found = {
        "inverse": compute_difference(layer["inverse"], inverse),
        "theta_hat": compute_difference(layer["theta_hat"], theta_hat),
        "log_det": compute_difference(layer["log_det"], whole),
    }
    if layer.get("gain"):
        together = solve_exactly(
            gram + convert_to_fractions(layer["delta_gram"]),
            moment + convert_to_fractions(layer["delta_moment"]),
        )
        found["gain"] = compute_difference(
            layer["gain"], compute_exact_log(together[2] / determinant)
        )
        if "inverse_with_delta" in layer:
            found["inverse"] = max(
                found["inverse"], compute_difference(layer["inverse_with_delta"], together[0])
            )
        if "theta_hat_with_delta" in layer:
            found["theta_hat"] = max(
                found["theta_hat"], compute_difference(layer["theta_hat_with_delta"], together[1])
            )
    return found


def measure_engine(engine: Engine, algorithm: fsl.Algorithm) -> dict[str, float]:
    """Return the largest error of each kind, and the drift that the engine itself has measured."""
    worst = {"noticed": engine.drift}
    for s in range(algorithm.n_layers):
        views = [
            engine.server_layer(s),
            *(engine.client_layer(c, s) for c in range(algorithm.n_clients)),
        ]
        for view in views:
            for name, value in measure_layer(view, algorithm.setting.ridge).items():
                worst[name] = max(worst.get(name, 0.0), value)
    return worst


def sum_observations(engine: Engine, algorithm: fsl.Algorithm) -> np.ndarray:
    """Return the sum of all observations' x xᵀ by layer, from the server and all clients."""
    start = algorithm.setting.ridge * np.eye(algorithm.dim)
    found = np.array([engine.server_layer(s)["gram"] - start for s in range(algorithm.n_layers)])
    for client in range(algorithm.n_clients):
        found += [engine.client_layer(client, s)["delta_gram"] for s in range(algorithm.n_layers)]
    return found


# --- a run ---


def measure(policy: str, pulls: int, seed: int = 1) -> dict[str, float]:
    """Return the relative errors of each kind after so many pulls of a policy."""
    variant, parameters = POLICIES[policy]
    problem = fsl.SyntheticProblem(**SIZES, **DRAWN.get(variant, {}), seed=seed)
    algorithm = fsl.make(variant, **SIZES, horizon=pulls, **parameters)
    stream = problem.stream(pulls, choose_arrival(algorithm, problem, pulls))
    engine, by_pull = Engine(algorithm, budget=stream.budget), np.zeros((pulls, 3), np.int32)
    engine.record_into(None, None, None, by_pull)
    sums = np.zeros((algorithm.n_layers, algorithm.dim, algorithm.dim), np.longdouble)
    for start in range(0, pulls, choose_chunk_size(algorithm)):
        chunk = stream.take(min(choose_chunk_size(algorithm), pulls - start))
        status, n = engine.play(chunk)
        if status != "done":
            raise NumericalError(f"{policy}: {status} at pull {start + n}")
        arms, layers, _ = by_pull[start : start + n].T
        played = chunk.contexts[np.arange(n), :, arms]
        for s in range(algorithm.n_layers):
            sums[s] += played[layers == s].T @ played[layers == s]
    worst = measure_engine(engine, algorithm)
    if variant not in WEIGHTED:
        worst["gram"] = max(
            compute_difference(found, whole)
            for found, whole in zip(sum_observations(engine, algorithm), sums, strict=True)
        )
    return worst


COLUMNS = ("inverse", "theta_hat", "log_det", "gain", "gram", "noticed")


def main(pulls: int, policies: list[str]) -> int:
    """Print a table, and return how many policies are above the bound."""
    print(f"{pulls} pulls, {', '.join(f'{name} {value}' for name, value in SIZES.items())}")
    print(f"{'':16}" + "".join(f"{name:>11}" for name in COLUMNS) + "    seconds")
    wrong = 0
    for policy in policies:
        began = time.perf_counter()
        worst = measure(policy, pulls)
        shown = "".join(f"{worst[name]:11.1e}" if name in worst else f"{'':11}" for name in COLUMNS)
        print(f"{policy:16}{shown}{time.perf_counter() - began:11.0f}", flush=True)
        wrong += max(worst.values()) > BOUND
    print(f"{len(policies) - wrong} of {len(policies)} within {BOUND:g}")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pulls", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    sys.exit(bool(main(**vars(parser.parse_args()))))
