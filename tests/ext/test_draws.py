"""Random contexts have the right distribution, and the same bits on every code path."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedsuplin as fsl
from fedsuplin_ext.draws import ContextSource, available, keyed_permutation


def source(seed=0, d=3, n_arms=2, **options):
    return ContextSource(np.random.SeedSequence(seed), d, n_arms, **options)


def test_the_normals_are_normal():
    x = source().normals(1_000_000)
    assert stats.kstest(x, "norm").pvalue > 1e-3
    assert stats.kstest(x[np.abs(x) > 2.5], tail).pvalue > 1e-3
    assert x.mean() == pytest.approx(0, abs=4e-3) and x.var() == pytest.approx(1, abs=6e-3)
    assert stats.skew(x) == pytest.approx(0, abs=1e-2) and stats.kurtosis(x) == pytest.approx(
        0, abs=2e-2
    )
    assert 4.5 < np.abs(x).max() < 6.5


def tail(v):
    """The distribution function of a normal, given that it is beyond ±2.5."""
    beyond = stats.norm.cdf(-2.5)
    below, above = (
        stats.norm.cdf(np.minimum(v, -2.5)),
        np.maximum(stats.norm.cdf(v) - stats.norm.cdf(2.5), 0),
    )
    return (below + above) / (2 * beyond)


def test_neighbouring_normals_are_independent():
    """At every distance within two steps of the generators, in value and in square."""
    x = source(1).normals(400_000)
    for lag in range(1, 33):
        for y in (x, x**2):
            assert abs(np.corrcoef(y[:-lag], y[lag:])[0, 1]) < 0.009


def test_pairs_fill_the_circle_evenly():
    x = source(2).normals(320_000).reshape(-1, 2, 8)
    angle = np.arctan2(x[:, 1], x[:, 0]).ravel()
    assert stats.kstest(angle, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3


SETS = [*available(), *(["split512"] if "avx2" in available() else [])]


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize(
    ("d", "n_arms"),
    [(1, 1), (3, 2), (2, 3), (5, 5), (7, 9), (25, 20), (13, 31), (4, 37), (25, 100)],
)
def test_every_set_draws_the_same_bits(kernels, d, n_arms):
    for seed in (0, 5):
        assert source(seed, d, n_arms, kernels=kernels).kernels == kernels
        lengths = np.random.default_rng(seed).random((20, n_arms))
        for asked in (None, lengths):
            found, usual = (np.full((20, d, n_arms), 7.0) for _ in range(2))
            source(seed, d, n_arms, kernels=kernels).fill(found, asked)
            source(seed, d, n_arms, kernels="generic").fill(usual, asked)
            np.testing.assert_array_equal(found, usual)


@pytest.mark.parametrize("kernels", SETS)
def test_every_set_draws_the_same_normals(kernels):
    np.testing.assert_array_equal(
        source(5, kernels=kernels).normals(10_000), source(5, kernels="generic").normals(10_000)
    )


def test_an_unknown_set_is_refused():
    with pytest.raises(ValueError, match="no drawing of contexts named 'mmx'.*generic"):
        source(kernels="mmx")


def test_seeds_give_different_contexts():
    assert not np.intersect1d(source(0).normals(1000), source(1).normals(1000)).size


@settings(max_examples=60)
@given(
    n=st.integers(1, 6),
    d=st.integers(1, 40),
    n_arms=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_contexts_have_the_length_asked_for_and_do_not_depend_on_the_cut(n, d, n_arms, seed):
    lengths = np.random.default_rng(seed).random((n, n_arms))
    for asked in (None, lengths):
        whole, pieces = (np.full((n, d, n_arms), 7.0) for _ in range(2))
        source(seed, d, n_arms).fill(whole, asked)
        piecewise = source(seed, d, n_arms)
        for t in range(n):
            piecewise.fill(pieces[t : t + 1], None if asked is None else asked[t : t + 1])
        np.testing.assert_array_equal(whole, pieces)
        found = np.linalg.norm(whole, axis=1)
        np.testing.assert_allclose(found, 1.0 if asked is None else asked, rtol=1e-12)


def test_directions_are_even_and_the_ball_is_filled_evenly():
    for law in ("sphere", "ball"):
        contexts = (
            fsl.SyntheticProblem(6, 8, 1, contexts=law, seed=3)
            .stream(20_000, None)
            .take(20_000)
            .contexts
        )
        points = contexts.transpose(0, 2, 1).reshape(-1, 6)
        lengths = np.linalg.norm(points, axis=1)
        second = points.T @ points / len(points)
        np.testing.assert_allclose(second, np.eye(6) * (lengths**2).mean() / 6, atol=2e-3)
        if law == "ball":
            assert stats.kstest(lengths**6, "uniform").pvalue > 1e-3


def test_a_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"must have the shape \(5, 3, 2\)"):
        source().fill(np.empty((5, 3, 8)))


@settings(max_examples=80)
@given(size=st.integers(1, 3000), seed=st.integers(0, 2**32 - 1), cut=st.floats(0, 1))
def test_the_keyed_permutation_is_one_and_does_not_depend_on_the_cut(size, seed, cut):
    whole = keyed_permutation(0, size, size, seed)
    assert sorted(whole.tolist()) == list(range(size))
    middle = int(cut * size)
    pieces = np.concatenate(
        [keyed_permutation(0, middle, size, seed), keyed_permutation(middle, size, size, seed)]
    )
    np.testing.assert_array_equal(whole, pieces)


def test_the_keyed_permutation_mixes():
    """Steps between neighbours look random, and two seeds have almost nothing in common."""
    first, second = (keyed_permutation(0, 100_003, 100_003, seed) for seed in (0, 1))
    assert (
        abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.02
        and abs(np.corrcoef(first, second)[0, 1]) < 0.02
    )
    assert stats.kstest(first[:5000] / 100_003, "uniform").pvalue > 1e-3
    assert (first == second).sum() < 10


def test_a_part_of_a_permutation_must_lie_in_it():
    with pytest.raises(ValueError, match="0 ≤ start ≤ stop ≤ size"):
        keyed_permutation(3, 12, 10, 0)


def test_the_stream_of_a_seed_is_what_it_always_was():
    """A run can be rebuilt from its seed only while these stay the same, in all releases."""
    numbers = source().normals(64)
    expected = [
        "-0x1.3436a5cec0011p+0",
        "0x1.e631cea5faf58p-1",
        "0x1.355da8db53470p-1",
        "-0x1.d785d7222e9cbp-3",
    ]
    assert [numbers[i].item().hex() for i in (0, 1, 8, 17)] == expected
    assert keyed_permutation(0, 8, 1000, 0).tolist() == [78, 469, 91, 110, 454, 346, 934, 45]
