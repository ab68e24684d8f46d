"""Built-in rules in compiled form; `fedsuplin_ext.rules.from_cython` makes them callable."""
