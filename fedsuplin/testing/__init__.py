"""Conformance tests for plugins: `conformance` for a package, `check` for one plugin."""

from .suite import check, conformance

__all__ = ["check", "conformance"]
