"""The kernels for compilers without vector types (MSVC): standard C, the same draws, right numbers.

bench/checks/portable.c is compiled here in its plain form, with every extension of the language an
error, and loaded beside the usual build. For other compilers and CPUs see bench/checks/portable.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_long, c_ssize_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsuplin_ext import norms
from fedsuplin_ext.draws import STATE_WORDS, ContextSource, keyed_permutation

pytestmark = pytest.mark.compiles
ROOT = Path(__file__).parents[2]
FLAGS = (
    "-DFEDSUPLIN_PLAIN",
    "-std=c11",
    "-pedantic-errors",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O2",
    "-ffp-contract=off",
)
NUMBERS = POINTER(c_double)
KERNELS: dict[
    str, tuple[Any, ...]
] = {  # in the order of kernels.h: what each returns, then what it takes
    "norms": (
        None,
        NUMBERS,
        c_ssize_t,
        NUMBERS,
        NUMBERS,
        c_ssize_t,
        c_int,
        c_int,
        c_double,
        NUMBERS,
        NUMBERS,
    ),
    "estimates": (None, NUMBERS, NUMBERS, c_ssize_t, c_int, c_int, NUMBERS),
    "largest": (c_double, NUMBERS, NUMBERS, c_double, NUMBERS, c_int),
    "keep": (c_int, NUMBERS, NUMBERS, c_double, c_double, NUMBERS, c_int),
    "matvec": (None, NUMBERS, c_ssize_t, NUMBERS, c_int, NUMBERS),
    "add_outer": (None, NUMBERS, NUMBERS, c_ssize_t, NUMBERS, c_double, c_int),
    "add_outer_upper": (None, NUMBERS, NUMBERS, c_ssize_t, NUMBERS, c_double, c_int),
    "dot": (c_double, NUMBERS, NUMBERS, c_ssize_t),
    "invert": (c_int, NUMBERS, c_ssize_t, c_int, NUMBERS, NUMBERS),
    "below": (c_int, NUMBERS, c_ssize_t, c_int, c_double, NUMBERS, NUMBERS),
    "peak": (c_double, c_long, NUMBERS),
}
Kernel = Callable[..., Any]


class KernelSet(ctypes.Structure):
    """`fsl_kernel_set` of kernels.h."""

    _fields_ = [
        ("name", c_char_p),
        *((name, ctypes.CFUNCTYPE(*signature)) for name, signature in KERNELS.items()),
    ]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return bench/checks/portable.c in its plain form, as a library."""
    library = (
        tmp_path_factory.mktemp("plain")
        / f"portable{sysconfig.get_config_var('SHLIB_SUFFIX') or '.so'}"
    )
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, 'these tests need a C compiler; without one, run pytest -m "not compiles"'
    source = ("-I", ROOT / "ext/fedsuplin_ext", ROOT / "bench/checks/portable.c")
    subprocess.run(
        [compiler, *FLAGS, "-shared", "-fPIC", *source, "-lm", "-o", library], check=True
    )
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def kernels(plain: ctypes.CDLL) -> KernelSet:
    plain.portable_kernels.restype = POINTER(KernelSet)
    found: KernelSet = plain.portable_kernels(b"generic").contents
    assert found.name == b"generic"
    return found


def at(array: np.ndarray) -> Any:
    assert array.dtype == np.float64 and array.flags.c_contiguous
    return array.ctypes.data_as(NUMBERS)


def padded(matrix: np.ndarray) -> np.ndarray:
    out = np.zeros((len(matrix), norms.pad(matrix.shape[1])))
    out[:, : matrix.shape[1]] = matrix
    return out


def positive_definite(rng: np.random.Generator, d: int) -> np.ndarray:
    factor = rng.standard_normal((d, d)) / np.sqrt(d)
    return np.eye(d) + factor @ factor.T


def test_the_plain_build_has_one_set_of_kernels(plain: ctypes.CDLL, kernels: KernelSet) -> None:
    assert not plain.portable_kernels(b"avx2")
    assert plain.portable_wide() == 0


def test_the_draws_are_the_same_bits(plain: ctypes.CDLL) -> None:
    plain.portable_normals.argtypes = [c_int, POINTER(c_uint64), NUMBERS, c_ssize_t]
    state = np.random.SeedSequence(5).generate_state(STATE_WORDS, np.uint64)
    numbers = np.empty(160_000)
    plain.portable_normals(0, state.ctypes.data_as(POINTER(c_uint64)), at(numbers), numbers.size)
    np.testing.assert_array_equal(
        numbers, ContextSource(np.random.SeedSequence(5), 3, 2).normals(numbers.size)
    )


def test_the_contexts_are_the_same_bits(plain: ctypes.CDLL) -> None:
    d, n_arms = 7, 9
    plain.portable_scale_columns.argtypes = [c_int, NUMBERS, c_void_p, c_int, c_int, c_int, NUMBERS]
    usual, found = np.empty((1, d, norms.pad(n_arms))), np.empty((d, norms.pad(n_arms)))
    raw = ContextSource(np.random.SeedSequence(5), d, n_arms).normals(d * n_arms)
    ContextSource(np.random.SeedSequence(5), d, n_arms).fill(usual)
    plain.portable_scale_columns(
        0, at(np.ascontiguousarray(raw)), None, d, n_arms, norms.pad(n_arms), at(found)
    )
    np.testing.assert_array_equal(found, usual[0])


def test_the_permutation_is_the_same(plain: ctypes.CDLL) -> None:
    plain.portable_permuted.argtypes = [c_uint64, c_uint64, c_int, c_int, POINTER(c_uint64), c_int]
    plain.portable_permuted.restype = c_uint64
    keys = np.random.SeedSequence(3).generate_state(6, np.uint64).ctypes.data_as(POINTER(c_uint64))
    assert [
        plain.portable_permuted(x, 1000, 5, 5, keys, 6) for x in range(50)
    ] == keyed_permutation(0, 50, 1000, 3).tolist()


@settings(max_examples=60)
@given(d=st.integers(1, 40), n_arms=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_the_kernels_of_a_round_are_numpys(
    kernels: KernelSet, d: int, n_arms: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    inverse, theta = padded(positive_definite(rng, d)), rng.standard_normal(d)
    contexts = padded(rng.standard_normal((d, n_arms)))
    lanes = contexts.shape[1]
    width, estimate, alone = np.empty(lanes), np.empty(lanes), np.empty(lanes)
    kernels.norms(
        at(inverse),
        inverse.shape[1],
        at(theta),
        at(contexts),
        lanes,
        d,
        lanes,
        1.5,
        at(width),
        at(estimate),
    )
    kernels.estimates(at(theta), at(contexts), lanes, d, lanes, at(alone))
    form = np.einsum("ia,ij,ja->a", contexts, inverse[:, :d], contexts)
    np.testing.assert_allclose(width, 1.5 * np.sqrt(form), rtol=1e-11, atol=1e-13)
    for found in (estimate, alone):
        np.testing.assert_allclose(found, theta @ contexts, rtol=1e-11, atol=1e-12)
    out = np.where(np.arange(lanes) < n_arms, 0.0, -np.inf)
    assert (
        kernels.largest(at(estimate), at(width), 1.0, at(out), lanes)
        == (estimate + width)[:n_arms].max()
    )
    limit = float(np.median((estimate - width)[:n_arms]))
    assert (
        kernels.keep(at(estimate), at(width), -1.0, limit, at(out), lanes)
        == ((estimate - width)[:n_arms] >= limit).sum()
    )


@settings(max_examples=60)
@given(d=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_the_kernels_of_a_matrix_are_numpys(kernels: KernelSet, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gram = positive_definite(rng, d)
    matrix, log_det = padded(gram), c_double()
    ld = matrix.shape[1]
    vector, product, scratch = np.zeros(ld), np.empty(ld), np.zeros(ld)
    vector[:d] = rng.standard_normal(d)
    kernels.matvec(at(matrix), ld, at(vector), d, at(product))
    np.testing.assert_allclose(product[:d], gram @ vector[:d], rtol=1e-11, atol=1e-12)
    assert kernels.dot(at(vector), at(product), ld) == pytest.approx(
        vector[:d] @ gram @ vector[:d], rel=1e-11
    )
    largest = np.linalg.eigvalsh(gram)[-1]
    for bound, holds in ((1.01 * largest, 1), (0.99 * largest, 0)):
        assert (
            kernels.below(at(matrix), ld, d, bound, at(np.empty_like(matrix)), at(scratch)) == holds
        )
    whole, half = np.empty_like(matrix), matrix.copy()
    kernels.add_outer(at(whole), at(matrix), ld, at(vector), 1.0, d)
    kernels.add_outer_upper(at(half), at(half), ld, at(vector), 1.0, d)
    np.testing.assert_allclose(
        whole[:, :d], gram + np.outer(vector[:d], vector[:d]), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(np.triu(half[:, :d]), np.triu(whole[:, :d]))
    assert kernels.invert(at(matrix), ld, d, at(scratch), byref(log_det)) == 0
    np.testing.assert_allclose(matrix[:, :d], np.linalg.inv(gram), rtol=1e-9, atol=1e-10)
    assert log_det.value == pytest.approx(np.linalg.slogdet(gram)[1], rel=1e-10, abs=1e-10)
