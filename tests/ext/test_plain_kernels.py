"""Each kernel by itself does what NumPy does: in every set, and in plain C without vector types.

bench/checks/portable.c is compiled here twice. Its plain form is what compilers without vector
types (MSVC) get; there every extension of the language is an error. Its usual form has the sets
that this CPU runs. For other compilers and CPUs see bench/checks/portable.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_long,
    c_ssize_t,
    c_uint64,
    c_void_p,
)
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
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
USUAL = ("-O3", "-fno-math-errno", *WARNINGS)
PLAIN = (
    "-DFEDSUPLIN_PLAIN",
    "-std=c11",
    "-pedantic-errors",
    "-O2",
    *WARNINGS,
)
SETS = [*norms.available(), *([norms.SPLIT] if "avx2" in norms.available() else [])]
NUMBERS = POINTER(c_double)


class QuietLayer(ctypes.Structure):
    """`fsl_quiet_layer` of kernels.h."""

    _fields_ = [
        ("estimates", NUMBERS),
        ("spikes", NUMBERS),
        ("n_spikes", c_int),
        ("room", c_double),
        ("within", c_double),
    ]


KERNELS: dict[
    str, tuple[Any, ...]
] = {  # in the order of kernels.h: what each returns, then what it takes
    "pad": (None, NUMBERS, c_int, c_int, c_int, NUMBERS),
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
    "products": (
        None,
        POINTER(NUMBERS),
        c_int,
        NUMBERS,
        c_ssize_t,
        c_int,
        c_int,
        NUMBERS,
    ),
    "estimates": (None, NUMBERS, NUMBERS, c_ssize_t, c_int, c_int, NUMBERS),
    "screen_first": (c_double, NUMBERS, NUMBERS, c_double, NUMBERS, c_int, POINTER(c_int)),
    "screen": (c_int, POINTER(QuietLayer), c_int, NUMBERS, c_int, POINTER(c_int)),
    "keep_near_best": (c_int, NUMBERS, c_double, NUMBERS, c_int),
    "first_of_largest": (c_int, NUMBERS, c_double, c_double, NUMBERS, c_int),
    "move_together": (
        None,
        NUMBERS,
        c_ssize_t,
        c_int,
        c_int,
        NUMBERS,
        POINTER(c_int),
        c_int,
        NUMBERS,
        c_int,
    ),
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
        ("lanes", c_int),
        ("proofs", c_void_p),
        *((name, ctypes.CFUNCTYPE(*signature)) for name, signature in KERNELS.items()),
    ]


def compile_portable(folder: Path, flags: tuple[str, ...]) -> ctypes.CDLL:
    """Return bench/checks/portable.c as a library."""
    library = folder / f"portable{sysconfig.get_config_var('SHLIB_SUFFIX') or '.so'}"
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, 'these tests need a C compiler; without one, run pytest -m "not compiles"'
    source = ("-I", ROOT / "ext/fedsuplin_ext", ROOT / "bench/checks/portable.c")
    subprocess.run(
        [compiler, *flags, "-shared", "-fPIC", *source, "-lm", "-o", library], check=True
    )
    found = ctypes.CDLL(str(library))
    found.portable_kernels.restype = POINTER(KernelSet)
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_portable(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_portable(tmp_path_factory.mktemp("usual"), USUAL)


@pytest.fixture(scope="module", params=["plain", *SETS])
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    is_plain = request.param == "plain"
    library = request.getfixturevalue("plain" if is_plain else "usual")
    name = b"generic" if is_plain else request.param.encode()
    found: KernelSet = library.portable_kernels(name).contents
    assert found.name == name and found.lanes == (8 if b"512" in name else 4)
    return found


def at(array: np.ndarray) -> Any:
    assert array.dtype == np.float64 and array.flags.c_contiguous
    return array.ctypes.data_as(NUMBERS)


def padded(kernels: KernelSet, matrix: np.ndarray) -> np.ndarray:
    out = np.zeros((len(matrix), -(-matrix.shape[1] // kernels.lanes) * kernels.lanes))
    out[:, : matrix.shape[1]] = matrix
    return out


def positive_definite(rng: np.random.Generator, d: int) -> np.ndarray:
    factor = rng.standard_normal((d, d)) / np.sqrt(d)
    return np.eye(d) + factor @ factor.T


def test_the_plain_build_has_one_set_of_kernels(plain: ctypes.CDLL) -> None:
    for name in {*norms.ORDER, norms.SPLIT} - {"generic"}:
        assert not plain.portable_kernels(name.encode())
    assert plain.portable_draw_sets() == 1


def test_the_draws_are_the_same_bits(plain: ctypes.CDLL) -> None:
    plain.portable_normals.argtypes = [POINTER(c_uint64), NUMBERS, c_ssize_t]
    state = np.random.SeedSequence(5).generate_state(STATE_WORDS, np.uint64)
    numbers = np.empty(160_000)
    plain.portable_normals(state.ctypes.data_as(POINTER(c_uint64)), at(numbers), numbers.size)
    np.testing.assert_array_equal(
        numbers, ContextSource(np.random.SeedSequence(5), 3, 2).normals(numbers.size)
    )


def test_the_contexts_are_the_same_bits(plain: ctypes.CDLL) -> None:
    d, n_arms = 7, 9
    plain.portable_scale_columns.argtypes = [NUMBERS, c_void_p, c_int, c_int, NUMBERS]
    usual, found = np.empty((1, d, n_arms)), np.empty((d, n_arms))
    raw = ContextSource(np.random.SeedSequence(5), d, n_arms).normals(d * n_arms)
    ContextSource(np.random.SeedSequence(5), d, n_arms).fill(usual)
    plain.portable_scale_columns(at(np.ascontiguousarray(raw)), None, d, n_arms, at(found))
    np.testing.assert_array_equal(found, usual[0])


def test_the_permutation_is_the_same(plain: ctypes.CDLL) -> None:
    plain.portable_permute.argtypes = [
        c_uint64,
        c_ssize_t,
        c_uint64,
        c_int,
        c_int,
        POINTER(c_uint64),
        POINTER(c_int64),
    ]
    keys, found = np.random.SeedSequence(3).generate_state(6, np.uint64), np.empty(150, np.int64)
    plain.portable_permute(
        20,
        150,
        1000,
        5,
        5,
        keys.ctypes.data_as(POINTER(c_uint64)),
        found.ctypes.data_as(POINTER(c_int64)),
    )
    np.testing.assert_array_equal(found, keyed_permutation(20, 170, 1000, 3))


@settings(max_examples=60)
@given(d=st.integers(1, 40), n_arms=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_the_kernels_of_a_round_are_numpys(
    kernels: KernelSet, d: int, n_arms: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    inverse, theta = padded(kernels, positive_definite(rng, d)), rng.standard_normal(d)
    contexts = padded(kernels, rng.standard_normal((d, n_arms)))
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
    vectors = rng.standard_normal((5, d))
    products = np.empty((5, lanes))
    kernels.products(
        (NUMBERS * 5)(*(at(vector) for vector in vectors)),
        5,
        at(contexts),
        lanes,
        d,
        lanes,
        at(products),
    )
    np.testing.assert_allclose(products, vectors @ contexts, rtol=1e-11, atol=1e-12)


@settings(max_examples=60)
@given(d=st.integers(1, 9), n_arms=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_a_round_is_padded_with_zeros_and_nothing_behind_it_is_read(
    kernels: KernelSet, d: int, n_arms: int, seed: int
) -> None:
    contexts = np.random.default_rng(seed).standard_normal((d, n_arms))
    expected = padded(kernels, contexts)
    behind = np.concatenate([contexts.ravel(), np.full(kernels.lanes, np.nan)])
    found = np.zeros_like(expected)
    kernels.pad(at(behind), n_arms, d, expected.shape[1], at(found))
    np.testing.assert_array_equal(found, expected)


def draw_arms(
    kernels: KernelSet, rng: np.random.Generator, n_arms: int, rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of numbers with garbage in the padding, which arms are kept, and `out`."""
    values = padded(kernels, rng.standard_normal((rows, n_arms)))
    values[:, n_arms:] = 1e6 * rng.standard_normal((rows, values.shape[1] - n_arms))
    kept = np.arange(values.shape[1]) < n_arms
    kept[:n_arms] &= rng.random(n_arms) < 0.7
    kept[rng.integers(n_arms)] = True
    return values, kept, np.where(kept, 0.0, -np.inf)


@settings(max_examples=80)
@given(n_arms=st.integers(1, 60), target=st.floats(0, 3), seed=st.integers(0, 2**32 - 1))
def test_layer_0_is_screened_as_the_paper_says(
    kernels: KernelSet, n_arms: int, target: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    (estimate, width), kept, out = draw_arms(kernels, rng, n_arms, 2)
    width, left = np.abs(width), c_int(-1)
    kept &= estimate + width >= (estimate - width)[kept].max()
    widest = width[kept].max()
    if widest <= target:
        kept &= estimate >= estimate[kept].max() - 2 * target
    found = kernels.screen_first(at(estimate), at(width), target, at(out), len(out), byref(left))
    assert found == widest and left.value == kept.sum()
    np.testing.assert_array_equal(out == 0, kept)


@settings(max_examples=80)
@given(
    n_arms=st.integers(1, 60),
    within=st.floats(0, 3),
    above=st.one_of(st.floats(-3, 3), st.just(-np.inf)),
    tie=st.sampled_from([0.0, 1e-9, 0.5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_best_arms_are_kept_and_the_first_of_the_largest_is_found(
    kernels: KernelSet, n_arms: int, within: float, above: float, tie: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    (value,), kept, out = draw_arms(kernels, rng, n_arms, 1)
    largest = value[kept].max()
    near = kept & (value > above) & (value >= largest - tie * abs(largest))
    expected = int(near.argmax()) if largest > above else -1
    assert kernels.first_of_largest(at(value), above, tie, at(out), len(out)) == expected
    kept &= value >= largest - within
    assert kernels.keep_near_best(at(value), within, at(out), len(out)) == kept.sum()
    np.testing.assert_array_equal(out == 0, kept)


@settings(max_examples=80)
@given(
    d=st.integers(1, 6),
    n_arms=st.integers(1, 60),
    gap=st.integers(0, 3),
    in_place=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_kept_columns_are_moved_together(
    kernels: KernelSet, d: int, n_arms: int, gap: int, in_place: bool, seed: int
) -> None:
    """Rows may be further apart than their arms; what lies between is not part of them."""
    rng = np.random.default_rng(seed)
    values, kept, out = draw_arms(kernels, rng, n_arms, d)
    lanes = len(out)
    kept[kernels.lanes * (lanes // kernels.lanes - 1) :] = False  # so that rows become shorter
    if not kept.any():
        return
    out[~kept] = -np.inf
    stride = lanes + gap
    columns = np.full((d, stride), np.nan)
    columns[:, :lanes] = values
    source = np.flatnonzero(kept).astype(np.int32)
    to_lanes = -(-len(source) // kernels.lanes) * kernels.lanes
    to = columns if in_place else np.full((d, stride), 7.0)
    where = source.ctypes.data_as(POINTER(c_int))
    kernels.move_together(
        at(columns), stride, lanes, d, at(out), where, len(source), at(to), to_lanes
    )
    found = to.ravel()[: d * to_lanes].reshape(d, to_lanes)
    np.testing.assert_array_equal(found[:, : len(source)], values[:, source])
    assert not found[:, len(source) :].any()


@settings(max_examples=60)
@given(
    n_arms=st.integers(1, 20),
    n_layers=st.integers(1, 4),
    n_spikes=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_layers_are_screened_by_estimates_until_spikes_leave_no_room(
    kernels: KernelSet, n_arms: int, n_layers: int, n_spikes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    estimates = padded(kernels, rng.standard_normal((n_layers, n_arms)))
    spikes = [
        padded(kernels, rng.standard_normal((max(n_spikes, 1), n_arms))) for _ in range(n_layers)
    ]
    rooms, within = rng.uniform(0, 4 * n_spikes + 1, n_layers), rng.uniform(0, 4, n_layers)
    layers = (QuietLayer * n_layers)(
        *(
            QuietLayer(at(estimates[s]), at(spikes[s]), n_spikes, rooms[s], within[s])
            for s in range(n_layers)
        )
    )
    lanes, left = estimates.shape[1], c_int(n_arms)
    out = np.where(np.arange(lanes) < n_arms, 0.0, -np.inf)
    done = kernels.screen(layers, n_layers, at(out), lanes, byref(left))
    kept, expected = np.arange(lanes) < n_arms, 0
    while expected < n_layers:
        along = (spikes[expected][:n_spikes] ** 2).sum(axis=0)
        if n_spikes and along[kept].max() >= rooms[expected]:
            break
        kept &= estimates[expected] >= estimates[expected][kept].max() - within[expected]
        expected += 1
    assert done == expected and left.value == kept.sum()
    np.testing.assert_array_equal(out == 0, kept)


@settings(max_examples=60)
@given(d=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_the_kernels_of_a_matrix_are_numpys(kernels: KernelSet, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gram = positive_definite(rng, d)
    matrix, log_det = padded(kernels, gram), c_double()
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


@pytest.mark.parametrize("d", [1, 9, 127, 128, 129, 130, 133, 135, 136, 200])
def test_a_product_with_a_symmetric_matrix_of_any_size(kernels: KernelSet, d: int) -> None:
    """Large ones are read by half."""
    rng = np.random.default_rng(d)
    matrix = padded(kernels, positive_definite(rng, d))
    ld = matrix.shape[1]
    vector, product = np.zeros(ld), np.full(ld, np.nan)
    vector[:d] = rng.standard_normal(d)
    kernels.matvec(at(matrix), ld, at(vector), d, at(product))
    np.testing.assert_allclose(product[:d], matrix[:, :d] @ vector[:d], rtol=1e-11, atol=1e-11)
    assert not product[d:].any()


@pytest.mark.parametrize("d", [1, 3, 4, 5, 7, 8, 9, 25, 64, 65, 128])
def test_inverses_at_every_remainder_and_the_first_pivot_that_fails(
    kernels: KernelSet, d: int
) -> None:
    rng, log_det = np.random.default_rng(d), c_double()
    gram = positive_definite(rng, d)
    matrix = padded(kernels, np.triu(gram))
    ld = matrix.shape[1]
    assert kernels.invert(at(matrix), ld, d, at(np.zeros(ld)), byref(log_det)) == 0
    np.testing.assert_allclose(matrix[:, :d], np.linalg.inv(gram), rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(matrix[:, :d], matrix[:, :d].T)
    assert not matrix[:, d:].any()
    assert log_det.value == pytest.approx(np.linalg.slogdet(gram)[1], rel=1e-10, abs=1e-10)
    factor = np.tril(rng.standard_normal((d, d)), -1) / d + np.eye(d)
    for first in {0, d // 2, d - 1}:
        signs = np.where(np.arange(d) == first, -1.0, 1.0)
        matrix = padded(kernels, np.triu(factor * signs @ factor.T))
        assert kernels.invert(at(matrix), ld, d, at(np.zeros(ld)), byref(log_det)) == first + 1
