"""Checks for arrival patterns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from .checks import applies_to
from .subject import Subject, call_plugin, fail

CROWDS = (
    (1, 1),
    (1, 10),
    (3, 10),
    (4, 12),
    (7, 1000),
    (20, 400),
)  # M, T: T a multiple of M, and not
SEEDS = (0, 7, 2**64 - 1)


@applies_to("arrivals")
def check_clients_are_in_range(subject: Subject) -> None:
    """Every pull has one client, a whole number from 0 to M − 1."""
    for what, horizon, keywords in list_crowds(subject):
        clients = np.asarray(call_plugin(what, subject.make().clients, 0, horizon, **keywords))
        most = keywords["n_clients"] - 1
        if clients.shape != (horizon,) or not np.issubdtype(clients.dtype, np.integer):
            fail(
                f"{what} is {clients.dtype} of shape {clients.shape}; it must be {horizon} whole numbers"
            )
        if (clients < 0).any() or (clients > most).any():
            fail(f"{what} holds {clients.min()} to {clients.max()}; clients are 0 to {most}")


@applies_to("arrivals")
def check_clients_do_not_depend_on_the_split(subject: Subject) -> None:
    """Who plays is a function of the pull, the sizes and the seed: asked for in any pieces, in any order, it is the same."""
    for what, horizon, keywords in list_crowds(subject):
        whole = np.asarray(call_plugin(what, subject.make().clients, 0, horizon, **keywords))
        cuts, arrival = [0, horizon // 3, horizon // 2, horizon], subject.make()
        for start, stop in reversed(list(itertools.pairwise(cuts))):
            if start < stop:
                part = np.asarray(
                    call_plugin(
                        f"clients({start}, {stop}, …)", arrival.clients, start, stop, **keywords
                    )
                )
                if not np.array_equal(part, whole[start:stop]):
                    fail(
                        f"pulls {start} to {stop - 1} of {what} are {whole[start:stop]}, but asked for alone {part}"
                    )


@applies_to("arrivals", when=lambda arrival: getattr(arrival, "in_rounds", False))
def check_rounds_hold_each_client_once(subject: Subject) -> None:
    """If `in_rounds` is True, every M pulls hold each client once."""
    for what, horizon, keywords in list_crowds(subject):
        n_clients = keywords["n_clients"]
        if horizon % n_clients == 0:
            rounds = np.asarray(subject.make().clients(0, horizon, **keywords)).reshape(
                -1, n_clients
            )
            wrong = (np.sort(rounds, axis=1) != np.arange(n_clients)).any(axis=1)
            if wrong.any():
                at = int(wrong.argmax())
                fail(
                    f"round {at} of {what} is {rounds[at]}, but in_rounds is True: each of {n_clients} clients must come once"
                )


def list_crowds(subject: Subject) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Sizes and seeds to ask for: in words, T, and the keywords."""
    for (n_clients, horizon), seed in itertools.product(CROWDS, SEEDS):
        sizes = {"n_clients": n_clients, "horizon": horizon}
        keywords = {name: subject.where.get(name, size) for name, size in sizes.items()} | {
            "seed": seed
        }
        words = ", ".join(f"{name}={value}" for name, value in keywords.items())
        yield f"clients(0, {keywords['horizon']}, {words})", keywords["horizon"], keywords
