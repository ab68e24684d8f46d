"""Proofs that no arm of a layer is wide, for cimport; nothing for Python."""
