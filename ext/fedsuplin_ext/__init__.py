"""The compiled core of fedsuplin: norms, screening, gram, rules and the loop."""
