"""Layers without a wide arm, for cimport; nothing for Python."""
