"""Bounds in fixed point are never below xᵀPx, and not far above; directions leave what they say."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsuplin_ext import norms
from fedsuplin_ext.certificates import bound_forms, find_directions

SETS = [*norms.available(), *([norms.SPLIT] if "avx2" in norms.available() else [])]
LONGEST = 1 + 1e-5  # FSL_LONGEST of proofs.h
SCALE = 32000  # FSL_CONTEXT_SCALE and FSL_LARGEST_ENTRY
SEEDS = st.integers(0, 2**32 - 1)


def exact_forms(inverse, contexts):
    """Return xᵀPx of each column, in rational arithmetic."""
    P = [[Fraction(float(entry)) for entry in row] for row in inverse]
    columns = [[Fraction(float(entry)) for entry in column] for column in np.transpose(contexts)]
    return [sum(x[i] * sum(map(Fraction.__mul__, P[i], x)) for i in range(len(x))) for x in columns]


def assert_bounds(inverse, contexts, kernels):
    bounds = bound_forms(inverse, contexts, kernels)
    assert bounds is not None and bounds.shape == (contexts.shape[1],)
    for bound, form in zip(bounds, exact_forms(inverse, contexts), strict=True):
        assert form <= Fraction(float(bound))
    return bounds


def random_inverse(rng, d):
    """Return an inverse with a random spectrum, over a few or many orders of magnitude."""
    vectors = np.linalg.qr(rng.standard_normal((d, d)))[0]
    inverse = (vectors * 10.0 ** -rng.uniform(0, rng.choice([0.1, 2, 8]), d)) @ vectors.T
    return 10.0 ** rng.uniform(-6, 6) * (inverse + inverse.T) / 2


@settings(max_examples=80)
@given(d=st.integers(1, 25), n=st.integers(1, 9), seed=SEEDS, kernels=st.sampled_from(SETS))
def test_no_form_is_above_its_bound(d, n, seed, kernels):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((d, n))
    contexts *= rng.random(n) ** rng.choice([0, 1, 9]) / np.linalg.norm(contexts, axis=0)
    assert_bounds(random_inverse(rng, d), contexts, kernels)


@settings(max_examples=40)
@given(d=st.integers(1, 25), seed=SEEDS, kernels=st.sampled_from(SETS))
def test_no_form_is_above_its_bound_along_the_largest_eigenvectors(d, seed, kernels):
    inverse = random_inverse(np.random.default_rng(seed), d)
    assert_bounds(inverse, np.linalg.eigh(inverse)[1][:, -3:], kernels)


@settings(max_examples=60)
@given(d=st.integers(1, 40), n=st.integers(1, 40), seed=SEEDS, kernels=st.sampled_from(SETS))
def test_a_bound_is_not_far_above_the_form_of_a_unit_context(d, n, seed, kernels):
    rng = np.random.default_rng(seed)
    inverse, contexts = random_inverse(rng, d), rng.standard_normal((d, n))
    contexts /= np.linalg.norm(contexts, axis=0)
    found = bound_forms(inverse, contexts, kernels)
    excess = found - np.einsum("ia,ij,ja->a", contexts, inverse, contexts)
    assert (excess <= 0.01 * np.linalg.norm(inverse)).all()


def just_below_whole(values, scale):
    """Return values that lose almost 1 where their multiple by `scale` is cut to an integer."""
    return (np.floor(values * scale) + 0.999) / scale


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("d", [2, 3, 8, 25, 40])
def test_what_is_cut_off_the_contexts_is_in_the_bound(d, kernels):
    """All of P − cI is positive and so is x: every cut lowers the form."""
    inverse = np.full((d, d), 0.9) + 0.1 * np.eye(d)
    contexts = just_below_whole(np.full((d, 1), 0.9997 / np.sqrt(d)), SCALE)
    assert_bounds(inverse, contexts, kernels)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("d", [12, 33, 64])
def test_what_is_cut_off_the_matrix_is_in_the_bound(d, kernels):
    """One row of P − cI is long, and all other entries are just too small for an integer."""
    row = np.full(d - 1, 1 / np.sqrt(d - 1))  # of T, with the norm 1
    scale = 2 * SCALE / np.linalg.norm([*row, 0.999 / (2 * SCALE)])  # FSL_ROW_NORM
    lower = np.tril(np.full((d, d), 0.999 / scale / 2), -1)
    lower[-1, :-1] = just_below_whole(row, scale) / 2
    inverse = np.eye(d) + lower + lower.T
    assert_bounds(inverse, np.full((d, 1), 1 / np.sqrt(d)), kernels)


@settings(max_examples=40)
@given(
    d=st.integers(1, 12),
    exponent=st.integers(-323, -30),
    seed=SEEDS,
    kernels=st.sampled_from(SETS),
)
def test_contexts_too_small_for_single_precision_are_bounded(d, exponent, seed, kernels):
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-1, 1, (d, 4)) / np.sqrt(d)
    contexts[rng.random((d, 4)) < 0.5] *= float(f"1e{exponent}")
    contexts[:, 0] *= float(f"1e{exponent}")
    assert_bounds(random_inverse(rng, d), contexts, kernels)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("d", [1, 2, 7])
def test_a_multiple_of_the_identity_is_bounded_closely(d, kernels):
    for factor in (1e-70, 1e-3, 1.0, 1e70):
        bounds = assert_bounds(factor * np.eye(d), np.eye(d), kernels)
        assert (bounds <= factor * (LONGEST**2 + 1e-9)).all()


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("d", [1, 2, 9])
def test_a_matrix_that_cannot_be_scaled_has_no_bounds(d, kernels):
    wrong = [np.full((d, d), np.nan), np.diag([np.inf] * d), np.zeros((d, d)), -np.eye(d)]
    wrong += [1e-120 * np.eye(d), *([1e101 * np.diag(range(1, d + 1))] if d > 1 else [])]
    for value in (np.nan, np.inf, -np.inf):
        wrong.append(np.eye(d))
        wrong[-1][-1, 0] = value
    for inverse in wrong:
        assert bound_forms(inverse, np.eye(d), kernels) is None


def test_what_is_no_matrix_and_contexts_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match="needs to be square"):
        bound_forms(np.ones((2, 3)), np.eye(2))
    with pytest.raises(ValueError, match="contexts of 2 rows"):
        bound_forms(np.eye(2), np.eye(3))
    for contexts in (1.0001 * np.eye(2), np.nan * np.eye(2), np.zeros((2, 0))):
        with pytest.raises(ValueError, match="none of them longer than"):
            bound_forms(np.eye(2), contexts)
    with pytest.raises(ValueError, match="the inverse must be square"):
        find_directions(np.ones((2, 3)), 1.0)


@settings(max_examples=200)
@given(
    d=st.integers(1, 30),
    n_above=st.integers(0, 8),
    spread=st.sampled_from([1e-4, 0.02, 0.3, 3.0]),
    least=st.integers(0, 6),
    seed=SEEDS,
    kernels=st.sampled_from(SETS),
)
def test_without_its_directions_a_matrix_is_below_the_floor(
    d, n_above, spread, least, seed, kernels
):
    """Eigenvalues close together are hard for a power iteration: then there is no certificate."""
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.standard_normal((d, d)))[0]
    values = np.where(np.arange(d) < n_above, 1.0, 0.8) * (1 + spread * rng.random(d))
    inverse = (vectors * values) @ vectors.T
    inverse = (inverse + inverse.T) / 2
    found = find_directions(inverse, 1.0, least, 5, kernels)
    if found is None:
        assert np.linalg.eigvalsh(inverse)[-1] * LONGEST**2 > 1 - 1e-9
        return
    directions, room = found
    assert len(directions) <= 6 and room >= 0 and (len(directions) > 0) == (room > 0)
    rest = np.linalg.eigvalsh(inverse - directions.T @ directions)[-1] * LONGEST**2
    assert rest <= 1 - room + d**2 * np.finfo(float).eps


@pytest.mark.parametrize("kernels", SETS)
def test_directions_that_miss_the_largest_eigenvector_are_no_certificate(kernels):
    """A power iteration from the widest column never leaves its block of P."""
    inverse = np.zeros((6, 6))
    inverse[0, 0], inverse[1, 1] = 1.2, 0.6
    inverse[2:, 2:] = 0.45  # an eigenvalue of 1.8
    assert find_directions(inverse, 1.0, 0, 1, kernels) is None
    inverse[2:, 2:] = 0.1
    assert find_directions(inverse, 1.0, 0, 1, kernels) is not None


def test_directions_are_found_where_few_eigenvalues_are_large():
    values = np.r_[1.5, 1.2, np.full(23, 0.3)]
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((25, 25)))[0]
    for kernels in SETS:
        directions, room = find_directions((vectors * values) @ vectors.T, 1.0, 0, 20, kernels)
        assert 1 <= len(directions) <= 3 and room > 0.5
        assert find_directions((vectors * values) @ vectors.T, 1.6, 0, 20, kernels)[1] == 0
        assert find_directions(np.eye(25), 0.9, 0, 20, kernels) is None
