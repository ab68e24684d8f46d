# Certificates: proofs that no arm of a layer is wider than its target.

from fedsuplin_ext.structs cimport Certificates, Numbers, Panel, Screen, Snapshot, Spikes, Work

cdef double threshold(const Numbers* numbers, int q) noexcept nogil
cdef const Spikes* spikes_of(const Screen* s, const Snapshot* held, int q) noexcept nogil
cdef int proves_none_wide(
    Work* w, Screen* s, const Snapshot* held, int q, const double* columns, int lanes
) noexcept nogil
cdef void note_calm(Work* w, Screen* s, Snapshot* held, int q) noexcept nogil
cdef void note_unproved(Work* w, Screen* s, Snapshot* held, int q) noexcept nogil
cdef ptrdiff_t panel_size(int d) noexcept nogil
