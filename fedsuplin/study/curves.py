"""The curves of runs as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsuplin_ext.loop import COUNTS, SUMS

MEASURED = (*SUMS, *COUNTS)
CURVE_COLUMNS = ("pulls", *MEASURED)


def list_curve_rows(
    rows: Sequence[Mapping[str, Any]],
    curves: Sequence[Mapping[str, Any] | None],
    names: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the curves of runs as rows, one per run and recorded pull.

    `names` are the columns that identify a run; they are copied from its row.
    """
    found = []
    for row, curve in zip(rows, curves, strict=True):
        identity = {name: row[name] for name in names}
        columns = {name: values.tolist() for name, values in (curve or {}).items()}
        found += [
            identity | dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
    return found
