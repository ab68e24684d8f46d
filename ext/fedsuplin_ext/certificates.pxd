# Certificates: proofs that no arm of a layer is wider than its target.

from fedsuplin_ext.structs cimport Numbers, Screen, Snapshot, Work

cdef int none_wide(
    Work* w, Screen* s, const Numbers* numbers, const Snapshot* held, int q,
    const double* columns, int lanes,
) noexcept nogil
cdef void note_calm(
    Work* w, Screen* s, const Numbers* numbers, Snapshot* held, int q
) noexcept nogil
