"""What every room uses: checks, files, plain data, archives, statistics, optional imports."""
