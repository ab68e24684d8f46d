"""Doubling: an algorithm for an unknown horizon, in epochs that double."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .._shared.checks import check_positive_integer, is_whole_number
from .._shared.plain_data import convert_to_plain_data, refuse_value
from ..contracts.variant import PARTS, Variant
from ..errors import InvalidInput
from .algorithm import Algorithm
from .assembling import assemble_algorithm
from .composing import compose_recipe

FIRST_EPOCH_PULLS = 1024
LAST_EPOCH = 40


class Epoch(NamedTuple):
    """A part of a run with an unknown horizon."""

    number: int
    begins: int
    """The pulls before it."""
    n_pulls: int
    """The pulls in it; fewer than its horizon where the run ends in it."""


@dataclass(frozen=True, eq=False)
class Doubling:
    """An algorithm for an unknown horizon, played in epochs that double.

    Epoch e is ``make(variant, horizon=first · 2^e, …)`` and starts without what was learnt before.

    Parameters
    ----------
    variant : str or Variant
        As for `make`.
    keywords : mapping of str to object
        Those of `make`, without the horizon.
    first : int, default 1024
        The pulls of the first epoch. Where all clients sync together, it is rounded up to whole
        rounds.

    Examples
    --------
    >>> import fedsuplin as fsl
    >>> doubling = fsl.Doubling("async", {"dim": 4, "n_arms": 5, "n_clients": 2})
    >>> [doubling.algorithm(epoch).horizon for epoch in range(3)]
    [1024, 2048, 4096]
    """

    variant: str | Variant
    keywords: Mapping[str, Any]
    first: int = FIRST_EPOCH_PULLS

    def __post_init__(self) -> None:
        if "horizon" in self.keywords:
            raise InvalidInput(
                "a Doubling has no horizon: say with first= how many pulls its first epoch has"
            )
        object.__setattr__(self, "keywords", dict(self.keywords))
        object.__setattr__(self, "first", check_positive_integer("first", self.first))
        algorithm = self.algorithm(0)  # reports a wrong keyword now
        if algorithm.syncs == "all":
            rounds = -(-self.first // algorithm.n_clients)
            object.__setattr__(self, "first", rounds * algorithm.n_clients)

    def algorithm(self, epoch: int) -> Algorithm:
        """Make the algorithm of an epoch.

        Parameters
        ----------
        epoch : int
            The number of the epoch; 0 is the first.

        Returns
        -------
        Algorithm
            With the horizon first · 2^epoch.
        """
        if not is_whole_number(epoch) or not 0 <= epoch <= LAST_EPOCH:
            raise InvalidInput(f"epochs are 0 to {LAST_EPOCH}, not {epoch!r}")
        keywords = dict(self.keywords)
        parts = {part: keywords.pop(part, None) for part in PARTS}
        name, recipe = compose_recipe(self.variant, parts)
        horizon = self.first * (1 << int(epoch))
        return assemble_algorithm(name, recipe, **keywords, horizon=horizon)

    def begins(self, epoch: int) -> int:
        """Return the number of pulls of all epochs before one.

        Parameters
        ----------
        epoch : int
            The number of the epoch; 0 is the first.

        Returns
        -------
        int
            first · (2^epoch − 1).

        Examples
        --------
        >>> import fedsuplin as fsl
        >>> fsl.Doubling("async", {"dim": 4, "n_arms": 5, "n_clients": 2}, first=10).begins(3)
        70
        """
        return self.first * ((1 << epoch) - 1)

    def epochs(self, n_pulls: int) -> Iterator[Epoch]:
        """Iterate over the epochs of a run.

        Parameters
        ----------
        n_pulls : int
            The pulls of the whole run.

        Yields
        ------
        Epoch
            Its number, the pulls before it and the pulls in it.

        Examples
        --------
        >>> import fedsuplin as fsl
        >>> doubling = fsl.Doubling("async", {"dim": 4, "n_arms": 5, "n_clients": 2}, first=10)
        >>> [epoch.n_pulls for epoch in doubling.epochs(100)]
        [10, 20, 40, 30]
        """
        number = 0
        while (begins := self.begins(number)) < n_pulls:
            yield Epoch(number, begins, min(self.begins(number + 1), n_pulls) - begins)
            number += 1

    @property
    def spec(self) -> dict[str, Any]:
        """The doubling as plain data, from which `from_spec` makes it again."""
        spec = {"variant": self.variant, "keywords": self.keywords, "first": self.first}
        try:
            return {"doubling": convert_to_plain_data(spec, refuse_value)}
        except TypeError:
            raise InvalidInput(
                "a doubling of parts that are objects can't be made again by name: register them"
            ) from None

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Doubling:
        """Make the doubling that a specification describes.

        Parameters
        ----------
        spec : mapping
            What `spec` returned.

        Returns
        -------
        Doubling
            The same doubling.
        """
        given = spec["doubling"]
        if given is None:
            raise InvalidInput(
                "a part of it was passed as an object, so it can't be made again by name"
            )
        return cls(given["variant"], given["keywords"], given["first"])

    def __str__(self) -> str:
        head = (
            f"unknown horizon: epoch e has {self.first} · 2^e pulls and begins from nothing. "
            "The first is"
        )
        return "\n".join([head, *(f"  {line}" for line in str(self.algorithm(0)).splitlines())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from ..view.notebook import render_doubling

        return render_doubling(self)
