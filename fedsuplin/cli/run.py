"""`fedsuplin run`: play one variant, then print and write the result."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.progress import TextColumn

from fedsuplin_ext.loop import COUNTS, SUMS

from .._shared.files import write_csv_rows
from .._shared.terminal import make_console, print_json
from ..algorithm.algorithm import Algorithm
from ..contracts.problem import Problem
from ..errors import FedsuplinError, InterruptedRun, InvalidInput
from ..simulation.result import RunResult
from ..simulation.runner import run
from .build import SYNTHETIC_KEYWORDS, build_problem_and_algorithm
from .completers import complete_variants, make_word_completer
from .exit_codes import INTERRUPTED
from .manuals import RUN
from .options import (
    CONSTANT_OPTIONS,
    FILE_PATH,
    PART_OPTIONS,
    PROBLEM_OPTIONS,
    SIZE_OPTIONS,
    make_output_options,
    name_options_in_errors,
    output_option,
    parse_number_or_word,
    parse_whole_number_if_given,
)
from .output import check_folder, print_notices_and_files, write_figure
from .progress import make_progress_bar
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
        help="Pulls to record: log for about 400, log-spaced; all; or every N-th. [default: log]",
    ),
]
CHECKPOINT_OPTIONS = [
    output_option(
        "--checkpoint",
        type=FILE_PATH,
        metavar="FILE",
        help="Save the run to this file every minute, at the end and on Ctrl-C; continue from it "
        "if it exists. [default: not saved]",
    ),
    output_option(
        "--checkpoint-every",
        type=float,
        callback=parse_whole_number_if_given,
        metavar="N",
        help="Save the run after every N-th pull. [default: every minute]",
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
    """Play VARIANT on a synthetic or another problem, and compare it with uniform random play on
    the same rounds.

    The table at the end shows regret, communication, pulls by layer, and whether the guarantee
    of the theorem holds. Ctrl-C stops a run and shows what was recorded until then.
    """
    problem, algorithm = build_problem_and_algorithm(variant, given)
    if checkpoint is None and checkpoint_every is not None:
        raise InvalidInput("--checkpoint-every needs --checkpoint, the file to save the run to")
    if out is not None:
        check_folder(out)

    resumed = checkpoint is not None and checkpoint.exists()
    write_and_print = functools.partial(
        write_and_print_run,
        algorithm=algorithm,
        problem=problem,
        checkpoint=checkpoint,
        resumed=resumed,
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
            write_and_print(error.result)
        raise
    write_and_print(result)
    if not result.complete:
        context.exit(INTERRUPTED)


def play_with_progress(
    algorithm: Algorithm, problem: Problem, quiet: bool, **options: Any
) -> RunResult:
    """Play the run of `fedsuplin run` with a progress bar; Ctrl-C gives an incomplete result."""
    bar = make_progress_bar(quiet, TextColumn("{task.completed:,.0f} of {task.total:,.0f} pulls"))
    with bar, warnings.catch_warnings():
        warnings.simplefilter("ignore", InterruptedRun)  # a notice below the table says so
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
    problem: Problem,
    checkpoint: Path | None,
    resumed: bool,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write the files of `fedsuplin run`, then print its table or JSON."""
    numbers = summarise_run(result, algorithm, problem)
    notices = list(list_run_notices(numbers))
    if checkpoint is not None:
        notices.append(describe_checkpoint(checkpoint, resumed, result.complete))
    files: list[Path] = []
    if out is not None:
        files, missing = write_run_files(result, out, algorithm.name)
        notices += missing
    if as_json:
        print_json(numbers | {"notices": notices, "files": files})
    elif not quiet:
        console = make_console()
        console.print(make_run_table(numbers, problem, algorithm))
        if notices or files:
            console.print()
        print_notices_and_files(console, notices, files)


def write_run_files(result: RunResult, folder: Path, name: str) -> tuple[list[Path], list[str]]:
    """Write the files of `fedsuplin run`; return them, and notices about missing ones."""
    stem = re.sub(r"[^\w.-]", "_", name)
    files = [
        result.save(folder / f"{stem}.npz"),
        write_run_csv(result, folder / f"{stem}.csv"),
    ]
    figures, notices = write_figure(result.plot, folder / f"{stem}.png")
    return [*files, *figures], notices


def write_run_csv(result: RunResult, path: Path) -> Path:
    """Write the CSV of `fedsuplin run`; with every pull recorded, also arm, layer and client."""
    columns = {name: getattr(result, name) for name in ("pulls", *SUMS, *COUNTS)}
    if result.arms is not None:
        columns |= {"arm": result.arms, "layer": result.layers, "client": result.clients}
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    rows = (dict(zip(columns, row, strict=True)) for row in values)
    return write_csv_rows(path, rows, list(columns))


def summarise_run(result: RunResult, algorithm: Algorithm, problem: Problem) -> dict[str, Any]:
    """Return the numbers that `fedsuplin run` prints; they are None if nothing was played."""
    last: dict[str, Any] = {
        name: getattr(result, name)[-1].item() if len(result.pulls) else None
        for name in ("pulls", *SUMS, *COUNTS)
    }
    return {
        "variant": algorithm.name,
        "preset": algorithm.preset,
        "complete": result.complete,
        "played": result.n_pulls,
        "horizon": result.spec["horizon"],
        **last,
        "percent_of_uniform": 100 * last["regret"] / last["uniform_regret"]
        if last["uniform_regret"]
        else None,
        "layer_pulls": result.layer_pulls.tolist(),
        "microseconds": result.microseconds,
        "loop_time": result.loop_time,
        "wall_time": result.wall_time,
        "cpu_time": result.cpu_time,
        "guarantee": not result.departures,
        "theorem": algorithm.theorem,
        "departures": list(result.departures),
        "too_short": find_too_short_horizon(result, algorithm),
        "seed": result.seed,
        "spec": {"algorithm": algorithm.spec, "problem": problem.spec},
        "versions": result.versions,
    }


def find_too_short_horizon(result: RunResult, algorithm: Algorithm) -> dict[str, Any] | None:
    """Return the numbers of a notice of `fedsuplin run` if, with the theory preset, the bound on
    regret is still above what uniform random play loses; otherwise None.
    """
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
    """Yield the notices that `fedsuplin run` prints below its table."""
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
            "The horizon is too short for these constants: no pull got past layer "
            f"{short['deepest_layer']}, and the bound on regret, {short['bound_a_pull']:.3g} per "
            f"pull, is above the {short['uniform_a_pull']:.3g} that uniform random play loses. "
            f"The bound falls below that {when}. --preset practical, the default, has constants "
            "for horizons like this one."
        )


def format_two_digits(number: int) -> str:
    """Round a large number in a notice of `fedsuplin run`: 7415103 is 7,400,000."""
    digits = max(0, len(str(number)) - 2)
    return f"{round(number, -digits):,}"


def describe_checkpoint(checkpoint: Path, resumed: bool, complete: bool) -> str:
    """Describe the checkpoint of `fedsuplin run`: if it continued from it, what it is for now."""
    what = f"continued from {checkpoint}" if resumed else f"saved to {checkpoint}"
    if complete:
        return f"{what}, which is not needed any more"
    return f"{what}: start the same command again to continue"
