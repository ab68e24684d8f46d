"""Doubling: an algorithm for an unknown horizon, in epochs that double."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._shared.checks import check_positive_integer
from .._shared.plain_data import convert_to_plain_data, refuse_value
from ..contracts.variant import PARTS, Variant
from ..errors import InvalidInput
from .algorithm import Algorithm
from .assembling import assemble_algorithm
from .composing import compose_recipe

FIRST_EPOCH_PULLS = 1024  # pulls of the first epoch
LAST_EPOCH = 40


class Epoch(NamedTuple):
    """A part of a run."""

    number: int
    begins: int
    """The pulls before it."""
    n_pulls: int
    """Those that are played in it; fewer than its horizon where the run ends in it."""


@dataclass(frozen=True, eq=False)
class Doubling:
    """Epoch e is `make(variant, horizon=first · 2^e, …)`. Where all clients sync together, `first` is brought up to whole rounds.

    >>> doubling = Doubling("async", {"dim": 4, "n_arms": 5, "n_clients": 2})
    >>> [doubling.algorithm(epoch).horizon for epoch in range(3)]
    [1024, 2048, 4096]
    """

    variant: str | Variant
    keywords: Mapping[str, Any]
    """Those of `make`, without the horizon."""
    first: int = FIRST_EPOCH_PULLS

    def __post_init__(self) -> None:
        if "horizon" in self.keywords:
            raise InvalidInput(
                "a Doubling has no horizon: say with first= how many pulls its first epoch has"
            )
        object.__setattr__(self, "keywords", dict(self.keywords))
        object.__setattr__(self, "first", check_positive_integer("first", self.first))
        algorithm = self.algorithm(0)  # what is wrong with a keyword is told now
        if algorithm.syncs == "all":
            rounds = -(-self.first // algorithm.n_clients)
            object.__setattr__(self, "first", rounds * algorithm.n_clients)

    def algorithm(self, epoch: int) -> Algorithm:
        """The algorithm of an epoch, 0 the first."""
        if (
            not isinstance(epoch, int | np.integer)
            or isinstance(epoch, bool)
            or not 0 <= epoch <= LAST_EPOCH
        ):
            raise InvalidInput(f"epochs are 0 to {LAST_EPOCH}, not {epoch!r}")
        keywords = dict(self.keywords)
        parts = {part: keywords.pop(part, None) for part in PARTS}
        name, recipe = compose_recipe(self.variant, parts)
        horizon = self.first * (1 << int(epoch))
        return assemble_algorithm(name, recipe, **keywords, horizon=horizon)

    def begins(self, epoch: int) -> int:
        """The pulls of all epochs before this one.

        >>> Doubling("async", {"dim": 4, "n_arms": 5, "n_clients": 2}, first=10).begins(3)
        70
        """
        return self.first * ((1 << epoch) - 1)

    def epochs(self, n_pulls: int) -> Iterator[Epoch]:
        """Those of a run of so many pulls.

        >>> doubling = Doubling("async", {"dim": 4, "n_arms": 5, "n_clients": 2}, first=10)
        >>> [epoch.n_pulls for epoch in doubling.epochs(100)]
        [10, 20, 40, 30]
        """
        number = 0
        while (begins := self.begins(number)) < n_pulls:
            yield Epoch(number, begins, min(self.begins(number + 1), n_pulls) - begins)
            number += 1

    @property
    def spec(self) -> dict[str, Any]:
        """As plain data, from which `from_spec` makes it again."""
        spec = {"variant": self.variant, "keywords": self.keywords, "first": self.first}
        try:
            return {"doubling": convert_to_plain_data(spec, refuse_value)}
        except TypeError:
            raise InvalidInput(
                "a doubling of parts that are objects can't be made again by name: register them"
            ) from None

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Doubling:
        told = spec["doubling"]
        if told is None:
            raise InvalidInput(
                "a part of it was passed as an object, so it can't be made again by name"
            )
        return cls(told["variant"], told["keywords"], told["first"])

    def __str__(self) -> str:
        head = f"unknown horizon: epoch e has {self.first} · 2^e pulls and begins from nothing. The first is"
        return "\n".join([head, *(f"  {line}" for line in str(self.algorithm(0)).splitlines())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from ..view.notebook import render_doubling

        return render_doubling(self)
