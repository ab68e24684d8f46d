"""Which algorithms live clients and servers can play."""

from __future__ import annotations

from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import Doubling
from ..errors import InvalidInput


def check_live_algorithm(algorithm: Algorithm | Doubling) -> None:
    if isinstance(algorithm, Doubling):
        raise InvalidInput(
            "a live client or server plays one epoch of a Doubling: give it doubling.algorithm(epoch), "
            "or use fedsuplin serve and fsl.connect, which go from epoch to epoch"
        )
    if not isinstance(algorithm, Algorithm):
        raise InvalidInput(
            f"a live client or server needs an Algorithm, which fsl.make gives, not {algorithm!r}"
        )
    if algorithm.kernel == "phased" or algorithm.syncs == "push":
        why = (
            "plays in phases"
            if algorithm.kernel == "phased"
            else "has a server that sends on its own"
        )
        raise InvalidInput(f"{algorithm.name} {why}, which live clients and servers do not do")
