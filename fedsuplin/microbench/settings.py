"""What `fedsuplin bench` measures, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PAPER: dict[str, Any] = {"dim": 25, "n_arms": 20, "n_clients": 20}
HORIZON = 40_000
VARIANTS = ("async", "sync", "variance", "robust", "oful")
SIZES = ((5, 5), (25, 100), (64, 20), (128, 100))  # d, K of `async`, besides the paper's setting
WIDTHS = ((5, 5), (25, 20), (64, 50), (128, 100), (256, 1000))
IDLE = (1000, 3000)  # numbers of clients: the difference in memory is that of idle ones
# The noise that each variant is made for.
NOISE: dict[str, dict[str, Any]] = {
    "variance": {"noise": "bounded"},
    "robust": {"noise": "corrupted", "corruption": 50.0},
}


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    turns: int
    """How often things that are compared are timed side by side; the best time counts."""
    kernel_turns: int
    pulls: int
    """The length of a run at the paper's setting; fewer pulls where a round costs more."""
    numpy_rounds: int


FULL = Effort(turns=4, kernel_turns=600, pulls=HORIZON, numpy_rounds=1000)
QUICK = Effort(turns=2, kernel_turns=150, pulls=HORIZON // 4, numpy_rounds=300)


def choose_pulls(n: int, sizes: dict[str, int]) -> int:
    """Return how many pulls to measure: fewer than n where a round is larger than the paper's.

    They are whole rounds of all clients.
    """
    share = min(1.0, PAPER["dim"] * PAPER["n_arms"] / (sizes["dim"] * sizes["n_arms"]))
    return max(1, int(n * share) // sizes["n_clients"]) * sizes["n_clients"]
