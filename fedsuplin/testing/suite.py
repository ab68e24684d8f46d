"""Collect the checks that apply to a plugin, and run them."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ..contracts.setting import Setting
from ..errors import InvalidInput, MissingExtra, PluginWarning, unknown
from ..registry import KINDS, SINGULAR, check_plugin, plugins
from . import arrivals, every_kind, games, noise_models, problems, pull_rules, variants
from .checks import OCCASIONS, Check
from .subject import NotApplicable, Subject, copy_plugin, fail

# In the order in which they run: the first check to fail is the cause.
GROUPS = (every_kind, pull_rules, noise_models, arrivals, problems, variants, games)
CHECKS: dict[str, list[Check]] = {
    kind: [
        check
        for group in GROUPS
        for check, (kinds, _) in OCCASIONS.items()
        if check.__module__ == group.__name__ and kind in kinds
    ]
    for kind in KINDS
}


def conformance(
    package: str, *, parameters: Mapping[str, Mapping[str, Any]] | None = None, **where: Any
) -> Callable[..., None]:
    """A test function for pytest: every check on everything that an installed package registers.

    `parameters` has keywords for plugins that can't be made without: {"name": {…}}, or {"kind-name": {…}} where two kinds
    share a name. `where` fixes sizes for plugins that work for some only: conformance("fedsuplin-demo", dim=2).
    """
    try:
        import pytest
    except ImportError:
        raise MissingExtra(
            "conformance() makes a test for pytest: pip install pytest, or 'fedsuplin[test]'"
        ) from None
    cases = list_tests(package, dict(parameters or {}), check_sizes(where))

    @pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])
    def test_conformance(case: ConformanceTest) -> None:
        try:
            case.run()
            return
        except NotApplicable as reason:
            end = partial(pytest.skip, str(reason))
        except AssertionError as error:
            if error.__cause__ is not None:
                raise
            end = partial(
                pytest.fail, str(error), pytrace=False
            )  # the message says it all; where we noticed says nothing
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
        raise InvalidInput(
            f"check takes a plugin, not its class: check({kind!r}, {plugin.__name__}(…))"
        )
    subject = Subject(
        label=f"{SINGULAR[kind]} {plugin!r}",
        kind=kind,
        maker=lambda: check_plugin(kind, copy_plugin(plugin)),
        factory=type(plugin),
        where=check_sizes(where),
    )
    for claim in select_checks(subject):
        try:
            run_check(subject, claim)
        except NotApplicable:
            continue


class ConformanceTest(NamedTuple):
    """One test: its id, and what it runs."""

    id: str
    run: Callable[[], None]


def list_tests(
    package: str, parameters: dict[str, Any], where: Mapping[str, Any]
) -> list[ConformanceTest]:
    """Every check of everything that the package registers, and that its entry points load; never none."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", PluginWarning
        )  # an entry point that failed is a test that fails
        sources = [
            source
            for source in plugins.sources()
            if normalise_package_name(source.package) == normalise_package_name(package)
        ]
    if not sources:
        return [
            ConformanceTest(f"{package}-is_installed", partial(report_missing_package, package))
        ]
    cases = [
        ConformanceTest(
            f"entry_points-{source.entry_point}-loads", partial(check_entry_point_loads, source)
        )
        for source in sources
    ]
    unused = set(parameters)
    for kind, name in (registered for source in sources for registered in source.registered):
        key = f"{kind}-{name}" if f"{kind}-{name}" in parameters else name
        unused.discard(key)
        subject = make_registered_subject(kind, name, parameters.get(key, {}), where)
        cases += [
            ConformanceTest(
                f"{kind}-{name}-{name_claim(claim)}", partial(run_check, subject, claim)
            )
            for claim in select_checks(subject)
        ]
    return cases + [
        ConformanceTest(
            f"parameters-{key}-are_used", partial(report_unused_parameters, package, key)
        )
        for key in sorted(unused)
    ]


def normalise_package_name(package: str) -> str:
    """The name of a distribution as installers compare it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def make_registered_subject(
    kind: str, name: str, parameters: Mapping[str, Any], where: Mapping[str, Any]
) -> Subject:
    return Subject(
        label=f"{SINGULAR[kind]} {name!r}",
        kind=kind,
        maker=lambda: plugins.create(kind, name, dict(parameters)),
        factory=plugins.factory(kind, name),
        where=where,
        name=name,
    )


def select_checks(subject: Subject) -> list[Check]:
    """The checks that this plugin gives an occasion for. One that can't be made has all of them: the first says why."""
    try:
        plugin = subject.maker()
        return [claim for claim in CHECKS[subject.kind] if OCCASIONS[claim][1](plugin)]
    except Exception:
        return CHECKS[subject.kind]


def name_claim(claim: Check) -> str:
    """What a check claims, as its test is called: check_answers_are_legal claims answers_are_legal."""
    return claim.__name__.removeprefix("check_")


def run_check(subject: Subject, claim: Callable[[Subject], None]) -> None:
    """One check of one plugin. Whatever goes wrong is an AssertionError that names the plugin and the claim."""
    said = f"\n({name_claim(claim)}: {(claim.__doc__ or '').strip()})"
    try:
        claim(subject)
    except NotApplicable:
        raise
    except AssertionError as error:
        raise AssertionError(f"{subject.label}: {error}{said}") from error.__cause__
    except Exception as error:
        raise AssertionError(
            f"{subject.label} raised {type(error).__name__}: {error}{said}"
        ) from error


def check_sizes(where: Mapping[str, Any]) -> Mapping[str, Any]:
    sizes = [field.name for field in dataclasses.fields(Setting)]
    for name in where:
        if name not in sizes:
            raise unknown("size", name, sizes)
    return where


def report_missing_package(package: str) -> None:
    """Fails: a package of which there is no entry point has nothing to test."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        fail(
            f"package {package!r} is not installed for {sys.executable}: pip install it first (pip install -e .)"
        )
    fail(
        f"package {package!r} {version} is installed, but registers nothing: it has no entry point in the group 'fedsuplin'. "
        "Its pyproject.toml needs [project.entry-points.fedsuplin]; install it again after adding that"
    )


def check_entry_point_loads(source: Any) -> None:
    """The entry point can be imported and registers at least one plugin."""
    if source.error:
        fail(f"{source} failed to load: {source.error}")
    if not source.registered:
        fail(
            f"{source} registers nothing: mark its functions fedsuplin_register_… with @fedsuplin.hookimpl"
        )


def report_unused_parameters(package: str, key: str) -> None:
    """Fails: parameters for a plugin that is not there are a misspelling."""
    fail(
        f"parameters were given for {key!r}, but {package} registers no plugin of this name (nor kind-name)"
    )
