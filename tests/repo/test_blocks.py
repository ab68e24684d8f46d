"""Every block of README and docs/ runs; Python blocks are in test_docs.py and test_readme.py.

A command runs as it is printed, in a folder of its page, unless SHORTER has another line for it:
the same command at a smaller size, or with a port that is free. A block that can't run has a
comment for its reader, "# not run in the tests: why".
"""

import contextlib
import csv
import functools
import importlib.util
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import tomllib
import types
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fedsuplin as fsl
from fedsuplin.cli.main import root_command
from fedsuplin.registry import Registry, Source, plugins
from fedsuplin.reproduce.reproduction import EXPERIMENTS

pytestmark = pytest.mark.posix  # openssl, signals, shells
ROOT = Path(__file__).parents[2]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}
NOT_RUN = re.compile(r"^# not run in the tests: (.+)$", re.MULTILINE)

COMPARE = "fedsuplin compare async sync fedlinucb oful suplinucb"
BASELINES = "fedsuplin compare async sync fedlinucb oful"
DIGITS = "--problem digits --clients 10"
SHORTER = {
    # Commands at the paper's sizes get fewer pulls and seeds.
    f"{COMPARE} --seeds 10 --out results": f"{COMPARE} --seeds 2 --horizon 2000 --out results",
    "fedsuplin run async --horizon 1e9 --checkpoint long.ckpt": (
        "fedsuplin run async --horizon 1e5 --checkpoint long.ckpt"
    ),
    f"fedsuplin run async {DIGITS}": f"fedsuplin run async {DIGITS} --horizon 500",
    f"{BASELINES} {DIGITS} --set n_features=8": (
        f"{BASELINES} {DIGITS} --set n_features=8 --horizon 500 --seeds 2"
    ),
    # The experiments themselves are those of a tiny paper, see `shrink_the_paper`.
    "fedsuplin reproduce --quick": "fedsuplin reproduce --quick --seeds 2 clients",
    "fedsuplin reproduce": "fedsuplin reproduce --quick --seeds 2 clients",
    "fedsuplin reproduce arrivals clients tradeoff": (
        "fedsuplin reproduce arrivals clients tradeoff --quick --seeds 2"
    ),
    "fedsuplin reproduce all --movielens ml-20m --out results": (
        "fedsuplin reproduce movielens --movielens ml-20m --out results --quick --seeds 2"
    ),
    "fedsuplin sweep grid.toml --backend processes --workers 8 --out results": (
        "fedsuplin sweep grid.toml --backend processes --workers 2 --out results"
    ),
    # A federation for two seconds.
    "fedsuplin demo federation": (
        "fedsuplin demo federation --clients 2 --pulls 30 --seconds 1 --kill-every 0"
    ),
    # Ports that are free, and a name that this machine has.
    "dask scheduler --port 8786": "dask scheduler --port PORT --no-dashboard",
    "dask worker 127.0.0.1:8786 --nworkers 2 --nthreads 1": (
        "dask worker 127.0.0.1:PORT --nworkers 2 --nthreads 1 --no-dashboard"
    ),
    "fedsuplin sweep grid.toml --backend dask://127.0.0.1:8786": (
        "fedsuplin sweep grid.toml --backend dask://127.0.0.1:PORT"
    ),
    "fedsuplin serve --store server.db --tokens tokens.json": (
        "fedsuplin serve --store server.db --tokens tokens.json --address 127.0.0.1:0"
    ),
    # Hours of work: a part of it.
    "python bench/checks/fuzz.py": "python bench/checks/fuzz.py --cases 200",
    "python bench/checks/mutants.py": "python bench/checks/mutants.py --list",
    "python bench/load.py": "python bench/load.py --syncs 400",
}
# A command that measures fails on a busy machine; it must have printed this all the same.
MEASURES = {"python bench/load.py --syncs 400": "the store: each of 400 uploads once, sums to 1e-9"}
REPLACED = {
    "federation.example.org": "localhost",
    "0.0.0.0:50051": "0.0.0.0:0",
}  # in commands and code of the federation


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    after: str
    """The language of the block right before, if only an empty line is between."""

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def not_run(self):
        found = NOT_RUN.search(self.text)
        return found and found[1]


def list_blocks(page):
    """Yield the blocks of a page."""
    text, end, last = PAGES[page], 0, ""
    for found in re.finditer(r"^(`{3,})(\S*)\n(.*?)^\1$", text, re.MULTILINE | re.DOTALL):
        after = last if text[end : found.start()].strip() == "" else ""
        yield Block(page, text[: found.start()].count("\n") + 1, found[2], found[3], after)
        end, last = found.end(), found[2]


BLOCKS = [block for page in PAGES for block in list_blocks(page)]
SHELL = list(dict.fromkeys(block.page for block in BLOCKS if block.language == "bash"))


def find_block(page, language):
    """Return the only block of a language on a page."""
    (block,) = (block for block in BLOCKS if block.page == page and block.language == language)
    return block


# --- none is left out -----------------------------------------------------------------------------


def test_every_fence_belongs_to_a_block():
    for page, text in PAGES.items():
        assert len(re.findall(r"^\s*```", text, re.MULTILINE)) == 2 * len(
            list(list_blocks(page))
        ), page


def test_every_block_is_of_a_kind_that_is_run():
    """Python in test_docs.py and test_readme.py, shell below; the few others by name."""
    by_name = {
        ("docs/plugins.md", "toml"),
        ("docs/plugins.md", "cython"),
        ("docs/federation.md", "py"),
        ("docs/data.md", "py"),
    }
    for block in BLOCKS:
        known = block.language in ("python", "bash") or (block.page, block.language) in by_name
        output = block.language == "text" and (
            block.after in ("python", "bash") or block.page == "docs/federation.md"
        )
        navigation = block.language == "{toctree}"  # test_site.py
        assert known or output or navigation, (
            f"{block.place}: nothing runs this {block.language or 'block without a language'}"
        )
    for page, language in by_name:
        find_block(page, language)
    (shown,) = (block for block in BLOCKS if block.language == "text" and block.after == "")
    assert shown.text.startswith("client    state")  # what the demo shows, which has its test below


def test_few_blocks_are_not_run_and_each_says_why():
    reasons = {block.place: block.not_run for block in BLOCKS if block.not_run}
    assert sorted(reasons.values()) == [
        "it compiles the core anew, and runs them all",
        "it compiles the core anew, and takes an hour",
        "it publishes a package",
    ]
    assert all(
        text.count("not run in the tests") == len(NOT_RUN.findall(text)) for text in PAGES.values()
    )


def test_a_shorter_command_is_the_same_command_with_all_its_options():
    printed = {
        command for block in BLOCKS if block.language == "bash" for command in commands(block)
    }
    for line, instead in SHORTER.items():
        assert line in printed, f"no page has {line!r} any more"
        options = {word for word in shlex.split(line) if word.startswith("-")}
        assert options <= set(shlex.split(instead)), instead
        assert instead.split()[:2] == line.split()[:2]


def commands(block):
    """Yield the commands of a shell block, without comments; && separates several of a line."""
    for line in block.text.splitlines():
        for command in re.sub(r"(^|\s)#.*", "", line).split("&&"):
            if command.strip():
                yield command.strip().removesuffix("&").strip()


# --- shell ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", SHELL)
def test_every_command_of_a_page_runs(page, tmp_path, monkeypatch):
    """All in one folder. Servers come last, as what they need is made further down the page."""
    monkeypatch.chdir(tmp_path)
    prepare(page, tmp_path, monkeypatch)
    port, printed, later = find_free_port(), None, []
    with contextlib.ExitStack() as running:
        for block in (block for block in BLOCKS if block.page == page):
            if block.language == "text" and block.after == "bash":
                assert printed == block.text, (
                    f"{block.place}: the command before printed\n{printed}"
                )
            if block.language != "bash" or block.not_run:
                continue
            for line in commands(block):
                if (
                    line == "fedsuplin plugins"
                ):  # when the package is written, and the reader has installed it
                    install_what_it_registers(page, monkeypatch)
                instead = replace_addresses(SHORTER.get(line, line).replace("PORT", str(port)))
                if instead.startswith("fedsuplin serve"):
                    later.append(instead)
                else:
                    printed = run_command(instead, running)
        for line in later:
            serve(line, page)


def replace_addresses(text):
    """Replace addresses in a command or in code by those that the tests can use."""
    for here, there in REPLACED.items():
        text = text.replace(here, there)
    return text


def run_command(line, running):
    """Run a command, here or in a process, and return what it printed."""
    line, _, file = line.partition(" > ")
    words = shlex.split(line)
    if words[0] == "fedsuplin" and words[1] != "demo":
        done = CliRunner().invoke(root_command, words[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
        if file:
            Path(file.strip()).write_text(shrink_grid(done.stdout), encoding="utf-8")
        return done.stdout
    if words[:2] == ["pip", "install"]:
        return check_installation(words[2:])
    if words == ["pytest", "-n", "auto", "--dist", "loadfile"]:
        return None  # is running
    if words[0] == "dask":
        return start_dask(words, running)
    return run_in_a_process(line)


@functools.cache  # the README and a guide have the same demo
def run_in_a_process(line):
    """Run a command in a process of its own, and return what it printed."""
    words = shlex.split(line)
    here = {
        "fedsuplin": [sys.executable, "-m", "fedsuplin"],
        "python": [sys.executable],
        "openssl": ["openssl"],
    }
    words = [
        *here[words[0]],
        *(str(ROOT / word) if word.startswith("bench/") else word for word in words[1:]),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    fine = done.returncode == 0 or (line in MEASURES and MEASURES[line] in done.stdout)
    assert fine, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_installation(what):
    """Check that pip would find it: a folder or our name, with extras that exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for word in what:
        name, asked = re.fullmatch(r"(\.|fedsuplin)(?:\[(.*)\])?", word).groups()
        assert name and set(asked.split(",") if asked else ()) <= extras.keys(), word


def shrink_grid(grid):
    """Return the grid of `fedsuplin sweep --example` with fewer seeds and pulls."""
    assert "seeds = 10 " in grid and "horizon = 20_000\n" in grid
    return grid.replace("seeds = 10 ", "seeds = 2 ").replace(
        "horizon = 20_000\n", "horizon = 400\n"
    )


def start_dask(words, running):
    """Start a process that ends with the page; wait for a worker until it has connected."""
    from distributed import Client

    process = subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    running.callback(process.wait, timeout=60)
    running.callback(process.terminate)
    if words[1] == "worker":
        with Client(words[2], timeout="60s", set_as_default=False) as client:
            client.wait_for_workers(int(words[words.index("--nworkers") + 1]), timeout=120)


def serve(line, page):
    """Start a server, use it as the page does, and stop it as the page does."""
    process = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(line)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        listening = process.stdout.readline()
        assert listening.startswith("listening on grpc"), listening + process.stderr.read()
        if "--tls-cert" in line:
            code = replace_addresses(find_block(page, "py").text).replace(
                ":50051", ":" + listening.strip().rpartition(":")[2]
            )
            rng = np.random.default_rng(0)
            known = {"contexts": rng.uniform(-0.2, 0.2, (20, 25)), "reward": 0.5}
            exec(compile(code, page, "exec"), known)
            assert known["client"].n_observed == 1 and Path("client-3.db").exists()
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err


def find_free_port():
    """Return a port that no server uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- what pages need ------------------------------------------------------------------------------


def prepare(page, folder, monkeypatch):
    """Make what the commands of a page need."""
    if page in ("README.md", "docs/reproduction.md"):
        shrink_the_paper(monkeypatch)
    if page in ("docs/data.md", "docs/reproduction.md"):
        write_release(folder / "ml-20m", long_lists=3)
        write_release(folder / "ml-latest-small", long_lists=0)


def shrink_the_paper(monkeypatch):
    """Give the paper's problem a size that takes milliseconds, in every experiment."""
    sizes = {"dim": 4, "n_arms": 5, "n_clients": 4, "noise_scale": 0.1, "horizon": 400}
    for experiment in EXPERIMENTS.values():
        module = sys.modules[experiment.__module__]
        if hasattr(module, "PAPER"):
            monkeypatch.setattr(module, "PAPER", sizes)
    for name, values in {
        "clients": {"counts": (2, 4), "pulls_each": 100},
        "movielens": {"counts": (2, 3), "pulls_each": {"quick": 40}},
    }.items():
        for key, value in values.items():
            monkeypatch.setattr(EXPERIMENTS[name], key, value)


def write_release(folder, long_lists):
    """Write a made-up release in the format of ml-latest.

    It has 38 users, `long_lists` of whom like more than 2500 movies.
    """
    rng, folder = np.random.default_rng(0), Path(folder)
    folder.mkdir()
    words, n_movies = (
        np.array(["Action", "Comedy", "Drama", "Horror", "Mystery", "Romance", "War", "Western"]),
        2700,
    )
    movies = [
        (m, f"Movie {m}", "|".join(rng.choice(words, 2, replace=False)))
        for m in range(1, n_movies + 1)
    ]
    tags = [(1, m, f"topic{m % 40}", 0) for m in range(1, n_movies + 1)]
    liked = ((user, 2510 if user <= long_lists else 30) for user in range(1, 39))
    ratings = [
        (user, int(m) + 1, 5.0, 0)
        for user, n in liked
        for m in rng.choice(n_movies, n, replace=False)
    ]
    heads = {
        "movies": ("movieId", "title", "genres"),
        "ratings": ("userId", "movieId", "rating", "timestamp"),
    }
    heads |= {"tags": ("userId", "movieId", "tag", "timestamp")}
    for name, rows in {"movies": movies, "ratings": ratings, "tags": tags}.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([heads[name], *rows])


def install_what_it_registers(page, monkeypatch):
    """Register what the page's package registers, as `pip install -e .` would."""
    module = types.ModuleType("page_of_commands")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in BLOCKS:
        if block.page == page and block.language == "python":
            with contextlib.redirect_stdout(None):
                exec(compile(block.text, block.place, "exec"), vars(module))
            if "fedsuplin_register_variants" in block.text:
                break
    registry = Registry()
    registry.names("variants")
    registry.add(module, Source("restful", "fedsuplin-restful", "0.1"))
    for name, value in vars(registry).items():
        monkeypatch.setattr(plugins, name, value)


# --- by name --------------------------------------------------------------------------------------


def test_the_entry_point_of_the_guide_is_the_one_that_plugins_new_writes(tmp_path):
    block = find_block("docs/plugins.md", "toml")
    done = CliRunner().invoke(
        root_command, ["plugins", "new", "fedsuplin-restful", "--folder", str(tmp_path)]
    )
    assert done.exit_code == 0
    written = tomllib.loads(
        (tmp_path / "fedsuplin-restful" / "pyproject.toml").read_text(encoding="utf-8")
    )
    assert (
        tomllib.loads(block.text)["project"]["entry-points"] == written["project"]["entry-points"]
    )


@pytest.mark.compiles
def test_the_cython_of_the_guide_compiles_and_decides_like_its_python(tmp_path, monkeypatch):
    from Cython.Compiler.Main import CompilationOptions, compile_single

    import fedsuplin_ext
    from fedsuplin_ext.rules import from_cython

    header, source = re.split(
        r"^# rules\.pyx\n",
        find_block("docs/plugins.md", "cython").text.removeprefix("# rules.pxd\n"),
        flags=re.MULTILINE,
    )
    (tmp_path / "rules.pxd").write_text(header)
    (tmp_path / "rules.pyx").write_text(source)
    include = str(Path(fedsuplin_ext.get_include()))
    options = CompilationOptions(
        include_path=[str(tmp_path), include],
        language_level=3,
        output_file=str(tmp_path / "rules.c"),
    )
    monkeypatch.chdir(tmp_path)
    assert compile_single(str(tmp_path / "rules.pyx"), options, "rules").num_errors == 0
    library = tmp_path / f"rules{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-O0", "-w"]
    headers = [f"-I{sysconfig.get_path('include')}"]
    subprocess.run([*compiler, *headers, str(tmp_path / "rules.c"), "-o", str(library)], check=True)

    spec = importlib.util.spec_from_file_location("rules", library)
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    problem = fsl.SyntheticProblem(dim=4, n_arms=5, n_clients=3, seed=0)
    compiled = fsl.run(
        "async", problem, horizon=600, trigger=from_cython(rules, "rested", 0.3, 7.0)
    )
    python = fsl.run(
        "async", problem, horizon=600, trigger=lambda gain, elapsed: gain > 0.3 and elapsed >= 7
    )
    assert 0 < compiled.communication[-1] == python.communication[-1]


def test_the_example_of_movielens_runs_on_a_made_up_release(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_release("ml-20m", long_lists=3)
    write_release("ml-latest-small", long_lists=0)
    exec(compile(find_block("docs/data.md", "py").text, "docs/data.md", "exec"), {"fsl": fsl})
    sizes, ratio = capsys.readouterr().out.splitlines()
    assert sizes == "37 1110 2700" and float(ratio) > 0


def test_the_demo_shows_the_columns_that_the_page_shows():
    from fedsuplin.federation.demo.screen import make_clients_table

    head = next(
        block for block in BLOCKS if block.page == "docs/federation.md" and block.language == "text"
    ).text.splitlines()[0]
    shown = make_clients_table(types.SimpleNamespace(clients=[]))
    assert re.split(r"\s{2,}", head) == [column.header for column in shown.columns]
