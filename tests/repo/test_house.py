"""The house: a room imports from rooms below it, and no two modules import each other."""

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fedsuplin"

# From top to bottom. A room may import from every row below its own. Names in one string ("a, b")
# are one room in several modules. Rooms that stand beside each other are separate entries of one
# row, and may not import from each other.
ROWS = [
    ["__main__"],
    ["cli"],
    ["reproduce", "testing", "microbench"],
    ["study", "federation", "reference"],
    ["simulation", "live"],
    ["algorithm", "problems"],
    ["registry, hookspecs, contracts"],
    ["view"],
    ["_shared, errors"],
]
DOORS = {"__init__", "plugin"}  # they import from every room, and no room imports from them
UPWARD_TYPES = {"view", "errors"}  # whose TYPE_CHECKING imports may point upwards

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""(module, imported module): why. At most five."""


def room_of(module):
    """The room of a module of the package: fedsuplin.cli.run is in cli."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def place_of(room):
    """The row of a room and its place in that row."""
    for number, row in enumerate(ROWS):
        for place, names in enumerate(row):
            if room in names.split(", "):
                return number, place
    raise AssertionError(
        f"fedsuplin/{room} is in no row of the house: add it to ROWS in {Path(__file__).name}"
    )


def may_import(room, other):
    """The rule."""
    if room in DOORS or room == other:
        return True
    if other in DOORS:
        return False
    (row, place), (other_row, other_place) = place_of(room), place_of(other)
    return row < other_row or (row == other_row and place == other_place)


def modules_under(package):
    """Every module of a package folder, by its dotted name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(module, source, is_package, known):
    """(imported module, for types only) of every import in a module, those inside functions too."""
    tree = ast.parse(source)
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, is_package, node)
            names = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base
                for alias in node.names
            ]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "fedsuplin":
                yield name, id(node) in for_types


def absolute(module, is_package, node):
    """The full name of the module that a `from … import` names."""
    if not node.level:
        return node.module
    parts = module.split(".")[: None if is_package else -1]
    return ".".join(
        [*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])]
    )


def wrong_imports(package):
    """Every import that breaks the rule, in words."""
    known = modules_under(package)
    wrong = []
    for module, path in known.items():
        room = room_of(module)
        for other, for_types in imports_of(
            module, path.read_text(), path.name == "__init__.py", known
        ):
            allowed = may_import(room, room_of(other)) or (for_types and room in UPWARD_TYPES)
            if not allowed and (module, other) not in EXCEPTIONS:
                wrong.append(
                    f"{module} imports {other}: {room} may not import from {room_of(other)}"
                )
    return wrong


def test_a_room_imports_only_from_rooms_below_it():
    assert wrong_imports(PACKAGE) == []


def test_the_exceptions_are_few_and_have_reasons():
    assert len(EXCEPTIONS) <= 5
    assert all(len(reason) > 20 for reason in EXCEPTIONS.values())


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("problems/synthetic.py", "from ..simulation import run"),
        ("problems/synthetic.py", "from fedsuplin.algorithm.algorithm import Algorithm"),
        ("view/notebook.py", "def late():\n    from ..contracts.variant import SYNCS"),
        (
            "simulation/result.py",
            "if TYPE_CHECKING:\n    from ..study.comparison import Comparison",
        ),
        ("study/grid.py", "import fedsuplin.federation.link"),
        ("live/client.py", "from fedsuplin import run"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, where, line):
    """In a copy of the package with one import too many, in each form that an import has."""
    copy = tmp_path / "fedsuplin"
    for path in modules_under(PACKAGE).values():
        target = copy / path.relative_to(PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    (copy / where).write_text((copy / where).read_text() + f"\n\n{line}\n")
    assert len(wrong_imports(copy)) == 1


def test_every_folder_and_module_is_a_room_or_a_door():
    for path in PACKAGE.iterdir():
        if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__"):
            assert path.stem in DOORS or place_of(path.stem)


def test_no_two_modules_import_each_other():
    """Function-level imports count: none of them hides a cycle."""
    known = modules_under(PACKAGE)
    needs = {
        module: {
            other
            for other, for_types in imports_of(
                module, path.read_text(), path.name == "__init__.py", known
            )
            if not for_types and other in known and other != module
        }
        for module, path in known.items()
    }
    assert find_cycle(needs) is None


def find_cycle(needs):
    """Modules that import each other in a ring, or None."""
    finished = set()

    def visit(module, trail):
        if module in trail:
            return [*trail[trail.index(module) :], module]
        if module in finished:
            return None
        for other in sorted(needs[module]):
            ring = visit(other, [*trail, module])
            if ring:
                return ring
        finished.add(module)
        return None

    return next((ring for module in sorted(needs) if (ring := visit(module, []))), None)


def test_a_cycle_is_found():
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_the_compiled_core_imports_nothing_of_fedsuplin():
    for path in (ROOT / "ext").rglob("*.p*x*"):
        for line in path.read_text().splitlines():
            assert not line.startswith(
                ("import fedsuplin.", "from fedsuplin.", "from fedsuplin import")
            ), f"{path}: {line}"


PLUGIN_AUTHORS = [*(ROOT / "plugins").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
OURS = ("fedsuplin", "fedsuplin_ext")


def imports_of_ours(source):
    """The modules of the library and of its compiled core that a plugin imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in OURS)


@pytest.mark.parametrize("path", PLUGIN_AUTHORS, ids=lambda path: str(path.relative_to(ROOT)))
def test_plugins_import_from_one_page(path):
    """The built-ins and the examples import what every author can: fedsuplin.plugin.

    Their tests also use what users have, and a setup.py asks the core where its headers are.
    """
    allowed = {"fedsuplin.plugin"}
    if "tests" in path.parts:
        allowed |= {"fedsuplin", "fedsuplin.testing"}
    if path.name == "setup.py":
        allowed |= {"fedsuplin_ext"}
    assert set(imports_of_ours(path.read_text())) <= allowed


def test_a_plugin_that_imports_from_elsewhere_is_found():
    source = "from fedsuplin.plugin import hookimpl\nimport fedsuplin_ext.rules\nimport numpy"
    assert list(imports_of_ours(source)) == ["fedsuplin.plugin", "fedsuplin_ext.rules"]
