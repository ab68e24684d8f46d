"""Compositions: variants joined by +, parts replaced, and which theorems still cover them."""

import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import fedsuplin as fsl
from fedsuplin.algorithm.composing import compose_recipe
from fedsuplin.contracts.variant import PARTS
from fedsuplin.errors import InvalidInput, PluginError, UnknownName
from fedsuplin.plugin import hookimpl
from fedsuplin.reference.twin import run_reference
from fedsuplin.registry import Registry, plugins

SIZES = {"dim": 5, "n_arms": 6, "n_clients": 4, "horizon": 400}
COUNTED = (
    "arms",
    "layers",
    "clients",
    "communication",
    "messages_up",
    "messages_down",
    "bytes_up",
    "bytes_down",
)
NO_THEOREM = "no theorem of the paper covers this composition"
LAWS = {
    "gaussian": {"noise": "gaussian", "noise_scale": 0.1},
    "bounded": {"noise": "bounded", "R": 0.5},
    "corrupted": {"noise": "corrupted", "noise_scale": 0.1, "corruption": 20.0},
}


def make(variant, **keywords):
    return fsl.make(variant, **SIZES, **keywords)


def problem(law="gaussian", seed=0, **keywords):
    return fsl.SyntheticProblem(**SIZES, **LAWS[law], seed=seed, **keywords)


def parts(algorithm_or_recipe):
    return {part: getattr(algorithm_or_recipe, part) for part in PARTS}


def assert_same_run(one, other):
    for name in COUNTED:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# --- what a composition is made of ----------------------------------------------------------------
def test_sync_and_variance_is_sync_with_what_variance_changes():
    algorithm = make("sync+variance", preset="theory", R=0.5)
    by_parts = make("sync", preset="theory", noise="bounded", weighting="variance", R=0.5)
    assert parts(algorithm) == parts(by_parts)
    assert (algorithm.syncs, algorithm.lazy) == ("all", False) and algorithm.trigger == make(
        "sync", preset="theory"
    ).trigger
    assert algorithm.noise == make("variance", preset="theory", R=0.5).noise
    assert_same_run(
        *(fsl.run(each, problem("bounded"), record="all") for each in (algorithm, by_parts))
    )


def test_sync_and_robust_is_sync_with_what_robust_changes():
    algorithm = make("sync+robust", preset="theory", corruption=20.0)
    by_parts = make(
        "sync", preset="theory", noise="corrupted", weighting="corruption", corruption=20.0
    )
    assert parts(algorithm) == parts(by_parts)
    assert algorithm.weighting == make("robust", corruption=20.0).weighting
    assert_same_run(
        *(fsl.run(each, problem("corrupted"), record="all") for each in (algorithm, by_parts))
    )


def test_a_composition_plays_differently_from_what_it_is_made_of():
    played = {
        name: fsl.run(name, problem("corrupted"), record="all").arms
        for name in ("sync+robust", "sync", "robust")
    }
    assert (played["sync+robust"] != played["sync"]).any() and (
        played["sync+robust"] != played["robust"]
    ).any()


def test_async_with_a_periodic_trigger_syncs_each_client_at_every_nth_of_its_pulls():
    result = fsl.run(
        "async", problem(arrival="round-robin"), record="all", trigger="periodic", every=30
    )
    syncs = np.flatnonzero(np.diff(result.communication, prepend=0))
    np.testing.assert_array_equal(
        syncs, np.concatenate([np.arange(4) + 4 * 30 * n - 4 for n in range(1, 4)])
    )


COMPOSED = [
    ("async", "sync"),
    ("async", "variance"),
    ("sync", "variance"),
    ("sync", "robust"),
    ("async", "oful"),
    ("sync", "async", "robust"),
]


@pytest.mark.parametrize("names", COMPOSED, ids="+".join)
def test_the_order_does_not_matter_for_the_parts(names):
    expected, *others = (
        parts(make("+".join(order), preset="theory")) for order in itertools.permutations(names)
    )
    assert all(other == expected for other in others)


def test_the_later_preset_counts():
    practical = {
        name: plugins.create("variants", name, {}).presets["practical"]["alpha_scale"]
        for name in ("async", "oful")
    }
    assert practical["async"] != practical["oful"]
    assert make("async+oful").noise.alpha_scale == practical["oful"]
    assert make("oful+async").noise.alpha_scale == practical["async"]
    assert make("oful+async", alpha_scale=0.7).noise.alpha_scale == 0.7


def test_a_name_given_twice_is_given_once():
    assert str(make("sync+sync")).splitlines()[1:] == str(make("sync")).splitlines()[1:]


def test_the_plain_variant_adds_nothing():
    for name in plugins.names("variants"):
        assert parts(compose_recipe(f"async+{name}", {})[1]) == parts(compose_recipe(name, {})[1])


@pytest.mark.parametrize("name", ["sync+", "+sync", "sync++robust", "sync+robst", "sync + robust"])
def test_a_part_of_the_name_that_is_unknown_is_named(name):
    with pytest.raises(
        UnknownName,
        match=r"unknown variant '(|robst|sync )'.*Available: async, .*sync, uniform, variance",
    ):
        make(name)


def test_a_keyword_that_no_part_takes_is_refused_with_those_that_one_does():
    with pytest.raises(
        UnknownName, match="unknown keyword for 'sync\\+robust' 'C'.*D, alpha_scale, corruption"
    ):
        make("sync+robust", C=1.0)


# --- conflicts ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (
            "variance+robust",
            r"'variance' and 'robust' both choose the noise \('bounded' and 'corrupted'\): "
            r"say which with noise=",
        ),
        (
            "robust+variance",
            r"'robust' and 'variance' both choose the noise \('corrupted' and 'bounded'\): "
            r"say which with noise=",
        ),
        (
            "sync+oful",
            r"'sync' and 'oful' both choose the trigger \('timed-determinant' and 'never'\): "
            r"say which with trigger=",
        ),
        ("async+sync+oful", r"'sync' and 'oful' both choose the trigger"),
    ],
)
def test_two_variants_that_choose_the_same_part_are_named(variant, message):
    with pytest.raises(InvalidInput, match=message):
        make(variant)
    with pytest.raises(InvalidInput, match=message):
        fsl.run(variant, problem())


def test_a_conflict_is_decided_by_a_keyword():
    with pytest.raises(InvalidInput, match="both choose the weighting.*say which with weighting="):
        make("variance+robust", noise="bounded")
    algorithm = make("variance+robust", noise="bounded", weighting="corruption", corruption=5.0)
    assert (
        type(algorithm.noise).__name__ == "Bounded"
        and type(algorithm.weighting).__name__ == "CorruptionWeight"
    )
    for trigger in ("never", "timed-determinant", "always"):
        assert make("sync+oful", trigger=trigger).spec["trigger"]["name"] == trigger


def test_a_conflict_may_be_decided_by_an_object_or_a_function():
    algorithm = make("variance+robust", noise="bounded", weighting=lambda norm, sigma: 0.5)
    assert algorithm.weighting.weight(1.0, 1.0) == 0.5
    assert fsl.run(
        "variance+robust", problem("bounded"), noise="bounded", weighting=lambda norm, sigma: 0.5
    ).complete


# --- what the theorems say ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "theorem"),
    [
        ("async+robust", "Theorem 4"),
        ("robust+async", "Theorem 4"),
        ("async+variance", "Theorem 3"),
        ("sync+async", "Theorem 2"),
        ("async+async", "Theorem 1"),
    ],
)
def test_async_and_another_is_the_other_with_its_theorem(name, theorem):
    algorithm = make(name, preset="theory")
    assert (
        algorithm.theorem == theorem
        and algorithm.guarantee
        and f"holds ({theorem})" in str(algorithm)
    )


@pytest.mark.parametrize(
    ("name", "replaced"),
    [
        ("sync+variance", {}),
        ("sync+robust", {"corruption": 3.0}),
        ("async", {"trigger": "periodic"}),
        ("async", {"lazy": False}),
        ("async", {"syncs": "all"}),
        ("async+oful", {}),
        ("variance+robust", {"noise": "bounded", "weighting": "variance", "trigger": "always"}),
        ("async", {"policy": "uniform"}),
        ("async", {"weighting": lambda norm, sigma: 1.0}),
    ],
)
def test_no_theorem_covers_a_new_composition_and_the_algorithm_says_so(name, replaced):
    algorithm = make(name, preset="theory", **replaced)
    assert algorithm.theorem is None and not algorithm.guarantee
    assert algorithm.departures() == [NO_THEOREM]
    assert f"guarantee does not hold: {NO_THEOREM}" in str(algorithm)


def test_the_result_of_a_new_composition_says_so_too():
    result = fsl.run("sync+robust", problem("corrupted"), preset="theory")
    assert result.departures[0] == NO_THEOREM


@pytest.mark.parametrize(
    ("name", "decided", "theorem"),
    [
        ("async", {"trigger": "determinant", "weighting": "unit"}, "Theorem 1"),
        ("sync+async", {"trigger": "timed-determinant"}, "Theorem 2"),
        ("variance+robust", {"noise": "corrupted", "weighting": "corruption"}, "Theorem 4"),
        ("sync+async", {"trigger": "determinant", "syncs": "one", "lazy": True}, "Theorem 1"),
        ("sync+async", {"trigger": "determinant"}, None),
    ],
)
def test_a_theorem_covers_what_is_the_same_in_every_part_however_it_was_asked_for(
    name, decided, theorem
):
    assert make(name, preset="theory", **decided).theorem == theorem


# --- every composition plays like the reference ---------------------------------------------------
PLAYED = [
    ("sync+variance", "bounded", {}),
    ("sync+robust", "corrupted", {}),
    ("async+variance", "bounded", {}),
    ("async+robust", "corrupted", {}),
    ("sync+robust", "corrupted", {"lazy": True}),
    ("sync+variance", "bounded", {"trigger": "periodic", "every": 11}),
    ("async", "gaussian", {"trigger": "periodic", "every": 11}),
    ("async+oful", "gaussian", {"trigger": "determinant", "C": 0.5}),
    ("sync+oful", "gaussian", {"trigger": "timed-determinant", "D": 0.5}),
    (
        "oful+robust",
        "corrupted",
        {"noise": "self-normalised", "trigger": "determinant", "corruption": 20.0},
    ),
    (
        "variance+robust",
        "bounded",
        {"noise": "bounded", "weighting": "corruption", "corruption": 20.0},
    ),
    ("variance+robust", "corrupted", {"noise": "corrupted", "weighting": "variance", "R": 0.5}),
    ("async", "gaussian", {"policy": "uniform"}),
    ("sync", "gaussian", {"policy": "uniform", "trigger": "periodic", "every": 5}),
]


@pytest.mark.parametrize("preset", ["practical", "theory"])
@pytest.mark.parametrize(("name", "law", "more"), PLAYED)
def test_a_composition_plays_like_the_reference(name, law, more, preset):
    stated = {key: value for key, value in LAWS[law].items() if key != "noise"}
    takes = set(make(name, **more).noise.__dataclass_fields__)
    scale = (
        {} if preset == "practical" else {"alpha_scale": 0.1, "ridge": 0.1}
    )  # at 1 nothing leaves layer 0 in 400 pulls
    algorithm = make(
        name,
        preset=preset,
        **({key: value for key, value in stated.items() if key in takes} | scale | more),
    )
    engine = fsl.run(algorithm, problem(law), record="all")
    twin = run_reference(algorithm, problem(law))
    assert_same_run(engine, twin)
    np.testing.assert_allclose(engine.regret, twin.regret, rtol=1e-9)
    assert engine.communication[-1] > 0 or algorithm.trigger == plugins.create(
        "triggers", "never", {}
    )


@pytest.mark.parametrize(
    ("name", "law"), [("sync+variance", "bounded"), ("sync+robust", "corrupted")]
)
def test_the_compositions_learn(name, law):
    sizes = SIZES | {"horizon": 20_000}
    result = fsl.run(name, fsl.SyntheticProblem(**sizes, **LAWS[law], seed=0))
    assert result.regret[-1] < 0.1 * result.uniform_regret[-1]


# --- specifications -------------------------------------------------------------------------------
@pytest.mark.parametrize("preset", ["practical", "theory"])
@pytest.mark.parametrize(("name", "law", "more"), PLAYED)
def test_a_composition_is_made_again_from_its_specification(name, law, more, preset, tmp_path):
    first = fsl.run(name, problem(law), record="all", preset=preset, **more)
    loaded = fsl.RunResult.load(first.save(tmp_path / "run.npz"))
    for kept in (first, loaded):
        algorithm, drawn = kept.rebuild()
        again = fsl.run(algorithm, drawn, record="all")
        assert algorithm.name == name and algorithm.preset == preset
        assert again.spec == first.spec and again.departures == first.departures
        assert_same_run(again, first)


def test_a_composition_of_objects_is_saved_but_not_made_again(tmp_path):
    first = fsl.run(THIRD_PARTY, problem(), record="all")
    loaded = fsl.RunResult.load(first.save(tmp_path / "run.npz"))
    assert loaded.spec["algorithm"]["trigger"] == {
        "name": None,
        "type": "Drowsy",
        "parameters": {"naps": 9, "hours": [1, 2]},
    }
    with pytest.raises(
        InvalidInput,
        match="was passed as an object of type Greedy, so it can't be made again by name",
    ):
        loaded.rebuild()


@pytest.mark.parametrize(
    "field",
    [np.int64(3), np.arange(3.0), {1, 2}, print, object()],
    ids=lambda field: type(field).__name__,
)
def test_whatever_a_plugin_has_as_a_parameter_the_result_can_be_saved(field, tmp_path):
    result = fsl.run("async", problem(), trigger=Drowsy(hours=field))
    saved = fsl.RunResult.load(result.save(tmp_path / "run.npz")).spec["algorithm"]["trigger"][
        "parameters"
    ]["hours"]
    assert saved == (field.tolist() if hasattr(field, "tolist") else repr(field))


# --- a third party's Variant with objects for parts -----------------------------------------------
@dataclass(frozen=True)
class Drowsy:
    """Asks once every so many pulls."""

    naps: int = 9
    hours: object = (1, 2)

    def fires(self, gain, elapsed):
        return elapsed >= self.naps


class Greedy:
    """The largest estimate of the last layer; at first, where all are 0, the longest context."""

    def choose(self, estimates, widths, targets, draw):
        return (len(targets) - 1) * estimates.shape[1] + int(
            (estimates[-1] + 0.1 * widths[-1]).argmax()
        )


def half(norm, sigma):
    return 0.5


THIRD_PARTY = fsl.Variant(
    policy=Greedy(),
    trigger=Drowsy(),
    weighting=half,
    syncs="all",
    lazy=False,
    summary="naps",
    presets={"practical": {"ridge": 0.5, "alpha_scale": 0.3}},
)


def test_a_variant_may_have_objects_and_functions_for_parts():
    algorithm = make(THIRD_PARTY)
    assert algorithm.name == "custom" and algorithm.trigger == Drowsy()
    assert algorithm.setting.ridge == 0.5 and algorithm.noise.alpha_scale == 0.3
    assert algorithm.departures()[0] == NO_THEOREM
    ball = problem(contexts="ball")
    engine = fsl.run(algorithm, ball, record="all")
    assert_same_run(engine, run_reference(algorithm, ball))
    assert engine.layer_pulls[-1] == SIZES["horizon"]


def test_a_part_of_such_a_variant_can_be_replaced_by_name():
    algorithm = make(THIRD_PARTY, trigger="periodic", every=30)
    assert algorithm.spec["trigger"] == {
        "name": "periodic",
        "type": "Periodic",
        "parameters": {"every": 30},
    }
    assert isinstance(algorithm.policy, Greedy)


@pytest.fixture
def installed(monkeypatch):
    """The registry of the library, with "drowsy" in it as if a package had registered it."""
    registry = Registry()
    registry.names("variants")
    source = type(registry.sources()[0])("drowsy", "drowsy-package", "1.0")
    hook = type(
        "hooks", (), {"fedsuplin_register_variants": staticmethod(hookimpl(register_drowsy))}
    )
    registry.add(hook, source)
    for name, value in vars(registry).items():
        monkeypatch.setattr(plugins, name, value)


def register_drowsy(register):
    register("drowsy", lambda: THIRD_PARTY)


def test_a_third_partys_variant_composes_by_name(installed):
    algorithm = make("drowsy+robust", corruption=3.0, weighting="corruption")
    assert (
        algorithm.trigger == Drowsy()
        and type(algorithm.noise).__name__ == "Corrupted"
        and algorithm.syncs == "all"
    )
    with pytest.raises(InvalidInput, match="'drowsy' and 'robust' both choose the weighting"):
        make("drowsy+robust", corruption=3.0)
    assert fsl.run("drowsy", problem()).spec["algorithm"]["variant"] == "drowsy"


def test_a_registered_variant_that_is_no_variant_is_refused(monkeypatch):
    alike = SimpleNamespace(
        **{part: getattr(THIRD_PARTY, part) for part in PARTS}, presets={}, summary="", theorem=None
    )
    monkeypatch.setattr(plugins, "create", lambda kind, name, parameters: alike)
    with pytest.raises(
        PluginError,
        match="'odd' is a variant, so it must be a fedsuplin.Variant, not namespace",
    ):
        make("odd")


def test_a_variant_is_a_name_or_a_variant():
    for wrong in (3, None, object(), ["sync", "robust"]):
        with pytest.raises(
            InvalidInput, match="a variant is a name, names joined by \\+, or a Variant, not"
        ):
            make(wrong)
