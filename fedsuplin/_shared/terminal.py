"""Printing to the terminal: a plain console, and JSON."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console

from .plain_data import convert_to_strict_json


def make_console(*, stderr: bool = False) -> Console:
    """Return a console for the terminal (output or error) that prints text without markup."""
    return Console(markup=False, emoji=False, highlight=False, stderr=stderr)


def print_json(data: Any) -> None:
    """Print data to the terminal as JSON that every parser reads: NaN and infinity become null."""
    click.echo(json.dumps(convert_to_strict_json(data), indent=2, allow_nan=False))
