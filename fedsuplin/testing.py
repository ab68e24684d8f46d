"""Conformance: what every plugin has to keep, as checks that its author runs on it in one line of pytest.

    from fedsuplin.testing import conformance
    test_conformance = conformance("fedsuplin-demo")

makes a test of every check on every plugin that the installed package registers. `check("triggers", MyTrigger(every=3))`
does it for one object, without entry points. Each check is a function below whose first line is the claim.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.metadata
import itertools
import json
import math
import numbers
import operator
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from fedsuplin_ext import norms
from fedsuplin_ext.rules import METHODS, Rule

from . import reference
from .algorithm import AXES, PRESETS, Algorithm, keywords_of, make
from .errors import InvalidInput, MissingExtra, PluginWarning, unknown
from .fixed_arms import FixedArmsProblem
from .problem import ArrayProblem, SyntheticProblem, check_chunk, drawn
from .registry import KINDS, SINGULAR, MissingParameter, plugins
from .registry import check as offering
from .run import run
from .setting import Setting, positive_integer

__all__ = ["CHECKS", "check", "conformance"]

AXIS = {kind: axis for axis, kind in AXES.items()}  # the keyword of `make` for a part of this kind
RULES = tuple(kind for kind, axis in AXIS.items() if axis in METHODS)  # the kinds that the engine asks at every pull
SETTINGS = (  # small first, so that a failure is shown where it is easiest to follow
    Setting(dim=1, n_arms=1, n_clients=1, horizon=1),
    Setting(dim=2, n_arms=3, n_clients=2, horizon=50, ridge=0.01),
    Setting(dim=5, n_arms=6, n_clients=4, horizon=600),
    Setting(dim=25, n_arms=20, n_clients=20, horizon=10**9, ridge=5.0),
)
GAME = Setting(dim=4, n_arms=5, n_clients=3, horizon=300)
PULLS = 300  # of a game at most: the reference takes a few tenths of a millisecond for each
AGREEMENT = 1e-12  # relative: compiled code may add and multiply in another order


# --- what an author calls ------------------------------------------------------------------------------------------------


def conformance(package: str, *, parameters: Mapping[str, Mapping[str, Any]] | None = None, **where: Any) -> Callable[..., None]:
    """A test function for pytest: every check on everything that an installed package registers.

    `parameters` has keywords for plugins that can't be made without: {"name": {…}}, or {"kind-name": {…}} where two kinds
    share a name. `where` fixes sizes for plugins that work for some only: conformance("fedsuplin-demo", dim=2).
    """
    try:
        import pytest
    except ImportError:
        raise MissingExtra("conformance() makes a test for pytest: pip install pytest, or 'fedsuplin[test]'") from None
    cases = cases_of(package, dict(parameters or {}), checked_sizes(where))

    @pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])
    def test_conformance(case: Case) -> None:
        try:
            case.run()
            return
        except NotApplicable as reason:
            end = partial(pytest.skip, str(reason))
        except AssertionError as error:
            if error.__cause__ is not None:
                raise
            end = partial(pytest.fail, str(error), pytrace=False)  # the message says it all; where we noticed says nothing
        end()

    return test_conformance


def check(kind: str, plugin: Any, **where: Any) -> None:
    """All checks of a kind on one plugin; an AssertionError says what is wrong, with which inputs, and what would be right.

    `where` fixes sizes (dim, n_arms, n_clients, horizon, ridge) for a plugin that works for some only.

    >>> from fedsuplin.registry import plugins
    >>> check("triggers", plugins.create("triggers", "periodic", {"every": 3}))
    """
    if kind not in KINDS:
        raise unknown("kind of plugin", kind, KINDS)
    if isinstance(plugin, type):
        raise InvalidInput(f"check takes a plugin, not its class: check({kind!r}, {plugin.__name__}(…))")
    subject = Subject(
        label=f"{SINGULAR[kind]} {plugin!r}",
        kind=kind,
        maker=lambda: offering(kind, another(plugin)),
        factory=type(plugin),
        where=checked_sizes(where),
    )
    for claim in checks_of(subject):
        try:
            examine(subject, claim)
        except NotApplicable:
            continue


# --- which plugins, which checks -------------------------------------------------------------------------------------------


class NotApplicable(Exception):
    """A check that can't be made of this plugin here; says why."""


class Case(NamedTuple):
    """One test: its id, and what it runs."""

    id: str
    run: Callable[[], None]


@dataclass(frozen=True)
class Subject:
    """A plugin under examination: how to make it, again and again, and where it is to work."""

    label: str
    kind: str
    maker: Callable[[], Any]
    factory: Callable[..., Any]
    where: Mapping[str, Any]
    name: str | None = None  # that it is registered under

    def make(self) -> Any:
        """A fresh one. That it can be made is a claim of its own; where it is broken, the others have nothing to say."""
        try:
            return self.maker()
        except Exception as error:
            raise NotApplicable(f"{self.label} can't be made: {error}") from error

    @property
    def settings(self) -> list[Setting]:
        return [replace(setting, **self.where) for setting in SETTINGS]

    @property
    def game(self) -> Setting:
        """The sizes of a run that is played: whole rounds, so that it can be synchronous."""
        wanted = replace(GAME, **self.where)
        return replace(wanted, horizon=max(1, min(PULLS, wanted.horizon) // wanted.n_clients) * wanted.n_clients)


Check = Callable[[Subject], None]
Checker = TypeVar("Checker", bound=Check)
CHECKS: dict[str, list[Check]] = {kind: [] for kind in KINDS}
OCCASIONS: dict[Check, Callable[[Any], bool]] = {}


def claims(*kinds: str, when: Callable[[Any], bool] = lambda plugin: True) -> Callable[[Checker], Checker]:
    """Counts a function among the checks of these kinds, for the plugins that give it an occasion: `when`.

    They run in the order of this file: the first to fail is the cause.
    """

    def add(function: Checker) -> Checker:
        OCCASIONS[function] = when
        for kind in kinds:
            CHECKS[kind].append(function)
        return function

    return add


def checks_of(subject: Subject) -> list[Check]:
    """The checks that this plugin gives an occasion for. One that can't be made has all of them: the first says why."""
    try:
        plugin = subject.maker()
        return [claim for claim in CHECKS[subject.kind] if OCCASIONS[claim](plugin)]
    except Exception:
        return CHECKS[subject.kind]


def chooses(plugin: Any) -> bool:
    """It is asked at every pull, unless it names one of the engine's decisions."""
    return getattr(plugin, "kernel", None) is None


def cases_of(package: str, parameters: dict[str, Any], where: Mapping[str, Any]) -> list[Case]:
    """Every check of everything that the package registers, and that its entry points load; never none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # an entry point that failed is a test that fails
        sources = [source for source in plugins.sources() if canonical(source.package) == canonical(package)]
    if not sources:
        return [Case(f"{package}-is_installed", partial(is_installed, package))]
    cases = [Case(f"entry_points-{source.entry_point}-loads", partial(loads, source)) for source in sources]
    unused = set(parameters)
    for kind, name in (registered for source in sources for registered in source.registered):
        key = f"{kind}-{name}" if f"{kind}-{name}" in parameters else name
        unused.discard(key)
        subject = registered_subject(kind, name, parameters.get(key, {}), where)
        cases += [Case(f"{kind}-{name}-{claim.__name__}", partial(examine, subject, claim)) for claim in checks_of(subject)]
    return cases + [Case(f"parameters-{key}-are_used", partial(are_used, package, key)) for key in sorted(unused)]


def canonical(package: str) -> str:
    """The name of a distribution as installers compare it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def registered_subject(kind: str, name: str, parameters: Mapping[str, Any], where: Mapping[str, Any]) -> Subject:
    return Subject(
        label=f"{SINGULAR[kind]} {name!r}",
        kind=kind,
        maker=lambda: plugins.create(kind, name, dict(parameters)),
        factory=plugins.factory(kind, name),
        where=where,
        name=name,
    )


def is_installed(package: str) -> None:
    """Fails: a package of which there is no entry point has nothing to test."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        fail(f"package {package!r} is not installed for {sys.executable}: pip install it first (pip install -e .)")
    fail(
        f"package {package!r} {version} is installed, but registers nothing: it has no entry point in the group 'fedsuplin'. "
        "Its pyproject.toml needs [project.entry-points.fedsuplin]; install it again after adding that"
    )


def loads(source: Any) -> None:
    """The entry point can be imported and registers at least one plugin."""
    if source.error:
        fail(f"{source} failed to load: {source.error}")
    if not source.registered:
        fail(f"{source} registers nothing: mark its functions fedsuplin_register_… with @fedsuplin.hookimpl")


def are_used(package: str, key: str) -> None:
    """Fails: parameters for a plugin that is not there are a misspelling."""
    fail(f"parameters were given for {key!r}, but {package} registers no plugin of this name (nor kind-name)")


def checked_sizes(where: Mapping[str, Any]) -> Mapping[str, Any]:
    sizes = [field.name for field in dataclasses.fields(Setting)]
    for name in where:
        if name not in sizes:
            raise unknown("size", name, sizes)
    return where


def examine(subject: Subject, claim: Callable[[Subject], None]) -> None:
    """One check of one plugin. Whatever goes wrong is an AssertionError that names the plugin and the claim."""
    said = f"\n({claim.__name__}: {(claim.__doc__ or '').strip()})"
    try:
        claim(subject)
    except NotApplicable:
        raise
    except AssertionError as error:
        raise AssertionError(f"{subject.label}: {error}{said}") from error.__cause__
    except Exception as error:
        raise AssertionError(f"{subject.label} raised {type(error).__name__}: {error}{said}") from error


def fail(message: str, cause: Exception | None = None) -> NoReturn:
    raise AssertionError(message) from cause


def called(what: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What a plugin's function returns; if it raises, `what` says with which inputs."""
    try:
        return function(*arguments, **keywords)
    except Exception as error:
        fail(f"{what} raised {type(error).__name__}: {error}", error)


def another(plugin: Any) -> Any:
    """A second plugin with the same parameters; the same one where it can't be copied."""
    try:
        return copy.deepcopy(plugin)
    except Exception:
        return plugin


def bound(plugin: Any, setting: Setting) -> Any:
    """The plugin as an algorithm of this setting has it."""
    return called(f"bind({setting})", plugin.bind, setting) if hasattr(plugin, "bind") else plugin


# --- every kind ------------------------------------------------------------------------------------------------------------


@claims(*KINDS)
def can_be_made(subject: Subject) -> None:
    """It can be made with its defaults (or the parameters given), and offers what its kind must."""
    try:
        subject.maker()
    except Exception as error:
        missing = subject.name is not None and isinstance(error, MissingParameter)
        hint = f". Every parameter needs a default, or a value in conformance(…, parameters={{{subject.name!r}: {{…}}}})"
        fail(f"{error}{hint if missing else ''}", error)


@claims(*KINDS)
def is_documented(subject: Subject) -> None:
    """It says what it is: the docstring of the class or factory, the `summary` of a variant. `fedsuplin plugins` shows it."""
    if subject.kind == "variants":
        if not str(subject.make().summary).strip():
            fail('it has no summary: Variant(summary="…") says in a line what it is')
        return
    factory = subject.factory
    name = getattr(factory, "__name__", repr(factory))
    text = "" if factory.__doc__ in (None, type(factory).__doc__) else factory.__doc__.strip()  # functools.partial has its own
    if not text or text.startswith(f"{name}("):  # which is what a dataclass writes for itself
        fail(f"{name} has no docstring: its first line says what the {SINGULAR[subject.kind]} does")


@claims(*(set(KINDS) - {"variants", "problems"}), when=dataclasses.is_dataclass)
def repr_names_it(subject: Subject) -> None:
    """A dataclass shows its type and its parameters, the same each time: errors and results name it so."""
    plugin, second = subject.make(), subject.make()
    if type(plugin).__name__ not in repr(plugin):
        fail(f"its repr is {plugin!r}, which does not name its type {type(plugin).__name__}")
    if repr(plugin) != repr(second):
        fail(f"two with the same parameters show as {plugin!r} and {second!r}: leave the repr to the dataclass")


@claims(*(set(KINDS) - {"variants", "problems"}), when=dataclasses.is_dataclass)
def parameters_survive_saving(subject: Subject) -> None:
    """The fields of a dataclass can be written as JSON, and make the same plugin again: so are runs saved and rebuilt."""
    plugin = subject.make()
    candidates = [plugin] + [bound(plugin, setting) for setting in subject.settings if hasattr(plugin, "bind")]
    for candidate in filter(dataclasses.is_dataclass, candidates):
        text = as_json(parameters_of(candidate))
        remade = called(f"made again from its parameters {text}, it", subject.factory, **json.loads(text))
        if as_json(parameters_of(remade)) != text:
            fail(f"made again from its parameters {text}, it has {as_json(parameters_of(remade))}")


def parameters_of(plugin: Any) -> dict[str, Any]:
    """What a saved run holds of a plugin: the fields that make it."""
    return {field.name: getattr(plugin, field.name) for field in dataclasses.fields(plugin) if field.init}


def as_json(parameters: Any) -> str:
    """Parameters as a saved run has them: NumPy's numbers and arrays are numbers and lists; nothing else is taken."""

    def plain(value: Any) -> Any:
        if isinstance(value, (np.generic, np.ndarray)):
            return value.tolist()
        fail(f"{parameters} can't be saved: {value!r} is neither a number, a word, nor a list or dict of them")

    return json.dumps(parameters, default=plain)


@claims(*AXIS, when=lambda plugin: hasattr(plugin, "bind"))
def binds_to_a_setting(subject: Subject) -> None:
    """`bind(setting)` gives a plugin of its kind, the same each time, with nothing left to bind; the original stays."""
    plugin = subject.make()
    for setting in subject.settings:
        before, what = repr(plugin), f"bind({setting})"
        first, again = bound(plugin, setting), bound(plugin, setting)
        called(what, offering, subject.kind, first)
        if repr(plugin) != before:
            fail(f"{what} changed the plugin itself, from {before} to {plugin!r}: return dataclasses.replace(self, …)")
        if dataclasses.is_dataclass(first) and not repr(first) == repr(again) == repr(bound(first, setting)):
            fail(f"{what} gives {first!r}, then {again!r}, and bound once more {bound(first, setting)!r}: all must be the same")


# --- triggers, weightings and policies that choose: what the engine asks at every pull -------------------------------------


@claims(*RULES, when=chooses)
def takes_the_arguments_of_its_kind(subject: Subject) -> None:
    """Both forms take the arguments that the engine gives, with `state` if `state_size` is above 0."""
    axis = AXIS[subject.kind]
    for plugin, _ in trials(subject):
        method = getattr(plugin, METHODS[axis][0], None)
        called("its Python form", Rule, axis, plugin, method)
        compiled = called("compiled()", plugin.compiled) if hasattr(plugin, "compiled") else None
        if compiled is not None:
            called("its compiled form", Rule, axis, plugin, compiled)


@claims(*RULES, when=lambda plugin: chooses(plugin) and state_size(plugin) > 0)
def keeps_to_its_state(subject: Subject) -> None:
    """It writes into no more than its `state_size` slots: behind them are another client's."""
    for plugin, form, ask in questions(subject):
        for answer in ask():
            if answer.strayed:
                call = call_text(subject, answer)
                fail(f"the {form} form writes outside its {state_size(plugin)} slots of state, at {call}: raise state_size")


@claims(*RULES, when=chooses)
def answers_are_legal(subject: Subject) -> None:
    """Every answer, over a wide range of inputs, is one that the engine can go on with, and the state holds no NaN."""
    legal = LEGAL[AXIS[subject.kind]]
    for _, form, ask in questions(subject):
        for answer in ask():
            wrong = legal(answer.value, answer.arguments)
            if wrong:
                fail(f"{call_text(subject, answer)} is {answer.value!r} in the {form} form; it must be {wrong}")
            if np.isnan(answer.state).any():
                fail(f"after {call_text(subject, answer)} the state is {answer.state} in the {form} form; no slot may be NaN")


@claims(*RULES, when=chooses)
def answers_are_the_same_again(subject: Subject) -> None:
    """The same inputs from fresh state get the same answers and leave the same state, whichever instance is asked."""
    for (_, form, ask), (_, _, ask_another) in zip(questions(subject), questions(subject), strict=True):
        for one, again, elsewhere in zip(list(ask()), list(ask()), list(ask_another()), strict=True):
            for other in (again, elsewhere):
                if one.value != other.value or (one.state != other.state).any():
                    fail(
                        f"{call_text(subject, one)} is {shown(one)} in the {form} form, and asked again {shown(other)}: "
                        "what changes from call to call belongs in `state` (see fedsuplin.protocols.Stateful)"
                    )


@claims(*RULES, when=lambda plugin: chooses(plugin) and hasattr(plugin, "compiled"))
def python_and_compiled_agree(subject: Subject) -> None:
    """The compiled form gives the answers of the Python form and leaves the same state."""
    same = SAME[AXIS[subject.kind]]
    for plugin, inputs in trials(subject):
        both = forms(subject, plugin)
        if len(both) == 1:
            raise NotApplicable(f"{subject.label} has no compiled form here")
        most = np.zeros(state_size(plugin))  # that a slot has held: what its sum is rounded to, even where it cancels
        for ours, theirs in zip(*(answers(subject, plugin, form, inputs) for form in both.values()), strict=True):
            most = np.maximum(most, np.abs(ours.state))
            if not same(ours.value, theirs.value) or not (np.abs(ours.state - theirs.state) <= AGREEMENT * most).all():
                fail(f"{call_text(subject, ours)} of {plugin!r} is {shown(ours)} in Python and {shown(theirs)} compiled")


@claims("policies", when=chooses)
def leaves_the_targets_alone(subject: Subject) -> None:
    """`choose` does not write into `targets`, which the engine keeps for the whole run."""
    for _, form, ask in questions(subject):
        for answer in ask():
            if (answer.arguments[2] != answer.after[2]).any():
                fail(f"the {form} form changes targets from {answer.arguments[2]} to {answer.after[2]}")


# --- how they are asked ------------------------------------------------------------------------------------------------------

GUARD = 64  # slots on either side of a plugin's own
UNTOUCHED = 12345.678


Arguments = tuple[Any, ...]


class Answer(NamedTuple):
    """What a rule said: with which arguments, as which call of a sequence, and the state after it."""

    number: int
    arguments: Arguments
    value: Any
    state: np.ndarray
    after: Arguments  # the arguments as it left them
    strayed: bool


def trials(subject: Subject) -> Iterator[tuple[Any, list[Arguments]]]:
    """The plugin, bound to each setting, and a sequence of inputs for it."""
    for setting in subject.settings:
        plugin = bound(subject.make(), setting)
        yield plugin, INPUTS[AXIS[subject.kind]](setting)
        if not hasattr(plugin, "bind") and subject.kind != "policies":
            return  # no setting makes a difference


def questions(subject: Subject) -> Iterator[tuple[Any, str, Callable[[], Iterator[Answer]]]]:
    """For each setting and each form: the plugin, the name of the form, and what asks it all inputs from fresh state."""
    for plugin, inputs in trials(subject):
        for name, form in forms(subject, plugin).items():
            yield plugin, name, partial(answers, subject, plugin, form, inputs)


def forms(subject: Subject, plugin: Any) -> dict[str, Callable[..., Any]]:
    """The Python form as it is, and the compiled one, if there is one, through the pointer that the loop calls."""
    axis = AXIS[subject.kind]
    found = {"Python": getattr(plugin, METHODS[axis][0])}
    compiled = plugin.compiled() if hasattr(plugin, "compiled") else None
    if compiled is None:
        return found
    return found | {"compiled": Rule(axis, plugin, compiled)}


def answers(subject: Subject, plugin: Any, form: Callable[..., Any], inputs: list[Arguments]) -> Iterator[Answer]:
    """One call for each of the inputs, in a sequence that begins with fresh state."""
    size, usual = state_size(plugin), len(METHODS[AXIS[subject.kind]][1])
    slots = np.full(size + 2 * GUARD, UNTOUCHED)
    state, around = slots[GUARD : GUARD + size], np.r_[:GUARD, GUARD + size : len(slots)]
    state[:] = 0
    for number, arguments in enumerate(inputs):
        given = tuple(map(copy.copy, arguments if size else arguments[:usual]))
        try:
            value = form(*given, *([state] if size else []))
        except Exception as error:
            asked = Answer(number, arguments, None, state, given, False)
            fail(f"{call_text(subject, asked)} raised {type(error).__name__}: {error}", error)
        yield Answer(number, arguments, value, state.copy(), given, bool((slots[around] != UNTOUCHED).any()))


def state_size(plugin: Any) -> int:
    return getattr(plugin, "state_size", 0)


def call_text(subject: Subject, answer: Answer) -> str:
    """A call as its author would write it down; arrays that fill a screen are left at their shape."""
    method, usual, added = METHODS[AXIS[subject.kind]]
    asked = answer.arguments[: len(answer.after)]
    values = [f"{name}={brief(value)}" for name, value in zip(usual + added, asked, strict=False)]
    return f"{method}({', '.join(values)}) (call {answer.number + 1} from fresh state)"


def brief(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    return f"{value.tolist()}" if value.size <= 6 else f"<{' × '.join(map(str, value.shape))}>"


def shown(answer: Answer) -> str:
    """The value, and the state that it came with."""
    return f"{answer.value!r}" + (f" with state {answer.state.tolist()}" if len(answer.state) else "")


# --- legal answers, by axis: what would be right, or None if it is -----------------------------------------------------------


def wrong_trigger(value: Any, arguments: Arguments) -> str | None:
    return (
        None if isinstance(value, (bool, np.bool_, numbers.Integral)) and int(value) >= 0 else "True or False (compiled, 1 or 0)"
    )


def wrong_weight(value: Any, arguments: Arguments) -> str | None:
    return None if isinstance(value, numbers.Real) and 0 <= float(value) < math.inf else "a finite number of at least 0"


def wrong_choice(value: Any, arguments: Arguments) -> str | None:
    estimates = arguments[0]
    there = np.flatnonzero(estimates > -np.inf)
    try:
        index = operator.index(value)
    except TypeError:
        index = -1
    return None if index in there else f"layer·K + arm of an arm that is there: {', '.join(map(str, there[:20]))}"


LEGAL = {"trigger": wrong_trigger, "weighting": wrong_weight, "policy": wrong_choice}
SAME = {
    "trigger": lambda one, other: bool(one) == bool(other),
    "weighting": lambda one, other: math.isclose(one, other, rel_tol=AGREEMENT),
    "policy": operator.eq,
}

# --- inputs, by axis: corners and edges, and between them numbers of every size, since thresholds can lie anywhere -----------

GAINS = (0.0, 1e-12, 1e-6, 0.01, 0.5, math.log(2), 1.0, 30.0, 700.0)
ELAPSED = (1.0, 2.0, 3.0, 10.0, 99.0, 100.0, 101.0, 1e4, 1e9)
NORMS = (0.0, 1e-12, 1e-6, 0.01, 0.5, 1.0, 3.0, 100.0, 1e3)
SIGMAS = (0.0, 1e-6, 0.01, 0.5, 1.0, 10.0)
RESIDUALS = (0.0, 0.1, -1.0, 1e3, -1e-6)
BETWEEN = 200
DRAWS = (0.0, 0.5, 1 - 2**-53)
LAYERS = (1, 2, 5)


def trigger_inputs(setting: Setting) -> list[Arguments]:
    rng = np.random.default_rng(0)
    between = zip(of_every_size(rng, 1e-12, 700), np.floor(of_every_size(rng, 1, 1e9)).tolist(), strict=True)
    return [*itertools.product(GAINS, ELAPSED), *between]


def weighting_inputs(setting: Setting) -> list[Arguments]:
    rng = np.random.default_rng(0)
    corners = zip(itertools.product(NORMS, SIGMAS), itertools.cycle(RESIDUALS), strict=False)
    residuals = rng.normal(size=BETWEEN).tolist()
    between = zip(of_every_size(rng, 1e-12, 1e3), of_every_size(rng, 1e-6, 10), residuals, strict=True)
    return [*((norm, sigma, residual) for (norm, sigma), residual in corners), *between]


def of_every_size(rng: np.random.Generator, low: float, high: float) -> list[float]:
    return [float(value) for value in np.exp(rng.uniform(math.log(low), math.log(high), BETWEEN))]


def policy_inputs(setting: Setting) -> list[Arguments]:
    """Estimates and widths as they are at the start, later, far out and without any width; all arms there, half, and one."""
    rng, inputs = np.random.default_rng(0), []
    for n_layers in LAYERS:
        shape = (n_layers, setting.n_arms)
        targets = 0.5 ** np.arange(n_layers)
        situations = [
            (np.zeros(shape), np.ones(shape)),
            (rng.normal(size=shape), rng.uniform(0, 2, shape)),
            (1e3 * rng.normal(size=shape), 1e-3 * rng.uniform(size=shape)),
            (rng.normal(size=shape), np.zeros(shape)),
        ]
        for (estimates, widths), missing, draw in itertools.product(situations, absences(rng, setting.n_arms), DRAWS):
            inputs.append((np.where(missing, -np.inf, estimates), np.where(missing, 0.0, widths), targets, draw))
    return inputs


def absences(rng: np.random.Generator, n_arms: int) -> list[np.ndarray]:
    """Which arms are not there; the last one always is."""
    half, all_but_one = rng.random(n_arms) < 0.5, np.full(n_arms, True)
    half[-1] = all_but_one[-1] = False
    return [np.full(n_arms, False), half, all_but_one]


INPUTS = {"trigger": trigger_inputs, "weighting": weighting_inputs, "policy": policy_inputs}

# --- noise models ------------------------------------------------------------------------------------------------------------

SAMPLE = 20_000
STANDARD_ERRORS = 6  # a model that is right fails once in 500 million seeds, and ours is fixed


@claims("noise_models")
def numbers_fit_the_layers(subject: Subject) -> None:
    """`n_layers` is a whole number of at least 1; radii and target widths are as many finite numbers, none below 0."""
    for setting in subject.settings:
        model = bound(subject.make(), setting)
        n_layers = called(f"n_layers({setting})", model.n_layers, setting)
        if not isinstance(n_layers, numbers.Integral) or isinstance(n_layers, bool) or n_layers < 1:
            fail(f"n_layers({setting}) is {n_layers!r}; it must be a whole number of at least 1")
        lengths = {"radii": n_layers, "target_widths": n_layers, "radius_growth": 2}
        for method, length in lengths.items():
            if not hasattr(model, method):  # only the growth may be missing
                continue
            values = np.asarray(called(f"{method}({setting})", getattr(model, method), setting), dtype=float)
            if values.shape != (length,) or not np.isfinite(values).all() or (values < 0).any():
                fail(f"{method}({setting}) is {values}; it must be {length} finite numbers of at least 0")


@claims("noise_models")
def numbers_are_the_same_again(subject: Subject) -> None:
    """Layers, radii and target widths are a function of the setting and the parameters."""
    for setting in subject.settings:
        model = bound(subject.make(), setting)
        for method in ("n_layers", "radii", "target_widths", "radius_growth"):
            if hasattr(model, method):
                asked = [getattr(one, method) for one in (model, model, bound(subject.make(), setting))]
                first, *others = (np.asarray(called(f"{method}({setting})", ask, setting)) for ask in asked)
                for other in others:
                    if not np.array_equal(first, other):
                        fail(f"{method}({setting}) is {first}, and asked again {other}")


@claims("noise_models")
def draws_are_legal(subject: Subject) -> None:
    """`draw(rng, n)` gives n finite numbers and n noise levels of at least 0. A problem draws from a model that is not bound."""
    for n in (1, 2, 1000):
        called(f"draw(rng, {n})", drawn, subject.make(), np.random.default_rng(n), n)


@claims("noise_models")
def draws_do_not_depend_on_the_split(subject: Subject) -> None:
    """Ten pulls have the noise of three and then seven, from a generator with the same seed: a run is cut anywhere."""
    whole = drawn(subject.make(), np.random.default_rng(1), 10)
    model, rng = subject.make(), np.random.default_rng(1)
    parts = [np.concatenate(values) for values in zip(*(drawn(model, rng, n) for n in (3, 7)), strict=True)]
    for what, one, other in zip(("noise", "sigma"), whole, parts, strict=True):
        if (one != other).any():
            fail(f"the {what} of draw(rng, 10) is {one}, of draw(rng, 3) and draw(rng, 7) {other}: draw by pull, from rng alone")


@claims("noise_models")
def noise_has_mean_zero(subject: Subject) -> None:
    """The mean of many draws is zero, within six standard errors."""
    noise, _ = drawn(subject.make(), np.random.default_rng(2), SAMPLE)
    error = noise.std() / math.sqrt(SAMPLE)
    if abs(noise.mean()) > STANDARD_ERRORS * error:
        fail(f"the mean of draw(default_rng(2), {SAMPLE}) is {noise.mean():.4g}, with a standard error of {error:.2g}, not 0")


@claims("noise_models", when=lambda model: hasattr(model, "corrupt"))
def corruption_is_legal(subject: Subject) -> None:
    """`corrupt(rng, means, best)` gives a finite number for every arm, however pulls are split; a `budget` is at least 0."""
    model, n, n_arms = subject.make(), 10, subject.game.n_arms
    if not getattr(model, "budget", math.inf) >= 0:
        fail(f"its budget is {model.budget!r}; it must be a number of at least 0")
    means = np.random.default_rng(3).uniform(-1, 1, (n, n_arms))
    one, other = corrupted(model, means, [n]), corrupted(subject.make(), means, [3, n - 3])
    if (one != other).any():
        fail(f"corrupt of {n} pulls is {one}, of the first 3 and then the others {other}: draw by pull, from rng alone")


def corrupted(model: Any, means: np.ndarray, sizes: list[int]) -> np.ndarray:
    """What the adversary adds, asked for in chunks of these sizes."""
    rng, found = np.random.default_rng(4), []
    for part in np.split(means, np.cumsum(sizes)[:-1]):
        what = f"corrupt(rng, means, best) for means of shape {part.shape}"
        added = np.asarray(called(what, model.corrupt, rng, part.copy(), part.argmax(axis=1)), dtype=float)
        if added.shape != part.shape or not np.isfinite(added).all():
            fail(f"{what} is {added}; it must be finite numbers of the same shape")
        found.append(added)
    return np.concatenate(found)


# --- arrivals ----------------------------------------------------------------------------------------------------------------

CROWDS = ((1, 1), (1, 10), (3, 10), (4, 12), (7, 1000), (20, 400))  # M, T: T a multiple of M, and not
SEEDS = (0, 7, 2**64 - 1)


def crowds(subject: Subject) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Sizes and seeds to ask for: in words, T, and the keywords."""
    for (n_clients, horizon), seed in itertools.product(CROWDS, SEEDS):
        sizes = {"n_clients": n_clients, "horizon": horizon}
        keywords = {name: subject.where.get(name, size) for name, size in sizes.items()} | {"seed": seed}
        words = ", ".join(f"{name}={value}" for name, value in keywords.items())
        yield f"clients(0, {keywords['horizon']}, {words})", keywords["horizon"], keywords


@claims("arrivals")
def clients_are_in_range(subject: Subject) -> None:
    """Every pull has one client, a whole number from 0 to M − 1."""
    for what, horizon, keywords in crowds(subject):
        clients = np.asarray(called(what, subject.make().clients, 0, horizon, **keywords))
        most = keywords["n_clients"] - 1
        if clients.shape != (horizon,) or not np.issubdtype(clients.dtype, np.integer):
            fail(f"{what} is {clients.dtype} of shape {clients.shape}; it must be {horizon} whole numbers")
        if (clients < 0).any() or (clients > most).any():
            fail(f"{what} holds {clients.min()} to {clients.max()}; clients are 0 to {most}")


@claims("arrivals")
def clients_do_not_depend_on_the_split(subject: Subject) -> None:
    """Who plays is a function of the pull, the sizes and the seed: asked for in any pieces, in any order, it is the same."""
    for what, horizon, keywords in crowds(subject):
        whole = np.asarray(called(what, subject.make().clients, 0, horizon, **keywords))
        cuts, arrival = [0, horizon // 3, horizon // 2, horizon], subject.make()
        for start, stop in reversed(list(itertools.pairwise(cuts))):
            if start < stop:
                part = np.asarray(called(f"clients({start}, {stop}, …)", arrival.clients, start, stop, **keywords))
                if not np.array_equal(part, whole[start:stop]):
                    fail(f"pulls {start} to {stop - 1} of {what} are {whole[start:stop]}, but asked for alone {part}")


@claims("arrivals", when=lambda arrival: getattr(arrival, "in_rounds", False))
def rounds_hold_each_client_once(subject: Subject) -> None:
    """If `in_rounds` is True, every M pulls hold each client once."""
    for what, horizon, keywords in crowds(subject):
        n_clients = keywords["n_clients"]
        if horizon % n_clients == 0:
            rounds = np.asarray(subject.make().clients(0, horizon, **keywords)).reshape(-1, n_clients)
            wrong = (np.sort(rounds, axis=1) != np.arange(n_clients)).any(axis=1)
            if wrong.any():
                at = int(wrong.argmax())
                fail(f"round {at} of {what} is {rounds[at]}, but in_rounds is True: each of {n_clients} clients must come once")


# --- problems ----------------------------------------------------------------------------------------------------------------


@claims("problems")
def sizes_are_whole_numbers(subject: Subject) -> None:
    """dim, n_arms and n_clients are whole numbers of at least 1, and so is a horizon that is not None."""
    problem = subject.make()
    for name in ("dim", "n_arms", "n_clients", "horizon"):
        value = getattr(problem, name, None)
        if name != "horizon" or value is not None:
            called(f"its {name}", positive_integer, name, value)


@claims("problems")
def pulls_are_legal(subject: Subject) -> None:
    """What a stream gives can be played: finite numbers, contexts no longer than 1, clients 0 to M − 1, the sizes it says."""
    problem = subject.make()
    length = length_of(problem)
    chunk = called(f"stream({length}, None).take({length})", problem.stream(length, None).take, length)
    called("its stream", check_chunk, chunk, length, 0, problem.n_arms)
    sizes = (length, problem.dim, norms.pad(problem.n_arms))
    if chunk.contexts.shape != sizes:
        fail(f"its contexts have the shape {chunk.contexts.shape}; pulls × dim × lanes is {sizes}: Chunk.of(…) makes it so")
    if (chunk.clients < 0).any() or (chunk.clients >= problem.n_clients).any():
        fail(f"its clients are {chunk.clients.min()} to {chunk.clients.max()}, but n_clients={problem.n_clients}: count from 0")
    if (chunk.theta is None) == (chunk.rewards is None):
        fail("a chunk must have either theta or rewards, not both")


@claims("problems")
def pulls_do_not_depend_on_the_split(subject: Subject) -> None:
    """Every stream begins at the beginning and gives the same pulls, taken whole or in pieces."""
    problem = subject.make()
    length = length_of(problem)
    whole = taken(problem, [length])
    same_pulls(whole, taken(problem, pieces(length)), "a second stream, taken in pieces,")
    same_pulls(whole, taken(subject.make(), [length]), "a second problem with the same parameters")


@claims("problems", when=lambda problem: problem.spec.get("parameters") is not None)
def specification_makes_it_again(subject: Subject) -> None:
    """`spec` is plain data; the parameters in it, if there are any, make a problem with the same pulls, by its own name."""
    problem = subject.make()
    spec = json.loads(as_json(problem.spec))
    if subject.name not in (None, spec.get("problem")):
        fail(f"its specification names {spec.get('problem')!r}, where a saved run would look for it, and not {subject.name!r}")
    remade = called(f"made again from its specification {spec['parameters']}, it", subject.factory, **spec["parameters"])
    sizes = [length_of(problem)]
    same_pulls(taken(problem, sizes), taken(remade, sizes), f"made again from its specification {spec['parameters']}, it")


def length_of(problem: Any) -> int:
    return min(PULLS, problem.horizon or PULLS)


def pieces(length: int) -> list[int]:
    """1, 2, 3, … pulls, and the rest."""
    sizes: list[int] = []
    while sum(sizes) < length:
        sizes.append(min(len(sizes) + 1, length - sum(sizes)))
    return sizes


def taken(problem: Any, sizes: list[int]) -> dict[str, np.ndarray]:
    """The columns of a stream taken in chunks of these sizes; copied, since a stream may use its arrays again."""
    stream = problem.stream(sum(sizes), None)
    columns: dict[str, list[np.ndarray]] = {}
    for size in sizes:
        for name, values in dataclasses.asdict(stream.take(size)).items():
            if values is not None:
                columns.setdefault(name, []).append(values[None] if name == "theta" else values)
    return {name: np.concatenate(values) for name, values in columns.items()}


def same_pulls(one: dict[str, np.ndarray], other: dict[str, np.ndarray], which: str) -> None:
    if one.keys() != other.keys():
        fail(f"{which} gives {', '.join(sorted(one.keys() ^ other.keys()))} on one side only")
    for name, first in one.items():
        second = other[name]
        if name == "theta":
            first, second = np.unique(first, axis=0), np.unique(second, axis=0)  # one for each chunk, however many there are
        if first.shape != second.shape:
            fail(f"{which} gives {name} of shape {second.shape}, not {first.shape}")
        if (first != second).any():
            fail(f"{which} gives other {name}, first at pull {int(np.argwhere(first != second)[0][0])}: keep to the seed")


# --- variants ----------------------------------------------------------------------------------------------------------------


@claims("variants")
def makes_an_algorithm(subject: Subject) -> None:
    """`fedsuplin.make` takes it, with either preset, in every setting."""
    for setting, preset in itertools.product(subject.settings, PRESETS):
        called(f"make(…, preset={preset!r}) for {setting}", make, subject.make(), preset=preset, **dataclasses.asdict(setting))


@claims("variants")
def presets_are_used(subject: Subject) -> None:
    """Every keyword of a preset is one that a part of the variant takes."""
    variant = subject.make()
    for preset, keywords in variant.presets.items():
        ignored = set(keywords) - keywords_of(variant)
        if ignored:
            takes = ", ".join(sorted(keywords_of(variant)))
            fail(f"preset {preset!r} gives {', '.join(sorted(ignored))}, which no part takes by name; they take {takes}")


@claims("variants")
def plays_the_same_again(subject: Subject) -> None:
    """A second run, and one in chunks of 7 pulls, have the same arms, layers and communication."""
    for title, algorithm, problem in games(subject):
        play = partial(called, title, run, algorithm, problem, horizon=algorithm.horizon, record="all")
        first = play()
        parted(first, play(), title, "played again")
        parted(first, play(chunk=7), title, "played in chunks of 7")


# --- played ------------------------------------------------------------------------------------------------------------------

SIZES = ("dim", "n_arms", "n_clients")
QUIET: dict[str, Any] = {"noise_scale": 0.1}  # so that a short game gets to the layers in which estimates matter
DECISIONS = ("arms", "layers", "clients", "communication")


@claims(*AXIS, "variants", "problems")
def plays_like_the_reference(subject: Subject) -> None:
    """In a run, the engine chooses the arms and layers, and communicates at the pulls, of the NumPy twin."""
    for title, algorithm, problem in games(subject):
        engine = called(title, run, algorithm, problem, horizon=algorithm.horizon, record="all")
        twin = called(f"{title}, by fedsuplin.reference,", reference.run, algorithm, problem, horizon=algorithm.horizon)
        parted(engine, twin, title, "in the engine and in fedsuplin.reference, which calls the Python forms,")


def parted(one: Any, other: Any, title: str, where: str) -> None:
    """Fails where two runs differ first."""
    differs = {name: np.flatnonzero(getattr(one, name) != getattr(other, name)) for name in DECISIONS}
    first = {name: int(at[0]) for name, at in differs.items() if len(at)}
    if first:
        name = min(first, key=first.__getitem__)
        values = f"{getattr(one, name)[first[name]]} and {getattr(other, name)[first[name]]}"
        fail(f"{title} {where} has other {name} from pull {first[name]} on: {values}")


def games(subject: Subject) -> Iterator[tuple[str, Algorithm, Any]]:
    """Runs in which a plugin of this kind has something to do: in words, the algorithm, the problem."""
    if subject.kind == "problems":
        problem = subject.make()
        sizes = {name: getattr(problem, name) for name in SIZES}
        yield "'async' on this problem", make("async", **sizes, horizon=length_of(problem), **QUIET), problem
        return
    sizes = {name: getattr(subject.game, name) for name in (*SIZES, "horizon")}
    for title, variant, more in openings(subject):
        algorithm = called(title, make, variant, **sizes, **more)
        noise = algorithm.noise if subject.kind in ("variants", "noise_models") else "bounded"  # with σ_t that varies
        phased = algorithm.kernel == "phased"
        yield title, algorithm, (FixedArmsProblem if phased else SyntheticProblem)(**sizes, noise=noise)
    if subject.kind == "policies" and not phased:
        yield f"{title}, some arms missing,", algorithm, with_arms_missing(subject.game)


def openings(subject: Subject) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """What to make for a game with this plugin: in words, the variant, the keywords."""
    ridge = {"ridge": subject.game.ridge} if "ridge" in subject.where else {}  # else the preset's
    plugin, kind = subject.make(), SINGULAR[subject.kind]
    if subject.kind == "variants":
        quiet = {name: value for name, value in QUIET.items() if name in keywords_of(plugin)}
        for preset in PRESETS:
            yield f"with preset {preset!r} it", plugin, {"preset": preset, **quiet, **ridge}
    elif subject.kind == "noise_models":
        for policy in ("layered", "optimism"):  # the second looks at estimates from the first pull on
            yield f"'async' with this {kind} and policy {policy!r}", "async", {"noise": plugin, "policy": policy, **ridge}
    else:
        for variant in ("async", "sync") if subject.kind == "triggers" else ("async",):
            yield f"{variant!r} with this {kind}", variant, {AXIS[subject.kind]: plugin, **QUIET, **ridge}


def with_arms_missing(setting: Setting) -> ArrayProblem:
    rng, n = np.random.default_rng(5), setting.horizon
    contexts = rng.normal(size=(n, setting.n_arms, setting.dim))
    contexts /= np.linalg.norm(contexts, axis=2, keepdims=True)
    mask = rng.random((n, setting.n_arms)) < 0.6
    mask[:, -1] |= ~mask.any(axis=1)
    theta = np.full(setting.dim, setting.dim**-0.5)
    clients = np.arange(n) % setting.n_clients
    noise = 0.1 * rng.normal(size=n)
    return ArrayProblem(contexts, clients, theta=theta, noise=noise, sigma=0.1, mask=mask, n_clients=setting.n_clients)
