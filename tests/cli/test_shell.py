"""What scripts and shells rely on: exit codes, JSON, completion, and a --help that tells all of it and is right."""

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import click
import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner

import fedsuplin.__main__ as start
from fedsuplin.cli import bench, completing, output, reproduce, tokens, variants
from fedsuplin.cli.completing import make_name_completer
from fedsuplin.cli.completion import COMPLETION_VARIABLE, SHELLS
from fedsuplin.cli.exit_codes import EXIT_CODES, INTERRUPTED
from fedsuplin.cli.main import load_command, root_command
from fedsuplin.cli.manuals import ENVIRONMENT
from fedsuplin.errors import FederationError
from fedsuplin.federation.credentials import Tokens
from fedsuplin.federation.demo import demo
from fedsuplin.registry import Registry, plugins
from fedsuplin.reproduce.reproduction import EXPERIMENTS
from fedsuplin_ext import norms

SMALL = ("--dim", "4", "--arms", "5", "--clients", "2", "--horizon", "400")
START = "from fedsuplin.__main__ import main; main()"


def call(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(
        root_command, [str(argument) for argument in arguments]
    )
    assert result.exit_code == code, result.output + repr(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def started(code, *arguments, **options):
    """The command in a process of its own, from Python code that starts it."""
    given = {"capture_output": True, "text": True, "timeout": 120} | options
    return subprocess.run([sys.executable, "-c", code, *arguments], **given)


def commands(command=root_command, path=("fedsuplin",)):
    """Every command with its words, groups too."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            loaded = load_command(name) if command is root_command else each
            yield from commands(loaded, (*path, name))


COMMANDS = dict(commands())
EXAMPLES = {line: path for path, command in COMMANDS.items() for line in command.manual.examples}


# --- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_a_manual(path):
    command, text = COMMANDS[path], call(*path.split()[1:], "--help").stdout
    assert path == "fedsuplin" or (command.short_help and command.short_help.endswith("."))
    assert command.help and command.manual.examples
    words = " ".join(text.split())
    for heading in ("Examples:", "Exit codes:", "Read more:"):
        assert f"\n{heading}\n" in text
    for code, said in (EXIT_CODES | dict(command.manual.codes)).items():
        assert f"{code} {said.split()[0]}" in words
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


def test_lines_of_help_fit_a_terminal_but_for_long_examples():
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
def test_every_option_says_what_it_is_and_its_default(path, option):
    parameter = OPTIONS[path, option]
    assert parameter.help and parameter.help.endswith((".", "]", "…"))
    default = parameter.get_default(click.Context(COMMANDS[path]))
    if isinstance(default, (int, float, str)) and not isinstance(default, bool):
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        assert f"[default: {shown}]" in parameter.help


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A place with the files that examples speak of."""
    monkeypatch.chdir(tmp_path)
    for name in ("ml-20m", "code"):
        (tmp_path / name).mkdir()
    small = "seeds = 1\n[policy]\nname = 'oful'\n[problem]\ndim = 3\nn_arms = 3\nn_clients = 2\nhorizon = 50\n"
    (tmp_path / "grid.toml").write_text(small)
    return tmp_path


def words_of(line):
    """Its arguments, without what a shell does with the output."""
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
    if re.fullmatch(
        r"fedsuplin (run|variants|plugins|tokens|completion|sweep (--example|grid.toml)\b(?!.*--backend)).*",
        line,
    )
    and "1e9" not in line
    and "1e6" not in line
]


@pytest.mark.parametrize("line", QUICK)
def test_examples_that_are_quick_run(line, folder):
    assert len(QUICK) > 12
    call(*words_of(line))


def test_the_page_on_commands_says_what_help_says():
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text(encoding="utf-8")
    for code, words in EXIT_CODES.items():
        assert f"| {code} | {words} |" in page
    for name, words in ENVIRONMENT.items():
        assert f"| `{name}` | {words} |" in page
    for path, command in COMMANDS.items():
        if path not in ("fedsuplin", "fedsuplin demo"):
            assert f"| `{path}` | {command.short_help} |" in page


# --- exit codes ------------------------------------------------------------------------------------------------------


def test_0_is_done():
    assert call("run", *SMALL).exit_code == 0


def full(*_, **__):
    raise OSError(28, "No space left on device")


def test_1_is_something_outside(tmp_path, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(output.tempfile, "TemporaryFile", full)
        call("run", *SMALL, "--out", tmp_path, code=1)
    call("run", "--horizon", "1e14", "--record", "all", code=1)

    def nobody(*_, **__):
        raise FederationError("nobody answers")

    monkeypatch.setattr(demo, "run_demo", nobody)
    assert call("demo", "federation", code=1).stderr == "Error: nobody answers\n"


def test_1_is_also_a_run_that_failed_and_a_sum_that_is_wrong(folder, monkeypatch):
    plan = (folder / "grid.toml").read_text().replace("'oful'", "'oful'\nalpha_scale = -1")
    (folder / "grid.toml").write_text(plan)
    call("sweep", "grid.toml", code=1)
    monkeypatch.setattr(demo, "run_demo", lambda *_, **__: False)
    call("demo", "federation", code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("walk",), ("run", "asinc"), ("run", "--dim", "x"), ("compare", "--seeds", "0"), ("sweep",), ("sweep", "nowhere.toml"),
        ("reproduce", "everything"), ("variants", "synk"), ("plugins", "new", "θ"), ("completion", "tcsh"),
        ("serve", "--store", "new.db"), ("tokens", "t.json"), ("demo", "federation", "--variant", "robust"), ("bench", "--fast"),
    ],
)  # fmt: skip
def test_2_is_wrong_usage_or_input(arguments, folder):
    assert call(*arguments, code=2).stdout == ""


def test_130_is_ctrl_c_wherever_it_comes(monkeypatch):
    def pressed(*_, **__):
        raise KeyboardInterrupt

    for module, name, arguments in (
        (bench, "measure_all", ["bench"]),
        (variants, "make_variants_table", ["variants"]),
        (tokens, "make_tokens", ["tokens", "new.json", "--clients", "1"]),
        (demo, "run_demo", ["demo", "federation"]),
    ):
        with monkeypatch.context() as context:
            context.setattr(module, name, pressed)
            assert call(*arguments, code=130).stderr == "stopped\n"
    assert start.INTERRUPTED == INTERRUPTED == 130


PRESSED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Pressed:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Pressed)
{start}
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("click", "variants"),
        ("numpy", "variants"),
        ("scipy", "run"),
        ("fedsuplin_ext.loop", "run"),
        ("fedsuplin.cli.main", "variants"),
        ("fedsuplin.cli.variants", "variants"),
        ("fedsuplin.cli.run", "run"),
        ("fedsuplin.federation", "serve"),
    ],
)
def test_ctrl_c_while_python_imports_is_no_traceback(module, command):
    done = started(PRESSED.format(module=module, start=START), command)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_ctrl_c_that_an_import_swallows_ends_it_all_the_same():
    """As NumPy does, when it comes while its C code imports something."""
    swallowed = PRESSED.replace(
        "os.kill(os.getpid(), signal.SIGINT)",
        """
            try:
                os.kill(os.getpid(), signal.SIGINT); [None for _ in range(1000)]
            except KeyboardInterrupt:
                raise ImportError('lost')""",
    )
    done = started(swallowed.format(module="numpy", start=START), "variants")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")


def test_a_job_in_the_background_goes_on():
    ignored = PRESSED.replace("signal.default_int_handler", "signal.SIG_IGN")
    done = started(ignored.format(module="numpy", start=START), "variants", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)


def test_the_installed_command_and_python_m_start_there():
    scripts = fsl_entry_points()
    assert scripts["fedsuplin"] == "fedsuplin.__main__:main"
    done = subprocess.run(
        [sys.executable, "-m", "fedsuplin", "variants", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)[0]["name"]


def fsl_entry_points():
    import tomllib

    return tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "scripts"
    ]


@pytest.mark.posix
@pytest.mark.parametrize(
    "arguments", ["variants", "variants --json", "run --help", "plugins", "completion bash"]
)
def test_a_reader_that_goes_away_is_no_traceback(arguments):
    line = f"{shlex.quote(sys.executable)} -c {shlex.quote(START)} {arguments} | head -c 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 1, "")


def test_kernels_that_are_not_there_are_told():
    done = started(START, "run", *SMALL, env=os.environ | {"FEDSUPLIN_KERNELS": "abacus"})
    assert done.returncode == 2
    assert (
        done.stderr
        == f"Error: FEDSUPLIN_KERNELS is 'abacus'; this CPU runs {' and '.join(norms.available())}\n"
    )
    assert (
        "kernels abacus (this CPU runs"
        in started(START, "--version", env=os.environ | {"FEDSUPLIN_KERNELS": "abacus"}).stdout
    )


def test_kernels_that_are_not_there_are_told_in_this_process_too(monkeypatch):
    monkeypatch.setenv("FEDSUPLIN_KERNELS", "abacus")
    assert "FEDSUPLIN_KERNELS is 'abacus'" in call("variants", code=2).stderr


# --- JSON ------------------------------------------------------------------------------------------------------------


def numbers(*arguments, code=0):
    """All of standard output, which must be JSON as every reader has it."""
    result = call(*arguments, "--json", code=code)

    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(result.stdout, parse_constant=refuse)


RUN_KEYS = {
    "variant", "preset", "complete", "played", "horizon", "pulls", "regret", "uniform_regret", "reward", "communication",
    "messages_up", "messages_down", "bytes_up", "bytes_down", "percent_of_uniform", "layer_pulls", "microseconds", "loop_time",
    "wall_time", "guarantee", "theorem", "departures", "too_short", "seed", "spec", "versions", "notices", "files",
}  # fmt: skip
POLICY_KEYS = {
    "policy", "preset", "seeds", "regret", "regret_error", "communication", "communication_error", "bytes_up", "bytes_up_error",
    "bytes_down", "bytes_down_error", "percent_of_uniform", "microseconds", "system", "actions", "regret_bound",
    "communication_bound",
}  # fmt: skip


def documented(command):
    """The keys that docs/commands.md has for a command."""
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text(encoding="utf-8")
    section = page.partition("## JSON")[2]
    row = re.search(rf"^\| `{command}` \| (.*) \|$", section, re.MULTILINE)
    assert row, command
    return set(re.findall(r"`(\w+)`", row[1]))


def test_run_as_json(tmp_path):
    told = numbers("run", *SMALL, "--out", tmp_path)
    assert set(told) == RUN_KEYS == documented("run")
    assert all(Path(file).exists() for file in told["files"])


def test_compare_as_json_has_no_nan_where_one_seed_tells_nothing_of_its_spread():
    told = numbers("compare", "async", "uniform", *SMALL, "--seeds", "1")
    assert set(told) == {"policies", "seeds", "complete", "notices", "files"}
    assert told["policies"][0]["regret_error"] is None
    assert all(
        set(row) - {"regret_bound_value", "communication_bound_value"} == POLICY_KEYS
        for row in told["policies"]
    )
    assert set(told) | set(told["policies"][0]) <= documented("compare")


def test_sweep_as_json(folder):
    told = numbers("sweep", "grid.toml")
    assert set(told) == {"complete", "summary", "failed", "files", "notices"}
    assert set(told) | {"policy", "regret", "regret_error", "seeds"} <= documented("sweep") | set(
        told["summary"][0]
    )
    assert "the example is TOML" in call("sweep", "--example", "--json", code=2).stderr


def test_reproduce_as_json(tmp_path, monkeypatch):
    experiment = types.SimpleNamespace(name="arrivals")
    verdict = types.SimpleNamespace(row=lambda: {"claim": "…", "outcome": "holds"})
    sweep = types.SimpleNamespace(complete=True, failed=[])
    outcome = types.SimpleNamespace(
        experiment=experiment,
        measured={},
        verdicts=[verdict],
        files=[tmp_path / "a.csv"],
        seconds=1.5,
        sweep=sweep,
    )
    monkeypatch.setattr(reproduce, "reproduce", lambda *_, **__: [outcome])
    told = numbers("reproduce", "arrivals", "--out", tmp_path)
    assert set(told) | set(told["experiments"]["arrivals"]) == documented("reproduce")
    assert told["experiments"]["arrivals"]["files"] == [str(tmp_path / "a.csv")]


def test_bench_as_json(monkeypatch):
    """Its keys are compared in test_benchmark.py, with what it measures."""
    monkeypatch.setattr(
        bench, "measure_all", lambda *_: {"kernels": "avx2", "fma_gigaflops": float("inf")}
    )
    assert numbers("bench") == {"kernels": "avx2", "fma_gigaflops": None}


def test_variants_and_plugins_as_json(tmp_path):
    rows = numbers("variants")
    assert set(rows[0]) == documented("variants") - {"error"}
    assert set(numbers("variants", "async", *SMALL)) == {"practical", "theory"}
    told = numbers("plugins")
    assert set(told) | set(told["plugins"][0]) | set(told["sources"][0]) == documented("plugins")
    told = numbers("plugins", "new", "my-gossip", "--folder", tmp_path)
    assert set(told) == documented("plugins new") and told["folder"] == str(tmp_path / "my-gossip")
    assert all((tmp_path / "my-gossip" / file).exists() for file in told["files"])


def test_tokens_as_json(tmp_path):
    told = numbers("tokens", tmp_path / "t.json", "--clients", "2")
    assert set(told) == documented("tokens") == {"file", "tokens", "files"}
    known = Tokens.read(tmp_path / "t.json")
    assert [known.client(told["tokens"][name]) for name in ("0", "1")] == [0, 1] and told[
        "files"
    ] == {}
    told = numbers(
        "tokens", tmp_path / "t.json", "--clients", "2", "--out", tmp_path / "secrets", "--replace"
    )
    assert told["tokens"] is None and all(Path(file).exists() for file in told["files"].values())


def test_demo_and_serve_as_json(tmp_path):
    """The events go to standard error; serve tells where it listens."""
    short = ("--clients", "1", "--pulls", "20", "--seconds", "1", "--kill-every", "0")
    done = started(START, "demo", "federation", *short, "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0 and set(told) == documented("demo federation"), done.stderr
    assert (
        told["right"]
        and told["noted"] == told["merged"] == told["pulls"] == 20
        and "server is at" in done.stderr
    )
    call("tokens", tmp_path / "t.json", "--clients", "1", "--out", tmp_path / "secrets")
    options = f"--dim 2 --arms 2 --clients 1 --store {tmp_path}/s.db --tokens {tmp_path}/t.json --address 127.0.0.1:0 --json"
    command = [sys.executable, "-c", START, "serve", "async", *options.split()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        shown = "".join(iter(server.stdout.readline, "}\n")) + "}"
        server.send_signal(signal.SIGTERM)
        rest, _ = server.communicate(timeout=60)
    assert (server.returncode, rest) == (0, "") and set(json.loads(shown)) == documented("serve")


def test_an_error_leaves_standard_output_empty_with_json_too():
    result = call("run", "asinc", "--json", code=2)
    assert result.stdout == "" and result.stderr.startswith("Error: ")


# --- completion ------------------------------------------------------------------------------------------------------


def completed(line, shell="bash", code=START, **environment):
    """What TAB gives at the end of a line, by the mechanism that a shell uses."""
    words = line.split(" ")
    by_shell = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "fish": {"COMP_WORDS": line, "COMP_CWORD": words[-1]},
    }
    told = os.environ | by_shell[shell] | {"_FEDSUPLIN_COMPLETE": f"{shell}_complete"} | environment
    done = started("import sys; sys.argv[0] = 'fedsuplin'; " + code, env=told)
    assert done.stderr == "", done.stderr
    return done.stdout.splitlines()


def values(line, **options):
    return [each.partition(",")[2] for each in completed(line, **options)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedsuplin re", ["reproduce"]),
        ("fedsuplin run ", plugins.names("variants")),
        ("fedsuplin run --trigger per", ["periodic"]),
        ("fedsuplin reproduce ", ["all", *EXPERIMENTS]),
    ],
)
def test_tab_completes_commands_and_names_through_the_real_mechanism(line, expected):
    assert values(line) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("run sync+ro", ["sync+robust"]),
        ("compare async oful fedl", ["fedlinucb"]),
        ("variants syn", ["sync"]),
        ("serve asyn", ["async", "async-linucb"]),
        ("demo federation --variant fedl", ["fedlinucb"]),
        ("run --weighting ", plugins.names("weightings")),
        ("run --noise ", plugins.names("noise_models")),
        ("run --assume b", ["bounded"]),
        ("run --arrival ", plugins.names("arrivals")),
        ("run --problem ", plugins.names("problems")),
        ("run --policy ", plugins.names("policies")),
        ("run --preset ", ["practical", "theory"]),
        ("run --syncs ", ["one", "all", "push"]),
        ("run --record a", ["all"]),
        ("reproduce arrivals th", ["theorem"]),
        ("sweep --backend p", ["processes"]),
        ("completion ", list(SHELLS)),
        ("plugins n", ["new"]),
    ],
)
def test_tab_completes_every_name_that_a_user_would_want(words, expected):
    *before, last = words.split(" ")
    engine = get_completion_class("bash")(root_command, {}, "fedsuplin", COMPLETION_VARIABLE)
    assert [item.value for item in engine.get_completions(before, last)] == expected


def test_zsh_and_fish_also_say_what_each_is():
    periodic = plugins.factory("triggers", "periodic").__doc__.splitlines()[0]
    assert completed("fedsuplin run --trigger per", shell="zsh") == ["plain", "periodic", periodic]
    (line,) = completed("fedsuplin run --trigger per", shell="fish")[:1]
    assert line.startswith("plain") and "periodic" in line


NOISY = """
import sys, types, warnings
from fedsuplin import registry
class Noisy:
    name, dist = "noisy", types.SimpleNamespace(name="somebodys", version="1")
    def load(self):
        print("hello"); warnings.warn("oh"); print("oh", file=sys.stderr); sys.exit("bye")
ours = registry.plugins._entry_points
registry.plugins._entry_points = lambda: [*ours(), Noisy()]
"""


def test_a_plugin_that_prints_warns_and_ends_the_program_does_not_break_completion():
    assert values("fedsuplin run --trigger per", code=NOISY + START) == ["periodic"]


def test_a_plugin_that_cant_say_what_it_is_is_completed_all_the_same(monkeypatch):
    registry = Registry(lambda: [])
    monkeypatch.setattr(completing, "plugins", registry)

    class Grumpy:
        @property
        def __doc__(self):
            raise RuntimeError("ask somebody else")

        def __call__(self):
            return None

    registry._factories["triggers"]["grumpy"] = (Grumpy(), None)
    assert [
        (item.value, item.help) for item in make_name_completer("triggers")(None, None, "")
    ] == [("grumpy", None)]


def test_the_script_of_each_shell_is_clicks_and_says_how_it_is_installed():
    for shell in SHELLS:
        text = call("completion", shell).stdout
        assert f"_FEDSUPLIN_COMPLETE={shell}_complete" in text and "fedsuplin" in text
        assert f"fedsuplin completion {shell}" in call("completion", "--help").stdout


@pytest.mark.linux  # the bash of macOS is older than 4.4
def test_a_real_bash_completes(tmp_path):
    command = tmp_path / "fedsuplin"
    command.write_text(f"#!{sys.executable}\n{START}\n")
    command.chmod(0o755)
    lines = """
        eval "$(fedsuplin completion bash)"
        COMP_WORDS=(fedsuplin run --trigger per); COMP_CWORD=3
        _fedsuplin_completion fedsuplin
        echo "${COMPREPLY[@]}"
    """
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", lines], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("periodic\n", "")


@pytest.mark.measures("time")
def test_completion_imports_nothing_that_takes_long():
    """scipy.special, matplotlib, pandas and gRPC are half the time that there would be."""
    code = (
        "import sys; from fedsuplin.cli.main import load_command; load_command('run');"
        "from fedsuplin.cli.completing import make_name_completer; make_name_completer('variants')(None, None, '');"
        "print([name for name in ('scipy.special', 'matplotlib', 'pandas', 'grpc', 'joblib', 'sklearn') if name in sys.modules])"
    )
    began = time.monotonic()
    assert started(code).stdout == "[]\n"
    assert time.monotonic() - began < 30
