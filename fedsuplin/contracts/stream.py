"""Chunk and Stream: pulls in the engine's layout, and the check of a chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsuplin_ext import norms

from .._shared.array_checks import as_floats, check_array, check_whole_numbers, report_memory_errors
from .._shared.array_types import Bytes, Clients, Floats
from .._shared.checks import LARGEST_SIZE
from ..errors import InvalidInput

NORM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Chunk:
    """Consecutive pulls in the layout of the engine. `Chunk.of` makes one from usual arrays.

    The arms are the last axis. The engine pads them to whole vectors of the CPU when it plays.

    Parameters
    ----------
    contexts : ndarray of shape (n, dim, n_arms)
        The context of every arm at every pull.
    clients : ndarray of int32, shape (n,)
        Who plays.
    noise : ndarray of shape (n,)
        What is added to the reward.
    sigma : ndarray of shape (n,)
        The noise level that the client knows.
    theta : ndarray of shape (dim,) or None
        The parameter that rewards are computed from. Without it there are `rewards`.
    rewards : ndarray of shape (n, n_arms) or None
        The reward of every arm.
    corruption : ndarray of shape (n, n_arms) or None
        What an adversary adds to the reward of every arm.
    mask : ndarray of uint8, shape (n, n_arms), or None
        1 for an arm that can be played; None where all can.

    Examples
    --------
    >>> import numpy as np
    >>> from fedsuplin.plugin import Chunk
    >>> clients = [0, 1, 0, 1, 0]
    >>> Chunk.of(np.zeros((5, 3, 2)), clients, theta=[1.0, 0.0], sigma=0.1).contexts.shape
    (5, 2, 3)
    """

    contexts: Floats
    clients: Clients
    noise: Floats
    sigma: Floats
    theta: Floats | None = None
    rewards: Floats | None = None
    corruption: Floats | None = None
    mask: Bytes | None = None

    @classmethod
    def of(
        cls,
        contexts: Any,
        clients: Any,
        *,
        theta: Any = None,
        rewards: Any = None,
        noise: Any = 0.0,
        sigma: Any = 1.0,
        corruption: Any = None,
        mask: Any = None,
    ) -> Chunk:
        """Make a chunk from arrays with one row per pull and one column per arm.

        Parameters
        ----------
        contexts : array_like of shape (n, n_arms, dim)
            The context of every arm at every pull.
        clients : array_like of shape (n,)
            Who plays.
        theta : array_like of shape (dim,), optional
            Rewards are θᵀx + noise with it.
        rewards : array_like of shape (n, n_arms), optional
            The rewards, used as they are.
        noise : float or array_like of shape (n,), default 0
            What is added to the reward.
        sigma : float or array_like of shape (n,), default 1
            The noise level that the client knows.
        corruption : array_like of shape (n, n_arms), optional
            What an adversary adds to the rewards.
        mask : array_like of bool, shape (n, n_arms), optional
            False for an arm that is not available.

        Returns
        -------
        Chunk
            The same pulls in the layout of the engine.
        """
        contexts = as_floats("contexts", contexts)
        if contexts.ndim != 3:
            raise InvalidInput(
                f"contexts must have the shape (pulls, arms, dim), not {contexts.shape}"
            )
        n, n_arms, dim = contexts.shape
        rounds, table = (n,), (n, n_arms)
        given = {
            "clients": (as_floats("clients", clients), rounds),
            "rewards": (rewards if rewards is None else as_floats("rewards", rewards), table),
            "corruption": (
                corruption if corruption is None else as_floats("corruption", corruption),
                table,
            ),
            "mask": (mask if mask is None else as_floats("mask", mask), table),
        }
        for name, (values, shape) in given.items():
            if values is not None and values.shape != shape:
                raise InvalidInput(
                    f"{name} of {n} pulls of {n_arms} arms must have the shape {shape}, "
                    f"not {values.shape}"
                )
        clients, rewards, corruption, there = (values for values, _ in given.values())
        mask = None if there is None else check_whole_numbers("mask", there, 0, 1, np.uint8)
        with report_memory_errors("a chunk", contexts.shape):
            packed = norms.aligned_zeros(n, dim, n_arms)
        norms.pack(np.ascontiguousarray(contexts), mask, 1.0, packed)
        return cls(
            contexts=packed,
            clients=check_whole_numbers("clients", clients, -LARGEST_SIZE, LARGEST_SIZE, np.int32),
            noise=_spread_over_pulls("noise", noise, n),
            sigma=_spread_over_pulls("sigma", sigma, n),
            theta=None if theta is None else check_array("theta", theta, (dim,)),
            rewards=None if rewards is None else np.ascontiguousarray(rewards),
            corruption=None if corruption is None else np.ascontiguousarray(corruption),
            mask=None if mask is None else np.ascontiguousarray(mask),
        )


class Stream:
    """One pass over a problem, taken in chunks.

    Attributes
    ----------
    budget : float
        The most that corruption may add up to, in absolute value, over the whole stream.
    checked : bool
        True when contexts are known to be finite and no longer than 1; else `run` checks every
        chunk.
    may_prefetch : bool
        True when `take` may be called by another thread while a chunk is played, and leaves the
        arrays of the chunk before as they are. `run` then draws ahead where a core is free.

    Examples
    --------
    >>> import numpy as np
    >>> from fedsuplin.plugin import Chunk, Stream
    >>> class Coins(Stream):
    ...     def take(self, n):
    ...         rewards = np.tile([1.0, 0.0], (n, 1))
    ...         return Chunk.of(np.full((n, 2, 1), 0.5), np.zeros(n), rewards=rewards)
    >>> Coins().take(3).rewards.shape
    (3, 2)
    """

    budget: float = np.inf
    checked: bool = False
    may_prefetch: bool = False

    def take(self, n: int) -> Chunk:
        """Return the next pulls. The next call may reuse the arrays, unless `may_prefetch`.

        Parameters
        ----------
        n : int
            How many pulls.

        Returns
        -------
        Chunk
            Exactly n pulls.
        """
        raise TypeError(f"{type(self).__name__} does not define how to take pulls: add take(n)")

    def position(self) -> dict[str, Any] | None:
        """Return where the stream is, for a checkpoint.

        Returns
        -------
        dict or None
            Plain data and arrays. None if a resumed run must take the pulls again.
        """
        return None

    def resume(self, position: dict[str, Any]) -> None:
        """Continue from a position.

        Parameters
        ----------
        position : dict
            What `position` returned.
        """
        raise TypeError(
            f"{type(self).__name__} has a position but does not define how to resume it: "
            "add resume(position)"
        )


CHUNK_LAYOUT = {  # of a chunk: type, axes, and whether it must be there
    "contexts": (np.float64, 3, True),
    "clients": (np.int32, 1, True),
    "noise": (np.float64, 1, True),
    "sigma": (np.float64, 1, True),
    "theta": (np.float64, 1, False),
    "rewards": (np.float64, 2, False),
    "corruption": (np.float64, 2, False),
    "mask": (np.uint8, 2, False),
}


def check_chunk(chunk: Chunk, n: int, start: int, n_arms: int, dim: int) -> None:
    """Check a chunk of a stream before the engine plays it.

    The engine relies on n pulls of n_arms arms in dimension dim, at least one arm there, on finite
    numbers, on σ_t ≥ 0, and on contexts no longer than 1.
    """
    if (
        not isinstance(chunk, Chunk)
        or not isinstance(chunk.contexts, np.ndarray)
        or chunk.contexts.shape[:1] != (n,)
    ):
        raise InvalidInput(
            f"take({n}) must give a Chunk of {n} pulls: Chunk.of(contexts, clients, …) makes one"
        )
    for name, (dtype, ndim, needed) in CHUNK_LAYOUT.items():
        values = getattr(chunk, name)
        if values is None and not needed:
            continue
        if not isinstance(values, np.ndarray) or values.dtype != dtype or values.ndim != ndim:
            found = (
                f"{values.dtype} of shape {values.shape}"
                if isinstance(values, np.ndarray)
                else type(values).__name__
            )
            raise InvalidInput(
                f"the chunk's {name} must be {np.dtype(dtype)} with {ndim} axes, not {found}"
            )
        rows_fit = len(values) == n if name != "theta" else len(values) <= dim
        if not rows_fit or 0 in values.shape or (name == "contexts" and values.shape[1] != dim):
            where = f"{n} rounds of {n_arms} arms in dimension {dim}"
            raise InvalidInput(f"the chunk's {name}, of shape {values.shape}, do not fit {where}")
    for name in ("noise", "sigma", "theta", "rewards", "corruption"):
        values = getattr(chunk, name)
        if values is not None and not np.isfinite(values).all():
            raise InvalidInput(f"the chunk's {name} from pull {start} on hold NaN or infinity")
    if chunk.contexts.shape[2] != n_arms:
        more = "more" if chunk.contexts.shape[2] > n_arms else "fewer"
        raise InvalidInput(
            f"the chunk's contexts from pull {start} on have {more} arms "
            f"than the problem's n_arms={n_arms}"
        )
    if chunk.mask is not None and not chunk.mask.any(axis=1).all():
        at = int((~chunk.mask.any(axis=1)).argmax())
        raise InvalidInput(
            f"pull {start + at} has no arm: every row of mask needs one that is True"
        )
    if (chunk.sigma < 0).any():
        at = int((chunk.sigma < 0).argmax())
        raise InvalidInput(
            f"sigma of pull {start + at} is {chunk.sigma[at]}: a noise level can't be negative"
        )
    check_lengths(
        np.sqrt(np.einsum("tdk,tdk->tk", chunk.contexts, chunk.contexts)), start, 1 + NORM_TOLERANCE
    )


def check_lengths(lengths: Floats, start: int, most: float) -> float:
    """Return the largest of the lengths (rounds × arms) of contexts in a chunk or stream.

    The error for one that is not finite or above `most` names its round and arm.
    """
    if not np.isfinite(lengths).all():
        row, arm = np.argwhere(~np.isfinite(lengths))[0]
        raise InvalidInput(f"contexts of round {start + row}, arm {arm} hold NaN or infinity")
    row, arm = np.unravel_index(lengths.argmax(), lengths.shape)
    if lengths[row, arm] > most:
        raise InvalidInput(
            f"the context of round {start + row}, arm {arm} has length {lengths[row, arm]:.6g}; "
            "the theory needs at most 1. An ArrayProblem with scale_contexts=True divides all "
            "contexts by the longest"
        )
    return float(lengths[row, arm])


def _spread_over_pulls(name: str, values: Any, n: int) -> Floats:
    """Return one number per pull of a chunk, given as many or one for all."""
    values = as_floats(name, values)
    if values.shape not in ((), (1,), (n,)):
        raise InvalidInput(f"{name} must be one number or {n}, not of shape {values.shape}")
    return np.array(np.broadcast_to(values, (n,)))
