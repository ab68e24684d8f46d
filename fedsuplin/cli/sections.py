"""Click classes that print options under headings, and how options are declared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from .manuals import WIDEST_LEFT, Manual

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class SectionedCommand(click.Command):
    """A command whose --help lists options under headings and adds the rest of its manual."""

    def __init__(self, name: str | None = None, *, manual: Manual, **kwargs: Any) -> None:
        super().__init__(name, short_help=manual.summary, **kwargs)
        self.manual = manual

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section of arguments, then the sections of options."""
        self.manual.write_arguments(formatter)
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record:
                sections.setdefault(getattr(parameter, "section", "Other options"), []).append(
                    record
                )
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=WIDEST_LEFT)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections below the options: examples, files, exit codes."""
        self.manual.write_rest(formatter)


class SectionedGroup(SectionedCommand, click.Group):
    """A group whose --help also lists its commands, below its options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of options, then that of the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


class SectionedOption(click.Option):
    """An option with the heading that --help prints it under."""

    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


def make_option_factory(section: str) -> Callable[..., Decorator]:
    """Return a `click.option` whose options --help prints in one section, under its heading."""
    return functools.partial(click.option, cls=SectionedOption, section=section)


def add_options(*groups: list[Decorator]) -> Decorator:
    """Return a decorator that adds sections of options to a command, in the order given."""
    decorators = [decorator for group in groups for decorator in group]
    return lambda command: functools.reduce(
        lambda made, decorator: decorator(made), reversed(decorators), command
    )
