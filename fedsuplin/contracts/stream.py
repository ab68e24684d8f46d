"""Chunk and Stream: pulls in the engine's layout, and the check of a chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsuplin_ext import norms

from .._shared.array_checks import as_floats, check_array, check_whole_numbers, report_memory_errors
from .._shared.arrays import Bytes, Clients, Floats, Number
from .._shared.checks import LARGEST_SIZE
from ..errors import InvalidInput

NORM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Chunk:
    """Consecutive pulls, in the layout of the engine; None where a problem has no such thing. `Chunk.of` makes one.

    >>> Chunk.of(np.zeros((5, 3, 2)), [0, 1, 0, 1, 0], theta=[1.0, 0.0], sigma=0.1).contexts.shape
    (5, 2, 4)
    """

    contexts: Floats  # n × d × lanes
    clients: Clients  # n, int32
    noise: Floats  # n
    sigma: Floats  # n
    theta: Floats | None = None  # d; or else
    rewards: Floats | None = None  # n × lanes
    corruption: Floats | None = None  # n × lanes
    mask: Bytes | None = None  # n × lanes, uint8

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
        """Pulls as one writes them down, brought into that layout: contexts n × K × d, clients n, tables n × K.

        Rewards are θᵀx + noise with `theta`, or `rewards` as they are. An arm whose `mask` is False is not there.
        """
        contexts = as_floats("contexts", contexts)
        if contexts.ndim != 3:
            raise InvalidInput(
                f"contexts must have the shape (pulls, arms, dim), not {contexts.shape}"
            )
        n, n_arms, dim = contexts.shape
        lanes, rounds, table = norms.pad(n_arms), (n,), (n, n_arms)
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
                    f"{name} of {n} pulls of {n_arms} arms must have the shape {shape}, not {values.shape}"
                )
        clients, rewards, corruption, there = (values for values, _ in given.values())
        mask = None if there is None else check_whole_numbers("mask", there, 0, 1, np.uint8)
        with report_memory_errors("a chunk", contexts.shape):
            packed = norms.aligned_zeros(n, dim, lanes)
        norms.pack(np.ascontiguousarray(contexts), mask, 1.0, packed)
        return cls(
            contexts=packed,
            clients=check_whole_numbers("clients", clients, -LARGEST_SIZE, LARGEST_SIZE, np.int32),
            noise=_spread_over_pulls("noise", noise, n),
            sigma=_spread_over_pulls("sigma", sigma, n),
            theta=None if theta is None else check_array("theta", theta, (dim,)),
            rewards=pad_columns(rewards, lanes),
            corruption=pad_columns(corruption, lanes),
            mask=pad_columns(mask, lanes),
        )


class Stream:
    """One pass over a problem; `take(n)` gives the next n pulls. The arrays may be reused: use a chunk before the next take.

    >>> class Coins(Stream):
    ...     def take(self, n):
    ...         return Chunk.of(np.full((n, 2, 1), 0.5), np.zeros(n), rewards=np.eye(2)[np.zeros(n, int)])
    """

    budget: float = np.inf
    """The most that corruption may add up to, in absolute value, over the whole stream."""

    checked: bool = False
    """True when contexts are known to be finite and no longer than 1; else `run` looks at every chunk."""

    def take(self, n: int) -> Chunk:
        raise TypeError(f"{type(self).__name__} does not say how to take pulls: define take(n)")

    def position(self) -> dict[str, Any] | None:
        """Where the stream is, as plain data and arrays, for a checkpoint; None if all that helps is to take the pulls again."""
        return None

    def resume(self, position: dict[str, Any]) -> None:
        """Go on from a position."""
        raise TypeError(
            f"{type(self).__name__} has a position but does not say how to resume it: define resume(position)"
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


def check_chunk(chunk: Chunk, n: int, start: int, n_arms: int) -> None:
    """What a stream of somebody else's gives: the engine relies on n pulls of n_arms arms, one of them there, on every number
    being finite, on σ_t ≥ 0, and on contexts no longer than 1."""
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
        most = n if name != "theta" else norms.pad(chunk.contexts.shape[1])
        if len(values) > most or 0 in values.shape or (name != "theta" and len(values) < n):
            where = f"{n} rounds of {n_arms} arms in dimension {chunk.contexts.shape[1]}"
            raise InvalidInput(f"the chunk's {name}, of shape {values.shape}, do not fit {where}")
    for name in ("noise", "sigma", "theta", "rewards", "corruption"):
        values = getattr(chunk, name)
        if values is not None and not np.isfinite(values).all():
            raise InvalidInput(f"the chunk's {name} from pull {start} on hold NaN or infinity")
    if chunk.contexts[:, :, n_arms:].any():
        raise InvalidInput(
            f"the chunk's contexts from pull {start} on have more arms than the problem's n_arms={n_arms}"
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
    """The longest of the contexts whose lengths (rounds × arms) these are; an error that says where, if one can't be played."""
    if not np.isfinite(lengths).all():
        row, arm = np.argwhere(~np.isfinite(lengths))[0]
        raise InvalidInput(f"contexts of round {start + row}, arm {arm} hold NaN or infinity")
    row, arm = np.unravel_index(lengths.argmax(), lengths.shape)
    if lengths[row, arm] > most:
        raise InvalidInput(
            f"the context of round {start + row}, arm {arm} has length {lengths[row, arm]:.6g}; the theory needs at most 1. "
            "An ArrayProblem with scale_contexts=True divides all contexts by the longest"
        )
    return float(lengths[row, arm])


def pad_columns(
    table: NDArray[Number] | None, lanes: int, part: slice = slice(None)
) -> NDArray[Number] | None:
    """Rows of a table with a column for each arm, as the engine has them: a column for each lane."""
    if table is None:
        return None
    missing = lanes - table.shape[1]
    return np.ascontiguousarray(
        np.pad(table[part], ((0, 0), (0, missing))) if missing else table[part]
    )


def _spread_over_pulls(name: str, values: Any, n: int) -> Floats:
    """A number for each of n pulls, from as many or from one."""
    values = as_floats(name, values)
    if values.shape not in ((), (1,), (n,)):
        raise InvalidInput(f"{name} must be one number or {n}, not of shape {values.shape}")
    return np.array(np.broadcast_to(values, (n,)))
