"""The built-in problems, by the names that a specification or the command line uses."""

from __future__ import annotations

from fedsuplin import ArrayProblem, DigitsProblem, FixedArmsProblem, MovieLensProblem, SyntheticProblem, hookimpl
from fedsuplin.hookspecs import Register


@hookimpl
def fedsuplin_register_problems(register: Register) -> None:
    register("synthetic", SyntheticProblem)
    register("array", ArrayProblem)
    register("fixed-arms", FixedArmsProblem)
    register("movielens", MovieLensProblem)
    register("digits", DigitsProblem)
