"""Built-in rules in compiled form, nothing for Python: `fedsuplin_ext.rules.from_cython` makes them callable."""
