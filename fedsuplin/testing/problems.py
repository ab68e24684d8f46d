"""Checks for problems."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np

from fedsuplin_ext import norms

from .._shared.checks import check_positive_integer
from ..contracts.stream import check_chunk
from .checks import applies_to
from .subject import PULLS, Subject, call_plugin, encode_parameters, fail


@applies_to("problems")
def check_sizes_are_whole_numbers(subject: Subject) -> None:
    """dim, n_arms and n_clients are whole numbers of at least 1, and so is a horizon that is not None."""
    problem = subject.make()
    for name in ("dim", "n_arms", "n_clients", "horizon"):
        value = getattr(problem, name, None)
        if name != "horizon" or value is not None:
            call_plugin(f"its {name}", check_positive_integer, name, value)


@applies_to("problems")
def check_pulls_are_legal(subject: Subject) -> None:
    """What a stream gives can be played: finite numbers, contexts no longer than 1, clients 0 to M − 1, the sizes it says."""
    problem = subject.make()
    length = choose_length(problem)
    chunk = call_plugin(
        f"stream({length}, None).take({length})", problem.stream(length, None).take, length
    )
    call_plugin("its stream", check_chunk, chunk, length, 0, problem.n_arms)
    sizes = (length, problem.dim, norms.pad(problem.n_arms))
    if chunk.contexts.shape != sizes:
        fail(
            f"its contexts have the shape {chunk.contexts.shape}; pulls × dim × lanes is {sizes}: Chunk.of(…) makes it so"
        )
    if (chunk.clients < 0).any() or (chunk.clients >= problem.n_clients).any():
        fail(
            f"its clients are {chunk.clients.min()} to {chunk.clients.max()}, but n_clients={problem.n_clients}: count from 0"
        )
    if (chunk.theta is None) == (chunk.rewards is None):
        fail("a chunk must have either theta or rewards, not both")


@applies_to("problems")
def check_pulls_do_not_depend_on_the_split(subject: Subject) -> None:
    """Every stream begins at the beginning and gives the same pulls, taken whole or in pieces."""
    problem = subject.make()
    length = choose_length(problem)
    whole = take_columns(problem, [length])
    compare_pulls(
        whole, take_columns(problem, split_into_pieces(length)), "a second stream, taken in pieces,"
    )
    compare_pulls(
        whole, take_columns(subject.make(), [length]), "a second problem with the same parameters"
    )


@applies_to("problems", when=lambda problem: problem.spec.get("parameters") is not None)
def check_specification_makes_it_again(subject: Subject) -> None:
    """`spec` is plain data; the parameters in it, if there are any, make a problem with the same pulls, by its own name."""
    problem = subject.make()
    spec = json.loads(encode_parameters(problem.spec))
    if subject.name not in (None, spec.get("problem")):
        fail(
            f"its specification names {spec.get('problem')!r}, where a saved run would look for it, and not {subject.name!r}"
        )
    remade = call_plugin(
        f"made again from its specification {spec['parameters']}, it",
        subject.factory,
        **spec["parameters"],
    )
    sizes = [choose_length(problem)]
    compare_pulls(
        take_columns(problem, sizes),
        take_columns(remade, sizes),
        f"made again from its specification {spec['parameters']}, it",
    )


def choose_length(problem: Any) -> int:
    return min(PULLS, problem.horizon or PULLS)


def split_into_pieces(length: int) -> list[int]:
    """1, 2, 3, … pulls, and the rest."""
    sizes: list[int] = []
    while sum(sizes) < length:
        sizes.append(min(len(sizes) + 1, length - sum(sizes)))
    return sizes


def take_columns(problem: Any, sizes: list[int]) -> dict[str, np.ndarray]:
    """The columns of a stream taken in chunks of these sizes; copied, since a stream may use its arrays again."""
    stream = problem.stream(sum(sizes), None)
    columns: dict[str, list[np.ndarray]] = {}
    for size in sizes:
        for name, values in dataclasses.asdict(stream.take(size)).items():
            if values is not None:
                columns.setdefault(name, []).append(values[None] if name == "theta" else values)
    return {name: np.concatenate(values) for name, values in columns.items()}


def compare_pulls(one: dict[str, np.ndarray], other: dict[str, np.ndarray], which: str) -> None:
    if one.keys() != other.keys():
        fail(f"{which} gives {', '.join(sorted(one.keys() ^ other.keys()))} on one side only")
    for name, first in one.items():
        second = other[name]
        if name == "theta":
            first, second = (
                np.unique(first, axis=0),
                np.unique(second, axis=0),
            )  # one for each chunk, however many there are
        if first.shape != second.shape:
            fail(f"{which} gives {name} of shape {second.shape}, not {first.shape}")
        if (first != second).any():
            fail(
                f"{which} gives other {name}, first at pull {int(np.argwhere(first != second)[0][0])}: keep to the seed"
            )
