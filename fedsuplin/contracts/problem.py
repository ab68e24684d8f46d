"""Where contexts, clients and rewards come from, in chunks.

A problem is immutable; each `stream` plays it from the beginning. Contexts travel as n × d × lanes: the arms are the SIMD
lanes of the kernels, padded with zeros. What a stream yields is a function of the problem alone, however it is cut.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from .._shared.arrays import Floats
from ..registry import plugins
from .stream import Stream


class Problem:
    """What every problem has, with the defaults of what it need not say. Immutable: each `stream` starts from the beginning.

    >>> class TwoArms(Problem):
    ...     dim, n_arms, n_clients = 2, 2, 1
    ...     def stream(self, horizon, arrival):
    ...         return TwoArmsStream()
    >>> class TwoArmsStream(Stream):
    ...     def take(self, n):
    ...         return Chunk.of(np.eye(2)[None].repeat(n, 0), np.zeros(n), theta=[0.2, 0.4])
    >>> from fedsuplin import run
    >>> run("oful", TwoArms(), horizon=100).n_pulls
    100
    """

    dim: int
    n_arms: int
    n_clients: int
    horizon: int | None = None
    """How many pulls there are; None for as many as a run asks for."""
    seed: int | None = None
    arrival: Any = None
    """An arrival pattern, for problems that leave to it who plays when."""

    # What the assumptions of an algorithm are checked against; None where the problem does not say.
    theta: Floats | None = None
    noise_scale: float | None = None
    R: float | None = None
    corruption: float | None = None

    fixed_arms: Floats | None = None
    """Clients × arms × dim, where each client has the same contexts in every round."""
    arm_thetas: Floats | None = None
    """Arms × dim, where each arm has a θ of its own."""

    def __repr__(self) -> str:
        sizes = {name: getattr(self, name, "?") for name in ("dim", "n_arms", "n_clients")}
        return (
            f"{type(self).__name__}({', '.join(f'{name}={size}' for name, size in sizes.items())})"
        )

    def stream(self, horizon: int, arrival: Any) -> Stream:
        """A fresh stream of pulls; `arrival` is the pattern to use, None for the problem's own choice."""
        raise TypeError(
            f"{type(self).__name__} does not say how to play it: define stream(horizon, arrival)"
        )

    def fingerprint(self) -> str | None:
        """What tells the data of this problem from other data, where `spec` does not; a checkpoint is for the same data only."""
        return None

    @property
    def spec(self) -> dict[str, Any]:
        """The problem as plain data: its registered name and, for a dataclass, the parameters that make it again."""
        name = plugins.find_name("problems", type(self)) or type(self).__qualname__
        return {
            "problem": name,
            "parameters": dataclasses.asdict(self) if dataclasses.is_dataclass(self) else None,
        }
