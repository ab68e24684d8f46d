"""The algorithm that a server and its clients must share, epoch by epoch."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any

from ..algorithm.algorithm import Algorithm
from ..algorithm.doubling import Doubling
from ..algorithm.making import make_algorithm_from_spec
from ..errors import FedsuplinError, InvalidInput
from ..live.algorithms import check_live_algorithm
from .wire import compute_fingerprint, encode_spec


@dataclass(frozen=True, eq=False)
class Agreement:
    """What a server and its clients agree on, made of plain data alone.

    >>> import fedsuplin as fsl
    >>> plan = Plan.of(fsl.make("async", dim=4, n_arms=5, n_clients=2, horizon=1000))
    >>> Plan.from_spec(plan.spec).fingerprint == plan.fingerprint, plan.doubles
    (True, False)
    """

    spec: dict[str, Any]

    @property
    def doubles(self) -> bool:
        return "doubling" in self.spec

    @functools.cached_property
    def fingerprint(self) -> bytes:
        return compute_fingerprint(self.spec)

    @functools.lru_cache(maxsize=4)  # noqa: B019 - a process has a plan or two
    def algorithm(self, epoch: int) -> Algorithm:
        made = make_algorithm_from_spec(self.spec)
        if isinstance(made, Doubling):
            return made.algorithm(epoch)
        if epoch != 0:
            raise InvalidInput(f"a plan with a known horizon has epoch 0 only, not {epoch}")
        return made

    @classmethod
    def of(cls, algorithm: Algorithm | Doubling) -> Agreement:
        """The plan of an algorithm; its parts must have names, as the other side makes it again."""
        if not isinstance(algorithm, Algorithm | Doubling):
            raise InvalidInput(
                f"a federation needs an algorithm, which fsl.make gives, not {algorithm!r}"
            )
        return cls.from_spec(json.loads(encode_spec(algorithm.spec)))

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Agreement:
        """From what came over the network or out of a file, tried at once."""
        plan = cls(spec)
        try:
            check_live_algorithm(plan.algorithm(0))
        except FedsuplinError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput(f"this is no specification of an algorithm: {error!r}") from error
        return plan
