"""Where contexts, clients and rewards come from, in chunks.

A problem is immutable; each `stream` plays it from the beginning. Contexts travel as n × d × lanes: the arms are the SIMD
lanes of the kernels, padded with zeros. What a stream yields is a function of the problem alone, however it is cut.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsuplin_ext import norms
from fedsuplin_ext.draws import ContextSource

from .arrays import AnyArray, Bytes, Clients, Flags, Floats
from .errors import InvalidInput, PluginError, unknown
from .registry import check, parameters_of, plugins
from .setting import LARGEST_SIZE, not_negative, positive_integer, size

NORM_TOLERANCE = 1e-6
CONTEXT_LAWS = ("sphere", "ball")
SCAN_BYTES = 32 << 20
FINGERPRINT_ROWS = 4096
Number = TypeVar("Number", bound=np.generic)
GENERATORS = ("_lengths", "_noise", "_corruption")


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
            raise InvalidInput(f"contexts must have the shape (pulls, arms, dim), not {contexts.shape}")
        n, n_arms, dim = contexts.shape
        lanes, rounds, table = norms.pad(n_arms), (n,), (n, n_arms)
        given = {
            "clients": (as_floats("clients", clients), rounds),
            "rewards": (rewards if rewards is None else as_floats("rewards", rewards), table),
            "corruption": (corruption if corruption is None else as_floats("corruption", corruption), table),
            "mask": (mask if mask is None else as_floats("mask", mask), table),
        }
        for name, (values, shape) in given.items():
            if values is not None and values.shape != shape:
                raise InvalidInput(f"{name} of {n} pulls of {n_arms} arms must have the shape {shape}, not {values.shape}")
        clients, rewards, corruption, there = (values for values, _ in given.values())
        mask = None if there is None else whole_numbers("mask", there, 0, 1, np.uint8)
        with enough_memory("a chunk", contexts.shape):
            packed = norms.aligned_zeros(n, dim, lanes)
        norms.pack(np.ascontiguousarray(contexts), mask, 1.0, packed)
        return cls(
            contexts=packed,
            clients=whole_numbers("clients", clients, -LARGEST_SIZE, LARGEST_SIZE, np.int32),
            noise=one_or_all("noise", noise, n),
            sigma=one_or_all("sigma", sigma, n),
            theta=None if theta is None else checked_array("theta", theta, (dim,)),
            rewards=padded_columns(rewards, lanes),
            corruption=padded_columns(corruption, lanes),
            mask=padded_columns(mask, lanes),
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
        raise TypeError(f"{type(self).__name__} has a position but does not say how to resume it: define resume(position)")


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
        return f"{type(self).__name__}({', '.join(f'{name}={size}' for name, size in sizes.items())})"

    def stream(self, horizon: int, arrival: Any) -> Stream:
        """A fresh stream of pulls; `arrival` is the pattern to use, None for the problem's own choice."""
        raise TypeError(f"{type(self).__name__} does not say how to play it: define stream(horizon, arrival)")

    def fingerprint(self) -> str | None:
        """What tells the data of this problem from other data, where `spec` does not; a checkpoint is for the same data only."""
        return None

    @property
    def spec(self) -> dict[str, Any]:
        """The problem as plain data: its registered name and, for a dataclass, the parameters that make it again."""
        name = plugins.name_of("problems", type(self)) or type(self).__qualname__
        return {"problem": name, "parameters": dataclasses.asdict(self) if dataclasses.is_dataclass(self) else None}


# --- synthetic -----------------------------------------------------------------------------------------------------------


class SyntheticProblem(Problem):
    """Random contexts on the unit sphere or in the unit ball, a random θ of length 1, noise from a noise model.

    `noise` is "gaussian", "bounded" (σ_t known to the client), "corrupted" (an adversary with a budget) or any noise model;
    keywords beyond those named are its parameters, or the arrival's where that is a name. `arrival=None` is round-robin for
    policies that sync all clients, else random.

    >>> problem = SyntheticProblem(dim=5, n_arms=4, n_clients=3, seed=1)
    >>> problem.stream(12, None).take(2).contexts.shape
    (2, 5, 4)
    """

    def __init__(
        self,
        dim: int,
        n_arms: int,
        n_clients: int,
        *,
        arrival: Any = None,
        noise: Any = "gaussian",
        noise_scale: float | None = None,
        contexts: str = "sphere",
        theta: Floats | None = None,
        horizon: int | None = None,
        seed: int = 0,
        **noise_parameters: Any,
    ) -> None:
        self.dim, self.n_arms, self.n_clients = size("dim", dim), size("n_arms", n_arms), size("n_clients", n_clients)
        self.horizon = None if horizon is None else positive_integer("horizon", horizon)
        if contexts not in CONTEXT_LAWS:
            raise unknown("law of contexts", contexts, CONTEXT_LAWS)
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
            raise InvalidInput(f"seed must be a whole number of at least 0, not {seed!r}")
        self.contexts, self.seed = contexts, int(seed)
        of_arrival = arrival_parameters(arrival, noise, noise_parameters)
        self.arrival = arrival_of(arrival, of_arrival)
        of_noise = {name: value for name, value in noise_parameters.items() if name not in of_arrival}
        self.noise = self._noise_model(noise, noise_scale, of_noise)
        self.theta = self._theta(theta)
        self._parameters = {
            "dim": self.dim,
            "n_arms": self.n_arms,
            "n_clients": self.n_clients,
            "horizon": self.horizon,
            "contexts": contexts,
            "arrival": arrival,
            "noise": noise,
            **({} if noise_scale is None else {"noise_scale": noise_scale}),
            **noise_parameters,
            "theta": None if theta is None else [float(value) for value in self.theta],
            "seed": self.seed,
        }

    @property
    def spec(self) -> dict[str, Any]:
        """Parameters that make it again, unless a part was given as an object: then there are none, and it says so."""
        if all(isinstance(self._parameters[part], str | None) for part in ("arrival", "noise")):
            return {"problem": "synthetic", "parameters": dict(self._parameters)}
        return {"problem": "synthetic", "parameters": None, "shown": repr(self)}

    def _noise_model(self, noise: Any, noise_scale: float | None, parameters: Mapping[str, Any]) -> Any:
        if not isinstance(noise, str):
            if parameters or noise_scale is not None:
                raise InvalidInput("noise was given as an object, so its parameters belong in it, not in keywords")
            return check("noise_models", noise)
        takes = parameters_of(plugins.factory("noise_models", noise))
        given = dict(parameters) | ({} if noise_scale is None else {"noise_scale": noise_scale})
        for name in given:
            if name not in takes:
                raise unknown(f"parameter of {noise!r} noise", name, takes)
        defaults = {"noise_scale": 0.1} if "noise_scale" in takes else {}
        return plugins.create("noise_models", noise, defaults | given)

    def _theta(self, given: Floats | None) -> Floats:
        if given is None:
            raw = np.random.default_rng(self._seeds()[0]).standard_normal(self.dim)
            return raw / np.linalg.norm(raw)
        return checked_array("theta", given, (self.dim,))

    def _seeds(self) -> list[np.random.SeedSequence]:
        """One for each purpose: θ, contexts, lengths, noise, corruption, arrival."""
        return np.random.SeedSequence(self.seed).spawn(6)

    # What the algorithm's assumptions are checked against.
    noise_scale = property(lambda self: getattr(self.noise, "noise_scale", None))
    R = property(lambda self: getattr(self.noise, "R", None))
    corruption = property(lambda self: getattr(self.noise, "corruption", None))

    def stream(self, horizon: int, arrival: Any) -> Stream:
        return SyntheticStream(self, horizon, arrival)

    def __repr__(self) -> str:
        return (
            f"SyntheticProblem(dim={self.dim}, n_arms={self.n_arms}, n_clients={self.n_clients}, contexts={self.contexts!r}, "
            f"arrival={self.arrival}, noise={self.noise}, horizon={self.horizon}, seed={self.seed})"
        )


class DrawnStream(Stream):
    """What streams share that draw their pulls: who plays, and memory for the contexts. `seed` is the arrival's."""

    checked = True
    _problem: Problem

    def __init__(self, problem: Problem, horizon: int, arrival: Any, seed: np.random.SeedSequence) -> None:
        self._problem, self._horizon, self._start = problem, horizon, 0
        self._arrival = arrival or problem.arrival or arrival_of("random")
        self._arrival_seed = int(seed.generate_state(1, np.uint64)[0])
        self._packed = np.empty((0, 0, 0))

    def _clients(self, start: int, n: int) -> Clients:
        sizes = {"n_clients": self._problem.n_clients, "horizon": self._horizon}
        clients = np.asarray(self._arrival.clients(start, start + n, **sizes, seed=self._arrival_seed))
        if clients.shape != (n,) or not np.issubdtype(clients.dtype, np.integer):
            raise PluginError(
                f"arrival {self._arrival!r} must give {n} whole numbers, not {clients.dtype} of shape {clients.shape}"
            )
        return np.ascontiguousarray(clients, dtype=np.int32)

    def _room(self, n: int) -> Floats:
        """Memory for the contexts of n pulls, used again for the next ones."""
        if len(self._packed) < n:
            self._packed = norms.aligned_zeros(n, self._problem.dim, norms.pad(self._problem.n_arms))
        return self._packed[:n]


class SyntheticStream(DrawnStream):
    """Draws a SyntheticProblem; one generator for each purpose, so that no choice shifts another's numbers."""

    _problem: SyntheticProblem

    def __init__(self, problem: SyntheticProblem, horizon: int, arrival: Any) -> None:
        _, *seeds, arrival_seed = problem._seeds()
        super().__init__(problem, horizon, arrival, arrival_seed)
        self._contexts = ContextSource(seeds[0], problem.dim, problem.n_arms)
        self._lengths, self._noise, self._corruption = (np.random.default_rng(seed) for seed in seeds[1:])
        self.budget = getattr(problem.noise, "budget", np.inf)

    def take(self, n: int) -> Chunk:
        problem, start = self._problem, self._start
        self._start += n
        clients = self._clients(start, n)
        contexts, rewards = self._contexts_of(clients), self._rewards_of(clients)
        noise, sigma = drawn(problem.noise, self._noise, n)
        return Chunk(
            contexts=contexts,
            clients=clients,
            noise=noise,
            sigma=sigma,
            theta=problem.theta,
            rewards=rewards,
            corruption=self._corrupt(contexts, rewards) if hasattr(problem.noise, "corrupt") else None,
        )

    def position(self) -> dict[str, Any]:
        generators = {name: getattr(self, name).bit_generator.state for name in GENERATORS}
        return {"start": self._start, "contexts": self._contexts.position, **generators}

    def resume(self, position: dict[str, Any]) -> None:
        self._start, self._contexts.position = int(position["start"]), position["contexts"]
        for name in GENERATORS:
            getattr(self, name).bit_generator.state = position[name]

    def _contexts_of(self, clients: Clients) -> Floats:
        """Of length 1, or of a length whose d-th power is uniform, which fills the ball evenly; whoever plays."""
        problem, n = self._problem, len(clients)
        lengths = self._lengths.random((n, problem.n_arms)) ** (1 / problem.dim) if problem.contexts == "ball" else None
        packed = self._room(n)
        self._contexts.fill(packed, lengths)
        return packed

    def _rewards_of(self, clients: Clients) -> Floats | None:
        """Mean rewards where they are not θᵀx."""
        return None

    def _corrupt(self, contexts: Floats, rewards: Floats | None) -> Floats:
        means = rewards
        if means is None:
            assert self._problem.theta is not None  # where there is none, rewards are given
            means = norms.mean_rewards(contexts, self._problem.theta)
        real = means[:, : self._problem.n_arms]
        noise, out = self._problem.noise, np.zeros_like(means)
        added = np.asarray(noise.corrupt(self._corruption, real, real.argmax(axis=1)), dtype=np.float64)
        if added.shape != real.shape or not np.isfinite(added).all():
            raise PluginError(f"noise model {noise!r}: corrupt must give finite numbers of shape {real.shape}")
        out[:, : self._problem.n_arms] = added
        return out


def drawn(noise: Any, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """What a noise model draws, looked at: it may be anybody's."""
    values, sigma = (np.ascontiguousarray(array, dtype=np.float64) for array in noise.draw(rng, n))
    if (
        values.shape != (n,)
        or sigma.shape != (n,)
        or not np.isfinite(values).all()
        or not ((sigma >= 0) & (sigma < np.inf)).all()
    ):
        raise PluginError(f"noise model {noise!r}: draw must give {n} finite numbers and {n} noise levels of at least 0")
    return values, sigma


# --- from arrays -----------------------------------------------------------------------------------------------------------


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
            raise InvalidInput(f"contexts must have the shape (rounds, arms, dim), none of them 0, not {self._contexts.shape}")
        self.horizon, self.n_arms, self.dim = (int(n) for n in self._contexts.shape)
        rounds, table = (self.horizon,), (self.horizon, self.n_arms)
        with enough_memory("contexts", self._contexts.shape):  # they may be one number by strides; before all of it is looked at
            nothing = np.zeros(rounds)
        clients = self._as_clients(clients)
        self._mask = self._checked_mask(mask)
        self._scale = self._checked_scale(scale_contexts)
        self._clients, self.n_clients = self._checked_clients(clients, n_clients)
        if (theta is None) == (rewards is None):
            which = "one of them is needed" if theta is None else "not both"
            raise InvalidInput(f"give either theta (rewards are θᵀx plus noise) or rewards (a number for every arm): {which}")
        self.theta = None if theta is None else checked_array("theta", theta, (self.dim,))
        there = None if self._mask is None else self._mask.astype(bool)
        self._rewards = None if rewards is None else np.ascontiguousarray(checked_array("rewards", rewards, table, there))
        self._noise = nothing if noise is None else checked_array("noise", noise, rounds)
        self.noise_scale = None if noise_scale is None else not_negative("noise_scale", noise_scale)
        self._sigma = self._checked_sigma(sigma)
        self._corruption = self._checked_corruption(corruption)
        self.corruption = None if self._corruption is None else budget_of(self._corruption)

    @property
    def spec(self) -> dict[str, Any]:
        """Arrays are not kept in a specification, so this does not make the problem again."""
        sizes = {"shape": list(self._contexts.shape), "n_clients": self.n_clients}
        return {"problem": "array", "parameters": None, **sizes}

    def fingerprint(self) -> str:
        found = hashlib.sha256()
        for array in (self._contexts, self._clients, self._rewards, self._noise, self._sigma, self._corruption, self._mask):
            if array is not None:
                found.update(repr((array.shape, array.dtype.str)).encode())
                for start in range(0, len(array), FINGERPRINT_ROWS):  # in blocks, so that no copy of it all is made
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
            raise InvalidInput(f"round {int((~mask.any(axis=1)).argmax())} has no arm: every row of mask needs one that is True")
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
            longest = max(longest, checked_lengths(lengths, start, np.inf if scale_contexts else 1 + NORM_TOLERANCE))
        return 1.0 / longest if scale_contexts and longest > 0 else 1.0

    def _as_clients(self, clients: Any) -> AnyArray:
        found = as_array("clients", clients)
        if found.shape != (self.horizon,) or found.dtype.kind not in "iu":
            raise InvalidInput(f"clients must be {self.horizon} integers, not {found.dtype} of shape {found.shape}")
        return found

    def _checked_clients(self, clients: AnyArray, n_clients: int | None) -> tuple[Clients, int]:
        count = size("n_clients", n_clients) if n_clients is not None else min(int(clients.max()) + 1, LARGEST_SIZE)
        outside = (clients < 0) | (clients >= count)
        if outside.any():
            at = int(outside.argmax())
            raise InvalidInput(f"clients[{at}] is {clients[at]}, out of range for n_clients={count}: it must be 0 to {count - 1}")
        return clients.astype(np.int32), count

    def _checked_sigma(self, sigma: Any) -> Floats:
        if sigma is None:
            sigma = 1.0 if self.noise_scale is None else self.noise_scale
        if as_array("sigma", sigma).ndim == 0:
            return np.full(self.horizon, not_negative("sigma", sigma))
        levels = checked_array("sigma", sigma, (self.horizon,))
        if (levels < 0).any():
            raise InvalidInput(f"sigma[{int((levels < 0).argmax())}] is {levels.min()}: a noise level can't be negative")
        return levels

    def _checked_corruption(self, corruption: Any) -> Floats | None:
        if corruption is None:
            return None
        corruption = as_array("corruption", corruption)
        if corruption.ndim == 1:
            return np.repeat(checked_array("corruption", corruption, (self.horizon,))[:, None], self.n_arms, axis=1)
        return checked_array("corruption", corruption, (self.horizon, self.n_arms))

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
            rewards=padded_columns(p._rewards, self._lanes, part),
            corruption=padded_columns(p._corruption, self._lanes, part),
            mask=padded_columns(mask, self._lanes),
        )


def budget_of(corruption: Floats) -> float:
    """C_p: the most that corruption may add up to, whatever is played."""
    with np.errstate(over="ignore"):
        total = float(np.abs(corruption).max(axis=1).sum())
    if not np.isfinite(total):
        raise InvalidInput("corruption adds up to more than double precision can hold")
    return total


def padded_columns(table: NDArray[Number] | None, lanes: int, part: slice = slice(None)) -> NDArray[Number] | None:
    """Rows of a table with a column for each arm, as the engine has them: a column for each lane."""
    if table is None:
        return None
    missing = lanes - table.shape[1]
    return np.ascontiguousarray(np.pad(table[part], ((0, 0), (0, missing))) if missing else table[part])


# --- checks both share -------------------------------------------------------------------------------------------------------


def checked_lengths(lengths: Floats, start: int, most: float) -> float:
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


LAYOUT = {  # of a chunk: type, axes, and whether it must be there
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
    if not isinstance(chunk, Chunk) or not isinstance(chunk.contexts, np.ndarray) or chunk.contexts.shape[:1] != (n,):
        raise InvalidInput(f"take({n}) must give a Chunk of {n} pulls: Chunk.of(contexts, clients, …) makes one")
    for name, (dtype, ndim, needed) in LAYOUT.items():
        values = getattr(chunk, name)
        if values is None and not needed:
            continue
        if not isinstance(values, np.ndarray) or values.dtype != dtype or values.ndim != ndim:
            found = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise InvalidInput(f"the chunk's {name} must be {np.dtype(dtype)} with {ndim} axes, not {found}")
        most = n if name != "theta" else norms.pad(chunk.contexts.shape[1])
        if len(values) > most or 0 in values.shape or (name != "theta" and len(values) < n):
            where = f"{n} rounds of {n_arms} arms in dimension {chunk.contexts.shape[1]}"
            raise InvalidInput(f"the chunk's {name}, of shape {values.shape}, do not fit {where}")
    for name in ("noise", "sigma", "theta", "rewards", "corruption"):
        values = getattr(chunk, name)
        if values is not None and not np.isfinite(values).all():
            raise InvalidInput(f"the chunk's {name} from pull {start} on hold NaN or infinity")
    if chunk.contexts[:, :, n_arms:].any():
        raise InvalidInput(f"the chunk's contexts from pull {start} on have more arms than the problem's n_arms={n_arms}")
    if chunk.mask is not None and not chunk.mask.any(axis=1).all():
        at = int((~chunk.mask.any(axis=1)).argmax())
        raise InvalidInput(f"pull {start + at} has no arm: every row of mask needs one that is True")
    if (chunk.sigma < 0).any():
        at = int((chunk.sigma < 0).argmax())
        raise InvalidInput(f"sigma of pull {start + at} is {chunk.sigma[at]}: a noise level can't be negative")
    checked_lengths(np.sqrt(np.einsum("tdk,tdk->tk", chunk.contexts, chunk.contexts)), start, 1 + NORM_TOLERANCE)


def as_array(name: str, values: Any) -> AnyArray:
    """Whatever NumPy makes of it; not what lies under a mask of its own."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InvalidInput(f"{name} has entries that are masked out: give mask= for arms that are not there")
    try:
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise InvalidInput(f"{name} can't be read as an array: {error}") from None


def as_floats(name: str, values: Any) -> Floats:
    """As float64, at addresses that C can read: NumPy has arrays that begin in the middle of a number."""
    array = as_array(name, values)
    if array.dtype.kind not in "fiubO":  # else NumPy would drop imaginary parts, count days, read words
        raise InvalidInput(f"{name} can't be read as an array of numbers: its type is {array.dtype}")
    try:
        return np.require(array, np.float64, "A")
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise InvalidInput(f"{name} can't be read as an array of numbers: {error}") from None


def whole_numbers(name: str, values: Floats, least: int, most: int, dtype: type[Number]) -> NDArray[Number]:
    """Floats that are whole, and in range, as integers."""
    wrong = ~((values == np.floor(values)) & (values >= least) & (values <= most))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidInput(f"{name}{list(at)} is {values[at]}: it must be a whole number from {least} to {most}")
    return np.ascontiguousarray(values, dtype=dtype)


def one_or_all(name: str, values: Any, n: int) -> Floats:
    """A number for each of n pulls, from as many or from one."""
    values = as_floats(name, values)
    if values.shape not in ((), (1,), (n,)):
        raise InvalidInput(f"{name} must be one number or {n}, not of shape {values.shape}")
    return np.array(np.broadcast_to(values, (n,)))


@contextlib.contextmanager
def enough_memory(what: str, shape: tuple[int, ...]) -> Iterator[None]:
    try:
        yield
    except (MemoryError, ValueError, OverflowError) as error:  # what NumPy says of shapes that no memory holds
        raise InvalidInput(f"{what} of shape {shape}: there is no memory for that ({error})") from None


def checked_array(name: str, values: Any, shape: tuple[int, ...], there: Flags | None = None) -> Floats:
    """`values` as finite float64 of that shape; entries where `there` is False are not looked at, and become 0."""
    array = as_floats(name, values)
    if array.shape != shape:
        raise InvalidInput(f"{name} must have the shape {shape}, not {array.shape}")
    if there is not None:
        array = np.where(there, array, 0.0)
    if not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InvalidInput(f"{name}{list(at)} is {array[at]}: every entry must be finite")
    return np.ascontiguousarray(array)


def arrival_parameters(arrival: Any, noise: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the keywords that an arrival pattern takes which is made by name; what the noise takes too is the noise's."""
    takes = set(parameters_of(plugins.factory("arrivals", arrival))) if isinstance(arrival, str) else set()
    if isinstance(noise, str):
        takes -= set(parameters_of(plugins.factory("noise_models", noise)))
    return {name: value for name, value in given.items() if name in takes}


def arrival_of(arrival: Any, parameters: Mapping[str, Any] | None = None) -> Any:
    """An arrival pattern by name, or the object itself; None stays None."""
    if isinstance(arrival, str):
        return plugins.create("arrivals", arrival, dict(parameters or {}))
    return None if arrival is None else check("arrivals", arrival)


def problem_from_spec(spec: Mapping[str, Any]) -> Any:
    """The problem that a specification describes, by its registered name."""
    if spec.get("parameters") is None:
        raise InvalidInput(f"a problem of kind {spec.get('problem')!r} can't be made again from its specification")
    return plugins.create("problems", spec["problem"], spec["parameters"])
