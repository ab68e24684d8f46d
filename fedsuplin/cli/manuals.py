"""What --help says beyond the options, as data: arguments, examples, files, exit codes.

Tests read the same data: every example is parsed, and docs/commands.md must agree with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from .exit_codes import EXIT_CODES

ENVIRONMENT = {
    "FEDSUPLIN_KERNELS": "Compiled kernels: avx512, avx2 or generic. "
    "[default: the best for this CPU]",
    "COLUMNS": "Width of tables and help. [default: the terminal's, or 80]",
    "NO_COLOR": "Set to anything: no colours.",
    "_FEDSUPLIN_COMPLETE": "Set by the script that `fedsuplin completion` prints.",
}
COMPUTES, PRINTS = ("FEDSUPLIN_KERNELS", "COLUMNS", "NO_COLOR"), ("COLUMNS", "NO_COLOR")
WIDEST_LEFT = 24  # columns; the text of a longer term begins on the next line
Terms = Mapping[str, str]


@dataclass(frozen=True)
class Manual:
    """The manual of one command."""

    summary: str
    """One line, for the list of commands."""
    examples: Terms
    """A command line, and what it does."""
    arguments: Terms = field(default_factory=dict)
    writes: Terms = field(default_factory=dict)
    """A file, and what is in it."""
    codes: Mapping[int, str] = field(default_factory=dict)
    """Exit codes that mean something else, or more, than in `EXIT_CODES`."""
    environment: tuple[str, ...] = PRINTS
    needs: str = ""
    """The extra to install, if there is one."""
    further_reading: str = "docs/commands.md"

    def write_arguments(self, formatter: click.HelpFormatter) -> None:
        """Write the part of a command's manual that comes before the options."""
        write_terms(formatter, "Arguments", self.arguments)

    def write_rest(self, formatter: click.HelpFormatter) -> None:
        """Write the part of a command's manual that comes after the options."""
        write_terms(formatter, "Examples", self.examples)
        write_terms(formatter, "Writes", self.writes)
        write_terms(
            formatter,
            "Exit codes",
            {str(code): text for code, text in (EXIT_CODES | dict(self.codes)).items()},
        )
        write_terms(
            formatter, "Environment", {name: ENVIRONMENT[name] for name in self.environment}
        )
        write_words(formatter, "Needs", self.needs)
        write_words(formatter, "Read more", self.further_reading)


def write_terms(formatter: click.HelpFormatter, heading: str, terms: Terms) -> None:
    """Write terms of a manual, such as its examples, with their texts under a heading."""
    if terms:
        with formatter.section(heading):
            formatter.write_dl(list(terms.items()), col_max=WIDEST_LEFT)


def write_words(formatter: click.HelpFormatter, heading: str, words: str) -> None:
    """Write a paragraph of a manual, such as what the command needs, under a heading."""
    if words:
        with formatter.section(heading):
            formatter.write_text(words)


MAIN = Manual(
    summary="",
    examples={
        "fedsuplin run": "FedSupLinUCB at the paper's setting",
        "fedsuplin run sync --out results": "synchronous; data and figure into results/",
        "fedsuplin compare": "all the algorithms of the paper, side by side",
        "fedsuplin sweep grid.toml": "grids of policies, problems and seeds, as one table",
        "fedsuplin reproduce": "the paper's experiments, with a verdict for each claim",
        "fedsuplin variants": "what you can run",
        "fedsuplin plugins new my-gossip": "a plugin package of your own",
        "fedsuplin serve --store server.db --tokens tokens.json": "the server of a live federation",
        "fedsuplin demo federation": "a federation to watch, on this machine",
        "fedsuplin bench": "how fast this machine is",
    },
    environment=tuple(ENVIRONMENT),
    further_reading="docs/commands.md for exit codes, JSON keys and completion; README.md",
)
JSON_KEYS = "docs/commands.md for the JSON keys"
VARIANT_ARGUMENT = "What to play: a name from `fedsuplin variants`, or two, as in sync+robust."
FIGURE_FILE = "The figure. Without pip install 'fedsuplin[plot]', only the other files are written."
RUN = Manual(
    summary="Play a variant on a problem.",
    arguments={"[VARIANT]": f"{VARIANT_ARGUMENT} [default: async]"},
    examples={
        "fedsuplin run": "async at the paper's setting",
        "fedsuplin run sync --horizon 1e6 --out results": (
            "a million pulls; data, table and figure into results/"
        ),
        "fedsuplin run async --preset theory": (
            "the constants of Theorem 1, and the horizon from which they help"
        ),
        "fedsuplin run robust --budget 200 --corruption 100": (
            "an adversary with twice the assumed budget"
        ),
        "fedsuplin run async --trigger periodic --every 50 --json": (
            "another trigger; numbers for a script"
        ),
        "fedsuplin run async --horizon 1e9 --checkpoint long.ckpt": (
            "a long run that can be stopped and continued"
        ),
    },
    writes={
        "FOLDER/VARIANT.npz": "The result, for fsl.RunResult.load.",
        "FOLDER/VARIANT.csv": "The recorded pulls, one row each.",
        "FOLDER/VARIANT.png": FIGURE_FILE,
        "FILE of --checkpoint": "The run, to continue from.",
    },
    environment=COMPUTES,
    further_reading="docs/presets.md for the constants, docs/checkpoints.md for long runs, "
    f"{JSON_KEYS}",
)
COMPARE = Manual(
    summary="Play several policies on the same problem.",
    arguments={
        "[POLICIES]...": "Names from `fedsuplin variants`. [default: all that suit the problem]"
    },
    examples={
        "fedsuplin compare async sync oful --out results": (
            "three policies; tables and figure into results/"
        ),
        "fedsuplin compare --seeds 20 --preset theory --bounds --out results": (
            "all policies, with the bounds of Table 1 as lines"
        ),
        "fedsuplin compare --problem fixed-arms pe fed-pe async --arms 50 --dim 5": (
            "policies for fixed arms, and async"
        ),
    },
    writes={
        "FOLDER/comparison.csv": "The table, one row per policy.",
        "FOLDER/curves.csv": "Regret and communication: one row per policy, seed, recorded pull.",
        "FOLDER/comparison.png": FIGURE_FILE,
    },
    environment=COMPUTES,
    further_reading=f"docs/baselines.md for what each policy is, {JSON_KEYS}",
)
RUNS_FAILED = f"{EXIT_CODES[1]} Or a run failed: the table has the reason, and the rest was played."
SWEEP = Manual(
    summary="Play grids of policies and problems × seeds.",
    arguments={"FILE": "What to play, as TOML; --example prints one."},
    examples={
        "fedsuplin sweep --example > grid.toml": "a file to start from",
        "fedsuplin sweep grid.toml": "play it; files go to grid/",
        "fedsuplin sweep grid.toml --backend processes --workers 4": "four processes at a time",
        "fedsuplin sweep grid.toml --backend dask://10.0.0.5:8786 --out results": (
            "on a Dask cluster"
        ),
    },
    writes={
        "FOLDER/runs.jsonl": "Every run as it ends; a stopped sweep continues from here.",
        "FOLDER/table.csv": "One row per run.",
        "FOLDER/summary.csv": "Means and standard errors over seeds: one row per grid point.",
        "FOLDER/curves.csv": "If FILE has `record`: one row per run and recorded pull.",
        "FOLDER/sweep.png": FIGURE_FILE,
    },
    codes={1: RUNS_FAILED},
    environment=COMPUTES,
    needs="pip install 'fedsuplin[sweep]' for processes, 'fedsuplin[dask]' for dask://…",
    further_reading=f"docs/sweeps.md for the file and the backends, {JSON_KEYS}",
)
REPRODUCE = Manual(
    summary="Run the paper's experiments, with a verdict for each claim.",
    arguments={"[NAMES]...": "Experiments from the list above. [default: all]"},
    examples={
        "fedsuplin reproduce --quick": "all but MovieLens, in a minute",
        "fedsuplin reproduce arrivals clients tradeoff": "three of them, at the paper's sizes",
        "fedsuplin reproduce all --movielens ml-20m": "all, with the ratings in the folder ml-20m",
    },
    writes={
        "FOLDER/report.html": "A page with all figures, verdicts and settings; experiments that "
        "were run into FOLDER earlier stay on it.",
        "FOLDER/NAME/": "The runs, tables, verdicts and figure of an experiment.",
        "FILE": "With --markdown FILE: the page in Markdown, with its figures beside it; "
        "docs/results.md is one.",
    },
    codes={0: "Done, whatever the verdicts are.", 1: RUNS_FAILED},
    environment=COMPUTES,
    needs="pip install 'fedsuplin[reproduce]'",
    further_reading=f"docs/reproduction.md for what was found, {JSON_KEYS}",
)
BENCH = Manual(
    summary="Measure this machine, or what a round of some policies costs.",
    arguments={
        "[NAMES]...": "Variants, or registered triggers, weightings or policies, which are then "
        "parts of async. [default: measure this machine]"
    },
    examples={
        "fedsuplin bench": "this machine, as tables",
        "fedsuplin bench async sync --against numpy-linucb": "two policies beside NumPy",
        "fedsuplin bench async --trigger periodic --against async": "what another trigger costs",
        "fedsuplin bench async --dim 5,25 --arms 5,20 --against numpy-layered --figure cost.png": (
            "over sizes, as a figure"
        ),
        "fedsuplin bench async --against async": "how far two measurements are apart",
        "fedsuplin bench --quick --json": "in a few seconds, for a script",
        "fedsuplin bench --markdown docs/benchmarks.md": "as a page, such as docs/benchmarks.md",
    },
    writes={
        "FILE of --markdown": "The tables as a page in Markdown; without names, with a chart "
        "beside it.",
        "FILE of --figure": "The figure.",
    },
    environment=COMPUTES,
    needs="pip install 'fedsuplin[plot]' for figure and chart, 'fedsuplin[peers]' to compare with "
    "other libraries; without them these are left out, with a notice",
    further_reading=f"docs/speed.md for what a round costs, {JSON_KEYS}",
)
VARIANTS = Manual(
    summary="List the variants, or show the numbers of one.",
    arguments={
        "[NAME]": "A variant whose numbers to show; sync+robust combines two. [default: list all]"
    },
    examples={
        "fedsuplin variants": "what you can run",
        "fedsuplin variants async --horizon 1e7": "radii and thresholds for ten million pulls",
    },
    further_reading=f"README.md for the variants, docs/presets.md for the presets, {JSON_KEYS}",
)
PLUGINS = Manual(
    summary="List the installed plugins, or start a package of your own.",
    examples={
        "fedsuplin plugins": "what is installed, and what failed to load",
        "fedsuplin plugins new my-gossip": "a package of your own to start from",
    },
    codes={0: "Done, even if a plugin failed to load: the list has the reason."},
    further_reading=f"docs/plugins.md for writing one, docs/hooks.md for every hook, {JSON_KEYS}",
)
PLUGINS_NEW = Manual(
    summary="Write a plugin package to start from.",
    arguments={"NAME": "Name of the package, as in `pip install NAME`."},
    examples={
        "fedsuplin plugins new my-gossip": "into the folder my-gossip",
        "fedsuplin plugins new fedsuplin-gossip --folder code": "into code/fedsuplin-gossip",
    },
    writes={
        "FOLDER/NAME/": "pyproject.toml, README.md, the module and its tests; all of them or none."
    },
    further_reading=f"docs/plugins.md for writing a plugin, {JSON_KEYS}",
)
COMPLETION = Manual(
    summary="Print the script that completes names after TAB.",
    arguments={"SHELL": "bash, zsh or fish."},
    examples={
        "fedsuplin completion bash": "print the script for bash",
        "fedsuplin completion fish > ~/.config/fish/completions/fedsuplin.fish": (
            "install the script for fish"
        ),
    },
    environment=("_FEDSUPLIN_COMPLETE",),
)
FEDERATION_EXTRA = "pip install 'fedsuplin[federation]'"
SERVE_NEW = (
    "fedsuplin serve async --dim 25 --arms 20 --clients 20 --store server.db --tokens tokens.json"
)
SERVE_TLS = (
    "fedsuplin serve --store server.db --tokens tokens.json --address 0.0.0.0:50051 "
    "--tls-cert cert.pem --tls-key key.pem"
)
SERVE = Manual(
    summary="Serve a live federation.",
    arguments={
        "[VARIANT]": "async, sync, …; needed for a new store. [default: the one in the store]"
    },
    examples={
        "fedsuplin tokens tokens.json --clients 20 --out secrets": "do this first: make tokens",
        SERVE_NEW: "a new store, for clients on this machine",
        SERVE_TLS: "an existing store, for other machines, with TLS",
    },
    writes={"FILE of --store": "All that the server has (SQLite), on disk before it answers."},
    codes={
        0: "Ended gracefully, by Ctrl-C or SIGTERM.",
        130: "Stopped by Ctrl-C before it listened.",
    },
    environment=("FEDSUPLIN_KERNELS",),
    needs=FEDERATION_EXTRA,
    further_reading="docs/federation.md",
)
TOKENS = Manual(
    summary="Make the tokens of a federation's clients.",
    arguments={"FILE": "Where to write the hashes of the tokens, for the server."},
    examples={
        "fedsuplin tokens tokens.json --clients 20 --out secrets": "one file per client",
        "fedsuplin tokens tokens.json --clients 3 --replace": (
            "print three new tokens; the old ones are void"
        ),
    },
    writes={
        "FILE": "The hashes.",
        "FOLDER/client-ID.token": "With --out, the token of one client, readable by you alone.",
    },
    environment=(),
    further_reading=f"docs/federation.md, {JSON_KEYS}",
)
DEMO = Manual(
    summary="Watch a live federation on this machine.",
    examples={"fedsuplin demo federation": "a server and five clients, killed now and then"},
    environment=PRINTS,
    needs=FEDERATION_EXTRA,
    further_reading="docs/federation.md",
)
DEMO_FEDERATION = Manual(
    summary="A server and clients on this machine, killed now and then.",
    examples={
        "fedsuplin demo federation": "half a minute of play",
        "fedsuplin demo federation --variant sync --clients 8 --kill-every 2": (
            "clients that sync together"
        ),
        "fedsuplin demo federation --pulls 100 --seconds 3 --kill-every 0 --json": (
            "a short one without kills, for a script"
        ),
    },
    codes={1: f"{EXIT_CODES[1]} Or the server's sums are not what clients observed."},
    environment=COMPUTES,
    needs=FEDERATION_EXTRA,
    further_reading=f"docs/federation.md, {JSON_KEYS}",
)
