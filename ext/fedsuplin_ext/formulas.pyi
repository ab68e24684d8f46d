"""Built-in rules in compiled form, for cimport; `rules.from_cython` makes them callable."""
