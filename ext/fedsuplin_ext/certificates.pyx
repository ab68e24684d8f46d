"""Proofs that no arm of a layer is wide: an exact shortcut that spares most widths.

A layer past the first needs its widths for one question: is any kept arm wider than w̄? With
τ = (w̄/α)² that is xᵀPx > τ. Once a layer has gathered enough the answer stays no for long, and a
proof of it costs far less than the widths:

    xᵀPx = xᵀ(P − Σ u uᵀ)x + Σ (uᵀx)² ≤ 0.9τ + Σ (uᵀx)²

if every eigenvalue of P − Σ u uᵀ is below 0.9τ and ‖x‖ ≤ 1. It holds for any few directions u, here
called spikes. The best are along the largest eigenvectors of P; none are needed when P itself is
below τ. A snapshot with such spikes is called quiet.

A only grows, so the proof holds for every later snapshot, and for what a client adds to its own.
Where the right side is not below τ, the widths are computed: the decision is always the same.
"""

from libc.math cimport sqrt
from libc.string cimport memcpy

from fedsuplin_ext.structs cimport LOUD, MOST_SPIKES, QUIET

cdef double LONGEST = 1 + 1e-5       # no context is longer: problems allow 1 + 1e-6
cdef double FLOOR = 0.9              # share of τ for what is left without the spikes
cdef double CUT = 0.9                # share of that to which a spike is cut: the lower, the larger
                                     # its (uᵀx)²
cdef int POWER_STEPS = 24
cdef int MOST_PATIENCE = 4096


cdef double threshold(const Numbers* numbers, int q) noexcept nogil:
    """τ = (w̄/α)², slightly reduced to be safe."""
    cdef double ratio = numbers.targets[q] / (LONGEST * numbers.radii[q])
    return ratio * ratio


cdef int none_wide(
    Work* w, Screen* s, const Numbers* numbers, const Snapshot* held, int q,
    const double* columns, int lanes,
) noexcept nogil:
    """True if it is certain that no kept arm is wider than the target of layer q."""
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


cdef void note_calm(
    Work* w, Screen* s, const Numbers* numbers, Snapshot* held, int q
) noexcept nogil:
    """Count a decision in which no arm of layer q was wide; examine the layer after enough of them.

    Each examination doubles the patience, so that all of them together cost little.
    """
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
    """Look for at most MOST_SPIKES directions such that P without them is below 0.9τ."""
    cdef size_t size = w.d * w.ld * sizeof(double)
    cdef double along
    cdef double* spike
    held.quiet, held.n_spikes = QUIET, 0
    if w.k.below(held.inverse, w.ld, w.d, tau, w.matrix, w.u):
        return
    memcpy(w.second_matrix, held.inverse, size)
    while held.n_spikes < MOST_SPIKES:
        spike = held.spikes + held.n_spikes * w.ld
        along = largest_direction(w, w.second_matrix, spike) - CUT * FLOOR * tau
        if along <= 0:
            break
        scale(spike, sqrt(along), w.ld)
        w.k.add_outer(w.second_matrix, w.second_matrix, w.ld, spike, -1.0, w.d)
        held.n_spikes += 1
        if w.k.below(w.second_matrix, w.ld, w.d, FLOOR * tau, w.matrix, w.u):
            return
    held.quiet, held.n_spikes = LOUD, 0


cdef double largest_direction(Work* w, const double* P, double* v) noexcept nogil:
    """Write a unit vector near the largest eigenvector of P into v; return vᵀPv.

    Power iteration from the largest column. Any v gives a valid bound, a better v a tighter one.
    """
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
