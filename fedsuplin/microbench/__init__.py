"""What a round costs on this machine: the measurements and tables of `fedsuplin bench`."""
