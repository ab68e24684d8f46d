"""Problems from tables with one row per arm of a round."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._shared.array_types import Counts, Flags, Floats, Number
from .._shared.checks import check_positive
from .._shared.extras import import_extra
from ..errors import InvalidInput, MissingExtra, unknown
from .arrays import ArrayProblem
from .data import count_earlier

if TYPE_CHECKING:
    import pandas


MISSING = ("error", "model")  # what may be done about missing rewards
TABLE_SUFFIXES = (".parquet", ".pq", ".csv", ".csv.gz")


class TableProblem(ArrayProblem):
    """An ArrayProblem with the labels of the table that :func:`problem_from_table` read.

    Parameters
    ----------
    *arrays : array
        Contexts and clients, as in an ArrayProblem.
    clients : list
        The label of each client in the table.
    rounds : list
        The label of each round, in the order in which they are played.
    features : list of str
        The names of the features.
    **given : object
        Further keywords of an ArrayProblem.

    Examples
    --------
    >>> from fedsuplin import problem_from_table
    >>> table = {"round": [1, 1, 2, 2], "client": ["b", "b", "a", "a"]}
    >>> table |= {"reward": [0, 1, 1, 0], "x": [0.1, 0.9, 0.8, 0.2]}
    >>> problem = problem_from_table(table)
    >>> problem.client_labels, problem.round_labels, problem.feature_names
    (['a', 'b'], [1, 2], ['x'])
    """

    client_labels: list[Any]
    round_labels: list[Any]
    feature_names: list[str]

    def __init__(
        self, *arrays: Any, clients: list[Any], rounds: list[Any], features: list[str], **given: Any
    ) -> None:
        super().__init__(*arrays, **given)
        self.client_labels, self.round_labels, self.feature_names = clients, rounds, features

    def __repr__(self) -> str:
        return super().__repr__().replace("ArrayProblem", "TableProblem", 1)


def problem_from_table(
    table: Any,
    *,
    round: str = "round",
    client: str = "client",
    reward: str = "reward",
    features: Sequence[str] | None = None,
    missing: str = "error",
    ridge: float = 1.0,
    seed: int = 0,
    noise_scale: float | None = None,
    scale_contexts: bool = False,
) -> TableProblem:
    """Make a problem from a long table, with one row per arm of a round.

    Rounds are played in the order of their values, and clients are numbered in the order of
    theirs. The arms of a round keep the order of its rows. Rounds may differ in their number of
    arms.

    In logged feedback only the reward of the arm that was played is known; the others are missing
    (NaN). With ``missing="model"`` a ridge regression on the known rewards gives θ̂, and all
    rewards, the known ones too, become θ̂ᵀx plus noise drawn from the centred residuals. This is
    the direct method: it shows how policies would do if θ̂ were the truth, and is as wrong as the
    model is.

    Parameters
    ----------
    table : pandas.DataFrame, dict of columns, str or os.PathLike
        The table, an object with ``to_pandas``, or the path of a Parquet or CSV file.
    round : str, default "round"
        The column with the round.
    client : str, default "client"
        The column with the client.
    reward : str, default "reward"
        The column with the reward.
    features : list of str, optional
        The columns with the features of an arm. Defaults to all other columns.
    missing : {"error", "model"}, default "error"
        What to do if rewards are missing.
    ridge : float, default 1.0
        The λ of the ridge regression.
    seed : int, default 0
        The seed of the noise that is drawn from the residuals.
    noise_scale : float, optional
        The noise level that algorithms are made for. Defaults to the standard deviation of the
        residuals with ``missing="model"``.
    scale_contexts : bool, default False
        Divide all contexts by the longest, instead of refusing those longer than 1.

    Returns
    -------
    TableProblem
        An ArrayProblem with ``client_labels``, ``round_labels`` and ``feature_names``.

    Raises
    ------
    InvalidInput
        If the table can't be read, a column is missing, or rewards are missing.

    Examples
    --------
    >>> from fedsuplin import problem_from_table
    >>> table = {"round": [1, 1, 2, 2, 2], "client": list("aabbb")}
    >>> table |= {"reward": [0, 1, 1, 0, 0], "x": [0.1, 0.9, 0.8, 0.2, 0.4]}
    >>> problem = problem_from_table(table)
    >>> problem.horizon, problem.n_arms, problem.n_clients, problem.dim
    (2, 3, 2, 1)
    """
    if missing not in MISSING:
        raise unknown("way with missing rewards", missing, MISSING)
    frame = load_frame(table)
    names = select_features(frame, (round, client, reward), features)
    rounds, which = rank_values(frame, round)
    clients, who = rank_values(frame, client)
    at = (which, count_earlier(which))  # round and arm of each row
    contexts = fill_rounds(at, read_numbers(frame, names))
    mask = fill_rounds(at, np.ones(len(frame), bool))
    rewards = fill_rounds(at, read_numbers(frame, [reward], may_miss=True)[:, 0])
    if scale_contexts:
        contexts /= max(np.linalg.norm(contexts, axis=2).max(), np.finfo(float).tiny)
    given = (
        model_missing_rewards(contexts, rewards, mask, ridge, seed)
        if missing == "model"
        else {"rewards": rewards}
    )
    if missing == "error":
        refuse_missing_rewards(rewards, mask, rounds)
    given |= {} if noise_scale is None else {"noise_scale": noise_scale}
    playing = find_clients_of_rounds(which, who, rounds, client)
    sizes: dict[str, Any] = {"mask": None if mask.all() else mask, "n_clients": len(clients)}
    return TableProblem(
        contexts, playing, **given, **sizes, clients=clients, rounds=rounds, features=names
    )


def load_frame(table: Any) -> pandas.DataFrame:
    """Return the table as a DataFrame with rows and unique column names."""
    pandas = import_extra("pandas", "datasets", "problem_from_table")
    if isinstance(table, (str, os.PathLike)):
        table = read_table_file(Path(table), pandas)
    elif hasattr(table, "to_pandas"):
        table = table.to_pandas()
    elif isinstance(table, Mapping):
        try:
            table = pandas.DataFrame(dict(table))
        except ValueError as error:
            raise InvalidInput(f"the columns of the table do not fit together: {error}") from None
    if not isinstance(table, pandas.DataFrame):
        raise InvalidInput(
            "a table is a DataFrame, a dict of columns, or the path of a Parquet or CSV file, "
            f"not {type(table).__name__}"
        )
    if not table.columns.is_unique:
        raise InvalidInput(
            f"the table has two columns called {table.columns[table.columns.duplicated()][0]!r}"
        )
    if not len(table):
        raise InvalidInput("the table has no row: it needs one for each arm of a round")
    return table


def read_table_file(path: Path, pandas: Any) -> pandas.DataFrame:
    """Read a table from a Parquet or CSV file."""
    if not path.name.endswith(TABLE_SUFFIXES):
        raise InvalidInput(
            f"{path}: the name of a table's file must end in {', '.join(TABLE_SUFFIXES)}"
        )
    if not path.exists():
        raise InvalidInput(f"{path} does not exist")
    try:
        return pandas.read_csv(path) if ".csv" in path.suffixes else pandas.read_parquet(path)
    except ImportError:
        raise MissingExtra(
            "a Parquet file needs pyarrow: pip install 'fedsuplin[datasets]'"
        ) from None
    except (ValueError, OSError) as error:  # pyarrow's and pandas' own errors are among them
        raise InvalidInput(f"{path} can't be read as a table: {error}") from None


def select_features(
    frame: pandas.DataFrame, special: tuple[str, str, str], features: Sequence[str] | None
) -> list[str]:
    """Return the names of a table's feature columns, after checking that all columns exist."""
    others = [name for name in frame.columns if name not in special]
    names = others if features is None else list(features)
    for name in (*special, *names):
        if name not in frame.columns:
            raise InvalidInput(
                f"the table has no column {name!r}; it has {', '.join(map(str, frame.columns))}"
            )
    if not names:
        raise InvalidInput(f"the table has no features: columns beside {', '.join(special)}")
    return names


def rank_values(frame: pandas.DataFrame, name: str) -> tuple[list[Any], Counts]:
    """Return the different values of a table's column in order, and the rank of each row's."""
    column = frame[name]
    if column.isna().any():
        raise InvalidInput(
            f"row {int(column.isna().to_numpy().argmax())} of the table has no {name!r}"
        )
    labels = column.tolist()
    try:
        found = dict.fromkeys(labels)
    except TypeError as error:  # such as lists
        raise InvalidInput(f"column {name!r} of the table can't tell rows apart: {error}") from None
    try:
        values = sorted(found)
    except TypeError:  # such as 7 and "guest"
        values = sorted(found, key=lambda value: (type(value).__name__, str(value)))
    rank = {value: number for number, value in enumerate(values)}
    return values, np.array([rank[label] for label in labels])


def read_numbers(frame: pandas.DataFrame, names: list[str], may_miss: bool = False) -> Floats:
    """Return columns of a table as floats, one row per row of the table."""
    for name in names:
        try:
            values = frame[name].to_numpy(np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            advice = "" if may_miss else "; features= names the columns to use"
            raise InvalidInput(
                f"column {name!r} of the table does not hold numbers{advice}"
            ) from None
        if not may_miss and not np.isfinite(values).all():
            raise InvalidInput(
                f"row {int((~np.isfinite(values)).argmax())} of the table has no finite {name!r}"
            )
    return np.column_stack([frame[name].to_numpy(np.float64, na_value=np.nan) for name in names])


def fill_rounds(at: tuple[Counts, Counts], values: NDArray[Number]) -> NDArray[Number]:
    """Return rows of the table as rounds × arms (× features), 0 where a round has no such arm."""
    out = np.zeros((at[0].max() + 1, at[1].max() + 1, *values.shape[1:]), values.dtype)
    out[at] = values
    return out


def find_clients_of_rounds(which: Counts, who: Counts, rounds: list[Any], name: str) -> Counts:
    """Return the client of each round of a table; all rows of a round must have the same."""
    playing = np.zeros(len(rounds), np.int64)
    playing[which] = who
    differs = playing[which] != who
    if differs.any():
        raise InvalidInput(
            f"round {rounds[which[differs.argmax()]]!r} has rows of several {name!r}: "
            "one client plays a round"
        )
    return playing


def refuse_missing_rewards(rewards: Floats, mask: Flags, rounds: list[Any]) -> None:
    """Raise an error if a reward is missing in the table."""
    unseen = np.isnan(rewards)
    if unseen.any():
        row, arm = np.argwhere(unseen)[0]
        raise InvalidInput(
            f"{unseen.sum()} of {mask.sum()} rewards are missing, the first in round "
            f'{rounds[row]!r}, arm {arm}: give the reward of every arm, or missing="model", '
            "which fits a ridge regression to the known ones and plays that instead"
        )


def model_missing_rewards(
    contexts: Floats, rewards: Floats, mask: Flags, ridge: float, seed: int
) -> dict[str, Any]:
    """Fit θ̂ to the rewards that a table has, and draw noise from its residuals.

    θ̂ is (λI + Σ x xᵀ)⁻¹ Σ r x.
    """
    known = mask & ~np.isnan(rewards)
    if not known.any():
        raise InvalidInput("every reward is missing: a model needs some that are known")
    x, r = contexts[known], rewards[known]
    theta = np.linalg.solve(check_positive("ridge", ridge) * np.eye(x.shape[1]) + x.T @ x, x.T @ r)
    residuals = r - x @ theta
    residuals -= residuals.mean()
    noise = np.random.default_rng(seed).choice(residuals, len(contexts))
    return {"theta": theta, "noise": noise, "noise_scale": float(residuals.std())}
