"""A client that chooses arms, learns, and says when to sync."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsuplin_ext import norms
from fedsuplin_ext.live import Live
from fedsuplin_ext.state import restore, state_of

from .._shared.archives import encode_archive
from .._shared.array_checks import as_array, as_floats, check_array
from .._shared.arrays import Bytes, Floats
from .._shared.checks import check_finite, check_not_negative, check_seed, is_whole_number
from ..algorithm.algorithm import Algorithm
from ..contracts.stream import NORM_TOLERANCE
from ..errors import InvalidInput, NumericalError, PluginError
from .algorithms import check_live_algorithm
from .messages import Download, Upload
from .saving import collect_live_parts, load_live, save_live
from .uploads import check_message, pack_layers, unpack_upper

Observed = tuple[int, Floats, float, float]  # the layer, the arm, its weight and the reward
OBSERVED_FIELDS = ("layer", "x", "weight", "reward")


@dataclass(frozen=True)
class Decision:
    """An arm that was chosen. Its `id` is what an observation refers to.

    >>> Decision(id=0, arm=2, layer=1).arm
    2
    """

    id: int
    arm: int
    layer: int


class Client:
    """One client of a federation. Every method may be called from any thread: they take turns. One that raises changes nothing.

    >>> import fedsuplin as fsl
    >>> algorithm = fsl.make("async", dim=2, n_arms=3, n_clients=2, horizon=1000)
    >>> client, server = Client(algorithm, client_id=0), fsl.Server(algorithm)
    >>> decision = client.select([[1, 0], [0, 1], [0.6, 0.8]])
    >>> client.observe(decision, reward=0.5)
    >>> client.apply(server.merge(client.upload()))
    >>> client.n_observed, client.n_open
    (1, 0)
    """

    def __init__(
        self, algorithm: Algorithm, client_id: int = 0, *, seed: int = 0, kernels: str | None = None
    ) -> None:
        check_live_algorithm(algorithm)
        if not is_whole_number(client_id) or not 0 <= client_id < algorithm.n_clients:
            raise InvalidInput(
                f"client_id must be a whole number from 0 to {algorithm.n_clients - 1}, not {client_id!r}"
            )
        self.algorithm, self.client_id, self.seed = algorithm, int(client_id), check_seed(seed)
        key = int(
            np.random.SeedSequence(self.seed, spawn_key=(self.client_id,)).generate_state(
                1, np.uint64
            )[0]
        )
        self._engine = Live(algorithm, kernels=kernels, key=key)
        self._lock = threading.RLock()
        self._next = 0
        self._open: dict[
            int, tuple[int, Floats]
        ] = {}  # by id: the layer and the arm that was chosen
        self._since: list[Observed] | None = None  # observed since the upload that is under way
        self._sent: tuple[int, ...] = ()  # the layers in that upload
        self._pulls = [0] * algorithm.n_layers  # observed in each layer, and not yet in a download

    # --- choosing and learning ---------------------------------------------------------------------------------------------

    def select(self, contexts: Any, mask: Any = None) -> Decision:
        """Choose one of the arms (contexts of shape arms × dim), or of those whose `mask` is True."""
        contexts, there = self._checked(contexts, mask)
        with self._lock:
            status, arm, layer = self._engine.select(contexts, there)
            if status != "done":
                raise self._failure(status)
            decision = Decision(self._next, arm, layer)
            self._open[decision.id] = (layer, contexts[:, arm].copy())
            self._next += 1
            return decision

    def observe(self, decision: Decision | int, reward: float, sigma: float | None = None) -> None:
        """The reward of a decision, now or later, in any order. `sigma` is its noise level, where the client is told."""
        number = decision.id if isinstance(decision, Decision) else decision
        reward = check_finite("reward", reward)
        sigma = self._usual_sigma() if sigma is None else check_not_negative("sigma", sigma)
        with self._lock:
            if not is_whole_number(number) or number not in self._open:
                raise InvalidInput(
                    f"decision {number!r} is not open: it was observed or dropped before, or is another client's"
                )
            layer, x = self._open[number]
            status, weight = self._engine.learn_from(x, layer, reward, sigma)
            if status != "done":
                raise self._failure(status)
            del self._open[number]
            self._pulls[layer] += 1
            if self._since is not None:
                self._since.append((layer, x, weight, reward))

    def drop(self, decision: Decision | int) -> None:
        """Forget a decision whose reward will never be known."""
        with self._lock:
            number = decision.id if isinstance(decision, Decision) else decision
            if is_whole_number(number):
                self._open.pop(number, None)

    # --- talking ------------------------------------------------------------------------------------------------------------

    @property
    def wants_sync(self) -> bool:
        """Has the trigger fired since the last download? While an upload is under way, no."""
        with self._lock:
            return self._since is None and bool(self._engine.asking)

    def upload(self) -> Upload:
        """What was gathered since the last download. Asked again before `apply`, it has what came in the meantime too: send
        one of them only, or let the server know the second replaces the first."""
        with self._lock:
            found = [
                (layer, self._engine.gathered(layer)) for layer in range(self.algorithm.n_layers)
            ]
            parts = [(layer, *gathered) for layer, gathered in found if gathered is not None]
            self._since, self._sent = [], tuple(layer for layer, _, _ in parts)
            pulls = np.array([self._pulls[layer] for layer in self._sent], np.int64)
            return Upload(
                self.client_id,
                **pack_layers(parts, self.algorithm.dim),
                pulls=pulls,
                asking=tuple(self._engine.asking),
            )

    def apply(self, download: Download | None) -> None:
        """The server's answer to the last upload; None says that there is nothing to do, as a round without a sync has it.
        Without an upload under way it is what somebody starts from who joins late: what was gathered stays on top."""
        with self._lock:
            parts = (
                [] if download is None else self._parts(download)
            )  # refused as a whole, before anything changes
            before = state_of(self._engine)
            try:
                for layer, gram, moment in parts:
                    self._receive(layer, gram, moment, self._since or [])
            except NumericalError:
                restore(self._engine, before)
                raise
            for layer in {layer for layer, _, _ in parts}.intersection(self._sent):
                self._pulls[layer] = sum(of == layer for of, *_ in self._since or [])
            self._since, self._sent = None, ()

    def withdraw(self) -> None:
        """The upload that is under way will never be merged: what was in it is again what was gathered."""
        with self._lock:
            self._since, self._sent = None, ()

    def _parts(self, download: Download) -> list[tuple[int, Floats, Floats]]:
        check_message(download, Download, self.algorithm.dim, self.algorithm.n_layers)
        parts = [
            (int(layer), unpack_upper(gram, self.algorithm.dim), np.array(moment, np.float64))
            for layer, gram, moment in zip(
                download.layers, download.grams, download.moments, strict=True
            )
        ]
        for layer, gram, moment in parts:
            if not self._engine.settles(gram, moment):
                raise NumericalError(
                    f"the download's matrix of layer {layer} is not positive definite"
                )
        return parts

    def _receive(self, layer: int, gram: Floats, moment: Floats, since: list[Observed]) -> None:
        if not self._engine.receive(layer, gram, moment, layer not in self._sent):
            raise self._failure("not positive definite")
        if layer not in self._sent:  # all that was gathered there came later, and is still there
            return
        for of, x, weight, reward in since:
            if (
                of == layer
                and (status := self._engine.learn_again(x, layer, weight, reward)) != "done"
            ):
                raise self._failure(status)

    # --- what it is and was ---------------------------------------------------------------------------------------------------

    @property
    def n_observed(self) -> int:
        return int(self._engine.totals_now["pulls"])

    @property
    def n_open(self) -> int:
        """How many decisions wait for their reward."""
        return len(self._open)

    def layer(self, layer: int) -> dict[str, Any]:
        """A copy of what the client knows of a layer: its last download, and what it has gathered since."""
        with self._lock:
            return self._engine.client_layer(0, layer)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Everything, with the decisions that are open, to one file, in one step."""
        with self._lock:
            return save_live(path, "client", self.algorithm, self._engine, self._rest())

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        with self._lock:
            return encode_archive(
                *collect_live_parts("client", self.algorithm, self._engine, self._rest())
            )

    def _rest(self) -> dict[str, Any]:
        """What the engine does not know."""
        opened = [
            {"id": number, "layer": layer, "x": x} for number, (layer, x) in self._open.items()
        ]
        since = (
            None
            if self._since is None
            else [dict(zip(OBSERVED_FIELDS, each, strict=True)) for each in self._since]
        )
        own = {
            "client_id": self.client_id,
            "seed": self.seed,
            "next": self._next,
            "sent": self._sent,
            "pulls": self._pulls,
        }
        return {**own, "open": opened, "since": since}

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], algorithm: Algorithm, *, kernels: str | None = None
    ) -> Client:
        """A client as it was saved. The algorithm must be the same."""
        return cls._loaded(path, algorithm, kernels)

    @classmethod
    def from_bytes(
        cls, content: bytes, algorithm: Algorithm, *, kernels: str | None = None
    ) -> Client:
        """A client from what `to_bytes` gave."""
        return cls._loaded("what was saved", algorithm, kernels, content)

    @classmethod
    def _loaded(
        cls, path: Any, algorithm: Algorithm, kernels: str | None, content: bytes | None = None
    ) -> Client:
        known = {}

        def begin(rest: dict[str, Any]) -> Live:
            known["client"] = cls(algorithm, rest["client_id"], seed=rest["seed"], kernels=kernels)
            return known["client"]._engine

        rest, client = load_live(path, "client", algorithm, begin, content), known["client"]
        try:
            client._continue(rest)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise InvalidInput(f"{path} does not hold a client: {error!r}") from error
        return client

    def _continue(self, rest: dict[str, Any]) -> None:
        """What was under way, from a file: looked at like anything else that comes from outside."""
        self._next, self._sent = int(rest["next"]), tuple(int(layer) for layer in rest["sent"])
        self._pulls = [rest["pulls"][layer] for layer in range(self.algorithm.n_layers)]
        if not all(is_whole_number(pulls) and pulls >= 0 for pulls in self._pulls):
            raise ValueError(f"pulls of {self._pulls}")
        self._open = {int(each["id"]): self._kept(each) for each in rest["open"]}
        if rest["since"] is not None:
            self._since = [(*self._kept(each), *self._learnt(each)) for each in rest["since"]]

    def _decided(self, number: int) -> tuple[int, Floats, Floats]:
        """What `_decide_again` needs to repeat a decision: its layer, its arm, and what the rules remembered afterwards."""
        states = self._engine._rule_states()
        remembered = (
            np.concatenate([states[axis].ravel() for axis in sorted(states)])
            if states
            else np.empty(0)
        )
        return *self._open[number], remembered

    def _decide_again(self, number: int, layer: int, x: Floats, remembered: Floats) -> None:
        """A decision that was made before, put back without its contexts: choosing changes nothing else."""
        self._open[number] = self._kept({"layer": layer, "x": x})
        self._next = number + 1
        states = self._engine._rule_states()
        at = 0
        for axis in sorted(states):
            states[axis] = remembered[at : at + states[axis].size].reshape(states[axis].shape)
            at += states[axis].size
        if at != len(remembered):
            raise ValueError(f"{len(remembered)} numbers for rules that remember {at}")
        self._engine._put_states_back(states)

    @staticmethod
    def _learnt(each: dict[str, Any]) -> tuple[float, float]:
        return check_not_negative("weight", each["weight"]), check_finite("reward", each["reward"])

    def _kept(self, each: dict[str, Any]) -> tuple[int, Floats]:
        """The layer and the arm of a decision."""
        layer, x = each["layer"], check_array("x", each["x"], (self.algorithm.dim,))
        if (
            not is_whole_number(layer)
            or not 0 <= layer < self.algorithm.n_layers
            or np.linalg.norm(x) > 1 + NORM_TOLERANCE
        ):
            raise ValueError(
                f"layer {layer!r} of {self.algorithm.n_layers}, an arm of length {np.linalg.norm(x):.6g}"
            )
        return layer, x

    def __repr__(self) -> str:
        return f"Client({self.algorithm.name}, client_id={self.client_id}, {self.n_observed} observed, {self.n_open} open)"

    # --- what can go wrong ----------------------------------------------------------------------------------------------------

    def _checked(self, contexts: Any, mask: Any) -> tuple[Floats, Bytes | None]:
        """Contexts and mask in the engine's layout."""
        contexts = as_floats("contexts", contexts)
        shape = (self.algorithm.n_arms, self.algorithm.dim)
        if contexts.shape != shape:
            raise InvalidInput(
                f"contexts must have the shape (arms, dim) = {shape}, not {contexts.shape}"
            )
        there = np.ones(shape[0], bool) if mask is None else as_array("mask", mask)
        if there.shape != shape[:1] or there.dtype != bool or not there.any():
            raise InvalidInput(f"mask must be {shape[0]} booleans, at least one of them True")
        lengths = np.linalg.norm(contexts[there], axis=1)
        if not np.isfinite(lengths).all():
            raise InvalidInput("contexts hold NaN or infinity")
        if lengths.max() > 1 + NORM_TOLERANCE:
            raise InvalidInput(
                f"a context has length {lengths.max():.6g}; the theory needs at most 1: divide all by the longest"
            )
        lanes = norms.pad(shape[0])
        packed = norms.aligned_zeros(1, shape[1], lanes)
        norms.pack(np.ascontiguousarray(contexts)[None], there[None].astype(np.uint8), 1.0, packed)
        return packed[0], None if mask is None else np.pad(there, (0, lanes - shape[0])).astype(
            np.uint8
        )

    def _usual_sigma(self) -> float:
        """The noise level of a client that is told none."""
        noise = self.algorithm.noise
        return float(getattr(noise, "noise_scale", getattr(noise, "R", 1.0)))

    def _failure(self, status: str) -> Exception:
        if status == "not positive definite":
            return NumericalError(
                "a Gram matrix is no longer positive definite, or hardly, in doubles: a larger ridge helps"
            )
        if status == "not finite":
            return NumericalError(
                "estimates are no longer finite: rewards or weights are too large for double precision"
            )
        axis = {"bad weight": "weighting", "bad trigger": "trigger", "bad choice": "policy"}[status]
        rule = self._engine.rules[axis]
        why = (
            f"raised {type(rule.error).__name__}: {rule.error}"
            if rule.error is not None
            else f"gave a {status}"
        )
        return PluginError(f"{rule.name} {why}")
