"""The weighting in compiled form: fedsuplin's formula for a known σ, with an estimated σ."""

from libc.math cimport sqrt

from fedsuplin_ext.formulas cimport inverse_variance
from fedsuplin_ext.signatures cimport stateful_weight_function


cdef double estimated(
    double norm, double sigma, double residual, double* state, void* user
) noexcept nogil:
    """Return the weight of an observation, and learn from its residual.

    `user` points to γ, ρ (as `inverse_variance` has them), R and the window; `state` to the number
    of pulls and the mean square.
    """
    cdef double* parameters = <double*>user
    cdef double weight
    if state[0] == 0.0:
        state[1] = parameters[2] * parameters[2]
    weight = inverse_variance(norm, sqrt(state[1]), user)
    state[0] += 1.0
    state[1] += (residual * residual - state[1]) / min(state[0] + 1.0, parameters[3])
    return weight


# A wrong signature is an error of the compiler here, and not only when an algorithm is made.
cdef stateful_weight_function checked = estimated
