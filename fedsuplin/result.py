"""RunResult: what happened in one run, with everything needed to know how it came about."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsuplin_ext.loop import BY_PULL as BY_PULL
from fedsuplin_ext.loop import COUNTS as COUNTS
from fedsuplin_ext.loop import SUMS as SUMS

from .arrays import Counts, Floats
from .errors import InvalidInput
from .extras import imported
from .files import whole

if TYPE_CHECKING:
    import pandas

FORMAT = "fedsuplin-result"
FORMAT_VERSION = 1
ZIP = b"PK"  # what an .npz begins with


@dataclass(frozen=True, eq=False)
class RunResult:
    """Cumulative arrays with a value for each recorded pull (`pulls` is their x axis), totals by client and layer, and the
    specification, seed and versions of the run.

    >>> import fedsuplin as fsl
    >>> result = fsl.run("async", fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=2, seed=0), horizon=200, record="all")
    >>> len(result.regret), int(result.layer_pulls.sum()), result.arms.dtype.name
    (200, 200, 'int32')
    """

    pulls: Counts
    regret: Floats
    uniform_regret: Floats
    """What uniform random play loses in expectation on the same rounds."""
    reward: Floats
    communication: Counts
    """The paper's count: 1 for a sync of one client, M for each layer that all clients sync."""
    messages_up: Counts
    messages_down: Counts
    bytes_up: Counts
    """Payload of 8-byte numbers: the packed ΔA and Δb of the layers that have something new."""
    bytes_down: Counts
    client_regret: Floats
    client_pulls: Counts
    layer_pulls: Counts
    arms: NDArray[np.int32] | None = None
    """The arm of every pull, with record="all"; likewise layers and clients."""
    layers: NDArray[np.int32] | None = None
    clients: NDArray[np.int32] | None = None
    policy_state: Floats | None = None
    """At the end, by client, the slots of a plugin that declares state; likewise trigger and weighting."""
    trigger_state: Floats | None = None
    weighting_state: Floats | None = None
    drift: float = 0.0
    """The most by which an inverse kept by rank-one steps differed from a fresh one, relative to its largest entry, at any of the
    factorisations on the way; 0 where none was due. A run in which it exceeds 1e-4 ends with a NumericalError."""
    loop_time: float = 0.0
    """Seconds in the compiled loop; `wall_time` has the drawing of contexts too."""
    wall_time: float = 0.0
    complete: bool = True
    """False when the run was stopped before its end."""
    departures: tuple[str, ...] = ()
    """What takes this run out of the paper's guarantee; empty when it holds."""
    seed: int | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def n_pulls(self) -> int:
        """How many pulls were played."""
        return int(self.client_pulls.sum())

    @property
    def microseconds(self) -> float:
        """µs a pull in the compiled loop."""
        return 1e6 * self.loop_time / max(1, self.n_pulls)

    def __repr__(self) -> str:
        name = self.spec.get("algorithm", {}).get("variant", "?")
        if not len(self.pulls):
            return f"RunResult({name}, nothing played)"
        ended = "" if self.complete else f", stopped early after {self.n_pulls}"
        against = f"regret {self.regret[-1]:.6g} (uniform {self.uniform_regret[-1]:.6g})"
        return (
            f"RunResult({name}, {self.n_pulls} pulls{ended}: {against}, "
            f"communication {self.communication[-1]}, {self.microseconds:.3g} µs a pull)"
        ) + "".join(f"\n  {notice}" for notice in self.spec.get("notices", ()))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from .notebook import result_form

        return result_form(self)

    # --- other forms ----------------------------------------------------------------------------------------------------

    def to_frame(self) -> pandas.DataFrame:
        """A pandas DataFrame, a row a recorded pull; with record="all" also arm, layer and client."""
        pandas = imported("pandas", "frame", "to_frame()")
        columns = {name: getattr(self, name) for name in ("pulls", *SUMS, *COUNTS)}
        if self.arms is not None:
            columns |= {"arm": self.arms, "layer": self.layers, "client": self.clients}
        return pandas.DataFrame(columns)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Regret against uniform play, and communication, as a matplotlib Figure; saved to `path` if given."""
        from .plotting import draw_result

        return draw_result(self, path)

    def rebuild(self) -> tuple[Any, Any]:
        """The algorithm and the problem of this run, made again from the specification."""
        from .algorithm import from_spec
        from .problem import problem_from_spec

        return from_spec(self.spec["algorithm"]), problem_from_spec(self.spec["problem"])

    # --- files: arrays in an npz, the rest as JSON inside it; nothing is pickled ---------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to one .npz file. Written beside it first, so a full disk leaves no half file under this name."""
        path = Path(path)
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), np.ndarray)}
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in arrays}
        rest = {"format": FORMAT, "format_version": FORMAT_VERSION, **rest}
        with whole(path, "wb") as file:
            np.savez_compressed(file, json=np.frombuffer(json.dumps(rest, default=plain).encode(), np.uint8), **arrays)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RunResult:
        """Read what `save` wrote. Never executes anything from the file."""
        content = Path(path).read_bytes()  # all of it: a damaged zip would send a file to places that it does not have
        if not content.startswith(ZIP):  # NumPy would take it for a pickle, and say how to trust it
            raise InvalidInput(f"{path} is not a whole fedsuplin result: it is no .npz file")
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files if name != "json"}
                rest = dict(json.loads(file["json"].tobytes()))
        except Exception as error:  # zip, NumPy and JSON each have their own for bytes that are not theirs
            raise InvalidInput(f"{path} is not a whole fedsuplin result: {error}") from None
        if rest.pop("format", None) != FORMAT:
            raise InvalidInput(f"{path} is not a fedsuplin result")
        version = rest.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise InvalidInput(f"{path} has format version {version}; this fedsuplin reads version {FORMAT_VERSION}")
        try:
            rest["departures"] = tuple(rest["departures"])
            loaded = cls(**arrays, **rest)
            loaded._check_arrays()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidInput(f"{path} is not a whole fedsuplin result: {error}") from None
        return loaded

    def _check_arrays(self) -> None:
        """Of a file: a number for each recorded pull, each client, each layer."""
        for name in ("pulls", *SUMS, *COUNTS, "client_regret", "client_pulls", "layer_pulls"):
            values, length = getattr(self, name), len(self.client_pulls if name.startswith("client") else self.pulls)
            if values.dtype.kind not in "if" or values.ndim != 1 or (name != "layer_pulls" and len(values) != length):
                raise ValueError(f"its {name} is {values.dtype} of shape {values.shape}")
        for name in BY_PULL:
            values = getattr(self, name)
            if values is not None and (values.dtype.kind != "i" or values.shape != (self.n_pulls,)):
                raise ValueError(f"its {name} is {values.dtype} of shape {values.shape}, for {self.n_pulls} pulls")


def plain(value: Any) -> Any:
    """A parameter of somebody's plugin that JSON does not know: a number or a list where it is NumPy's, else how it shows."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else repr(value)
