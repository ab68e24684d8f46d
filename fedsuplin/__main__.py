"""`python -m fedsuplin` is the command `fedsuplin`."""

from fedsuplin_command import main

if __name__ == "__main__":
    main()
