"""Builds the compiled core. Everything that is not an extension module is declared in pyproject.toml."""

import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = ["norms", "gram", "quiet", "screening", "pool", "formulas", "rules", "loop", "measure", "draws"]

# Portable code: no -march=native. The kernels in kernels.h are compiled once for each instruction set and picked at run time.
# -fno-math-errno lets sqrt become one instruction; no flag here allows the compiler to reorder or drop arithmetic.
FLAGS = [] if sys.platform == "win32" else ["-O3", "-g0", "-fno-math-errno", "-ffp-contract=fast"]

extensions = [
    Extension(
        f"fedsuplin_ext.{name}",
        [f"ext/fedsuplin_ext/{name}.pyx"],
        include_dirs=["ext/fedsuplin_ext"],
        depends=glob("ext/fedsuplin_ext/*.h"),
        # Contexts must be the same bits on every CPU: no fused multiply-adds where they are drawn.
        extra_compile_args=[*FLAGS, "-ffp-contract=off"] if FLAGS and name == "draws" else FLAGS,
    )
    for name in MODULES
]

setup(
    ext_modules=cythonize(
        extensions,
        include_path=["ext"],
        language_level=3,
        compiler_directives={"boundscheck": False, "wraparound": False, "cdivision": True, "initializedcheck": False},
    )
)
