"""The built-in triggers, weightings and choices in compiled form.

`user` points to the parameters, as doubles.
"""

from libc.math cimport INFINITY, sqrt


# --- triggers -------------------------------------------------------------------------------------

cdef int gain_above(double gain, double elapsed, void* user) noexcept nogil:
    """gain > threshold."""
    return gain > (<double*>user)[0]


cdef int timed_gain_above(double gain, double elapsed, void* user) noexcept nogil:
    """elapsed · gain > threshold."""
    return elapsed * gain > (<double*>user)[0]


cdef int elapsed_at_least(double gain, double elapsed, void* user) noexcept nogil:
    """elapsed ≥ threshold."""
    return elapsed >= (<double*>user)[0]


# --- weightings -----------------------------------------------------------------------------------

cdef double unit(double norm, double sigma, void* user) noexcept nogil:
    """1."""
    return 1.0


cdef double capped(double norm, double sigma, void* user) noexcept nogil:
    """min(1, γ/norm)."""
    cdef double gamma = (<double*>user)[0]
    return 1.0 if norm <= gamma else gamma / norm


cdef double inverse_variance(double norm, double sigma, void* user) noexcept nogil:
    """1/max(σ, ρ, γ√norm)²."""
    cdef double* parameters = <double*>user
    cdef double level = parameters[0] * sqrt(norm)
    level = max(level, sigma, parameters[1])
    return 1.0 / (level * level)


# --- choices --------------------------------------------------------------------------------------

cdef int any_arm(
    double* estimates, double* widths, double* targets, int n_layers, int n_arms,
    double draw, void* user,
) noexcept nogil:
    """Each available arm with the same probability, in layer 0."""
    cdef int a, there = 0
    for a in range(n_arms):
        there += estimates[a] > -INFINITY
    there = <int>(draw * there)
    for a in range(n_arms):
        if estimates[a] > -INFINITY:
            if there == 0:
                return a
            there -= 1
    return -1
