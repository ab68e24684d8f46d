"""`fedsuplin demo federation`: a live federation whose processes are killed now and then."""
