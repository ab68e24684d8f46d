"""The examples in docstrings run, and every public class and function has one."""

import doctest
import importlib
import pkgutil

import pytest

import fedsuplin

MODULES = [module.name for module in pkgutil.walk_packages(fedsuplin.__path__, "fedsuplin.")]
WITHOUT = {"FedsuplinError", "__version__"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", sorted(set(fedsuplin.__all__) - WITHOUT))
def test_every_public_name_has_an_example(name):
    assert ">>> " in getattr(fedsuplin, name).__doc__
