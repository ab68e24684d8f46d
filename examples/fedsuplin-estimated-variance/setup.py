"""Builds the compiled form. Everything else is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import fedsuplin_ext

setup(
    ext_modules=cythonize(
        [
            Extension(
                "fedsuplin_estimated_variance.weights",
                ["src/fedsuplin_estimated_variance/weights.pyx"],
            )
        ],
        include_path=[fedsuplin_ext.get_include()],  # where its .pxd files are
        language_level=3,
        compiler_directives={
            "cdivision": True
        },  # as in C: what has no GIL can't raise ZeroDivisionError
    )
)
