"""ArrayProblem: contexts, clients and rewards from the user's arrays."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fedsuplin_ext import norms

from .._shared.array_checks import as_array, as_floats, check_array, report_memory_errors
from .._shared.array_types import AnyArray, Bytes, Clients, Floats
from .._shared.checks import LARGEST_SIZE, check_not_negative, check_size
from ..contracts.problem import Problem
from ..contracts.stream import NORM_TOLERANCE, Chunk, Stream, check_lengths
from ..errors import InvalidInput
from .buffers import AlternatingBuffers

SCAN_BYTES = 32 << 20  # of contexts that are checked at once
FINGERPRINT_ROWS = 4096  # of an array that are hashed at once


class ArrayProblem(Problem):
    """A problem from arrays that you have.

    T is the number of rounds, K that of arms, d the dimension. Give either `theta` or `rewards`.

    Parameters
    ----------
    contexts : array of float, T × K × d
        The contexts of each round. They may be no longer than 1; see `scale_contexts`.
    clients : array of int, T
        The client that plays each round.
    theta : array of float, d, optional
        The parameter: the reward of a context x is θᵀx plus noise.
    noise : array of float, T, optional
        The noise that is added to the reward of each round. Defaults to none.
    rewards : array of float, T × K, optional
        The reward of each arm. Regret is then measured against the best arm of the round.
    sigma : float or array of float, T, optional
        The noise level that the client sees. Defaults to `noise_scale`, or else to 1.
    corruption : array of float, T or T × K, optional
        What an adversary adds to the rewards.
    mask : array of bool, T × K, optional
        Which arms each round has. Defaults to all of them.
    n_clients : int, optional
        The number of clients. Defaults to one more than the largest client.
    noise_scale : float, optional
        The noise level that algorithms are made for.
    scale_contexts : bool, default False
        Divide all contexts by the longest, instead of refusing those longer than 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fedsuplin import ArrayProblem
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
                "contexts must have the shape (rounds, arms, dim), none of them 0, "
                f"not {self._contexts.shape}"
            )
        self.horizon, self.n_arms, self.dim = (int(n) for n in self._contexts.shape)
        rounds, table = (self.horizon,), (self.horizon, self.n_arms)
        # Contexts with strides of 0 can be much larger than memory: fail before reading them.
        with report_memory_errors("contexts", self._contexts.shape):
            nothing = np.zeros(rounds)
        clients = self._read_clients(clients)
        self._mask = self._check_mask(mask)
        self._scale = self._check_scale(scale_contexts)
        self._clients, self.n_clients = self._check_clients(clients, n_clients)
        if (theta is None) == (rewards is None):
            which = "one of them is needed" if theta is None else "not both"
            raise InvalidInput(
                "give either theta (rewards are θᵀx plus noise) "
                f"or rewards (a number for every arm): {which}"
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
        self._sigma = self._check_sigma(sigma)
        self._corruption = self._check_corruption(corruption)
        self.corruption = (
            None if self._corruption is None else compute_corruption_budget(self._corruption)
        )

    @property
    def spec(self) -> dict[str, Any]:
        """The sizes as plain data; the arrays are not in it, so it can't rebuild the problem."""
        sizes = {"shape": list(self._contexts.shape), "n_clients": self.n_clients}
        return {"problem": "array", "parameters": None, **sizes}

    def fingerprint(self) -> str:
        """Return a hash of all arrays, so that a checkpoint is only used with the same data.

        Returns
        -------
        str
            The SHA-256 in hexadecimal.
        """
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
                ):  # so that no whole copy is made
                    found.update(np.ascontiguousarray(array[start : start + FINGERPRINT_ROWS]).data)
        return found.hexdigest()

    def _check_mask(self, mask: Any) -> Bytes | None:
        """Return the mask as bytes, after checking that every round has an arm."""
        if mask is None:
            return None
        mask = as_array("mask", mask)
        if mask.shape != (self.horizon, self.n_arms) or mask.dtype != bool:
            raise InvalidInput(
                f"mask must be boolean of shape {(self.horizon, self.n_arms)}, "
                f"not {mask.dtype} of shape {mask.shape}"
            )
        if not mask.any(axis=1).all():
            raise InvalidInput(
                f"round {int((~mask.any(axis=1)).argmax())} has no arm: "
                "every row of mask needs one that is True"
            )
        return np.ascontiguousarray(mask, dtype=np.uint8)

    def _check_scale(self, scale_contexts: bool) -> float:
        """Return the factor for contexts, after checking that all are finite and at most 1 long.

        They are read in blocks, so that no copy is made.
        """
        longest = 0.0
        block = max(1, SCAN_BYTES // (8 * self.n_arms * self.dim))
        for start in range(0, self.horizon, block):
            part = self._contexts[start : start + block]
            lengths = np.sqrt(np.einsum("tkd,tkd->tk", part, part))
            if self._mask is not None:
                lengths[self._mask[start : start + block] == 0] = 0.0
            most = np.inf if scale_contexts else 1 + NORM_TOLERANCE
            longest = max(longest, check_lengths(lengths, start, most))
        return 1.0 / longest if scale_contexts and longest > 0 else 1.0

    def _read_clients(self, clients: Any) -> AnyArray:
        """Return the clients as an array of integers, one per round."""
        found = as_array("clients", clients)
        if found.shape != (self.horizon,) or found.dtype.kind not in "iu":
            raise InvalidInput(
                f"clients must be {self.horizon} integers, not {found.dtype} of shape {found.shape}"
            )
        return found

    def _check_clients(self, clients: AnyArray, n_clients: int | None) -> tuple[Clients, int]:
        """Return the clients as int32 and their number, after checking that all are in range."""
        count = (
            check_size("n_clients", n_clients)
            if n_clients is not None
            else min(int(clients.max()) + 1, LARGEST_SIZE)
        )
        outside = (clients < 0) | (clients >= count)
        if outside.any():
            at = int(outside.argmax())
            raise InvalidInput(
                f"clients[{at}] is {clients[at]}, out of range for n_clients={count}: "
                f"it must be 0 to {count - 1}"
            )
        return clients.astype(np.int32), count

    def _check_sigma(self, sigma: Any) -> Floats:
        """Return the noise level of each round."""
        if sigma is None:
            sigma = 1.0 if self.noise_scale is None else self.noise_scale
        if as_array("sigma", sigma).ndim == 0:
            return np.full(self.horizon, check_not_negative("sigma", sigma))
        levels = check_array("sigma", sigma, (self.horizon,))
        if (levels < 0).any():
            raise InvalidInput(
                f"sigma[{int((levels < 0).argmax())}] is {levels.min()}: "
                "a noise level can't be negative"
            )
        return levels

    def _check_corruption(self, corruption: Any) -> Floats | None:
        """Return the corruption of each round and arm."""
        if corruption is None:
            return None
        corruption = as_array("corruption", corruption)
        if corruption.ndim == 1:
            return np.repeat(
                check_array("corruption", corruption, (self.horizon,))[:, None], self.n_arms, axis=1
            )
        return check_array("corruption", corruption, (self.horizon, self.n_arms))

    def check_rounds(self, horizon: int) -> None:
        """Check that each round of M pulls has each client once; policies that sync all need it.

        Parameters
        ----------
        horizon : int
            The number of pulls to check.

        Raises
        ------
        InvalidInput
            If a client is missing from a round.
        """
        by_round = self._clients[:horizon].reshape(-1, self.n_clients)
        wrong = (np.sort(by_round, axis=1) != np.arange(self.n_clients)).any(axis=1)
        if wrong.any():
            at = int(wrong.argmax())
            raise InvalidInput(
                f"this policy syncs all clients, so every {self.n_clients} pulls "
                "must hold each client once; "
                f"pulls {at * self.n_clients} to {(at + 1) * self.n_clients - 1} "
                f"have clients {by_round[at][:20].tolist()}"
            )

    def stream(self, horizon: int, arrival: Any) -> Stream:
        return ArrayStream(self)

    def __repr__(self) -> str:
        what = "theta" if self.theta is not None else "rewards"
        sizes = f"dim={self.dim}, n_arms={self.n_arms}, n_clients={self.n_clients}"
        return f"ArrayProblem({self.horizon} rounds, {sizes}, from {what})"


class ArrayStream(Stream):
    """Read an ArrayProblem from beginning to end, each chunk in the engine's layout."""

    checked = may_prefetch = True

    def __init__(self, problem: ArrayProblem) -> None:
        self._problem, self._start = problem, 0
        self._buffers = AlternatingBuffers(problem.dim, problem.n_arms)

    def position(self) -> dict[str, Any]:
        """Return the number of the next pull, for a checkpoint."""
        return {"start": self._start}

    def resume(self, position: dict[str, Any]) -> None:
        """Continue from a position."""
        self._start = int(position["start"])

    def take(self, n: int) -> Chunk:
        """Take the next n pulls."""
        p, part = self._problem, slice(self._start, self._start + n)
        self._start += n
        packed = self._buffers.take(n)
        mask = None if p._mask is None else p._mask[part]
        norms.pack(p._contexts[part], mask, p._scale, packed)
        return Chunk(
            contexts=packed,
            clients=p._clients[part],
            noise=p._noise[part],
            sigma=p._sigma[part],
            theta=p.theta,
            rewards=None if p._rewards is None else np.ascontiguousarray(p._rewards[part]),
            corruption=None if p._corruption is None else np.ascontiguousarray(p._corruption[part]),
            mask=None if mask is None else np.ascontiguousarray(mask),
        )


def compute_corruption_budget(corruption: Floats) -> float:
    """Return C_p of an ArrayProblem: the most that its corruption can add up to, for any arms."""
    with np.errstate(over="ignore"):
        total = float(np.abs(corruption).max(axis=1).sum())
    if not np.isfinite(total):
        raise InvalidInput("corruption adds up to more than double precision can hold")
    return total
