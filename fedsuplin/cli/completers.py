"""Completers: the names that a shell offers after TAB.

A plugin that fails to load, warns or prints is ignored here, and the other names are completed.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import warnings
from collections.abc import Callable, Iterable, Iterator

import click
from click.shell_completion import CompletionItem

from ..errors import FedsuplinError
from ..registry import Registry, plugins

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def make_name_completer(kind: str) -> Completer:
    """Return a completer of the registered names of a kind ("triggers", "variants", …)."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=describe_plugin_or_none(kind, name))
            for name in list_registered_names(kind)
            if name.startswith(incomplete)
        ]

    return complete


def complete_variants(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a variant, also after the + of a composition, as other completers do."""
    before, plus, last = incomplete.rpartition("+")
    found = make_name_completer("variants")(context, parameter, last)
    return [CompletionItem(f"{before}{plus}{item.value}", help=item.help) for item in found]


def make_word_completer(*known: str) -> Completer:
    """Return a completer of a few words, for an option that takes other values too."""
    return lambda context, parameter, incomplete: [
        CompletionItem(word) for word in known if word.startswith(incomplete)
    ]


def list_registered_names(kind: str) -> Iterable[str]:
    """Return the registered names for a completer, without what plugins print or warn."""
    with warnings.catch_warnings(), silence_output():
        warnings.simplefilter("ignore")
        return plugins.names(kind)


def describe_plugin_or_none(kind: str, name: str) -> str | None:
    """Return what a completer shows beside a plugin's name, or None if asking for it fails."""
    with silence_output(), contextlib.suppress(Exception):
        return describe_plugin(plugins, kind, name)
    return None


def describe_plugin(registry: Registry, kind: str, name: str) -> str:
    """Return what completers show beside a name: the first line of its docstring or summary."""
    factory = registry.factory(kind, name)
    try:
        text = (
            registry.create(kind, name, {}).summary
            if kind == "variants"
            else inspect.getdoc(factory)
        )
    except FedsuplinError as error:
        text = str(error)
    return (text or "").strip().partition("\n")[0]


@contextlib.contextmanager
def silence_output() -> Iterator[None]:
    """Discard what plugins print while a completer runs: a shell would take it for names."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
