"""What the command line tells: the closing table of a run, its files, and the tables of variants and plugins.

Numbers first (`summary`, `variant_rows`, `plugin_rows`: plain data, also for --json), words and tables after.
"""

from __future__ import annotations

import csv
import inspect
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from .algorithm import AXES, SYNCS, Algorithm
from .comparison import Comparison
from .datasets.drawn import DataProblem
from .errors import FedsuplinError, MissingExtra
from .files import whole
from .fixed_arms import FixedArmsProblem
from .problem import SyntheticProblem, arrival_parameters
from .registry import HOOK_PREFIX, KINDS, SINGULAR, Registry, Source, parameters_of
from .reproduce import Outcome, trouble
from .reproduce.verdicts import FAILS, HOLDS, OPEN
from .result import COUNTS, SUMS, RunResult
from .sweep import SweepResult, write_rows

MOST_FAILURES, MOST_ROWS, MOST_COLUMNS = 5, 60, 3  # of a sweep, on the screen; the files have all
LOOKS = {HOLDS: "green", FAILS: "red", OPEN: "yellow"}
NAMED = {*parameters_of(SyntheticProblem), *parameters_of(FixedArmsProblem)}  # what is of the problem itself, and of no part
CONTEXTS = {"sphere": "on the unit sphere", "ball": "in the unit ball"}

# --- one run --------------------------------------------------------------------------------------------------------


def summary(result: RunResult, algorithm: Algorithm, problem: Any) -> dict[str, Any]:
    """The closing table as plain data. Cumulative numbers are None where nothing was played."""
    at: dict[str, Any] = {
        name: getattr(result, name)[-1].item() if len(result.pulls) else None for name in ("pulls", *SUMS, *COUNTS)
    }
    return {
        "variant": algorithm.name,
        "preset": algorithm.preset,
        "complete": result.complete,
        "played": result.n_pulls,
        "horizon": result.spec["horizon"],
        **at,
        "percent_of_uniform": 100 * at["regret"] / at["uniform_regret"] if at["uniform_regret"] else None,
        "layer_pulls": result.layer_pulls.tolist(),
        "microseconds": result.microseconds,
        "loop_time": result.loop_time,
        "wall_time": result.wall_time,
        "guarantee": not result.departures,
        "theorem": algorithm.theorem,
        "departures": list(result.departures),
        "too_short": too_short(result, algorithm),
        "seed": result.seed,
        "spec": {"algorithm": algorithm.spec, "problem": problem.spec},
        "versions": result.versions,
    }


def too_short(result: RunResult, algorithm: Algorithm) -> dict[str, Any] | None:
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
    return {"deepest_layer": deepest, "bound_a_pull": bound, "uniform_a_pull": loss, "needed_horizon": needed}


def run_table(numbers: Mapping[str, Any], problem: Any, algorithm: Algorithm) -> Table:
    """The closing table of a run, for people."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in (
        ("problem", problem_in_words(problem, numbers["horizon"], algorithm)),
        ("algorithm", algorithm_in_words(algorithm)),
        *outcome(numbers),
        ("pulls by layer", layers_in_words(numbers["layer_pulls"])),
        ("time", f"{numbers['microseconds']:.2f} µs a round in the loop, {numbers['wall_time']:.2f} s in all"),
        ("guarantee", guarantee_in_words(numbers)),
    ):
        table.add_row(*row)
    return table


def outcome(numbers: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Regret and communication; nothing where the run was stopped before its first pull."""
    if numbers["pulls"] is None:
        return
    share = numbers["percent_of_uniform"]
    against = "" if share is None else f", {share:.{1 if share >= 1 else 3}f} % of uniform random play's"
    yield "regret", f"{numbers['regret']:,.1f}{against}"
    yield "uniform play", f"{numbers['uniform_regret']:,.1f} on the same rounds"
    yield "communication", f"{numbers['communication']:,} (the paper's count)"
    yield "messages", f"{numbers['messages_up']:,} up, {numbers['messages_down']:,} down"
    yield "bytes", f"{decimal(numbers['bytes_up'])} up, {decimal(numbers['bytes_down'])} down"


def problem_in_words(problem: Any, horizon: int, algorithm: Algorithm) -> str:
    sizes = f"d={problem.dim}, K={problem.n_arms}, M={problem.n_clients}, T={horizon:,}"
    ours = type(problem) in (SyntheticProblem, FixedArmsProblem) or isinstance(problem, DataProblem)
    if not ours or not problem.spec["parameters"]:  # of one derived from them the words below may be wrong
        return f"{sizes}\n{problem!r}"
    return f"{sizes}\n{rounds_in_words(problem)}\n{arrival_in_words(problem, algorithm)}, seed {problem.seed}"


def rounds_in_words(problem: SyntheticProblem | DataProblem) -> str:
    """What a client sees, and how its rewards come about."""
    if isinstance(problem, DataProblem):
        return problem.in_words()
    if isinstance(problem, FixedArmsProblem):
        whose = "fixed arms of each client's own" if problem.spec["parameters"]["own_arms"] else "fixed arms"
        thetas = "one θ" if problem.arm_thetas is None else "a θ for each arm"
        return f"{whose}, {thetas}, {noise_in_words(problem)}"
    return f"contexts {CONTEXTS[problem.contexts]}, {noise_in_words(problem)}"


def arrival_in_words(problem: SyntheticProblem | DataProblem, algorithm: Algorithm) -> str:
    """The pattern that was played, with whatever it was told."""
    parameters = problem.spec["parameters"]
    name = parameters["arrival"] or ("round-robin" if algorithm.syncs == "all" else "random")
    told = [f"{key} {number(value)}" for key, value in of_arrival(parameters).items()]
    return f"{name} arrival" + (f" ({', '.join(told)})" if told else "")


def of_arrival(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a problem's parameters that are its arrival pattern's."""
    others = {key: value for key, value in parameters.items() if key not in NAMED}
    return arrival_parameters(parameters["arrival"], parameters.get("noise"), others)


def noise_in_words(problem: Any) -> str:
    """The model's name, what every problem knows of its noise, and whatever else the model was told."""
    known = {"sd": problem.noise_scale, "R": problem.R, "adversary's budget": problem.corruption}
    parameters = problem.spec["parameters"]
    ours = (*NAMED, "R", "corruption", *of_arrival(parameters))
    others = {key: value for key, value in parameters.items() if key not in ours}
    told = [f"{words} {number(value)}" for words, value in (known | others).items() if value is not None]
    return f"{problem.spec['parameters']['noise']} noise" + (f" ({', '.join(told)})" if told else "")


def algorithm_in_words(algorithm: Algorithm) -> str:
    """The preset and every parameter, as the parts have them after presets and options."""
    values: dict[str, Any] = {"ridge": algorithm.setting.ridge}
    for axis in ("noise", "trigger", "weighting"):
        values |= algorithm.spec[axis]["parameters"]
    for key in getattr(algorithm.noise, "drawing_only", ()):
        values.pop(key, None)
    shown = [f"{key}={number(value)}" for key, value in values.items() if value is not None]
    parts = {axis: algorithm.spec[axis]["name"] or algorithm.spec[axis]["type"] for axis in AXES}
    return f"{algorithm.name}, preset {algorithm.preset}\n{parts_in_words(parts)}\n{', '.join(shown)}"


def parts_in_words(parts: Mapping[str, str]) -> str:
    return f"{parts['policy']} policy, {parts['trigger']} trigger\n{parts['noise']} noise, {parts['weighting']} weighting"


def number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def algorithm_numbers(algorithm: Algorithm) -> dict[str, Any]:
    """An algorithm as plain data: its specification, and what was worked out from it."""
    return {
        **algorithm.spec,
        "radii": algorithm.radii.tolist(),
        "radius_growth": list(algorithm.radius_growth),
        "target_widths": algorithm.target_widths.tolist(),
        "theorem": algorithm.theorem,
        "departures": algorithm.departures(),
    }


def layers_in_words(layer_pulls: list[int]) -> str:
    """Those of the layers that were played, as layer:pulls; S is the last layer."""
    played = [f"{layer}:{pulls:,}" for layer, pulls in enumerate(layer_pulls) if pulls]
    return "  ".join(played) + f"  (S={len(layer_pulls) - 1})"


def guarantee_in_words(numbers: Mapping[str, Any]) -> RenderableType:
    if numbers["guarantee"]:
        return f"holds ({numbers['theorem']})"
    reasons = Table.grid(padding=(0, 1))
    for departure in numbers["departures"]:
        reasons.add_row("-", departure)
    return Group("does not hold:", reasons)


def kept_in(checkpoint: Path, *, resumed: bool, complete: bool) -> str:
    """What to say of a run that is kept in a file: whether it went on from there, and what the file is good for now."""
    use = "remove it when you need it no more" if complete else "the same command goes on from there"
    return f"{'went on from' if resumed else 'kept in'} {checkpoint}: {use}"


def notices(numbers: Mapping[str, Any]) -> Iterable[str]:
    """What a reader of the table must know besides."""
    if not numbers["complete"]:
        yield f"stopped early after {numbers['played']:,} of {numbers['horizon']:,} pulls"
    if short := numbers["too_short"]:
        needed = short["needed_horizon"]
        when = f"from a horizon of about {rounded(needed)} pulls on" if needed else "at no horizon up to 10^15 pulls"
        yield (
            f"The horizon is too short for these constants: no pull got past layer {short['deepest_layer']}, and the "
            f"bound on regret, {short['bound_a_pull']:.3g} a pull, is above the {short['uniform_a_pull']:.3g} that "
            f"uniform random play loses. The bound falls below that {when}. "
            "--preset practical, the default, has constants that are meant for horizons like this one."
        )


def rounded(number: int) -> str:
    """Two digits of a large number: 7415103 as 7,400,000."""
    digits = max(0, len(str(number)) - 2)
    return f"{round(number, -digits):,}"


# --- files ----------------------------------------------------------------------------------------------------------


def write_files(result: RunResult, folder: Path, name: str) -> tuple[list[Path], str | None]:
    """Data, table and figure of a run; what was written, and what to install for what was not."""
    stem = folder / re.sub(r"[^\w.-]", "_", name)
    files = [result.save(stem.with_name(stem.name + ".npz")), write_csv(result, stem.with_name(stem.name + ".csv"))]
    figure = stem.with_name(stem.name + ".png")
    try:
        result.plot(figure)
    except MissingExtra as error:
        return files, f"no figure: {error}"
    return [*files, figure], None


def write_csv(result: RunResult, path: Path) -> Path:
    """The recorded rows; with every pull recorded also arm, layer and client."""
    columns = {name: getattr(result, name) for name in ("pulls", *SUMS, *COUNTS)}
    if result.arms is not None:
        columns |= {"arm": result.arms, "layer": result.layers, "client": result.clients}
    with whole(path, newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    return path


# --- several policies -----------------------------------------------------------------------------------------------


def tell_comparison(found: Comparison, files: list[Path], notices: list[str], *, as_json: bool, quiet: bool) -> None:
    """Tables or JSON, and where the files are."""
    notices = [*notices, *([] if found.complete else [stopped_early(found)])]
    if as_json:
        data = {"policies": found.rows(), "seeds": list(found.played), "complete": found.complete, "notices": notices}
        print_json(data | {"files": files})
        return
    if quiet:
        return
    out = console()
    if found.runs:
        out.print(comparison_table(found))
    if any(row["system"] for row in found.rows()):
        out.print(table_1(found))
    for notice in notices:
        out.print(notice, style="yellow")
    for file in files:
        out.print(f"wrote {file}")


def stopped_early(found: Comparison) -> str:
    """What Ctrl-C left of a comparison, in words."""
    if not found.runs:
        return "stopped before any run was finished: nothing was written"
    without = [policy for policy in found.algorithms if policy not in found.runs]
    return f"stopped early: {found.over} played" + (f", none of {', '.join(without)}" if without else "")


def comparison_table(found: Comparison) -> Table:
    """Least regret first."""
    algorithm = next(iter(found.algorithms.values()))
    setting = algorithm.setting
    sizes = f"d={setting.dim}, K={setting.n_arms}, M={setting.n_clients}, T={setting.horizon:,}, preset {algorithm.preset}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=f"{sizes}\n{found.told_as}")
    for heading in ("policy", "regret", "% of uniform", "communication", "kB sent", "µs"):
        table.add_column(heading, justify="left" if heading == "policy" else "right", overflow="fold")
    for row in sorted(found.rows(), key=lambda row: row["regret"]):
        share = row["percent_of_uniform"]
        table.add_row(
            row["policy"],
            with_error(row, "regret"),
            "" if share is None else f"{share:.{1 if share >= 1 else 2}f}",
            with_error(row, "communication"),
            f"{(row['bytes_up'] + row['bytes_down']) / 1000:,.0f}",
            f"{row['microseconds']:.2f}",
        )
    return table


def with_error(row: Mapping[str, Any], what: str) -> str:
    value, error = row[what], row[f"{what}_error"]
    digits = 0 if value >= 1000 else 1
    return f"{value:,.{digits}f}" + ("" if error is None or math.isnan(error) or not value else f" ± {error:,.{digits}f}")


def table_1(found: Comparison) -> Table:
    """The paper's Table 1: each system's orders, and what was measured."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Table 1 of the paper: orders of growth, and measured")
    for heading in ("policy", "system and arms", "regret", "measured", "communication", "measured"):
        table.add_column(heading, justify="right" if heading == "measured" else "left", no_wrap=heading in ("policy", "regret"))
    for row in found.rows():
        if row["system"]:
            communication = (row["communication_bound"] or "none", f"{row['communication']:,.0f}")
            regret = (row["regret_bound"], f"{row['regret']:,.0f}")
            table.add_row(row["policy"], f"{row['system']}, {row['actions']}", *regret, *communication)
    return table


def comparison_files(found: Comparison, folder: Path, bounds: bool) -> tuple[list[Path], list[str]]:
    """Table, curves and figure; what was written, and what to install for what was not."""
    files = [found.write_csv(folder / "comparison.csv"), found.write_curves(folder / "curves.csv")]
    try:
        found.plot(folder / "comparison.png", bounds=bounds)
    except MissingExtra as error:
        return files, [f"no figure: {error}"]
    return [*files, folder / "comparison.png"], []


# --- a sweep -----------------------------------------------------------------------------------------------------

EXAMPLE_SWEEP = """\
# A sweep: every policy on every problem with every seed. A list is an axis.
seeds = 10              # how many, or which: [3, 5, 8]
# record = "log"        # keep the curves too, in curves.csv

[[policy]]              # name, and any keyword of fsl.make
name = "async"
C = [0.1, 1, 10]

[[policy]]              # as many grids as you like; with one, [policy] will do
name = ["sync", "oful"]

[problem]               # name ("synthetic" unless given) and the keywords of that problem
dim = 10
n_arms = 10
n_clients = [5, 20]
noise_scale = 0.1
horizon = 20_000
"""


def sweep_table(found: SweepResult) -> Table:
    """A row a point of the grids: a column for each axis that varies, or one for all where they are many."""
    seeds, rows = len({row["seed"] for row in found.rows}), found.summary()
    over = f"mean ± standard error over {seeds} seeds" if seeds > 1 else "one seed"
    more = f", the first {MOST_ROWS} of {len(rows)} points" if len(rows) > MOST_ROWS else ""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=over + more)
    axes, failed = found.varied or ("policy",), any(row["failed"] for row in rows)
    many = len(axes) > MOST_COLUMNS
    for heading in ("point",) if many else axes:
        table.add_column(heading, justify="left" if heading in ("policy", "problem", "point") else "right", overflow="fold")
    for heading in ("regret", "% of uniform", "communication", *(["failed"] if failed else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows[:MOST_ROWS]:
        told = [point_in_words(row, axes)] if many else ["" if row[axis] is None else str(row[axis]) for axis in axes]
        table.add_row(*told, *sweep_numbers(row), *([str(row["failed"] or "")] if failed else []))
    return table


def point_in_words(row: Mapping[str, Any], axes: Iterable[str]) -> str:
    told = [str(row[axis]) if axis == "policy" else f"{axis} {row[axis]}" for axis in axes if row[axis] is not None]
    return ", ".join(told)


def sweep_numbers(row: Mapping[str, Any]) -> list[str]:
    if not row["seeds"]:
        return [""] * 3
    share = row["percent_of_uniform"]
    return [with_error(row, "regret"), "" if share is None else f"{share:.2f}", with_error(row, "communication")]


def sweep_files(found: SweepResult, folder: Path) -> tuple[list[Path], list[str]]:
    """Table, means, curves and figure; what was written, and what to install for what was not."""
    files = [found.write_csv(folder / "table.csv"), write_rows(folder / "summary.csv", found.summary())]
    if any(curve is not None for curve in found.curves):
        files.append(found.write_curves(folder / "curves.csv"))
    try:
        found.plot(folder / "sweep.png")
    except MissingExtra as error:
        return files, [f"no figure: {error}"]
    return [*files, folder / "sweep.png"], []


def tell_sweep(found: SweepResult, files: list[Path], notices: list[str], *, as_json: bool, quiet: bool) -> None:
    stopped = [] if found.complete else ["stopped: start it again and it goes on from here"]
    if as_json:
        told = {"complete": found.complete, "summary": found.summary(), "failed": found.failed}
        print_json(told | {"files": files, "notices": [*notices, *stopped]})
        return
    to = console()
    if found.rows and not quiet:
        to.print(sweep_table(found))
    for row in found.failed[:MOST_FAILURES]:
        which = point_in_words(row, (*found.varied, "seed"))
        to.print(f"failed: {which}: {row['error']}", style="yellow")
    if len(found.failed) > MOST_FAILURES:
        to.print(f"… and {len(found.failed) - MOST_FAILURES} more, in the column error of {files[0]}", style="yellow")
    for notice in stopped:
        to.print(notice, style="yellow")
    if not quiet:
        for notice in notices:
            to.print(notice, style="yellow")
        for file in files:
            to.print(f"wrote {file}", soft_wrap=True)


# --- the paper's experiments --------------------------------------------------------------------------------------


def tell_reproduction(outcomes: Sequence[Outcome], folder: Path, *, as_json: bool, quiet: bool) -> None:
    """A table of verdicts for each experiment, and where the page is."""
    page = folder / "report.html"
    if as_json:
        found = {outcome.experiment.name: reproduction_numbers(outcome) for outcome in outcomes}
        print_json({"experiments": found, "page": page})
        return
    to = console()
    for outcome in outcomes:
        if outcome.measured is None:
            to.print(f"{outcome.experiment.title}: {trouble(outcome)}", style="yellow", soft_wrap=True)
        elif not quiet:
            to.print(verdict_table(outcome))
    if not quiet:
        to.print(f"figures, data and verdicts: {folder}/NAME; all on one page: {page}", soft_wrap=True)


def verdict_table(outcome: Outcome) -> Table:
    """Each verdict beside its claim, with the numbers below."""
    title = f"{outcome.experiment.title} ({outcome.experiment.n_seeds} seeds, {outcome.seconds:.0f} s)"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim (whose, at which setting), and what was measured as mean ± standard error", overflow="fold")
    for verdict in outcome.verdicts:
        table.add_row(
            Text(verdict.outcome, style=LOOKS[verdict.outcome]),
            Text.assemble((verdict.claim, "bold"), f" ({verdict.source}, {verdict.setting})\n{verdict.measured}"),
        )
    return table


def reproduction_numbers(outcome: Outcome) -> dict[str, Any]:
    return {
        "trouble": None if outcome.measured is not None else trouble(outcome),
        "verdicts": [verdict.row() for verdict in outcome.verdicts],
        "files": outcome.files,
        "seconds": outcome.seconds,
    }


# --- variants and plugins -------------------------------------------------------------------------------------------


def variant_rows(registry: Registry) -> list[dict[str, Any]]:
    """Every registered variant as plain data; one that can't be made says why in place of a summary."""
    rows = []
    for name in registry.names("variants"):
        try:
            variant = registry.create("variants", name, {})
        except FedsuplinError as error:
            rows.append({"name": name, "error": str(error)})
            continue
        parts = {axis: part if isinstance(part := getattr(variant, axis), str) else repr(part) for axis in AXES}
        rest = {key: getattr(variant, key) for key in ("summary", "syncs", "lazy", "theorem")}
        rows.append({"name": name, **rest, **parts})
    return rows


def variants_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_lines=False, pad_edge=False)
    for heading, ratio in (("variant", None), ("what it is", 2), ("made of", 3)):
        table.add_column(heading, ratio=ratio, overflow="fold", style="bold" if heading == "variant" else None)
    for row in rows:
        table.add_row(row["name"], *(("", row["error"]) if "error" in row else (what_it_is(row), made_of(row))), end_section=True)
    return table


def what_it_is(row: Mapping[str, Any]) -> str:
    return f"{row['summary']}\n({row['theorem'] or 'no theorem of the paper'})"


def made_of(row: Mapping[str, Any]) -> str:
    decides = "lazy (decides from its last download)" if row["lazy"] else "eager (decides from all it has)"
    return f"{parts_in_words(row)}\n{SYNCS[row['syncs']]}\n{decides}"


def plugin_rows(registry: Registry) -> list[dict[str, Any]]:
    """Every registered name with where it comes from and the first line of its documentation."""
    rows = []
    for kind in KINDS:
        for name in registry.names(kind):
            source = registry.owner(kind, name)
            what = first_line(registry, kind, name)
            rows.append(
                {
                    "kind": SINGULAR[kind],
                    "name": name,
                    "package": source.package,
                    "version": source.version,
                    "what": what,
                }
            )
    return rows


def first_line(registry: Registry, kind: str, name: str) -> str:
    """Of the docstring; a variant is data, and has its summary instead."""
    factory = registry.factory(kind, name)
    try:
        text = registry.create(kind, name, {}).summary if kind == "variants" else inspect.getdoc(factory)
    except FedsuplinError as error:
        text = str(error)
    return (text or "").strip().partition("\n")[0]


def plugins_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Every name by kind; the kind is a line of its own, so that descriptions have room in a terminal."""
    table = two_columns("kind and name", "what it is")
    for kind, group in itertools.groupby(rows, key=lambda row: row["kind"]):
        add_group(table, kind, [(row["name"], row["what"]) for row in group])
    return table


def sources_table(sources: Iterable[Source]) -> Table:
    """Every package with its entry points, the hooks that each implements, and the names that those registered."""
    table = two_columns("package and entry point", f"hooks, {HOOK_PREFIX}…, and what they register")
    for package, group in itertools.groupby(sources, key=lambda source: f"{source.package} {source.version}"):
        add_group(table, package, [(source.entry_point, hooks_in_words(source)) for source in group])
    return table


def hooks_in_words(source: Source) -> str:
    """A line for each hook: its kind, and the names registered."""
    if source.error:
        return "failed to load, see below"
    kinds = [hook.removeprefix(HOOK_PREFIX) for hook in source.hooks]
    names = {kind: [name for of_kind, name in source.registered if of_kind == kind] for kind in kinds}
    return "\n".join(f"{kind}: {', '.join(names[kind]) or 'nothing'}" for kind in kinds) or "no hooks"


def two_columns(left: str, right: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(left, no_wrap=True, overflow="fold")
    table.add_column(right, overflow="fold")
    return table


def add_group(table: Table, heading: str, rows: Iterable[tuple[str, str]]) -> None:
    table.add_section()
    table.add_row(Text(heading, style="bold"))
    for left, right in rows:
        table.add_row(f"  {left}", right)


def console(*, stderr: bool = False) -> Console:
    """Standard output (or error) as it is now; what we print is text, never markup."""
    return Console(markup=False, emoji=False, highlight=False, stderr=stderr)


def print_json(data: Any) -> None:
    """On standard output, valid everywhere: NaN and infinity, which JSON has not, are null."""
    click.echo(json.dumps(as_json(data), indent=2, allow_nan=False))


def as_json(value: Any) -> Any:
    """The same in what JSON knows.

    >>> as_json({"error": math.nan, 1: (np.float64(0.5), Path("a"))})
    {'error': None, '1': [0.5, 'a']}
    """
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    if isinstance(value, (np.generic, np.ndarray)):
        return as_json(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)
