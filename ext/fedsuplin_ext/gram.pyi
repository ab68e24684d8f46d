"""Rank-one updates and merges, for cimport; nothing for Python."""
