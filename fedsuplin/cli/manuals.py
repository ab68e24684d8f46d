"""What the --help of each command says beyond its options, as data: arguments, examples, files, exit codes, environment.

Tests read the same data: every example is parsed, and docs/commands.md must say what is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from .exit_codes import EXIT_CODES

ENVIRONMENT = {
    "FEDSUPLIN_KERNELS": "The compiled kernels to use, avx2 or generic. [default: the best that this CPU runs]",
    "COLUMNS": "Width of tables and of this text. [default: the terminal's; 80 where there is none]",
    "NO_COLOR": "Set to anything, no colours.",
    "_FEDSUPLIN_COMPLETE": "Set by the completion script of a shell, which `fedsuplin completion` prints.",
}
COMPUTES, PRINTS = ("FEDSUPLIN_KERNELS", "COLUMNS", "NO_COLOR"), ("COLUMNS", "NO_COLOR")
WIDEST_LEFT = 24  # columns of a definition's left side; a longer one has its text on the next line
Terms = Mapping[str, str]


@dataclass(frozen=True)
class Manual:
    """The manual of one command."""

    summary: str
    """One line, as the list of commands has it."""
    examples: Terms
    """A command line, and what it does."""
    arguments: Terms = field(default_factory=dict)
    writes: Terms = field(default_factory=dict)
    """A file, and what is in it."""
    codes: Mapping[int, str] = field(default_factory=dict)
    """Exit codes that say something else here than in `CODES`, or more."""
    environment: tuple[str, ...] = PRINTS
    needs: str = ""
    """The extra to install, if there is one."""
    further_reading: str = "docs/commands.md"

    def write_arguments(self, formatter: click.HelpFormatter) -> None:
        write_terms(formatter, "Arguments", self.arguments)

    def write_rest(self, formatter: click.HelpFormatter) -> None:
        """What comes after the options."""
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
        write_words(formatter, "Read on", self.further_reading)


def write_terms(formatter: click.HelpFormatter, heading: str, terms: Terms) -> None:
    """Under a heading, each term with its text."""
    if terms:
        with formatter.section(heading):
            formatter.write_dl(list(terms.items()), col_max=WIDEST_LEFT)


def write_words(formatter: click.HelpFormatter, heading: str, words: str) -> None:
    if words:
        with formatter.section(heading):
            formatter.write_text(words)


MAIN = Manual(
    summary="",
    examples={
        "fedsuplin run": "FedSupLinUCB at the paper's setting",
        "fedsuplin run sync --out results": "the synchronous one; data and figure into results/",
        "fedsuplin compare": "it and everything the paper compares it with",
        "fedsuplin sweep grid.toml": "grids of anything × seeds, to one table",
        "fedsuplin reproduce": "the paper's experiments, with a verdict for each claim",
        "fedsuplin variants": "what there is to run",
        "fedsuplin plugins new my-gossip": "a plugin package of your own",
        "fedsuplin serve --store server.db --tokens tokens.json": "the server of a live federation",
        "fedsuplin demo federation": "one to watch, on this machine",
        "fedsuplin bench": "how fast this machine is at it",
    },
    environment=tuple(ENVIRONMENT),
    further_reading="docs/commands.md has exit codes, JSON keys and completion; README.md the rest",
)
VARIANT_ARGUMENT = "What to play: a name that `fedsuplin variants` lists; sync+robust combines two."
FIGURE_FILE = "Its figure; needs pip install 'fedsuplin[plot]', without which the rest is written."
RUN = Manual(
    summary="Play a variant on a problem.",
    arguments={"[VARIANT]": f"{VARIANT_ARGUMENT} [default: async]"},
    examples={
        "fedsuplin run": "async at the paper's setting",
        "fedsuplin run sync --horizon 1e6 --out results": "a million pulls; data, table and figure into results/",
        "fedsuplin run async --preset theory": "with the constants of Theorem 1, and from which horizon on they help",
        "fedsuplin run robust --budget 200 --corruption 100": "an adversary with twice the budget that is assumed",
        "fedsuplin run async --trigger periodic --every 50 --json": "another trigger; numbers for a script",
        "fedsuplin run async --horizon 1e9 --checkpoint long.ckpt": "a long run that can be stopped, and goes on",
    },
    writes={
        "FOLDER/VARIANT.npz": "The result, for fsl.RunResult.load.",
        "FOLDER/VARIANT.csv": "The recorded pulls, a row each.",
        "FOLDER/VARIANT.png": FIGURE_FILE,
        "FILE of --checkpoint": "The run, to go on from.",
    },
    environment=COMPUTES,
    further_reading="docs/presets.md for the constants, docs/checkpoints.md for long runs, docs/commands.md for the JSON keys",
)
COMPARE = Manual(
    summary="Play several policies on the same problem.",
    arguments={
        "[POLICIES]...": "Names that `fedsuplin variants` lists. [default: all that suit the problem]"
    },
    examples={
        "fedsuplin compare async sync oful --out results": "three of them; tables and figure into results/",
        "fedsuplin compare --seeds 20 --preset theory --bounds --out results": "all, with the bounds of Table 1 as lines",
        "fedsuplin compare --problem fixed-arms pe fed-pe async --arms 50 --dim 5": "those for fixed arms, too",
    },
    writes={
        "FOLDER/comparison.csv": "The table, a row a policy.",
        "FOLDER/curves.csv": "Regret and communication, a row a policy, seed and recorded pull.",
        "FOLDER/comparison.png": FIGURE_FILE,
    },
    environment=COMPUTES,
    further_reading="docs/baselines.md for what each policy is, docs/commands.md for the JSON keys",
)
RUNS_FAILED = f"{EXIT_CODES[1]} Or a run failed: the table says why, and the rest was played."
SWEEP = Manual(
    summary="Play grids of policies and problems × seeds.",
    arguments={"FILE": "What to play, as TOML; --example prints one."},
    examples={
        "fedsuplin sweep --example > grid.toml": "a file to start from",
        "fedsuplin sweep grid.toml": "play it; files go to grid/",
        "fedsuplin sweep grid.toml --backend processes --workers 4": "four processes at a time",
        "fedsuplin sweep grid.toml --backend dask://10.0.0.5:8786 --out results": "on a Dask cluster",
    },
    writes={
        "FOLDER/runs.jsonl": "Every run as it ends: what a sweep that was stopped goes on from.",
        "FOLDER/table.csv": "A row a run.",
        "FOLDER/summary.csv": "Means and standard errors over the seeds, a row a point of the grids.",
        "FOLDER/curves.csv": "Where the file has `record`, a row a run and recorded pull.",
        "FOLDER/sweep.png": FIGURE_FILE,
    },
    codes={1: RUNS_FAILED},
    environment=COMPUTES,
    needs="pip install 'fedsuplin[sweep]', for --backend dask://… 'fedsuplin[dask]'",
    further_reading="docs/sweeps.md for the file and the backends, docs/commands.md for the JSON keys",
)
REPRODUCE = Manual(
    summary="The paper's experiments, with a verdict for each claim.",
    arguments={"[NAMES]...": "Experiments of the list above, or all. [default: all]"},
    examples={
        "fedsuplin reproduce --quick": "all but MovieLens, in a minute",
        "fedsuplin reproduce arrivals clients tradeoff": "three of them, at the paper's sizes",
        "fedsuplin reproduce all --movielens ml-20m": "all, with the ratings in the folder ml-20m",
    },
    writes={
        "FOLDER/report.html": "One page with every figure, verdict and setting; experiments run into FOLDER before stay on it.",
        "FOLDER/NAME/": "Of each experiment: its runs, tables, verdicts and figure.",
        "FILE": "With --markdown FILE: the page in Markdown, as docs/results.md is, with its figures beside it.",
    },
    codes={0: "Done, whatever the verdicts are.", 1: RUNS_FAILED},
    environment=COMPUTES,
    needs="pip install 'fedsuplin[reproduce]'",
    further_reading="docs/reproduction.md for what was found, docs/commands.md for the JSON keys",
)
BENCH = Manual(
    summary="Measure what this machine does.",
    examples={
        "fedsuplin bench": "all of it, as tables",
        "fedsuplin bench --quick --json": "in a few seconds, for a script",
        "fedsuplin bench --markdown docs/benchmarks.md": "as a page, such as docs/benchmarks.md",
    },
    writes={"FILE": "With --markdown FILE: the tables as a page in Markdown."},
    environment=COMPUTES,
    further_reading="docs/speed.md for what a round costs, docs/commands.md for the JSON keys",
)
VARIANTS = Manual(
    summary="List the variants, or work out one's numbers.",
    arguments={
        "[NAME]": "A variant whose numbers to work out; sync+robust combines two. [default: list them all]"
    },
    examples={
        "fedsuplin variants": "what there is to run",
        "fedsuplin variants async --horizon 1e7": "its radii and thresholds for ten million pulls",
    },
    further_reading="README.md for the variants, docs/presets.md for the presets, docs/commands.md for the JSON keys",
)
PLUGINS = Manual(
    summary="List what is installed and what failed to load, or start a package of your own.",
    examples={
        "fedsuplin plugins": "what is installed, and what failed to load",
        "fedsuplin plugins new my-gossip": "a package of your own to start from",
    },
    codes={0: "Done, also where a plugin failed to load: the list says why."},
    further_reading="docs/plugins.md for writing one, docs/hooks.md for every hook, docs/commands.md for the JSON keys",
)
PLUGINS_NEW = Manual(
    summary="Write a plugin package to start from.",
    arguments={"NAME": "What `pip install` would call the package."},
    examples={
        "fedsuplin plugins new my-gossip": "into the folder my-gossip",
        "fedsuplin plugins new fedsuplin-gossip --folder code": "into code/fedsuplin-gossip",
    },
    writes={
        "FOLDER/NAME/": "pyproject.toml, README.md, the module and its tests: all of them, or nothing."
    },
    further_reading="docs/plugins.md for writing a plugin, docs/commands.md for the JSON keys",
)
COMPLETION = Manual(
    summary="Print the script that completes names after TAB.",
    arguments={"SHELL": "bash, zsh or fish."},
    examples={
        "fedsuplin completion bash": "print the script for bash",
        "fedsuplin completion fish > ~/.config/fish/completions/fedsuplin.fish": "install the one for fish",
    },
    environment=("_FEDSUPLIN_COMPLETE",),
)
FEDERATION_EXTRA = "pip install 'fedsuplin[federation]'"
SERVE = Manual(
    summary="The server of a live federation.",
    arguments={"[VARIANT]": "async, sync, …; needed for a store that is new. [default: what the store was made for]"},
    examples={
        "fedsuplin tokens tokens.json --clients 20 --out secrets": "who may come in: do this first",
        "fedsuplin serve async --dim 25 --arms 20 --clients 20 --store server.db --tokens tokens.json": "on this machine",
        "fedsuplin serve --store server.db --tokens tokens.json --address 0.0.0.0:50051 --tls-cert cert.pem --tls-key key.pem":
            "for all who get there, with TLS; the store knows the rest",
    },
    writes={"FILE of --store": "All that the server knows (SQLite): durable before it is answered."},
    codes={0: "Ended gracefully, by Ctrl-C or SIGTERM.", 130: "Stopped by a Ctrl-C before it listened."},
    environment=("FEDSUPLIN_KERNELS",),
    needs=FEDERATION_EXTRA,
    further_reading="docs/federation.md",
)  # fmt: skip
TOKENS = Manual(
    summary="Make the tokens of a federation's clients.",
    arguments={"FILE": "Gets the hashes of the tokens, which is what a server needs."},
    examples={
        "fedsuplin tokens tokens.json --clients 20 --out secrets": "a file for each client, in secrets/",
        "fedsuplin tokens tokens.json --clients 3 --replace": "print three new ones; the old are void",
    },
    writes={
        "FILE": "The hashes.",
        "FOLDER/client-ID.token": "With --out, the token of one client, readable by you alone.",
    },
    environment=(),
    further_reading="docs/federation.md, docs/commands.md for the JSON keys",
)
DEMO = Manual(
    summary="Something to watch.",
    examples={"fedsuplin demo federation": "a server and five clients, killed now and then"},
    environment=PRINTS,
    needs=FEDERATION_EXTRA,
    further_reading="docs/federation.md",
)
DEMO_FEDERATION = Manual(
    summary="A server and clients on this machine, killed now and then.",
    examples={
        "fedsuplin demo federation": "half a minute of it",
        "fedsuplin demo federation --variant sync --clients 8 --kill-every 2": "clients that sync together",
        "fedsuplin demo federation --pulls 100 --seconds 3 --kill-every 0 --json": "a short one without kills, for a script",
    },
    codes={1: f"{EXIT_CODES[1]} Or the server's sums are not what was observed."},
    environment=COMPUTES,
    needs=FEDERATION_EXTRA,
    further_reading="docs/federation.md, docs/commands.md for the JSON keys",
)
