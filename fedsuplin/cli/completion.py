"""`fedsuplin completion`: print the completion script of a shell."""

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
    """Print the script that makes TAB complete in SHELL: commands, options, and the names of
    variants, triggers, weightings, noise models, arrivals, problems and experiments, including
    those of plugins.

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
    """Return the script that `fedsuplin completion` prints, which makes TAB work in a shell."""
    script_class = get_completion_class(shell)
    assert script_class is not None, shell
    return script_class(command, {}, "fedsuplin", COMPLETION_VARIABLE).source()
