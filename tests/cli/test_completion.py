"""What TAB completes, in every shell."""

import os
import subprocess
import sys
import time

import pytest
from click.shell_completion import get_completion_class

from fedsuplin.cli import completers
from fedsuplin.cli.completers import make_name_completer
from fedsuplin.cli.completion import COMPLETION_VARIABLE, SHELLS
from fedsuplin.cli.main import root_command
from fedsuplin.registry import Registry, plugins
from fedsuplin.reproduce.reproduction import EXPERIMENTS

START = "from fedsuplin.__main__ import main; main()"


@pytest.fixture
def completed(started):
    """A function that returns what TAB gives at the end of a line, as a shell asks for it."""

    def complete(line, shell="bash", code=START, **environment):
        words = line.split(" ")
        by_shell = {
            "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
            "zsh": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
            "fish": {"COMP_WORDS": line, "COMP_CWORD": words[-1]},
        }
        variables = by_shell[shell] | {COMPLETION_VARIABLE: f"{shell}_complete"} | environment
        code = "import sys; sys.argv[0] = 'fedsuplin'; " + code
        done = started(code, env=os.environ | variables)
        assert done.stderr == "", done.stderr
        return done.stdout.splitlines()

    return complete


@pytest.fixture
def values(completed):
    """A function that returns the words that TAB gives in bash."""
    return lambda line, **options: [each.partition(",")[2] for each in completed(line, **options)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fedsuplin re", ["reproduce"]),
        ("fedsuplin run ", plugins.names("variants")),
        ("fedsuplin run --trigger per", ["periodic"]),
        ("fedsuplin reproduce ", ["all", *EXPERIMENTS]),
    ],
)
def test_tab_completes_commands_and_names_as_a_shell_asks_for_them(values, line, expected):
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
    bash = get_completion_class("bash")(root_command, {}, "fedsuplin", COMPLETION_VARIABLE)
    assert [item.value for item in bash.get_completions(before, last)] == expected


def test_zsh_and_fish_also_describe_each_name(completed):
    periodic = plugins.factory("triggers", "periodic").__doc__.splitlines()[0]
    assert completed("fedsuplin run --trigger per", shell="zsh") == ["plain", "periodic", periodic]
    (line,) = completed("fedsuplin run --trigger per", shell="fish")[:1]
    assert line.startswith("plain") and "periodic" in line


NOISY = """
import sys, types, warnings
from fedsuplin import registry
class Noisy:
    name, dist = "noisy", types.SimpleNamespace(name="theirs", version="1")
    def load(self):
        print("hello"); warnings.warn("oh"); print("oh", file=sys.stderr); sys.exit("bye")
ours = registry.plugins._entry_points
registry.plugins._entry_points = lambda: [*ours(), Noisy()]
"""


def test_a_plugin_that_prints_warns_and_ends_the_program_does_not_break_completion(values):
    assert values("fedsuplin run --trigger per", code=NOISY + START) == ["periodic"]


def test_a_plugin_without_a_description_is_still_completed(monkeypatch):
    registry = Registry(lambda: [])
    monkeypatch.setattr(completers, "plugins", registry)

    class Undocumented:
        @property
        def __doc__(self):
            raise RuntimeError("no documentation")

        def __call__(self):
            return None

    registry._factories["triggers"]["undocumented"] = (Undocumented(), None)
    assert [
        (item.value, item.help) for item in make_name_completer("triggers")(None, None, "")
    ] == [("undocumented", None)]


def test_every_shell_has_a_script_and_help_has_how_to_install_it(call):
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
def test_completion_imports_nothing_slow(started):
    """Half of the time would go into SciPy's functions, matplotlib, pandas and gRPC."""
    code = """
import sys
from fedsuplin.cli.completers import make_name_completer
from fedsuplin.cli.main import load_command
load_command("run")
make_name_completer("variants")(None, None, "")
slow = ("scipy.special", "matplotlib", "pandas", "grpc", "joblib", "sklearn")
print([name for name in slow if name in sys.modules])
"""
    began = time.monotonic()
    assert started(code).stdout == "[]\n"
    assert time.monotonic() - began < 30
