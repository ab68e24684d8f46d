"""What the command line tells: the closing table of a run, its files, and the tables of variants and plugins.

Numbers first (`summary`, `variant_rows`, `plugin_rows`: plain data, also for --json), words and tables after.
"""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from .plain_data import convert_to_strict_json


def make_console(*, stderr: bool = False) -> Console:
    """Standard output (or error) as it is now; what we print is text, never markup."""
    return Console(markup=False, emoji=False, highlight=False, stderr=stderr)


def print_json(data: Any) -> None:
    """On standard output, valid everywhere: NaN and infinity, which JSON has not, are null."""
    click.echo(json.dumps(convert_to_strict_json(data), indent=2, allow_nan=False))
