"""What every room uses: checks, files, JSON, archives, statistics, optional imports."""
