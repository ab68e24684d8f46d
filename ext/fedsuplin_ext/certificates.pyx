"""Layers that can't have a wide arm: an exact shortcut that spares most widths.

A layer past the first asks its widths one question: is any kept arm wider than w̄? With τ = (w̄/α)² that is xᵀPx > τ. Once a
layer has gathered its share the answer is no for long, and there is a proof that costs far less than the widths:

    xᵀPx = xᵀ(P − Σ u uᵀ)x + Σ (uᵀx)² ≤ 0.9τ + Σ (uᵀx)²   if every eigenvalue of P − Σ u uᵀ is below 0.9τ and ‖x‖ ≤ 1

for any few directions u, of which the best are along the largest eigenvectors of P; none at all when P itself is below τ.
A only grows, so the proof holds for every later snapshot, and for what a client adds to its own. Where the right side is not
below τ, the widths are computed after all: the decision is the same in any case.
"""

from libc.math cimport sqrt
from libc.string cimport memcpy

from fedsuplin_ext.structs cimport LOUD, MOST_SPIKES, QUIET

cdef double LONGEST = 1 + 1e-5       # no context is longer: problems allow 1 + 1e-6
cdef double FLOOR = 0.9              # of τ, for what is left when the spikes are taken out
cdef double CUT = 0.9                # of that, how far down a spike is cut: the less, the smaller is (uᵀx)²
cdef int POWER_STEPS = 24
cdef int MOST_PATIENCE = 4096


cdef double threshold(const Numbers* numbers, int q) noexcept nogil:
    """τ = (w̄/α)², a little less to be safe."""
    cdef double ratio = numbers.targets[q] / (LONGEST * numbers.radii[q])
    return ratio * ratio


cdef int none_wide(Work* w, Screen* s, const Numbers* numbers, const Snapshot* held, int q, const double* columns, int lanes) noexcept nogil:
    """Is it certain that no kept arm is wider than the target?"""
    cdef int i, a
    if held.quiet != QUIET:
        return 0
    if held.n_spikes == 0:
        return 1
    for i in range(held.n_spikes):
        w.k.estimates(held.spikes + i * w.ld, columns, lanes, w.d, lanes, s.spike)
        for a in range(lanes):
            s.spikes[a] = s.spike[a] * s.spike[a] + (s.spikes[a] if i else 0.0)
    return w.k.largest(s.spikes, s.spikes, 0.0, s.out, lanes) < (1 - FLOOR) * threshold(numbers, q)


cdef void note_calm(Work* w, Screen* s, const Numbers* numbers, Snapshot* held, int q) noexcept nogil:
    """Widths were computed, and no arm was wide. After enough of that it is worth looking for a proof, or a better one;
    each look doubles the patience, so that all looks together cost little."""
    if held.quiet == LOUD or numbers.growth_scale != 0 or numbers.radii[q] == 0:
        return
    s.calm[q] += 1
    if s.calm[q] < s.patience[q]:
        return
    s.calm[q], s.patience[q] = 0, min(2 * s.patience[q], MOST_PATIENCE)
    examine(w, held, threshold(numbers, q))
    if held.quiet == QUIET and s.server[q] != held:  # the server's newest grew out of this one
        s.server[q].quiet, s.server[q].n_spikes = QUIET, held.n_spikes
        memcpy(s.server[q].spikes, held.spikes, held.n_spikes * w.ld * sizeof(double))


cdef void examine(Work* w, Snapshot* held, double tau) noexcept nogil:
    """Look for few enough directions outside which P is below 0.9τ."""
    cdef size_t size = w.d * w.ld * sizeof(double)
    cdef double along
    held.quiet, held.n_spikes = QUIET, 0
    if w.k.below(held.inverse, w.ld, w.d, tau, w.matrix, w.u):
        return
    memcpy(w.second_matrix, held.inverse, size)
    while held.n_spikes < MOST_SPIKES:
        along = largest_direction(w, w.second_matrix, held.spikes + held.n_spikes * w.ld) - CUT * FLOOR * tau
        if along <= 0:
            break
        scale(held.spikes + held.n_spikes * w.ld, sqrt(along), w.ld)
        w.k.add_outer(w.second_matrix, w.second_matrix, w.ld, held.spikes + held.n_spikes * w.ld, -1.0, w.d)
        held.n_spikes += 1
        if w.k.below(w.second_matrix, w.ld, w.d, FLOOR * tau, w.matrix, w.u):
            return
    held.quiet, held.n_spikes = LOUD, 0


cdef double largest_direction(Work* w, const double* P, double* v) noexcept nogil:
    """A unit vector v near the largest eigenvector, by power iteration from the largest column; returns vᵀPv.
    Any v makes a valid bound: a better one only makes a tighter one."""
    cdef int i, widest = 0, step
    for i in range(w.d):
        if P[i * w.ld + i] > P[widest * w.ld + widest]:
            widest = i
    memcpy(v, P + widest * w.ld, w.ld * sizeof(double))
    for step in range(POWER_STEPS):
        scale(v, 1 / sqrt(w.k.dot(v, v, w.ld)), w.ld)
        w.k.matvec(P, w.ld, v, w.d, w.y)
        if step < POWER_STEPS - 1:
            memcpy(v, w.y, w.ld * sizeof(double))
    return w.k.dot(v, w.y, w.ld)


cdef void scale(double* v, double factor, ptrdiff_t n) noexcept nogil:
    cdef ptrdiff_t i
    for i in range(n):
        v[i] *= factor
