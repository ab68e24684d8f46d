"""Collect the checks that apply to a plugin or a package of plugins, and run them."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from .._shared.text import normalise_package_name
from ..contracts.setting import Setting
from ..errors import InvalidInput, MissingExtra, PluginWarning, unknown
from ..registry import KINDS, SINGULAR, Source, check_plugin, plugins
from . import arrivals, every_kind, games, noise_models, problems, pull_rules, variants
from .applying import OCCASIONS, Check
from .subject import NotApplicable, Subject, copy_plugin, fail, make_registered_subject

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
    """Make a pytest test function that runs every check on everything a package registers.

    Each check on each plugin is a test of its own, with an id such as
    ``triggers-nightly-answers_are_legal``.

    Parameters
    ----------
    package : str
        The name of an installed package with entry points in the group ``fedsuplin``.
    parameters : mapping of str to mapping, optional
        Keywords for plugins that can't be made without: ``{"name": {…}}``, or
        ``{"kind-name": {…}}`` where two kinds share a name.
    **where : Any
        Fixed sizes, for plugins that work for some only: ``dim``, ``n_arms``, ``n_clients``,
        ``horizon``, ``ridge``.

    Returns
    -------
    callable
        A parametrised test function. Assign it to a name that starts with ``test``.

    Raises
    ------
    MissingExtra
        If pytest is not installed.
    UnknownName
        If a size has a name that is not one of those above.

    See Also
    --------
    check : The same for one object, without pytest.

    Examples
    --------
    In ``test_conformance.py`` of a package:

    >>> from fedsuplin.testing import conformance
    >>> test_conformance = conformance("fedsuplin", parameters={"digits": {"n_clients": 2}})
    """
    try:
        import pytest
    except ImportError:
        raise MissingExtra(
            "conformance() makes a test for pytest: pip install pytest, or 'fedsuplin[test]'"
        ) from None
    tests = list_tests(package, dict(parameters or {}), check_sizes(where))

    @pytest.mark.parametrize("case", tests, ids=[test.id for test in tests])
    def test_conformance(case: ConformanceTest) -> None:
        try:
            case.run()
            return
        except NotApplicable as reason:
            end = partial(pytest.skip, str(reason))
        except AssertionError as error:
            if error.__cause__ is not None:
                raise
            # The message is enough; a traceback through our own checks would not help.
            end = partial(pytest.fail, str(error), pytrace=False)
        end()

    return test_conformance


def check(kind: str, plugin: Any, **where: Any) -> None:
    """Run all checks for a kind of plugin on one plugin.

    Parameters
    ----------
    kind : str
        "triggers", "weightings", "policies", "noise_models", "arrivals", "problems" or
        "variants".
    plugin : object
        The plugin, not its class.
    **where : Any
        Fixed sizes, for a plugin that works for some only: ``dim``, ``n_arms``, ``n_clients``,
        ``horizon``, ``ridge``.

    Raises
    ------
    AssertionError
        If a check fails. The message has what is wrong, with which inputs, and what would be
        right.
    InvalidInput
        If `plugin` is a class.
    UnknownName
        If `kind` or the name of a size is unknown.

    See Also
    --------
    conformance : The same for everything that a package registers, as pytest tests.

    Examples
    --------
    >>> from fedsuplin.testing import check
    >>> class Nightly:
    ...     \"\"\"Syncs after every 20 pulls of a client.\"\"\"
    ...
    ...     def fires(self, gain, elapsed):
    ...         return elapsed >= 20
    >>> check("triggers", Nightly())
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
    """One test of `conformance`: its id, and the function that it runs."""

    id: str
    run: Callable[[], None]


def list_tests(
    package: str, parameters: dict[str, Any], where: Mapping[str, Any]
) -> list[ConformanceTest]:
    """Return the suite of a package: tests of what it registers and of its entry points.

    It has at least one test.
    """
    with warnings.catch_warnings():
        # an entry point that fails to load is a test that fails
        warnings.simplefilter("ignore", PluginWarning)
        name = normalise_package_name(package)
        sources = [
            source for source in plugins.sources() if normalise_package_name(source.package) == name
        ]
    if not sources:
        return [
            ConformanceTest(f"{package}-is_installed", partial(report_missing_package, package))
        ]
    tests = [
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
        tests += [
            ConformanceTest(
                f"{kind}-{name}-{name_check(claim)}", partial(run_check, subject, claim)
            )
            for claim in select_checks(subject)
        ]
    return tests + [
        ConformanceTest(
            f"parameters-{key}-are_used", partial(report_unused_parameters, package, key)
        )
        for key in sorted(unused)
    ]


def select_checks(subject: Subject) -> list[Check]:
    """Return the checks of the suite that apply to a plugin.

    For a plugin that can't be made these are all of its kind: the first fails with the reason.
    """
    try:
        plugin = subject.maker()
        return [claim for claim in CHECKS[subject.kind] if OCCASIONS[claim][1](plugin)]
    except Exception:
        return CHECKS[subject.kind]


def name_check(claim: Check) -> str:
    """Return the name of a check in the suite: answers_are_legal for check_answers_are_legal."""
    return claim.__name__.removeprefix("check_")


def describe_check(claim: Check) -> str:
    """Return what a check of the suite claims, from its docstring, on one line."""
    text = " ".join((inspect.getdoc(claim) or "").split())
    return f"{name_check(claim)}: {text.removeprefix('Check that ')}"


def run_check(subject: Subject, claim: Check) -> None:
    """Run one check of the suite on one plugin.

    Whatever goes wrong becomes an AssertionError that names the plugin and the claim.
    """
    try:
        claim(subject)
    except NotApplicable:
        raise
    except AssertionError as error:
        raise AssertionError(
            f"{subject.label}: {error}\n({describe_check(claim)})"
        ) from error.__cause__
    except Exception as error:
        raise AssertionError(
            f"{subject.label} raised {type(error).__name__}: {error}\n({describe_check(claim)})"
        ) from error


def check_sizes(where: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the sizes that an author fixes for the suite; raise UnknownName for others."""
    sizes = [field.name for field in dataclasses.fields(Setting)]
    for name in where:
        if name not in sizes:
            raise unknown("size", name, sizes)
    return where


def report_missing_package(package: str) -> None:
    """Fail the suite of a package without entry points: not installed, or nothing registered."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        advice = "pip install it first (pip install -e .)"
        fail(f"package {package!r} is not installed for {sys.executable}: {advice}")
    fail(
        f"package {package!r} {version} is installed, but registers nothing: it has no entry point "
        "in the group 'fedsuplin'. Add [project.entry-points.fedsuplin] to its pyproject.toml and "
        "install it again"
    )


def check_entry_point_loads(source: Source) -> None:
    """Check, first in the suite of a package, that an entry point loads and registers a plugin."""
    if source.error:
        fail(f"{source} failed to load: {source.error}")
    if not source.registered:
        advice = "mark its functions fedsuplin_register_… with @fedsuplin.plugin.hookimpl"
        fail(f"{source} registers nothing: {advice}")


def report_unused_parameters(package: str, key: str) -> None:
    """Fail the suite for parameters of a plugin that does not exist: that is a misspelling."""
    fail(
        f"parameters were given for {key!r}, but {package} registers no plugin of this name "
        "(nor kind-name)"
    )
