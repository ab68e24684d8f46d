"""Built-ins use nothing that is not public, and importing fedsuplin loads none of them.

Each module of plugins/ is executed here with an import system in which our public modules show their public names alone, and
no other module of ours is there. Then the variants are played with what these modules registered.
"""

import builtins
import importlib
import importlib.metadata
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import fedsuplin as fsl
import fedsuplin_plugins
from fedsuplin.registry import Registry, Source, package_of, plugins
from fedsuplin_ext import draws, formulas

# Everything that a plugin may use of ours: by module, the names. docs/plugins.md has the same list for people.
PUBLIC_MODULES = [
    *("fedsuplin", "fedsuplin.setting", "fedsuplin.bounds", "fedsuplin.design"),
    *(f"fedsuplin_plugins.{name}" for name in ("triggers", "weightings", "noise", "policies")),
    *("fedsuplin_ext", "fedsuplin_ext.rules", "fedsuplin_ext.draws"),
]
PUBLIC = {name: importlib.import_module(name).__all__ for name in PUBLIC_MODULES}
PUBLIC["fedsuplin_ext.formulas"] = ("__pyx_capi__",)  # the functions of its .pxd, for from_cython
PUBLIC["fedsuplin_plugins"] = ()
OURS = ("fedsuplin", "fedsuplin_ext", "fedsuplin_plugins")
WAYS_AROUND = ("importlib", "sys", "builtins", "imp", "runpy", "pkgutil", "gc")
PHASED = {"pe", "fed-pe"}
BUILT_IN = [module.name for module in pkgutil.iter_modules(fedsuplin_plugins.__path__)]


def public_view(name):
    """A module with the public names of one of ours, and its public submodules."""
    view = types.ModuleType(f"the public {name}")  # else `from fedsuplin import registry` would find it in sys.modules
    for public in PUBLIC[name]:
        setattr(view, public, getattr(importlib.import_module(name), public))
    for other in PUBLIC:
        parent, _, child = other.rpartition(".")
        if parent == name:
            setattr(view, child, public_view(other))
    return view


def public_import(name, globals=None, locals=None, fromlist=(), level=0):
    """`__import__` as a third party without our source has it."""
    top = name.partition(".")[0]
    if level or top in WAYS_AROUND:
        raise ImportError(f"{'.' * level}{name} leads to what is not public")
    if top not in OURS:
        return builtins.__import__(name, globals, locals, fromlist, level)
    if name not in PUBLIC:
        raise ImportError(f"{name} is not public")
    return public_view(name if fromlist else top)


def executed(name, source, monkeypatch):
    """A module of this source, which sees what is public."""
    module = types.ModuleType(name)
    visible = {key: value for key, value in vars(builtins).items() if key not in ("eval", "exec", "compile", "open")}
    vars(module)["__builtins__"] = visible | {"__import__": public_import}
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look there
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    return module


def source_of(name):
    return Path(fedsuplin_plugins.__path__[0], f"{name}.py").read_text(encoding="utf-8")


# --- the built-ins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_module_works_with_public_names_alone(name, monkeypatch):
    module = executed(f"public_{name}", source_of(name), monkeypatch)
    registry, source = Registry(lambda: []), Source(name, "fedsuplin", "0")
    registry.add(module, source)
    (usual,) = (each for each in plugins.sources() if (each.package, each.entry_point) == ("fedsuplin", name))
    assert source.registered == usual.registered != []


def test_every_built_in_module_is_one_of_these():
    """Nothing that we register comes from elsewhere."""
    ours = [entry for entry in importlib.metadata.entry_points(group="fedsuplin") if package_of(entry)[0] == "fedsuplin"]
    assert sorted(entry.value for entry in ours) == [f"fedsuplin_plugins.{name}" for name in sorted(BUILT_IN)]


def test_the_variants_play_the_same_with_public_names_alone(monkeypatch):
    """Names that are only looked up when a rule is bound, compiled, drawn from or asked."""
    noise = {"variance": {"noise": "bounded", "R": 0.5}, "robust": {"noise": "corrupted", "corruption": 9.0}}

    registry = Registry(lambda: [])
    for name in BUILT_IN:
        registry.add(executed(f"public_{name}", source_of(name), monkeypatch), Source(name, "fedsuplin", "0"))

    def play_all():
        found = {}
        for variant in registry.names("variants"):
            in_rounds = registry.create("variants", variant, {}).syncs == "all"
            for arrival in ["round-robin"] if in_rounds else registry.names("arrivals"):
                kind = fsl.FixedArmsProblem if variant in PHASED else fsl.SyntheticProblem
                problem = kind(4, 5, 3, seed=0, arrival=arrival, **noise.get(variant, {}))
                found[variant, arrival] = fsl.run(variant, problem, horizon=300, record="all")
        for trigger in registry.names("triggers"):
            for policy in set(registry.names("policies")) - PHASED:
                how = {"trigger": trigger, "policy": policy}
                found[trigger, policy] = fsl.run("async", fsl.SyntheticProblem(4, 5, 3), horizon=300, record="all", **how)
        return found

    expected = play_all()
    for name, value in vars(registry).items():
        monkeypatch.setattr(plugins, name, value)
    for case, result in play_all().items():
        np.testing.assert_array_equal(result.arms, expected[case].arms, err_msg=str(case))
        np.testing.assert_array_equal(result.communication, expected[case].communication, err_msg=str(case))
        assert type(fsl.make("async", dim=2, n_arms=2, n_clients=1, horizon=9).trigger).__module__ == "public_triggers"


# --- that this can fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "import fedsuplin.registry",
        "from fedsuplin.registry import plugins",
        "from fedsuplin import registry",
        "from fedsuplin.algorithm import _numbers",
        "import fedsuplin\nfedsuplin.algorithm",
        "import fedsuplin.setting\nfedsuplin.registry",
        "from fedsuplin.setting import math",
        "from fedsuplin.errors import InvalidInput",
        "from fedsuplin_ext.rules import METHODS",
        "from fedsuplin_ext.loop import Engine",
        "from fedsuplin_ext import norms",
        "import fedsuplin_ext\nfedsuplin_ext.loop",
        "from fedsuplin_ext.draws import ContextSource",
        "from fedsuplin_ext import formulas\nformulas.__loader__.name",
        "import fedsuplin_plugins.variants",
        "from fedsuplin_plugins.noise import halving",
        "from .triggers import Determinant",
        "import sys",
        "import importlib",
        "exec('import fedsuplin.registry')",
    ],
)
def test_a_module_that_uses_something_else_is_refused(line, monkeypatch):
    exec(line, {"__name__": "fedsuplin_plugins.here", "__package__": "fedsuplin_plugins"})  # else the line itself is wrong
    with pytest.raises((ImportError, AttributeError, NameError)):
        executed("sly", line, monkeypatch)


def test_a_module_that_uses_what_is_public_is_not_refused(monkeypatch):
    lines = [f"import {name}\nfrom {name} import {', '.join(names)}" for name, names in PUBLIC.items() if names]
    executed("honest", "\n".join(lines), monkeypatch)
    executed("usual", "import math, numpy, scipy.linalg\nfrom dataclasses import dataclass", monkeypatch)


def test_the_guide_lists_what_is_public():
    root = next(each for each in Path(__file__).resolve().parents if (each / "pyproject.toml").exists())
    guide = (root / "docs/plugins.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", guide.partition("## What is public")[2].partition("\n## ")[0], re.MULTILINE)
    listed = {module: re.findall(r"`(\w+)`", names) for module, names in rows}
    expected = {module: names for module, names in PUBLIC.items() if names}
    expected["fedsuplin_ext.formulas"] = formulas.__pyx_capi__
    assert listed.keys() == expected.keys() | {
        "fedsuplin.testing",
        "fedsuplin.reference",
    }  # which are for authors, not for plugins
    for module, names in expected.items():
        assert sorted(listed[module]) == sorted(names), module
    for module in listed.keys() - expected.keys():
        assert all(hasattr(importlib.import_module(module), name) for name in listed[module])


def test_public_names_are_there_and_say_what_they_are():
    for module, names in PUBLIC.items():
        for name in names:
            thing = getattr(importlib.import_module(module), name)
            assert name.startswith("__") or thing.__doc__ or module == "fedsuplin.setting", f"{module}.{name}"
    assert draws.keyed_permutation(0, 5, 5, 1).tolist() != [0, 1, 2, 3, 4]


# --- importing ---------------------------------------------------------------------------------------------------------


def in_a_fresh_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_fedsuplin_loads_no_plugin():
    loaded = "[m for m in sys.modules if m.startswith('fedsuplin_plugins')]"
    assert in_a_fresh_process(f"import sys, fedsuplin; print({loaded})") == "[]"
    first_look_up = "fedsuplin.make('async', dim=2, n_arms=2, n_clients=1, horizon=9)"
    assert "fedsuplin_plugins.triggers" in in_a_fresh_process(f"import sys, fedsuplin; {first_look_up}; print({loaded})")
