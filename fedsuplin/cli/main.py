"""The command `fedsuplin`: load a command by its name, and turn errors into exit codes."""

from __future__ import annotations

import errno
import importlib
import platform
import sys
import warnings
from collections.abc import Callable
from typing import Any

import click

from fedsuplin_ext import norms

from ..errors import FederationError, FedsuplinError, InvalidInput
from . import manuals
from .exit_codes import INTERRUPTED
from .sections import SectionedGroup

# The manual of each command. The command NAME is the function NAME_command of the module NAME.
COMMANDS = {
    "bench": manuals.BENCH,
    "compare": manuals.COMPARE,
    "completion": manuals.COMPLETION,
    "demo": manuals.DEMO,
    "plugins": manuals.PLUGINS,
    "reproduce": manuals.REPRODUCE,
    "run": manuals.RUN,
    "serve": manuals.SERVE,
    "sweep": manuals.SWEEP,
    "tokens": manuals.TOKENS,
    "variants": manuals.VARIANTS,
}


class Commands(SectionedGroup):
    """Import a command when it is called, and turn its errors into one line and an exit code.

    Until then a stub stands for each command, so `fedsuplin --help` imports none of them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, manual in COMMANDS.items():
            self.add_command(click.Command(name, short_help=manual.summary))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Replace the stub of the command that the main program was called with by the command."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, stub and load_command(stub.name or ""), rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command of `fedsuplin`; turn errors into exit codes and warnings into lines."""
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: click.echo(f"Warning: {message}", err=True)
            try:
                return super().invoke(ctx)
            except FedsuplinError as error:
                raise make_click_error(
                    str(error), 1 if isinstance(error, FederationError) else 2
                ) from error
            except BrokenPipeError:
                raise  # click ends quietly
            except OSError as error:
                raise make_click_error(
                    f"{error.filename or guess_file(error)}: {error.strerror or error}", 1
                ) from error
            except MemoryError as error:
                raise make_click_error(
                    f"not enough memory for these sizes: {error}".rstrip(": "), 1
                ) from error
            except KeyboardInterrupt:
                click.echo("stopped", err=True)
                ctx.exit(INTERRUPTED)


def load_command(name: str) -> click.Command:
    """Import the module of a command of the main program and return the command."""
    module = importlib.import_module(f".{name}", __package__)
    command: click.Command = getattr(module, f"{name}_command")
    return command


class WrongUse(click.ClickException):
    """An error that ends the command with exit code 2."""

    exit_code = 2


def make_click_error(message: str, exit_code: int) -> click.ClickException:
    """Return the error with which the main program prints a message and ends with an exit code."""
    return WrongUse(message) if exit_code == WrongUse.exit_code else click.ClickException(message)


def guess_file(error: OSError) -> str:
    """Guess which file an error without a file name is about, for the main program's message.

    Errors from files that we write have the name, so a full disk means standard output.
    """
    return "standard output" if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO) else "a file"


def show_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print the versions for `fedsuplin --version`; ours is the last word of the first line."""
    if not wanted or context.resilient_parsing:
        return
    from .._shared.version import list_software_versions

    used = list_software_versions(norms.default())
    click.echo(f"fedsuplin, version {used['fedsuplin']}")
    click.echo(f"Python {used['python']}, NumPy {used['numpy']}, SciPy {used['scipy']}")
    click.echo(f"kernels {used['kernels']} (this CPU runs {', '.join(norms.available())})")
    click.echo(platform.platform())
    context.exit()


@click.group(
    cls=Commands,
    manual=manuals.MAIN,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=show_version,
    help="Show the versions of fedsuplin, Python, NumPy and SciPy, and the kernels in use.",
)
@click.pass_obj
def root_command(restore_ctrl_c: Callable[[], Any] | None) -> None:
    """Federated linear bandits at compiled speed: the four variants of FedSupLinUCB, the
    algorithms that the paper compares it with, and those of plugins. Simulated, or live between
    machines.

    `fedsuplin COMMAND --help` shows the options of a command, examples, and the files it writes.
    """
    if restore_ctrl_c is not None:  # the command's module is imported by now
        restore_ctrl_c()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # print ? where the encoding has no µ or θ
    if norms.default() not in norms.available():
        available = " and ".join(norms.available())
        raise InvalidInput(f"FEDSUPLIN_KERNELS is {norms.default()!r}; this CPU runs {available}")
