"""The command `fedsuplin`: options in, a problem and an algorithm made of them, a run, and what `report.py` tells."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import platform
import shlex
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from fedsuplin_ext import norms

from . import benchmark, completion, manuals, options, report, scaffold
from .algorithm import AXES, PRESETS, Algorithm, Variant, composed, keywords_of
from .comparison import compare, needs_fixed_arms, suiting
from .errors import FederationError, FedsuplinError, InterruptedRun, InvalidInput, PluginWarning
from .federation.commands import demo_command, serve_command, tokens_command
from .fixed_arms import FixedArmsProblem
from .problem import Problem, SyntheticProblem
from .registry import needed_by, parameters_of, plugins
from .reproduce import reproduce
from .result import RunResult
from .run import make_for, run, software
from .setting import positive_integer
from .sweep import SweepProgress, read_plan, sweep

INTERRUPTED = 130  # 128 + SIGINT, as shells have it

# Which keyword an option becomes: of a problem, of its noise, of the algorithm.
OF_SYNTHETIC = {"dim": "dim", "arms": "n_arms", "clients": "n_clients"}
OF_SYNTHETIC |= {name: name for name in ("horizon", "contexts", "arrival", "seed")}
OF_PROBLEM = {"noise_scale": "noise_scale", "bound": "R", "budget": "corruption"}
KEYWORDS = OF_SYNTHETIC | {"noise": "noise"} | OF_PROBLEM
OF_ALGORITHM = {name: name for name in ("delta", "alpha_scale", "ridge", "theta_bound", "C", "D", "R", "corruption", "every")}
OF_ALGORITHM["sigma"] = "noise_scale"
OF_RUN = OF_SYNTHETIC | {"record": "record", "checkpoint": "checkpoint", "checkpoint_every": "every"}


class Commands(options.SectionedGroup):
    """Turns whatever can go wrong into one line and an exit code, once, here."""

    def invoke(self, ctx: click.Context) -> Any:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: click.echo(f"Warning: {message}", err=True)
            try:
                return super().invoke(ctx)
            except FedsuplinError as error:
                raise failure(str(error), 1 if isinstance(error, FederationError) else 2) from error
            except BrokenPipeError:
                raise  # click ends quietly
            except OSError as error:
                raise failure(f"{error.filename or nameless(error)}: {error.strerror or error}", 1) from error
            except MemoryError as error:
                raise failure(f"not enough memory for these sizes: {error}".rstrip(": "), 1) from error
            except KeyboardInterrupt:
                click.echo("stopped", err=True)
                ctx.exit(INTERRUPTED)


class WrongUse(click.ClickException):
    """What was asked for can't be done."""

    exit_code = 2


def failure(message: str, exit_code: int) -> click.ClickException:
    return WrongUse(message) if exit_code == WrongUse.exit_code else click.ClickException(message)


def nameless(error: OSError) -> str:
    """Where it happened when the error does not say: every file that we write says its name."""
    return "standard output" if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO) else "a file"


def show_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """What a report of a bug should have in it; the version alone is the last word of the first line."""
    if not wanted or context.resilient_parsing:
        return
    used = software(norms.default())
    click.echo(f"fedsuplin, version {used['fedsuplin']}")
    click.echo(f"Python {used['python']}, NumPy {used['numpy']}, SciPy {used['scipy']}")
    click.echo(f"kernels {used['kernels']} (this CPU runs {', '.join(norms.available())})")
    click.echo(platform.platform())
    context.exit()


@click.group(
    cls=Commands, manual=manuals.MAIN, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=show_version,
    help="Show the version, those of Python, NumPy and SciPy, and the compiled kernels in use.",
)
def main() -> None:
    """Federated linear bandits at compiled speed: FedSupLinUCB in its four variants, everything the paper compares it with,
    and whatever plugins add; simulated, or live between machines.

    `fedsuplin COMMAND --help` has each command's options, examples and files.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # where there is no µ or θ, ? instead of an exception
    if norms.default() not in norms.available():
        raise InvalidInput(f"FEDSUPLIN_KERNELS is {norms.default()!r}; this CPU runs {' and '.join(norms.available())}")


# --- fedsuplin run ------------------------------------------------------------------------------------------------


@main.command("run", short_help="Play a variant on a problem.", cls=options.SectionedCommand, manual=manuals.RUN)
@click.argument("variant", default="async", shell_complete=completion.variants)
@options.add(options.SIZES, options.PROBLEM, options.CONSTANTS, options.PARTS, options.RECORD, options.CHECKPOINT)
@options.add(options.output("nothing is written"))
@click.pass_context
def run_command(
    context: click.Context,
    /,
    variant: str,
    record: str | float,
    checkpoint: Path | None,
    checkpoint_every: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Play VARIANT on a synthetic problem, or another, and compare it with uniform random play on the same rounds.

    Regret, communication, pulls by layer and whether the theorem's guarantee holds are shown at the end. Ctrl-C stops a run
    and shows what was recorded until then.
    """
    problem, algorithm = planned(variant, given)
    if checkpoint is None and checkpoint_every is not None:
        raise InvalidInput("--checkpoint-every needs --checkpoint, the file to keep the run in")
    if out is not None:
        check_folder(out)

    kept = functools.partial(report.kept_in, checkpoint, resumed=checkpoint.exists()) if checkpoint is not None else None
    tell = functools.partial(closing, algorithm=algorithm, problem=problem, kept=kept, out=out, as_json=as_json, quiet=quiet)
    try:
        with options.as_typed(OF_RUN):
            result = play(algorithm, problem, quiet, record=record, checkpoint=checkpoint, every=checkpoint_every)
    except FedsuplinError as error:
        if error.result is not None:
            tell(error.result)
        raise
    tell(result)
    if not result.complete:
        context.exit(INTERRUPTED)


def planned(name: str, given: dict[str, Any]) -> tuple[Problem, Algorithm]:
    """What the options mean: a problem, and an algorithm that knows the truth about its noise unless told otherwise."""
    refuse_named(given["extra"])
    parts = {axis: given["assume" if axis == "noise" else axis] for axis in AXES}
    _, recipe = composed(name, parts)
    takes = keywords_of(recipe)
    given = given | {"problem": given["problem"] or ("fixed-arms" if needs_fixed_arms(recipe) else "synthetic")}
    problem, drawn = problem_of(given["noise"] or natural_noise(recipe), given)
    told = constants(name, takes, drawn, problem, given)
    told |= {"preset": given["preset"], "syncs": given["syncs"], "lazy": given["lazy"]} | parts
    with options.as_typed(OF_SYNTHETIC | OF_ALGORITHM):
        return problem, make_for(name, problem, problem.horizon or positive_integer("horizon", given["horizon"]), told)


def problem_of(noise: str, given: dict[str, Any]) -> tuple[Problem, set[str]]:
    """The problem that the options describe, and the keywords that --set may have for it."""
    with options.as_typed(KEYWORDS):
        if given["problem"] == "synthetic":
            drawn = set(parameters_of(plugins.factory("noise_models", noise))) | of_arrival(given)
            return synthetic(noise, drawn, given), drawn
        factory = plugins.factory("problems", given["problem"])
        drawn = set(parameters_of(factory)) | (of_arrival(given) if factory is FixedArmsProblem else set())
        return other_problem(drawn, given), drawn


def of_arrival(given: dict[str, Any]) -> set[str]:
    """The keywords that the arrival pattern of --arrival takes."""
    return set() if given["arrival"] is None else set(parameters_of(plugins.factory("arrivals", given["arrival"])))


def constants(who: str, takes: set[str], drawn: set[str], problem: Problem, given: dict[str, Any]) -> dict[str, Any]:
    """The keywords of an algorithm, which knows the problem's R and corruption with either preset unless told otherwise."""
    known = {"R": problem.R, "corruption": problem.corruption}
    told = {key: value for key, value in known.items() if key in takes and value is not None}
    told |= used(given, OF_ALGORITHM, takes, who)
    return told | {key: value for key, value in given["extra"].items() if key in takes or key not in drawn}


def refuse_named(extra: dict[str, Any]) -> None:
    """--set is for what has no option of its own: those say whether the problem or the algorithm is meant."""
    for key in extra:
        named = [options.flag(option) for option, keyword in [*OF_PROBLEM.items(), *OF_ALGORITHM.items()] if keyword == key]
        if named:
            raise InvalidInput(f"--set {key} is not needed: use {' or '.join(named)}")


def natural_noise(recipe: Variant) -> str:
    """The noise that a variant is made for: what it assumes, as a problem draws it."""
    if not isinstance(recipe.noise, str):
        return "gaussian"
    return getattr(plugins.factory("noise_models", recipe.noise), "drawn_as", recipe.noise)


def other_problem(takes: set[str], given: dict[str, Any]) -> Problem:
    """A plugin's problem, with the sizes and options that it has a use for; one that was typed and it has not is an error."""
    defaults = {parameter.name: parameter.default for parameter in run_command.params}
    for option, keyword in KEYWORDS.items():
        if option != "horizon" and keyword not in takes and given[option] not in (None, defaults[option]):
            others = [options.flag(other) for other, key in KEYWORDS.items() if key in takes]
            raise InvalidInput(
                f"{given['problem']} has no use for {options.flag(option)}; it takes {', '.join(others) or 'no such option'}"
            )
    values = {KEYWORDS[option]: given[option] for option in KEYWORDS if KEYWORDS[option] in takes}
    values |= {key: value for key, value in given["extra"].items() if key in takes}
    check_needed(given["problem"], values)
    made: Problem = plugins.create("problems", given["problem"], {key: each for key, each in values.items() if each is not None})
    return made


def check_needed(name: str, values: dict[str, Any]) -> None:
    """A problem's parameters that have no default: --set has words and numbers for them, and no arrays."""
    if name == "array":
        raise InvalidInput("array is made of arrays, so in Python: fsl.ArrayProblem(contexts, clients, …), see docs/data.md")
    missing = [key for key in needed_by(plugins.factory("problems", name)) if values.get(key) is None]
    if missing:
        how = " ".join(f"--set {key}=…" for key in missing)
        raise InvalidInput(f"{name} needs {' and '.join(missing)}: give {how}")


def synthetic(noise: str, drawn: set[str], given: dict[str, Any]) -> SyntheticProblem:
    told = used(given, OF_PROBLEM, drawn, f"{noise} noise")
    if "corruption" in drawn:
        told.setdefault("corruption", options.DEFAULT_BUDGET)
    told |= {key: value for key, value in given["extra"].items() if key in drawn}
    as_given = {keyword: given[option] for option, keyword in OF_SYNTHETIC.items()}
    return SyntheticProblem(**as_given, noise=noise, **told)


def used(given: dict[str, Any], keywords: dict[str, str], takes: set[str], who: str) -> dict[str, Any]:
    """The options that were given, as keywords; one that `who` has no use for is an error."""
    for option, keyword in keywords.items():
        if given[option] is not None and keyword not in takes:
            others = [options.flag(other) for other, key in keywords.items() if key in takes]
            raise InvalidInput(f"{who} has no use for {options.flag(option)}; it takes {', '.join(others) or 'no such option'}")
    return {keyword: given[option] for option, keyword in keywords.items() if given[option] is not None}


def check_folder(folder: Path) -> None:
    """Make the folder and write a file in it, before a long run finds out that it can't."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (FileExistsError, NotADirectoryError) as error:  # nor will it be another time
        raise failure(f"can't write to --out {folder}: it is not a folder", 2) from error
    except OSError as error:
        raise failure(f"can't write to --out {folder}: {error.strerror or error}", 1) from error


def play(algorithm: Algorithm, problem: Problem, quiet: bool, **options: Any) -> RunResult:
    """The run, with a progress bar where somebody watches. Ctrl-C gives a result that is not complete."""
    bar = progress_bar(quiet, TextColumn("{task.completed:,.0f} of {task.total:,.0f} pulls"))
    with bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", InterruptedRun)  # the table says it
        task = bar.add_task(algorithm.name, total=algorithm.horizon)
        return run(algorithm, problem, progress=lambda done, total: bar.update(task, completed=done), **options)


def progress_bar(quiet: bool, counts: TextColumn) -> Progress:
    """On standard error, where somebody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet or not sys.stderr.isatty())


def closing(
    result: RunResult,
    *,
    algorithm: Algorithm,
    problem: Any,
    kept: Callable[..., str] | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Files, then table or JSON."""
    numbers = report.summary(result, algorithm, problem)
    files, missing = report.write_files(result, out, algorithm.name) if out is not None else ([], None)
    told = kept(complete=result.complete) if kept is not None else None
    notices = [*report.notices(numbers), *(notice for notice in (told, missing) if notice)]
    if as_json:
        report.print_json(numbers | {"notices": notices, "files": files})
    elif not quiet:
        console = report.console()
        console.print(report.run_table(numbers, problem, algorithm))
        for notice in notices:
            console.print(f"\n{notice}", style="yellow")
        for number, file in enumerate(files):
            click.echo(f"wrote {file}" if number else f"\nwrote {file}")


# --- fedsuplin compare --------------------------------------------------------------------------------------------


@main.command(
    "compare", short_help="Play several policies on the same problem.", cls=options.SectionedCommand, manual=manuals.COMPARE
)
@click.argument("policies", nargs=-1, shell_complete=completion.variants)
@options.add(options.COMPARING, options.SIZES, options.PROBLEM, options.CONSTANTS, options.output("nothing is written"))
@click.pass_context
def compare_command(
    context: click.Context,
    /,
    policies: tuple[str, ...],
    seeds: int,
    bounds: bool,
    threads: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Play POLICIES on the same problem with the same seeds: means with standard errors, and the paper's Table 1, measured.

    A constant such as --alpha-scale goes to every policy that takes it; without one, each has its preset's. Ctrl-C keeps the
    runs that were finished.
    """
    if out is not None:
        check_folder(out)
    refuse_named(given["extra"])
    noise = given["noise"] or "gaussian"
    given = given | {"problem": given["problem"] or "synthetic"}
    problem, drawn = problem_of(noise, given)
    names = policies or suiting(problem)
    takes = set().union(*(keywords_of(composed(name, {})[1]) for name in names))
    told = constants(", ".join(names), takes, drawn, problem, given)
    bar = progress_bar(quiet, TextColumn("{task.completed:.0f} of {task.total:.0f} runs"))
    with bar, options.as_typed(OF_SYNTHETIC | OF_ALGORITHM):
        task = bar.add_task("comparing", total=seeds * len(names))
        found = compare(
            names,
            lambda seed: problem_of(noise, given | {"seed": seed})[0],
            seeds=range(given["seed"], given["seed"] + positive_integer("--seeds", seeds)),
            horizon=positive_integer("horizon", given["horizon"]),
            threads=threads,
            progress=lambda done, total, name: bar.update(task, completed=done, description=name),
            preset=given["preset"],
            **told,
        )
    if out is not None and found.runs:  # of nothing there are no files: those of an earlier comparison stay
        files, notices = report.comparison_files(found, out, bounds)
    else:
        files, notices = [], []
    report.tell_comparison(found, files, notices, as_json=as_json, quiet=quiet)
    if not found.complete:
        context.exit(INTERRUPTED)


# --- fedsuplin sweep ----------------------------------------------------------------------------------------------


@main.command(
    "sweep", short_help="Play grids of policies and problems × seeds.", cls=options.SectionedCommand, manual=manuals.SWEEP
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@options.add(options.ENGINE, options.output("a folder called like FILE"), options.EXAMPLE)
@click.pass_context
def sweep_command(
    context: click.Context,
    file: Path | None,
    engine: str,
    workers: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    example: bool,
) -> None:
    """Play every combination in FILE (TOML): each policy on each problem with each seed, to one table and a figure.

    Runs are kept in --out as they end. A sweep that was stopped or killed goes on where it was when it is started again, and
    one with more seeds or values plays only those; runs that failed are tried again.
    """
    if example and as_json:
        raise click.UsageError("--json is for what a sweep found; the example is TOML")
    if example:
        click.echo(report.EXAMPLE_SWEEP, nl=False)
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE': `fedsuplin sweep --example` prints one to start from.")
    plan, out = read_plan(file), out or file.with_name(file.stem if file.suffix else f"{file.name}-sweep")
    check_folder(out)
    with sweep_bar(quiet) as show:
        found = sweep(**plan, folder=out, engine=engine, workers=workers, progress=functools.partial(show, file.stem))
    files, notices = report.sweep_files(found, out)
    report.tell_sweep(found, files, notices, as_json=as_json, quiet=quiet)
    if not found.complete:
        context.exit(INTERRUPTED)
    if found.failed:
        context.exit(1)


# --- fedsuplin reproduce ------------------------------------------------------------------------------------------


@main.command(
    "reproduce",
    short_help="The paper's experiments, with a verdict for each claim.",
    cls=options.SectionedCommand,
    manual=manuals.REPRODUCE,
)
@click.argument("names", nargs=-1, shell_complete=completion.experiments)
@options.add(options.REPRODUCING, options.ENGINE, options.output("reproduction"))
@click.pass_context
def reproduce_command(
    context: click.Context,
    names: tuple[str, ...],
    size: str | None,
    seeds: int | None,
    movielens: Path | None,
    markdown: Path | None,
    engine: str,
    workers: int | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the paper's experiments NAMES, judge each claim, and write data, figures and one page for all.

    \b
    arrivals    who plays when: three arrival patterns, and sync
    clients     regret per client as there are more of them, against SupLinUCB
    tradeoff    regret against communication, over C and D
    movielens   reward on real ratings (needs --movielens FOLDER)
    variance    regret as the noise's variance shrinks: variance against async
    corruption  regret as the adversary's budget grows: robust against async
    theorem     regret and communication at the theorems' own constants

    What was stopped goes on where it was when it is started again.
    """
    out = out or Path("reproduction")
    for folder in (out, *(() if markdown is None else (markdown.parent,))):
        check_folder(folder)
    with sweep_bar(quiet) as show:
        outcomes = reproduce(
            names or "all",
            out,
            size=size or "normal",
            seeds=seeds,
            movielens=movielens,
            markdown=markdown,
            engine=engine,
            workers=workers,
            progress=show,
        )
    report.tell_reproduction(outcomes, out, as_json=as_json, quiet=quiet)
    if not all(outcome.sweep.complete for outcome in outcomes):
        context.exit(INTERRUPTED)
    if any(outcome.sweep.failed for outcome in outcomes):
        context.exit(1)


@contextlib.contextmanager
def sweep_bar(quiet: bool) -> Iterator[Callable[[str, SweepProgress], None]]:
    """A bar for sweeps, one after another: runs that are done, and, from the work that is left, the time that is."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[runs]},"), TimeElapsedColumn(), TimeLeft())
    hidden = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=1.0, runs="", before=0.0)

        def show(what: str, now: SweepProgress) -> None:
            if what != bar.tasks[0].description:
                bar.reset(task, description=what, before=now.share, runs="")
            failed = f", {now.failed} failed" if now.failed else ""
            bar.update(task, completed=now.share, runs=f"{now.done} of {now.total} runs{failed}")

        yield show


class TimeLeft(ProgressColumn):
    """At the pace of the work since the sweep was started: runs that were there before say nothing of it."""

    def render(self, task: Task) -> Text:
        done = task.completed - task.fields["before"]
        if done <= 0 or task.elapsed is None:
            return Text("-:--:-- left")
        return Text(f"{timedelta(seconds=round(task.elapsed * (1 - task.completed) / done))} left")


# --- fedsuplin variants, fedsuplin plugins ------------------------------------------------------------------------


@main.command(
    "variants", short_help="List the variants, or work out one's numbers.", cls=options.SectionedCommand, manual=manuals.VARIANTS
)
@click.argument("name", required=False, shell_complete=completion.variants)
@options.add(options.SIZES, options.JSON)
def variants_command(name: str | None, as_json: bool, **given: Any) -> None:
    """List the variants: what each is, what it is made of, and which theorem covers it.

    With NAME, show the numbers that `fedsuplin run NAME` works with, for both presets: radii, target widths, thresholds, and
    whether the guarantee holds. The sizes are for that.
    """
    if name is not None:
        as_run = run_command.make_context("run", [name]).params | given
        show_numbers([planned(name, as_run | {"preset": preset})[1] for preset in PRESETS], as_json)
        return
    rows = report.variant_rows(plugins)
    if as_json:
        report.print_json(rows)
    else:
        report.console().print(report.variants_table(rows))


def show_numbers(algorithms: list[Algorithm], as_json: bool) -> None:
    if as_json:
        report.print_json({algorithm.preset: report.algorithm_numbers(algorithm) for algorithm in algorithms})
    else:
        click.echo("\n\n".join(folded(str(algorithm), report.console().width) for algorithm in algorithms))


def folded(text: str, width: int) -> str:
    """Lines no longer than that, where words allow it; what goes on is below the words that began."""
    wrap = textwrap.TextWrapper(width, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrap.fill(line) for line in text.splitlines())


@main.group(
    "plugins",
    short_help="List what is installed and what failed to load, or start a package of your own.",
    cls=options.SectionedGroup,
    manual=manuals.PLUGINS,
    invoke_without_command=True,
)
@options.add(options.JSON)
@click.pass_context
def plugins_command(context: click.Context, as_json: bool) -> None:
    """List what is installed: every name by kind, then from which package and entry point, and what failed to load and why."""
    if context.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"--json is for the list here: put it after {context.invoked_subcommand}")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # listed below
        sources = plugins.sources()
    rows = report.plugin_rows(plugins)
    if as_json:
        report.print_json({"plugins": rows, "sources": [dataclasses.asdict(source) for source in sources]})
        return
    console = report.console()
    console.print(report.plugins_table(rows))
    console.print(report.sources_table(sources))
    for source in sources:
        if source.error:
            console.print(f"{source} failed to load: {source.error}")


@plugins_command.command(
    "new", short_help="Write a plugin package to start from.", cls=options.SectionedCommand, manual=manuals.NEW
)
@click.argument("name")
@options.add(options.PLACE, options.JSON)
def new_command(name: str, folder: Path, as_json: bool) -> None:
    """Write a plugin package to start from, in a new folder NAME: a trigger, a weighting and a variant in plain Python.

    It installs, passes its tests and runs as it is.
    """
    made = scaffold.write(name, folder)
    files, steps = list(scaffold.files(name)), [f"cd {shlex.quote(str(made))}", *scaffold.next_steps(name)]
    if as_json:
        report.print_json({"folder": str(made), "files": files, "next": steps})
        return
    click.echo(f"wrote {made}:")
    for file in files:
        click.echo(f"  {file}")
    click.echo("\nNow install, test and run it:")
    for step in steps:
        click.echo(f"  {step}")


# --- fedsuplin bench ------------------------------------------------------------------------------------------------


@main.command("bench", short_help="Measure what this machine does.", cls=options.SectionedCommand, manual=manuals.BENCH)
@options.add(options.MEASURING, options.JSON)
def bench_command(quick: bool, markdown: Path | None, as_json: bool) -> None:
    """Measure what this machine does: a round and a layer by size, share of the FMA peak, a sync, drawing, memory.

    Times are of one core, the best of several, and what is compared is measured side by side. Takes half a minute.
    """
    if markdown is not None:
        check_folder(markdown.parent)
    busy = benchmark.load()
    columns = (TextColumn("measuring {task.description}"), BarColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with bar:
        task = bar.add_task("the FMA peak", total=None)
        numbers = benchmark.measured(
            benchmark.QUICK if quick else benchmark.FULL,
            lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
        )
    if as_json:
        report.print_json(numbers)
    else:
        report.console().print(benchmark.tables(numbers))
    if markdown is not None:
        benchmark.write_page(markdown, numbers, quick=quick, busy=busy)
        click.echo(f"wrote {markdown}", err=as_json)


# --- fedsuplin completion -------------------------------------------------------------------------------------------


@main.command(
    "completion",
    short_help="Print the script that completes names after TAB.",
    cls=options.SectionedCommand,
    manual=manuals.COMPLETION,
)
@click.argument("shell", metavar="SHELL", type=click.Choice(completion.SHELLS))
def completion_command(shell: str) -> None:
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
    click.echo(completion.script(main, shell))


# --- fedsuplin serve, fedsuplin tokens, fedsuplin demo --------------------------------------------------------------


main.add_command(serve_command)
main.add_command(tokens_command)
main.add_command(demo_command)


if __name__ == "__main__":
    main(prog_name="fedsuplin")
