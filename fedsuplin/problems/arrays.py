"""ArrayProblem: contexts, clients and rewards from the user's arrays."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fedsuplin_ext import norms

from .._shared.array_checks import as_array, as_floats, check_array, report_memory_errors
from .._shared.arrays import AnyArray, Bytes, Clients, Floats
from .._shared.checks import LARGEST_SIZE, check_not_negative, check_size
from ..contracts.problem import Problem
from ..contracts.stream import NORM_TOLERANCE, Chunk, Stream, check_lengths, pad_columns
from ..errors import InvalidInput

SCAN_BYTES = 32 << 20
FINGERPRINT_ROWS = 4096


class ArrayProblem(Problem):
    """Contexts (T × K × d) and clients (T) that you have, with either `theta` (and noise) or `rewards` (T × K).

    With rewards, regret is against the best entry of the row. `mask` (T × K) says which arms a round has. `sigma` (T or one
    number) is the noise level that the client is told. Contexts longer than 1 are refused unless `scale_contexts=True`,
    which divides all of them by the longest.

    >>> problem = ArrayProblem(np.eye(3)[None].repeat(6, axis=0), [0, 1] * 3, theta=[0.1, 0.5, 0.2])
    >>> problem.dim, problem.n_arms, problem.n_clients, problem.horizon
    (3, 3, 2, 6)
    """

    horizon: int

    def __init__(
        self,
        contexts: Any,
        clients: Any,
        *,
        theta: Any = None,
        noise: Any = None,
        rewards: Any = None,
        sigma: Any = None,
        corruption: Any = None,
        mask: Any = None,
        n_clients: int | None = None,
        noise_scale: float | None = None,
        scale_contexts: bool = False,
    ) -> None:
        self._contexts = as_floats("contexts", contexts)
        if self._contexts.ndim != 3 or 0 in self._contexts.shape:
            raise InvalidInput(
                f"contexts must have the shape (rounds, arms, dim), none of them 0, not {self._contexts.shape}"
            )
        self.horizon, self.n_arms, self.dim = (int(n) for n in self._contexts.shape)
        rounds, table = (self.horizon,), (self.horizon, self.n_arms)
        with report_memory_errors(
            "contexts", self._contexts.shape
        ):  # they may be one number by strides; before all of it is looked at
            nothing = np.zeros(rounds)
        clients = self._as_clients(clients)
        self._mask = self._checked_mask(mask)
        self._scale = self._checked_scale(scale_contexts)
        self._clients, self.n_clients = self._checked_clients(clients, n_clients)
        if (theta is None) == (rewards is None):
            which = "one of them is needed" if theta is None else "not both"
            raise InvalidInput(
                f"give either theta (rewards are θᵀx plus noise) or rewards (a number for every arm): {which}"
            )
        self.theta = None if theta is None else check_array("theta", theta, (self.dim,))
        there = None if self._mask is None else self._mask.astype(bool)
        self._rewards = (
            None
            if rewards is None
            else np.ascontiguousarray(check_array("rewards", rewards, table, there))
        )
        self._noise = nothing if noise is None else check_array("noise", noise, rounds)
        self.noise_scale = (
            None if noise_scale is None else check_not_negative("noise_scale", noise_scale)
        )
        self._sigma = self._checked_sigma(sigma)
        self._corruption = self._checked_corruption(corruption)
        self.corruption = (
            None if self._corruption is None else compute_corruption_budget(self._corruption)
        )

    @property
    def spec(self) -> dict[str, Any]:
        """Arrays are not kept in a specification, so this does not make the problem again."""
        sizes = {"shape": list(self._contexts.shape), "n_clients": self.n_clients}
        return {"problem": "array", "parameters": None, **sizes}

    def fingerprint(self) -> str:
        found = hashlib.sha256()
        for array in (
            self._contexts,
            self._clients,
            self._rewards,
            self._noise,
            self._sigma,
            self._corruption,
            self._mask,
        ):
            if array is not None:
                found.update(repr((array.shape, array.dtype.str)).encode())
                for start in range(
                    0, len(array), FINGERPRINT_ROWS
                ):  # in blocks, so that no copy of it all is made
                    found.update(np.ascontiguousarray(array[start : start + FINGERPRINT_ROWS]).data)
        return found.hexdigest()

    def _checked_mask(self, mask: Any) -> Bytes | None:
        if mask is None:
            return None
        mask = as_array("mask", mask)
        if mask.shape != (self.horizon, self.n_arms) or mask.dtype != bool:
            raise InvalidInput(
                f"mask must be boolean of shape {(self.horizon, self.n_arms)}, not {mask.dtype} of shape {mask.shape}"
            )
        if not mask.any(axis=1).all():
            raise InvalidInput(
                f"round {int((~mask.any(axis=1)).argmax())} has no arm: every row of mask needs one that is True"
            )
        return np.ascontiguousarray(mask, dtype=np.uint8)

    def _checked_scale(self, scale_contexts: bool) -> float:
        """Every context that a client may see: finite, and no longer than 1. Read in blocks, so that no copy is made."""
        longest = 0.0
        block = max(1, SCAN_BYTES // (8 * self.n_arms * self.dim))
        for start in range(0, self.horizon, block):
            part = self._contexts[start : start + block]
            lengths = np.sqrt(np.einsum("tkd,tkd->tk", part, part))
            if self._mask is not None:
                lengths[self._mask[start : start + block] == 0] = 0.0
            longest = max(
                longest,
                check_lengths(lengths, start, np.inf if scale_contexts else 1 + NORM_TOLERANCE),
            )
        return 1.0 / longest if scale_contexts and longest > 0 else 1.0

    def _as_clients(self, clients: Any) -> AnyArray:
        found = as_array("clients", clients)
        if found.shape != (self.horizon,) or found.dtype.kind not in "iu":
            raise InvalidInput(
                f"clients must be {self.horizon} integers, not {found.dtype} of shape {found.shape}"
            )
        return found

    def _checked_clients(self, clients: AnyArray, n_clients: int | None) -> tuple[Clients, int]:
        count = (
            check_size("n_clients", n_clients)
            if n_clients is not None
            else min(int(clients.max()) + 1, LARGEST_SIZE)
        )
        outside = (clients < 0) | (clients >= count)
        if outside.any():
            at = int(outside.argmax())
            raise InvalidInput(
                f"clients[{at}] is {clients[at]}, out of range for n_clients={count}: it must be 0 to {count - 1}"
            )
        return clients.astype(np.int32), count

    def _checked_sigma(self, sigma: Any) -> Floats:
        if sigma is None:
            sigma = 1.0 if self.noise_scale is None else self.noise_scale
        if as_array("sigma", sigma).ndim == 0:
            return np.full(self.horizon, check_not_negative("sigma", sigma))
        levels = check_array("sigma", sigma, (self.horizon,))
        if (levels < 0).any():
            raise InvalidInput(
                f"sigma[{int((levels < 0).argmax())}] is {levels.min()}: a noise level can't be negative"
            )
        return levels

    def _checked_corruption(self, corruption: Any) -> Floats | None:
        if corruption is None:
            return None
        corruption = as_array("corruption", corruption)
        if corruption.ndim == 1:
            return np.repeat(
                check_array("corruption", corruption, (self.horizon,))[:, None], self.n_arms, axis=1
            )
        return check_array("corruption", corruption, (self.horizon, self.n_arms))

    def check_rounds(self, horizon: int) -> None:
        """Every M pulls hold each client once, as policies that sync all clients need it."""
        by_round = self._clients[:horizon].reshape(-1, self.n_clients)
        wrong = (np.sort(by_round, axis=1) != np.arange(self.n_clients)).any(axis=1)
        if wrong.any():
            at = int(wrong.argmax())
            raise InvalidInput(
                f"this policy syncs all clients, so every {self.n_clients} pulls must hold each client once; "
                f"pulls {at * self.n_clients} to {(at + 1) * self.n_clients - 1} have clients {by_round[at][:20].tolist()}"
            )

    def stream(self, horizon: int, arrival: Any) -> Stream:
        return ArrayStream(self)

    def __repr__(self) -> str:
        what = "theta" if self.theta is not None else "rewards"
        sizes = f"dim={self.dim}, n_arms={self.n_arms}, n_clients={self.n_clients}"
        return f"ArrayProblem({self.horizon} rounds, {sizes}, from {what})"


class ArrayStream(Stream):
    """Walks an ArrayProblem, bringing each chunk into the engine's layout."""

    checked = True

    def __init__(self, problem: ArrayProblem) -> None:
        self._problem, self._start = problem, 0
        self._lanes = norms.pad(problem.n_arms)
        self._packed = np.empty((0, problem.dim, self._lanes))

    def position(self) -> dict[str, Any]:
        return {"start": self._start}

    def resume(self, position: dict[str, Any]) -> None:
        self._start = int(position["start"])

    def take(self, n: int) -> Chunk:
        p, part = self._problem, slice(self._start, self._start + n)
        self._start += n
        if len(self._packed) < n:
            self._packed = norms.aligned_zeros(n, p.dim, self._lanes)
        mask = None if p._mask is None else p._mask[part]
        norms.pack(p._contexts[part], mask, p._scale, self._packed[:n])
        return Chunk(
            contexts=self._packed[:n],
            clients=p._clients[part],
            noise=p._noise[part],
            sigma=p._sigma[part],
            theta=p.theta,
            rewards=pad_columns(p._rewards, self._lanes, part),
            corruption=pad_columns(p._corruption, self._lanes, part),
            mask=pad_columns(mask, self._lanes),
        )


def compute_corruption_budget(corruption: Floats) -> float:
    """C_p: the most that corruption may add up to, whatever is played."""
    with np.errstate(over="ignore"):
        total = float(np.abs(corruption).max(axis=1).sum())
    if not np.isfinite(total):
        raise InvalidInput("corruption adds up to more than double precision can hold")
    return total
