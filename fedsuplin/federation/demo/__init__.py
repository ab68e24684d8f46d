"""`fedsuplin demo federation`: a live federation on this machine, whose processes are killed now and then."""
