"""Checks of the algorithm and the client id of a live client or server."""

from __future__ import annotations

from .._shared.checks import is_whole_number
from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import Doubling
from ..errors import InvalidInput


def check_live_algorithm(algorithm: Algorithm | Doubling) -> None:
    """Check that live clients and servers can play an algorithm."""
    if isinstance(algorithm, Doubling):
        raise InvalidInput(
            "a live client or server plays one epoch of a Doubling: pass "
            "doubling.algorithm(epoch), or use fedsuplin serve and fsl.connect, which go from "
            "epoch to epoch"
        )
    if not isinstance(algorithm, Algorithm):
        raise InvalidInput(
            f"a live client or server needs an Algorithm, which fsl.make returns, not {algorithm!r}"
        )
    if algorithm.kernel == "phased" or algorithm.syncs == "push":
        why = (
            "plays in phases"
            if algorithm.kernel == "phased"
            else "has a server that sends on its own"
        )
        raise InvalidInput(f"{algorithm.name} {why}, which live clients and servers do not do")


def check_client_id(client_id: object, algorithm: Algorithm, name: str = "client_id") -> int:
    """Check that a live algorithm has a client with this id, and return the id as an int."""
    if not is_whole_number(client_id) or not 0 <= client_id < algorithm.n_clients:
        raise InvalidInput(
            f"{name} must be a whole number from 0 to {algorithm.n_clients - 1}, not {client_id!r}"
        )
    return int(client_id)
