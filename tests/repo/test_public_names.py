"""Users import `fedsuplin`; plugin authors and the built-in plugins import `fedsuplin.plugin`.

Each module of plugins/ is executed here with an import system that has nothing of ours but
`fedsuplin.plugin` and the public classes of other built-ins. Then the variants are played with what
these modules registered.
"""

import ast
import builtins
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import fedsuplin as fsl
import fedsuplin.errors
import fedsuplin.plugin
import fedsuplin_plugins
from fedsuplin.plugin import formulas
from fedsuplin.registry import Registry, Source, find_package, plugins

ROOT = Path(__file__).parents[2]
DOORS = [fsl, fedsuplin.plugin]
NAMES = [
    *("run", "make", "compare", "sweep", "benchmark", "connect", "connect_async"),
    *("Algorithm", "Variant", "Doubling", "RunResult", "Comparison", "SweepResult", "Benchmark"),
    *("SyntheticProblem", "FixedArmsProblem", "ArrayProblem", "problem_from_table"),
    *("ClassificationProblem", "DigitsProblem", "MovieLensProblem"),
    *("Client", "Server", "Connection", "AsyncConnection", "Decision"),
    *("FedsuplinError", "__version__"),
]

# What a built-in plugin may import of ours, and the names of each.
PUBLIC_MODULES = [
    "fedsuplin.plugin",
    *(f"fedsuplin_plugins.{name}" for name in ("triggers", "weightings", "noise", "policies")),
]
PUBLIC = {name: importlib.import_module(name).__all__ for name in PUBLIC_MODULES}
PUBLIC |= {
    "fedsuplin": (),
    "fedsuplin_plugins": (),
}  # their submodules above, and no name of their own
OURS = ("fedsuplin", "fedsuplin_ext", "fedsuplin_plugins")
WAYS_AROUND = ("importlib", "sys", "builtins", "imp", "runpy", "pkgutil", "gc")
PHASED = {"pe", "fed-pe"}
BUILT_IN = [module.name for module in pkgutil.iter_modules(fedsuplin_plugins.__path__)]


# --- the doors ------------------------------------------------------------------------------------


def test_users_see_the_public_names_and_nothing_else():
    assert sorted(NAMES) == dir(fsl) == sorted(fsl.__all__)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_every_public_name_is_there(door):
    assert all(getattr(door, name) is not None for name in door.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'runn'"):
        door.runn  # noqa: B018


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_the_stub_has_the_same_names_from_the_same_modules(door):
    stub = ast.parse(Path(door.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    found = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name  # else type checkers take it for private
                whole = f"{node.module}.{alias.name}"
                found[alias.name] = whole if whole == door._HOMES.get(alias.name) else node.module
    assert found == door._HOMES


def test_no_name_is_both_a_module_and_a_public_function():
    """`fedsuplin.run` is the function, whatever was imported before, also in its room."""
    top = Path(fsl.__file__).parent
    for path in sorted(top.rglob("__init__.py")):
        folder = path.parent
        room = importlib.import_module(".".join(folder.relative_to(top.parent).parts))
        modules = {each.name for each in pkgutil.iter_modules([str(folder)])}
        public = {name for name in getattr(room, "__all__", ()) if not name.startswith("__")}
        assert not modules & public, f"{room.__name__}: {modules & public}"


def test_importing_a_room_does_not_hide_a_function():
    code = "import fedsuplin.simulation.runner, fedsuplin.cli.run, fedsuplin.study.sweeps as s; "
    code += "import fedsuplin as fsl; print(type(fsl.run).__name__, type(fsl.sweep).__name__, "
    code += "fsl.run is fedsuplin.simulation.run)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["function", "function", "True"]


def test_every_exception_is_in_errors_and_is_one_family():
    found = [each for _, each in inspect.getmembers(fedsuplin.errors, inspect.isclass)]
    own = [each for each in found if each.__module__ == "fedsuplin.errors"]
    assert len(own) > 5
    for each in own:
        assert issubclass(each, (fsl.FedsuplinError, Warning)), each


# --- the guide -----------------------------------------------------------------------------------


def read_guide_tables():
    """The two tables of the guide's section on what is public: rows of cells."""
    guide = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
    section = guide.partition("## What is public")[2].partition("\n## ")[0]
    tables = re.findall(r"^\| .* \|\n\|---\|---\|\n((?:\|.*\n)+)", section, re.MULTILINE)
    return [[line.strip("| ").split(" | ") for line in table.splitlines()] for table in tables]


def test_the_guide_lists_what_is_public_for_plugins():
    names, _ = read_guide_tables()
    listed = [name for cell, _ in names for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(listed) == sorted(fedsuplin.plugin.__all__)


def test_the_guide_lists_the_other_public_modules():
    _, modules = read_guide_tables()
    listed = {cell.strip("`"): re.findall(r"`(\w+)`", names) for cell, names in modules}
    assert listed.pop("fedsuplin_ext") == ["get_include"]
    assert sorted(listed.pop("fedsuplin_ext.formulas")) == sorted(formulas.__pyx_capi__)
    assert listed.pop("fedsuplin") == listed.pop("fedsuplin.errors") == []  # on the API pages
    authors = {"fedsuplin.testing", "fedsuplin.reference"}
    assert listed.keys() == authors | PUBLIC.keys() - {"fedsuplin.plugin", *OURS}
    for module, names in listed.items():
        assert sorted(names) == sorted(importlib.import_module(module).__all__), module


def test_public_names_say_what_they_are():
    for module, names in PUBLIC.items():
        for name in names:
            thing = getattr(importlib.import_module(module), name)
            assert inspect.ismodule(thing) or thing.__doc__, f"{module}.{name}"


# --- the built-ins --------------------------------------------------------------------------------


def show_c_functions(module):
    """A compiled module of ours with nothing but the functions of its .pxd, for from_cython."""
    view = types.ModuleType(f"the public {module.__name__}")
    view.__pyx_capi__ = module.__pyx_capi__
    return view


def public_view(name):
    """Make a module with the public names of one of ours, and its public submodules."""
    view = types.ModuleType(f"the public {name}")  # a name that is not in sys.modules
    for public in PUBLIC[name]:
        value = getattr(importlib.import_module(name), public)
        setattr(view, public, show_c_functions(value) if inspect.ismodule(value) else value)
    for other in PUBLIC:
        parent, _, child = other.rpartition(".")
        if parent == name:
            setattr(view, child, public_view(other))
    return view


def public_import(name, globals=None, locals=None, fromlist=(), level=0):
    """Import for a third party that has our documentation but not our source."""
    top = name.partition(".")[0]
    if level or top in WAYS_AROUND:
        raise ImportError(f"{'.' * level}{name} leads to what is not public")
    if top not in OURS:
        return builtins.__import__(name, globals, locals, fromlist, level)
    if name not in PUBLIC:
        raise ImportError(f"{name} is not public")
    return public_view(name if fromlist else top)


def execute(name, source, monkeypatch):
    """Make a module of this source that can import public names only."""
    module = types.ModuleType(name)
    hidden = ("eval", "exec", "compile", "open")
    visible = {key: value for key, value in vars(builtins).items() if key not in hidden}
    vars(module)["__builtins__"] = visible | {"__import__": public_import}
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look there
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    return module


def read_source(name):
    """Return the source of a built-in plugin module."""
    return Path(fedsuplin_plugins.__path__[0], f"{name}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_module_works_with_public_names_alone(name, monkeypatch):
    module = execute(f"public_{name}", read_source(name), monkeypatch)
    registry, source = Registry(lambda: []), Source(name, "fedsuplin", "0")
    registry.add(module, source)
    usual = [each for each in plugins.sources() if each.package == "fedsuplin"]
    (same,) = (each for each in usual if each.entry_point == name)
    assert source.registered == same.registered != []


def test_every_built_in_module_is_one_of_these():
    """Nothing that fedsuplin registers comes from elsewhere."""
    entries = importlib.metadata.entry_points(group="fedsuplin")
    ours = [entry.value for entry in entries if find_package(entry)[0] == "fedsuplin"]
    assert sorted(ours) == [f"fedsuplin_plugins.{name}" for name in sorted(BUILT_IN)]


def play_everything(registry):
    """Play every variant with every arrival it can have, and every trigger with every policy."""
    noise = {
        "variance": {"noise": "bounded", "R": 0.5},
        "robust": {"noise": "corrupted", "corruption": 9.0},
    }
    found = {}
    for variant in registry.names("variants"):
        in_rounds = registry.create("variants", variant, {}).syncs == "all"
        for arrival in ["round-robin"] if in_rounds else registry.names("arrivals"):
            kind = fsl.FixedArmsProblem if variant in PHASED else fsl.SyntheticProblem
            problem = kind(4, 5, 3, seed=0, arrival=arrival, **noise.get(variant, {}))
            found[variant, arrival] = fsl.run(variant, problem, horizon=300, record="all")
    for trigger in registry.names("triggers"):
        for policy in set(registry.names("policies")) - PHASED:
            parts = {"trigger": trigger, "policy": policy}
            problem = fsl.SyntheticProblem(4, 5, 3)
            found[trigger, policy] = fsl.run("async", problem, horizon=300, record="all", **parts)
    return found


def test_the_variants_play_the_same_with_public_names_alone(monkeypatch):
    """Some names are only looked up when a rule is bound, compiled, drawn from or called."""
    registry = Registry(lambda: [])
    for name in BUILT_IN:
        module = execute(f"public_{name}", read_source(name), monkeypatch)
        registry.add(module, Source(name, "fedsuplin", "0"))
    expected = play_everything(registry)
    for name, value in vars(registry).items():
        monkeypatch.setattr(plugins, name, value)
    for case, result in play_everything(registry).items():
        usual = expected[case]
        np.testing.assert_array_equal(result.arms, usual.arms, err_msg=str(case))
        np.testing.assert_array_equal(result.communication, usual.communication, str(case))
    trigger = fsl.make("async", dim=2, n_arms=2, n_clients=1, horizon=9).trigger
    assert type(trigger).__module__ == "public_triggers"


@pytest.mark.parametrize(
    "line",
    [
        "import fedsuplin.registry",
        "from fedsuplin.registry import plugins",
        "from fedsuplin import registry",
        "from fedsuplin import run",
        "import fedsuplin\nfedsuplin.algorithm",
        "import fedsuplin.plugin\nfedsuplin.registry",
        "from fedsuplin.contracts.setting import Setting",
        "from fedsuplin.errors import InvalidInput",
        "from fedsuplin_ext.rules import METHODS",
        "from fedsuplin_ext.rules import from_cython",
        "from fedsuplin_ext.loop import Engine",
        "from fedsuplin_ext import norms",
        "import fedsuplin_ext\nfedsuplin_ext.loop",
        "from fedsuplin_ext.draws import ContextSource",
        "from fedsuplin.plugin import formulas\nformulas.__loader__.name",
        "import fedsuplin_plugins.variants",
        "from fedsuplin_plugins.noise import hookimpl",
        "from .triggers import Determinant",
        "import sys",
        "import importlib",
        "exec('import fedsuplin.registry')",
    ],
)
def test_a_module_that_uses_something_else_is_refused(line, monkeypatch):
    # The line works without the restriction, so what follows is the restriction's doing.
    exec(line, {"__name__": "fedsuplin_plugins.here", "__package__": "fedsuplin_plugins"})
    with pytest.raises((ImportError, AttributeError, NameError)):
        execute("sly", line, monkeypatch)


def test_a_module_that_uses_what_is_public_is_not_refused(monkeypatch):
    allowed = {name: names for name, names in PUBLIC.items() if names}
    lines = [
        f"import {name}\nfrom {name} import {', '.join(names)}" for name, names in allowed.items()
    ]
    execute("honest", "\n".join(lines), monkeypatch)
    usual = "import math, numpy, scipy.linalg\nfrom dataclasses import dataclass"
    execute("usual", usual, monkeypatch)


# --- importing ------------------------------------------------------------------------------------


def run_in_a_fresh_process(code):
    """Return what code prints in a new Python process."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_importing_fedsuplin_loads_no_room_and_no_plugin():
    loaded = "[m for m in sys.modules if m.startswith('fedsuplin') or m == 'numpy']"
    found = run_in_a_fresh_process(f"import sys, fedsuplin; print(*{loaded})").split()
    assert sorted(found) == ["fedsuplin", "fedsuplin._shared", "fedsuplin._shared.lazy_names"]


def test_plugins_are_loaded_when_the_first_is_looked_up():
    loaded = "[m for m in sys.modules if m.startswith('fedsuplin_plugins')]"
    make = "fedsuplin.make('async', dim=2, n_arms=2, n_clients=1, horizon=9)"
    before = run_in_a_fresh_process(f"import sys, fedsuplin; fedsuplin.make; print({loaded})")
    after = run_in_a_fresh_process(f"import sys, fedsuplin; {make}; print({loaded})")
    assert before == "[]" and "fedsuplin_plugins.triggers" in after
