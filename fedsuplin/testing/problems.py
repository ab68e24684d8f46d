"""Checks for problems."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from .._shared.checks import check_positive_integer
from ..contracts.problem import Problem
from ..contracts.stream import check_chunk
from .applying import applies_to
from .subject import PULLS, Subject, call_plugin, encode_parameters, fail


@applies_to("problems")
def check_sizes_are_whole_numbers(subject: Subject) -> None:
    """Check that a problem's dim, n_arms and n_clients are whole numbers of at least 1.

    So must be the horizon, unless it is None.
    """
    problem = subject.make()
    for name in ("dim", "n_arms", "n_clients", "horizon"):
        value = getattr(problem, name, None)
        if name != "horizon" or value is not None:
            call_plugin(f"its {name}", check_positive_integer, name, value)


@applies_to("problems")
def check_pulls_are_legal(subject: Subject) -> None:
    """Check that a run can play what a problem's stream gives.

    Numbers are finite, contexts no longer than 1, clients 0 to M − 1, and sizes those of the
    problem.
    """
    problem = subject.make()
    length = choose_length(problem)
    take = problem.stream(length, None).take
    chunk = call_plugin(f"stream({length}, None).take({length})", take, length)
    call_plugin("its stream", check_chunk, chunk, length, 0, problem.n_arms, problem.dim)
    if (chunk.clients < 0).any() or (chunk.clients >= problem.n_clients).any():
        found = f"{chunk.clients.min()} to {chunk.clients.max()}"
        fail(f"its clients are {found}, but n_clients={problem.n_clients}: count from 0")
    if (chunk.theta is None) == (chunk.rewards is None):
        fail("a chunk must have either theta or rewards, not both")


@applies_to("problems")
def check_pulls_do_not_depend_on_the_split(subject: Subject) -> None:
    """Check that a problem's streams start afresh with the same pulls, whole or in pieces."""
    problem = subject.make()
    length = choose_length(problem)
    whole = take_columns(problem, [length])
    pieces = take_columns(problem, split_into_pieces(length))
    compare_pulls(whole, pieces, "a second stream, taken in pieces,")
    second = take_columns(subject.make(), [length])
    compare_pulls(whole, second, "a second problem with the same parameters")


@applies_to("problems")
def check_chunks_stay_while_the_next_is_taken(subject: Subject) -> None:
    """Check that a stream with `may_prefetch` leaves a chunk alone while it gives the next."""
    problem = subject.make()
    length = choose_length(problem)
    stream, n = problem.stream(length, None), length // 2
    if n == 0 or not getattr(stream, "may_prefetch", False):
        return
    chunk = stream.take(n)
    before = dataclasses.asdict(chunk)  # copies
    stream.take(n)
    for name, values in before.items():
        if values is not None and (getattr(chunk, name) != values).any():
            fail(
                f"may_prefetch is True, but take({n}) changed the {name} of the chunk before: "
                "use new arrays, or two that take turns"
            )


@applies_to("problems", when=lambda problem: problem.spec.get("parameters") is not None)
def check_specification_makes_it_again(subject: Subject) -> None:
    """Check that a problem's `spec` is plain data that makes one with the same pulls.

    It must have the problem's own registered name.
    """
    problem = subject.make()
    spec = json.loads(encode_parameters(problem.spec))
    if subject.name not in (None, spec.get("problem")):
        wrong, right = spec.get("problem"), subject.name
        fail(f"its specification has the name {wrong!r}, but it is registered as {right!r}")
    what = f"made again from its specification {spec['parameters']}, it"
    remade = call_plugin(what, subject.factory, **spec["parameters"])
    sizes = [choose_length(problem)]
    compare_pulls(take_columns(problem, sizes), take_columns(remade, sizes), what)


def choose_length(problem: Problem) -> int:
    """Return how many pulls of a problem to test: a few hundred, or all if it has fewer."""
    return min(PULLS, problem.horizon or PULLS)


def split_into_pieces(length: int) -> list[int]:
    """Return sizes of pieces in which to take a problem under test: 1, 2, 3, … and the rest."""
    sizes: list[int] = []
    while sum(sizes) < length:
        sizes.append(min(len(sizes) + 1, length - sum(sizes)))
    return sizes


def take_columns(problem: Problem, sizes: list[int]) -> dict[str, np.ndarray]:
    """Return the columns that a problem under test gives in chunks of these sizes.

    Arrays are copied, since a stream may use its own again.
    """
    stream = problem.stream(sum(sizes), None)
    columns: dict[str, list[np.ndarray]] = {}
    for size in sizes:
        for name, values in dataclasses.asdict(stream.take(size)).items():
            if values is not None:
                columns.setdefault(name, []).append(values[None] if name == "theta" else values)
    return {name: np.concatenate(values) for name, values in columns.items()}


def compare_pulls(one: dict[str, np.ndarray], other: dict[str, np.ndarray], which: str) -> None:
    """Fail if a problem under test gives other pulls the second time, which `which` describes."""
    if one.keys() != other.keys():
        fail(f"{which} gives {', '.join(sorted(one.keys() ^ other.keys()))} on one side only")
    for name, first in one.items():
        second = other[name]
        if name == "theta":  # one per chunk, however many chunks there are
            first, second = np.unique(first, axis=0), np.unique(second, axis=0)
        if first.shape != second.shape:
            fail(f"{which} gives {name} of shape {second.shape}, not {first.shape}")
        if (first != second).any():
            at = int(np.argwhere(first != second)[0][0])
            fail(f"{which} gives other {name}, first at pull {at}: draw from the seed alone")
