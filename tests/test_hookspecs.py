"""Every hook has one line of documentation, an entry in docs/hooks.md, and a third party.

A hook that lacks any of the three fails here. The third parties below are registered through
made-up entry points, and used by name.
"""

import importlib.metadata
import json
import re
import types
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

import fedsuplin as fsl
from fedsuplin import hookspecs
from fedsuplin.cli.main import root_command
from fedsuplin.errors import InvalidInput, PluginError, UnknownName
from fedsuplin.plugin import Chunk, Problem, Stream, hookimpl
from fedsuplin.reference.twin import run_reference
from fedsuplin.registry import HOOK_PREFIX, KINDS, SINGULAR, Registry, plugins

ROOT = Path(__file__).parents[1]
DOCS = (ROOT / "docs/hooks.md").read_text(encoding="utf-8")
PAGE = Path(hookspecs.__file__).read_text(encoding="utf-8")
SIZES = {"dim": 4, "n_arms": 5, "n_clients": 2, "horizon": 400}
SMALL = ("--dim", "4", "--arms", "5", "--clients", "2", "--horizon", "400")


# --- seven third parties --------------------------------------------------------------------------
@dataclass(frozen=True)
class OnTheHour:
    """A client asks at every so many of its pulls."""

    pulls: int = 60

    def fires(self, gain, elapsed):
        return elapsed >= self.pulls


@dataclass(frozen=True)
class Doubting:
    """Every observation counts for the same share."""

    share: float = 0.5

    def weight(self, norm, sigma):
        return self.share


@dataclass(frozen=True)
class Laplace:
    """Laplace noise of scale `width`, with radii that do not depend on the horizon; two layers."""

    width: float = 0.1
    caution: float = 1.0

    def n_layers(self, setting):
        return 2

    def radii(self, setting):
        return np.array([2.0, 1.0]) * self.caution * self.width

    def target_widths(self, setting):
        return np.array([0.2, 0.1]) * self.width

    def draw(self, rng, n):
        return rng.laplace(scale=self.width, size=n), np.full(n, np.sqrt(2) * self.width)


@dataclass(frozen=True)
class Sloppy:
    """The best arm as estimated in layer 0, or, with probability `slips`, any available arm."""

    slips: float = 0.1

    def choose(self, estimates, widths, targets, draw):
        there = np.flatnonzero(estimates[0] > -np.inf)
        if draw < self.slips:
            return there[int(draw / self.slips * len(there))]
        return int((estimates[0] + 0.1 * widths[0]).argmax())


LOOSE = fsl.Variant(
    summary="async that talks at every tenth pull and decides from all it knows",
    trigger="periodic",
    lazy=False,
    presets={"practical": {"every": 10, "alpha_scale": 0.2}},
)


@dataclass(frozen=True)
class Pairs:
    """Each client plays twice, then the next."""

    in_rounds: ClassVar[bool] = False

    def clients(self, start, stop, *, n_clients, horizon, seed):
        return (np.arange(start, stop) // 2 % n_clients).astype(np.int32)


@dataclass(frozen=True)
class Compass(Problem):
    """The same unit vectors every round, of which the last is best by `gap`; clients take turns."""

    n_arms: int = 5
    n_clients: int = 2
    gap: float = 0.5
    seed: int = 0
    noise_scale: ClassVar[float] = 0.1

    @property
    def dim(self):
        return self.n_arms

    def stream(self, horizon, arrival):
        return CompassStream(self)


class CompassStream(Stream):
    def __init__(self, problem):
        self._problem, self._start, self._rng = problem, 0, np.random.default_rng(problem.seed)

    def take(self, n):
        p, pulls = self._problem, np.arange(self._start, self._start + n)
        self._start += n
        theta = np.full(p.dim, 0.2)
        theta[-1] += p.gap
        contexts = np.eye(p.dim)[None].repeat(n, axis=0)
        return Chunk.of(
            contexts,
            pulls % p.n_clients,
            theta=theta,
            noise=0.1 * self._rng.standard_normal(n),
            sigma=p.noise_scale,
        )


def synthetic(**keywords):
    return fsl.SyntheticProblem(**SIZES, **({"seed": 0} | keywords))


def run(variant="async", problem=None, **keywords):
    return fsl.run(variant, problem or synthetic(), horizon=400, record="all", **keywords)


# By kind: a name and what is registered under it; a run that uses it by that name, with parameters;
# and the same on the command line, with what its specification must hold.


@dataclass(frozen=True)
class ThirdParty:
    name: str
    factory: object
    used: object
    command: tuple
    is_in_spec: object


def trigger_used():
    result = run(trigger="on-the-hour", pulls=50)
    assert result.communication[-1] == 8  # 2 clients × 200 pulls / 50
    return result


def weighting_used():
    algorithm = fsl.make("async", **SIZES, weighting="doubting", share=0.25)
    result = run(algorithm)
    assert (result.arms == run_reference(algorithm, synthetic()).arms).all()
    assert (result.arms != run(fsl.make("async", **SIZES)).arms).any()
    return result


def noise_model_used():
    algorithm = fsl.make("async", **SIZES, noise="laplace", width=0.3, caution=2.0)
    assert algorithm.radii.tolist() == pytest.approx([1.2, 0.6]) and algorithm.n_layers == 2
    drawn = synthetic(noise="laplace", width=0.3)
    values = drawn.stream(400, None).take(400).noise
    assert np.abs(values).mean() == pytest.approx(0.3, rel=0.15) and np.abs(values).max() > 1.0
    result = run(algorithm, drawn)
    assert (
        len(result.layer_pulls) == 2 and (result.arms == run_reference(algorithm, drawn).arms).all()
    )
    return result


def policy_used():
    result, careful = (run(policy="sloppy", slips=slips, C=0.01) for slips in (1.0, 0.0))
    assert result.regret[-1] == pytest.approx(result.uniform_regret[-1], rel=0.2)
    assert careful.regret[-1] < 0.2 * result.regret[-1]
    return result


def variant_used():
    result = run("loose")
    assert result.communication[-1] == 40 and result.spec["algorithm"]["lazy"] is False
    assert run("loose+robust", corruption=1.0, every=20).communication[-1] == 20
    return result


def arrival_used():
    result = run(problem=synthetic(arrival="pairs"))
    assert result.clients[:8].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    return result


def problem_used():
    problem = plugins.create("problems", "compass", {"gap": 0.4})
    result = run("oful", problem)
    assert problem.spec["problem"] == "compass" and (result.arms[-100:] == 4).mean() > 0.9
    assert (run(problem=problem).arms == run_reference("async", problem, horizon=400).arms).all()
    return result


THIRD_PARTY = {
    "triggers": ThirdParty(
        "on-the-hour",
        OnTheHour,
        trigger_used,
        ("run", "--trigger", "on-the-hour", "--set", "pulls=50", *SMALL),
        lambda spec: (
            spec["algorithm"]["trigger"]
            == {"name": "on-the-hour", "type": "OnTheHour", "parameters": {"pulls": 50}}
        ),
    ),
    "weightings": ThirdParty(
        "doubting",
        Doubting,
        weighting_used,
        ("run", "--weighting", "doubting", "--set", "share=0.25", *SMALL),
        lambda spec: spec["algorithm"]["weighting"]["parameters"] == {"share": 0.25},
    ),
    "noise_models": ThirdParty(
        "laplace",
        Laplace,
        noise_model_used,
        ("run", "--assume", "laplace", "--noise", "laplace", "--set", "width=0.3", *SMALL),
        lambda spec: (
            spec["algorithm"]["noise"]["name"]
            == spec["problem"]["parameters"]["noise"]
            == "laplace"
        ),
    ),
    "policies": ThirdParty(
        "sloppy",
        Sloppy,
        policy_used,
        ("run", "--policy", "sloppy", "--set", "slips=0.5", *SMALL),
        lambda spec: spec["algorithm"]["policy"]["parameters"] == {"slips": 0.5},
    ),
    "variants": ThirdParty(
        "loose",
        lambda: LOOSE,
        variant_used,
        ("run", "loose", "--every", "20", *SMALL),
        lambda spec: (
            spec["algorithm"]["variant"] == "loose"
            and spec["algorithm"]["trigger"]["parameters"] == {"every": 20}
        ),
    ),
    "arrivals": ThirdParty(
        "pairs",
        Pairs,
        arrival_used,
        ("run", "--arrival", "pairs", *SMALL),
        lambda spec: spec["problem"]["parameters"]["arrival"] == "pairs",
    ),
    "problems": ThirdParty(
        "compass",
        Compass,
        problem_used,
        (
            "run",
            "--problem",
            "compass",
            "--arms",
            "3",
            "--clients",
            "2",
            "--horizon",
            "400",
            "--set",
            "gap=0.4",
        ),
        lambda spec: (
            spec["problem"]["problem"] == "compass" and spec["problem"]["parameters"]["gap"] == 0.4
        ),
    ),
}


# --- registered through an entry point, used by name ----------------------------------------------
class EntryPoint:
    """An entry point of a package that does not exist."""

    def __init__(self, name, module):
        self.name, self._module = name, module
        self.dist = types.SimpleNamespace(name=f"{name}-package", version="1.2")

    def load(self):
        return self._module


def entry_point(kind):
    third_party = THIRD_PARTY[kind]
    module = types.ModuleType(f"made_up_{kind}")

    def hook(register):
        register(third_party.name, third_party.factory)

    setattr(module, HOOK_PREFIX + kind, hookimpl(hook))
    return EntryPoint(third_party.name, module)


@pytest.fixture
def install(monkeypatch):
    """Lets the library's registry find entry points as if installed, until the test ends."""

    def installed(*entry_points):
        ours = importlib.metadata.entry_points(group=hookspecs.NAMESPACE)
        for name, value in vars(Registry(lambda: [*ours, *entry_points])).items():
            monkeypatch.setattr(plugins, name, value)

    return installed


@pytest.mark.parametrize("kind", KINDS)
def test_a_third_partys_plugin_is_used_by_name(kind, install, tmp_path):
    install(entry_point(kind))
    third_party = THIRD_PARTY[kind]
    assert third_party.name in plugins.names(kind)
    assert plugins.find_owner(kind, third_party.name).package == f"{third_party.name}-package"
    result = third_party.used()
    assert result.complete and result.n_pulls == 400
    loaded = fsl.RunResult.load(result.save(tmp_path / "run.npz"))
    again = fsl.run(*loaded.rebuild(), horizon=400, record="all")
    np.testing.assert_array_equal(again.arms, result.arms)
    np.testing.assert_array_equal(again.communication, result.communication)


@pytest.mark.parametrize("kind", KINDS)
def test_a_third_partys_plugin_is_used_by_name_on_the_command_line(kind, install):
    install(entry_point(kind))
    third_party = THIRD_PARTY[kind]
    called = CliRunner().invoke(root_command, [*third_party.command, "--json"])
    assert called.exit_code == 0, called.output
    assert third_party.is_in_spec(json.loads(called.stdout)["spec"])


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_package_its_name_is_unknown(kind):
    assert THIRD_PARTY[kind].name not in plugins.names(kind)
    with pytest.raises(
        UnknownName, match=f"unknown {SINGULAR[kind]} '{THIRD_PARTY[kind].name}'.*Available:"
    ):
        plugins.factory(kind, THIRD_PARTY[kind].name)


def test_all_of_them_play_together(install):
    install(*map(entry_point, KINDS))
    problem = plugins.create("problems", "compass", {})
    parts = {
        "trigger": "on-the-hour",
        "weighting": "doubting",
        "noise": "laplace",
        "policy": "sloppy",
    }
    result = fsl.run("loose", problem, horizon=400, record="all", **parts, slips=0.2, share=0.8)
    algorithm, again = result.rebuild()
    assert algorithm.spec["trigger"]["name"] == "on-the-hour" and algorithm.name == "loose"
    np.testing.assert_array_equal(result.arms, run_reference(algorithm, again, horizon=400).arms)


# --- what a third party's problem may get wrong ---------------------------------------------------
@dataclass(frozen=True)
class Careless(Problem):
    """Two arms in two dimensions, but for one thing."""

    changes: dict
    dim: ClassVar[int] = 2
    n_arms: ClassVar[int] = 3
    n_clients: ClassVar[int] = 2

    def stream(self, horizon, arrival):
        changes = self.changes

        class CarelessStream(Stream):
            def take(self, n):
                usual = {
                    "contexts": np.full((n, 3, 2), 0.5),
                    "clients": np.arange(n) % 2,
                    "theta": [0.3, 0.4],
                }
                made = {name: change(n) for name, change in changes.items()}
                return Chunk.of(**(usual | made))

        return CarelessStream()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"contexts": lambda n: np.full((n, 4, 2), 0.5)},
            "contexts from pull 0 on have more arms than the problem's n_arms=3",
        ),
        (
            {"contexts": lambda n: np.full((n, 40, 2), 0.5)},
            "contexts from pull 0 on have more arms than the problem's n_arms=3",
        ),
        (
            {"contexts": lambda n: np.full((n, 3, 5), 0.4), "theta": lambda n: np.zeros(5)},
            "do not fit 20 rounds of 3 arms",
        ),
        (
            {
                "contexts": lambda n: np.full((n + 1, 3, 2), 0.5),
                "clients": lambda n: np.zeros(n + 1),
            },
            "must give a Chunk of 20 pulls",
        ),
        (
            {"contexts": lambda n: np.zeros((n, 3))},
            r"contexts must have the shape \(pulls, arms, dim\)",
        ),
        (
            {"clients": lambda n: [0, 1]},
            r"clients of 20 pulls of 3 arms must have the shape \(20,\), not \(2,\)",
        ),
        (
            {"clients": lambda n: np.full(n, 5)},
            r"the client is out of range, at pull 0 \(client 5\)",
        ),
        (
            {"mask": lambda n: np.ones((n, 2))},
            r"mask of 20 pulls of 3 arms must have the shape \(20, 3\), not \(20, 2\)",
        ),
        (
            {"mask": lambda n: np.arange(3 * n).reshape(n, 3) < 45},
            "pull 15 has no arm: every row of mask needs one",
        ),
        (
            {"theta": lambda n: None, "rewards": lambda n: np.ones((n, 4))},
            r"rewards of 20 pulls .* not \(20, 4\)",
        ),
        ({"corruption": lambda n: np.ones(n)}, r"corruption of 20 pulls .* not \(20,\)"),
        ({"theta": lambda n: None}, "theta do not fit"),
        ({"sigma": lambda n: -1.0}, "sigma of pull 0 is -1.0: a noise level can't be negative"),
        ({"noise": lambda n: np.nan}, "noise from pull 0 on hold NaN"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_a_careless_problem_gets_an_error_that_describes_its_chunk(changes, message):
    assert fsl.run("async", Careless({}), horizon=20).complete
    with pytest.raises(InvalidInput, match=message) as caught:
        fsl.run("async", Careless(changes), horizon=20)
    assert caught.value.result.n_pulls == 0


def test_a_problem_that_raises_is_named_with_the_pulls():
    def fails(n):
        raise KeyError("no such file")

    with pytest.raises(
        PluginError, match="CarelessStream raised KeyError: 'no such file', for pulls 0 to 19"
    ):
        fsl.run("async", Careless({"contexts": fails}), horizon=20)


# --- documented -----------------------------------------------------------------------------------
def lacking(kind, specs, docs, third_parties):
    """What a hook lacks of: a line of documentation, an entry in docs/hooks.md, a third party."""
    spec = getattr(specs, HOOK_PREFIX + kind)
    found = []
    if not (spec.__doc__ or "").strip() or "\n" in spec.__doc__.strip():
        found.append("one line of documentation")
    if entry(kind, docs) is None:
        found.append("an entry in docs/hooks.md")
    if kind not in third_parties:
        found.append("a third party that uses it")
    return found


def entry(kind, docs):
    """The text under the heading of a hook, or None."""
    found = re.search(
        rf"^## `{HOOK_PREFIX}{kind}`$(.*?)(?=^## |\Z)", docs, re.MULTILINE | re.DOTALL
    )
    return found.group(1) if found else None


@pytest.mark.parametrize("kind", KINDS)
def test_every_hook_has_a_line_an_entry_and_a_third_party(kind):
    assert lacking(kind, hookspecs, DOCS, THIRD_PARTY) == []


def test_nothing_else_has():
    assert set(THIRD_PARTY) == set(KINDS)
    assert re.findall(r"^## `(.*)`$", DOCS, re.MULTILINE) == [HOOK_PREFIX + kind for kind in KINDS]


def test_a_hook_that_lacks_one_of_them_would_be_noticed():
    def fedsuplin_register_clocks(register):
        """Clocks: what time it is."""

    specs = types.SimpleNamespace(fedsuplin_register_clocks=fedsuplin_register_clocks)
    docs = DOCS + "\n## `fedsuplin_register_clocks`\n\nClocks.\n"
    assert lacking("clocks", specs, docs, THIRD_PARTY | {"clocks": None}) == []
    assert lacking("clocks", specs, DOCS, THIRD_PARTY) == [
        "an entry in docs/hooks.md",
        "a third party that uses it",
    ]
    fedsuplin_register_clocks.__doc__ = None
    assert lacking("clocks", specs, docs, THIRD_PARTY | {"clocks": None}) == [
        "one line of documentation"
    ]
    fedsuplin_register_clocks.__doc__ = "Clocks.\n\nAnd more than one line."
    assert lacking("clocks", specs, docs, THIRD_PARTY | {"clocks": None}) == [
        "one line of documentation"
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_entry_of_a_hook_has_its_line_an_example_and_every_built_in(kind):
    text = entry(kind, DOCS)
    line = getattr(hookspecs, HOOK_PREFIX + kind).__doc__.strip()
    assert line in text
    assert "```python\n" in text and f"def {HOOK_PREFIX}{kind}(register)" in text
    for name in plugins.names(kind):
        assert f"`{name}`" in text or plugins.find_owner(kind, name).package != "fedsuplin", (
            f"{name} is not named"
        )


def test_the_hooks_fit_on_one_page():
    lines = PAGE.splitlines()
    assert len(lines) <= 70 and max(map(len, lines)) <= 130
