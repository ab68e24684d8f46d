"""The modules of federation use no private attribute of objects that other modules define."""

import ast
from pathlib import Path

import pytest

import fedsuplin

FOLDER = Path(fedsuplin.__file__).parent / "federation"
MODULES = sorted(FOLDER.rglob("*.py"))
NAMEDTUPLE_METHODS = {"_replace", "_asdict", "_fields", "_make"}  # public, despite the underscore


def private_names_of(source):
    """The private attributes that a module defines itself: on self, in classes, as fields."""
    tree = ast.parse(source)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def inherited_names_of(source):
    """The private attributes of base classes that are defined in other modules of federation."""
    tree = ast.parse(source)
    bases = {
        base.id
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if isinstance(base, ast.Name)
    }
    found = set()
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name in bases:
                found |= private_names_of(ast.unparse(node))
    return found


def foreign_private_uses(source):
    """Every use of a private attribute that neither the module nor a base class defines, or that
    is reached through an attribute of self."""
    own = private_names_of(source) | inherited_names_of(source) | NAMEDTUPLE_METHODS
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
            continue
        if node.attr.startswith("__"):
            continue
        through_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if node.attr in NAMEDTUPLE_METHODS or (through_self and node.attr in own):
            continue
        if not through_self and isinstance(node.value, ast.Name) and node.attr in own:
            continue  # an object that the module made, such as `connection._begin`
        yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_module_uses_no_private_attribute_of_another_modules_object(path):
    assert list(foreign_private_uses(path.read_text())) == []


@pytest.mark.parametrize(
    "line",
    [
        "def use(self):\n    return self.client._open",
        "def use(link):\n    return link.started_client._pulls",
        "def use(client):\n    return client._engine",
        "class Other:\n    def use(self):\n        self.link._round = 1",
    ],
)
def test_the_use_of_a_private_attribute_is_found(line):
    assert len(list(foreign_private_uses(line))) == 1
