"""Builds the compiled core. Everything that is not an extension module is declared in pyproject.toml."""

import os
import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = ["norms", "gram", "quiet", "screening", "pool", "formulas", "rules", "loop", "state", "live", "measure", "draws"]

# Portable code: no -march=native. The kernels in kernels.h are compiled once for each instruction set and picked at run time.
# -fno-math-errno lets sqrt become one instruction; no flag here allows the compiler to reorder or drop arithmetic.
FLAGS = [] if sys.platform == "win32" else ["-O3", "-g0", "-fno-math-errno", "-ffp-contract=fast"]

LINK = []
BODIES = {"norms": "kernels"}  # whose kernels_*.h it includes; draws has its own

# bench/sanitize builds with FEDSUPLIN_SANITIZE=1: every index is checked, and what C calls undefined ends the process.
SANITIZE = bool(os.environ.get("FEDSUPLIN_SANITIZE"))
if SANITIZE:
    CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
    FLAGS, LINK = ["-O1", "-g1", "-fno-math-errno", "-ffp-contract=fast", *CHECKS], CHECKS

extensions = [
    Extension(
        f"fedsuplin_ext.{name}",
        [f"ext/fedsuplin_ext/{name}.pyx"],
        include_dirs=["ext/fedsuplin_ext"],
        depends=["ext/fedsuplin_ext/kernels.h", *glob(f"ext/fedsuplin_ext/{BODIES.get(name, name)}_*.h")],
        # Contexts must be the same bits on every CPU: no fused multiply-adds where they are drawn.
        extra_compile_args=[*FLAGS, "-ffp-contract=off"] if FLAGS and name == "draws" else FLAGS,
        extra_link_args=LINK,
    )
    for name in MODULES
]

setup(
    ext_modules=cythonize(
        extensions,
        include_path=["ext"],
        language_level=3,
        force=SANITIZE,  # the C of a usual build, which may lie there, has no checks in it
        compiler_directives={"boundscheck": SANITIZE, "wraparound": False, "cdivision": True, "initializedcheck": SANITIZE},
    )
)
