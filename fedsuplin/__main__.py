"""`python -m fedsuplin` is the command `fedsuplin`."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="fedsuplin")
