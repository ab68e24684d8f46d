"""Decisions: which arms are kept, which layer plays, and which arm.

Here are the paper's S-LUCB, one-layer optimism, and the view that other policies get.

An arg max takes the lowest index among the arms within a relative 1e-9 of the maximum: contexts on
the unit sphere make the first widths equal up to rounding. The inequalities of the screening are as
the paper prints them.
"""

from libc.math cimport INFINITY, sqrt
from libc.string cimport memcpy

from fedsuplin_ext.certificates cimport note_calm, note_unproved, proves_none_wide, spikes_of
from fedsuplin_ext.norms cimport padded
from fedsuplin_ext.structs cimport Spikes

cdef extern from "proofs.h":
    double FSL_LONGEST

cdef double TIE = 1e-9
cdef int UNDECIDED = -2
cdef int FUSED_LANES = 40            # with more, a pass over the contexts is worth it for one layer


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
        inverse_of(w, layer), w.ld, theta_of(w, layer), columns, s.stride, w.d, lanes,
        radius_of(w, numbers, layer, q), s.width, s.estimate,
    )


cdef int first_of_largest(
    Work* w, const Screen* s, const double* value, int lanes, double above
) noexcept nogil:
    """The first kept column whose value is above `above` and within 1e-9 of the largest, or -1."""
    return w.k.first_of_largest(value, above, TIE, s.out, lanes)


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
    cdef int a, q = 0, expected = s.reached
    begin(s, mask)
    while True:
        if q > 0:
            if q < last and lanes > FUSED_LANES and 2 * padded(w.k, left) <= lanes:
                columns = side_by_side(w, s, columns, &n, &lanes)  # for shorter passes
            q = screen_quiet(w, s, numbers, layers, q, expected, X, columns, lanes, &left)
        layer[0] = s.reached = q
        if q == last and q > 0:
            a = first_of_largest(w, s, s.last_estimates, lanes, -INFINITY)
            return s.arm[a] if a >= 0 else -1
        if q == 0:
            if last == 0 or not stays_whole(w, s, &layers[0], 0):
                a = choose_in_layer_0(w, s, numbers, &layers[0], columns, lanes, &left)
                if a != UNDECIDED:
                    return a
            q += 1
            continue
        if proves_none_wide(w, s, layers[q].held, q, columns, lanes):
            note_calm(w, s, layers[q].held, q)
            w.k.estimates(
                theta_of(w, &layers[q]), columns, s.stride, w.d, lanes, s.estimate
            )
        else:
            if padded(w.k, left) < lanes:  # widths cost enough to move the kept arms side by side
                columns = side_by_side(w, s, columns, &n, &lanes)
            compute_widths(w, s, numbers, &layers[q], q, columns, lanes)
            a = first_of_largest(w, s, s.width, lanes, numbers.targets[q])
            if a >= 0:
                return s.arm[a]
            note_calm(w, s, layers[q].held, q)
            note_unproved(w, s, layers[q].held, q)
        left = w.k.keep_near_best(s.estimate, 2 * numbers.targets[q], s.out, lanes)
        q += 1


cdef int choose_in_layer_0(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layer, const double* X, int lanes,
    int* left,
) noexcept nogil:
    """Choose in layer 0, or return UNDECIDED, with how many arms are left for layer 1.

    -1 if no estimate is finite.
    """
    cdef double target = numbers.targets[0], widest
    cdef int is_last = numbers.n_layers == 1
    compute_widths(w, s, numbers, layer, 0, X, lanes)
    widest = w.k.screen_first(
        s.estimate, s.width, -INFINITY if is_last else target, s.out, lanes, left
    )
    if is_last:
        return first_of_largest(w, s, s.estimate, lanes, -INFINITY)
    if widest > target:
        return first_of_largest(w, s, s.width, lanes, target)
    return UNDECIDED


cdef int stays_whole(const Work* w, const Screen* s, const Layer* layer, int q) noexcept nogil:
    """True if no observation was made in a layer and none of its arms can be wide.

    With A = λI and θ̂ = 0 every estimate is 0 and every width at most α/√λ. If that is below w̄,
    every arm stays, in the initial screening too: 0 + w ≥ max(0 − w).
    """
    return (
        s.fresh and layer.held.fresh and (not w.eager or layer.pending == NULL)
        and layer.held.inverse[0] * FSL_LONGEST * FSL_LONGEST < s.certificates[q].tau
    )


cdef int screen_quiet(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layers, int q, int expected,
    const double* X, const double* columns, int lanes, int* left,
) noexcept nogil:
    """Screen the layers from q on in which spikes prove that no arm is wide.

    Returns the first layer that needs more than estimates, or the last layer with its estimates in
    s.last_estimates. Products are made in one pass over the contexts for all layers up to the
    `expected` one, where the last decision ended, then for one layer at a time.
    """
    cdef int last = numbers.n_layers - 1, n, n_quiet, done, stop
    cdef int to = expected if s.fused and lanes <= FUSED_LANES else q
    while True:
        n_quiet = gather_quiet(w, s, numbers, layers, lanes, &q, max(q, to), &n, &stop)
        if n_quiet == 0:
            return q
        if s.hidden != NULL and s.means == NULL and columns == X:
            s.vectors[0], s.means = s.hidden, s.products
            w.k.products(s.vectors, n + 1, columns, s.stride, w.d, lanes, s.products)
        else:
            w.k.products(
                s.vectors + 1, n, columns, s.stride, w.d, lanes, s.products + s.lanes
            )
        n_quiet -= q > last
        done = w.k.screen(s.quiet, n_quiet, s.out, lanes, left)
        if done < n_quiet:
            return s.layer_of[done]
        if q > last:
            s.last_estimates = s.quiet[n_quiet].estimates
            return last
        if stop:
            return q


cdef int gather_quiet(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layers, int lanes, int* q, int to,
    int* n, int* stop,
) noexcept nogil:
    """List the layers from q to `to` that may be screened by estimates, and their vectors.

    Writes the number of vectors, the layer after the last one listed, and whether that layer has no
    spikes. Layers that stay whole are passed over. Returns the number of layers listed; the last
    layer of all, which has no widths, is one of them.

    The first vector and the first row of products belong to the hidden θ, whose products outlive
    this pass.
    """
    cdef int last = numbers.n_layers - 1, n_quiet = 0, i
    cdef const double** vectors = s.vectors + 1
    cdef double* products = s.products + s.lanes
    cdef const Spikes* spikes
    n[0] = stop[0] = 0
    while q[0] <= last and (q[0] <= to or n_quiet == 0):
        s.quiet[n_quiet].n_spikes = 0
        if q[0] < last:
            if stays_whole(w, s, &layers[q[0]], q[0]):
                q[0] += 1
                continue
            spikes = spikes_of(s, layers[q[0]].held, q[0])
            if spikes == NULL:
                stop[0] = 1
                return n_quiet
            s.quiet[n_quiet].spikes = products + <ptrdiff_t>n[0] * lanes
            s.quiet[n_quiet].n_spikes, s.quiet[n_quiet].room = spikes.n, spikes.room
            for i in range(spikes.n):
                vectors[n[0] + i] = spikes.directions + i * w.ld
            n[0] += spikes.n
        vectors[n[0]] = theta_of(w, &layers[q[0]])
        s.quiet[n_quiet].estimates = products + <ptrdiff_t>n[0] * lanes
        s.quiet[n_quiet].within = 2 * numbers.targets[q[0]]
        s.layer_of[n_quiet] = q[0]
        n[0] += 1
        n_quiet += 1
        q[0] += 1
    return n_quiet


cdef void begin(Screen* s, const unsigned char* mask) noexcept nogil:
    """Start with every available arm, each in its own column."""
    cdef int a
    s.quantised, s.means, s.stride = NULL, NULL, s.round_stride
    memcpy(s.out, s.everyone, s.lanes * sizeof(double))
    if mask != NULL:
        for a in range(s.n_arms):
            if not mask[a]:
                s.out[a] = -INFINITY
    if s.moved:
        s.moved = 0
        for a in range(s.n_arms):
            s.arm[a] = a


cdef const double* side_by_side(
    Work* w, Screen* s, const double* columns, int* n, int* lanes
) noexcept nogil:
    """Move the kept columns side by side: past layer 0 only they need work."""
    cdef int a, left = 0, new_lanes
    s.quantised, s.moved = NULL, 1
    for a in range(n[0]):  # without a branch, which could not be predicted
        s.source[left], s.arm[left] = a, s.arm[a]
        left += s.out[a] == 0
    new_lanes = <int>padded(w.k, left)
    w.k.move_together(
        columns, s.stride, lanes[0], w.d, s.out, s.source, left, s.columns, new_lanes
    )
    for a in range(new_lanes):
        s.out[a] = 0.0 if a < left else -INFINITY
    n[0], lanes[0], s.stride = left, new_lanes, new_lanes
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
    return first_of_largest(w, s, s.width, s.lanes, -INFINITY)


cdef void survey(
    Work* w, Screen* s, const Numbers* numbers, const Layer* layers, const double* X,
    const unsigned char* mask, double* estimates, double* widths,
) noexcept nogil:
    """Write the estimates and widths of every arm in every layer, n_layers × n_arms.

    An arm that is not available has the estimate −∞.
    """
    cdef int a, q, n = s.n_arms
    s.stride = s.round_stride
    for q in range(numbers.n_layers):
        compute_widths(w, s, numbers, &layers[q], q, X, s.lanes)
        for a in range(n):
            if mask == NULL or mask[a]:
                estimates[q * n + a], widths[q * n + a] = s.estimate[a], s.width[a]
            else:
                estimates[q * n + a], widths[q * n + a] = -INFINITY, 0.0
