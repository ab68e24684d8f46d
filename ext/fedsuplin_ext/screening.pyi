"""Decisions, for cimport; nothing for Python."""
