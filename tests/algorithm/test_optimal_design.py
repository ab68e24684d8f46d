"""Designs are optimal: their largest variance, computed here anew, is the theorem's."""

import math

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.linalg import LinAlgError
from scipy.optimize import LinearConstraint, minimize

from fedsuplin.algorithm import design_solver
from fedsuplin.algorithm.design_solver import SMALL_BLOCK, _make_inverse
from fedsuplin.algorithm.optimal_design import find_g_optimal_design, find_multi_client_design
from fedsuplin.errors import InvalidInput, NumericalError

TOLERANCE = 1e-6


def variances(rows, weights):
    """x_pᵀV⁺x_p by V⁺ = R⁺R⁺ᵀ, without forming V: its condition is the square of its root R's."""
    rows = rows / np.abs(rows).max() if rows.any() else rows
    return ((rows @ np.linalg.pinv(rows * np.sqrt(weights)[:, None], rcond=1e-11)) ** 2).sum(axis=1)


def rank_of(rows):
    singular = np.linalg.svd(rows / max(np.abs(rows).max(), 1e-307), compute_uv=False)
    return int((singular > 1e-10 * singular[0]).sum())


def assert_optimal(arms, design, tolerance=TOLERANCE):
    arms = np.asarray(arms, dtype=float)
    assert design.weights.shape == (len(arms),)
    assert design.weights.min() >= 0 and design.weights.sum() == pytest.approx(1, abs=1e-12)
    assert design.rank == rank_of(arms)
    largest = variances(arms, design.weights).max()
    assert largest <= design.rank * (1 + tolerance)
    assert design.value == pytest.approx(largest, rel=TOLERANCE)


def block_variances(contexts, active, weights, shared):
    """x_{i,a}ᵀV_a⁺x_{i,a}, zero where not active, and the sum of the ranks of the blocks."""
    seen = np.where(active[:, :, None], contexts, 0.0)
    found, rank = np.zeros(active.shape), 0
    for columns in [slice(None)] if shared else range(contexts.shape[1]):
        rows = seen[:, columns].reshape(-1, contexts.shape[2])
        found[:, columns] = variances(rows, weights[:, columns].ravel()).reshape(
            found[:, columns].shape
        )
        rank += rank_of(rows)
    return found, rank


def assert_multi_optimal(contexts, active, design, shared=False, tolerance=TOLERANCE):
    contexts = np.asarray(contexts, dtype=float)
    active = np.ones(contexts.shape[:2], dtype=bool) if active is None else np.asarray(active)
    assert design.weights.shape == active.shape
    assert design.weights.min() >= 0 and not design.weights[~active].any()
    assert design.weights.sum(axis=1) == pytest.approx(1, abs=1e-12)
    found, rank = block_variances(contexts, active, design.weights, shared)
    assert design.rank == rank
    assert found.max(axis=1).sum() <= rank * (1 + tolerance)
    assert design.value == pytest.approx(found.max(axis=1).sum(), rel=TOLERANCE)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def unit(seed, *shape):
    directions = normal(seed, *shape)
    return directions / np.linalg.norm(directions, axis=-1, keepdims=True)


def some_active(seed, n_clients, n_arms, share):
    rng = np.random.default_rng(seed)
    active = rng.random((n_clients, n_arms)) < share
    active[np.arange(n_clients), rng.integers(n_arms, size=n_clients)] = True
    return active


# One player: what is known in closed form


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_an_orthonormal_basis_is_pulled_evenly(dim):
    design = find_g_optimal_design(np.eye(dim))
    assert design.weights == pytest.approx(1 / dim, abs=1e-6)
    assert_optimal(np.eye(dim), design)


def test_in_one_dimension_the_longest_arm_is_pulled():
    assert find_g_optimal_design([[1.0], [-3.0], [2.0]]).weights.tolist() == [0, 1, 0]


@pytest.mark.parametrize("corners", [3, 4, 5, 12, 101])
def test_a_regular_polygon_is_pulled_the_same_in_all_directions(corners):
    angles = 2 * np.pi * np.arange(corners) / corners
    arms = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    design = find_g_optimal_design(arms)
    assert_optimal(arms, design)
    # ln det V is within 2 ln(1 + 1e-6) of its maximum at I/2,
    # so an eigenvalue of 2V is within about √(4e-6) of 1.
    assert arms.T @ (design.weights[:, None] * arms) == pytest.approx(np.eye(2) / 2, abs=1e-3)


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_the_corners_of_a_simplex_are_pulled_evenly(dim):
    corners = np.eye(dim + 1) - 1 / (dim + 1)  # in dim + 1 dimensions, of which they span dim
    design = find_g_optimal_design(corners)
    assert design.rank == dim
    assert design.weights == pytest.approx(1 / (dim + 1), abs=1e-3)
    assert_optimal(corners, design)


@pytest.mark.parametrize(
    ("degree", "points"),
    [(1, [-1, 1]), (2, [-1, 0, 1]), (3, [-1, -math.sqrt(1 / 5), math.sqrt(1 / 5), 1])],
)
def test_polynomials_are_observed_at_the_extremes_of_legendre(degree, points):
    """Polynomial regression (Guest 1958): 1/(degree + 1) at each point, others nearly collinear."""
    places = np.unique(np.concatenate([np.linspace(-1, 1, 401), points]))
    arms = np.vander(places, degree + 1)
    design = find_g_optimal_design(arms)
    assert_optimal(arms, design)
    for point in points:
        assert design.weights[np.abs(places - point) < 0.02].sum() == pytest.approx(
            1 / (degree + 1), abs=1e-3
        )


# One player: whatever the arms are


@pytest.mark.parametrize(
    ("n_arms", "dim"), [(1, 1), (1, 5), (3, 8), (8, 8), (9, 8), (200, 4), (1000, 12), (80, 30)]
)
@pytest.mark.parametrize("draw", [normal, unit])
def test_the_largest_variance_is_the_rank(draw, n_arms, dim):
    arms = draw([n_arms, dim], n_arms, dim)
    assert_optimal(arms, find_g_optimal_design(arms))


def test_thousands_of_arms_on_a_sphere_where_nearly_all_designs_are_optimal():
    arms = unit(1, 2000, 6) * (1 + 1e-4 * np.random.default_rng(2).random((2000, 1)))
    assert_optimal(arms, find_g_optimal_design(arms))


@pytest.mark.parametrize("separation", [1e-2, 1e-4, 1e-6, 1e-8])
def test_nearly_collinear_arms(separation):
    together = np.ones(4) + separation * normal(3, 30, 4)
    clusters = np.repeat(normal(4, 20, 5), 6, axis=0) + separation * normal(5, 120, 5)
    for arms in (
        [[1, 0], [1, separation]],
        [[1, 0], [1, separation], [1, 2 * separation]],
        together,
        clusters,
    ):
        assert_optimal(arms, find_g_optimal_design(arms))


@pytest.mark.parametrize("scale", [1e-300, 1e-6, 1.0, 1e200, 5e307])
def test_any_unit_of_length(scale):
    arms = normal(6, 20, 3)
    design = find_g_optimal_design(scale * arms)
    assert_optimal(scale * arms, design)
    assert design.weights == pytest.approx(find_g_optimal_design(arms).weights, abs=1e-9)


def test_short_arms_beside_long_ones_count_where_they_are_alone():
    arms = np.array([[1.0, 0, 0], [0.6, 0.8, 0], [0, 0, 1e-6], [1e-6, 0, 0]])
    design = find_g_optimal_design(arms)
    assert_optimal(arms, design)
    assert design.weights == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=1e-6)
    mixed = normal(7, 200, 5) * 10 ** np.random.default_rng(8).uniform(-6, 0, size=(200, 1))
    assert_optimal(mixed, find_g_optimal_design(mixed))


def test_a_direction_below_the_threshold_is_not_in_the_span():
    assert find_g_optimal_design([[1, 0], [0, 1e-9]]).rank == 2
    assert find_g_optimal_design([[1, 0], [0, 1e-11]]).rank == 1


@pytest.mark.parametrize(
    ("arms", "rank"),
    [
        ([[2.0, 0, 0]], 1),
        ([[1.0, 2], [1, 2], [1, 2]], 1),
        ([[1.0, 2], [-2, -4], [0.5, 1]], 1),
        ([[1.0, 0, 0, 0], [0, 1, 0, 0]], 2),
        ([[0.0, 0], [1, 0], [0, 0], [0, 1], [1, 1], [1, 1]], 2),
        ([[1, 0], [0, 1]], 2),
    ],
    ids=[
        "one arm",
        "duplicates",
        "collinear",
        "fewer arms than dimensions",
        "zeros and duplicates",
        "whole numbers",
    ],
)
def test_degenerate_arms(arms, rank):
    design = find_g_optimal_design(arms)
    assert design.rank == rank
    assert_optimal(arms, design)


def test_arms_are_the_same_in_other_coordinates():
    arms, change = normal(9, 40, 4), normal(10, 4, 4) * [1, 10, 100, 1000]
    assert_optimal(arms @ change, find_g_optimal_design(arms @ change))
    assert find_g_optimal_design(arms @ change).weights == pytest.approx(
        find_g_optimal_design(arms).weights, abs=1e-3
    )
    embedded = arms @ normal(11, 4, 9)
    assert find_g_optimal_design(embedded).rank == 4
    assert_optimal(embedded, find_g_optimal_design(embedded))


def test_permuted_arms_have_the_permuted_design():
    arms, order = normal(12, 40, 4), np.random.default_rng(13).permutation(40)
    assert find_g_optimal_design(arms[order]).weights == pytest.approx(
        find_g_optimal_design(arms).weights[order], abs=1e-3
    )


def test_the_same_arms_have_the_same_design_to_the_last_bit():
    arms, contexts = normal(14, 300, 6), normal(15, 8, 5, 3)
    assert (
        find_g_optimal_design(arms).weights.tolist()
        == find_g_optimal_design(arms.copy()).weights.tolist()
    )
    assert (
        find_multi_client_design(contexts).weights.tolist()
        == find_multi_client_design(contexts.copy()).weights.tolist()
    )


@pytest.mark.parametrize(("n_arms", "dim"), [(500, 2), (1000, 10), (200, 30)])
@pytest.mark.parametrize("draw", [normal, unit])
def test_twice_the_optimum_needs_few_arms(draw, n_arms, dim):
    arms = draw(16, n_arms, dim)
    design = find_g_optimal_design(arms, tolerance=1.0)
    assert_optimal(arms, design, tolerance=1.0)
    assert np.count_nonzero(design.weights) <= 4 * dim


def log_det(rows, weights):
    return np.linalg.slogdet(rows.T @ (weights[:, None] * rows))[1]


def test_a_general_optimiser_finds_nothing_better():
    arms = normal(17, 7, 3)
    design = find_g_optimal_design(arms)
    found = minimize(
        lambda weights: -log_det(arms, weights),
        np.full(7, 1 / 7),
        jac=lambda weights: -variances(arms, weights),
        bounds=[(1e-12, 1)] * 7,
        constraints=LinearConstraint(np.ones((1, 7)), 1, 1),
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    assert log_det(arms, design.weights) == pytest.approx(-found.fun, abs=3 * TOLERANCE)


numbers = st.integers(-3, 3).map(float)
sizes = st.integers(1, 5)


@given(st.data())
def test_any_arms(data):
    n_arms, dim = data.draw(st.integers(1, 12)), data.draw(sizes)
    arms = data.draw(hnp.arrays(float, (n_arms, dim), elements=numbers).filter(np.any))
    arms *= 10.0 ** data.draw(hnp.arrays(int, (n_arms, 1), elements=st.integers(-5, 0)))
    assert_optimal(arms, find_g_optimal_design(arms))


@given(
    st.integers(0, 2**32), st.integers(1, 60), sizes, st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 5.0])
)
def test_any_tolerance(seed, n_arms, dim, tolerance):
    arms = normal(seed, n_arms, dim)
    assert_optimal(arms, find_g_optimal_design(arms, tolerance=tolerance), tolerance)


# Many clients


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.4, 0.1])
@pytest.mark.parametrize(
    ("n_clients", "n_arms", "dim"), [(1, 6, 3), (5, 4, 3), (20, 20, 10), (11, 20, 10), (100, 10, 5)]
)
def test_the_sum_of_the_clients_largest_variances_is_the_rank(
    n_clients, n_arms, dim, share, shared
):
    """With 100 clients and 0.4 of the arms, coordinate ascent is at 1e-5 after 100 000 steps."""
    contexts, active = unit(20, n_clients, n_arms, dim), some_active(21, n_clients, n_arms, share)
    assert_multi_optimal(
        contexts, active, find_multi_client_design(contexts, active, shared=shared), shared
    )


def test_more_contexts_in_a_block_than_the_curvature_is_factored_for_as_it_stands():
    contexts = unit(22, 40, 12, 4)
    assert contexts.shape[0] * contexts.shape[1] > SMALL_BLOCK
    assert_multi_optimal(
        contexts, None, find_multi_client_design(contexts, shared=True), shared=True
    )


def test_one_client_that_shares_is_one_player():
    arms = normal(23, 15, 4)
    design = find_multi_client_design(arms[None], shared=True)
    assert_multi_optimal(arms[None], None, design, shared=True)
    assert design.weights[0] == pytest.approx(find_g_optimal_design(arms).weights, abs=1e-3)


def test_clients_that_are_the_same_person_share_as_one_player():
    arms = normal(24, 10, 3)
    design = find_multi_client_design(np.stack([arms] * 4), shared=True)
    assert_optimal(arms, find_g_optimal_design(arms))
    assert variances(arms, design.weights.mean(axis=0)).max() <= 3 * (1 + TOLERANCE)


def test_one_arm_each_is_all_they_can_pull():
    active = np.eye(3, dtype=bool)
    design = find_multi_client_design(normal(25, 3, 3, 4), active)
    assert design.weights.tolist() == active.tolist()
    assert design.rank == 3
    assert design.value == pytest.approx(3)


@pytest.mark.parametrize("n_clients", [2, 5])
def test_as_many_clients_as_the_rank_are_all_needed_evenly(n_clients):
    """V_a has n independent x, so det V_a is Π_i π_{i,a} times a constant: evenly is best."""
    design = find_multi_client_design(normal(26, n_clients, 4, n_clients))
    assert design.weights == pytest.approx(1 / 4, abs=1e-3)
    assert design.rank == 4 * n_clients


def test_per_arm_scales_do_not_matter_where_every_arm_has_its_own_parameters():
    contexts = normal(27, 6, 5, 2)
    scaled = contexts * np.array([1, 10, 1e-3, 5, 1e4])[None, :, None]
    assert find_multi_client_design(scaled).weights == pytest.approx(
        find_multi_client_design(contexts).weights, abs=1e-6
    )


def test_permuted_clients_and_arms_have_the_permuted_design():
    contexts, active = normal(28, 6, 5, 2), some_active(29, 6, 5, 0.7)
    clients, arms = (
        np.random.default_rng(30).permutation(6),
        np.random.default_rng(31).permutation(5),
    )
    permuted = find_multi_client_design(contexts[clients][:, arms], active[clients][:, arms])
    assert permuted.weights == pytest.approx(
        find_multi_client_design(contexts, active).weights[clients][:, arms], abs=1e-3
    )


def test_an_arm_that_no_client_has_active_or_whose_contexts_are_zero_is_ignored():
    contexts, active = normal(32, 4, 5, 2), np.ones((4, 5), dtype=bool)
    active[:, 1] = False
    contexts[:, 3] = 0.0
    design = find_multi_client_design(contexts, active)
    assert design.rank == 3 * 2
    assert not design.weights[:, [1, 3]].any()
    assert_multi_optimal(contexts, active, design)


def test_contexts_that_are_not_active_are_not_looked_at():
    contexts, active = normal(33, 3, 4, 2), some_active(34, 3, 4, 0.5)
    design = find_multi_client_design(np.where(active[:, :, None], contexts, np.nan), active)
    assert design.weights.tolist() == find_multi_client_design(contexts, active).weights.tolist()


def test_a_client_that_can_learn_nothing_spreads_its_pulls():
    contexts, active = normal(35, 3, 4, 2), np.ones((3, 4), dtype=bool)
    contexts[1], active[1, 0] = 0.0, False
    design = find_multi_client_design(contexts, active)
    assert design.weights[1].tolist() == [0, 1 / 3, 1 / 3, 1 / 3]
    assert_multi_optimal(contexts, active, design)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("separation", [1e-4, 1e-8])
def test_clients_nearly_alike(separation, shared):
    contexts = unit(36, 1, 6, 4) + separation * unit(37, 12, 6, 4)
    assert_multi_optimal(contexts, None, find_multi_client_design(contexts, shared=shared), shared)


@pytest.mark.parametrize("shared", [False, True])
def test_clients_with_contexts_of_very_different_lengths(shared):
    """In a few of a hundred, a step with the second-order term would lead down."""
    for seed in range(50):
        lengths = 10 ** np.random.default_rng(seed).uniform(-6, 0, size=(7, 8, 1))
        contexts = lengths * normal(seed, 7, 8, 2)
        assert_multi_optimal(
            contexts, None, find_multi_client_design(contexts, shared=shared), shared
        )


@pytest.mark.parametrize("seed", [552, 637])
def test_steps_that_lead_too_far_are_halved(seed):
    """Of thousands of such contexts along the axes, two where whole steps go round in circles."""
    rng = np.random.default_rng(seed)
    contexts = np.eye(4)[rng.integers(4, size=(7, 8))] * 10 ** rng.uniform(-6, 0, size=(7, 8, 1))
    assert_multi_optimal(contexts, None, find_multi_client_design(contexts))


def test_a_tolerance_close_to_rounding():
    """Weights and slacks would fall much faster than the equations are solved, if not held."""
    signs = ["-00-", "+++-", "---+", "0++-", "-0--", "0-00", "00+0", "-0+0", "--++", "++00"]
    active = ["0100", "1110", "1111", "1110", "0011", "1111", "0101", "1111", "1101", "0101"]
    contexts = np.array([[{"-": -1.0, "0": 0.0, "+": 1.0}[sign] for sign in row] for row in signs])[
        :, :, None
    ]
    active = np.array([[digit == "1" for digit in row] for row in active])
    for shared in (False, True):
        design = find_multi_client_design(contexts, active, shared=shared, tolerance=1e-10)
        assert_multi_optimal(contexts, active, design, shared, tolerance=1e-10)


@pytest.mark.parametrize("size", [3, 40])
def test_both_ways_to_invert_the_curvature(size, monkeypatch):
    rows, scale, right = (
        normal(50, size, 3),
        np.random.default_rng(51).random(size),
        normal(52, size, 2),
    )
    expected = np.linalg.solve((rows @ rows.T) ** 2 + np.diag(scale**-2), right)
    for small_block in (0, 1000):
        monkeypatch.setattr(design_solver, "SMALL_BLOCK", small_block)
        assert _make_inverse(rows, scale)(right) == pytest.approx(expected, rel=1e-9)
        assert _make_inverse(rows, scale)(right[:, 0]) == pytest.approx(expected[:, 0], rel=1e-9)


def test_a_general_optimiser_finds_nothing_better_for_many():
    contexts, active = normal(38, 4, 3, 2), np.ones((4, 3), dtype=bool)
    design = find_multi_client_design(contexts)

    def objective(flat):
        weights = flat.reshape(4, 3)
        return -sum(log_det(contexts[:, arm], weights[:, arm]) for arm in range(3))

    found = minimize(
        objective,
        np.full(12, 1 / 3),
        jac=lambda flat: (
            -block_variances(contexts, active, flat.reshape(4, 3), shared=False)[0].ravel()
        ),
        bounds=[(1e-12, 1)] * 12,
        constraints=LinearConstraint(np.kron(np.eye(4), np.ones(3)), 1, 1),
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    assert objective(design.weights.ravel()) == pytest.approx(found.fun, abs=6 * TOLERANCE)


@given(st.data(), st.booleans())
def test_any_clients(data, shared):
    shape = data.draw(st.tuples(st.integers(1, 6), sizes, st.integers(1, 4)))
    active = data.draw(hnp.arrays(bool, shape[:2]).filter(lambda mask: mask.any(axis=1).all()))
    contexts = data.draw(
        hnp.arrays(float, shape, elements=numbers).filter(lambda values: values[active].any())
    )
    contexts *= 10.0 ** data.draw(hnp.arrays(int, (*shape[:2], 1), elements=st.integers(-3, 0)))
    assert_multi_optimal(
        contexts, active, find_multi_client_design(contexts, active, shared=shared), shared
    )


@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([1e-6, 1e-2, 1.0]))
def test_any_tolerance_of_many(seed, shared, tolerance):
    contexts, active = normal(seed, 7, 4, 3), some_active(seed, 7, 4, 0.5)
    design = find_multi_client_design(contexts, active, shared=shared, tolerance=tolerance)
    assert_multi_optimal(contexts, active, design, shared, tolerance)


# What can't be


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([1.0, 2.0], r"arms must have the shape \(arms, dim\), each at least 1, not \(2,\)"),
        (
            np.zeros((2, 2, 2)),
            r"arms must have the shape \(arms, dim\), each at least 1, not \(2, 2, 2\)",
        ),
        (np.zeros((0, 3)), r"each at least 1, not \(0, 3\)"),
        (np.zeros((3, 0)), r"each at least 1, not \(3, 0\)"),
        ([[1.0, 2.0], [1.0]], r"arms must be an array of the shape \(arms, dim\)"),
        ([["a", "b"]], "arms must be real numbers, not <U1"),
        ([[1j, 2]], "arms must be real numbers, not complex128"),
        (np.zeros((4, 2)), "arms must not all be zero"),
        ([[1, 0], [np.nan, 1]], r"arms must be finite; arms\[1\] is \[nan  1\.\]"),
        ([[1, -np.inf]], r"arms must be finite; arms\[0\]"),
    ],
)
def test_arms_that_cannot_be_used(arms, message):
    with pytest.raises(InvalidInput, match=message):
        find_g_optimal_design(arms)


@pytest.mark.parametrize(
    ("contexts", "active", "message"),
    [
        (
            np.ones((2, 3)),
            None,
            r"contexts must have the shape \(clients, arms, dim\), each at least 1, not \(2, 3\)",
        ),
        (np.ones((2, 0, 3)), None, r"each at least 1, not \(2, 0, 3\)"),
        (np.zeros((2, 3, 2)), None, "contexts must not all be zero where they are active"),
        (
            np.full((1, 2, 2), np.nan),
            None,
            r"contexts must be finite; contexts\[0, 0\] is \[nan nan\]",
        ),
        (
            np.ones((2, 2, 1)),
            [[True, True], [False, False]],
            "every client needs an active arm; client 1 has none",
        ),
        (
            np.ones((2, 2, 1)),
            [[True, True]],
            r"active must be booleans of the shape \(2, 2\), as the contexts, not bool of \(1, 2\)",
        ),
        (
            np.ones((2, 2, 1)),
            np.ones((2, 2)),
            r"active must be booleans of the shape \(2, 2\), as the contexts, not float64",
        ),
        (
            np.ones((2, 2, 1)),
            [[True], [True, False]],
            r"active must be an array of the shape \(clients, arms\)",
        ),
    ],
)
def test_contexts_that_cannot_be_used(contexts, active, message):
    with pytest.raises(InvalidInput, match=message):
        find_multi_client_design(contexts, active)


@pytest.mark.parametrize("tolerance", [0, -1.0, np.nan, np.inf, "small"])
def test_a_tolerance_is_a_positive_number(tolerance):
    for solve, values in (
        (find_g_optimal_design, np.eye(2)),
        (find_multi_client_design, np.ones((1, 1, 1))),
    ):
        with pytest.raises(InvalidInput, match="tolerance must be"):
            solve(values, tolerance=tolerance)


def test_a_design_that_is_not_reached_says_what_was(monkeypatch):
    monkeypatch.setattr(design_solver, "STEP_LIMIT", 2)
    message = (
        r"reached a value of rank·\(1 \+ \d\.\de-0\d\) in at most 2 steps; "
        r"a tolerance of 1\.0e-06 takes rank·\(1 \+ 2\.5e-07\)"
    )
    for solve, values in (
        (find_g_optimal_design, normal(40, 50, 4)),
        (find_multi_client_design, normal(41, 8, 5, 3)),
    ):
        with pytest.raises(NumericalError, match=message):
            solve(values)


def test_equations_that_cannot_be_solved_end_in_the_same_error(monkeypatch):
    def singular(*_, **__):
        raise LinAlgError

    monkeypatch.setattr("scipy.linalg.cho_factor", singular)
    with pytest.raises(NumericalError, match="Ask for a larger tolerance"):
        find_multi_client_design(normal(42, 8, 5, 3))


def test_inputs_are_left_as_they_were():
    contexts, active = normal(43, 3, 3, 2), np.ones((3, 3), dtype=bool)
    before = contexts.copy()
    find_multi_client_design(contexts, active)
    find_g_optimal_design(contexts[0])
    assert np.array_equal(contexts, before) and active.all()
