"""Setting: the sizes that every formula of the paper depends on."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .._shared.checks import check_positive, check_positive_integer, check_size
from ..errors import InvalidInput

LEAST_RIDGE, MOST_RIDGE = 1e-100, 1e100  # inverses and squares stay far from overflow


@dataclass(frozen=True)
class Setting:
    """The sizes of a problem, as the formulas of noise models, triggers and weightings take them.

    Parameters
    ----------
    dim : int
        The length of a context, d.
    n_arms : int
        The number of arms per round, K.
    n_clients : int
        The number of clients, M.
    horizon : int
        The number of pulls of all clients together, T.
    ridge : float, default 1.0
        The regularisation λ: every Gram matrix starts as λI.

    Examples
    --------
    >>> from fedsuplin.plugin import Setting
    >>> Setting(dim=25, n_arms=20, n_clients=20, horizon=40_000).rounds
    2000.0
    """

    dim: int
    n_arms: int
    n_clients: int
    horizon: int
    ridge: float = 1.0

    def __post_init__(self) -> None:
        for name in ("dim", "n_arms", "n_clients"):
            object.__setattr__(self, name, check_size(name, getattr(self, name)))
        object.__setattr__(self, "horizon", check_positive_integer("horizon", self.horizon))
        if not LEAST_RIDGE <= check_positive("ridge", self.ridge) <= MOST_RIDGE:
            raise InvalidInput(
                f"ridge must be from {LEAST_RIDGE} to {MOST_RIDGE}, not {self.ridge!r}"
            )
        object.__setattr__(self, "ridge", float(self.ridge))

    @property
    def rounds(self) -> float:
        """The pulls of one client when all take turns: T_c = T / M."""
        return self.horizon / self.n_clients

    def with_horizon(self, horizon: int) -> Setting:
        """Return the same setting with another horizon.

        Parameters
        ----------
        horizon : int
            The new number of pulls.

        Returns
        -------
        Setting
            A copy.
        """
        return dataclasses.replace(self, horizon=horizon)
