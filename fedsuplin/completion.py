"""What a shell completes after TAB: the names that are installed. The rest is click's own.

A plugin that fails to load, warns or prints says nothing here: completion goes on with what there is.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable, Iterator

import click
from click.shell_completion import CompletionItem, get_completion_class

from .registry import plugins
from .report import first_line
from .reproduce import EXPERIMENTS

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FEDSUPLIN_COMPLETE"

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def script(command: click.Command, shell: str) -> str:
    """What to run in the shell for TAB to work there."""
    made = get_completion_class(shell)
    assert made is not None, shell
    return made(command, {}, "fedsuplin", VARIABLE).source()


def names(kind: str) -> Completer:
    """The registered names of a kind ("triggers", "variants", …), each with the first line of what it is."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name, help=what_it_is(kind, name)) for name in registered(kind) if name.startswith(incomplete)]

    return complete


def variants(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Variants; after a +, what it composes with."""
    before, plus, last = incomplete.rpartition("+")
    found = names("variants")(context, parameter, last)
    return [CompletionItem(f"{before}{plus}{item.value}", help=item.help) for item in found]


def experiments(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    known = {"all": "every one"} | {name: each.title for name, each in EXPERIMENTS.items()}
    return [CompletionItem(name, help=title) for name, title in known.items() if name.startswith(incomplete)]


def words(*known: str) -> Completer:
    """These, where an option takes other things besides."""
    return lambda context, parameter, incomplete: [CompletionItem(word) for word in known if word.startswith(incomplete)]


def registered(kind: str) -> Iterable[str]:
    with warnings.catch_warnings(), silence():
        warnings.simplefilter("ignore")
        return plugins.names(kind)


def what_it_is(kind: str, name: str) -> str | None:
    """None where whoever registered it fails to say."""
    with silence(), contextlib.suppress(Exception):
        return first_line(plugins, kind, name)
    return None


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """What plugins print would be taken for names."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
