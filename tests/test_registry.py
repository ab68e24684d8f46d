"""Plugins: found, validated and named; one that is broken is reported and left out."""

import types
import warnings

import pytest

import fedsuplin as fsl
from fedsuplin import hookspecs
from fedsuplin.contracts.protocols import PROTOCOLS, PULL_METHODS, find_missing
from fedsuplin.errors import InvalidInput, PluginError, UnknownName
from fedsuplin.plugin import hookimpl
from fedsuplin.registry import KINDS, SINGULAR, Registry, plugins
from fedsuplin_ext import rules


class EntryPoint:
    """An entry point of a made-up package."""

    def __init__(self, name, package, module=None, error=None):
        self.name, self._module, self._error = name, module, error
        self.dist = types.SimpleNamespace(name=package, version="1.2")

    def load(self):
        if self._error:
            raise self._error
        return self._module


def module(**hooks):
    """A plugin module that implements the given hooks."""
    made = types.ModuleType("made_up")
    for name, function in hooks.items():
        setattr(made, name, hookimpl(specname=None)(function))
    return made


class Nightly:
    """At night only."""

    def fires(self, gain, elapsed):
        return elapsed > 1000


def registers(name, factory=Nightly):
    def fedsuplin_register_triggers(register):
        register(name, factory)

    return module(fedsuplin_register_triggers=fedsuplin_register_triggers)


GOOD = EntryPoint("good", "good-package", registers("nightly"))


def loaded(*entry_points):
    """A registry of these entry points, and what it warned."""
    registry = Registry(lambda: list(entry_points))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        registry.names("triggers")
    return registry, [str(warning.message) for warning in said]


def test_a_third_partys_trigger_is_found_by_name():
    registry, said = loaded(GOOD)
    assert registry.names("triggers") == ["nightly"] and said == []
    assert registry.create("triggers", "nightly", {}).fires(0.0, 2000)
    assert registry.find_owner("triggers", "nightly").package == "good-package"


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            EntryPoint("bad", "bad-package", error=ImportError("no module named numba")),
            "ImportError: no module named numba",
        ),
        (
            EntryPoint(
                "bad", "bad-package", module(fedsuplin_register_triggerz=lambda register: None)
            ),
            "unknown hook 'fedsuplin_register_triggerz'. "
            "Did you mean 'fedsuplin_register_triggers'",
        ),
        (EntryPoint("bad", "bad-package", registers("")), "the name must be a non-empty string"),
        (
            EntryPoint("bad", "bad-package", registers("thing", 3)),
            "trigger 'thing' is registered with 3, which can't be called",
        ),
    ],
)
def test_a_broken_plugin_is_named_with_its_package_and_the_rest_works(broken, message):
    registry, said = loaded(broken, GOOD)
    assert registry.names("triggers") == ["nightly"]
    assert (
        len(said) == 1
        and "plugin 'bad' of package bad-package 1.2 was left out" in said[0]
        and message in said[0]
    )
    assert [bool(source.error) for source in registry.sources()] == [True, False]
    with pytest.raises(UnknownName, match="bad-package 1.2 failed to load"):
        registry.factory("triggers", "thing")


def test_a_name_that_is_taken_stays_with_its_first_owner():
    registry, said = loaded(EntryPoint("second", "z-package", registers("nightly")), GOOD)
    assert registry.find_owner("triggers", "nightly").package == "good-package"
    assert (
        "trigger 'nightly' is already registered by plugin 'good' of package good-package 1.2"
        in said[0]
    )


def test_two_entry_points_of_one_name_in_two_packages_both_count():
    registry, said = loaded(GOOD, EntryPoint("good", "other-package", registers("daily")))
    assert registry.names("triggers") == ["daily", "nightly"] and said == []


def test_no_other_plugin_takes_a_built_ins_name():
    """Ours come first, whatever the other package is called."""
    registry, said = loaded(
        EntryPoint("a", "aaa", registers("nightly")),
        EntryPoint("triggers", "fedsuplin", registers("nightly")),
    )
    assert (
        registry.find_owner("triggers", "nightly").package == "fedsuplin"
        and "already registered" in said[0]
    )


def test_a_plugin_registers_all_or_nothing():
    def twice(register):
        register("one", Nightly)
        register("one", Nightly)

    registry, said = loaded(
        EntryPoint("bad", "bad-package", module(fedsuplin_register_triggers=twice))
    )
    assert registry.names("triggers") == [] and "trigger 'one' is registered twice" in said[0]


def test_a_plugin_that_lacks_what_its_kind_must_offer_is_refused():
    registry, _ = loaded(EntryPoint("odd", "odd-package", registers("odd", object)))
    with pytest.raises(PluginError, match="trigger 'odd' lacks fires"):
        registry.create("triggers", "odd", {})
    with pytest.raises(PluginError, match="given as a trigger, lacks fires"):
        fsl.make("async", dim=2, n_arms=2, n_clients=2, horizon=10, trigger=object())


def test_a_factory_that_fails_is_named():
    def explode():
        raise RuntimeError("boom")

    registry, _ = loaded(EntryPoint("odd", "odd-package", registers("odd", explode)))
    with pytest.raises(
        PluginError,
        match="trigger 'odd' of plugin 'odd' of package odd-package 1.2 could not be made: boom",
    ):
        registry.create("triggers", "odd", {})


def test_parameters_without_a_default_that_are_not_given_are_named_with_what_to_give():
    def periodic(every, phase, jitter=0):
        return every, phase, jitter

    registry, _ = loaded(EntryPoint("odd", "odd-package", registers("odd", periodic)))
    with pytest.raises(
        InvalidInput, match="trigger 'odd' needs every and phase: give every=…, phase=…"
    ):
        registry.create("triggers", "odd", {})


def test_an_unknown_kind_lists_the_kinds():
    with pytest.raises(
        UnknownName, match="unknown kind of plugin 'trigger'. Did you mean 'triggers'"
    ):
        plugins.names("trigger")


def test_every_hook_is_documented_named_and_checked():
    for kind in KINDS:
        assert getattr(hookspecs, f"fedsuplin_register_{kind}").__doc__.strip().endswith((".", "?"))
        assert kind in SINGULAR and kind in PROTOCOLS
        assert plugins.names(kind), f"no built-in uses the hook for {kind}"


def test_every_built_in_is_documented_and_owned_by_us():
    for kind in KINDS:
        for name in plugins.names(kind):
            assert plugins.find_owner(kind, name).package == "fedsuplin"
            if kind == "variants":
                assert plugins.create(kind, name, {}).summary
            else:
                assert plugins.factory(kind, name).__doc__


# --- parts that an algorithm can't be made of -----------------------------------------------------
SIZES = {"dim": 4, "n_arms": 5, "n_clients": 2}


def test_a_noise_model_with_bad_numbers_is_refused():
    from fedsuplin_plugins.noise import Gaussian

    class Odd(Gaussian):
        def radii(self, setting):
            return [1.0, float("nan")]

    with pytest.raises(PluginError, match="radii must be 3 finite numbers"):
        fsl.make("async", **SIZES, horizon=10, noise=Odd())


class Noise:
    """One layer, no noise; what is given replaces a method."""

    def __init__(self, **methods):
        vars(self).update(methods)

    def n_layers(self, setting):
        return 1

    def radii(self, setting):
        return [1.0]

    def target_widths(self, setting):
        return [0.0]

    def draw(self, rng, n):
        return [0.0] * n, [0.0] * n

    def __repr__(self):
        return "Noise()"


@pytest.mark.parametrize("n_layers", [0, -1, 1.0, True, "1", None])
def test_a_noise_model_without_a_number_of_layers_is_refused(n_layers):
    with pytest.raises(
        PluginError,
        match=rf"Noise\(\): n_layers must be a whole number of at least 1, not {n_layers!r}",
    ):
        fsl.make("async", **SIZES, horizon=10, noise=Noise(n_layers=lambda setting: n_layers))


@pytest.mark.parametrize("what", ["radii", "target_widths", "radius_growth"])
@pytest.mark.parametrize(
    "wrong",
    [None, "wide", 1.0, [1.0, 1.0, 1.0], [[1.0]], [float("nan")] * 2, [float("inf")], [-1.0, 0.0]],
    ids=str,
)
def test_a_noise_model_with_other_than_finite_numbers_is_refused(what, wrong):
    with pytest.raises(
        PluginError, match=rf"Noise\(\): {what} must be [12] finite numbers ≥ 0, not"
    ):
        fsl.make("async", **SIZES, horizon=10, noise=Noise(**{what: lambda setting: wrong}))


@pytest.mark.parametrize("method", ["n_layers", "radii", "target_widths", "radius_growth", "bind"])
def test_a_part_that_raises_for_a_setting_is_named(method):
    def explode(setting):
        raise ZeroDivisionError("no clients")

    with pytest.raises(
        PluginError, match=rf"Noise\(\): {method} raised ZeroDivisionError: no clients"
    ) as caught:
        fsl.make("async", **SIZES, horizon=10, noise=Noise(**{method: explode}))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_bind_returns_must_offer_the_same():
    with pytest.raises(PluginError, match="None, given as a noise model, lacks n_layers"):
        fsl.make("async", **SIZES, horizon=10, noise=Noise(bind=lambda setting: None))


def test_a_policy_without_a_compiled_decision_is_refused():
    class Guess:
        kernel = "guess"

    with pytest.raises(UnknownName, match="unknown decision kernel 'guess'.*layered, optimism"):
        fsl.make("async", **SIZES, horizon=10, policy=Guess())


# --- hooks that fedsuplin can't call --------------------------------------------------------------
def marked(**options):
    """A plugin module whose trigger hook is marked with these options of pluggy."""
    made = types.ModuleType("made_up")
    if options.get("wrapper") or options.get("hookwrapper"):

        def fedsuplin_register_triggers(register):
            register("wrapped", Nightly)
            return (yield)
    else:

        def fedsuplin_register_triggers(register):
            register("marked", Nightly)

    made.fedsuplin_register_triggers = hookimpl(**options)(fedsuplin_register_triggers)
    return made


@pytest.mark.parametrize("option", ["wrapper", "hookwrapper", "tryfirst", "trylast"])
def test_an_option_that_has_no_meaning_here_is_refused_by_name(option):
    bad = EntryPoint("bad", "bad-package", marked(**{option: True}))
    registry, said = loaded(bad, GOOD)
    assert registry.names("triggers") == ["nightly"]
    assert len(said) == 1
    assert "plugin 'bad' of package bad-package 1.2 was left out" in said[0]
    assert f"the hook fedsuplin_register_triggers is marked with {option}=True" in said[0]


def test_a_hook_may_have_a_function_of_another_name():
    made = types.ModuleType("made_up")

    @hookimpl(specname="fedsuplin_register_triggers")
    def add_triggers(register):
        register("nightly", Nightly)

    made.add_triggers = add_triggers
    registry, said = loaded(EntryPoint("other", "other-package", made))
    assert registry.names("triggers") == ["nightly"] and said == []
    assert registry.sources()[0].hooks == ["fedsuplin_register_triggers"]


def test_one_hook_has_one_function():
    made = registers("nightly")
    made.more = hookimpl(specname="fedsuplin_register_triggers")(lambda register: None)
    registry, said = loaded(EntryPoint("bad", "bad-package", made))
    assert registry.names("triggers") == []
    assert "the hook fedsuplin_register_triggers is implemented twice" in said[0]


def test_an_optional_hook_of_a_later_version_is_left_out_in_silence():
    made = registers("nightly")
    made.fedsuplin_register_channels = hookimpl(optionalhook=True)(lambda register: None)
    registry, said = loaded(EntryPoint("newer", "newer-package", made))
    assert registry.names("triggers") == ["nightly"] and said == []


# --- what a kind of plugin must offer -------------------------------------------------------------
def test_the_engine_calls_rules_with_the_arguments_that_the_protocols_have():
    """The compiled core can't import the protocols, so it has its own table of the same."""
    assert PULL_METHODS == rules.METHODS


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("triggers", "fires"),
        ("weightings", "weight"),
        ("noise_models", "n_layers, radii, target_widths, draw"),
        ("policies", "kernel or choose"),
        ("variants", "trigger, noise, weighting, policy"),
        ("arrivals", "clients"),
        ("problems", "dim, n_arms, n_clients, horizon, stream"),
    ],
)
def test_what_a_plugin_lacks_is_read_from_the_protocols(kind, missing):
    assert find_missing(kind, object()) == missing
