"""The algorithm that a server and its clients must share, epoch by epoch."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import Doubling
from ..algorithm.making import make_algorithm_from_spec
from ..errors import FedsuplinError, InvalidInput
from ..live.algorithm_checks import check_live_algorithm
from .wire import encode_spec


@dataclass(frozen=True, eq=False)
class Agreement:
    """What a server and its clients agree on, as plain data.

    >>> import fedsuplin as fsl
    >>> agreement = Agreement.of(fsl.make("async", dim=4, n_arms=5, n_clients=2, horizon=1000))
    >>> Agreement.from_spec(agreement.spec).fingerprint == agreement.fingerprint
    True
    """

    spec: dict[str, Any]

    @property
    def doubles(self) -> bool:
        """Whether the horizon is unknown, so that epochs of doubled horizons follow each other."""
        return "doubling" in self.spec

    @functools.cached_property
    def fingerprint(self) -> bytes:
        """A hash of the specification, by which both sides compare it."""
        return compute_fingerprint(self.spec)

    @functools.lru_cache(maxsize=4)  # noqa: B019 - a process has one or two agreements
    def algorithm(self, epoch: int) -> Algorithm:
        """Return the algorithm of an epoch."""
        made = make_algorithm_from_spec(self.spec)
        if isinstance(made, Doubling):
            return made.algorithm(epoch)
        if epoch != 0:
            raise InvalidInput(f"an algorithm with a known horizon has epoch 0 only, not {epoch}")
        return made

    @classmethod
    def of(cls, algorithm: Algorithm | Doubling) -> Agreement:
        """Return the agreement on an algorithm, whose parts must have registered names."""
        if not isinstance(algorithm, Algorithm | Doubling):
            raise InvalidInput(
                f"a federation needs an algorithm, which fsl.make returns, not {algorithm!r}"
            )
        return cls.from_spec(json.loads(encode_spec(algorithm.spec)))

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Agreement:
        """Return the agreement on a specification from the network or a file, checked at once."""
        agreement = cls(spec)
        try:
            check_live_algorithm(agreement.algorithm(0))
        except FedsuplinError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(
                f"this is not the specification of an algorithm: {error!r}"
            ) from error
        return agreement


def compute_fingerprint(spec: dict[str, Any]) -> bytes:
    """Return the hash of a specification, by which both sides compare their agreement."""
    return hashlib.sha256(encode_spec(spec)).digest()
