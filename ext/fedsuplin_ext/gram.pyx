"""Weighted rank-one updates of ΔA, Δb, the inverse and the log-det gain; merges into the server.

Few observations are cheaper as vectors than as matrices, and most uploads hold few. So a client's Δ
begins as a list of vectors and becomes a matrix only when the list is full. The inverse of an eager
client, which decides from its own inverse, is a matrix from the first observation on.

The server's newest snapshot has A; an older one that lazy clients still hold has only P. A client
that must factorise A+ΔA on top of such a snapshot takes A = P⁻¹. That costs no digits that count:
P A = I + E with ‖E‖ ≈ d·ε·κ for either matrix as the inverse of the other, so the sum of both
errors is at most twice the error of any factorisation here, and `check_precision`, which is the
same for A and P exchanged, refuses what has too few digits.

An inverse follows by rank-one steps. It is factorised anew every `refresh` steps, which bounds its
drift, and the drift is measured each time. A step after which a direction is known much better than
before cancels digits of the inverse; after such a step it is factorised at once.

Functions that can fail return 0 on success, TOO_LARGE when sums or estimates are no longer finite,
and any other number when a matrix is not positive definite or too nearly singular to be inverted
with enough digits. The symbols are explained in structs.pxd.
"""

from libc.math cimport fabs, isfinite, log, log1p, sqrt
from libc.string cimport memcpy, memset

from fedsuplin_ext.pool cimport list_capacity, place, take_sums
from fedsuplin_ext.structs cimport LOUD, MATRICES, TOO_LARGE, UNKNOWN

cdef int NOT_DEFINITE = 1            # returned where no single pivot failed
cdef double ROUNDING = 1e-15
cdef double EPSILON = 2.0 ** -52
cdef double PRECISION = 1e-4         # the relative error that an inverse may have
cdef double HUGE = 1e150             # with λ ≥ 1e-100, b and θ̂ stay finite below this ω r
cdef double STEEP = log(1e3)         # the gain of a step that costs three digits


cdef int factorise(Work* w, const double* gram, double* inverse, double* log_det) noexcept nogil:
    """inverse = gram⁻¹ and log_det = ln det gram − ln det λI, from scratch."""
    cdef int info
    memcpy(inverse, gram, w.d * w.ld * sizeof(double))
    info = w.k.invert(inverse, w.ld, w.d, w.u, log_det)
    log_det[0] -= w.log_det_ridge
    return info if info != 0 else check_precision(w, gram, inverse)


cdef int check_precision(
    const Work* w, const double* gram, const double* inverse
) noexcept nogil:
    """Return 0 if a fresh inverse has a relative error below PRECISION.

    That error is about d·ε·max A_ii P_ii, whatever the scale of each coordinate: A_ii P_ii is 1
    where coordinate i is independent of the others, and ∞ where it is a combination of them.
    """
    cdef ptrdiff_t i
    for i in range(w.d):
        if not w.d * EPSILON * gram[i * w.ld + i] * inverse[i * w.ld + i] <= PRECISION:
            return w.d + 1
    return 0


cdef int replace_inverse(
    Work* w, const double* gram, double* inverse, double* log_det
) noexcept nogil:
    """`factorise`, and measure how far the replaced inverse had drifted.

    A drift beyond PRECISION is an error.
    """
    cdef ptrdiff_t i
    cdef double most = 0.0, largest = 0.0, drift
    cdef int info
    memcpy(w.second_matrix, inverse, w.d * w.ld * sizeof(double))
    info = factorise(w, gram, inverse, log_det)
    if info != 0:
        return info
    for i in range(w.d * w.ld):
        most = max(most, fabs(inverse[i] - w.second_matrix[i]))
        largest = max(largest, fabs(inverse[i]))
    drift = most / largest
    w.drift = max(w.drift, drift)
    return 0 if drift <= PRECISION else w.d + 1


cdef int is_finite(const Work* w, const double* vector) noexcept nogil:
    """True if every entry is finite: 0·∞ and 0·NaN are NaN."""
    return w.k.dot(vector, w.zero, w.ld) == 0


cdef double deflate(Work* w) noexcept nogil:
    """u = y/√(1 + vᵀy), so that P − u uᵀ = (P⁻¹ + v vᵀ)⁻¹; returns ln(1 + vᵀy).

    v and y = P v are read from the workspace, u is written there.
    """
    cdef ptrdiff_t i
    cdef double excess = w.k.dot(w.v, w.y, w.ld)
    cdef double scale
    excess = 0.0 if excess < 0 else excess  # NaN stays NaN
    scale = 1.0 / sqrt(1.0 + excess)
    for i in range(w.ld):
        w.u[i] = scale * w.y[i]
    return log1p(excess)


# --- a client observes ----------------------------------------------------------------------------

cdef int observe(
    Work* w, const Snapshot* held, Pending* p, const double* x, const double* Px,
    double weight, double reward,
) noexcept nogil:
    """ΔA += ω x xᵀ, Δb += ω r x, gain += ln(1 + ω xᵀ(A+ΔA)⁻¹x).

    `Px` is x times the inverse that the decision used.
    """
    cdef ptrdiff_t i
    cdef double root = sqrt(weight), gain
    cdef int info = 0
    make_room(w, held, p)
    for i in range(w.ld):
        w.v[i] = root * x[i]
    add_reward(w, p, root * reward)
    if not p.own and (w.eager or p.n == w.keep):
        form_inverse(w, held, p)
    if not p.dense and p.n == w.keep:
        form_delta(w, p)
    gain = step_inverse(w, p, Px, root)
    p.gain += gain
    step_delta(w, p)
    if not isfinite(p.gain):
        return NOT_DEFINITE
    if gain > STEEP or (p.own and p.age >= w.refresh):
        info = refresh_client(w, held, p, gain > STEEP)
    if w.eager and info == 0:
        client_theta(w, held, p)
    if info == 0 and fabs(weight * reward) > HUGE:  # P only shrinks: nothing else can overflow
        if not is_finite(w, delta_moment_of(w, p)) or (w.eager and not is_finite(w, p.theta)):
            info = TOO_LARGE
    return info


cdef void make_room(Work* w, const Snapshot* held, Pending* p) noexcept nogil:
    """Make room for one more observation in the list, or for matrices where it is full.

    The second observation needs the u of the first, which was not kept.
    """
    if p.size != MATRICES and p.n == list_capacity(w.store, p.size):
        place(w.store, p, MATRICES if p.n == w.keep else p.size + 1)
    if p.n == 1 and not p.own:
        memcpy(w.v, p.delta, w.ld * sizeof(double))
        w.k.matvec(held.inverse, w.ld, w.v, w.d, w.y)
        deflate(w)
        memcpy(p.inverse, w.u, w.ld * sizeof(double))


cdef void add_reward(Work* w, Pending* p, double coefficient) noexcept nogil:
    """Δb += c v, or one more c; v is read from the workspace."""
    cdef ptrdiff_t i
    if p.size != MATRICES:
        p.delta_moment[p.n] = coefficient
        return
    for i in range(w.ld):
        p.delta_moment[i] += coefficient * w.v[i]


cdef const double* delta_moment_of(Work* w, const Pending* p) noexcept nogil:
    """Δb, as it is kept or as Σ c v in the workspace."""
    cdef ptrdiff_t i, j
    if p.size == MATRICES:
        return p.delta_moment
    memset(w.sum, 0, w.ld * sizeof(double))
    for j in range(p.n):
        for i in range(w.ld):
            w.sum[i] += p.delta_moment[j] * p.delta[j * w.ld + i]
    return w.sum


cdef void form_inverse(Work* w, const Snapshot* held, Pending* p) noexcept nogil:
    """(A+ΔA)⁻¹ = P − Σ u uᵀ as a matrix, in the memory of the vectors."""
    cdef size_t size = w.d * w.ld * sizeof(double)
    cdef ptrdiff_t j
    memcpy(w.matrix, held.inverse, size)
    for j in range(p.n):
        w.k.add_outer(w.matrix, w.matrix, w.ld, p.inverse + j * w.ld, -1.0, w.d)
    memcpy(p.inverse, w.matrix, size)
    p.own, p.age = 1, held.age + p.n


cdef void form_delta(Work* w, Pending* p) noexcept nogil:
    """ΔA = Σ v vᵀ as a matrix, in the memory of the vectors."""
    cdef size_t size = w.d * w.ld * sizeof(double)
    memset(w.matrix, 0, size)
    add_delta(w, w.matrix, p)
    memcpy(p.delta, w.matrix, size)
    p.dense = 1


cdef double step_inverse(Work* w, Pending* p, const double* Px, double root) noexcept nogil:
    """y = (A+ΔA)⁻¹v, then (A+ΔA)⁻¹ − u uᵀ as a matrix or as one more u; returns the gain."""
    cdef ptrdiff_t i, j
    cdef double along, gain
    cdef double* u
    if p.own and not w.eager:
        w.k.matvec(p.inverse, w.ld, w.v, w.d, w.y)
    else:
        for i in range(w.ld):
            w.y[i] = root * Px[i]
    if not p.own:  # Px was with the download's P: (A+ΔA)⁻¹v = P v − Σ u_j (u_jᵀ v)
        for j in range(p.n):
            u = p.inverse + j * w.ld
            along = w.k.dot(u, w.v, w.ld)
            for i in range(w.ld):
                w.y[i] -= along * u[i]
    gain = deflate(w)
    if p.own:
        w.k.add_outer(p.inverse, p.inverse, w.ld, w.u, -1.0, w.d)
        p.age += 1
    elif p.n > 0:
        memcpy(p.inverse + p.n * w.ld, w.u, w.ld * sizeof(double))
    return gain


cdef void step_delta(Work* w, Pending* p) noexcept nogil:
    """ΔA + v vᵀ, as a matrix or as one more v."""
    if p.dense:
        w.k.add_outer_upper(p.delta, p.delta, w.ld, w.v, 1.0, w.d)
    else:
        memcpy(p.delta + p.n * w.ld, w.v, w.ld * sizeof(double))
        p.n += 1


cdef void add_delta(Work* w, double* gram, const Pending* p) noexcept nogil:
    """gram += ΔA."""
    cdef ptrdiff_t i, j
    if p.dense:
        for i in range(w.d * w.ld):
            gram[i] += p.delta[i]
    else:
        for j in range(p.n):
            w.k.add_outer_upper(gram, gram, w.ld, p.delta + j * w.ld, 1.0, w.d)


cdef double growth(const Work* w, double after, double before) noexcept nogil:
    """after − before, for two ln det computed separately; 0 where that is only rounding."""
    cdef double gain = after - before
    return gain if gain > rounding(w, after) else 0.0


cdef double rounding(const Work* w, double log_det) noexcept nogil:
    """The error that the ln det of a factorisation may have."""
    return ROUNDING * w.d * (1 + fabs(log_det + w.log_det_ridge))


cdef int refresh_client(
    Work* w, const Snapshot* held, Pending* p, int cancelled
) noexcept nogil:
    """Recompute (A+ΔA)⁻¹ by a fresh factorisation.

    `cancelled` means that the inverse it replaces has lost digits and was never used, so that its
    drift is not measured. The gain stays the sum of all steps, which keeps the digits of a small
    one, unless ln det differs from it by more than rounding.
    """
    cdef double log_det = 0.0, before = 0.0
    cdef int info = copy_gram(w, held, w.matrix, &before)
    if info != 0:
        return info
    if p.size != MATRICES:
        place(w.store, p, MATRICES)
    add_delta(w, w.matrix, p)
    if cancelled:
        info = factorise(w, w.matrix, p.inverse, &log_det)
    else:
        info = replace_inverse(w, w.matrix, p.inverse, &log_det)
    if not fabs(log_det - before - p.gain) <= rounding(w, log_det):
        p.gain = growth(w, log_det, before)
    p.own, p.age = 1, 0
    return info


cdef int copy_gram(
    Work* w, const Snapshot* held, double* gram, double* log_det
) noexcept nogil:
    """Write A and its ln det; A is P⁻¹ where the server's next snapshot took it over."""
    cdef ptrdiff_t i
    cdef int info
    if held.gram != NULL:
        memcpy(gram, held.gram, w.d * w.ld * sizeof(double))
        log_det[0] = held.log_det
        return 0
    if held.fresh:
        memset(gram, 0, w.d * w.ld * sizeof(double))
        for i in range(w.d):
            gram[i * w.ld + i] = w.ridge
        log_det[0] = 0.0
        return 0
    memcpy(gram, held.inverse, w.d * w.ld * sizeof(double))
    info = w.k.invert(gram, w.ld, w.d, w.u, log_det)
    log_det[0] = -log_det[0] - w.log_det_ridge
    return info if info != 0 else check_precision(w, gram, held.inverse)


cdef int rebase(Work* w, const Snapshot* held, Pending* p) noexcept nogil:
    """Put what was gathered since an earlier download on top of this one.

    ΔA and Δb stay; the inverse, the gain and θ̂ follow from the new A and b.
    """
    cdef int info
    p.gain = -1.0  # relative to the earlier download: force refresh_client to replace it
    info = refresh_client(w, held, p, 1)
    if info != 0 or not w.eager:
        return info
    client_theta(w, held, p)
    return 0 if is_finite(w, p.theta) else TOO_LARGE


cdef void client_theta(Work* w, const Snapshot* held, Pending* p) noexcept nogil:
    """θ̂ = (A+ΔA)⁻¹(b+Δb)."""
    cdef ptrdiff_t i
    for i in range(w.ld):
        w.y[i] = held.moment[i] + p.delta_moment[i]
    w.k.matvec(p.inverse, w.ld, w.y, w.d, p.theta)


# --- the server merges ----------------------------------------------------------------------------

cdef int merge(Work* w, Snapshot* into, Snapshot* server, const Pending* p) noexcept nogil:
    """A ← A + ΔA, b ← b + Δb, with P, θ̂ and ln det. `into` may be `server`.

    A short list of vectors is merged by rank-one steps, a matrix by a factorisation.
    """
    hand_over(w, into, server)
    outgrow(w, into, server)
    add_pending(w, into, p)
    if p.dense or p.gain > STEEP:
        return settle(w, into)
    merge_vectors(w, into, server, p)
    if not isfinite(into.log_det):
        return NOT_DEFINITE
    if into.age > w.refresh:
        return finish_settling(
            w, into, replace_inverse(w, into.gram, into.inverse, &into.log_det)
        )
    return estimate(w, into)


cdef void hand_over(Work* w, Snapshot* into, Snapshot* source) noexcept nogil:
    """Give `into` the A and b of `source`: the same memory, or a copy where sums are kept."""
    if into == source:
        return
    if not w.keeps_sums:
        into.gram, into.moment = source.gram, source.moment
        source.gram = source.moment = NULL
        return
    copy_sums(w, into, source)


cdef void copy_sums(Work* w, Snapshot* into, const Snapshot* source) noexcept nogil:
    """Copy A and b of `source` to `into`."""
    take_sums(w.store, into)
    memcpy(into.gram, source.gram, w.d * w.ld * sizeof(double))
    memcpy(into.moment, source.moment, w.ld * sizeof(double))


cdef void outgrow(Work* w, Snapshot* into, const Snapshot* source) noexcept nogil:
    """Hand the certificates of `source` on to `into`, whose A is at least as large.

    A loud layer is to be examined again.
    """
    into.fresh = 0
    into.quiet = UNKNOWN if source.quiet == LOUD else source.quiet
    into.panel = source.panel


cdef void merge_vectors(
    Work* w, Snapshot* into, const Snapshot* server, const Pending* p
) noexcept nogil:
    """P − Σ u uᵀ and ln det, by one rank-one step for each vector."""
    cdef const Snapshot* source = server
    cdef ptrdiff_t j
    cdef double log_det = server.log_det
    for j in range(p.n):
        memcpy(w.v, p.delta + j * w.ld, w.ld * sizeof(double))
        w.k.matvec(source.inverse, w.ld, w.v, w.d, w.y)
        log_det += deflate(w)
        w.k.add_outer(into.inverse, source.inverse, w.ld, w.u, -1.0, w.d)
        source = into
    into.log_det, into.age = log_det, server.age + p.n


cdef void add_pending(Work* w, Snapshot* into, const Pending* p) noexcept nogil:
    """A ← A + ΔA, b ← b + Δb; the inverse is left stale until it follows."""
    cdef const double* delta_moment = delta_moment_of(w, p)
    cdef ptrdiff_t i
    for i in range(w.ld):
        into.moment[i] += delta_moment[i]
    add_delta(w, into.gram, p)


cdef int settle(Work* w, Snapshot* s) noexcept nogil:
    """Compute P, θ̂ and ln det of a snapshot from its A and b, by a fresh factorisation."""
    return finish_settling(w, s, factorise(w, s.gram, s.inverse, &s.log_det))


cdef int finish_settling(Work* w, Snapshot* s, int info) noexcept nogil:
    """Compute θ̂ after a factorisation that returned `info`."""
    s.age = 0
    return estimate(w, s) if info == 0 else info


cdef int estimate(Work* w, Snapshot* s) noexcept nogil:
    """θ̂ = P b."""
    w.k.matvec(s.inverse, w.ld, s.moment, w.d, s.theta)
    return 0 if is_finite(w, s.theta) else TOO_LARGE
