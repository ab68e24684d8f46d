"""Checks for variants."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

from ..algorithm.composing import list_keywords
from ..algorithm.making import make
from ..contracts.variant import PRESETS
from ..simulation.runner import run
from .checks import applies_to
from .games import compare_decisions, make_games
from .subject import Subject, call_plugin, fail


@applies_to("variants")
def check_makes_an_algorithm(subject: Subject) -> None:
    """`fedsuplin.make` takes it, with either preset, in every setting."""
    for setting, preset in itertools.product(subject.settings, PRESETS):
        call_plugin(
            f"make(…, preset={preset!r}) for {setting}",
            make,
            subject.make(),
            preset=preset,
            **dataclasses.asdict(setting),
        )


@applies_to("variants")
def check_presets_are_used(subject: Subject) -> None:
    """Every keyword of a preset is one that a part of the variant takes."""
    variant = subject.make()
    for preset, keywords in variant.presets.items():
        ignored = set(keywords) - list_keywords(variant)
        if ignored:
            takes = ", ".join(sorted(list_keywords(variant)))
            fail(
                f"preset {preset!r} gives {', '.join(sorted(ignored))}, which no part takes by name; they take {takes}"
            )


@applies_to("variants")
def check_plays_the_same_again(subject: Subject) -> None:
    """A second run, and one in chunks of 7 pulls, have the same arms, layers and communication."""
    for title, algorithm, problem in make_games(subject):
        play = partial(
            call_plugin, title, run, algorithm, problem, horizon=algorithm.horizon, record="all"
        )
        first = play()
        compare_decisions(first, play(), title, "played again")
        compare_decisions(first, play(chunk=7), title, "played in chunks of 7")
