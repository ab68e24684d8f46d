"""What a shell completes after TAB: the names that are installed. The rest is click's own.

A plugin that fails to load, warns or prints says nothing here: completion goes on with what there is.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .manuals import COMPLETION
from .sections import SectionedCommand

SHELLS = ("bash", "zsh", "fish")
COMPLETION_VARIABLE = "_FEDSUPLIN_COMPLETE"


@click.command(
    "completion",
    cls=SectionedCommand,
    manual=COMPLETION,
)
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the script that makes TAB complete commands, options and names in SHELL: variants, triggers, weightings, noise
    models, arrivals, problems and experiments, those of plugins too.

    \b
    bash (4.4 or newer), in ~/.bashrc:
      eval "$(fedsuplin completion bash)"
    zsh, in ~/.zshrc after compinit:
      eval "$(fedsuplin completion zsh)"
    fish, once:
      fedsuplin completion fish > ~/.config/fish/completions/fedsuplin.fish
    """
    click.echo(make_completion_script(context.find_root().command, shell))


def make_completion_script(command: click.Command, shell: str) -> str:
    """What to run in the shell for TAB to work there."""
    made = get_completion_class(shell)
    assert made is not None, shell
    return made(command, {}, "fedsuplin", COMPLETION_VARIABLE).source()
