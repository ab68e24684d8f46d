"""The compiled kernels agree with NumPy for all shapes, on every code path of this CPU."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsuplin_ext import norms
from fedsuplin_ext.rules import Rule
from fedsuplin_plugins.triggers import Always, Determinant, Never, Periodic, TimedDeterminant
from fedsuplin_plugins.weightings import CorruptionWeight, Unit, VarianceWeight

KERNELS = norms.available()
SETS = [*KERNELS, norms.SPLIT] if "avx2" in KERNELS else KERNELS  # whose lanes may be 4 or 8


def padded_square(matrix, kernels):
    d = len(matrix)
    out = np.zeros((d, norms.pad(d, kernels)))
    out[:, :d] = matrix
    return out


def positive_definite(rng, d):
    factor = rng.standard_normal((d, d))
    return np.linalg.inv(np.eye(d) + factor @ factor.T)


@settings(max_examples=150)
@given(
    d=st.integers(1, 70),
    n_arms=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
    kernels=st.sampled_from(SETS),
)
def test_norms_and_estimates_are_the_quadratic_form_and_the_dot_product(d, n_arms, seed, kernels):
    rng = np.random.default_rng(seed)
    inverse, theta_hat = positive_definite(rng, d), rng.standard_normal(d)
    contexts = np.zeros((d, norms.pad(n_arms, kernels)))
    contexts[:, :n_arms] = rng.standard_normal((d, n_arms))
    norm, estimate = norms.norms_and_estimates(
        padded_square(inverse, kernels), theta_hat, contexts, kernels
    )
    expected = np.sqrt(np.einsum("ia,ij,ja->a", contexts, inverse, contexts))
    np.testing.assert_allclose(norm, expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(estimate, theta_hat @ contexts, rtol=1e-11, atol=1e-12)
    assert (norm[n_arms:] == 0).all() and (estimate[n_arms:] == 0).all()


@settings(max_examples=60)
@given(
    n=st.integers(1, 5),
    d=st.integers(1, 9),
    n_arms=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_packing_puts_arms_last_and_zeroes_what_is_masked(n, d, n_arms, seed):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n, n_arms, d))
    mask = rng.random((n, n_arms)) < 0.7
    contexts[~mask] = np.nan
    out = np.full((n, d, norms.pad(n_arms)), 7.0)
    norms.pack(contexts, mask.astype(np.uint8), 0.5, out)
    expected = np.zeros_like(out)
    expected[:, :, :n_arms] = np.where(mask[:, :, None], 0.5 * contexts, 0.0).transpose(0, 2, 1)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("n_arms", [1, 12, 20, 45])
def test_mean_rewards_do_not_depend_on_how_a_chunk_is_cut(kernels, n_arms):
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((50, 13, norms.pad(n_arms, kernels)))
    theta = rng.standard_normal(13)
    whole = norms.mean_rewards(contexts, theta, kernels)
    pieces = np.concatenate(
        [norms.mean_rewards(contexts[i : i + 1].copy(), theta, kernels) for i in range(50)]
    )
    np.testing.assert_array_equal(whole, pieces)
    np.testing.assert_allclose(
        whole, np.einsum("tda,d->ta", contexts, theta), rtol=1e-11, atol=1e-12
    )


def test_a_kernel_set_that_does_not_exist_is_refused_by_name():
    with pytest.raises(ValueError, match="no kernels named 'mmx'.*available: .*generic"):
        norms.mean_rewards(np.zeros((1, 1, 8)), np.zeros(1), "mmx")


def test_the_environment_chooses_the_kernels(monkeypatch):
    monkeypatch.setenv("FEDSUPLIN_KERNELS", "generic")
    assert norms.default() == "generic"
    monkeypatch.delenv("FEDSUPLIN_KERNELS")
    assert norms.default() == KERNELS[0]


@pytest.mark.parametrize("kernels", SETS)
def test_rows_are_padded_to_whole_vectors_of_the_set(kernels):
    lanes = norms.pad(1, kernels)
    assert lanes == (8 if "512" in kernels else 4)
    assert [norms.pad(n, kernels) for n in (0, lanes, lanes + 1)] == [0, lanes, 2 * lanes]


@pytest.mark.parametrize("kernels", SETS)
def test_unpadded_arrays_are_refused(kernels):
    lanes = norms.pad(3, kernels)
    words = f"padded to a multiple of {lanes}"
    with pytest.raises(ValueError, match=words):
        norms.norms_and_estimates(np.zeros((3, 3)), np.zeros(3), np.zeros((3, lanes)), kernels)
    with pytest.raises(ValueError, match=words):
        norms.norms_and_estimates(np.zeros((3, lanes)), np.zeros(3), np.zeros((3, 3)), kernels)


TRIGGERS = [Determinant(C=0.3), TimedDeterminant(D=2.0), Periodic(every=5), Always(), Never()]
WEIGHTINGS = [
    Unit(),
    CorruptionWeight(corruption=0.0),
    CorruptionWeight(corruption=10.0, gamma=0.3),
    VarianceWeight(R=0.5, gamma=0.4, rho=0.01),
]


@pytest.mark.parametrize("trigger", TRIGGERS, ids=repr)
@given(gain=st.floats(0, 50), elapsed=st.integers(1, 10**6))
def test_a_trigger_is_the_same_rule_in_python_and_compiled(trigger, gain, elapsed):
    assert bool(Rule("trigger", trigger)(gain, elapsed)) == trigger.fires(gain, elapsed)


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
@given(norm=st.floats(0, 100), sigma=st.floats(0, 10))
def test_a_weighting_is_the_same_rule_in_python_and_compiled(weighting, norm, sigma):
    assert Rule("weighting", weighting)(norm, sigma) == pytest.approx(
        weighting.weight(norm, sigma), rel=1e-14
    )


def test_a_trigger_that_ties_does_not_fire():
    """A unit context on A = I makes the determinant ratio exactly 2: with C = 1 that is a tie."""
    tie = np.log(2)
    for gain in (tie, np.nextafter(tie, 1), tie * (1 + 1e-10)):
        assert not Determinant(C=1.0).fires(gain, 1)
        assert not TimedDeterminant(D=tie).fires(gain, 1)
    assert Determinant(C=1.0).fires(tie * (1 + 1e-8), 1)


# --- deliberate faults ---


def test_every_deliberate_fault_has_its_place_in_the_kernels():
    """bench/checks/mutants.py inserts them; whoever rewrites a kernel must adapt its faults."""
    file = Path(__file__).parents[2] / "bench/checks/mutants.py"
    mutants = importlib.util.module_from_spec(
        importlib.util.spec_from_file_location("mutants", file)
    )
    mutants.__spec__.loader.exec_module(mutants)
    assert len(mutants.MUTANTS) >= 20
    for mutant in mutants.MUTANTS:
        assert (mutants.ROOT / mutants.EXT / mutant.file).read_text(encoding="utf-8").count(
            mutant.old
        ) == 1, mutant.name
