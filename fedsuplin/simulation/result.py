"""RunResult: what happened in one run, and how to save and load it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsuplin_ext.loop import BY_PULL, COUNTS, SUMS

from .._shared.archives import decode_npz, write_npz
from .._shared.array_types import Counts, Floats
from .._shared.extras import import_extra
from .._shared.files import open_atomically
from ..errors import InvalidInput

if TYPE_CHECKING:
    import pandas

    from ..algorithm.algorithm import Algorithm
    from ..algorithm.doubling import Doubling
    from ..contracts.problem import Problem


FORMAT = "fedsuplin-result"
FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class RunResult:
    """What happened in one run: curves, totals, and what is needed to rebuild it.

    Curves are cumulative and have one value per recorded pull.

    Parameters
    ----------
    pulls : array of int
        The recorded pulls: the x axis of the curves.
    regret : array of float
        Expected reward of the best arms minus that of the arms played.
    uniform_regret : array of float
        What uniform random play loses in expectation on the same rounds.
    reward : array of float
        Rewards received.
    communication : array of int
        The paper's count: 1 for a sync of one client, M for each layer that all clients sync.
    messages_up : array of int
        Messages from clients to the server.
    messages_down : array of int
        Messages from the server to clients.
    bytes_up : array of int
        Payload of the uploads in bytes: packed ΔA and Δb of the layers with something new.
    bytes_down : array of int
        Payload of the downloads in bytes.
    client_regret : array of float
        Total regret per client.
    client_pulls : array of int
        Number of pulls per client.
    layer_pulls : array of int
        Number of pulls per layer.
    arms : array of int, optional
        The arm of every pull, with ``record="all"``.
    layers : array of int, optional
        The layer that chose it, with ``record="all"``.
    clients : array of int, optional
        The client that played, with ``record="all"``.
    policy_state : array of float, optional
        The final state of a policy that declares some, one row per client.
    trigger_state : array of float, optional
        The same for a trigger.
    weighting_state : array of float, optional
        The same for a weighting.
    drift : float
        The largest difference between an inverse kept by rank-one updates and a fresh one, relative
        to its largest entry; 0 where none was computed. Above 1e-4 a run ends with NumericalError.
    loop_time : float
        Seconds in the compiled loop.
    wall_time : float
        Seconds in all, with those in which contexts were drawn.
    cpu_time : float
        CPU seconds of the thread that ran it, and of the one that drew ahead. Unlike
        ``wall_time`` it does not count the time in which other processes had the core; 0 in files
        that were saved before it was recorded.
    complete : bool
        False if the run was stopped before its end.
    departures : tuple of str
        Why the paper's guarantee does not cover this run; empty if it does.
    seed : int, optional
        The problem's seed.
    spec : dict
        Algorithm, problem and horizon as plain data, for :meth:`rebuild`.
    versions : dict of str
        The versions of fedsuplin, Python, NumPy and SciPy, and the kernels that were used.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0)
    >>> result = fsl.run("async", problem, horizon=200, record="all")
    >>> len(result.regret), int(result.layer_pulls.sum()), result.arms.dtype.name
    (200, 200, 'int32')
    """

    pulls: Counts
    regret: Floats
    uniform_regret: Floats
    reward: Floats
    communication: Counts
    messages_up: Counts
    messages_down: Counts
    bytes_up: Counts
    bytes_down: Counts
    client_regret: Floats
    client_pulls: Counts
    layer_pulls: Counts
    arms: NDArray[np.int32] | None = None
    layers: NDArray[np.int32] | None = None
    clients: NDArray[np.int32] | None = None
    policy_state: Floats | None = None
    trigger_state: Floats | None = None
    weighting_state: Floats | None = None
    drift: float = 0.0
    loop_time: float = 0.0
    wall_time: float = 0.0
    cpu_time: float = 0.0
    complete: bool = True
    departures: tuple[str, ...] = ()
    seed: int | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def n_pulls(self) -> int:
        """The number of pulls that were played."""
        return int(self.client_pulls.sum())

    @property
    def microseconds(self) -> float:
        """Microseconds per pull in the compiled loop."""
        return 1e6 * self.loop_time / max(1, self.n_pulls)

    def __repr__(self) -> str:
        name = self.spec.get("algorithm", {}).get("variant", "?")
        if not len(self.pulls):
            return f"RunResult({name}, nothing played)"
        ended = "" if self.complete else f", stopped early after {self.n_pulls}"
        against = f"regret {self.regret[-1]:.6g} (uniform {self.uniform_regret[-1]:.6g})"
        return (
            f"RunResult({name}, {self.n_pulls} pulls{ended}: {against}, "
            f"communication {self.communication[-1]}, {self.microseconds:.3g} µs per pull)"
        ) + "".join(f"\n  {notice}" for notice in self.spec.get("notices", ()))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from ..view.notebook import render_result

        return render_result(self)

    def to_frame(self) -> pandas.DataFrame:
        """Return the curves as a table.

        Returns
        -------
        pandas.DataFrame
            One row per recorded pull; with ``record="all"`` also its arm, layer and client.
        """
        pandas = import_extra("pandas", "frame", "to_frame()")
        columns = {name: getattr(self, name) for name in ("pulls", *SUMS, *COUNTS)}
        if self.arms is not None:
            columns |= {"arm": self.arms, "layer": self.layers, "client": self.clients}
        return pandas.DataFrame(columns)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Plot regret, that of uniform play, and communication.

        Parameters
        ----------
        path : str or os.PathLike, optional
            The file to save the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from ..view.run_figure import draw_result

        return draw_result(self, path)

    def rebuild(self) -> tuple[Algorithm | Doubling, Problem]:
        """Make the algorithm and the problem of this run again, from the specification.

        Returns
        -------
        algorithm : Algorithm or Doubling
            The algorithm.
        problem : Problem
            The problem.
        """
        from ..algorithm.making import make_algorithm_from_spec
        from ..problems.specs import make_problem_from_spec

        algorithm = make_algorithm_from_spec(self.spec["algorithm"])
        return algorithm, make_problem_from_spec(self.spec["problem"])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to one .npz file, completely or not at all.

        Arrays are stored as such, the rest as JSON beside them; nothing is pickled.

        Parameters
        ----------
        path : str or os.PathLike
            The file to write.

        Returns
        -------
        pathlib.Path
            The path.
        """
        path = Path(path)
        arrays = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if isinstance(getattr(self, f.name), np.ndarray)
        }
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in arrays}
        rest = {"format": FORMAT, "format_version": FORMAT_VERSION, **rest}
        with open_atomically(path, "wb") as file:
            write_npz(file, arrays, rest, compress=True)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RunResult:
        """Read a result that :meth:`save` wrote. Nothing from the file is executed.

        Parameters
        ----------
        path : str or os.PathLike
            The file to read.

        Returns
        -------
        RunResult
            The result.
        """
        content = Path(path).read_bytes()
        try:
            arrays, rest = decode_npz(content)
        except Exception as error:  # zip, NumPy and JSON raise different ones for damaged bytes
            raise InvalidInput(f"{path} is not a complete fedsuplin result: {error}") from None
        if rest.pop("format", None) != FORMAT:
            raise InvalidInput(f"{path} is not a fedsuplin result")
        version = rest.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise InvalidInput(
                f"{path} has format version {version}; "
                f"this fedsuplin reads version {FORMAT_VERSION}"
            )
        try:
            rest["departures"] = tuple(rest["departures"])
            columns: dict[str, Any] = {**arrays}
            loaded = cls(**columns, **rest)
            loaded._check_arrays()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidInput(f"{path} is not a complete fedsuplin result: {error}") from None
        return loaded

    def _check_arrays(self) -> None:
        """Check that arrays from a file have a value per recorded pull, client, layer or pull."""
        for name in ("pulls", *SUMS, *COUNTS, "client_regret", "client_pulls", "layer_pulls"):
            values = getattr(self, name)
            length = len(self.client_pulls if name.startswith("client") else self.pulls)
            fits = values.ndim == 1 and (name == "layer_pulls" or len(values) == length)
            if values.dtype.kind not in "if" or not fits:
                raise ValueError(f"its {name} is {values.dtype} of shape {values.shape}")
        for name in BY_PULL:
            values = getattr(self, name)
            if values is not None and (values.dtype.kind != "i" or values.shape != (self.n_pulls,)):
                raise ValueError(
                    f"its {name} is {values.dtype} of shape {values.shape}, "
                    f"for {self.n_pulls} pulls"
                )
