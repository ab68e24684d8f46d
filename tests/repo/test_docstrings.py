"""Public names have numpydoc docstrings, and every function and class has a docstring."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest
from numpydoc.validate import validate

import fedsuplin as fsl
import fedsuplin.errors
import fedsuplin.plugin

pytestmark = pytest.mark.tree
ROOT = Path(__file__).parents[2]

# https://numpydoc.readthedocs.io lists them: a summary of one line with a period, every parameter
# with its type and what it is, and what is returned. EX01 is an example.
CHECKS = [
    *("GL06", "GL07", "GL08"),
    *("SS01", "SS02", "SS03", "SS04", "SS06"),
    *("PR01", "PR02", "PR03", "PR04", "PR06", "PR07", "PR08", "PR09"),
    *("RT01", "RT03", "YD01"),
]
EXAMPLE = "EX01"

# They have no examples of their own: docs/plugins.md shows how protocols are implemented.
WITHOUT_EXAMPLE = ("fedsuplin.contracts.protocols", "fedsuplin.errors")


def list_public_objects():
    """Every public function and class, and the public methods and properties of the classes."""
    found = {}
    doors = [(fsl, fsl.__all__), (fedsuplin.plugin, fedsuplin.plugin.__all__)]
    errors = [name for name, each in inspect.getmembers(fedsuplin.errors, inspect.isclass)]
    doors += [(fedsuplin.errors, errors)]
    doors += [(importlib.import_module("fedsuplin.testing"), ["check", "conformance"])]
    doors += [
        (importlib.import_module("fedsuplin.reference"), ["run_reference", "ReferenceResult"])
    ]
    for door, names in doors:
        for name in names:
            thing = getattr(door, name)
            module = getattr(thing, "__module__", "")
            if (
                isinstance(thing, str)
                or inspect.ismodule(thing)
                or not module.startswith("fedsuplin.")
            ):
                continue
            found[f"{module}.{thing.__qualname__}"] = thing
            if inspect.isclass(thing):
                for key, member in vars(thing).items():
                    is_member = isinstance(member, (property, classmethod, staticmethod))
                    is_public = not key.startswith("_") and (
                        is_member or inspect.isfunction(member)
                    )
                    if is_public and not inherits_docstring(thing, key):
                        found[f"{module}.{thing.__qualname__}.{key}"] = member
    return found


def inherits_docstring(owner, name):
    """Whether a method without a docstring overrides one that has one, which help() then shows."""
    own = inspect.getattr_static(owner, name)
    return not own.__doc__ and any(
        getattr(getattr(base, name, None), "__doc__", None) for base in owner.__mro__[1:]
    )


PUBLIC = list_public_objects()


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_follows_numpydoc(name):
    is_member = not inspect.isclass(PUBLIC[name]) and name.rpartition(".")[0] in PUBLIC
    needs_example = not is_member and not name.startswith(WITHOUT_EXAMPLE)
    wanted = [*CHECKS, EXAMPLE] if needs_example else list(CHECKS)
    if getattr(PUBLIC[name], "_is_protocol", False):
        wanted.remove("PR01")  # nothing is made of a protocol: the parameters are typing's own
    found = validate(name)["errors"]
    assert [f"{code}: {text}" for code, text in found if code in wanted] == []


def list_definitions():
    """Every function and class in our sources that is not nested in a function, and its class."""
    for folder in ("fedsuplin", "plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            scopes = [("", ast.parse(path.read_text(encoding="utf-8")))]
            while scopes:
                owner, scope = scopes.pop()
                for node in scope.body:
                    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                        yield path.relative_to(ROOT), owner, node
                    if isinstance(node, ast.ClassDef):
                        scopes.append((f"{owner}.{node.name}".lstrip("."), node))


def is_exempt(node):
    """Check for dunder methods, overloads, setters and hooks, which are described elsewhere."""
    if node.name.startswith("__") or node.name.startswith("fedsuplin_register_"):
        return True
    return any(
        "overload" in ast.unparse(each) or ".setter" in ast.unparse(each)
        for each in node.decorator_list
    )


def overrides_documented(path, owner, node):
    """Whether a method overrides one with a docstring."""
    if not owner:
        return False
    folder, *rest = path.with_suffix("").parts
    package = "fedsuplin_plugins" if folder == "plugins" else folder
    found = importlib.import_module(".".join([package, *rest]))
    for name in owner.split("."):
        found = getattr(found, name)
    return inherits_docstring(found, node.name)


def test_every_function_and_class_says_what_it_does():
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path, owner, node in list_definitions()
        if not is_exempt(node)
        and not ast.get_docstring(node)
        and not overrides_documented(path, owner, node)
    ]
    assert silent == []
