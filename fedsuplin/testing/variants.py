"""Checks for variants."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

from ..algorithm.composing import list_keywords
from ..algorithm.making import make
from ..contracts.variant import PRESETS
from ..simulation.runner import run
from .applying import applies_to
from .games import compare_decisions, make_games
from .subject import Subject, call_plugin, fail


@applies_to("variants")
def check_makes_an_algorithm(subject: Subject) -> None:
    """Check that `fedsuplin.make` accepts a variant, with either preset, in every setting."""
    for setting, preset in itertools.product(subject.settings, PRESETS):
        what = f"make(…, preset={preset!r}) for {setting}"
        keywords = {"preset": preset, **dataclasses.asdict(setting)}
        call_plugin(what, make, subject.make(), **keywords)


@applies_to("variants")
def check_presets_are_used(subject: Subject) -> None:
    """Check that a part of the variant has every keyword of its presets."""
    variant = subject.make()
    accepted = list_keywords(variant)
    for preset, keywords in variant.presets.items():
        ignored = set(keywords) - accepted
        if ignored:
            names, known = ", ".join(sorted(ignored)), ", ".join(sorted(accepted))
            fail(f"preset {preset!r} sets {names}, which no part has; the parts have {known}")


@applies_to("variants")
def check_plays_the_same_again(subject: Subject) -> None:
    """Check that a variant decides the same in a second run, and in chunks of 7 pulls.

    Decisions are arms, layers and communication.
    """
    for title, algorithm, problem in make_games(subject):
        play = partial(
            call_plugin, title, run, algorithm, problem, horizon=algorithm.horizon, record="all"
        )
        first = play()
        compare_decisions(first, play(), title, "played again")
        compare_decisions(first, play(chunk=7), title, "played in chunks of 7")
