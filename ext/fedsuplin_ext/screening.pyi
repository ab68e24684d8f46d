"""Which arms stay, for cimport; nothing for Python."""
