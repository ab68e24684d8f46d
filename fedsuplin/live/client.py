"""A client that chooses arms, learns from rewards, and exchanges sums with a server."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsuplin_ext.live import Live

from .._shared.archives import encode_archive
from .._shared.array_types import Floats
from .._shared.checks import check_finite, check_not_negative, check_seed, is_whole_number
from ..algorithm.algorithm import Algorithm
from ..algorithm.failures import build_failure
from ..errors import InvalidInput, NumericalError
from .algorithm_checks import check_client_id, check_live_algorithm
from .contexts import check_contexts
from .messages import Download, Upload
from .saving import (
    check_saved_decision,
    check_saved_observation,
    collect_live_parts,
    load_live,
    save_live,
)
from .uploads import check_message, pack_layers

Observed = tuple[int, Floats, float, float]  # the layer, the arm, its weight and the reward
OBSERVED_FIELDS = ("layer", "x", "weight", "reward")


@dataclass(frozen=True)
class Decision:
    """An arm that a client chose.

    Parameters
    ----------
    id : int
        The number by which :meth:`Client.observe` and :meth:`Client.drop` refer to it.
    arm : int
        The row of the contexts that was chosen.
    layer : int
        The layer that chose it, from 0.

    Examples
    --------
    >>> Decision(id=0, arm=2, layer=1).arm
    2
    """

    id: int
    arm: int
    layer: int


class Client:
    """One client of a federation, without a network.

    Every method may be called from any thread. A method that raises an error changes nothing.

    Parameters
    ----------
    algorithm : Algorithm
        What to play, as :func:`fedsuplin.make` returns it.
    client_id : int, default 0
        Which client this is, from 0 to ``algorithm.n_clients - 1``.
    seed : int, default 0
        The seed of random policies.
    first_id : int, default 0
        The id of the first decision.
    kernels : str, optional
        The instruction set of the compiled core. By default the best that the machine has.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> algorithm = fsl.make("async", dim=2, n_arms=3, n_clients=2, horizon=1000)
    >>> client, server = fsl.Client(algorithm, client_id=0), fsl.Server(algorithm)
    >>> decision = client.select([[1, 0], [0, 1], [0.6, 0.8]])
    >>> client.observe(decision, reward=0.5)
    >>> client.apply(server.merge(client.upload()))
    >>> client.n_observed, client.n_open
    (1, 0)
    """

    def __init__(
        self,
        algorithm: Algorithm,
        client_id: int = 0,
        *,
        seed: int = 0,
        first_id: int = 0,
        kernels: str | None = None,
    ) -> None:
        check_live_algorithm(algorithm)
        self.algorithm, self.client_id = algorithm, check_client_id(client_id, algorithm)
        self.seed = check_seed(seed)
        seeds = np.random.SeedSequence(self.seed, spawn_key=(self.client_id,))
        key = int(seeds.generate_state(1, np.uint64)[0])
        self._engine = Live(algorithm, kernels=kernels, key=key)
        self._lock = threading.RLock()
        self._next = first_id
        self._open: dict[int, tuple[int, Floats]] = {}  # the layer and the chosen arm, by id
        self._since: list[Observed] | None = None  # observed since the upload that is under way
        self._sent: tuple[int, ...] = ()  # the layers in that upload
        self._pulls = [0] * algorithm.n_layers  # observed per layer, and not yet in a download

    # --- choosing and learning --------------------------------------------------------------------

    def select(self, contexts: Any, mask: Any = None) -> Decision:
        """Choose one of the arms.

        Parameters
        ----------
        contexts : array_like of float, shape (n_arms, dim)
            One row per arm, none longer than 1.
        mask : array_like of bool, shape (n_arms,), optional
            Which arms are available. By default all are.

        Returns
        -------
        Decision
            The chosen arm, and the id under which its reward is observed.

        Raises
        ------
        InvalidInput
            If the contexts or the mask have the wrong shape, or a context is too long.
        """
        with self._lock:
            chosen = self._engine.select_plain(contexts, mask)
            if chosen is None:
                algorithm = self.algorithm
                contexts, mask = check_contexts(contexts, mask, algorithm.n_arms, algorithm.dim)
                chosen = self._engine.select(contexts, mask)
            status, arm, layer = chosen
            if status != "done":
                raise build_failure(self._engine, status)
            decision = Decision(self._next, arm, layer)
            self._open[decision.id] = (layer, self._engine.context(arm))
            self._next += 1
            return decision

    def observe(self, decision: Decision | int, reward: float, sigma: float | None = None) -> None:
        """Learn from the reward of a decision.

        Rewards may arrive late and in any order.

        Parameters
        ----------
        decision : Decision or int
            The decision, or its id.
        reward : float
            Its reward.
        sigma : float, optional
            The noise level of this reward, if it is known. By default that of the algorithm's
            noise model.

        Raises
        ------
        InvalidInput
            If the decision is not open: it was observed or dropped before, or is another client's.
        """
        number = decision.id if isinstance(decision, Decision) else decision
        reward = check_finite("reward", reward)
        sigma = self._default_sigma() if sigma is None else check_not_negative("sigma", sigma)
        with self._lock:
            if not is_whole_number(number) or number not in self._open:
                raise InvalidInput(
                    f"decision {number!r} is not open: it was observed or dropped before, "
                    "or belongs to another client"
                )
            layer, x = self._open[number]
            status, weight = self._engine.learn_from(x, layer, reward, sigma)
            if status != "done":
                raise build_failure(self._engine, status)
            del self._open[number]
            self._pulls[layer] += 1
            if self._since is not None:
                self._since.append((layer, x, weight, reward))

    def drop(self, decision: Decision | int) -> None:
        """Forget a decision whose reward will never be known.

        Parameters
        ----------
        decision : Decision or int
            The decision, or its id. One that is not open is ignored.
        """
        with self._lock:
            number = decision.id if isinstance(decision, Decision) else decision
            if is_whole_number(number):
                self._open.pop(number, None)

    def _default_sigma(self) -> float:
        """Return the noise level of a reward that comes without one."""
        noise = self.algorithm.noise
        return float(getattr(noise, "noise_scale", getattr(noise, "R", 1.0)))

    # --- exchanging sums with the server ----------------------------------------------------------

    @property
    def wants_sync(self) -> bool:
        """Whether the trigger has fired since the last download and no upload is under way."""
        with self._lock:
            return self._since is None and bool(self._engine.asking)

    @property
    def asking(self) -> tuple[int, ...]:
        """The layers whose trigger has fired since the last download."""
        with self._lock:
            return tuple(self._engine.asking)

    @property
    def n_gathered(self) -> int:
        """How many observations are not in a download yet."""
        with self._lock:
            return int(sum(self._pulls))

    def upload(self) -> Upload:
        """Return everything that was gathered since the last download.

        A second call before :meth:`apply` returns the same plus what was observed in between.
        Merge only one of the two.

        Returns
        -------
        Upload
            The message for :meth:`Server.merge` or :meth:`Server.barrier`.
        """
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

    def apply(self, download: Download | None, *, merged: bool = True) -> None:
        """Take the server's answer to the last upload.

        Without an upload under way, the download becomes the base of everything that was gathered.
        This is how a client that joins late begins.

        Parameters
        ----------
        download : Download or None
            The server's sums. None, the answer to a round without a sync, changes no sums.
        merged : bool, default True
            Whether the download contains the upload. If not, the client keeps what it uploaded.

        Raises
        ------
        InvalidInput
            If the download does not fit the algorithm.
        NumericalError
            If one of its matrices is not positive definite. The upload is then still under way.
        """
        with self._lock:
            sent, since = (self._sent, self._since or []) if merged else ((), [])
            received = set() if download is None else self._receive(download, sent, since)
            for layer in received.intersection(sent):
                self._pulls[layer] = sum(of == layer for of, *_ in since)
            self._since, self._sent = None, ()

    def withdraw(self) -> None:
        """Give up the upload that is under way: its contents belong to the next one."""
        with self._lock:
            self._since, self._sent = None, ()

    def _receive(
        self, download: Download, sent: tuple[int, ...], since: list[Observed]
    ) -> set[int]:
        """Replace the base of the layers in a download and return them; all of them, or none.

        What was sent is in the new base, so only the observations since then are learnt again. What
        was not sent stays on top of it.
        """
        check_message(download, Download, self.algorithm.dim, self.algorithm.n_layers)
        layers = np.require(download.layers, np.int64, ["C", "A"])
        grams, moments = (
            np.require(values, np.float64, ["C", "A"])
            for values in (download.grams, download.moments)
        )
        status, refused = self._engine.receive(layers, grams, moments, sent, since)
        if refused >= 0:
            raise NumericalError(
                f"the download's matrix of layer {refused} is not positive definite"
            )
        if status != "done":
            raise build_failure(self._engine, status)
        return set(layers.tolist())

    # --- what a client is and has done ------------------------------------------------------------

    @property
    def n_observed(self) -> int:
        """How many rewards were observed."""
        return int(self._engine.totals_now["pulls"])

    @property
    def n_open(self) -> int:
        """How many decisions wait for their reward."""
        return len(self._open)

    @property
    def open_ids(self) -> tuple[int, ...]:
        """The ids of the decisions that wait for their reward."""
        with self._lock:
            return tuple(self._open)

    @property
    def next_id(self) -> int:
        """The id of the next decision."""
        with self._lock:
            return self._next

    def layer(self, layer: int) -> dict[str, Any]:
        """Return a copy of what the client knows about a layer.

        Parameters
        ----------
        layer : int
            Which layer, from 0.

        Returns
        -------
        dict of str to array
            The sums of the last download, and what was gathered since.
        """
        with self._lock:
            return self._engine.client_layer(0, layer)

    def __repr__(self) -> str:
        return (
            f"Client({self.algorithm.name}, client_id={self.client_id}, "
            f"{self.n_observed} observed, {self.n_open} open)"
        )

    # --- repeating a decision ---------------------------------------------------------------------

    def export_decision(self, decision_id: int) -> tuple[int, Floats, Floats]:
        """Return what :meth:`restore_decision` needs to repeat an open decision.

        Parameters
        ----------
        decision_id : int
            The id of an open decision, the last one made.

        Returns
        -------
        tuple of (int, array, array)
            Its layer, its arm, and the state of all rules after it.
        """
        with self._lock:
            states = self._rule_states()
            numbers = [states[axis].ravel() for axis in sorted(states)]
            remembered = np.concatenate(numbers) if numbers else np.empty(0)
            return *self._open[decision_id], remembered

    def restore_decision(self, decision_id: int, layer: int, x: Floats, remembered: Floats) -> None:
        """Open a decision again without its contexts.

        Parameters
        ----------
        decision_id : int
            Its id. The next decision gets the one after it.
        layer : int
            The layer that chose it.
        x : array of float, shape (dim,)
            The context of the chosen arm.
        remembered : array of float
            The state of all rules after it, as :meth:`export_decision` returned it.
        """
        with self._lock:
            states = self._rule_states()
            size = sum(state.size for state in states.values())
            if size != len(remembered):
                raise ValueError(f"{len(remembered)} numbers for rules that remember {size}")
            self._open[decision_id] = check_saved_decision({"layer": layer, "x": x}, self.algorithm)
            self._next = decision_id + 1
            at = 0
            for axis in sorted(states):
                state = states[axis]
                state[:] = remembered[at : at + state.size].reshape(state.shape)
                at += state.size

    def _rule_states(self) -> dict[str, Floats]:
        """Return the arrays, not copies, in which the rules of each axis keep their state."""
        return {
            axis: rule.state for axis, rule in self._engine.rules.items() if rule.state is not None
        }

    # --- saving and loading -----------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Save the client with its open decisions to a file.

        Parameters
        ----------
        path : str or path
            The file. It is replaced in one step.

        Returns
        -------
        Path
            The same path.
        """
        with self._lock:
            return save_live(path, "client", self.algorithm, self._engine, self._collect_rest())

    def to_bytes(self) -> bytes:
        """Return what :meth:`save` writes.

        Returns
        -------
        bytes
            The content of such a file, which :meth:`from_bytes` reads.
        """
        with self._lock:
            return encode_archive(
                *collect_live_parts("client", self.algorithm, self._engine, self._collect_rest())
            )

    def _collect_rest(self) -> dict[str, Any]:
        """Return everything that is saved besides the engine's arrays."""
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
        """Load a client that was saved.

        Parameters
        ----------
        path : str or path
            The file that :meth:`save` wrote.
        algorithm : Algorithm
            The algorithm that the client played.
        kernels : str, optional
            The instruction set of the compiled core. By default the best that the machine has.

        Returns
        -------
        Client
            A client in the same state.

        Raises
        ------
        InvalidInput
            If the file is damaged, or for another algorithm or version.
        """
        return cls._load(path, algorithm, kernels)

    @classmethod
    def from_bytes(
        cls, content: bytes, algorithm: Algorithm, *, kernels: str | None = None
    ) -> Client:
        """Load a client from bytes.

        Parameters
        ----------
        content : bytes
            What :meth:`to_bytes` returned.
        algorithm : Algorithm
            The algorithm that the client played.
        kernels : str, optional
            The instruction set of the compiled core. By default the best that the machine has.

        Returns
        -------
        Client
            A client in the same state.
        """
        return cls._load("what was saved", algorithm, kernels, content)

    @classmethod
    def _load(
        cls, path: Any, algorithm: Algorithm, kernels: str | None, content: bytes | None = None
    ) -> Client:
        """Load a client from a file, or from its content if that is given."""
        made = {}

        def begin(rest: dict[str, Any]) -> Live:
            made["client"] = cls(algorithm, rest["client_id"], seed=rest["seed"], kernels=kernels)
            return made["client"]._engine

        rest, client = load_live(path, "client", algorithm, begin, content), made["client"]
        try:
            client._restore_rest(rest)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise InvalidInput(f"{path} does not hold a client: {error!r}") from error
        return client

    def _restore_rest(self, rest: dict[str, Any]) -> None:
        """Take what `_collect_rest` returned, checked like any input."""
        self._next, self._sent = int(rest["next"]), tuple(int(layer) for layer in rest["sent"])
        self._pulls = [rest["pulls"][layer] for layer in range(self.algorithm.n_layers)]
        if not all(is_whole_number(pulls) and pulls >= 0 for pulls in self._pulls):
            raise ValueError(f"pulls of {self._pulls}")
        self._open = {
            int(each["id"]): check_saved_decision(each, self.algorithm) for each in rest["open"]
        }
        if rest["since"] is not None:
            self._since = [
                (*check_saved_decision(each, self.algorithm), *check_saved_observation(each))
                for each in rest["since"]
            ]
