"""`fedsuplin plugins`: list the plugins, or start a package."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from .._shared.terminal import make_console, print_json
from ..errors import PluginWarning
from ..registry import HOOK_PREFIX, KINDS, SINGULAR, Registry, Source, plugins
from .completers import describe_plugin
from .manuals import PLUGINS, PLUGINS_NEW
from .options import JSON_OPTION, output_option
from .output import make_table
from .scaffold import fill_templates, list_next_steps, write_package
from .sections import SectionedCommand, SectionedGroup, add_options

PLACE_OPTION = [
    output_option(
        "--folder",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=".",
        metavar="FOLDER",
        help="Where to put the folder of the package. [default: .]",
    )
]


@click.group(
    "plugins",
    cls=SectionedGroup,
    manual=PLUGINS,
    invoke_without_command=True,
)
@add_options(JSON_OPTION)
@click.pass_context
def plugins_command(context: click.Context, as_json: bool) -> None:
    """List the installed plugins: every name by kind, then each package with its entry points,
    and what failed to load and why.
    """
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(
                f"put --json after {context.invoked_subcommand}: before it, it is for the list"
            )
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # listed below
        sources = plugins.sources()
    rows = list_plugin_rows(plugins)
    if as_json:
        print_json({"plugins": rows, "sources": [dataclasses.asdict(source) for source in sources]})
        return
    console = make_console()
    console.print(make_plugins_table(rows))
    console.print(make_sources_table(sources))
    for source in sources:
        if source.error:
            console.print(f"{source} failed to load: {source.error}")


@plugins_command.command(
    "new",
    cls=SectionedCommand,
    manual=PLUGINS_NEW,
)
@click.argument("name")
@add_options(PLACE_OPTION, JSON_OPTION)
def plugins_new_command(name: str, folder: Path, as_json: bool) -> None:
    """Write a plugin package to start from into a new folder NAME: a trigger, a weighting and a
    variant in plain Python.

    The package installs, passes its tests and runs as it is.
    """
    package = write_package(name, folder)
    files = list(fill_templates(name))
    steps = [f"cd {shlex.quote(str(package))}", *list_next_steps(name)]
    if as_json:
        print_json({"folder": str(package), "files": files, "next": steps})
        return
    click.echo(f"wrote {package}:")
    for file in files:
        click.echo(f"  {file}")
    click.echo("\nNow install, test and run it:")
    for step in steps:
        click.echo(f"  {step}")


def list_plugin_rows(registry: Registry) -> list[dict[str, Any]]:
    """Return the rows of `fedsuplin plugins`: kind, name, package, and what each plugin is."""
    rows = []
    for kind in KINDS:
        for name in registry.names(kind):
            source = registry.find_owner(kind, name)
            what = describe_plugin(registry, kind, name)
            rows.append(
                {
                    "kind": SINGULAR[kind],
                    "name": name,
                    "package": source.package,
                    "version": source.version,
                    "what": what,
                }
            )
    return rows


def make_plugins_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Make the table of `fedsuplin plugins` with names by kind; kinds are its headings."""
    table = make_two_column_table("kind and name", "what it is")
    for kind, group in itertools.groupby(rows, key=lambda row: row["kind"]):
        add_rows_under_heading(table, kind, [(row["name"], row["what"]) for row in group])
    return table


def make_sources_table(sources: Iterable[Source]) -> Table:
    """Make the table of `fedsuplin plugins` with packages, their hooks and names."""
    table = make_two_column_table(
        "package and entry point", f"hooks, {HOOK_PREFIX}…, and what they register"
    )
    for package, group in itertools.groupby(
        sources, key=lambda source: f"{source.package} {source.version}"
    ):
        add_rows_under_heading(
            table, package, [(source.entry_point, describe_hooks(source)) for source in group]
        )
    return table


def describe_hooks(source: Source) -> str:
    """Return one line per hook of an entry point, as `fedsuplin plugins` lists them."""
    if source.error:
        return "failed to load, see below"
    kinds = [hook.removeprefix(HOOK_PREFIX) for hook in source.hooks]
    names = {
        kind: [name for of_kind, name in source.registered if of_kind == kind] for kind in kinds
    }
    return (
        "\n".join(f"{kind}: {', '.join(names[kind]) or 'nothing'}" for kind in kinds) or "no hooks"
    )


def make_two_column_table(left: str, right: str) -> Table:
    """Make an empty table for `fedsuplin plugins` whose left column is never wrapped."""
    table = make_table()
    table.add_column(left, no_wrap=True, overflow="fold")
    table.add_column(right, overflow="fold")
    return table


def add_rows_under_heading(table: Table, heading: str, rows: Iterable[tuple[str, str]]) -> None:
    """Add a section with a heading in bold to a table of `fedsuplin plugins`."""
    table.add_section()
    table.add_row(Text(heading, style="bold"))
    for left, right in rows:
        table.add_row(f"  {left}", right)
