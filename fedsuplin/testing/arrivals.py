"""Checks for arrival patterns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from .applying import applies_to
from .subject import Subject, call_plugin, fail

# M and T: T is a multiple of M in some, and not in others.
CROWDS = ((1, 1), (1, 10), (3, 10), (4, 12), (7, 1000), (20, 400))
SEEDS = (0, 7, 2**64 - 1)


@applies_to("arrivals")
def check_clients_are_in_range(subject: Subject) -> None:
    """Check that an arrival pattern gives every pull one client, from 0 to M − 1."""
    for what, horizon, keywords in list_crowds(subject):
        clients = np.asarray(call_plugin(what, subject.make().clients, 0, horizon, **keywords))
        most = keywords["n_clients"] - 1
        if clients.shape != (horizon,) or not np.issubdtype(clients.dtype, np.integer):
            found = f"{clients.dtype} of shape {clients.shape}"
            fail(f"{what} is {found}; it must be {horizon} whole numbers")
        if (clients < 0).any() or (clients > most).any():
            fail(f"{what} holds {clients.min()} to {clients.max()}; clients are 0 to {most}")


@applies_to("arrivals")
def check_clients_do_not_depend_on_the_split(subject: Subject) -> None:
    """Check that an arrival pattern, asked in pieces in any order, gives the same clients.

    Who plays is a function of the pull, the sizes and the seed.
    """
    for what, horizon, keywords in list_crowds(subject):
        whole = np.asarray(call_plugin(what, subject.make().clients, 0, horizon, **keywords))
        cuts, arrival = [0, horizon // 3, horizon // 2, horizon], subject.make()
        for start, stop in reversed(list(itertools.pairwise(cuts))):
            if start == stop:
                continue
            call = f"clients({start}, {stop}, …)"
            part = np.asarray(call_plugin(call, arrival.clients, start, stop, **keywords))
            if not np.array_equal(part, whole[start:stop]):
                pulls = f"pulls {start} to {stop - 1} of {what}"
                fail(f"{pulls} are {whole[start:stop]}, but asked for alone {part}")


@applies_to("arrivals", when=lambda arrival: getattr(arrival, "in_rounds", False))
def check_rounds_hold_each_client_once(subject: Subject) -> None:
    """Check that an arrival pattern has each client once in M pulls if `in_rounds` is True."""
    for what, horizon, keywords in list_crowds(subject):
        n_clients = keywords["n_clients"]
        if horizon % n_clients:
            continue
        clients = np.asarray(subject.make().clients(0, horizon, **keywords))
        rounds = clients.reshape(-1, n_clients)
        wrong = (np.sort(rounds, axis=1) != np.arange(n_clients)).any(axis=1)
        if wrong.any():
            at = int(wrong.argmax())
            right = f"each of {n_clients} clients must come once"
            fail(f"round {at} of {what} is {rounds[at]}, but in_rounds is True: {right}")


def list_crowds(subject: Subject) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Yield calls of an arrival pattern: each in words, its T, and its keywords, with the seed."""
    for (n_clients, horizon), seed in itertools.product(CROWDS, SEEDS):
        sizes = {"n_clients": n_clients, "horizon": horizon}
        keywords = {name: subject.where.get(name, size) for name, size in sizes.items()}
        keywords["seed"] = seed
        text = ", ".join(f"{name}={value}" for name, value in keywords.items())
        yield f"clients(0, {keywords['horizon']}, {text})", keywords["horizon"], keywords
