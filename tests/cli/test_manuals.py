"""Every --help is complete, fits a terminal, and its examples work."""

import itertools
import re
import shlex
from pathlib import Path

import click
import pytest

from fedsuplin.cli.exit_codes import EXIT_CODES
from fedsuplin.cli.main import load_command, root_command
from fedsuplin.cli.manuals import ENVIRONMENT


def commands(command=root_command, path=("fedsuplin",)):
    """Yield every command and group with its words."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            loaded = load_command(name) if command is root_command else each
            yield from commands(loaded, (*path, name))


COMMANDS = dict(commands())
EXAMPLES = {line: path for path, command in COMMANDS.items() for line in command.manual.examples}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_a_manual(call, path):
    command, text = COMMANDS[path], call(*path.split()[1:], "--help").stdout
    assert path == "fedsuplin" or (command.short_help and command.short_help.endswith("."))
    assert command.help and command.manual.examples
    words = " ".join(text.split())
    for heading in ("Examples:", "Exit codes:", "Read more:"):
        assert f"\n{heading}\n" in text
    for code, meaning in (EXIT_CODES | dict(command.manual.codes)).items():
        assert f"{code} {meaning}" in words
    for line in command.manual.examples:
        assert f"\n  {line}" in text  # in one piece, to be copied
    assert all(
        page in words and Path(__file__).parents[2].joinpath(page).exists()
        for page in re.findall(r"\S+\.md", words)
    )
    assert {name for name in ENVIRONMENT if f"  {name} " in text} == set(command.manual.environment)
    arguments = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    context = click.Context(command)
    assert [argument.make_metavar(context) for argument in arguments] == [
        f"[{name}]" if name == "FILE" and path == "fedsuplin sweep" else name
        for name in command.manual.arguments
    ]


def test_lines_of_help_fit_in_80_columns_except_long_examples(call):
    for path in COMMANDS:
        for line in call(*path.split()[1:], "--help").stdout.splitlines():
            assert len(line) <= 80 or line.strip().startswith("fedsuplin "), line


OPTIONS = {
    (path, parameter.opts[0]): parameter
    for path, command in COMMANDS.items()
    for parameter in command.params
    if isinstance(parameter, click.Option)
}


@pytest.mark.parametrize(("path", "option"), OPTIONS)
def test_every_option_has_a_help_text_with_its_default(path, option):
    parameter = OPTIONS[path, option]
    assert parameter.help and parameter.help.endswith((".", "]", "…"))
    default = parameter.get_default(click.Context(COMMANDS[path]))
    if isinstance(default, (int, float, str)) and not isinstance(default, bool):
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        assert f"[default: {shown}]" in parameter.help


def words_of(line):
    """Return the arguments of a command line, without the redirection of its output."""
    return list(itertools.takewhile(lambda word: word not in (">", "|"), shlex.split(line)))[1:]


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_parses(line, folder):
    command, words = root_command, words_of(line)
    while isinstance(command, click.Group):
        if not words:
            return
        name = words.pop(0)
        command = load_command(name) if command is root_command else command.commands[name]
        if isinstance(command, click.Group) and not (words and words[0] in command.commands):
            break
    command.make_context(line, words)


QUICK = [
    line
    for line in EXAMPLES
    if line.split()[1] in ("run", "variants", "plugins", "tokens", "completion", "sweep")
    and not any(word in line for word in ("--backend", "1e9", "1e6"))
]


@pytest.mark.parametrize("line", QUICK)
def test_quick_examples_run(call, line, folder):
    assert len(QUICK) > 12
    call(*words_of(line))


def test_the_page_on_commands_agrees_with_help():
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text(encoding="utf-8")
    for code, words in EXIT_CODES.items():
        assert f"| {code} | {words} |" in page
    for name, words in ENVIRONMENT.items():
        assert f"| `{name}` | {words} |" in page
    for path, command in COMMANDS.items():
        if path not in ("fedsuplin", "fedsuplin demo"):
            assert f"| `{path}` | {command.short_help} |" in page


def test_the_help_of_serve_has_its_own_defaults_and_exit_codes(call):
    printed = " ".join(call("serve", "--help").stdout.split())
    assert "the problem's" not in printed.partition("--set")[0]
    assert (
        "Assumed noise level. [default: 1]" in printed
        and "Assumed corruption. [default: 0]" in printed
    )
    assert (
        "0 Ended gracefully, by Ctrl-C or SIGTERM." in printed
        and "130 Stopped by Ctrl-C before it listened." in printed
    )


def test_the_help_of_compare_has_its_own_defaults(call):
    printed = " ".join(call("compare", "--help").stdout.split())
    assert "or a plugin's. [default: gaussian]" in printed
    assert "[default: synthetic]" in printed
