"""What each kind of plugin has to offer, as typing protocols.

A method, or an attribute without a default, is required. The registry, the conformance tests and
the engine's rules all read their lists from here: `PROTOCOLS` and `PULL_METHODS`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from scipy import LowLevelCallable

    from .setting import Setting
    from .stream import Stream


class Trigger(Protocol):
    """Decides after a pull whether the layer that was played asks for a sync.

    For variants with ``syncs="push"`` a trigger also has ``push_threshold``: the server sends a
    client its sums when the client lacks more than this, in ln det.
    """

    def fires(self, gain: float, elapsed: float) -> bool:
        """Return whether to ask for a sync.

        In C: ``int (double, double, void *)``.

        Parameters
        ----------
        gain : float
            How much the layer has learnt since its last sync: ln det(A+ΔA)/det(A).
        elapsed : float
            Pulls (or rounds, where all clients sync together) since its last sync.

        Returns
        -------
        bool
            Whether this layer asks for a sync.
        """


class Weighting(Protocol):
    """Decides how much an observation counts: ΔA += ω x xᵀ, Δb += ω r x."""

    reads_norm: bool = True
    """False for a weighting that does not use `norm`: the engine then gives NaN for it, and often
    need not compute it."""

    def weight(self, norm: float, sigma: float) -> float:
        """Return the weight ω of an observation.

        In C: ``double (double, double, void *)``.

        Parameters
        ----------
        norm : float
            The norm ‖x‖ in the A⁻¹ that the decision used; NaN if `reads_norm` is False.
        sigma : float
            The noise level σ_t that the client knows for this pull.

        Returns
        -------
        float
            ω, finite and not negative.
        """


class Policy(Protocol):
    """Picks an arm from estimates and widths."""

    def choose(
        self, estimates: np.ndarray, widths: np.ndarray, targets: np.ndarray, draw: float
    ) -> int:
        """Return the arm to play, as its index layer·K + arm in `estimates`.

        The layer in the index is the one that learns from the reward. In C:
        ``int (double *, double *, double *, int n_layers, int n_arms, double, void *)``.

        Parameters
        ----------
        estimates : ndarray of shape (layers, arms)
            The estimated rewards r̂; −∞ for an arm that is not available.
        widths : ndarray of shape (layers, arms)
            The width w of each confidence interval.
        targets : ndarray of shape (layers,)
            The target width w̄ of each layer.
        draw : float
            A random number in [0, 1), a function of the run's seed and the pull.

        Returns
        -------
        int
            layer·K + arm.
        """


class KernelPolicy(Protocol):
    """A policy whose decision is compiled into the engine."""

    kernel: str
    """Which decision: "layered", "optimism" or "phased"."""


class PhasedPolicy(KernelPolicy, Protocol):
    """A policy for fixed arms that plans whole phases; its `kernel` is "phased"."""

    def begin(self, algorithm: Any, problem: Any) -> Phases:
        """Return the phases of one run, as a plugin of this protocol plans them.

        Parameters
        ----------
        algorithm : Algorithm
            The algorithm that this policy is a part of.
        problem : Problem
            The problem to play. Its ``fixed_arms`` has the shape (clients, arms, dim).

        Returns
        -------
        Phases
            The plan of the first phase, which `advance` replaces by those of later ones.
        """


class Phases(Protocol):
    """The phases of one run."""

    plan: np.ndarray
    """How often each client pulls each arm in this phase, lowest arm first."""
    idle: np.ndarray
    """By client, the arm that it plays when its plan is done and the phase is not over."""
    together: bool
    """The phase is over when the plans of all clients are done; else each client has its own."""

    def advance(self, clients: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> dict[str, int]:
        """Plan the next phase of these clients, as the protocol asks: set their `plan` and `idle`.

        Parameters
        ----------
        clients : ndarray of int
            The clients whose phase is over.
        counts : ndarray of shape (clients, arms)
            The pulls of each client and arm in this phase.
        sums : ndarray of shape (clients, arms)
            The summed rewards of each client and arm in this phase.

        Returns
        -------
        dict of str to int
            The cost: communication, messages_up, messages_down, bytes_up and bytes_down.
        """


class Compiled(Protocol):
    """What a trigger, a weighting or a policy may add to run at compiled speed."""

    def compiled(self) -> LowLevelCallable | None:
        """Return the same rule as a scipy.LowLevelCallable.

        The engine calls it without the GIL, in place of the Python form. `low_level` makes one
        from a numba or ctypes function and its parameters, `from_cython` from a Cython function.

        Returns
        -------
        scipy.LowLevelCallable or None
            None where there is no compiled form, for instance because numba is not installed.
        """


class Stateful(Protocol):
    """What a trigger, a weighting or a policy adds to remember something between pulls."""

    state_size: int
    """How many doubles each client has: zero at the start, used by this plugin only, saved with
    the run."""


class StatefulTrigger(Stateful, Protocol):
    """A trigger with memory."""

    def fires(self, gain: float, elapsed: float, state: np.ndarray) -> bool:
        """Return whether to ask for a sync, and update the state in place.

        In C: ``int (double, double, double *, void *)``.

        Parameters
        ----------
        gain : float
            How much the layer has learnt since its last sync: ln det(A+ΔA)/det(A).
        elapsed : float
            Pulls (or rounds, where all clients sync together) since its last sync.
        state : ndarray of shape (state_size,)
            The client's own memory.

        Returns
        -------
        bool
            Whether this layer asks for a sync.
        """


class StatefulWeighting(Stateful, Protocol):
    """A weighting with memory."""

    def weight(self, norm: float, sigma: float, residual: float, state: np.ndarray) -> float:
        """Return the weight ω of an observation, and update the state in place.

        Use the residual for later pulls only: a weight that depends on its own reward biases
        the estimate. In C:
        ``double (double, double, double, double *, void *)``.

        Parameters
        ----------
        norm : float
            The norm ‖x‖ in the A⁻¹ that the decision used; NaN if `reads_norm` is False.
        sigma : float
            The noise level σ_t that the client knows for this pull.
        residual : float
            How far the reward is from the estimate: r − θ̂ᵀx.
        state : ndarray of shape (state_size,)
            The client's own memory.

        Returns
        -------
        float
            ω, finite and not negative.
        """


class StatefulPolicy(Stateful, Protocol):
    """A policy with memory."""

    def choose(
        self,
        estimates: np.ndarray,
        widths: np.ndarray,
        targets: np.ndarray,
        draw: float,
        state: np.ndarray,
    ) -> int:
        """Return the arm to play, as its index layer·K + arm, and update the state in place.

        In C: as for `Policy`, with a ``double *`` before the last argument.

        Parameters
        ----------
        estimates : ndarray of shape (layers, arms)
            The estimated rewards r̂; −∞ for an arm that is not available.
        widths : ndarray of shape (layers, arms)
            The width w of each confidence interval.
        targets : ndarray of shape (layers,)
            The target width w̄ of each layer.
        draw : float
            A random number in [0, 1), a function of the run's seed and the pull.
        state : ndarray of shape (state_size,)
            The client's own memory.

        Returns
        -------
        int
            layer·K + arm.
        """


class NoiseModel(Protocol):
    """What an algorithm may assume about the noise, and how a problem draws it.

    A model may add ``radius_growth(setting) -> (scale, offset)``: then the radius of a layer is
    α_s + scale·√(offset + ln det A/det λI).
    """

    def n_layers(self, setting: Setting) -> int:
        """Return the number of layers, S + 1.

        Parameters
        ----------
        setting : Setting
            The sizes of the problem.

        Returns
        -------
        int
            At least 1.
        """

    def radii(self, setting: Setting) -> np.ndarray:
        """Return the confidence radius α_s of each layer.

        Parameters
        ----------
        setting : Setting
            The sizes of the problem.

        Returns
        -------
        ndarray of shape (layers,)
            Finite and not negative.
        """

    def target_widths(self, setting: Setting) -> np.ndarray:
        """Return the target width w̄_s of each layer.

        Parameters
        ----------
        setting : Setting
            The sizes of the problem.

        Returns
        -------
        ndarray of shape (layers,)
            Finite and not negative.
        """

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw the noise of the next n pulls, and the σ_t that their clients know.

        The draws must not depend on how the pulls are split into calls. A problem draws from the
        model as it was made; `bind` is for algorithms.

        Parameters
        ----------
        rng : numpy.random.Generator
            The only source of randomness.
        n : int
            The number of pulls.

        Returns
        -------
        noise : ndarray of shape (n,)
            What is added to the rewards.
        sigma : ndarray of shape (n,)
            The noise level of each pull.
        """


class Arrival(Protocol):
    """Decides which client is active at which pull."""

    in_rounds: bool = False
    """True when every M pulls hold each client once."""

    def clients(
        self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int
    ) -> np.ndarray:
        """Return the clients of the pulls start, …, stop − 1; a function of its arguments alone.

        Parameters
        ----------
        start, stop : int
            The first pull, and the one after the last.
        n_clients : int
            The number of clients.
        horizon : int
            The pulls of the whole run.
        seed : int
            The seed of the problem.

        Returns
        -------
        ndarray of int32
            One client per pull.
        """


class VariantProtocol(Protocol):
    """A composition of parts. `Variant` is the class for it."""

    trigger: Any
    noise: Any
    weighting: Any
    policy: Any


class ProblemProtocol(Protocol):
    """Where contexts, clients and rewards come from. Derive from `Problem`, which has the rest."""

    dim: int
    n_arms: int
    n_clients: int
    horizon: int | None

    def stream(self, horizon: int, arrival: Any) -> Stream:
        """Return a new stream of pulls, from the beginning."""


PROTOCOLS: dict[str, tuple[type, ...]] = {
    "triggers": (Trigger,),
    "weightings": (Weighting,),
    "noise_models": (NoiseModel,),
    "policies": (KernelPolicy, Policy),
    "variants": (VariantProtocol,),
    "arrivals": (Arrival,),
    "problems": (ProblemProtocol,),
}
"""By kind of plugin, the protocols of which a plugin must fulfil one."""


def list_required_names(protocol: type) -> list[str]:
    """Return the attributes and methods that a protocol requires.

    >>> list_required_names(Arrival)
    ['clients']
    """
    own = vars(protocol)
    attributes = [name for name in inspect.get_annotations(protocol) if name not in own]
    return attributes + _list_methods(protocol)


def _list_methods(protocol: type) -> list[str]:
    """Return the public methods that a protocol itself defines."""
    members = vars(protocol).items()
    return [name for name, each in members if inspect.isfunction(each) and name[0] != "_"]


def find_missing(kind: str, plugin: Any) -> str:
    """Return in words what a plugin lacks of the protocols of its kind; "" if nothing.

    >>> find_missing("policies", object())
    'kernel or choose'
    """
    missing = [
        [name for name in list_required_names(protocol) if not hasattr(plugin, name)]
        for protocol in PROTOCOLS[kind]
    ]
    return "" if [] in missing else " or ".join(", ".join(names) for names in missing)


class PullMethod(NamedTuple):
    """The method with which a part decides at each pull, in the Python form."""

    name: str
    arguments: tuple[str, ...]
    state_arguments: tuple[str, ...]
    """Those that a plugin with state gets as well, after the others."""


def _read_pull_method(plain: type, stateful: type) -> PullMethod:
    """Return the pull method of two protocols, of which the second has state."""
    (name,) = _list_methods(plain)
    arguments, with_state = (
        tuple(inspect.signature(getattr(protocol, name)).parameters)[1:]
        for protocol in (plain, stateful)
    )
    return PullMethod(name, arguments, with_state[len(arguments) :])


PULL_METHODS = {
    "trigger": _read_pull_method(Trigger, StatefulTrigger),
    "weighting": _read_pull_method(Weighting, StatefulWeighting),
    "policy": _read_pull_method(Policy, StatefulPolicy),
}
"""By axis, what a part is asked at each pull."""
