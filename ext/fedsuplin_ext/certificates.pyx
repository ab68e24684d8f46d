"""Proofs that no arm of a layer is wide: exact shortcuts that spare most widths.

A layer past the first needs its widths for one question: is any kept arm wider than w̄? With
τ = (w̄/α)² that is xᵀPx > τ. Once a layer has gathered enough the answer stays no for long, and a
proof of it costs less than the widths. There are two kinds.

Spikes. For any few directions u,

    xᵀPx = xᵀ(P − Σ u uᵀ)x + Σ (uᵀx)² ≤ f + Σ (uᵀx)²

if every eigenvalue of P − Σ u uᵀ is below the floor f and ‖x‖ ≤ 1. The best directions are along
the largest eigenvectors of P; none are needed when P itself is below τ. Σ (uᵀx)² has the room
τ − f. More directions allow a lower floor, so more room; they also cost more. An examination
takes as few as promise to leave enough room, and one more each time that they did not.

Panels. xᵀPx itself in 16-bit fixed point, with a bound on every rounding: proofs_body.h.

A only grows, so a proof for a snapshot holds for every later one that grew out of it, and for what
a client adds to its own. Snapshots have the number of a certificate, which is handed on when one
grows out of another; a layer keeps the latest certificates, and an older number is worth nothing.
Where no proof is found the widths are computed: the decision is always the same.
"""

import numpy as np

from fedsuplin_ext.norms import aligned_zeros

from libc.math cimport log, sqrt
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from fedsuplin_ext.norms cimport KernelSet, padded, pick
from fedsuplin_ext.structs cimport KEPT, LOUD, MOST_SPIKES, UNKNOWN

cdef extern from "proofs.h":
    double FSL_LONGEST
    ctypedef struct FixedPoint "fsl_fixed_point":
        double centre
        double scale
        double error
    ptrdiff_t fsl_panel_size(int d) noexcept nogil
    int fsl_fix_point(
        const double* P, ptrdiff_t ldp, int d, int32_t* panel, FixedPoint* fixed
    ) noexcept nogil

cdef double ROUNDING = 2e-5          # share of τ left for the rounding of widths in doubles
cdef double CUT = 0.9                # share of the floor to which a spike is cut: the lower, the
                                     # larger its (uᵀx)²
cdef double ABOVE = 1.05             # a floor, over the largest eigenvalue that is left
cdef double HIGHEST_FLOOR = 0.95     # share of τ
cdef int POWER_STEPS = 24
cdef int LONGEST_WAIT = 64


cdef ptrdiff_t panel_size(int d) noexcept nogil:
    """The number of 32-bit integers of a panel."""
    return fsl_panel_size(d)


cdef double threshold(const Numbers* numbers, int q) noexcept nogil:
    """τ = (w̄/α)², slightly reduced to be safe; 0 where the radius grows or is 0."""
    cdef double ratio
    if numbers.growth_scale != 0 or numbers.radii[q] == 0:
        return 0.0
    ratio = numbers.targets[q] / numbers.radii[q]
    return ratio * ratio * (1 - ROUNDING)


# --- asking a certificate -------------------------------------------------------------------------

cdef const Spikes* spikes_of(const Screen* s, const Snapshot* held, int q) noexcept nogil:
    """The certificate with spikes that a snapshot has, or NULL."""
    cdef const Spikes* found
    if held.quiet <= 0:
        return NULL
    found = &s.certificates[q].spikes[held.quiet % KEPT]
    return found if found.number == held.quiet else NULL


cdef int proves_none_wide(
    Work* w, Screen* s, const Snapshot* held, int q, const double* columns, int lanes
) noexcept nogil:
    """True if a panel proves that no kept arm is wider than the target of layer q.

    After a panel that failed, the next decisions do without: mostly there is a wide arm then.
    """
    cdef Certificates* c = s.certificates + q
    cdef const Panel* panel
    cdef int to
    if held.panel == UNKNOWN:
        return 0
    panel = &c.panels[held.panel % KEPT]
    if panel.number != held.panel:
        return 0
    if c.wait > 0:
        c.wait -= 1
        return 0
    to = (lanes + w.k.proofs.lanes - 1) // w.k.proofs.lanes * w.k.proofs.lanes
    if s.quantised != columns:
        w.k.proofs.quantise(columns, s.stride, lanes, w.d, s.pairs, s.singles, to)
        s.quantised = columns
    w.k.proofs.forms(panel.pairs, s.pairs, s.singles, to, w.d, s.form)
    if w.k.proofs.largest_form(s.form, s.out, lanes) < panel.limit:
        c.misses = 0
        return 1
    c.wait, c.misses = c.misses, min(2 * c.misses + 1, LONGEST_WAIT)
    return 0


# --- making one -----------------------------------------------------------------------------------

cdef void note_calm(Work* w, Screen* s, Snapshot* held, int q) noexcept nogil:
    """Count a decision in which no arm of layer q was wide; look for spikes after enough of them.

    Each examination doubles the patience, so that all of them together cost little.
    """
    cdef Certificates* c = s.certificates + q
    cdef Spikes* made
    if held.quiet == LOUD or c.tau <= 0:
        return
    c.calm += 1
    if c.calm < c.patience:
        return
    c.calm, c.patience = 0, min(2 * c.patience, s.most_patience)
    if spikes_of(s, held, q) != NULL:  # it has spikes, and they did not leave enough room
        c.least = min(c.least + 1, MOST_SPIKES)
    made = &c.spikes[(s.numbers + 1) % KEPT]
    made.number = UNKNOWN
    if find_spikes(w, made, held.inverse, c.tau, c.least, s.n_arms):
        s.numbers += 1
        made.number = held.quiet = s.numbers
        s.server[q].quiet = s.numbers  # the server's newest grew out of this one, or is this one
    elif spikes_of(s, held, q) == NULL:
        held.quiet = LOUD


cdef void note_unproved(Work* w, Screen* s, Snapshot* held, int q) noexcept nogil:
    """Count a decision without a wide arm that no panel proved; make one after enough of them."""
    cdef Certificates* c = s.certificates + q
    cdef Panel* made
    cdef FixedPoint fixed
    if not s.proofs or c.tau <= 0:
        return
    c.unproved += 1
    if c.unproved < c.panel_patience:
        return
    c.unproved, c.panel_patience = 0, min(2 * c.panel_patience, s.most_patience)
    made = &c.panels[(s.numbers + 1) % KEPT]
    made.number = UNKNOWN
    if not fsl_fix_point(held.inverse, w.ld, w.d, made.pairs, &fixed):
        return
    made.limit = (c.tau - offset_of(&fixed)) * fixed.scale  # offset + form/scale < τ
    if not made.limit > 0:  # the forms of random contexts are as often above 0 as below
        return
    s.numbers += 1
    made.number = held.panel = s.numbers
    s.server[q].panel = s.numbers


cdef double offset_of(const FixedPoint* fixed) noexcept nogil:
    """cN² + error: xᵀPx is at most this, plus form/scale."""
    return fixed.centre * FSL_LONGEST * FSL_LONGEST + fixed.error


def bound_forms(inverse, contexts, kernels=None):
    """Upper bounds of xᵀPx for each column x of `contexts` (d × K), as panels prove them.

    None if P, of which the lower triangle is read, can't be scaled: an entry is not finite or too
    large, or all are 0 or too small.
    """
    cdef const KernelSet* k = pick(kernels)
    cdef const double[:, ::1] P = np.ascontiguousarray(inverse, np.float64)
    cdef int d = P.shape[0], n, lanes, to
    if d == 0 or P.shape[1] != d or np.ndim(contexts) != 2 or len(contexts) != d:
        raise ValueError(
            f"a {d} × {P.shape[1]} inverse needs to be square, and contexts of {d} rows"
        )
    n = np.shape(contexts)[1]
    if n == 0 or not np.linalg.norm(contexts, axis=0).max() <= FSL_LONGEST:
        raise ValueError(f"there must be contexts, none of them longer than {FSL_LONGEST}")
    lanes, to = padded(k, n), k.proofs.lanes
    to = (lanes + to - 1) // to * to
    columns = aligned_zeros(d, lanes)
    columns[:, :n] = contexts
    cdef const double[:, ::1] X = columns
    cdef int32_t[::1] panel = np.zeros(fsl_panel_size(d), np.int32)
    cdef Py_ssize_t rows = (d + 3) // 4 * 4
    cdef int32_t[::1] pairs = np.zeros(rows // 2 * to, np.int32)
    cdef float[::1] singles = np.zeros(rows * to, np.float32)
    form = np.zeros(to, np.float32)
    cdef float[::1] form_view = form
    cdef FixedPoint fixed
    if not fsl_fix_point(&P[0, 0], d, d, &panel[0], &fixed):
        return None
    k.proofs.quantise(&X[0, 0], lanes, lanes, d, &pairs[0], &singles[0], to)
    k.proofs.forms(&panel[0], &pairs[0], &singles[0], to, d, &form_view[0])
    return offset_of(&fixed) + form[:n].astype(np.float64) / fixed.scale


cdef int find_spikes(
    Work* w, Spikes* made, const double* P, double tau, int least, int n_arms
) noexcept nogil:
    """Look for few directions such that P without them is below a floor that leaves them room."""
    cdef size_t size = w.d * w.ld * sizeof(double)
    cdef double[MOST_SPIKES] along
    cdef double total = 0.0, largest, floor, reach
    cdef double* spike
    cdef int n
    if below_threshold(w, P, tau):
        made.n, made.room = 0, 0.0
        return 1
    # The largest (vᵀx)² of a unit vector v over random contexts of n_arms arms is about this.
    reach = min(1.0, (1 + 2 * log(1 + n_arms)) / w.d)
    memcpy(w.second_matrix, P, size)
    for n in range(MOST_SPIKES + 1):
        spike = w.v if n == MOST_SPIKES else made.directions + n * w.ld
        largest = largest_direction(w, w.second_matrix, spike)
        if not largest > 0:
            return 0
        floor = ABOVE * largest
        if (
            n >= max(1, least) and floor < HIGHEST_FLOOR * tau
            and (total - n * CUT * floor) * reach < tau - floor
        ):
            return cut_spikes(w, made, P, tau, floor, along, n)
        if n < MOST_SPIKES:
            along[n] = largest
            total += largest
            scale(spike, sqrt(largest), w.ld)
            w.k.add_outer(w.second_matrix, w.second_matrix, w.ld, spike, -1.0, w.d)
            scale(spike, 1 / sqrt(largest), w.ld)
    return 0


def find_directions(inverse, double tau, int least=0, int n_arms=1, kernels=None):
    """The spikes (rows) and their room that an examination of P finds for τ, or None."""
    cdef const double[:, ::1] given = np.ascontiguousarray(inverse, np.float64)
    cdef Work w
    cdef Spikes made
    if not 0 < len(given) == given.shape[1]:
        raise ValueError(f"the inverse must be square, not {given.shape[0]} × {given.shape[1]}")
    w.d, w.k = <int>given.shape[0], pick(kernels)
    w.ld = padded(w.k, w.d)
    P = aligned_zeros(w.d, w.ld)
    P[:, : w.d] = given
    room = aligned_zeros(2 * w.d + 3 + MOST_SPIKES, w.ld)
    cdef double[:, ::1] from_P = P, to = room
    w.matrix, w.second_matrix = &to[0, 0], &to[w.d, 0]
    w.v, w.y, w.u = &to[2 * w.d, 0], &to[2 * w.d + 1, 0], &to[2 * w.d + 2, 0]
    made.directions = &to[2 * w.d + 3, 0]
    if not find_spikes(&w, &made, &from_P[0, 0], tau, least, n_arms):
        return None
    return room[2 * w.d + 3 : 2 * w.d + 3 + made.n, : w.d], made.room


cdef int cut_spikes(
    Work* w, Spikes* made, const double* P, double tau, double floor, const double* along, int n
) noexcept nogil:
    """Scale n unit vectors to spikes, and check that P without them is below the floor."""
    cdef int i
    memcpy(w.second_matrix, P, w.d * w.ld * sizeof(double))
    for i in range(n):
        scale(made.directions + i * w.ld, sqrt(max(along[i] - CUT * floor, 0.0)), w.ld)
        w.k.add_outer(
            w.second_matrix, w.second_matrix, w.ld, made.directions + i * w.ld, -1.0, w.d
        )
    made.n, made.room = n, tau - floor * FSL_LONGEST * FSL_LONGEST
    return w.k.below(w.second_matrix, w.ld, w.d, floor, w.matrix, w.u)


cdef int below_threshold(Work* w, const double* P, double tau) noexcept nogil:
    """True if no context at all can be wide."""
    return w.k.below(P, w.ld, w.d, tau / (FSL_LONGEST * FSL_LONGEST), w.matrix, w.u)


cdef double largest_direction(Work* w, const double* P, double* v) noexcept nogil:
    """Write a unit vector near the largest eigenvector of P into v; return vᵀPv.

    Power iteration from the largest column. Any v gives a valid bound, a better v a tighter one.
    """
    cdef int i, widest = 0, step
    cdef double length
    for i in range(w.d):
        if P[i * w.ld + i] > P[widest * w.ld + widest]:
            widest = i
    memcpy(v, P + widest * w.ld, w.ld * sizeof(double))
    for step in range(POWER_STEPS):
        length = w.k.dot(v, v, w.ld)
        if not length > 0:
            return 0.0
        scale(v, 1 / sqrt(length), w.ld)
        w.k.matvec(P, w.ld, v, w.d, w.y)
        if step < POWER_STEPS - 1:
            memcpy(v, w.y, w.ld * sizeof(double))
    return w.k.dot(v, w.y, w.ld)


cdef void scale(double* v, double factor, ptrdiff_t n) noexcept nogil:
    """v ← factor·v."""
    cdef ptrdiff_t i
    for i in range(n):
        v[i] *= factor
