"""What each kind of plugin has to offer, as typing protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from scipy import LowLevelCallable

    from .setting import Setting
    from .stream import Stream


class Trigger(Protocol):
    """After a pull: does the layer that was played ask for a sync?"""

    def fires(self, gain: float, elapsed: float) -> bool:
        """`gain` is ln det(A+ΔA)/det(A) of that layer; `elapsed` counts pulls (or rounds) since its last sync.

        With state: ``fires(gain, elapsed, state)``. For variants with syncs="push" a trigger also has `push_threshold`: what a
        client must lack, in ln det, before the server sends it. Compiled: ``int (double, double, void *)``, with state
        ``int (double, double, double *, void *)``.
        """


class Weighting(Protocol):
    """How much an observation counts: ΔA += ω x xᵀ, Δb += ω r x."""

    def weight(self, norm: float, sigma: float) -> float:
        """`norm` is ‖x‖ in the A⁻¹ that the decision used, `sigma` the noise level σ_t that the client was told.

        With state: ``weight(norm, sigma, residual, state)``, where the residual r − θ̂ᵀx is there to learn from for later
        pulls: a weight that depends on its own reward biases the estimate. Compiled: ``double (double, double, void *)``,
        with state ``double (double, double, double, double *, void *)``.
        """


class Policy(Protocol):
    """How an arm is picked: `kernel` names a decision that the engine has ("layered", "optimism"), or else there is `choose`."""

    def choose(
        self, estimates: np.ndarray, widths: np.ndarray, targets: np.ndarray, draw: float
    ) -> int:
        """The arm, as its index in `estimates`: layer·K + arm, where layer is the one that is to learn from it.

        `estimates` (r̂) and `widths` (w) are layers × arms, `targets` (w̄) layers; an arm that is not there has the estimate −∞.
        `draw` is a random number in [0, 1), a function of the run's seed and the pull. With state: an argument `state` more.
        Compiled: ``int (double *, double *, double *, int n_layers, int n_arms, double, void *)``, with state a ``double *``
        before the last.
        """


class PhasedPolicy(Protocol):
    """A policy for fixed arms that plans whole phases: its `kernel` is "phased"."""

    kernel: str

    def begin(self, algorithm: Any, problem: Any) -> Phases:
        """The phases of one run; `problem.fixed_arms` is clients × arms × dim."""


class Phases(Protocol):
    """The phases of one run. `plan` says how often each client pulls each arm in this phase, lowest arm first."""

    plan: np.ndarray
    idle: np.ndarray
    """By client, the arm that it plays when its plan is done and the phase is not over."""
    together: bool
    """The phase is over when everybody's plan is done; else each client has phases of its own."""

    def advance(self, clients: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> dict[str, int]:
        """The phase of these clients is over: sets their rows of `plan` and `idle`, from the pulls and the summed rewards of
        each client and arm in it. Returns what it cost: communication, messages_up, messages_down, bytes_up, bytes_down."""


class Compiled(Protocol):
    """What a trigger, a weighting or a policy may add to run at compiled speed."""

    def compiled(self) -> LowLevelCallable | None:
        """The same rule as a scipy.LowLevelCallable, which the engine calls without the GIL in place of the Python form.

        `fedsuplin_ext.rules.low_level` makes it of a numba or ctypes function and parameters, `from_cython` of a Cython one.
        None means that there is none here, for instance because numba is not installed.
        """


class Stateful(Protocol):
    """What a trigger, a weighting or a policy adds to remember something between the pulls of a client."""

    state_size: int
    """How many doubles each client has: zero at the start, this plugin's alone, kept with the run."""


class NoiseModel(Protocol):
    """What an algorithm may assume about the noise (first three), and how a problem draws it (last two)."""

    def n_layers(self, setting: Setting) -> int:
        """S + 1, the number of layers."""

    def radii(self, setting: Setting) -> np.ndarray:
        """α_s of each layer. A model may add ``radius_growth(setting) -> (scale, offset)``: then the radius is
        α_s + scale·√(offset + ln det A/det λI)."""

    def target_widths(self, setting: Setting) -> np.ndarray:
        """w̄_s of each layer."""

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The noise of the next n pulls and the σ_t that their clients are told. Must not depend on how the pulls are split.

        A problem draws from the model as it was made: `bind` is for algorithms.
        """


class Arrival(Protocol):
    """Which client is active at which pull. `in_rounds` is True when every M pulls hold each client once."""

    in_rounds: bool

    def clients(
        self, start: int, stop: int, *, n_clients: int, horizon: int, seed: int
    ) -> np.ndarray:
        """The clients of pulls start..stop-1, as int32; a function of its arguments alone."""


class ProblemProtocol(Protocol):
    """Where contexts, clients and rewards come from. Derive from `fedsuplin.Problem`, which has the rest."""

    dim: int
    n_arms: int
    n_clients: int
    horizon: int | None

    def stream(self, horizon: int, arrival: Any) -> Stream:
        """A fresh stream of pulls, taken in chunks."""
