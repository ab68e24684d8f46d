"""What a round costs on this machine: the numbers and tables of `fedsuplin bench`."""
