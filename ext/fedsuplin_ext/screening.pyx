"""Decisions: which arms are kept, which layer plays, and which arm.

Here are the paper's S-LUCB, one-layer optimism, and the view that other policies get.

An arg max takes the lowest index among the arms within a relative 1e-9 of the maximum: contexts on
the unit sphere make the first widths equal up to rounding. The inequalities of the screening are as
the paper prints them.
"""

from libc.math cimport INFINITY, fabs, sqrt

from fedsuplin_ext.certificates cimport none_wide, note_calm
from fedsuplin_ext.norms cimport padded

cdef double TIE = 1e-9


cdef const double* inverse_of(const Work* w, const Layer* layer) noexcept nogil:
    """P of the download (lazy), or (A+ΔA)⁻¹ with what was gathered since (eager)."""
    return layer.pending.inverse if w.eager and layer.pending != NULL else layer.held.inverse


cdef const double* theta_of(const Work* w, const Layer* layer) noexcept nogil:
    """θ̂ that goes with `inverse_of`."""
    return layer.pending.theta if w.eager and layer.pending != NULL else layer.held.theta


cdef double radius_of(
    const Work* w, const Numbers* numbers, const Layer* layer, int q
) noexcept nogil:
    """α_q, or α_q + scale·√(offset + ln det A/det λI) where the radius grows."""
    cdef double log_det
    if numbers.growth_scale == 0:
        return numbers.radii[q]
    log_det = layer.held.log_det
    if w.eager and layer.pending != NULL:
        log_det += layer.pending.gain
    return numbers.radii[q] + numbers.growth_scale * sqrt(numbers.growth_offset + max(log_det, 0.0))


cdef void compute_widths(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layer, int q,
    const double* columns, int lanes,
) noexcept nogil:
    """width[a] = α √(x_aᵀP x_a), estimate[a] = θ̂ᵀx_a."""
    w.k.norms(
        inverse_of(w, layer), w.ld, theta_of(w, layer), columns, lanes, w.d, lanes,
        radius_of(w, numbers, layer, q), s.width, s.estimate,
    )


cdef int first_of_largest(
    Work* w, const Screen* s, const double* value, int n, int lanes, double above
) noexcept nogil:
    """The first kept column whose value is above `above` and within 1e-9 of the largest, or -1."""
    cdef int a
    cdef double largest = w.k.largest(value, value, 0.0, s.out, lanes)
    if not largest > above:
        return -1
    for a in range(n):
        if s.out[a] == 0 and value[a] > above and value[a] >= largest - TIE * fabs(largest):
            return a
    return -1


cdef int choose_layered(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X,
    const unsigned char* mask, int* layer,
) noexcept nogil:
    """Choose an arm by layered elimination, and write the layer that chose it; -1 if no estimate is
    finite.

    `mask` is NULL, or not 0 for the arms that are available.
    """
    cdef const double* columns = X
    cdef int n = s.n_arms, lanes = s.lanes, last = numbers.n_layers - 1, left = s.n_arms
    cdef int by_estimate, a, q
    cdef double target, best
    begin(s, mask)
    for q in range(numbers.n_layers):
        layer[0] = q
        target = numbers.targets[q]
        by_estimate = q > 0 and (
            q == last or none_wide(w, s, numbers, layers[q].held, q, columns, lanes)
        )
        if by_estimate:
            w.k.estimates(theta_of(w, &layers[q]), columns, lanes, w.d, lanes, s.estimate)
        else:
            if padded(left) < lanes:  # widths cost enough to move the kept arms side by side first
                columns = side_by_side(w, s, columns, &n, &lanes)
            compute_widths(w, s, numbers, &layers[q], q, columns, lanes)
        if q == 0:
            # keep a where r̂ + w ≥ max(r̂ − w)
            best = w.k.largest(s.estimate, s.width, -1.0, s.out, lanes)
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
        # keep a where r̂ ≥ max r̂ − 2w̄
        best = w.k.largest(s.estimate, s.estimate, 0.0, s.out, lanes)
        left = w.k.keep(s.estimate, s.estimate, 0.0, best - 2 * target, s.out, lanes)
    return -1


cdef void begin(Screen* s, const unsigned char* mask) noexcept nogil:
    """Start with every available arm, each in its own column."""
    cdef int a
    for a in range(s.n_arms):
        s.arm[a] = a
        s.out[a] = 0.0 if mask == NULL or mask[a] else -INFINITY
    for a in range(s.n_arms, s.lanes):
        s.out[a] = -INFINITY


cdef const double* side_by_side(
    Work* w, Screen* s, const double* columns, int* n, int* lanes
) noexcept nogil:
    """Move the kept columns side by side: past layer 0 only they need work."""
    cdef int a, i, left = 0, new_lanes
    for a in range(n[0]):
        if s.out[a] == 0:
            s.source[left], s.arm[left] = a, s.arm[a]
            left += 1
    new_lanes = <int>padded(left)
    # In place is safe: a column moves left, and the new rows are no longer than the old ones.
    for i in range(w.d):
        for a in range(left):
            s.columns[i * new_lanes + a] = columns[i * lanes[0] + s.source[a]]
        for a in range(left, new_lanes):
            s.columns[i * new_lanes + a] = 0.0
    for a in range(new_lanes):
        s.out[a] = 0.0 if a < left else -INFINITY
    n[0], lanes[0] = left, new_lanes
    return s.columns


cdef int choose_optimistic(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X,
    const unsigned char* mask,
) noexcept nogil:
    """arg max r̂ + w in layer 0, the only one; -1 if no value is finite."""
    cdef int a
    begin(s, mask)
    compute_widths(w, s, numbers, &layers[0], 0, X, s.lanes)
    for a in range(s.lanes):
        s.width[a] += s.estimate[a]
    return first_of_largest(w, s, s.width, s.n_arms, s.lanes, -INFINITY)


cdef void survey(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X,
    const unsigned char* mask, double* estimates, double* widths,
) noexcept nogil:
    """Write the estimates and widths of every arm in every layer, n_layers × n_arms.

    An arm that is not available has the estimate −∞.
    """
    cdef int a, q, n = s.n_arms
    for q in range(numbers.n_layers):
        compute_widths(w, s, numbers, &layers[q], q, X, s.lanes)
        for a in range(n):
            if mask == NULL or mask[a]:
                estimates[q * n + a], widths[q * n + a] = s.estimate[a], s.width[a]
            else:
                estimates[q * n + a], widths[q * n + a] = -INFINITY, 0.0
