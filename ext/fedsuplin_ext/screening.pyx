"""Which arms stay, which layer plays, which arm: the paper's S-LUCB, and one-layer optimism.

An arg max takes the lowest index among the arms within a relative 1e-9 of the maximum: contexts on the unit sphere make
the first widths equal up to rounding. The screening's own inequalities are as the paper prints them.
"""

from libc.math cimport INFINITY, fabs, sqrt

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
    return numbers.radii[s] + numbers.growth_scale * sqrt(numbers.growth_offset + log_det)


cdef void widths(Work* w, Screen* s, const double* X, ptrdiff_t ldx, int lanes, const Layer* layer, double radius) noexcept nogil:
    """width[a] = α‖x_a‖ in A⁻¹, estimate[a] = θ̂ᵀx_a."""
    cdef int a
    w.k.norms(inverse_of(w, layer), w.ld, theta_of(w, layer), X, ldx, w.d, lanes, s.norm2, s.estimate)
    for a in range(lanes):
        s.width[a] = radius * sqrt(s.norm2[a] if s.norm2[a] > 0 else 0.0)


cdef int first_of_largest(const Screen* s, const double* value, int n, double above) noexcept nogil:
    """The first kept column whose value exceeds `above` and is within a relative 1e-9 of the largest; -1 if there is none."""
    cdef int a
    cdef double largest = -INFINITY
    for a in range(n):
        if s.kept[a] and value[a] > largest:
            largest = value[a]
    for a in range(n):
        if s.kept[a] and value[a] > above and value[a] >= largest - TIE * fabs(largest):
            return a
    return -1


cdef int layered(Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X, const unsigned char* mask, int* layer) noexcept nogil:
    """The arm, and in `layer` the layer that chose it. `mask` is NULL or says which arms there are."""
    cdef const double* columns = X
    cdef int n = s.n_arms, lanes = s.lanes, last = numbers.n_layers - 1, a, q
    cdef double target
    for a in range(n):
        s.arm[a] = a
        s.kept[a] = mask == NULL or mask[a]
    for q in range(numbers.n_layers):
        layer[0] = q
        if q == last and q > 0:  # chosen by estimate alone: no widths needed
            w.k.estimates(theta_of(w, &layers[q]), columns, lanes, w.d, lanes, s.estimate)
        else:
            widths(w, s, columns, lanes, lanes, &layers[q], radius_of(w, numbers, &layers[q], q))
        if q == 0:
            initial_screening(s, n)
        if q == last:
            return s.arm[first_of_largest(s, s.estimate, n, -INFINITY)]
        target = numbers.targets[q]
        a = first_of_largest(s, s.width, n, target)
        if a >= 0:
            return s.arm[a]
        keep_estimates_near_best(s, n, 2 * target)
        columns = compact(w, s, columns, &n, &lanes)
    return -1


cdef void initial_screening(Screen* s, int n) noexcept nogil:
    """Keep a where r̂ + w ≥ max(r̂ − w)."""
    cdef int a
    cdef double best = -INFINITY
    for a in range(n):
        if s.kept[a] and s.estimate[a] - s.width[a] > best:
            best = s.estimate[a] - s.width[a]
    for a in range(n):
        s.kept[a] = s.kept[a] and s.estimate[a] + s.width[a] >= best


cdef void keep_estimates_near_best(Screen* s, int n, double slack) noexcept nogil:
    """Keep a where r̂ ≥ max r̂ − 2w̄."""
    cdef int a
    cdef double best = -INFINITY
    for a in range(n):
        if s.kept[a] and s.estimate[a] > best:
            best = s.estimate[a]
    for a in range(n):
        s.kept[a] = s.kept[a] and s.estimate[a] >= best - slack


cdef const double* compact(Work* w, Screen* s, const double* columns, int* n, int* lanes) noexcept nogil:
    """Move the kept columns side by side where that saves a vector: past layer 0 only they need work."""
    cdef int a, left = 0, new_lanes, i
    for a in range(n[0]):
        left += s.kept[a]
    new_lanes = <int>padded(left)
    if new_lanes == lanes[0]:
        return columns
    left = 0
    for a in range(n[0]):
        if s.kept[a]:
            s.width[left] = a  # the column it comes from; widths are not needed any more
            s.arm[left] = s.arm[a]
            left += 1
    for i in range(w.d):  # in place is safe: a column moves left, and the new rows are no longer than the old
        for a in range(left):
            s.columns[i * new_lanes + a] = columns[i * lanes[0] + <int>s.width[a]]
        for a in range(left, new_lanes):
            s.columns[i * new_lanes + a] = 0.0
    for a in range(left):
        s.kept[a] = 1
    n[0], lanes[0] = left, new_lanes
    return s.columns


cdef int optimism(Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X, const unsigned char* mask) noexcept nogil:
    """arg max of r̂ + w, in the one layer there is."""
    cdef int a, n = s.n_arms
    widths(w, s, X, s.lanes, s.lanes, &layers[0], radius_of(w, numbers, &layers[0], 0))
    for a in range(n):
        s.kept[a] = mask == NULL or mask[a]
        s.width[a] += s.estimate[a]
    return first_of_largest(s, s.width, n, -INFINITY)
