"""Build the compiled core. Everything else is declared in pyproject.toml."""

import multiprocessing
import os
import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = [
    "norms",
    "gram",
    "certificates",
    "screening",
    "pool",
    "formulas",
    "rules",
    "loop",
    "state",
    "live",
    "measure",
    "stages",
    "draws",
]
SHARED = "fedsuplin_ext.shared"  # what Cython needs for arrays, compiled once, not in every module

# Portable code: no -march=native. The kernels in kernels.h are compiled once for each instruction
# set, and the best one is picked at run time. -fno-math-errno lets sqrt become one instruction; no
# flag here allows the compiler to reorder or drop arithmetic.
MSVC = sys.platform == "win32"
FLAGS = (
    ["/O2", "/fp:precise", "/utf-8"]
    if MSVC
    else ["-O3", "-g0", "-fno-math-errno", "-ffp-contract=fast"]
)
UNFUSED = [] if MSVC else ["-ffp-contract=off"]  # MSVC reads a pragma in draws_dispatch.h

LINK = []
BODIES = {"norms": "kernels"}  # whose kernels_*.h it includes; draws has its own

# FEDSUPLIN_PLAIN=1 builds what MSVC gets, the kernels without vector types: see docs/wheels.md.
PLAIN = [("FEDSUPLIN_PLAIN", "1")] if os.environ.get("FEDSUPLIN_PLAIN") else []

# bench/checks/sanitize builds with FEDSUPLIN_SANITIZE=1: every index is checked, and undefined
# behaviour ends the process.
SANITIZE = bool(os.environ.get("FEDSUPLIN_SANITIZE"))
if SANITIZE:
    CHECKS = [
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-fno-omit-frame-pointer",
    ]
    FLAGS, LINK = ["-O1", "-g1", "-fno-math-errno", "-ffp-contract=fast", *CHECKS], CHECKS

extensions = [
    Extension(
        f"fedsuplin_ext.{name}",
        [f"ext/fedsuplin_ext/{name}.pyx"],
        include_dirs=["ext/fedsuplin_ext"],
        define_macros=PLAIN,
        depends=[
            *glob("ext/fedsuplin_ext/proofs*.h"),
            "ext/fedsuplin_ext/kernels.h",
            "ext/fedsuplin_ext/ticks.h",
            *glob(f"ext/fedsuplin_ext/{BODIES.get(name, name)}_*.h"),
        ],
        # Contexts must be the same bits on every CPU: no fused multiply-adds where they are drawn.
        extra_compile_args=[*FLAGS, *UNFUSED] if name == "draws" else FLAGS,
        extra_link_args=LINK,
    )
    for name in MODULES
]
extensions.append(
    Extension(
        SHARED, ["ext/fedsuplin_ext/shared.c"], extra_compile_args=FLAGS, extra_link_args=LINK
    )
)

# Compile on all cores: it is most of an installation from source. Cython forks its workers, so it
# does so only where forking is the usual way to start a process.
CORES = os.cpu_count() or 1
FORKS = CORES if sys.platform == "linux" and multiprocessing.get_start_method() == "fork" else 0

setup(
    ext_modules=cythonize(
        extensions,
        nthreads=FORKS,
        include_path=["ext"],
        language_level=3,
        force=SANITIZE,  # the C of a usual build, which may lie there, has no checks in it
        shared_utility_qualified_name=SHARED,
        compiler_directives={
            "boundscheck": SANITIZE,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": SANITIZE,
        },
    ),
    options={"build_ext": {"parallel": CORES}},
)
