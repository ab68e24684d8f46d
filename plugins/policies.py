"""Decision policies: how an arm is picked from estimates and widths. The decisions themselves are compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedsuplin import hookimpl


@dataclass(frozen=True)
class Layered:
    """The layered successive screening of SupLinUCB (the paper's S-LUCB)."""

    kernel: ClassVar[str] = "layered"


@dataclass(frozen=True)
class Optimism:
    """One layer, the arm with the largest estimate plus width (OFUL, LinUCB)."""

    kernel: ClassVar[str] = "optimism"


@hookimpl
def fedsuplin_register_policies(register):
    register("layered", Layered)
    register("optimism", Optimism)
