"""Which arms stay, which layer plays, which arm: the paper's S-LUCB, one-layer optimism, and what other policies are shown.

An arg max takes the lowest index among the arms within a relative 1e-9 of the maximum: contexts on the unit sphere make
the first widths equal up to rounding. The screening's own inequalities are as the paper prints them.
"""

from libc.math cimport INFINITY, fabs, sqrt

from fedsuplin_ext.certificates cimport none_wide, note_calm
from fedsuplin_ext.norms cimport padded

cdef double TIE = 1e-9


cdef const double* inverse_of(const Work* w, const Layer* layer) noexcept nogil:
    """The inverse that decides: the download's (lazy), or with what was gathered since (eager)."""
    return layer.pending.inverse if w.eager and layer.pending != NULL else layer.held.inverse


cdef const double* theta_of(const Work* w, const Layer* layer) noexcept nogil:
    return layer.pending.theta if w.eager and layer.pending != NULL else layer.held.theta


cdef double radius_of(const Work* w, const Numbers* numbers, const Layer* layer, int s) noexcept nogil:
    cdef double log_det
    if numbers.growth_scale == 0:
        return numbers.radii[s]
    log_det = layer.held.log_det + (layer.pending.gain if w.eager and layer.pending != NULL else 0.0)
    return numbers.radii[s] + numbers.growth_scale * sqrt(numbers.growth_offset + max(log_det, 0.0))


cdef void widths(Work* w, Screen* s, const Numbers* numbers, const Layer* layer, int q, const double* columns, int lanes) noexcept nogil:
    """width[a] = α‖x_a‖ in A⁻¹, estimate[a] = θ̂ᵀx_a."""
    w.k.norms(inverse_of(w, layer), w.ld, theta_of(w, layer), columns, lanes, w.d, lanes, radius_of(w, numbers, layer, q), s.width, s.estimate)


cdef int first_of_largest(Work* w, const Screen* s, const double* value, int n, int lanes, double above) noexcept nogil:
    """The first kept column whose value exceeds `above` and is within a relative 1e-9 of the largest; -1 if there is none."""
    cdef int a
    cdef double largest = w.k.largest(value, value, 0.0, s.out, lanes)
    if not largest > above:
        return -1
    for a in range(n):
        if s.out[a] == 0 and value[a] > above and value[a] >= largest - TIE * fabs(largest):
            return a
    return -1


cdef int layered(Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X, const unsigned char* mask, int* layer) noexcept nogil:
    """The arm, and in `layer` the layer that chose it. `mask` is NULL or says which arms there are. -1 if no estimate is finite."""
    cdef const double* columns = X
    cdef int n = s.n_arms, lanes = s.lanes, last = numbers.n_layers - 1, left = s.n_arms, by_estimate, a, q
    cdef double target, best
    begin(s, mask)
    for q in range(numbers.n_layers):
        layer[0] = q
        target = numbers.targets[q]
        by_estimate = q > 0 and (q == last or none_wide(w, s, numbers, layers[q].held, q, columns, lanes))
        if by_estimate:
            w.k.estimates(theta_of(w, &layers[q]), columns, lanes, w.d, lanes, s.estimate)
        else:
            if padded(left) < lanes:  # widths are dear enough to move the kept arms side by side
                columns = side_by_side(w, s, columns, &n, &lanes)
            widths(w, s, numbers, &layers[q], q, columns, lanes)
        if q == 0:
            best = w.k.largest(s.estimate, s.width, -1.0, s.out, lanes)  # keep a where r̂ + w ≥ max(r̂ − w)
            w.k.keep(s.estimate, s.width, 1.0, best, s.out, lanes)
        if q == last:
            a = first_of_largest(w, s, s.estimate, n, lanes, -INFINITY)
            return s.arm[a] if a >= 0 else -1
        if not by_estimate:
            a = first_of_largest(w, s, s.width, n, lanes, target)
            if a >= 0:
                return s.arm[a]
            if q > 0:  # layer 0 needs its widths for the initial screening in any case
                note_calm(w, s, numbers, layers[q].held, q)
        best = w.k.largest(s.estimate, s.estimate, 0.0, s.out, lanes)  # keep a where r̂ ≥ max r̂ − 2w̄
        left = w.k.keep(s.estimate, s.estimate, 0.0, best - 2 * target, s.out, lanes)
    return -1


cdef void begin(Screen* s, const unsigned char* mask) noexcept nogil:
    """Every arm that there is, in its own column."""
    cdef int a
    for a in range(s.n_arms):
        s.arm[a] = a
        s.out[a] = 0.0 if mask == NULL or mask[a] else -INFINITY
    for a in range(s.n_arms, s.lanes):
        s.out[a] = -INFINITY


cdef const double* side_by_side(Work* w, Screen* s, const double* columns, int* n, int* lanes) noexcept nogil:
    """Move the kept columns side by side: past layer 0 only they need work."""
    cdef int a, i, left = 0, new_lanes
    for a in range(n[0]):
        if s.out[a] == 0:
            s.source[left], s.arm[left] = a, s.arm[a]
            left += 1
    new_lanes = <int>padded(left)
    for i in range(w.d):  # in place is safe: a column moves left, and the new rows are no longer than the old
        for a in range(left):
            s.columns[i * new_lanes + a] = columns[i * lanes[0] + s.source[a]]
        for a in range(left, new_lanes):
            s.columns[i * new_lanes + a] = 0.0
    for a in range(new_lanes):
        s.out[a] = 0.0 if a < left else -INFINITY
    n[0], lanes[0] = left, new_lanes
    return s.columns


cdef int optimism(Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X, const unsigned char* mask) noexcept nogil:
    """arg max of r̂ + w, in the one layer there is. -1 if none is finite."""
    cdef int a
    begin(s, mask)
    widths(w, s, numbers, &layers[0], 0, X, s.lanes)
    for a in range(s.lanes):
        s.width[a] += s.estimate[a]
    return first_of_largest(w, s, s.width, s.n_arms, s.lanes, -INFINITY)


cdef void survey(Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X, const unsigned char* mask, double* estimates, double* widths_) noexcept nogil:
    """Estimates and widths of every arm in every layer, n_layers × n_arms; an arm that is not there has the estimate −∞."""
    cdef int a, q, n = s.n_arms
    for q in range(numbers.n_layers):
        widths(w, s, numbers, &layers[q], q, X, s.lanes)
        for a in range(n):
            if mask == NULL or mask[a]:
                estimates[q * n + a], widths_[q * n + a] = s.estimate[a], s.width[a]
            else:
                estimates[q * n + a], widths_[q * n + a] = -INFINITY, 0.0
