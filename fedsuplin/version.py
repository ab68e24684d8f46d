"""The version, in one place: setuptools and the results read it from here."""

__version__ = "0.1.0"
