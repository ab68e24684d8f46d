"""For mypy alone: in this tree the package fedsuplin_plugins is the folder plugins."""
