"""What the command line tells: the closing table of a run, its files, and the tables of variants and plugins.

Numbers first (`summary`, `variant_rows`, `plugin_rows`: plain data, also for --json), words and tables after.
"""

from __future__ import annotations

import csv
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.progress import TextColumn

from fedsuplin_ext.loop import COUNTS, SUMS

from .._shared.files import open_atomically
from .._shared.terminal import make_console, print_json
from ..algorithm.algorithm import Algorithm
from ..contracts.problem import Problem
from ..errors import FedsuplinError, InterruptedRun, InvalidInput, MissingExtra
from ..simulation.result import RunResult
from ..simulation.runner import run
from .build import SYNTHETIC_KEYWORDS, build_problem_and_algorithm
from .completing import complete_variants, make_word_completer
from .exit_codes import INTERRUPTED
from .manuals import RUN
from .options import (
    CONSTANT_OPTIONS,
    PART_OPTIONS,
    PROBLEM_OPTIONS,
    SIZE_OPTIONS,
    make_output_options,
    name_options_in_errors,
    output_option,
    parse_number_or_word,
    parse_whole_number_if_given,
)
from .output import check_folder, make_progress_bar
from .run_table import make_run_table
from .sections import SectionedCommand, add_options

RUN_KEYWORDS = SYNTHETIC_KEYWORDS | {
    "record": "record",
    "checkpoint": "checkpoint",
    "checkpoint_every": "checkpoint_every",
}
RECORD_OPTION = [
    output_option(
        "--record",
        default="log",
        callback=parse_number_or_word,
        metavar="log|all|N",
        shell_complete=make_word_completer("log", "all"),
        help="Pulls to record: about 400, log-spaced; all; or every N-th. [default: log]",
    ),
]
CHECKPOINT_OPTIONS = [
    output_option(
        "--checkpoint",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Keep the run in this file as it goes (every minute, at the end, on Ctrl-C), and go on from there if it is there. "
        "[default: nowhere]",
    ),
    output_option(
        "--checkpoint-every",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="N",
        help="Keep it after every N-th pull. [default: every minute]",
    ),
]


@click.command("run", cls=SectionedCommand, manual=RUN)
@click.argument("variant", default="async", shell_complete=complete_variants)
@add_options(
    SIZE_OPTIONS, PROBLEM_OPTIONS, CONSTANT_OPTIONS, PART_OPTIONS, RECORD_OPTION, CHECKPOINT_OPTIONS
)
@add_options(make_output_options("nothing is written"))
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
    problem, algorithm = build_problem_and_algorithm(variant, given)
    if checkpoint is None and checkpoint_every is not None:
        raise InvalidInput("--checkpoint-every needs --checkpoint, the file to keep the run in")
    if out is not None:
        check_folder(out)

    kept = (
        functools.partial(describe_checkpoint, checkpoint, resumed=checkpoint.exists())
        if checkpoint is not None
        else None
    )
    tell = functools.partial(
        write_and_print_run,
        algorithm=algorithm,
        problem=problem,
        kept=kept,
        out=out,
        as_json=as_json,
        quiet=quiet,
    )
    try:
        with name_options_in_errors(RUN_KEYWORDS):
            result = play_with_progress(
                algorithm,
                problem,
                quiet,
                record=record,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
            )
    except FedsuplinError as error:
        if error.result is not None:
            tell(error.result)
        raise
    tell(result)
    if not result.complete:
        context.exit(INTERRUPTED)


def play_with_progress(
    algorithm: Algorithm, problem: Problem, quiet: bool, **options: Any
) -> RunResult:
    """The run, with a progress bar where somebody watches. Ctrl-C gives a result that is not complete."""
    bar = make_progress_bar(quiet, TextColumn("{task.completed:,.0f} of {task.total:,.0f} pulls"))
    with bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", InterruptedRun)  # the table says it
        task = bar.add_task(algorithm.name, total=algorithm.horizon)
        return run(
            algorithm,
            problem,
            progress=lambda done, total: bar.update(task, completed=done),
            **options,
        )


def write_and_print_run(
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
    numbers = summarise_run(result, algorithm, problem)
    files, missing = write_run_files(result, out, algorithm.name) if out is not None else ([], None)
    told = kept(complete=result.complete) if kept is not None else None
    notices = [*list_run_notices(numbers), *(notice for notice in (told, missing) if notice)]
    if as_json:
        print_json(numbers | {"notices": notices, "files": files})
    elif not quiet:
        console = make_console()
        console.print(make_run_table(numbers, problem, algorithm))
        for notice in notices:
            console.print(f"\n{notice}", style="yellow")
        for number, file in enumerate(files):
            click.echo(f"wrote {file}" if number else f"\nwrote {file}")


def write_run_files(result: RunResult, folder: Path, name: str) -> tuple[list[Path], str | None]:
    """Data, table and figure of a run; what was written, and what to install for what was not."""
    stem = folder / re.sub(r"[^\w.-]", "_", name)
    files = [
        result.save(stem.with_name(stem.name + ".npz")),
        write_run_csv(result, stem.with_name(stem.name + ".csv")),
    ]
    figure = stem.with_name(stem.name + ".png")
    try:
        result.plot(figure)
    except MissingExtra as error:
        return files, f"no figure: {error}"
    return [*files, figure], None


def write_run_csv(result: RunResult, path: Path) -> Path:
    """The recorded rows; with every pull recorded also arm, layer and client."""
    columns = {name: getattr(result, name) for name in ("pulls", *SUMS, *COUNTS)}
    if result.arms is not None:
        columns |= {"arm": result.arms, "layer": result.layers, "client": result.clients}
    with open_atomically(path, newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return path


def summarise_run(result: RunResult, algorithm: Algorithm, problem: Any) -> dict[str, Any]:
    """The closing table as plain data. Cumulative numbers are None where nothing was played."""
    at: dict[str, Any] = {
        name: getattr(result, name)[-1].item() if len(result.pulls) else None
        for name in ("pulls", *SUMS, *COUNTS)
    }
    return {
        "variant": algorithm.name,
        "preset": algorithm.preset,
        "complete": result.complete,
        "played": result.n_pulls,
        "horizon": result.spec["horizon"],
        **at,
        "percent_of_uniform": 100 * at["regret"] / at["uniform_regret"]
        if at["uniform_regret"]
        else None,
        "layer_pulls": result.layer_pulls.tolist(),
        "microseconds": result.microseconds,
        "loop_time": result.loop_time,
        "wall_time": result.wall_time,
        "guarantee": not result.departures,
        "theorem": algorithm.theorem,
        "departures": list(result.departures),
        "too_short": find_too_short_horizon(result, algorithm),
        "seed": result.seed,
        "spec": {"algorithm": algorithm.spec, "problem": problem.spec},
        "versions": result.versions,
    }


def find_too_short_horizon(result: RunResult, algorithm: Algorithm) -> dict[str, Any] | None:
    """With the theory's constants: is the bound on regret still above what uniform random play loses?"""
    if algorithm.preset != "theory" or algorithm.kernel != "layered":
        return None
    if not len(result.pulls) or result.uniform_regret[-1] <= 0:
        return None
    loss = float(result.uniform_regret[-1] / result.pulls[-1])
    bound = float(algorithm.regret_bound() / algorithm.horizon)
    if bound < loss:
        return None
    deepest = int(np.flatnonzero(result.layer_pulls)[-1])
    needed = algorithm.needed_horizon(loss=loss)
    return {
        "deepest_layer": deepest,
        "bound_a_pull": bound,
        "uniform_a_pull": loss,
        "needed_horizon": needed,
    }


def list_run_notices(numbers: Mapping[str, Any]) -> Iterable[str]:
    """What a reader of the table must know besides."""
    if not numbers["complete"]:
        yield f"stopped early after {numbers['played']:,} of {numbers['horizon']:,} pulls"
    if short := numbers["too_short"]:
        needed = short["needed_horizon"]
        when = (
            f"from a horizon of about {format_two_digits(needed)} pulls on"
            if needed
            else "at no horizon up to 10^15 pulls"
        )
        yield (
            f"The horizon is too short for these constants: no pull got past layer {short['deepest_layer']}, and the "
            f"bound on regret, {short['bound_a_pull']:.3g} a pull, is above the {short['uniform_a_pull']:.3g} that "
            f"uniform random play loses. The bound falls below that {when}. "
            "--preset practical, the default, has constants that are meant for horizons like this one."
        )


def format_two_digits(number: int) -> str:
    """Two digits of a large number: 7415103 as 7,400,000."""
    digits = max(0, len(str(number)) - 2)
    return f"{round(number, -digits):,}"


def describe_checkpoint(checkpoint: Path, *, resumed: bool, complete: bool) -> str:
    """What to say of a run that is kept in a file: whether it went on from there, and what the file is good for now."""
    use = (
        "remove it when you need it no more" if complete else "the same command goes on from there"
    )
    return f"{'went on from' if resumed else 'kept in'} {checkpoint}: {use}"
