"""The built-in problems, by the names that a specification or the command line uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsuplin.plugin import (
    ArrayProblem,
    DigitsProblem,
    FixedArmsProblem,
    MovieLensProblem,
    SyntheticProblem,
    hookimpl,
)


@hookimpl
def fedsuplin_register_problems(register: Callable[[str, Any], None]) -> None:
    register("synthetic", SyntheticProblem)
    register("array", ArrayProblem)
    register("fixed-arms", FixedArmsProblem)
    register("movielens", MovieLensProblem)
    register("digits", DigitsProblem)
