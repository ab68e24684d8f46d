"""Conformance checks for plugins: `conformance` makes a pytest test for a package, `check` checks one object."""

from .suite import check, conformance

__all__ = ["check", "conformance"]
