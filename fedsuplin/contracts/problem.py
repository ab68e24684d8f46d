"""Problem: the base class of everything that can be played."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._shared.array_types import Floats
from ..registry import plugins
from .stream import Stream


class Problem:
    """Where contexts, clients and rewards come from: the base class of every problem.

    A problem is immutable, and each `stream` starts from the beginning. What a stream yields is a
    function of the problem alone, however it is split into chunks. A subclass sets the sizes and
    defines `stream`; every other attribute has a default.

    Attributes
    ----------
    dim, n_arms, n_clients : int
        The sizes d, K and M.
    horizon : int or None
        How many pulls there are; None for as many as a run asks for.
    seed : int or None
        The seed of everything that is drawn.
    arrival : arrival pattern or None
        Which client plays when, for problems that do not decide it themselves.
    theta : ndarray of shape (dim,) or None
        The true parameter, if it is known.
    noise_scale, R, corruption : float or None
        The scale and the bound of the noise, and the corruption budget C_p, if they are known.
        The assumptions of an algorithm are compared with them.
    fixed_arms : ndarray of shape (clients, arms, dim) or None
        The contexts, where each client has the same in every round.
    arm_thetas : ndarray of shape (arms, dim) or None
        One θ per arm, where arms have their own.

    Examples
    --------
    >>> import numpy as np
    >>> import fedsuplin as fsl
    >>> from fedsuplin.plugin import Chunk, Problem, Stream
    >>> class TwoArms(Problem):
    ...     dim, n_arms, n_clients = 2, 2, 1
    ...     def stream(self, horizon, arrival):
    ...         return TwoArmsStream()
    >>> class TwoArmsStream(Stream):
    ...     def take(self, n):
    ...         return Chunk.of(np.eye(2)[None].repeat(n, 0), np.zeros(n), theta=[0.2, 0.4])
    >>> fsl.run("oful", TwoArms(), horizon=100).n_pulls
    100
    """

    dim: int
    n_arms: int
    n_clients: int
    horizon: int | None = None
    seed: int | None = None
    arrival: Any = None
    theta: Floats | None = None
    noise_scale: float | None = None
    R: float | None = None
    corruption: float | None = None
    fixed_arms: Floats | None = None
    arm_thetas: Floats | None = None

    def __repr__(self) -> str:
        sizes = {name: getattr(self, name, "?") for name in ("dim", "n_arms", "n_clients")}
        return (
            f"{type(self).__name__}({', '.join(f'{name}={size}' for name, size in sizes.items())})"
        )

    def stream(self, horizon: int, arrival: Any) -> Stream:
        """Return a new stream of pulls, from the beginning.

        Parameters
        ----------
        horizon : int
            How many pulls will be played.
        arrival : arrival pattern or None
            Which client plays when; None for the problem's own choice.

        Returns
        -------
        Stream
            The pulls, to be taken in chunks.
        """
        raise TypeError(
            f"{type(self).__name__} does not define how to play it: add stream(horizon, arrival)"
        )

    def fingerprint(self) -> str | None:
        """Return a digest of the problem's data, where `spec` does not identify them.

        A checkpoint can only be resumed with the same data.

        Returns
        -------
        str or None
            None where `spec` says everything.
        """
        return None

    @property
    def spec(self) -> dict[str, Any]:
        """The problem as plain data: its registered name and, for a dataclass, its parameters."""
        name = plugins.find_name("problems", type(self)) or type(self).__qualname__
        return {
            "problem": name,
            "parameters": dataclasses.asdict(self) if dataclasses.is_dataclass(self) else None,
        }
