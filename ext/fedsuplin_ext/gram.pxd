# Updates of what is known of a layer: observations, uploads merged into the server, downloads.
# The symbols are explained in structs.pxd.

from fedsuplin_ext.structs cimport Pending, Snapshot, Work

cdef int observe(
    Work* w, const Snapshot* held, Pending* p, const double* x, const double* Px,
    double weight, double reward,
) noexcept nogil
cdef void outgrow(Work* w, Snapshot* into, const Snapshot* source) noexcept nogil
cdef void copy_sums(Work* w, Snapshot* into, const Snapshot* source) noexcept nogil
cdef void hand_over(Work* w, Snapshot* into, Snapshot* source) noexcept nogil
cdef int copy_gram(
    Work* w, const Snapshot* held, double* gram, double* log_det
) noexcept nogil
cdef const double* delta_moment_of(Work* w, const Pending* p) noexcept nogil
cdef int merge(Work* w, Snapshot* into, Snapshot* server, const Pending* p) noexcept nogil
cdef void add_delta(Work* w, double* gram, const Pending* p) noexcept nogil
cdef void add_pending(Work* w, Snapshot* into, const Pending* p) noexcept nogil
cdef int settle(Work* w, Snapshot* s) noexcept nogil
cdef double growth(const Work* w, double after, double before) noexcept nogil
cdef int rebase(Work* w, const Snapshot* held, Pending* p) noexcept nogil
